"""What CoOp's datasets share: a folder of pictures, a split file, the few-shot draw, the base and new halves."""

from __future__ import annotations

import copy
import io
import json
import math
import os
import pickle
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dassl.data.datasets import DatasetBase, Datum
from yacs.config import CfgNode

from cocoamix.errors import UserError
from cocoamix.files import write_atomically

Items = list[Datum]
MOST_VALIDATION_SHOTS = 4


class FewShotDataset(DatasetBase):
    """Items of train, val and test, cut down to few shots and to half of the classes as the config asks."""

    folder = ""  # name of the dataset's folder, below DATASET.ROOT

    def __init__(self, cfg: CfgNode) -> None:
        self.cfg = cfg
        train, val, test = self.read_items()
        self._check_labels(train, val, test)
        if cfg.DATASET.NUM_SHOTS >= 1:
            train, val = self._few_shot(train, val)
        train, val, test = self.subsample_classes(train, val, test, subsample=cfg.DATASET.SUBSAMPLE_CLASSES)
        super().__init__(train_x=train, val=val, test=test)

    def _check_labels(self, train: Items, val: Items, test: Items) -> None:
        """Refuse labels with holes: class names, and the halves, would silently shift."""
        name = type(self).__name__
        labels = {item.label for item in train}
        for item in [*val, *test]:
            if item.label not in labels:
                raise UserError(
                    f"The class {item.label} ({item.classname}) of {name} has no training image, but others such as "
                    f"{item.impath}. Every class needs at least one; check the split file."
                )
        if labels != set(range(len(labels))):
            missing = sorted(set(range(len(labels))) - labels)
            raise UserError(
                f"The labels of {name} do not run from 0 to {len(labels) - 1}: no training image has {missing[0]}. "
                "Every class needs at least one; check the split file."
            )

    def read_items(self) -> tuple[Items, Items, Items]:
        """Return the full train, val and test items; set `dataset_dir` if they are in a folder."""
        raise NotImplementedError(f"{type(self).__name__} defines no read_items")

    # ------------------------------------------------------------------ few shots

    def _few_shot(self, train: Items, val: Items) -> tuple[Items, Items]:
        """Return CoOp's draw for this seed, from its cache where there is one."""
        shots, seed = self.cfg.DATASET.NUM_SHOTS, self.cfg.SEED
        if not self.cfg.DATASET.FEWER_SHOTS:
            _refuse_short_classes(train, shots)
        # Without a folder there is nowhere to keep the draw, and without a seed it is not to be kept.
        kept = bool(self.dataset_dir) and seed >= 0
        cache = Path(self.dataset_dir, "split_fewshot", f"shot_{shots}-seed_{seed}.pkl")
        if kept and cache.is_file():
            print(f"Loading preprocessed few-shot data from {cache}")
            return self._read_cache(cache)
        state = random.getstate()
        if seed >= 0:
            random.seed(seed)  # CoOp draws right after seeding: the draw must not depend on what came before
        train = self.generate_fewshot_dataset(train, num_shots=shots)
        val = self.generate_fewshot_dataset(val, num_shots=min(shots, MOST_VALIDATION_SHOTS))
        if seed >= 0:
            random.setstate(state)
        if kept:
            self._write_cache(cache, train, val)
        return train, val

    def _read_cache(self, cache: Path) -> tuple[Items, Items]:
        try:
            content = _DatumUnpickler(io.BytesIO(cache.read_bytes())).load()
            train, val = (
                [(str(i.impath), int(i.label), int(i.domain), str(i.classname)) for i in content[split]]
                for split in ("train", "val")
            )
        except Exception as error:  # whatever a damaged pickle can do, it is the file that is wrong
            raise UserError(
                f"{cache} is not a few-shot draw of CoOp's ({error}). Delete it, and it is drawn again."
            ) from error
        return self._locate(train, cache), self._locate(val, cache)

    def _locate(self, rows: Sequence[tuple[str, int, int, str]], cache: Path) -> Items:
        """Return the items of a cache, with absolute paths mended where the data folder was elsewhere."""
        paths = [path if os.path.isfile(path) else self._moved(path) for path, *_ in rows]
        _refuse_missing(paths, str(cache))
        return [
            Datum(impath=path, label=label, domain=domain, classname=classname)
            for path, (_, label, domain, classname) in zip(paths, rows, strict=True)
        ]

    def _moved(self, path: str) -> str:
        """Return where a file of another machine's data folder is in ours."""
        parts = path.replace("\\", "/").split("/")
        for depth in range(len(parts) - 1, 0, -1):
            here = os.path.join(self.dataset_dir, *parts[-depth:])
            if os.path.isfile(here):
                return here
        return path

    def _write_cache(self, cache: Path, train: Items, val: Items) -> None:
        print(f"Saving preprocessed few-shot data to {cache}")
        try:
            write_atomically(cache, lambda file: pickle.dump({"train": train, "val": val}, file))
        except OSError as error:  # a read-only data folder: the draw is the same next time
            print(f"The draw is not kept, {cache.parent} cannot be written: {error.strerror}")

    # ------------------------------------------------------------------ base and new

    @staticmethod
    def subsample_classes(*splits: Items, subsample: str = "all") -> Sequence[Items]:
        """Keep the first half of the labels (base, rounded up) or the rest (new), renumbered from 0."""
        if subsample == "all":
            return splits
        labels = sorted({item.label for item in splits[0]})
        half = math.ceil(len(labels) / 2)
        chosen = labels[:half] if subsample == "base" else labels[half:]
        if not chosen:
            raise UserError(f"DATASET.SUBSAMPLE_CLASSES {subsample} leaves no class of {len(labels)}.")
        renumbered = {label: index for index, label in enumerate(chosen)}
        return [
            [relabel(item, renumbered[item.label]) for item in items if item.label in renumbered] for items in splits
        ]


class SplitDataset(FewShotDataset):
    """A dataset in CoOp's layout: `$ROOT/<folder>/`, with a split file of train, val and test lists."""

    image_folder = ""  # below `folder`
    split_file = ""  # below `folder`

    def read_items(self) -> tuple[Items, Items, Items]:
        folder = self._find_folder()
        self.dataset_dir = str(folder)
        return read_split(str(folder / self.split_file), str(folder / self.image_folder))

    def _find_folder(self) -> Path:
        """Return the dataset's folder once it is sure that what it needs is there."""
        root = Path(self.cfg.DATASET.ROOT).expanduser()
        name = type(self).__name__
        if not self.cfg.DATASET.ROOT:
            raise UserError(f"The dataset {name} needs a data folder: give --root DIR, where DIR/{self.folder} is.")
        if not root.is_dir():
            raise UserError(f"The data folder {root} does not exist. --root is the folder that holds {self.folder}/.")
        folder = root.resolve() / self.folder
        if not folder.is_dir():
            raise UserError(f"The dataset {name} is not in {root}: there is no folder {self.folder}/ in it.")
        for part in (self.image_folder, self.split_file):
            if part and not (folder / part).exists():
                raise UserError(f"The dataset {name} is incomplete: {folder / part} is missing.")
        return folder


class _DatumUnpickler(pickle.Unpickler):
    """Reads a few-shot cache and nothing else: a pickle can otherwise run any code."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "Datum" and module.startswith("dassl.data.datasets"):
            return Datum
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def relabel(item: Datum, label: int) -> Datum:
    """Return the item under another label."""
    renamed = copy.copy(item)
    renamed._label = label
    return renamed


def _refuse_short_classes(items: Items, shots: int) -> None:
    counts: dict[tuple[int, str], int] = defaultdict(int)
    for item in items:
        counts[item.label, item.classname] += 1
    short = {name: count for (_, name), count in counts.items() if count < shots}
    if short:
        shown = ", ".join(f"{name} ({count})" for name, count in list(short.items())[:5])
        raise UserError(
            f"DATASET.NUM_SHOTS is {shots}, but {len(short)} classes have fewer training images: {shown}. "
            "Use fewer shots, or set DATASET.FEWER_SHOTS True to take what there is."
        )


def read_split(path: str, image_dir: str) -> tuple[Items, Items, Items]:
    """Read a CoOp split file: {"train"|"val"|"test": [[path, label, class name], ...]}."""
    print(f"Reading split from {path}")
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        rows = {split: [(str(p), int(label), str(name)) for p, label, name in content[split]] for split in SPLITS}
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path} is not a split file: it should hold the lists train, val and test of "
            f"[path, label, class name] ({type(error).__name__}: {error})."
        ) from error
    located = {
        split: [(os.path.join(image_dir, path), label, name) for path, label, name in rows[split]] for split in SPLITS
    }
    _refuse_missing([path for split in SPLITS for path, _, _ in located[split]], path)
    train, val, test = (
        [Datum(impath=path, label=label, classname=name) for path, label, name in located[split]] for split in SPLITS
    )
    return train, val, test


SPLITS = ("train", "val", "test")


def _refuse_missing(paths: Sequence[str], origin: str) -> None:
    missing = [path for path in paths if not os.path.isfile(path)]
    if missing:
        raise UserError(f"{len(missing)} of {len(paths)} images of {origin} are missing, the first is {missing[0]}.")
