"""The base of CoOp's datasets: image folder, split file, few-shot draw, base and new classes."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from dassl.data.datasets import DatasetBase
from yacs.config import CfgNode

from cocoamix.choices import SUBSETS
from cocoamix.config.partition import LABEL
from cocoamix.errors import UserError, check_choice
from cocoamix.io.screen import detail
from cocoamix.registry import plain_name

from .doubts import check_split
from .items import Items, paths_of, relabel, rerooted
from .kept_draws import draw_file, fitting, validation_shots
from .missing import policy_of, refuse_missing
from .partition import divide
from .pickles import read_items, write_items
from .splits import SPLITS, SplitItems, read_split, write_split

__all__ = ["SPLITS", "FewShotDataset", "Items", "SplitDataset", "SplitItems", "read_split", "relabel"]

OWN_KEYS = ("FOLDER", "CLASSNAMES", "CSV")  # of DATASET, and empty by default


class FewShotDataset(DatasetBase):
    """Train, val and test items, reduced to the configured shots and classes."""

    folder = ""  # name of the dataset's folder, below DATASET.ROOT
    drawn: tuple[str, ...] = ("train", "val")  # the splits that a few-shot draw reduces

    own_keys: tuple[str, ...] = ()  # the OWN_KEYS that this dataset reads
    lists_missing = True  # whether the dataset lists images whose files are missing
    names_are_chosen = False  # whether the user chooses the class names, so that a stored draw may have others
    # The class name of each class as folders or a table denote it, also of classes outside the configured half.
    categories: Mapping[str, str] = MappingProxyType({})

    def __init__(self, cfg: CfgNode) -> None:
        self.cfg = cfg
        self._refuse_other_keys()
        with self._seeded():
            train, val, test = self.read_items()
            self._check_labels(train, val, test)
            if cfg.DATASET.NUM_SHOTS >= 1:
                train, val = self.few_shot(train, val)
        self.partition = cfg.DATASET.PARTITION  # so that callers can check that it was applied
        train, val, test = self.subsample_classes(
            train, val, test, subsample=cfg.DATASET.SUBSAMPLE_CLASSES, partition=self.partition
        )
        super().__init__(train_x=train, val=val, test=test)

    def read_items(self) -> SplitItems:
        """Return all train, val and test items; set `dataset_dir` if they are in a folder."""
        raise NotImplementedError(f"{type(self).__name__} defines no read_items")

    def _refuse_other_keys(self) -> None:
        """Refuse keys that are for the user's own images and would have no effect here."""
        for key in OWN_KEYS:
            if self.cfg.DATASET.get(key) and key not in self.own_keys:
                raise UserError(
                    f"DATASET.{key} is {self.cfg.DATASET[key]!r}, but {plain_name(type(self).__name__)} does not read "
                    "it: it is for your own images. Leave it empty."
                )

    @contextmanager
    def _seeded(self) -> Iterator[None]:
        """Seed the generator as CoOp does, and restore its state at the end.

        Draws then neither depend on other code nor affect it. Without a split file, the split is drawn before the
        shots.
        """
        state = random.getstate()
        if self.cfg.SEED >= 0:
            random.seed(self.cfg.SEED)
        try:
            yield
        finally:
            if self.cfg.SEED >= 0:
                random.setstate(state)

    def _check_labels(self, train: Items, val: Items, test: Items) -> None:
        """Refuse labels with gaps, which would shift the class names and the base and new halves."""
        name = type(self).__name__
        if not train:
            raise UserError(f"The dataset {name} has no training images.")
        labels = {item.label for item in train}
        for item in [*val, *test]:
            if item.label not in labels:
                raise UserError(
                    f"The class {item.label} ({item.classname}) of {name} has no training image, although it has "
                    f"others, such as {item.impath}. Every class needs at least one; check the split file."
                )
        if labels != set(range(len(labels))):
            missing = sorted(set(range(len(labels))) - labels)
            raise UserError(
                f"The labels of {name} do not run from 0 to {len(labels) - 1}: no training image has {missing[0]}. "
                "Every class needs at least one; check the split file."
            )

    def find_folder(self, *needed: str) -> Path:
        """Return the dataset's folder and set `dataset_dir`; refuse a folder without the needed parts."""
        root = self.find_root()
        folder = root / self.folder
        if not folder.is_dir():
            raise UserError(
                f"The dataset {type(self).__name__} is not in {root}: there is no folder {self.folder}/ in it. "
                + self._advice()
            )
        for part in needed:
            if part and not (folder / part).exists():
                raise UserError(
                    f"The dataset {type(self).__name__} is incomplete: {folder / part} is missing. {self._advice()}"
                )
        self.dataset_dir = str(folder)
        return folder

    def _advice(self) -> str:
        name = plain_name(type(self).__name__)
        return f"`cocoamix data check {name} --root {self.cfg.DATASET.ROOT}` shows what is missing."

    def find_root(self) -> Path:
        """Return the folder of all datasets."""
        if not self.cfg.DATASET.ROOT:
            name = type(self).__name__
            raise UserError(f"The dataset {name} needs a data folder: give --root DIR, where DIR/{self.folder} is.")
        root = Path(os.path.abspath(os.path.expanduser(self.cfg.DATASET.ROOT)))
        if not root.is_dir():
            raise UserError(f"The data folder {root} does not exist. --root is the folder that holds {self.folder}/.")
        return root

    # ------------------------------------------------------------------ few shots

    def few_shot(self, train: Items, val: Items) -> tuple[Items, Items]:
        """Return CoOp's few-shot draw for this seed, from its cache if there is one."""
        shots, seed = self.cfg.DATASET.NUM_SHOTS, self.cfg.SEED
        if not self.cfg.DATASET.FEWER_SHOTS:
            _refuse_short_classes(train, shots)
        # Saving a draw needs a dataset folder and a seed.
        cache = draw_file(self.dataset_dir, shots, seed) if self.dataset_dir and seed >= 0 else None
        if cache is not None and cache.is_file():
            return self.read_draw(cache, shots, train, val)
        found = {"train": self.generate_fewshot_dataset(train, num_shots=shots)}
        if "val" in self.drawn:
            found["val"] = self.generate_fewshot_dataset(val, num_shots=validation_shots(shots))
        if cache is not None:
            write_items(cache, found, "preprocessed few-shot data")
        return found["train"], found.get("val", val)

    def read_draw(self, cache: Path, shots: int, train: Items, val: Items) -> tuple[Items, Items]:
        """Return the train and val items of a stored draw; refuse one that does not fit the dataset.

        Args:
            cache: The file of the draw.
            shots: Its number of images per class.
            train: All train items.
            val: All val items.
        """
        detail(f"Loading preprocessed few-shot data from {cache}")
        saved = read_items(cache, self.drawn, "a few-shot draw of CoOp's")
        current, most = {"train": train, "val": val}, {"train": shots, "val": validation_shots(shots)}
        renamed = False
        for split, items in zip(self.drawn, saved, strict=True):
            located = self.locate(items, str(cache))
            current[split] = fitting(located, current[split], most[split], split, cache, self.names_are_chosen)
            renamed |= any(old.classname != new.classname for old, new in zip(items, current[split], strict=True))
        if renamed:
            print(
                f"Note: the few-shot draw in {cache} was made under other class names. Its images and labels are the "
                "same, so it is used with the present names."
            )
        return current["train"], current["val"]

    def locate(self, items: Items, origin: str) -> Items:
        """Change the absolute paths of saved items to paths in this data folder; refuse missing files.

        Args:
            items: The items, which are modified.
            origin: The file that they were read from, for messages.
        """
        for item, path in zip(items, rerooted(paths_of(items), self.dataset_dir), strict=True):
            item._impath = path
        advice = "Restore them, or delete that file to draw others."
        if self.lists_missing:
            advice = "Restore them, delete that file to draw others, or set DATASET.BAD_IMAGES skip."
        refuse_missing(paths_of(items), origin, policy_of(self.cfg), advice)
        return items

    # ------------------------------------------------------------------ base and new

    @staticmethod
    def subsample_classes(*splits: Items, subsample: str = "all", partition: str = LABEL) -> Sequence[Items]:
        """Keep the base half of the labels (rounded up) or the new half, renumbered from 0 in their order."""
        check_choice("DATASET.SUBSAMPLE_CLASSES", subsample, SUBSETS)
        if subsample == "all":
            return splits
        base, new = divide((item.label for item in splits[0]), partition)
        chosen = base if subsample == "base" else new
        if not chosen:
            raise UserError(
                f"DATASET.SUBSAMPLE_CLASSES {subsample} leaves no class of {len(base)}: halves need two classes."
            )
        renumbered = {label: index for index, label in enumerate(chosen)}
        return [
            [relabel(item, renumbered[item.label]) for item in items if item.label in renumbered] for items in splits
        ]


class SplitDataset(FewShotDataset):
    """A dataset in CoOp's layout: `$ROOT/<folder>/`, with a split file of train, val and test lists."""

    image_folder = ""  # below `folder`
    split_file = ""  # below `folder`

    def read_items(self) -> SplitItems:
        folder = self.find_folder(self.image_folder)
        split, images = folder / self.split_file, folder / self.image_folder
        if split.exists():
            found = read_split(split, images, policy_of(self.cfg))
            check_split(str(split), *found)
            return found
        splits = self.make_split(folder, images)
        refuse_missing(paths_of(*splits), type(self).__name__, policy_of(self.cfg))
        how = f"with seed {self.cfg.SEED}" if self.cfg.SEED >= 0 else "without a seed"
        print(
            f"There is no split file {split}, so a split was drawn {how}, as CoOp does. "
            "Results on it are not comparable with results on the split that CoOp publishes."
        )
        write_split(split, images, splits)
        return splits

    def make_split(self, folder: Path, images: Path) -> SplitItems:
        """Draw the split that CoOp draws if there is no split file, in the same order."""
        name = type(self).__name__
        raise UserError(f"The dataset {name} is incomplete: {folder / self.split_file} is missing.")


def _refuse_short_classes(items: Items, shots: int) -> None:
    counts = Counter(item.label for item in items)
    short = {label: count for label, count in counts.items() if count < shots}
    if short:
        names = {item.label: item.classname for item in items}
        shown = ", ".join(f"{names[label]} ({count})" for label, count in list(short.items())[:5])
        raise UserError(
            f"DATASET.NUM_SHOTS is {shots}, but {len(short)} classes have fewer training images: {shown}. "
            "Use fewer shots, or set DATASET.FEWER_SHOTS True to use all images of such classes."
        )
