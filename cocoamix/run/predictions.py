"""Records of predictions, in one format for all commands that write or read them."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from cocoamix.errors import UserError, brief, encodable
from cocoamix.io.files import open_text_atomically
from cocoamix.io.spreadsheets import cell_text, text_cell
from cocoamix.io.texts import read_text

if TYPE_CHECKING:  # reading the file does not need torch
    from torch import Tensor

FILE = "predictions.csv"  # in a run's output folder
UNKNOWN = "(unknown)"
TOP = 5
_COLUMNS = ("image", "label", "predicted", "confidence", "label_probability")
_ERROR = "error"


@dataclass(frozen=True)
class Record:
    """The prediction for one image, or why there is none.

    Attributes:
        image: Path of the image.
        label: The name of its class; empty if unknown.
        predicted: The most probable class, or UNKNOWN; empty for an image that cannot be read.
        confidence: The highest probability; 0 for an image that cannot be read.
        label_probability: The probability of the label; None if it is unknown or outside the label space.
        top: The most probable classes with their probabilities, the highest first.
        error: Why the image cannot be read; empty for one that can.
    """

    image: str
    label: str
    predicted: str
    confidence: float
    label_probability: float | None
    top: tuple[tuple[str, float], ...]
    error: str = ""

    @property
    def correct(self) -> bool | None:
        """Whether the prediction is correct; None if the label is unknown or the image cannot be read.

        UNKNOWN is correct for an image whose label is outside the label space.
        """
        if self.error or not self.label:
            return None
        if self.predicted == UNKNOWN:
            return self.label_probability is None
        return self.predicted == self.label


def make_record(
    image: str, label: str, probabilities: Sequence[float], classes: Sequence[str], top: int, threshold: float = 0.0
) -> Record:
    """Return the record of an image.

    Args:
        image: Its path.
        label: The name of its class, or empty.
        probabilities: The probability of each class.
        classes: Names of the classes, all different.
        top: The number of classes to keep.
        threshold: Below this confidence the prediction is UNKNOWN.
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


def unreadable_record(image: str, label: str, reason: str) -> Record:
    """Return the record of an image that cannot be read."""
    return Record(image, label, "", 0.0, None, (), reason or "it cannot be read")


# ---------------------------------------------------------------------- writing


def header(top: int) -> list[str]:
    """Return the columns of a table of records."""
    ranked = [f"{name}_{rank}" for rank in range(1, top + 1) for name in ("class", "probability")]
    return [*_COLUMNS, *ranked, _ERROR]


def cells(record: Record, top: int) -> list[str]:
    """Return a record as a row of `header`."""
    texts = [text_cell(text) for text in (record.image, record.label, record.predicted)]
    if record.error:
        return [*texts, *[""] * (2 + 2 * top), text_cell(record.error)]
    own = "" if record.label_probability is None else f"{record.label_probability:.6f}"
    ranked = [cell for name, probability in record.top for cell in (text_cell(name), f"{probability:.6f}")]
    return [*texts, f"{record.confidence:.6f}", own, *ranked, ""]


class CSVWriter:
    """Writes records as rows, each with as many classes as `top`."""

    def __init__(self, file: IO[str], top: int) -> None:
        self._writer, self._top = csv.writer(file, lineterminator="\n"), top
        self._writer.writerow(header(top))

    def add(self, record: Record) -> None:
        """Write a row."""
        self._writer.writerow(cells(record, self._top))

    def end(self, lines: Sequence[str]) -> None:
        """Do nothing: a table has no footer."""


class JSONWriter:
    """Writes records as the lists `images` and `unreadable` of one object."""

    def __init__(self, file: IO[str], about: Mapping[str, Any]) -> None:
        """Begin the object. `about` has its other keys, encodable as UTF-8."""
        self._file, self._separator = file, "\n"
        self._unreadable: list[dict[str, Any]] = []
        head = json.dumps(dict(about), ensure_ascii=False)
        file.write(f'{head[:-1]}{", " if about else ""}"images": [')

    def add(self, record: Record) -> None:
        """Write an entry."""
        if record.error:
            self._unreadable.append(as_json(record))
            return
        self._file.write(self._separator + json.dumps(as_json(record), ensure_ascii=False))
        self._separator = ",\n"

    def end(self, lines: Sequence[str]) -> None:
        """End the object."""
        listed = ",\n".join(json.dumps(one, ensure_ascii=False) for one in self._unreadable)
        self._file.write(f'\n], "unreadable": [\n{listed}\n]}}\n')


def as_json(record: Record, shown: Callable[[str], str] = encodable) -> dict[str, Any]:
    """Return a record as plain values. `shown` converts texts for the output."""
    labelled: dict[str, Any] = {"label": shown(record.label)} if record.label else {}
    if record.error:
        return {"image": shown(record.image), **labelled, "error": shown(record.error)}
    if record.label:
        labelled |= {"label_probability": record.label_probability, "correct": record.correct}
    return {
        "image": shown(record.image),
        "predicted": shown(record.predicted),
        "confidence": record.confidence,
        **labelled,
        "top": [{"class": shown(name), "probability": probability} for name, probability in record.top],
    }


class PredictionsFile:
    """The file of the predictions of an evaluation. It appears when the evaluation is complete.

    Args:
        folder: Output folder of the run.
        classes: Classes of the evaluation, in the order of the logits.
    """

    def __init__(self, folder: str, classes: Sequence[str]) -> None:
        from cocoamix.clip.class_names import distinct  # here, because it imports torch

        self.path, self.classes = Path(folder) / FILE, distinct(classes)
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

    def add_unreadable(self, loader: Any, reasons: Mapping[str, str]) -> None:
        """Write the unreadable images of a loader. `reasons` are by path."""
        for item in loader.dataset.items:
            if item.impath in reasons:
                self._writer.add(unreadable_record(item.impath, self.classes[item.label], reasons[item.impath]))


def predictions_for(cfg: Any, classes: Sequence[str], wanted: bool = True) -> AbstractContextManager[Any]:
    """Return the file for the predictions of an evaluation, or None without TEST.SAVE_PREDICTIONS.

    Args:
        cfg: The configuration.
        classes: The label space.
        wanted: Whether the evaluation writes results; others save no predictions.
    """
    is_wanted = wanted and cfg.TEST.SAVE_PREDICTIONS
    return PredictionsFile(cfg.OUTPUT_DIR, classes) if is_wanted else nullcontext()


def paths_at(loader: Any, indices: Tensor) -> list[str]:
    """Return the paths of some images of a loader."""
    items = loader.dataset.items
    return [items[index].impath for index in indices.tolist()]


# ---------------------------------------------------------------------- reading


def read_predictions(path: str | os.PathLike[str]) -> list[Record]:
    """Read the table of records that an evaluation (`TEST.SAVE_PREDICTIONS`) or `cocoamix predict --csv` wrote.

    Probabilities have the precision of the file. Escapes in file names are kept. Tables without the
    column `error`, which omit unreadable images, can also be read.
    """
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        columns = _Columns(path, next(reader, []))
        return [columns.record(row, reader.line_num) for row in reader]
    except csv.Error as error:
        raise UserError(f"{os.fspath(path)}, line {reader.line_num}: {error}. {_ADVICE}") from error


_ADVICE = "Evaluate or predict again to write the table."


class _Columns:
    """The columns of a table of records, from its first line."""

    def __init__(self, path: str | os.PathLike[str], names: Sequence[str]) -> None:
        self._path, self._names = os.fspath(path), list(names)
        self._top = sum(name.startswith("class_") for name in names)
        needed = header(self._top)
        missing = [name for name in needed if name not in names and name != _ERROR]
        if missing or len(set(names)) < len(names):
            problem = f"has no column {missing[0]!r}" if missing else "names a column twice"
            raise UserError(f"{self._path} is not a table of predictions: its first line {problem}. {_ADVICE}")

    def record(self, row: Sequence[str], line: int) -> Record:
        """Return the record of a row."""
        if len(row) != len(self._names):
            raise self._refuse(line, f"there are {len(row)} cells, but {len(self._names)} columns")
        given = dict(zip(self._names, row, strict=True))
        image, label, predicted, error = (
            cell_text(given.get(name, "")) for name in ("image", "label", "predicted", _ERROR)
        )
        if not image:
            raise self._refuse(line, "the image is empty")
        if error:
            return Record(image, label, "", 0.0, None, (), error)
        if not predicted:
            raise self._refuse(line, "there is neither a prediction nor an error")
        own = self._share(given, "label_probability", line) if given["label_probability"] else None
        top = tuple(
            (cell_text(given[f"class_{rank}"]), self._share(given, f"probability_{rank}", line))
            for rank in range(1, self._top + 1)
        )
        return Record(image, label, predicted, self._share(given, "confidence", line), own, top)

    def _share(self, given: Mapping[str, str], column: str, line: int) -> float:
        try:
            value = float(given[column])
        except ValueError:
            value = -1.0
        if not 0 <= value <= 1:
            raise self._refuse(line, f"the {column} is {brief(given[column])}, not a number from 0 to 1")
        return value

    def _refuse(self, line: int, problem: str) -> UserError:
        return UserError(f"{self._path}, line {line}: {problem}. {_ADVICE}")
