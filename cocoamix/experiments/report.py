"""Make tables and figures from any tree of results: ours (results.json), or logs of CoOp and of code derived from it.

    cocoamix report output
    cocoamix report output --baseline CoOp --paper --html report.html

Exit status: 0 if every run that was found is in the report, 1 if some were left out (listed on the error stream),
2 if there is nothing to report or an argument is wrong.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cocoamix.errors import UserError, nearest, printable, run_command, shorten
from cocoamix.io.files import write_json, write_text
from cocoamix.parser import Parser

from . import frame as frames
from . import render, tasks
from .checks import check
from .frame import Frame
from .names import natural, sort_methods
from .sections import Options, Section

_TEXTS = {"markdown": render.markdown, "latex": render.latex, "csv": render.csv}
_KINDS = {"markdown": "Markdown", "latex": "LaTeX", "csv": "CSV", "json": "JSON", "html": "HTML"}


@dataclass
class Report:
    """The content of a report."""

    folders: list[str]
    frame: Frame
    sections: list[Section]
    notes: list[str]
    command: str = ""  # the command line that made it

    @property
    def backbones(self) -> list[str]:
        """The backbones that its runs state, including each member of an ensemble."""
        joined = {str(facts.get("backbone") or "") for facts in self.frame.runs["facts"]}
        names = {name for text in joined for name in text.split("+") if name}
        return ["the tiny CLIP" if name == "tiny" else printable(name) for name in sorted(names, key=natural)]


def build(folders: Sequence[str | os.PathLike[str]], options: Options | None = None, command: str = "") -> Report:
    """Read the runs below the folders and make the report."""
    options = options or Options()
    frame = frames.read(folders, options.names)
    if frame.runs.empty:
        first = frame.left_out[0]
        raise UserError(
            f"None of the {len(frame.left_out)} run(s) below {', '.join(map(str, folders))} has a result. "
            f"The first: {first.folder}: {first.reason}."
        )
    makers = (tasks.base_to_new, tasks.transfer, tasks.sessions, tasks.few_shot)
    sections = [section for make in makers for section in make(frame, options) if section.tables or section.notes]
    if options.baseline and not any(section.baseline for section in sections):
        labels = sort_methods(dict(zip(frame.runs["method"], frame.runs["trainer"], strict=True)))
        near = nearest(options.baseline, labels)
        raise UserError(f"--baseline {options.baseline}: no method has that name.{near} Methods: {', '.join(labels)}.")
    seen = {section.key for section in sections}
    for number, table in enumerate(table for section in sections for table in section.tables):
        if table.key in seen:  # datasets such as `my birds` and `my_birds` have equal keys
            table.key += f"--{number}"
        seen.add(table.key)
    return Report([str(folder) for folder in folders], frame, sections, [*frame.notes, *check(frame)], command)


# ---------------------------------------------------------------------------------------- command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("directories", nargs="+", metavar="DIR", help="output folder of a run, or any folder above runs")
    add("--baseline", default="", metavar="METHOD", help="show differences from this method, with a paired test")
    add("--paper", action="store_true", help="show published numbers next to yours")
    add("--common", action="store_true", help="average only over datasets that all methods have")
    add("--confidence", action="store_true", help="add tables of confidence metrics for each dataset")
    about = "name the rows whose Trainer/config matches, e.g. 'CoOp/*=CoOp'; rows with equal names are merged"
    add("--name", action="append", default=[], metavar="PATTERN=NAME", help=about)
    for kind, name in _KINDS.items():
        add(f"--{kind}", metavar="FILE", help=f"write the report as {name} to FILE")
    add("--plots", metavar="FOLDER", help="write the figures to FOLDER as SVG, PNG and PDF, with their data")
    add("--quiet", action="store_true", help="print no tables")


def read_names(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Parse the PATTERN=NAME arguments of --name into pairs."""
    pairs = [text.partition("=") for text in texts]
    for text, pair in zip(texts, pairs, strict=True):
        if not all(pair):
            raise UserError(f"--name {shorten(text)}: write PATTERN=NAME, such as 'CoOp/vit_b16_ep50*=CoOp'.")
    return tuple((pattern, name) for pattern, _, name in pairs)


def write_files(report: Report, files: Mapping[str, str | os.PathLike[str]]) -> None:
    """Write files by format: markdown, latex, csv, json, html, and the folder of plots."""
    for kind, path in files.items():
        if kind in _TEXTS:
            write_text(path, _TEXTS[kind](report))
        elif kind == "json":
            write_json(path, render.json(report))
    if files.keys() & {"html", "plots"}:
        from . import plots  # matplotlib takes a second to import
        from .figures.style import Style, save

        drawings = plots.draw(report)
        for drawing in itertools.chain(*drawings.values()) if "plots" in files else ():
            save(drawing, Path(files["plots"]), Style())
        if "html" in files:
            write_text(files["html"], render.html(report, plots.to_svg(drawings)))


def print_problems(report: Report) -> None:
    """List the runs that were left out on the error stream."""
    sys.stdout.flush()
    for text in render.left_out(report):
        print(printable(text), file=sys.stderr)


def run(args: argparse.Namespace) -> int:
    """Make the report that the arguments describe."""
    options = Options(args.baseline, args.paper, args.common, read_names(args.name), args.confidence)
    report = build(args.directories, options, args.command)
    if not args.quiet:
        print(render.markdown(report), end="")
    files = {kind: getattr(args, kind) for kind in (*_KINDS, "plots") if getattr(args, kind)}
    write_files(report, files)
    for path in files.values():
        print(f"Written: {printable(path)}")
    print_problems(report)
    return 1 if report.frame.left_out else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = Parser(prog="cocoamix report", description=__doc__)
    add_arguments(parser)
    args = parser.parse_args(argv)
    args.command = shlex.join(["cocoamix", "report", *(sys.argv[1:] if argv is None else argv)])
    return run_command(partial(run, args), "Stopped.")
