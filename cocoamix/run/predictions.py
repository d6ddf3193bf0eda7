"""What is kept of the prediction for an image, in one format for every command that writes or reads it."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from cocoamix.errors import UserError, brief
from cocoamix.io.files import open_text_atomically
from cocoamix.io.spreadsheets import text_cell
from cocoamix.io.texts import read_text

if TYPE_CHECKING:  # readers of the file need no torch
    from torch import Tensor

FILE = "predictions.csv"  # of a run's folder
UNKNOWN = "(unknown)"
TOP = 5


@dataclass(frozen=True)
class Record:
    """The prediction for one image.

    Attributes:
        label: The name of its class; empty where it is not known.
        predicted: The most probable class, or UNKNOWN.
        confidence: The highest probability.
        label_probability: The probability of the label; None where it is not known or no class of the label space.
        top: The most probable classes with their probabilities, the highest first.
    """

    image: str
    label: str
    predicted: str
    confidence: float
    label_probability: float | None
    top: tuple[tuple[str, float], ...]

    @property
    def correct(self) -> bool | None:
        """Whether the label is predicted; None where it is not known."""
        return self.predicted == self.label if self.label else None


def make_record(
    image: str, label: str, probabilities: Sequence[float], classes: Sequence[str], top: int, threshold: float = 0.0
) -> Record:
    """Return the record of an image.

    Args:
        image: Its path.
        label: The name of its class, or nothing.
        probabilities: Of the classes.
        classes: Their names.
        top: How many classes are kept.
        threshold: Below this confidence an image is of no class.
    """
    order = sorted(range(len(classes)), key=lambda number: -probabilities[number])
    best = order[0]
    confidence = float(probabilities[best])
    own = float(probabilities[classes.index(label)]) if label in classes else None
    return Record(
        image,
        label,
        classes[best] if confidence >= threshold else UNKNOWN,
        confidence,
        own,
        tuple((classes[number], float(probabilities[number])) for number in order[:top]),
    )


def header(top: int) -> list[str]:
    """Return the columns of a table of records."""
    columns = ["image", "label", "predicted", "confidence", "label_probability"]
    return columns + [f"{name}_{rank}" for rank in range(1, top + 1) for name in ("class", "probability")]


def cells(record: Record) -> list[str]:
    """Return a record as a row of `header`."""
    own = "" if record.label_probability is None else f"{record.label_probability:.6f}"
    texts = [text_cell(text) for text in (record.image, record.label, record.predicted)]
    top = [cell for name, probability in record.top for cell in (text_cell(name), f"{probability:.6f}")]
    return [*texts, f"{record.confidence:.6f}", own, *top]


class CSVWriter:
    """Writes records as rows."""

    def __init__(self, file: IO[str], top: int) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._writer.writerow(header(top))

    def add(self, record: Record) -> None:
        """Write a row."""
        self._writer.writerow(cells(record))

    def end(self) -> None:
        """Do nothing: a table has no end."""


class JSONWriter:
    """Writes records as the list `images` of one object."""

    def __init__(self, file: IO[str], about: Mapping[str, Any]) -> None:
        """Begin the object. about: its other keys."""
        self._file, self._separator = file, "\n"
        head = json.dumps(dict(about), ensure_ascii=False)
        file.write(f'{head[:-1]}{", " if about else ""}"images": [')

    def add(self, record: Record) -> None:
        """Write an entry."""
        self._file.write(self._separator + json.dumps(as_json(record), ensure_ascii=False))
        self._separator = ",\n"

    def end(self) -> None:
        """End the object."""
        self._file.write("\n]}\n")


def as_json(record: Record) -> dict[str, Any]:
    """Return a record as plain values."""
    told: dict[str, Any] = {"image": record.image, "predicted": record.predicted, "confidence": record.confidence}
    if record.label:
        told |= {"label": record.label, "label_probability": record.label_probability}
    return told | {"top": [{"class": name, "probability": probability} for name, probability in record.top]}


class PredictionsFile:
    """The file that an evaluation keeps its predictions in. It appears once the evaluation is done.

    Args:
        folder: Of the run.
        classes: That the evaluation tells apart, in the order of the logits.
    """

    def __init__(self, folder: str, classes: Sequence[str]) -> None:
        self.path, self.classes = Path(folder) / FILE, list(classes)
        self._top = min(TOP, len(self.classes))
        self._stack = ExitStack()

    def __enter__(self) -> PredictionsFile:
        self._writer = CSVWriter(self._stack.enter_context(open_text_atomically(self.path)), self._top)
        return self

    def __exit__(self, *failure: Any) -> None:
        self._stack.__exit__(*failure)

    def add(self, logits: Tensor, labels: Tensor, paths: Sequence[str]) -> None:
        """Write a batch of (B, C) logits."""
        probabilities = logits.double().softmax(dim=1).tolist()
        for path, label, row in zip(paths, labels.tolist(), probabilities, strict=True):
            self._writer.add(make_record(path, self.classes[label], row, self.classes, self._top))


def paths_at(loader: Any, indices: Tensor) -> list[str]:
    """Return the paths of some images of a loader."""
    items = loader.dataset.items
    return [items[index].impath for index in indices.tolist()]


def read_predictions(path: str | os.PathLike[str]) -> list[Record]:
    """Read what an evaluation kept, by the names of its columns; a row without a prediction is left out.

    Probabilities have the digits of the file, and texts the apostrophes that `text_cell` adds.
    """
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True)
    records = []
    try:
        missing = [name for name in header(0) if name not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(f"it has no column {missing[0]!r}")
        for row in reader:
            if row["predicted"]:
                own = row["label_probability"]
                confidence, label_probability = _share(row["confidence"]), _share(own) if own else None
                records.append(Record(row["image"], row["label"], row["predicted"], confidence, label_probability, ()))
    except (ValueError, csv.Error) as error:
        where = f"{os.fspath(path)}, line {reader.line_num},"
        raise UserError(
            f"{where} is not of a table of predictions: {error}. Evaluate again to write it anew."
        ) from error
    return records


def _share(cell: str | None) -> float:
    """Return the probability of a cell."""
    try:
        value = float(cell or "")
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ValueError(f"{brief(cell)} is not a number from 0 to 1")
    return value
