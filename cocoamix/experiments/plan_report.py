"""The tables, figures and page of a plan: printed at its end, and written to files next to its runs."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cocoamix.errors import UserError
from cocoamix.errors import report as report_error

if TYPE_CHECKING:
    from .plan import Plan
    from .runner import Outcome

_FIGURES = (".svg", ".png", ".pdf", ".csv", ".txt")


def files_of(plan: Plan) -> dict[str, Path]:
    """Return the files of a plan's report by format. They have its name, because plans may share an output folder."""
    tables = dict.fromkeys(("markdown", "json", "html"), plan.output / "tables" / plan.name)
    files = {kind: path.with_name(f"{plan.name}.{kind.replace('markdown', 'md')}") for kind, path in tables.items()}
    return {**files, "plots": plan.output / "figures" / plan.name}


def clear(plan: Plan) -> None:
    """Delete the tables, figures and page of an earlier start, which may not match the new results."""
    *tables, figures = files_of(plan).values()
    for path in (*tables, *(file for file in figures.glob("*") if file.suffix in _FIGURES)):
        path.unlink(missing_ok=True)


def write(plan: Plan, outcome: Outcome) -> None:
    """Print the averages of the runs that have results, and write their tables, figures and page."""
    from . import render  # pandas takes a second to import
    from .report import Options, build, print_problems, write_files

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
    command = shlex.join(["cocoamix", "report", str(plan.output), *names, "--html", str(files["html"])])
    # The runs are many folders; the reader knows the one above them.
    report = replace(report, folders=[str(plan.output)], command=command)
    print(f"\n{render.markdown(report, short=True)}", flush=True)
    write_files(report, files)
    print_problems(report)
    print(f"All tables: {files['markdown']} (and {files['json'].name}). Figures: {files['plots']}.")
    print(f"A page with all tables and figures: {files['html']}")
