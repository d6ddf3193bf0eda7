"""Draw the figures of the paper and of this project, each with one command.

    cocoamix figures list                       list the figures, and how long each takes
    cocoamix figures tradeoff                   one of them, on the synthetic datasets
    cocoamix figures tradeoff --root DATA       on real data; missing runs are trained first
    cocoamix figures tradeoff --runs output     from finished runs
    cocoamix figures tradeoff --width page --no-title

Each command writes SVG, PNG and PDF, the data as CSV, and a sentence on what the figure shows.
Exit status: 0, or 2 if a figure cannot be drawn.
"""

from __future__ import annotations

import argparse
import importlib
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cocoamix.errors import UserError, run_command
from cocoamix.io.files import check_writable
from cocoamix.io.paths import expand_home
from cocoamix.parser import Parser

if TYPE_CHECKING:
    from .style import Drawing

# Modules by the name of the figure, in the order of the paper.
MODULES = {
    "gradient": "gradient",
    "assumption": "assumption",
    "confusing": "confusing",
    "losses": "losses",
    "scorecam": "scorecam",
    "tradeoff": "tradeoff",
    "parameters": "parameters",
    "datasets": "datasets",
    "sessions": "curves",
    "weights": "weights",
}
_WIDTHS = {"column": 3.25, "page": 6.75}  # inches
_OUTPUT = "output/figures"


class FigureModule(Protocol):
    """The interface of a figure's module.

    Attributes:
        ABOUT: What the figure shows, in a sentence.
        TIME: How long it takes on the synthetic datasets, for the help.
    """

    ABOUT: str
    TIME: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the figure other than those that all figures share."""

    def make(self, args: argparse.Namespace) -> Iterable[Drawing]:
        """Yield the figures, computed and ready to draw."""


def load(name: str) -> FigureModule:
    """Return the module of a figure."""
    module: FigureModule = importlib.import_module(f".{MODULES[name]}", __package__)
    return module


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a subcommand for each figure."""
    figures = parser.add_subparsers(dest="figure", title="figures", metavar="NAME", required=True)
    figures.add_parser("list", help="list the figures, and how long each takes on the synthetic datasets")
    for name in MODULES:
        module = load(name)
        command = figures.add_parser(name, help=module.ABOUT, description=f"{module.ABOUT} Takes {module.TIME}.")
        module.add_arguments(command)
        command.add_argument(
            "--width", type=parse_width, metavar="WIDTH", help="column (3.25 in), page (6.75 in), or a number of inches"
        )
        command.add_argument("--no-title", action="store_true", help="leave out the title, which a caption replaces")
        command.add_argument(
            "--output", default=_OUTPUT, metavar="FOLDER", help=f"folder for the files (default: {_OUTPUT})"
        )


def parse_width(text: str) -> float:
    """Return a width in inches."""
    try:
        width = _WIDTHS[text] if text in _WIDTHS else float(text)
    except ValueError:
        width = math.nan
    if not 2 <= width <= 40:
        raise UserError(f"--width is {text}; it is column, page, or a number of inches from 2 to 40.")
    return width


def run(args: argparse.Namespace) -> None:
    """Draw the requested figure."""
    if args.figure == "list":
        for name in MODULES:
            module = load(name)
            print(f"{name:12} {module.ABOUT} Takes {module.TIME}.")
        return
    from .style import Style, save

    folder: Path = expand_home(args.output)
    check_writable(str(folder))  # before long runs start
    style = Style(args.width, titles=not args.no_title)
    files: list[str] = []
    try:
        for drawing in load(args.figure).make(args):
            files += save(drawing, folder, style)
            print(drawing.sentence, flush=True)
    finally:
        if not files:
            with suppress(OSError):  # it is not empty, so it stays
                folder.rmdir()
    print(f"Written to {folder}: {', '.join(files)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    stopped = "Stopped. Finished runs and figures are kept; the same command resumes."
    return run_command(partial(_parse_and_run, argv), stopped, work=True)


def _parse_and_run(argv: Sequence[str] | None) -> None:
    parser = Parser(prog="cocoamix figures", description=__doc__)
    add_arguments(parser)
    run(parser.parse_args(argv))
