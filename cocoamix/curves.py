"""Curves of class-incremental runs: the accuracy after each session over methods and seeds, as tables and plots.

    python -m cocoamix.curves DIR [DIR ...] [--out STEM]

is the part of `python -m cocoamix.report` on runs in sessions: it prints the table, and writes STEM.md, STEM.csv,
STEM.json and STEM.png. Where the runs are in the paper's setting, its printed lines stand beside ours, named as such;
else it says why not. Exit status: as of the report.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO

from .errors import UserError
from .files import write_atomically, write_json, write_text
from .report import render_markdown, render_text
from .report.build import Options, Report, build_sessions
from .report.differences import Baseline
from .report.read import Inventory, find_runs
from .report.render_data import render_csv, render_json
from .report.tables import Chart

NO_PLOT = (
    "No plot was drawn: matplotlib is not installed. `pip install matplotlib` and run `python -m cocoamix.curves`."
)


def read(folders: Sequence[Path]) -> Report:
    """Return the report on the runs in sessions below the folders."""
    return _report(folders, find_runs(folders))


def _report(folders: Sequence[Path], inventory: Inventory) -> Report:
    runs = [run for run in inventory.runs if run.task == "fscil"]
    sections = build_sessions(runs, Options(paper=True), inventory, Baseline(""))
    if not sections:
        first = next((f" {one.folder}: {one.reason}." for one in inventory.problems), "")
        raise UserError(f"There is no run in sessions below {', '.join(map(str, folders))}.{first}")
    return Report([str(folder) for folder in folders], sections, runs, inventory.problems, inventory.notes)


def draw_run(folder: Path, path: Path) -> bool:
    """Draw the curve of the run in a folder, once its results are there; a plot is no reason to stop."""
    inventory = find_runs([folder])
    own = Inventory([run for run in inventory.runs if Path(run.folder) == folder])
    (section,) = _report([folder], own).sections
    print(*section.notes, sep="\n")
    return try_to_draw(section.charts, path)


def try_to_draw(charts: Sequence[Chart], path: Path) -> bool:
    """Draw charts, the first into `path` and others beside it, or say why not."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        print(NO_PLOT)
        return False
    for number, chart in enumerate(charts, 1):
        target = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        write_atomically(target, partial(_save, chart))
    return True


def _save(chart: Chart, file: IO[bytes]) -> None:
    from .report import plots

    plots.draw(chart).savefig(file, format="png", dpi=150)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m cocoamix.curves", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folders with runs, at any depth")
    parser.add_argument("--out", type=Path, default=None, metavar="STEM", help="files to write, without extension")
    args = parser.parse_args(arguments)
    try:
        report = read(args.folders)
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(render_text.render(report, width=160), end="")
    if args.out is not None:
        # Not with_suffix, which would take ".v1" of a name for one.
        write_text(f"{args.out}.md", render_markdown.render(report))
        write_text(f"{args.out}.csv", render_csv(report))
        write_json(f"{args.out}.json", render_json(report))
        try_to_draw([chart for section in report.sections for chart in section.charts], Path(f"{args.out}.png"))
    if report.problems:
        print(render_text.problems(report), file=sys.stderr)
    return 0 if report.complete else 1


if __name__ == "__main__":
    sys.exit(main())
