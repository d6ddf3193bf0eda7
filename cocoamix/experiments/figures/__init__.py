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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from cocoamix.errors import UserError, run_command
from cocoamix.io.files import check_writable
from cocoamix.io.paths import expand_home
from cocoamix.parser import Parser

_WIDTHS = {"column": 3.25, "page": 6.75}  # inches


class Figure(NamedTuple):
    """An entry of the catalogue. `make(args)` of its module yields the drawings."""

    module: str
    minutes: str  # on two cores, on the synthetic datasets
    about: str


# In the order of the paper.
FIGURES = {
    "gradient": Figure("gradient", "seconds", "gradient of CE + w CoA-loss over the probability, for several w"),
    "assumption": Figure("assumption", "two minutes", "learned against hand-crafted prompt, on in- and out-classes"),
    "confusing": Figure("confusing", "three minutes", "accuracy on easy, confusing and hard test images over epochs"),
    "gains": Figure("confusing", "a minute", "what losses add to CE on the confusing images of each dataset"),
    "losses": Figure("losses", "a minute", "base accuracy for each loss of the learned prompt"),
    "settings": Figure("losses", "a minute", "base accuracy for each loss and each setting of it"),
    "sensitivity": Figure("losses", "two minutes", "base accuracy over the weight w, new accuracy over the margin d"),
    "scorecam": Figure("scorecam", "a minute", "class activation maps (ScoreCAM), with the predicted labels"),
    "tradeoff": Figure("base_to_new", "three minutes", "accuracy on new against base classes, with lines of equal H"),
    "parameters": Figure("base_to_new", "two minutes", "H against the number of trained parameters"),
    "datasets": Figure("base_to_new", "three minutes", "H of each method on each dataset, with a dot for each seed"),
    "sessions": Figure("sessions", "two minutes", "accuracy after each session of class-incremental learning"),
    "weights": Figure("weights", "a minute", "accuracy, cross-entropy and calibration over the mixture weight pi"),
}


def _width(text: str) -> float:
    """Return a width in inches."""
    try:
        width = _WIDTHS.get(text) or float(text)
    except ValueError:
        width = 0.0
    if not 2 <= width <= 40:
        raise UserError(f"--width is {text}; it is column, page, or a number of inches from 2 to 40.")
    return width


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a subcommand for each figure."""
    figures = parser.add_subparsers(dest="figure", title="figures", metavar="NAME", required=True)
    figures.add_parser("list", help="list the figures, and how long each takes on the synthetic datasets")
    for name, figure in FIGURES.items():
        own = figures.add_parser(name, help=figure.about, description=f"Draw: {figure.about}.")
        if name != "gradient":
            _add_runs(own)
        if name in ("tradeoff", "sessions"):
            own.add_argument("--paper", action="store_true", help="also show published numbers")
        if name == "scorecam":
            own.add_argument("--images", nargs="+", metavar="PATH", help="images, or folders and tables of images")
        widths = "column (3.25 in), page (6.75 in), or a number of inches"
        own.add_argument("--width", type=_width, metavar="WIDTH", help=widths)
        own.add_argument("--no-title", action="store_true", help="leave out the title, which a caption replaces")
        folder = "folder for the files (default: %(default)s)"
        own.add_argument("--output", default="output/figures", metavar="FOLDER", help=folder)


def _add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", nargs="+", metavar="DIR", help="output folders of finished runs, or folders above")
    parser.add_argument("--root", help="folder of real datasets; missing runs are trained on them first")
    for flag, kind, metavar in (("--datasets", str, "NAME"), ("--seeds", int, "SEED")):
        words = f"only these {flag[2:]} of the plan"
        parser.add_argument(flag, nargs="+", default=[], type=kind, metavar=metavar, help=words)
    override = "override a key in all runs"
    parser.add_argument("--set", nargs=2, action="append", default=[], metavar=("KEY", "VALUE"), help=override)
    parser.add_argument("-j", "--jobs", type=int, metavar="N", help="parallel runs (default: one per GPU, or core)")


def run(args: argparse.Namespace) -> None:
    """Draw the requested figure."""
    if args.figure == "list":
        for name, figure in FIGURES.items():
            print(f"{name:12} {figure.about}; takes {figure.minutes}")
        return
    folder: Path = expand_home(args.output)
    check_writable(str(folder))  # before long runs start
    try:
        print(f"Written to {folder}: {', '.join(_draw(args, folder))}")
    finally:
        with suppress(OSError):  # only an empty folder is deleted
            folder.rmdir()


def _draw(args: argparse.Namespace, folder: Path) -> list[str]:
    """Write the files of a figure and return their names: NAME.svg and so on, then NAME-2.svg if there are several."""
    from .style import Style, save

    module, _, about = FIGURES[args.figure]
    files: list[str] = []
    for number, drawing in enumerate(importlib.import_module(f".{module}", __package__).make(args), start=1):
        named = replace(drawing, stem=f"{drawing.stem}-{number}") if number > 1 else drawing
        files += save(named, folder, Style(args.width, titles=not args.no_title))
        print(drawing.sentence, flush=True)
    if not files:
        raise UserError(f"The runs do not have what the figure shows: {about}. See docs/FIGURES.md for what it needs.")
    return files


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    stopped = "Stopped. Finished runs and figures are kept; the same command resumes."
    return run_command(partial(_parse_and_run, argv), stopped, work=True)


def _parse_and_run(argv: Sequence[str] | None) -> None:
    parser = Parser(prog="cocoamix figures", description=__doc__)
    add_arguments(parser)
    run(parser.parse_args(argv))
