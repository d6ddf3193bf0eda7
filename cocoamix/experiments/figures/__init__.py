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
from functools import partial
from pathlib import Path

from cocoamix.errors import run_command
from cocoamix.io.files import check_writable
from cocoamix.io.paths import expand_home
from cocoamix.parser import Parser

from .catalogue import FIGURES, declare


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a subcommand for each figure."""
    figures = parser.add_subparsers(dest="figure", title="figures", metavar="NAME", required=True)
    figures.add_parser("list", help="list the figures, and how long each takes on the synthetic datasets")
    for name, figure in FIGURES.items():
        takes = f"{figure.about} Takes {figure.time}."
        declare(figures.add_parser(name, help=figure.about, description=takes), figure)


def run(args: argparse.Namespace) -> None:
    """Draw the requested figure."""
    if args.figure == "list":
        for name, figure in FIGURES.items():
            print(f"{name:12} {figure.about} Takes {figure.time}.")
        return
    folder: Path = expand_home(args.output)
    check_writable(str(folder))  # before long runs start
    try:
        print(f"Written to {folder}: {', '.join(_draw(args, folder))}")
    finally:
        with suppress(OSError):  # only an empty folder is deleted
            folder.rmdir()


def _draw(args: argparse.Namespace, folder: Path) -> list[str]:
    """Write the files of a figure and return their names."""
    from .style import Style, save

    module = importlib.import_module(f".{FIGURES[args.figure].module or args.figure}", __package__)
    files: list[str] = []
    for drawing in module.make(args):
        files += save(drawing, folder, Style(args.width, titles=not args.no_title))
        print(drawing.sentence, flush=True)
    return files


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    stopped = "Stopped. Finished runs and figures are kept; the same command resumes."
    return run_command(partial(_parse_and_run, argv), stopped, work=True)


def _parse_and_run(argv: Sequence[str] | None) -> None:
    parser = Parser(prog="cocoamix figures", description=__doc__)
    add_arguments(parser)
    run(parser.parse_args(argv))
