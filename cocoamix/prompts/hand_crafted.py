"""The hand-crafted prompt t_0: its templates, and the text features that they give classes."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from cocoamix.clip import templates
from cocoamix.clip.interface import AnyCLIP


class HandCraftedPrompt:
    """One or several templates, whose text features are averaged.

    Args:
        clip: The frozen model.
        given: A template or a list of templates. `dataset` means the dataset's own template.
        dataset: Name of the dataset.
        method: The method whose dataset templates to use; CoOp's by default.
    """

    def __init__(self, clip: AnyCLIP, given: str | Sequence[str], dataset: str, method: str = "") -> None:
        self.clip = clip
        own = templates.dataset_template(dataset, method)
        self.templates = [own if one == "dataset" else one for one in ([given] if isinstance(given, str) else given)]
        self._cached: tuple[list[str], Tensor] | None = None

    def of(self, classnames: Sequence[str]) -> Tensor:
        """Return the (C, embedding) unit text features of classes. The last result is cached."""
        names = list(classnames)
        if self._cached is None or self._cached[0] != names:
            self._cached = names, self.clip.encode_classes(names, self.templates)
        return self._cached[1]
