"""Make tables and figures from any tree of results: ours (results.json), or logs of CoOp and of code derived from it.

    cocoamix report output
    cocoamix report output --baseline CoOp --paper --html report.html

Exit status: 0 if every run that was found is in the report, 1 if some were left out (listed on the error stream),
2 if there is nothing to report or an argument is wrong.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cocoamix.errors import UserError, printable, run_command, shorten
from cocoamix.io.files import write_json, write_text
from cocoamix.parser import Parser

from .build import Options, Report, build
from .render import latex, markdown
from .render import text as render_text
from .render.data import render_csv, render_json

_KINDS = {"markdown": "Markdown", "latex": "LaTeX", "csv": "CSV", "json": "JSON", "html": "HTML"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "directories", nargs="+", metavar="DIR", help="output folder of a run, or any folder above runs"
    )
    parser.add_argument(
        "--baseline", default="", metavar="METHOD", help="show differences from this method, with a paired test"
    )
    parser.add_argument("--paper", action="store_true", help="show the numbers printed in the paper next to yours")
    parser.add_argument("--common", action="store_true", help="average only over datasets that all methods have")
    parser.add_argument("--confidence", action="store_true", help="add tables of confidence metrics for each dataset")
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="PATTERN=NAME",
        help="name the rows whose Trainer/config matches, e.g. 'CoOp/*=CoOp'; rows with equal names are merged",
    )
    for kind in _KINDS:
        parser.add_argument(f"--{kind}", metavar="FILE", help=f"write the report as {_KINDS[kind]} to FILE")
    parser.add_argument(
        "--plots", metavar="FOLDER", help="write the figures to FOLDER: SVG and PNG in light and dark, and PDF"
    )
    parser.add_argument("--quiet", action="store_true", help="print no tables")


def read_names(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Parse the PATTERN=NAME arguments of --name into pairs."""
    pairs = []
    for text in texts:
        pattern, equals, name = text.partition("=")
        if not (pattern and equals and name):
            raise UserError(f"--name {shorten(text)}: write PATTERN=NAME, such as 'CoOp/vit_b16_ep50*=CoOp'.")
        pairs.append((pattern, name))
    return tuple(pairs)


def write_files(report: Report, args: argparse.Namespace) -> None:
    """Write the requested files and print their names."""
    if args.markdown:
        write_text(args.markdown, markdown.render(report))
    if args.latex:
        write_text(args.latex, latex.render(report))
    if args.csv:
        write_text(args.csv, render_csv(report))
    if args.json:
        write_json(args.json, render_json(report))
    if args.html or args.plots:
        from .render import html, plots  # matplotlib takes a second to import

        drawn = plots.write(report, Path(args.plots)) if args.plots else {}
        if args.html:
            write_text(args.html, html.render(report, drawn))
    for path in (*(getattr(args, kind) for kind in _KINDS), args.plots):
        if path:
            print(f"Written: {printable(path)}")


def print_tables(report: Report) -> None:
    """Print the tables at the width of the terminal."""
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    width = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 160
    print(render_text.render(report, width, colour), end="")


def print_problems(report: Report) -> None:
    """List the runs that were left out on the error stream."""
    if report.problems:
        sys.stdout.flush()
        print(render_text.problems(report), file=sys.stderr)


def run(args: argparse.Namespace) -> int:
    """Make the report that the arguments describe."""
    options = Options(args.baseline, args.paper, args.common, read_names(args.name), args.confidence, args.command)
    report = build(args.directories, options)
    if not args.quiet:
        print_tables(report)
    write_files(report, args)
    print_problems(report)
    return 0 if report.complete else 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = Parser(prog="cocoamix report", description=__doc__)
    add_arguments(parser)
    args = parser.parse_args(argv)
    args.command = shlex.join(["cocoamix", "report", *(sys.argv[1:] if argv is None else argv)])
    return run_command(partial(run, args), "Stopped.")
