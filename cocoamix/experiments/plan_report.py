"""The tables, figures and page of a plan: printed at its end, and written to files next to its runs."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cocoamix.errors import UserError
from cocoamix.errors import report as report_error
from cocoamix.io.files import write_text

if TYPE_CHECKING:
    from .plan import Plan
    from .runner import Outcome

_FIGURES = (".svg", ".png", ".pdf", ".csv", ".txt")


class Files(NamedTuple):
    """The files of a plan's report. They are named after the plan, because plans may share an output folder."""

    table: Path
    data: Path
    page: Path
    figures: Path


def files_of(plan: Plan) -> Files:
    """Return where the report of a plan is written."""
    table, data, whole = (plan.output / "tables" / f"{plan.name}.{kind}" for kind in ("md", "json", "html"))
    return Files(table, data, whole, plan.output / "figures" / plan.name)


def clear(plan: Plan) -> None:
    """Delete the tables, figures and page of an earlier start, which may not match the new results."""
    *tables, figures = files_of(plan)
    for path in (*tables, *(file for file in figures.glob("*") if file.suffix in _FIGURES)):
        path.unlink(missing_ok=True)


def write(plan: Plan, outcome: Outcome) -> None:
    """Print and write the tables and figures of the runs that have results, and a page with all of them."""
    from .report import Options, build, print_problems, summary, write_files  # pandas takes a second to import

    clear(plan)
    if not outcome.runs:
        return
    try:
        # The folder of a missing run may hold results of other settings, or of a model that was deleted.
        report = build([run.folder for run in outcome.runs], Options(names=tuple(outcome.names)))
    except UserError as error:  # the runs succeeded even if the report fails
        report_error(error)
        return
    files = files_of(plan)
    names = [word for pattern, name in outcome.names for word in ("--name", f"{pattern}={name}")]
    command = shlex.join(["cocoamix", "report", str(plan.output), *names, "--html", str(files.page)])
    # The runs are many folders; the reader knows the one above them.
    report = replace(report, folders=[str(plan.output)], command=command)
    shots = f"{plan.shots[0]} shots; " if plan.shots else ""  # sessions have their own
    text = summary(report, f"{shots}mean ± deviation over seeds")
    print(f"\n{text}", flush=True)
    write_text(files.table, text)
    write_files(report, {"json": files.data, "html": files.page, "plots": files.figures})
    print_problems(report)
    print(f"\nThe tables are in {files.table} and {files.data.name}, the figures in {files.figures}.")
    print(f"A page with all tables and figures: {files.page}")
