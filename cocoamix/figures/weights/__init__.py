"""`weights`: accuracy, cross-entropy and calibration error of CoCoA-Mix over the weight pi of the learned prompt."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from .. import sources
from ..drawn import Drawn
from ..sources import Choice, Plans

if TYPE_CHECKING:
    from cocoamix.run.recorded import RecordedRun

ABOUT = (
    "Accuracy, cross-entropy and calibration error of the mixture over the weight pi of the learned prompt, on "
    "training images and on test images of the trained classes."
)
TIME = "about a minute on two cores"
STEM = "weights-over-pi"
_TITLE = "CoCoA-Mix over the weight of the learned prompt"
_PLANS = Plans(
    Choice("quick_weights", ("one stage", "two stages", "held-out"), ("round_angular",), (1,)),
    Choice("weights", ("pi^in and pi^out", "pi^in and pi^out, two stages"), ("eurosat",), (1,)),
)
_PER_FIGURE = 4  # runs, side by side


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose the runs."""
    sources.add_arguments(parser, _PLANS, "folders of finished training runs, or of their evaluations")


def make(args: argparse.Namespace) -> Iterator[Drawn]:
    """Yield figures of the curves, each with at most four runs."""
    runs = _find_runs(args)  # checks all of them before the first computation
    from .drawing import draw
    from .over_pi import COLUMNS, compute, describe, table
    from .runs import open_run

    found = [compute(open_run(run, args.root or ""), str(run.folder)) for run in runs]
    for number, start in enumerate(range(0, len(found), _PER_FIGURE), 1):
        part = found[start : start + _PER_FIGURE]
        stem = STEM if number == 1 else f"{STEM}-{number}"
        sentence = "\n".join(map(describe, part))
        yield Drawn(stem, _TITLE, sentence, partial(draw, part), COLUMNS, table(part))


def _find_runs(args: argparse.Namespace) -> list[RecordedRun]:
    from .runs import find_run

    if args.runs:
        own = argparse.Namespace(**{**vars(args), "root": None})  # --root is where the dataset is now
        return [find_run(folder) for folder in sources.find_source(own, _PLANS).folders]
    return [find_run(run.folder) for run in sources.find_source(args, _PLANS).runs if run.trains]
