"""Divide test images into easy, confusing and hard ones under zero-shot CLIP, and measure the accuracy on each part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cocoamix.errors import UserError

if TYPE_CHECKING:
    from cocoamix.run.predictions import Record

EASY, CONFUSING, HARD, ALL = "easy", "confusing", "hard", "all"
PARTS = (EASY, CONFUSING, HARD)
_DIGITS = 1_000_000  # predictions are saved with six decimals


@dataclass(frozen=True)
class Difficulty:
    """The test images of a dataset, divided into easy, confusing and hard ones.

    Attributes:
        dataset: The name of the dataset.
        folder: The folder of the zero-shot run.
        parts: The part of each image, by its path.
        gap: An image is confusing if its prediction is wrong by less than this.
    """

    dataset: str
    folder: Path
    parts: Mapping[str, str]
    gap: float

    def count(self, part: str) -> int:
        """Return the number of images of a part."""
        return len(self.parts) if part == ALL else sum(one == part for one in self.parts.values())

    def accuracies(self, folder: Path) -> dict[str, float]:
        """Return the accuracy in percent of another run on each part that has images, and on all images."""
        right: Counter[str] = Counter()
        records = read(folder)
        self._refuse_other_images(folder, [record.image for record in records])
        for record in records:
            if record.predicted == record.label:
                right.update([self.parts[record.image], ALL])
        return {part: 100 * right[part] / self.count(part) for part in (*PARTS, ALL) if self.count(part)}

    def _refuse_other_images(self, folder: Path, images: Iterable[str]) -> None:
        given = set(images)
        if given == set(self.parts):
            return
        lone = min(given ^ set(self.parts))
        who, other = (folder, self.folder) if lone in given else (self.folder, folder)
        raise UserError(f"{who} has a prediction for {lone}, but {other} does not. Evaluate both on the same images.")


def read(folder: Path) -> list[Record]:
    """Return the predictions of a run for the images that could be read."""
    from cocoamix.run.predictions import FILE, read_predictions

    path = folder / FILE
    if not path.is_file():
        raise UserError(
            f"{folder} has no {FILE}, because its evaluation kept no predictions. Evaluate it again with "
            "TEST.SAVE_PREDICTIONS True."
        )
    return [record for record in read_predictions(path) if record.predicted]


def split_images(dataset: str, folder: Path, gap: float) -> Difficulty:
    """Return the parts of a dataset by the predictions of a zero-shot run.

    An image is easy if the prediction is right. Otherwise it is confusing if the probability of the predicted class
    is less than `gap` above that of the label, else hard.
    """
    records = read(folder)
    if not records:
        raise UserError(f"{folder} has no prediction for any image of {dataset}.")
    if len({name for record in records for name in (record.label, record.predicted)}) == 1:
        raise UserError(
            f"{dataset} has only one class, {records[0].label}, in {folder}: no image of it can be confusing."
        )
    return Difficulty(dataset, folder, {record.image: _part(record, gap, folder) for record in records}, gap)


def _part(record: Record, gap: float, folder: Path) -> str:
    """Return the part of an image. The output folder of the run is for the error message."""
    from cocoamix.run.predictions import FILE

    if record.predicted == record.label:
        return EASY
    if record.label_probability is None:
        raise UserError(
            f"{folder / FILE} has a wrong prediction for {record.image} without a label_probability, so its gap "
            "is unknown. Evaluate the run again with TEST.SAVE_PREDICTIONS True, on images of its classes."
        )
    # Rounded to the decimals of the file, because differences of floats are inexact.
    ahead = round((record.confidence - record.label_probability) * _DIGITS)
    return CONFUSING if ahead < round(gap * _DIGITS) else HARD


def refuse_without_confusing(difficulty: Difficulty) -> None:
    """Refuse a dataset without confusing images."""
    if difficulty.count(CONFUSING):
        return
    easy, hard = difficulty.count(EASY), difficulty.count(HARD)
    raise UserError(
        f"None of the {difficulty.count(ALL)} images of {difficulty.dataset} in {difficulty.folder} is confusing: "
        f"{easy} are predicted correctly, {hard} wrong by {difficulty.gap:g} or more. Choose another dataset or gap."
    )
