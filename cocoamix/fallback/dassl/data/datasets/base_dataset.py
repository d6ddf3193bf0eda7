"""Items, and the lists of them that make a dataset."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter

from cocoamix.errors import UserError
from cocoamix.io.screen import detail


def _read_only(attribute: str) -> property:
    """Return a read-only property of a private attribute."""
    return property(attrgetter(attribute))


class Datum:
    """One image: its path, label, domain and class name.

    Few-shot caches contain these objects as pickles, with the name of this module and the four attributes. Neither may
    change, because Dassl and this package read each other's caches.
    """

    def __init__(self, impath: str = "", label: int = 0, domain: int = 0, classname: str = "") -> None:
        if not isinstance(impath, str):
            raise TypeError(f"an image path must be a string, not {type(impath).__name__}")
        if not os.path.isfile(impath):
            raise UserError(f"There is no image {impath}. Check DATASET.ROOT and the dataset's folder.")
        self._impath, self._label = impath, label
        self._domain, self._classname = domain, classname

    impath, label = _read_only("_impath"), _read_only("_label")
    domain, classname = _read_only("_domain"), _read_only("_classname")


class DatasetBase:
    """Training, validation and test items. The classes are those of the labelled training items."""

    dataset_dir: str = ""

    def __init__(
        self,
        train_x: Sequence[Datum] | None = None,
        train_u: Sequence[Datum] | None = None,
        val: Sequence[Datum] | None = None,
        test: Sequence[Datum] | None = None,
    ) -> None:
        if not train_x:
            raise UserError(f"The dataset {type(self).__name__} has no training images.")
        self._train_x, self._train_u, self._val, self._test = train_x, train_u, val, test
        self._lab2cname = _class_names(train_x)
        self._classnames = list(self._lab2cname.values())
        self._num_classes = max(self._lab2cname) + 1

    train_x, train_u = _read_only("_train_x"), _read_only("_train_u")
    val, test = _read_only("_val"), _read_only("_test")
    num_classes, classnames = _read_only("_num_classes"), _read_only("_classnames")
    lab2cname = _read_only("_lab2cname")

    def generate_fewshot_dataset(
        self, data_source: list[Datum], num_shots: int = -1, repeat: bool = False
    ) -> list[Datum]:
        """Draw `num_shots` items per class; all items if `num_shots` is below 1.

        If a class has fewer items, all of them are used, or items are drawn with replacement if `repeat` is set. For
        the same state of `random`, the draw is the same as Dassl's, because published results depend on it.
        """
        if num_shots < 1:
            return data_source
        detail(f"Drawing {num_shots} images per class")
        classes: dict[int, list[Datum]] = defaultdict(list)  # in the order in which the labels first occur
        for item in data_source:
            classes[item.label].append(item)
        return [item for items in classes.values() for item in _draw(items, num_shots, repeat)]


def _draw(items: list[Datum], number: int, repeat: bool) -> list[Datum]:
    if number <= len(items):
        return random.sample(items, number)
    return random.choices(items, k=number) if repeat else items


def _class_names(items: Iterable[Datum]) -> dict[int, str]:
    """Return the class name of each label, in the labels' order."""
    names: dict[int, str] = {}
    for item in items:
        known = names.setdefault(item.label, item.classname)
        if known != item.classname:  # the name in a prompt must not depend on chance
            raise UserError(f"Label {item.label} has two class names: {known!r} and {item.classname!r}.")
    return dict(sorted(names.items()))
