"""Draw the figures of the paper and of this project, each with one command.

    cocoamix figures list                       list the figures, and how long each takes
    cocoamix figures tradeoff                   one of them, on the synthetic datasets
    cocoamix figures tradeoff --root DATA       on real data; missing runs are trained first
    cocoamix figures tradeoff --runs output     from finished runs

Each command writes SVG and PNG (light and dark), the data as CSV, and a sentence on what the figure shows.
Exit status: 0, or 2 if a figure cannot be drawn.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from cocoamix.errors import run_command
from cocoamix.io.files import check_writable
from cocoamix.io.paths import expand_home
from cocoamix.parser import Parser

from .catalogue import MODULES, load
from .drawn import save

_OUTPUT = "output/figures"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a subcommand for each figure."""
    figures = parser.add_subparsers(dest="figure", title="figures", metavar="NAME", required=True)
    figures.add_parser("list", help="list the figures, and how long each takes on the synthetic datasets")
    for name in MODULES:
        module = load(name)
        one = figures.add_parser(name, help=module.ABOUT, description=f"{module.ABOUT} Takes {module.TIME}.")
        module.add_arguments(one)
        one.add_argument(
            "--output", default=_OUTPUT, metavar="FOLDER", help=f"folder for the files (default: {_OUTPUT})"
        )


def run(args: argparse.Namespace) -> None:
    """Draw the requested figure."""
    if args.figure == "list":
        for name in MODULES:
            module = load(name)
            print(f"{name:12} {module.ABOUT} Takes {module.TIME}.")
        return
    import cocoamix.drawing.style  # noqa: F401  (fails early if matplotlib is missing)

    folder: Path = expand_home(args.output)
    check_writable(str(folder))  # before long runs start
    files = []
    try:
        for drawn in load(args.figure).make(args):
            print(drawn.sentence, flush=True)
            files += save(drawn, folder)
    finally:
        if not files:
            with suppress(OSError):  # it is not empty, so it stays
                folder.rmdir()
    print(f"Written to {folder}: {', '.join(files)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = Parser(prog="cocoamix figures", description=__doc__)
    add_arguments(parser)
    stopped = "Stopped. Finished runs and figures are kept; the same command resumes."
    return run_command(partial(run, parser.parse_args(argv)), stopped, work=True)
