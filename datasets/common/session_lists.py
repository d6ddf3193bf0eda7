"""Published lists of class-incremental sessions: the images of each later session, and hashes of the whole lists.

They are in a JSON file next to the dataset's module. Its lists are checked against the hashes of the published files,
and the images on disk against the hashes of the published lists of all training, test and base images.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cocoamix.errors import UserError, brief
from cocoamix.fscil.split import SessionSplit

from .base import FewShotDataset, Items, SplitItems
from .items import new_item, paths_of
from .missing import policy_of, refuse_missing

Rows = list[tuple[str, str]]  # of each image, the class as files and folders name it, and the file name


@dataclass(frozen=True)
class ListHash:
    """A published list that is not stored: its number of lines and the MD5 of its sorted lines."""

    images: int
    md5: str


@dataclass(frozen=True)
class SessionLists:
    """The published lists of a dataset.

    Attributes:
        base: Classes of session 0.
        way: Classes of each later session.
        shots: Images per class of each later session.
        classes: The name of each class in prompts, by its name in files and folders, in the order of labels.
        whole: The hashes of the lists of all `train`, `test` and `base` images.
        few: For each later session and each of its classes, the file names of its images, in the published order.
    """

    base: int
    way: int
    shots: int
    classes: dict[str, str]
    whole: Mapping[str, ListHash]
    few: list[dict[str, list[str]]]


class PublishedSessions(FewShotDataset):
    """A dataset with published lists. All training images are used; none are for validation."""

    lists: Path
    advice: str  # what to do if the lists on disk are not the published ones

    @classmethod
    def class_of(cls, entry: Any) -> tuple[str, str]:
        """Return the name of a class in files and folders, and in prompts. `entry` is its entry in the JSON file."""
        raise NotImplementedError(f"{cls.__name__} defines no class_of")

    @classmethod
    def file_name(cls, category: str, image: Any) -> str:
        """Return the file name of an image. `image` is its entry in the JSON file."""
        raise NotImplementedError(f"{cls.__name__} defines no file_name")

    @classmethod
    def published_line(cls, split: str, category: str, name: str) -> str:
        """Return the line of the published list that names an image."""
        raise NotImplementedError(f"{cls.__name__} defines no published_line")

    def path_of(self, folder: Path, category: str, name: str) -> str:
        """Return the path of an image in the dataset's folder."""
        raise NotImplementedError(f"{type(self).__name__} defines no path_of")

    def read_rows(self) -> tuple[Path, dict[str, tuple[Path, Rows]]]:
        """Return the dataset's folder, and for each of train and test the file that lists its images, with its rows."""
        raise NotImplementedError(f"{type(self).__name__} defines no read_rows")

    def read_items(self) -> SplitItems:
        lists = self.read_lists()
        folder, found = self.read_rows()
        for split, (origin, rows) in found.items():
            self._check_whole(lists, split, origin, rows)
        labels = {category: label for label, category in enumerate(lists.classes)}
        train, test = (
            [
                new_item(self.path_of(folder, category, name), labels[category], lists.classes[category])
                for category, name in found[split][1]
            ]
            for split in ("train", "test")
        )
        refuse_missing(paths_of(train, test), str(folder), policy_of(self.cfg))
        return train, [], test

    @classmethod
    def read_lists(cls) -> SessionLists:
        """Return the published lists; refuse an altered file."""
        facts = read_facts(cls.lists)
        try:
            classes = dict(cls.class_of(entry) for entry in facts["classes"])
            base, way, shots = (int(facts[key]) for key in ("base", "way", "shots"))
            whole = {name: ListHash(int(one["images"]), str(one["md5"])) for name, one in facts["whole"].items()}
            few: list[dict[str, list[str]]] = []
            for number, session in enumerate(facts["sessions"], 1):
                first = base + way * (number - 1)
                own = list(classes)[first : first + way]
                few.append(
                    {
                        category: [cls.file_name(category, image) for image in images]
                        for category, images in zip(own, session["images"], strict=True)
                    }
                )
                lines = (cls.published_line("train", one, name) for one, names in few[-1].items() for name in names)
                check_list(cls.lists, number, lines, str(session["md5"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise not_as_published(cls.lists, error) from error
        if base + way * len(few) != len(classes) or set(whole) != {"train", "test", "base"}:
            raise UserError(f"{cls.lists} is altered: its {len(few)} lists do not cover all classes. Restore it.")
        return SessionLists(base, way, shots, classes, whole, few)

    def _check_whole(self, lists: SessionLists, split: str, origin: Path, rows: Rows) -> None:
        """Refuse a list on disk that names other images or classes than the published one."""
        published, classes = lists.whole[split], {category for category, _ in rows}
        wrong = ""
        if (len(rows), len(classes)) != (published.images, len(lists.classes)):
            wrong = (
                f"it names {len(rows):,} {split} images of {len(classes)} classes, but the published list "
                f"names {published.images:,} of {len(lists.classes)}"
            )
        elif not classes <= set(lists.classes):
            wrong = f"its class {brief(min(classes - set(lists.classes)))} is not one of the published classes"
        elif hash_lines(self.published_line(split, *row) for row in rows) != published.md5:
            wrong = f"it names as many {split} images, but not the same ones"
        if wrong:
            raise UserError(f"{origin} does not match the published sessions: {wrong}. {self.advice}")

    def published_shots(self, how: SessionSplit) -> list[Items]:
        """Return the published items of the later sessions."""
        lists = self.read_lists()
        refuse_other_split(how, (lists.base, lists.way, lists.shots))
        categories, items = list(lists.classes), list(self.train_x)
        named = {(categories[item.label], os.path.basename(item.impath)): item for item in items}
        base = [row for row in named if row[0] in categories[: lists.base]]
        if hash_lines(self.published_line("train", *row) for row in base) != lists.whole["base"].md5:
            raise UserError(
                f"The {len(base):,} training images of the first {lists.base} classes are not the "
                f"{lists.whole['base'].images:,} of the published base session. The published sessions need the whole "
                "dataset: DATASET.NUM_SHOTS -1 and DATASET.SUBSAMPLE_CLASSES all."
            )
        return [[named[category, name] for category, names in few.items() for name in names] for few in lists.few]


# ---------------------------------------------------------------------- the file of facts


def read_facts(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file of published facts."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise TypeError("it is not an object")
    except (OSError, ValueError, TypeError) as error:
        raise not_as_published(path, error) from error
    return found


def not_as_published(path: Path, error: Exception) -> UserError:
    """Return the error for a file of facts that cannot be parsed."""
    return UserError(f"{path} does not hold the published lists ({error}). Restore it.")


def check_list(path: Path, session: int, lines: Iterable[object], md5: str) -> None:
    """Refuse a session whose lines do not have the hash of the published file."""
    if _md5(lines) != md5:
        raise UserError(f"{path} is altered: the list of session {session} has a different hash. Restore it.")


def hash_lines(lines: Iterable[str]) -> str:
    """Return the MD5 of the sorted lines, since lists on disk may be in another order."""
    return _md5(sorted(lines))


def _md5(lines: Iterable[object]) -> str:
    text = "".join(f"{line}\n" for line in lines)
    return hashlib.md5(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()


def refuse_other_split(how: SessionSplit, published: tuple[int, int, int]) -> None:
    """Refuse numbers of classes and images other than the published ones."""
    if (how.base, how.way, how.shots) != published:
        base, way, shots = published
        raise UserError(
            f"The published lists are for FSCIL.BASE {base}, WAY {way} and SHOTS {shots}, not for "
            f"{how.base}, {how.way} and {how.shots}. Set FSCIL.SPLIT random to draw others."
        )
