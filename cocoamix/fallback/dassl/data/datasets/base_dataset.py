"""Items, and the lists of them that make a dataset."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from dassl.utils import MissingFileError, check_availability

from cocoamix.errors import UserError


class Datum:
    """One image: its path, label, domain and class name.

    Few-shot caches pickle these objects under this module's name with these four attributes, so
    neither may change: caches of Dassl load here, and the other way round.
    """

    def __init__(self, impath: str = "", label: int = 0, domain: int = 0, classname: str = "") -> None:
        if not isinstance(impath, str):
            raise TypeError(f"an image path must be a string, not {type(impath).__name__}")
        if not os.path.isfile(impath):
            raise MissingFileError(f"There is no image {impath}. Check DATASET.ROOT and the dataset's folder.")
        self._impath = impath
        self._label = label
        self._domain = domain
        self._classname = classname

    @property
    def impath(self) -> str:
        return self._impath

    @property
    def label(self) -> int:
        return self._label

    @property
    def domain(self) -> int:
        return self._domain

    @property
    def classname(self) -> str:
        return self._classname


class DatasetBase:
    """Training, validation and test items. The classes are those of the labelled training items."""

    dataset_dir: str = ""
    domains: ClassVar[list[str]] = []

    def __init__(
        self,
        train_x: Sequence[Datum] | None = None,
        train_u: Sequence[Datum] | None = None,
        val: Sequence[Datum] | None = None,
        test: Sequence[Datum] | None = None,
    ) -> None:
        if not train_x:
            raise UserError(f"The dataset {type(self).__name__} has no training images.")
        self._train_x = train_x
        self._train_u = train_u
        self._val = val
        self._test = test
        self._num_classes = self.get_num_classes(train_x)
        self._lab2cname, self._classnames = self.get_lab2cname(train_x)

    @property
    def train_x(self) -> Sequence[Datum]:
        return self._train_x

    @property
    def train_u(self) -> Sequence[Datum] | None:
        return self._train_u

    @property
    def val(self) -> Sequence[Datum] | None:
        return self._val

    @property
    def test(self) -> Sequence[Datum] | None:
        return self._test

    @property
    def lab2cname(self) -> dict[int, str]:
        return self._lab2cname

    @property
    def classnames(self) -> list[str]:
        return self._classnames

    @property
    def num_classes(self) -> int:
        return self._num_classes

    @staticmethod
    def get_num_classes(data_source: Iterable[Datum]) -> int:
        return max(item.label for item in data_source) + 1

    @staticmethod
    def get_lab2cname(data_source: Iterable[Datum]) -> tuple[dict[int, str], list[str]]:
        """Return the class name of each label, as a dictionary and as a list in the labels' order."""
        names: dict[int, str] = {}
        for item in data_source:
            known = names.setdefault(item.label, item.classname)
            if known != item.classname:  # which of the two a prompt gets must not be left to chance
                raise UserError(f"Label {item.label} has two class names: {known!r} and {item.classname!r}.")
        names = dict(sorted(names.items()))
        return names, list(names.values())

    def check_input_domains(self, source_domains: Sequence[str], target_domains: Sequence[str]) -> None:
        """Refuse missing or unknown domains."""
        for key, given in (("SOURCE_DOMAINS", source_domains), ("TARGET_DOMAINS", target_domains)):
            if not given:
                raise UserError(f"DATASET.{key} is empty. Available: {', '.join(self.domains)}.")
            self.is_input_domain_valid(given)

    def is_input_domain_valid(self, input_domains: Iterable[str]) -> None:
        for domain in input_domains:
            check_availability(domain, self.domains)

    def generate_fewshot_dataset(
        self, *data_sources: Sequence[Datum], num_shots: int = -1, repeat: bool = False
    ) -> Any:
        """Draw `num_shots` items per class from each list; all items if `num_shots` is below 1.

        A class with fewer items gives all of them, or draws with replacement if `repeat`. The draw is
        Dassl's, item for item, for the same state of `random`: published results depend on it.
        Returns one list for one argument, else one list per argument.
        """
        if num_shots < 1:
            return data_sources[0] if len(data_sources) == 1 else data_sources
        print(f"Drawing {num_shots} images per class")
        drawn = []
        for source in data_sources:
            chosen: list[Datum] = []
            for items in self.split_dataset_by_label(source).values():
                if len(items) >= num_shots:
                    chosen += random.sample(items, num_shots)
                else:
                    chosen += random.choices(items, k=num_shots) if repeat else items
            drawn.append(chosen)
        return drawn[0] if len(drawn) == 1 else drawn

    def split_dataset_by_label(self, data_source: Iterable[Datum]) -> dict[int, list[Datum]]:
        """Group items by label, in the order in which the labels first occur."""
        groups: dict[int, list[Datum]] = defaultdict(list)
        for item in data_source:
            groups[item.label].append(item)
        return groups

    def split_dataset_by_domain(self, data_source: Iterable[Datum]) -> dict[int, list[Datum]]:
        """Group items by domain, in the order in which the domains first occur."""
        groups: dict[int, list[Datum]] = defaultdict(list)
        for item in data_source:
            groups[item.domain].append(item)
        return groups
