"""`confusing`: the effect of a loss on test images that zero-shot CLIP misclassifies by a narrow margin.

An image is confusing if its prediction is wrong and more probable than the label by less than the gap.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cocoamix.errors import UserError, check_choice

from .. import sources
from ..drawn import Drawn
from ..kinds import Gathered, find_inventory
from ..loss_names import NAMES
from ..sources import Choice, Plans, Source
from . import curves, gains
from .runs import Trained, gather_losses

if TYPE_CHECKING:
    from cocoamix.report.readers.runs import Inventory

ABOUT = (
    "Easy, confusing and hard test images under zero-shot CLIP: their proportions, the accuracy on each over epochs "
    "for several losses, and what CE + CoA adds to CE on confusing images of every dataset."
)
TIME = "about two minutes on two cores"
STEM = "confusing"
_TITLE, _GAINS_TITLE = "Easy, confusing and hard test images under zero-shot CLIP", "Gain on confusing images"
_PLANS = Plans(Choice("quick_confusing"), Choice("confusing"))
# The synthetic dataset with the most confusing images, and the paper's dataset.
_SYNTHETIC, _REAL = "texture_colour", "eurosat"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose the runs, the losses and the gaps."""
    sources.add_arguments(parser, _PLANS)
    parser.add_argument(
        "--losses",
        nargs="+",
        choices=NAMES,
        default=["ce", "ce+coa"],
        help="losses to compare, the reference first (default: ce ce+coa)",
    )
    parser.add_argument(
        "--curves",
        metavar="NAME",
        help=f"dataset of the curves over epochs (default: {_REAL}; {_SYNTHETIC} for synthetic datasets)",
    )
    parser.add_argument(
        "--gap",
        type=float,
        default=0.2,
        help="for the curves: confusing images are wrong by less than the gap (default: 0.2)",
    )
    parser.add_argument(
        "--datasets-gap",
        type=float,
        default=0.5,
        help="for the gains on all datasets: confusing images are wrong by less than the gap (default: 0.5)",
    )


def make(args: argparse.Namespace) -> Iterator[Drawn]:
    """Yield the curves of one dataset over epochs, and the gains on all datasets."""
    for flag, gap in (("--gap", args.gap), ("--datasets-gap", args.datasets_gap)):
        if not 0 < gap <= 1:
            raise UserError(f"{flag} is {gap:g}; a gap between two probabilities is above 0 and at most 1.")
    losses = list(dict.fromkeys(args.losses))
    if args.runs:
        inventory = find_inventory(sources.find_source(args, _PLANS).folders)
        trained = gather_losses(inventory, losses)
        yield _curves(inventory, trained, args.gap, args.curves)
    else:
        inventory = find_inventory(_run_plan(args, losses, [_curves_config(args)], with_epochs=True).folders)
        yield _curves(inventory, gather_losses(inventory, losses), args.gap, "")
        if len(losses) < 2:  # before long runs on all datasets
            _note_no_gains(losses, losses)
            return
        inventory = find_inventory(_run_plan(args, losses, args.datasets, with_epochs=False).folders)
        trained = gather_losses(inventory, losses)
    yield from _gains(inventory, trained, losses, args.datasets_gap)


def _curves_config(args: argparse.Namespace) -> str:
    """Return the dataset of the curves by its name in the plan."""
    default = _REAL if args.root else _SYNTHETIC
    if args.curves:
        from cocoamix.bench.plan import load_plan

        plan = load_plan((_PLANS.real if args.root else _PLANS.synthetic).plan)
        check_choice("--curves", args.curves, [one.name for one in plan.datasets])
        return str(args.curves)
    return str(args.datasets[0]) if args.datasets and default not in args.datasets else default


def _run_plan(args: argparse.Namespace, losses: Sequence[str], datasets: list[str], with_epochs: bool) -> Source:
    """Run the part of the plan that one of the figures needs."""
    from cocoamix.bench.plan import load_plan

    names = [NAMES[loss] for loss in losses]
    found = []
    for choice in (_PLANS.synthetic, _PLANS.real):
        methods = load_plan(choice.plan).methods
        kept = [one.name for one in methods if not one.trained or one.name in names]
        found.append(kept + [one.name for one in methods if with_epochs and one.model_of in names])
    plans = Plans(Choice(_PLANS.synthetic.plan, tuple(found[0])), Choice(_PLANS.real.plan, tuple(found[1])))
    return sources.find_source(argparse.Namespace(**{**vars(args), "datasets": datasets}), plans)


def _curves(inventory: Inventory, trained: Gathered[Trained], gap: float, name: str) -> Drawn:
    from .drawing import draw_curves

    found = curves.find_curves(inventory, trained, gap, curves.choose_dataset(trained, name))
    rows = list(curves.table(found))
    sentence, draw = curves.describe(found), partial(draw_curves, found)
    return Drawn(STEM, _TITLE, sentence, draw, curves.COLUMNS, rows)


def _gains(inventory: Inventory, trained: Gathered[Trained], losses: Sequence[str], gap: float) -> Iterator[Drawn]:
    from .drawing import draw_gains

    there = [name for name in losses if any(point.loss.name == name for point in trained.cells)]
    if len(there) < 2:
        _note_no_gains(losses, there)
        return
    found, seeds = gains.find_gains(inventory, trained, there, gap)
    base = NAMES[there[0]]
    rows = list(gains.table(found, base, seeds))
    sentence, draw = gains.describe(found, base, seeds), partial(draw_gains, found, base)
    yield Drawn(f"{STEM}-datasets", _GAINS_TITLE, sentence, draw, gains.COLUMNS, rows)


def _note_no_gains(losses: Sequence[str], there: Sequence[str]) -> None:
    print(f"No gains are drawn: of the losses {', '.join(losses)}, only {there[0]} has runs.", file=sys.stderr)
