"""A dataset of given items, with the usual few-shot draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from yacs.config import CfgNode

from ..common.base import FewShotDataset, Items


class ListedDataset(FewShotDataset):
    """Training items only, which also stand for test items. No configuration can name them: it is not registered."""

    def __init__(self, cfg: CfgNode, items: Sequence[Any]) -> None:
        self._listed = list(items)
        super().__init__(cfg)
        self._test = self.train_x

    def read_items(self) -> tuple[Items, Items, Items]:
        return self._listed, [], self._listed
