"""`losses`: base accuracy by the loss of the learned prompt and its setting; the sensitivity to w and d."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from cocoamix.errors import UserError

from .. import sources
from ..drawn import Drawn
from ..kinds import find_inventory, own_runs
from ..loss_names import NAMES
from ..sources import Choice, Plans
from . import comparison, sensitivity

if TYPE_CHECKING:
    from cocoamix.report.readers.runs import Inventory

ABOUT = (
    "Base accuracy for each loss of the learned prompt, for each setting of the losses, and over the weight w of the "
    "CoA-loss; new accuracy over the margin d."
)
TIME = "about four minutes on two cores"
STEM = "losses"
LOSSES, SETTINGS, SENSITIVITY = "losses", "settings", "sensitivity"
PARTS = (LOSSES, SETTINGS, SENSITIVITY)
_TITLES = {
    LOSSES: "Base accuracy by loss",
    SETTINGS: "Base accuracy by loss and setting",
    SENSITIVITY: "Sensitivity to w and d",
}
# Two of the synthetic datasets, and two seeds if there are many settings. --datasets and --seeds can choose more.
_SYNTHETIC, _TWO = ("colour_shape", "warm_cool"), (1, 2)
_PLANS = {
    LOSSES: (Plans(Choice("quick_losses", tuple(NAMES.values()), _SYNTHETIC), Choice("losses")),),
    SETTINGS: (Plans(Choice("quick_losses", (), _SYNTHETIC, _TWO), Choice("losses_sweep")),),
    SENSITIVITY: (
        Plans(Choice("quick_sensitivity", (), _SYNTHETIC, _TWO), Choice("sweep_w")),
        Plans(Choice("quick_sensitivity", (), _SYNTHETIC, _TWO), Choice("sweep_d")),
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose the runs and the parts."""
    sources.add_arguments(parser, _PLANS[LOSSES][0])
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=PARTS,
        default=list(PARTS),
        help="only these figures; on real data, they run the plans losses, losses_sweep, and sweep_w and sweep_d",
    )


def make(args: argparse.Namespace) -> Iterator[Drawn]:
    """Yield the figures whose runs exist or can be run."""
    drawn = False
    given = find_inventory(sources.find_source(args, _PLANS[LOSSES][0]).folders) if args.runs else None
    for part in (one for one in PARTS if one in args.parts):
        inventory = given or _run_plans(args, part)
        try:
            found = _sensitivity(inventory) if part == SENSITIVITY else _comparison(inventory, part)
        except UserError as error:  # other parts can still be drawn
            found = str(error)
        if isinstance(found, Drawn):
            drawn = True
            yield found
        else:
            _note_not_drawn(_TITLES[part], found)
    if not drawn:
        advice = "Give the folders of such runs, or leave out --runs." if args.runs else "Choose other --parts."
        raise UserError(f"There is nothing to draw, for the reasons above. {advice}")


def _note_not_drawn(title: str, reason: str) -> None:
    print(f"{title} is not drawn: {reason.removesuffix('.')}.", file=sys.stderr)


def _run_plans(args: argparse.Namespace, part: str) -> Inventory:
    """Run the plans of a part and return their runs."""
    plans = _PLANS[part] if args.root else _PLANS[part][:1]  # on synthetic datasets, both panels are in one plan
    return find_inventory([folder for one in plans for folder in sources.find_source(args, one).folders])


def _comparison(inventory: Inventory, part: str) -> Drawn | str:
    """Return the figure of losses, or a description of what is missing."""
    if not own_runs(inventory, "none"):
        return comparison.NEEDED
    found = comparison.gather_losses(inventory)
    if part == SETTINGS and not comparison.has_settings(found):
        return "there is no loss with several settings"
    if len(found.cells) < 2:
        return f"there is only one loss, {next(iter(found.cells)).title}"
    from . import drawing

    averages = (comparison.compare if part == LOSSES else comparison.compare_settings)(found)
    draw = partial(drawing.draw_losses if part == LOSSES else drawing.draw_settings, averages)
    rows, sentence = list(comparison.table(averages)), comparison.describe(averages)
    stem = STEM if part == LOSSES else f"{STEM}-{part}"
    return Drawn(stem, _TITLES[part], sentence, draw, comparison.COLUMNS, rows)


def _sensitivity(inventory: Inventory) -> Drawn | str:
    """Return the figure of the sensitivity, or a description of what is missing."""
    if not own_runs(inventory, "coa"):
        return sensitivity.NEEDED
    panels, refused = sensitivity.find_panels(sensitivity.gather_settings(inventory))
    if not panels:
        return " ".join(refused.values()) or sensitivity.NEEDED
    for symbol, reason in refused.items():
        _note_not_drawn(f"Sensitivity to {symbol}", reason)
    from .drawing import draw_sensitivity

    rows, sentence = list(sensitivity.table(panels)), sensitivity.describe(panels)
    draw = partial(draw_sensitivity, panels)
    return Drawn(f"{STEM}-{SENSITIVITY}", _TITLES[SENSITIVITY], sentence, draw, sensitivity.COLUMNS, rows)
