"""What a run of predictions comes to, counted while images come in."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from cocoamix.run.predictions import UNKNOWN, Record


class Summary:
    """Counts predictions.

    Attributes:
        unreadable: Images that could not be read, with the reason.
    """

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = set(classes)
        self.unreadable: dict[str, str] = {}
        self.images = 0
        self._predicted: Counter[str] = Counter()
        self._confidence: defaultdict[str, float] = defaultdict(float)
        self._judged: Counter[tuple[bool, bool]] = Counter()  # by whether the label is a class, and whether it is right
        self._flagged: Counter[bool] = Counter()  # images that are called unknown, by whether their label is a class

    def add(self, record: Record) -> None:
        """Count an image."""
        self.images += 1
        self._predicted[record.predicted] += 1
        self._confidence[record.predicted] += record.confidence
        if record.label:
            known = record.label in self.classes
            self._judged[known, record.predicted == record.label] += 1
            self._flagged[known] += record.predicted == UNKNOWN

    @property
    def accuracy(self) -> float | None:
        """In percent, over images whose label is one of the classes."""
        total = self._judged[True, True] + self._judged[True, False]
        return 100 * self._judged[True, True] / total if total else None

    def by_class(self) -> list[tuple[str, int, float]]:
        """Return the predicted classes, the most frequent first, with their numbers and mean confidence."""
        return [(name, count, self._confidence[name] / count) for name, count in self._predicted.most_common()]

    def lines(self, with_unknown: bool) -> list[str]:
        """Return what is said at the end."""
        told = [f"{self.images:,} images" + (f", {len(self.unreadable)} unreadable" if self.unreadable else "")]
        inside = sum(self._judged[True, right] for right in (True, False))
        outside = sum(self._judged[False, right] for right in (True, False))
        if self.accuracy is not None:
            told.append(f"accuracy {self.accuracy:.2f} % over {inside:,} images with a label among the classes")
        if with_unknown and inside:
            told.append(
                f"false alarms {100 * self._flagged[True] / inside:.2f} % of {inside:,} images of known classes"
            )
        if with_unknown and outside:
            told.append(f"found {100 * self._flagged[False] / outside:.2f} % of {outside:,} images of other classes")
        elif outside:
            told.append(f"{outside:,} images have a label that is none of the classes")
        return told
