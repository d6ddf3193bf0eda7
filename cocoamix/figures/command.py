"""`cocoamix figures`: figures that need more of a run than its results, its checkpoint and the features of its images.

cocoamix figures weights RUN [RUN ...] --output FOLDER

`weights` shows accuracy, cross-entropy and calibration error of CoCoA-Mix over the weight pi of the learned prompt.
Exit status: 0, or 2 when a run cannot be drawn.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cocoamix.errors import run_command
from cocoamix.parser import Parser

# By name: the module whose `draw(args)` draws the figure, and what it shows.
FIGURES = {
    "weights": (
        "cocoamix.figures.weights",
        "Accuracy, cross-entropy and expected calibration error of the mixture over the weight pi of the learned "
        "prompt, on training images and on test images of the trained classes.",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes: a sub-command for each figure."""
    figures = parser.add_subparsers(dest="figure", title="figures", metavar="NAME", required=True)
    for name, (_, about) in FIGURES.items():
        one = figures.add_parser(name, help=about, description=about)
        one.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a training, or of its evaluation")
        one.add_argument("--output", required=True, type=Path, metavar="FOLDER", help="where the files go")
        one.add_argument("--root", default="", help="folder that holds the datasets' folders (default: the run's)")


def run(args: argparse.Namespace) -> None:
    """Draw what the arguments ask for."""
    importlib.import_module(FIGURES[args.figure][0]).draw(args)  # here, because it imports torch


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = Parser(prog="cocoamix figures", description=__doc__)
    add_arguments(parser)
    return run_command(partial(run, parser.parse_args(argv)), "Stopped. No figure was written.")
