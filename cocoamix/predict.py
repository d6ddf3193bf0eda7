"""Label images with the model of a run. Only the output folder of the run is needed.

cocoamix predict RUN photo.jpg                       one image
cocoamix predict RUN FOLDER --csv labels.csv         all images of a folder
cocoamix predict RUN FOLDER --add zebra okapi        with two more classes, no training
cocoamix predict RUN FOLDER --html page.html         a page to browse
"""

from __future__ import annotations

import argparse
import base64
import io
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from html import escape
from pathlib import Path
from string import Template
from typing import IO, TYPE_CHECKING, Any

from cocoamix.errors import UserError, encodable, printable, run_command
from cocoamix.inputs import Input, Labels, find_images
from cocoamix.io.files import open_text_atomically
from cocoamix.io.paths import expand_home
from cocoamix.parser import Parser
from cocoamix.run.arguments import add_imports, import_modules
from cocoamix.run.predictions import UNKNOWN, CSVWriter, JSONWriter, Record, make_record, unreadable_record

if TYPE_CHECKING:  # it imports torch
    from cocoamix.trained import TrainedModel

_MOST_ROWS = 40  # on the terminal
_SIDE = 160  # longest side of a thumbnail, in pixels


# ---------------------------------------------------------------------------------------- the command


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose a model and its classes."""
    parser.add_argument("run", help="output folder of a finished run")
    parser.add_argument("--add", nargs="+", default=[], metavar="NAME", help="classes to add to those of the run")
    parser.add_argument("--classes", metavar="FILE", help="classes to use instead of those of the run, one per line")
    parser.add_argument("--weights", default="", metavar="FILE", help="CLIP weights, if their file has moved")
    add_imports(parser)


def open_model(args: argparse.Namespace, store: bool = True) -> TrainedModel:
    """Return the model that the arguments name, with their classes."""
    from cocoamix.clip.class_names import tidy_class
    from cocoamix.io.texts import read_text
    from cocoamix.trained import load

    import_modules(args.imports)
    model = load(args.run, args.weights, store)
    if args.classes:
        names = [tidy_class(line) for line in read_text(expand_home(args.classes)).splitlines() if line.strip()]
        if not names:
            raise UserError(f"{args.classes} contains no class names. Write one class name per line.")
        model = model.with_classes(names, keep=False)
    return model.with_classes([tidy_class(name) for name in args.add]) if args.add else model


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = Parser(prog="cocoamix predict", description=__doc__)
    add_arguments(parser)
    stopped = "Stopped. The image features computed so far are stored."
    return run_command(partial(_run, parser.parse_args(argv)), stopped)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_model_arguments(parser)
    unknown = "flag images of no known class, at this false-alarm rate"
    held_out = "with --unknown: images of known classes, to set the threshold"
    parser.add_argument("images", nargs="+", help="images, folders of images, or CSV files with a column `path`")
    parser.add_argument("--top", type=int, default=5, metavar="K", help="number of classes to show (default: 5)")
    parser.add_argument("--csv", metavar="FILE", help="write a table with one row per image")
    parser.add_argument("--json", metavar="FILE", help="write one object per image")
    parser.add_argument("--html", metavar="FILE", help="write a page with thumbnails")
    parser.add_argument("--unknown", type=float, metavar="RATE", help=unknown)
    parser.add_argument("--held-out", nargs="+", default=[], metavar="PATH", help=held_out)
    parser.add_argument("--no-store", action="store_true", help="neither read nor write the feature store")


def _run(args: argparse.Namespace) -> int:
    """Predict every image, write and print the requested outputs."""
    if args.top < 1:
        raise UserError(f"--top is {args.top}; it must be at least 1.")
    model = open_model(args, not args.no_store)
    top, labels = min(args.top, len(model.classes)), Labels(model.classes, model.record.categories)
    images = find_images(args.images, labels)
    threshold = 0.0 if args.unknown is None else _find_threshold(model, args.unknown, args.held_out)
    summary, above = Summary(model.classes), _common_folder([image.path for image in images])
    with ExitStack() as stack:
        files = _writers(args, model, top, above)
        writers = [write(stack.enter_context(open_text_atomically(path))) for path, write in files]
        for record in _predict(model, images, top, threshold):
            if record.error:
                _say(f"{record.image} cannot be read: {record.error}")
            for writer in (summary, *writers):
                writer.add(record)
        ending = [*summary.lines(args.unknown is not None), *labels.notes]
        for writer in writers:
            writer.end(ending)
    _say(*describe(model), "", *(summary.rows(above) if summary.images <= _MOST_ROWS else summary.table()), "", *ending)
    _say(*(f"Written: {path}" for path in (args.csv, args.json, args.html) if path))
    return 1 if summary.unreadable else 0


def _predict(model: TrainedModel, images: Sequence[Input], top: int, threshold: float) -> Iterator[Record]:
    """Yield the record of each image."""
    from cocoamix.features.memory import Item
    from cocoamix.io.progress import progress

    items = [Item(image.path, upright=model.upright) for image in images]
    for scores, image in zip(progress(model.stream(items), len(items), "predicting"), images, strict=True):
        if scores.probabilities is None:
            yield unreadable_record(image.path, image.label, scores.reason)
        else:
            yield make_record(image.path, image.label, scores.probabilities.tolist(), model.classes, top, threshold)


def _writers(args: argparse.Namespace, model: TrainedModel, top: int, above: str) -> list[tuple[str, Any]]:
    """Return the requested files, each with the function that begins it."""
    about = {
        "run": encodable(str(model.record.folder)),
        "trainer": model.record.trainer,
        "classes": [encodable(name) for name in model.classes],
        "calibrated": model.calibrated,
    }
    title = f"Predictions of {model.record.trainer}"
    page = partial(Page, title=title, lead=describe(model), upright=model.upright, above=above)
    begins = (partial(CSVWriter, top=top), partial(JSONWriter, about=about), page)
    return [(path, begin) for path, begin in zip((args.csv, args.json, args.html), begins, strict=True) if path]


def describe(model: TrainedModel) -> list[str]:
    """Return lines that describe the model to a reader of its predictions."""
    record, count, trained = model.record, len(model.classes), len(model.trained_classes)
    method = f"{record.trainer} trained in {record.folder}" if record.trained else f"{record.trainer}, nothing trained"
    known = f", {trained or 'none'} of them trained on" if record.trained and trained < count else ""
    calibrated = "calibrated by the temperature that was fitted to held-out images" if model.calibrated else ""
    return [method, f"{count} classes{known}", f"Probabilities are {calibrated or 'not calibrated'}."]


def _say(*lines: str) -> None:
    """Print lines without control characters."""
    for line in lines:
        print(printable(line))


def _common_folder(paths: Sequence[str]) -> str:
    """Return the deepest common folder of files; empty if there is none."""
    try:
        return os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in paths])
    except ValueError:  # no paths, or several drives
        return ""


def _short_name(path: str, above: str) -> str:
    """Return the path of a file below a folder of `_common_folder`, or the full path if that is empty."""
    full = os.path.abspath(path)
    return printable(os.path.relpath(full, above) if above else full)


def _find_threshold(model: TrainedModel, rate: float, held_out: Sequence[str]) -> float:
    """Return the confidence below which an image fits no class, at a rate of false alarms on held-out images."""
    if not 0 < rate < 1:
        raise UserError(f"--unknown is {rate:g}; it must be a rate of false alarms between 0 and 1, such as 0.05.")
    fitted = model.record.origin.get("heldout") or {}
    if held_out:
        labels = Labels(model.classes, model.record.categories)
        known = [image for image in find_images(held_out, labels) if image.label in ("", *model.classes)]
        _say(*labels.notes)
        ordered = sorted(record.confidence for record in _predict(model, known, 1, 0.0) if not record.error)
        if not ordered:
            raise UserError("--held-out names no readable image of the classes.")
        source = f"{len(ordered):,} images of --held-out"
    elif "confidence" in fitted and model.of_training:
        ordered, source = fitted["confidence"], f"{fitted['images']:,} held-out images of training"
    else:
        own = "the threshold was set for the training classes only"
        reason = own if "confidence" in fitted else "the run fitted nothing to held-out images"
        raise UserError(f"--unknown needs images to set its threshold on, because {reason}: add --held-out PATH.")
    place = rate * (len(ordered) - 1)
    low, high = ordered[int(place)], ordered[min(int(place) + 1, len(ordered) - 1)]
    threshold = low + (place - int(place)) * (high - low)
    print(f"Images with a confidence below {threshold:.4f} fit no class: {100 * rate:g} % of {source}")
    return float(threshold)


# ---------------------------------------------------------------------------------------- outputs


class Summary:
    """Counts over all predictions, updated image by image."""

    def __init__(self, classes: Sequence[str]) -> None:
        self._classes, self._first = set(classes), list[Record]()
        self._predicted, self._confidence = Counter[str](), defaultdict[str, float](float)
        self._counts = Counter[tuple[bool, str]]()  # of images with a label, by whether it is one of the classes
        self.images = self.unreadable = 0

    def add(self, record: Record) -> None:
        """Count an image."""
        if record.error:
            self.unreadable += 1
            return
        self.images += 1
        self._predicted[record.predicted] += 1
        self._confidence[record.predicted] += record.confidence
        self._first += [record] * (self.images <= _MOST_ROWS)
        if record.label:
            known = record.label in self._classes
            self._counts[known, "labelled"] += 1
            self._counts[known, "right"] += bool(record.correct)
            self._counts[known, "flagged"] += record.predicted == UNKNOWN

    def lines(self, with_unknown: bool) -> list[str]:
        """Return the counts as sentences. `with_unknown` adds those of images that fit no class."""
        counts, (inside, outside) = self._counts, (self._counts[known, "labelled"] for known in (True, False))
        lines = [_images(self.images) + (f", {self.unreadable:,} unreadable" if self.unreadable else "")]
        if inside:
            accuracy = 100 * counts[True, "right"] / inside
            lines.append(f"accuracy {accuracy:.2f} % over {_images(inside)} with a label among the classes")
        if with_unknown and inside:
            alarms = f"{100 * counts[True, 'flagged'] / inside:.2f} % of {_images(inside)}"
            lines.append(f"{alarms} of known classes flagged as unknown (false alarms)")
        if outside:
            share = f"{100 * counts[False, 'flagged'] / outside:.2f} % of {_images(outside)} of other classes flagged"
            other = f"{_images(outside)} with a label that is not among the classes"
            lines.append(f"{share} as unknown" if with_unknown else other)
        return lines

    def rows(self, above: str) -> list[str]:
        """Return one line per image. `above` is the folder that the names of images are relative to."""
        names = [_short_name(record.image, above) for record in self._first]
        width, lines = max(map(len, names), default=0), []
        for name, record in zip(names, self._first, strict=True):
            ranked = ", ".join(f"{label} {100 * probability:.1f} %" for label, probability in record.top)
            lines.append(f"{name:{width}}  {UNKNOWN + ': ' if record.predicted == UNKNOWN else ''}{ranked}")
        return lines

    def table(self) -> list[str]:
        """Return one line per predicted class, the most frequent first."""
        lines = [f"{'predicted':30} {'images':>8} {'confidence':>11}"]
        for name, count in self._predicted.most_common(_MOST_ROWS):
            lines.append(f"{printable(name):30} {count:8,} {100 * self._confidence[name] / count:9.1f} %")
        more = len(self._predicted) - _MOST_ROWS
        return lines if more < 1 else [*lines, f"... and {more:,} more class{'es' * (more > 1)}"]


def _images(count: int) -> str:
    return f"{count:,} image{'' if count == 1 else 's'}"


class Page:
    """Writes predictions as one HTML page that loads nothing, image by image, so that thumbnails do not accumulate."""

    def __init__(self, file: IO[str], title: str, lead: Sequence[str], upright: bool, above: str = "") -> None:
        """Begin the page.

        Args:
            file: The output file.
            title: Heading of the page.
            lead: Lines below the heading.
            upright: Whether to rotate images by their EXIF orientation.
            above: The folder that the shown names of images are relative to; empty for full paths.
        """
        self._file, self._upright, self._above = file, upright, above
        page = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")
        head, self._rest = page.split("<!-- images -->")
        lines = "\n".join(f"<p>{_safe(line)}</p>" for line in lead)
        file.write(Template(head).substitute(title=_safe(title), lead=lines))

    def add(self, record: Record) -> None:
        """Add an image."""
        kind = {True: "right", False: "wrong", None: ""}[record.correct]
        ranked = "".join(f"<li>{_safe(name)} {100 * share:.1f} %</li>" for name, share in record.top)
        label = f"<p>label: {_safe(record.label)}</p>" if record.label else ""
        shown = _safe(record.error or record.predicted)
        name = f'<p class="name" title="{_safe(record.image)}">{_safe(_short_name(record.image, self._above))}</p>'
        image = "" if record.error else make_thumbnail(record.image, self._upright)
        self._file.write(f'<li class="{kind}">{image}<b>{shown}</b>{label}<ol>{ranked}</ol>{name}</li>\n')

    def end(self, lines: Sequence[str]) -> None:
        """Finish the page; `lines` summarise the predictions."""
        summary = "\n".join(f"<p>{_safe(line)}</p>" for line in lines)
        self._file.write(Template(self._rest).substitute(summary=summary))


def _safe(text: str) -> str:
    return escape(printable(text))


def make_thumbnail(path: str, upright: bool) -> str:
    """Return a thumbnail of an image file as an HTML element; empty if it cannot be made."""
    from cocoamix.features.reading import read_image

    buffer = io.BytesIO()
    try:
        image = read_image(path, upright)
        image.thumbnail((_SIDE, _SIDE))
        image.save(buffer, "JPEG", quality=80)
    except (OSError, ValueError):
        return ""
    return f'<img alt="" src="data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}">'
