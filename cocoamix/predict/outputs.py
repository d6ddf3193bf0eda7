"""Writes predictions to output files one by one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Protocol

from cocoamix.errors import encodable
from cocoamix.io.files import open_text_atomically
from cocoamix.run.predictions import CSVWriter, JSONWriter, Record

from .classifier import Classifier
from .page import Page


class Writer(Protocol):
    """A writer of records."""

    def add(self, record: Record) -> None:
        """Write a record."""

    def end(self, lines: Sequence[str]) -> None:
        """Finish the file; `lines` summarise the predictions."""


@dataclass(frozen=True)
class Files:
    """The requested output files; None for those that are not requested."""

    csv: str | None = None
    json: str | None = None
    html: str | None = None

    @property
    def names(self) -> list[str]:
        """Paths of the requested files."""
        return [name for name in (self.csv, self.json, self.html) if name]


class Outputs:
    """Writes records to files one by one. Each file appears when it is complete.

    Attributes:
        ending: Summary lines for the page, to be set before the context ends.
    """

    def __init__(self, files: Files, classifier: Classifier, top: int, above: str = "") -> None:
        """Choose the outputs.

        Args:
            files: The requested files.
            classifier: The classifier.
            top: Number of classes to write per image.
            above: The folder that names of images on the page are relative to.
        """
        self._files, self._classifier, self._top, self._above = files, classifier, top, above
        self._stack = ExitStack()
        self._writers: list[Writer] = []
        self.ending: Sequence[str] = ()

    def __enter__(self) -> Outputs:
        files, classifier = self._files, self._classifier
        with ExitStack() as stack:

            def create(path: str) -> IO[str]:
                return stack.enter_context(open_text_atomically(path))

            if files.csv:
                self._writers.append(CSVWriter(create(files.csv), self._top))
            if files.json:
                about = {
                    "run": encodable(str(classifier.run.folder)),
                    "trainer": classifier.run.trainer,
                    "classes": [encodable(name) for name in classifier.classes],
                    "calibrated": classifier.calibrated,
                }
                self._writers.append(JSONWriter(create(files.json), about))
            if files.html:
                title = f"Predictions of {classifier.run.trainer}"
                lead = describe(classifier)
                self._writers.append(Page(create(files.html), title, lead, classifier.upright, self._above))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._stack.__exit__(kind, error, trace)  # removes the unfinished files
            return
        with self._stack:
            for writer in self._writers:
                writer.end(self.ending)

    def add(self, record: Record) -> None:
        """Write a record."""
        for writer in self._writers:
            writer.add(record)


def describe(classifier: Classifier) -> list[str]:
    """Return lines that describe the classifier to a reader of its predictions."""
    run = classifier.run
    trained = len(classifier.trained_classes)
    method = f"{run.trainer} trained in {run.folder}" if run.trained else f"{run.trainer}, nothing trained"
    which = f", {trained or 'none'} of them trained on" if run.trained and trained < len(classifier.classes) else ""
    calibrated = (
        "Probabilities are calibrated by the temperature that was fitted to held-out images."
        if classifier.calibrated
        else "Probabilities are not calibrated."
    )
    return [method, f"{len(classifier.classes)} classes{which}", calibrated]
