"""Figures that need more of a run than its results: the checkpoint, and the features of its images.

    python -m cocoamix.figures weights RUN [RUN ...] --output FOLDER

`weights` shows accuracy, cross-entropy and calibration error of CoCoA-Mix over the weight pi of the learned prompt.
Exit status: 0, or 2 when a run cannot be drawn.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial

from cocoamix.errors import UserError, run_command

from . import weights


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line. A figure adds its own sub-command."""
    parser = argparse.ArgumentParser(
        prog="python -m cocoamix.figures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    figures = parser.add_subparsers(title="figures", metavar="NAME", required=True)
    weights.add_arguments(figures.add_parser("weights", help="the mixture over the weight of the learned prompt"))
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> None:
    """Draw what the arguments ask for."""
    try:
        args.draw(args)
    except OSError as error:
        raise UserError(str(error)) from error


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and turn what a person can mend into one sentence and exit status 2."""
    return run_command(partial(run, parse_arguments(argv)), "Stopped. No figure was written.")


if __name__ == "__main__":
    sys.exit(main())
