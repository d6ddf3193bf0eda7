"""The accuracy on easy, confusing, hard, all and new test images of one dataset over epochs, by loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cocoamix.errors import UserError

from ..kinds import Gathered, seeds_in_words
from ..loss_names import NAMES, Loss
from ..shared import nothing_shared
from .difficulty import ALL, CONFUSING, EASY, HARD, PARTS, Difficulty, refuse_without_confusing
from .runs import BASE, NEW, Trained, find_zero_shot, split_dataset

if TYPE_CHECKING:
    from cocoamix.report.readers.runs import Inventory

COLUMNS = ("dataset", "loss", "epoch", "seed", "images", "count", "accuracy")
_PLACES = list(NAMES)


@dataclass(frozen=True)
class Curves:
    """The accuracies of one dataset over epochs.

    Attributes:
        difficulty: The parts of its base test images.
        accuracy: In percent, by loss, epoch and part (easy, confusing, hard, all or new); one value per seed.
        zero_shot: The accuracy of zero-shot CLIP on all base images, and on new ones if it was evaluated on them.
        new: The number of test images of the new classes; None if unknown.
        seeds: The seeds, which all losses and epochs share.
    """

    difficulty: Difficulty
    accuracy: dict[Loss, dict[int, dict[str, list[float]]]]
    zero_shot: dict[str, float]
    new: int | None
    seeds: list[int | None]


def choose_dataset(trained: Gathered[Trained], name: str | None) -> str:
    """Return the dataset that the user names, or the one with results for the most epochs."""
    from cocoamix.report.names import dataset_name, sort_datasets

    epochs: dict[str, int] = {}
    for cells in trained.cells.values():
        for dataset, subset in cells:
            epochs[dataset] = epochs.get(dataset, 0) + (subset == BASE)
    if name:
        chosen = name if name in epochs else dataset_name(name)
        if not epochs.get(chosen):
            raise UserError(f"--curves names {name}, for which there is no run. There are: {', '.join(epochs)}.")
        return chosen
    return max(sort_datasets(epochs), key=lambda dataset: epochs[dataset])


def find_curves(inventory: Inventory, trained: Gathered[Trained], gap: float, dataset: str) -> Curves:
    """Return the accuracies of a dataset over epochs."""
    points = [one for one in trained.cells if (dataset, BASE) in trained.cells[one] and one.epoch is not None]
    points.sort(key=lambda point: (_PLACES.index(point.loss.name), point.epoch))
    if not points:
        raise UserError(
            f"No run of {dataset} on base classes has an epoch, because its models were selected on validation images. "
            "Evaluate with --load-epoch."
        )
    difficulty = split_dataset(inventory, trained, dataset, gap)
    refuse_without_confusing(difficulty)
    seeds = trained.seeds(points, [dataset], BASE)
    if not seeds:
        raise nothing_shared(
            "seed",
            f"on base classes of {dataset}",
            {f"{point.loss.title} at epoch {point.epoch}": trained.cells[point][dataset, BASE] for point in points},
        )
    accuracy: dict[Loss, dict[int, dict[str, list[float]]]] = {}
    for point in points:
        cells = trained.cells[point]
        found = [difficulty.accuracies(Path(cells[dataset, BASE][seed].folder)) for seed in seeds]
        by_part = {part: [one[part] for one in found] for part in found[0]}
        new = cells.get((dataset, NEW), {})
        if all(seed in new for seed in seeds):
            by_part[NEW] = [new[seed].accuracy for seed in seeds]
        accuracy.setdefault(point.loss, {})[point.epoch or 0] = by_part
    zero_shot = {ALL: 100 * difficulty.count(EASY) / difficulty.count(ALL)}
    run = find_zero_shot(inventory, trained, dataset, NEW)
    if run is not None:
        zero_shot[NEW] = run.accuracy
    return Curves(difficulty, accuracy, zero_shot, _count_new(trained, dataset), seeds)


def _count_new(trained: Gathered[Trained], dataset: str) -> int | None:
    from cocoamix.run.results import RESULTS, Results

    for cells in trained.cells.values():
        for run in cells.get((dataset, NEW), {}).values():
            if run.read_from == RESULTS:
                return Results.read(Path(run.folder, RESULTS)).evaluated_images
    return None


def table(curves: Curves) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of the data: first zero-shot CLIP's accuracy on each part, then that of each loss."""
    difficulty = curves.difficulty
    counts = {part: difficulty.count(part) for part in (*PARTS, ALL)}
    known: dict[str, int | str] = {**counts, NEW: curves.new if curves.new is not None else ""}
    exact = {EASY: 100.0, CONFUSING: 0.0, HARD: 0.0, **curves.zero_shot}
    for part in (*PARTS, ALL, NEW):
        if known[part] != 0 and part in exact:
            yield difficulty.dataset, "zero-shot CLIP", 0, "", part, known[part], exact[part]
    for loss, epochs in curves.accuracy.items():
        for epoch, by_part in epochs.items():
            for part, values in by_part.items():
                for seed, value in zip(curves.seeds, values, strict=True):
                    number = "" if seed is None else seed
                    yield difficulty.dataset, loss.title, epoch, number, part, known[part], value


def describe(curves: Curves) -> str:
    """Describe the curves."""
    difficulty = curves.difficulty
    total = difficulty.count(ALL)
    shares = [f"{difficulty.count(part)} ({100 * difficulty.count(part) / total:.1f} %)" for part in PARTS]
    text = (
        f"Of the {total} test images of the base classes of {difficulty.dataset}, {shares[0]} are easy, {shares[1]} "
        f"confusing and {shares[2]} hard under zero-shot CLIP; confusing means wrong by less than {difficulty.gap:g}."
    )
    for loss, epochs in curves.accuracy.items():
        epoch = max(epochs)
        means = {part: sum(values) / len(values) for part, values in epochs[epoch].items()}
        words = {ALL: "all base images", NEW: "new classes"}
        by_part = [
            f"{means[part]:.1f} % on {words.get(part, f'{part} ones')}" for part in (*PARTS, ALL, NEW) if part in means
        ]
        text += f" After epoch {epoch}, {loss.title} has {', '.join(by_part[:-1])} and {by_part[-1]}."
    return f"{text} ({seeds_in_words(curves.seeds).capitalize()}.)"
