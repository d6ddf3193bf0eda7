"""Predicts all images in a single pass and writes the requested outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cocoamix.errors import UserError, printable
from cocoamix.io.progress import progress
from cocoamix.run.given import Item
from cocoamix.run.predictions import UNKNOWN, Record, make_record, unreadable_record

from .classifier import Classifier, Scores
from .inputs import Input, find_images
from .outputs import Files, Outputs, describe
from .short_names import common_folder, short_name
from .summary import Summary
from .unknown import check_rate, threshold_at

_MOST_ROWS = 40  # on the terminal


@dataclass(frozen=True)
class Wanted:
    """Options of a prediction.

    Attributes:
        top: Number of classes to record per image.
        unknown: Rate of false alarms for images that fit no class; None to flag no images.
        held_out: Images to set the threshold on.
    """

    top: int
    unknown: float | None = None
    held_out: tuple[str, ...] = ()


def predict_all(
    classifier: Classifier, images: Sequence[Input], wanted: Wanted, files: Files, notes: Sequence[str] = ()
) -> Summary:
    """Predict every image, write and print the requested outputs, and return the counts.

    Args:
        classifier: The classifier.
        images: The images.
        wanted: The options.
        files: The files to write.
        notes: Notes on the labels, to be shown with the counts.
    """
    threshold = find_threshold(classifier, wanted) if wanted.unknown is not None else 0.0
    summary, first = Summary(classifier.classes), list[Record]()
    items = [Item(image.path, upright=classifier.upright) for image in images]
    above = common_folder([image.path for image in images])
    with Outputs(files, classifier, wanted.top, above) as outputs:
        stream = progress(classifier.stream(items), len(items), "predicting")
        for scores, image in zip(stream, images, strict=True):
            record = _record_of(scores, image.label, classifier.classes, wanted.top, threshold)
            if record.error:
                _say(f"{record.image} cannot be read: {record.error}")
            elif len(first) < _MOST_ROWS:
                first.append(record)
            summary.add(record)
            outputs.add(record)
        outputs.ending = [*summary.lines(wanted.unknown is not None), *notes]
    _say(*describe(classifier), "")
    _say(*(_rows(first) if summary.images <= _MOST_ROWS else _totals(summary)), "")
    _say(*outputs.ending, *(f"Written: {name}" for name in files.names))
    return summary


def _record_of(scores: Scores, label: str, classes: Sequence[str], top: int, threshold: float) -> Record:
    if scores.probabilities is None:
        return unreadable_record(scores.item.impath, label, scores.reason)
    return make_record(scores.item.impath, label, scores.probabilities.tolist(), classes, top, threshold)


def find_threshold(classifier: Classifier, wanted: Wanted) -> float:
    """Return the confidence below which an image counts as fitting no class."""
    rate = wanted.unknown
    assert rate is not None
    check_rate(rate)
    fitted = classifier.run.origin.get("heldout") or {}
    if wanted.held_out:
        labels = classifier.labels
        images = find_images(wanted.held_out, labels)
        _say(*labels.notes)
        known = [image for image in images if not image.label or image.label in classifier.classes]
        items = [Item(image.path, upright=classifier.upright) for image in known]
        found = [float(one.probabilities.max()) for one in classifier.stream(items) if one.probabilities is not None]
        if not found:
            raise UserError("--held-out names no readable image of the classes.")
        threshold, origin = threshold_at(sorted(found), rate), f"{len(found):,} images of --held-out"
    elif "confidence" in fitted and classifier.of_training:
        threshold = threshold_at(fitted["confidence"], rate)
        origin = f"{fitted['images']:,} held-out images of training"
    else:
        reason = (
            "the threshold was set for the training classes only"
            if "confidence" in fitted
            else "the run fitted nothing to held-out images"
        )
        raise UserError(f"--unknown needs images to set its threshold on, because {reason}: add --held-out PATH.")
    print(f"Images with a confidence below {threshold:.4f} fit no class: {100 * rate:g} % of {origin}")
    return threshold


def _rows(records: Sequence[Record]) -> list[str]:
    """Return one line per image."""
    names = short_names([record.image for record in records])
    width = max(map(len, names), default=0)
    lines = []
    for name, record in zip(names, records, strict=True):
        ranked = ", ".join(f"{one} {100 * probability:.1f} %" for one, probability in record.top)
        marked = f"{UNKNOWN}: " if record.predicted == UNKNOWN else ""
        lines.append(f"{name:{width}}  {marked}{ranked}")
    return lines


def _totals(summary: Summary) -> list[str]:
    """Return one line per predicted class."""
    lines = [f"{'predicted':30} {'images':>8} {'confidence':>11}"]
    rows = summary.by_class()
    for name, count, confidence in rows[:_MOST_ROWS]:
        lines.append(f"{printable(name):30} {count:8,} {100 * confidence:9.1f} %")
    more = len(rows) - _MOST_ROWS
    return lines if more < 1 else [*lines, f"... and {more:,} more class{'es' * (more > 1)}"]


def short_names(paths: Sequence[str]) -> list[str]:
    """Return paths relative to the deepest common folder of the files."""
    above = common_folder(paths)
    return [short_name(path, above) for path in paths]


def _say(*lines: str) -> None:
    """Print lines without control characters."""
    for line in lines:
        print(printable(line))
