"""Goes through images once, with everything that is asked for of each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from cocoamix.errors import UserError
from cocoamix.io.files import open_text_atomically
from cocoamix.io.progress import progress
from cocoamix.run import predictions as records
from cocoamix.run.given import Item
from cocoamix.run.predictions import Record, make_record

from .classifier import Classifier
from .inputs import Input, find_images
from .page import Page
from .summary import Summary
from .unknown import check_rate, threshold_at

_MOST_ROWS = 40  # that the terminal shows


@dataclass(frozen=True)
class Wanted:
    """What is asked for of each image.

    Attributes:
        top: How many classes are kept.
        unknown: Rate of false alarms at which images are marked as of no class; None where none is.
        held_out: Images to set the threshold for that on.
    """

    top: int
    unknown: float | None = None
    held_out: tuple[str, ...] = ()


class Writer(Protocol):
    """What records are written by."""

    def add(self, record: Record) -> None: ...

    def end(self) -> None: ...


class Outputs:
    """The files that records are written to as they come. Each appears once it is whole."""

    def __init__(
        self, table: str | None, objects: str | None, page: str | None, classifier: Classifier, top: int
    ) -> None:
        self._paths = [path for path in (table, objects, page) if path]
        self._table, self._objects, self._page = table, objects, page
        self._classifier, self._top = classifier, top
        self._stack = ExitStack()
        self.first: list[Record] = []  # that the terminal shows

    def __enter__(self) -> Outputs:
        classifier = self._classifier
        self._writers: list[Writer] = []
        with ExitStack() as stack:
            if self._table:
                self._writers.append(
                    records.CSVWriter(stack.enter_context(open_text_atomically(self._table)), self._top)
                )
            if self._objects:
                about: dict[str, Any] = {"run": str(classifier.run.folder), "trainer": classifier.run.trainer}
                about |= {"classes": classifier.classes, "calibrated": classifier.calibrated}
                self._writers.append(
                    records.JSONWriter(stack.enter_context(open_text_atomically(self._objects)), about)
                )
            if self._page:
                title, file = (
                    f"Predictions of {classifier.run.trainer}",
                    stack.enter_context(open_text_atomically(self._page)),
                )
                self._writers.append(Page(file, title, describe(classifier), classifier.upright))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            for writer in self._writers:
                writer.end()
        self._stack.__exit__(kind, error, trace)

    def add(self, record: Record) -> None:
        """Write a record."""
        if len(self.first) < _MOST_ROWS:
            self.first.append(record)
        for writer in self._writers:
            writer.add(record)

    @property
    def paths(self) -> list[str]:
        """The files."""
        return self._paths


def describe(classifier: Classifier) -> list[str]:
    """Return what a reader of predictions has to know."""
    run = classifier.run
    trained = len(classifier.trained_classes)
    told = [f"{run.trainer} trained in {run.folder}" if run.trained else f"{run.trainer}, nothing trained"]
    which = f", {trained or 'none'} of them trained on" if run.trained and trained < len(classifier.classes) else ""
    told.append(f"{len(classifier.classes)} classes{which}")
    told.append(
        "Probabilities are calibrated by the temperature that was fitted to held-out images."
        if classifier.calibrated
        else "Probabilities are not calibrated."
    )
    return told


def predict_all(classifier: Classifier, images: Sequence[Input], wanted: Wanted, outputs: Outputs) -> Summary:
    """Predict every image, write what is asked for, and return what it comes to."""
    threshold = find_threshold(classifier, wanted) if wanted.unknown is not None else 0.0
    summary, labels = Summary(classifier.classes), (image.label for image in images)
    items = [Item(image.path, upright=classifier.upright) for image in images]
    for scores, label in zip(progress(classifier.stream(items), len(items), "predicting"), labels, strict=True):
        if scores.probabilities is None:
            summary.unreadable[scores.item.impath] = scores.reason
            print(f"{scores.item.impath} cannot be read: {scores.reason}")
            continue
        rows = scores.probabilities.tolist()
        record = make_record(scores.item.impath, label, rows, classifier.classes, wanted.top, threshold)
        summary.add(record)
        outputs.add(record)
    return summary


def find_threshold(classifier: Classifier, wanted: Wanted) -> float:
    """Return the confidence below which an image is of no class."""
    rate = wanted.unknown
    assert rate is not None
    check_rate(rate)
    if wanted.held_out:
        images = find_images(wanted.held_out, classifier.classes)
        known = [image for image in images if not image.label or image.label in classifier.classes]
        items = [Item(image.path, upright=classifier.upright) for image in known]
        found = [float(one.probabilities.max()) for one in classifier.stream(items) if one.probabilities is not None]
        if not found:
            raise UserError("--held-out names no image of the classes that can be read.")
        threshold, origin = threshold_at(sorted(found), rate), f"{len(found):,} images of --held-out"
    else:
        fitted = classifier.run.origin.get("heldout") or {}
        if "confidence" not in fitted or classifier.classes != classifier.run.classnames:
            reason = (
                "the threshold was set for the classes of training alone"
                if "confidence" in fitted
                else "the run has fitted nothing to held-out images"
            )
            raise UserError(f"--unknown needs images to set its threshold on, because {reason}: add --held-out PATH.")
        threshold, origin = (
            threshold_at(fitted["confidence"], rate),
            f"{fitted['images']:,} held-out images of training",
        )
    print(f"Below a confidence of {threshold:.4f} an image is of no class: {100 * rate:g} % of {origin}")
    return threshold


def show(classifier: Classifier, summary: Summary, outputs: Outputs, wanted: Wanted) -> None:
    """Print what was found."""
    for line in describe(classifier):
        print(line)
    print()
    if summary.images <= _MOST_ROWS:
        width = max((len(Path(record.image).name) for record in outputs.first), default=0)
        for record in outputs.first:
            ranked = ", ".join(f"{name} {100 * probability:.1f} %" for name, probability in record.top)
            marked = f"{record.predicted}: " if record.predicted == records.UNKNOWN else ""
            print(f"{Path(record.image).name:{width}}  {marked}{ranked}")
    else:
        print(f"{'predicted':30} {'images':>8} {'confidence':>11}")
        for name, count, confidence in summary.by_class()[:_MOST_ROWS]:
            print(f"{name:30} {count:8,} {100 * confidence:9.1f} %")
    print()
    for line in summary.lines(wanted.unknown is not None):
        print(line)
    for path in outputs.paths:
        print(f"Written: {path}")
