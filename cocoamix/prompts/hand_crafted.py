"""The hand-crafted prompt: templates, and the text features of classes under them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from cocoamix.clip import templates
from cocoamix.clip.interface import AnyCLIP


class HandCraftedPrompt:
    """One or several templates, whose text features are averaged.

    given: a template, a list of them, or `dataset` for the dataset's own.
    method: whose templates for datasets these are; CoOp's by default.
    """

    def __init__(self, clip: AnyCLIP, given: str | Sequence[str], dataset: str, method: str = "") -> None:
        self.clip = clip
        own = templates.dataset_template(dataset, method)
        self.templates = [own if one == "dataset" else one for one in ([given] if isinstance(given, str) else given)]
        self._kept: tuple[list[str], Tensor] | None = None

    def of(self, classnames: Sequence[str]) -> Tensor:
        """Return the (C, embedding) unit vectors of classes. Those of the last call are kept."""
        names = list(classnames)
        if self._kept is None or self._kept[0] != names:
            self._kept = names, self.clip.encode_classes(names, self.templates)
        return self._kept[1]
