"""The tables, figures and page of a plan, printed at the end and written to files next to the runs."""

from __future__ import annotations

import glob
import importlib.util
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from cocoamix.errors import UserError, printable
from cocoamix.errors import report as report_error
from cocoamix.io.files import write_json, write_text
from cocoamix.report.build import Options, Report, build
from cocoamix.report.command import print_problems, print_tables
from cocoamix.report.render import brief, markdown
from cocoamix.report.render.data import render_json

from .benchmark import Summary
from .ledger import read_results
from .plan import Plan

_FIGURES = (".svg", ".png", ".pdf")


def places(plan: Plan) -> tuple[Path, Path, Path]:
    """Return the files of the tables, as Markdown and JSON, and the folder of the figures."""
    # Named after the plan, because plans may share an output folder.
    folder = plan.output / "tables"
    return folder / f"{plan.name}.md", folder / f"{plan.name}.json", plan.output / "figures" / plan.name


def page_of(plan: Plan) -> Path:
    """Return the file of the page with all tables and figures."""
    return plan.output / "tables" / f"{plan.name}.html"


def clear(plan: Plan) -> None:
    """Delete the tables, figures and page of an earlier start, which may not match the new results."""
    table, data, figures = places(plan)
    for path in (table, data, page_of(plan), *(one for one in figures.glob("*") if one.suffix in _FIGURES)):
        path.unlink(missing_ok=True)


def show(plan: Plan, summary: Summary) -> None:
    """Print and write the tables and figures of the finished runs of a plan, and write a page with all of them."""
    # The folder of a missing run may hold results of other settings, or of a model that was deleted.
    missing = {outcome.run.folder for outcome in summary.failures}
    folders = [run.folder for run in summary.runs if run.folder not in missing and read_results(run.folder) is not None]
    if not folders:
        return
    try:
        report = build(folders, Options(names=report_names(plan)))
    except UserError as error:  # the runs succeeded even if the report fails
        report_error(error)
        return
    table, data, figures = places(plan)
    text = summarise(plan, report)
    print(f"\n{text}" if text else "", flush=True)
    if not text:
        print_tables(report)
    write_text(table, text or markdown.render(report))
    write_json(data, render_json(report))
    print_problems(report)
    print(f"\nThe tables are in {table} and {data.name}", end="", flush=True)
    drawn = draw(report, figures)
    print(f", the figures in {figures}." if drawn else ".")
    if drawn is None:
        print("There are no figures and no page: matplotlib is not installed (pip install matplotlib)", file=sys.stderr)
        return
    from cocoamix.report.render import html

    page = page_of(plan)
    # The runs are many folders; the reader knows the one above them.
    titled = replace(report, folders=[printable(str(plan.output))], command=printable(report_command(plan, page)))
    write_text(page, html.render(titled, drawn))
    print(f"A page with all tables and figures: {page}")


def summarise(plan: Plan, report: Report) -> str:
    """Return the short base-to-new table, averages first; empty without an average over datasets."""
    if plan.task != "base2new" or len(report.sections) != 1:
        return ""
    (section,) = report.sections
    backbones = {str(run.protocol.get("backbone") or "") for run in report.runs}
    backbone = backbones.pop() if len(backbones) == 1 else ""
    model = "the tiny CLIP" if backbone == "tiny" else backbone
    return brief.render(
        section,
        what=f"Accuracy (%) with {model}" if model else "Accuracy (%)",
        setting=f"{plan.shots[0]} shots; mean ± deviation over {len(plan.seeds)} seeds",
    )


def draw(report: Report, folder: Path) -> dict[str, str] | None:
    """Draw the figures and return their light SVG files by key; return None without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        return None
    from cocoamix.report.render import plots  # matplotlib takes a second to import

    return plots.write(report, folder)


def report_command(plan: Plan, page: Path) -> str:
    """Return the command line that makes the page of a plan."""
    names = [word for pattern, name in report_names(plan) for word in ("--name", f"{pattern}={name}")]
    return shlex.join(["cocoamix", "report", str(plan.output), *names, "--html", str(page)])


def report_names(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return pairs of a pattern and a name, by which the report shows the plan's names of methods."""
    # On the report's command line, an equals sign would end the pattern.
    return tuple(
        (glob.escape(f"{method.trainer}/{method.label}").replace("=", "?"), method.name) for method in plan.methods
    )
