"""Counts over all predictions, updated image by image."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from cocoamix.run.predictions import UNKNOWN, Record


class Summary:
    """Counts predictions.

    Attributes:
        images: Images that were labelled.
        unreadable: Images that could not be read.
    """

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = set(classes)
        self.images = self.unreadable = 0
        self._predicted: Counter[str] = Counter()
        self._confidence: defaultdict[str, float] = defaultdict(float)
        # Images with a label, by whether it is one of the classes; of these, the correct ones and those flagged.
        self._labelled: Counter[bool] = Counter()
        self._right: Counter[bool] = Counter()
        self._unknown: Counter[bool] = Counter()

    def add(self, record: Record) -> None:
        """Count an image."""
        if record.error:
            self.unreadable += 1
            return
        self.images += 1
        self._predicted[record.predicted] += 1
        self._confidence[record.predicted] += record.confidence
        if record.label:
            known = record.label in self.classes
            self._labelled[known] += 1
            self._right[known] += bool(record.correct)
            self._unknown[known] += record.predicted == UNKNOWN

    @property
    def accuracy(self) -> float | None:
        """Accuracy in percent over images whose label is one of the classes."""
        return 100 * self._right[True] / self._labelled[True] if self._labelled[True] else None

    def by_class(self) -> list[tuple[str, int, float]]:
        """Return the predicted classes, the most frequent first, with their counts and mean confidence."""
        return [(name, count, self._confidence[name] / count) for name, count in self._predicted.most_common()]

    def lines(self, with_unknown: bool) -> list[str]:
        """Return the counts as sentences. `with_unknown` adds those of images that fit no class."""
        inside, outside = self._labelled[True], self._labelled[False]
        lines = [_images(self.images) + (f", {self.unreadable:,} unreadable" if self.unreadable else "")]
        if self.accuracy is not None:
            lines.append(f"accuracy {self.accuracy:.2f} % over {_images(inside)} with a label among the classes")
        if with_unknown and inside:
            lines.append(
                f"{100 * self._unknown[True] / inside:.2f} % of {_images(inside)} of known classes flagged as unknown "
                "(false alarms)"
            )
        if with_unknown and outside:
            lines.append(
                f"{100 * self._unknown[False] / outside:.2f} % of {_images(outside)} of other classes flagged as "
                "unknown"
            )
        elif outside:
            lines.append(f"{_images(outside)} with a label that is not among the classes")
        return lines


def _images(count: int) -> str:
    return f"{count:,} image{'' if count == 1 else 's'}"
