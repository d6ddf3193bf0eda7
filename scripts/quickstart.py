"""The main job on the drawn datasets: train on base classes, evaluate on base and new, five datasets, three seeds.

    bash scripts/quickstart.sh            # makes the environment, then runs this
    bash scripts/quickstart.sh --fresh    # runs everything again

It is the plan `quick` of `python -m cocoamix.bench`: finished runs are not repeated unless the code or the settings
have changed. Runs, tables and figures are written below output/quickstart, the runs in CoOp's layout.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cocoamix.bench.benchmark import Summary, report_names, run_plan, tell  # noqa: E402
from cocoamix.bench.plan import Plan, load_plan  # noqa: E402
from cocoamix.bench.runs import expand  # noqa: E402
from cocoamix.errors import run_command  # noqa: E402
from cocoamix.io.files import write_json, write_text  # noqa: E402
from cocoamix.report.build import Options, Report, build  # noqa: E402
from cocoamix.report.model.tables import METRICS, Line, Table  # noqa: E402
from cocoamix.report.render.cells import MISSING, plain  # noqa: E402
from cocoamix.report.render.data import render_json  # noqa: E402
from cocoamix.report.render.markdown import layout  # noqa: E402


def make_report(plan: Plan, summary: Summary) -> Report:
    """Return the report on the runs of the plan. Rows are named as the plan names its methods."""
    return build([run.folder for run in summary.runs], Options(names=report_names(plan)))


def average_table(table: Table) -> str:
    """Return base, new and H of each method, averaged over the datasets: mean ± deviation over seeds."""
    lines = [[table.first, *(column.title for column in METRICS)]]
    lines += [[line.label, *map(plain, line.values[: len(METRICS)], METRICS)] for line in table.lines]
    return layout(lines)


def dataset_table(tables: Sequence[Table]) -> str:
    """Return base / new of each method on each dataset, means over seeds."""
    found = [{line.label: _pair(line) for line in table.lines} for table in tables]
    labels = dict.fromkeys(label for by_label in found for label in by_label)
    lines = [["base / new", *(table.title for table in tables)]]
    lines += [[label, *(by_label.get(label, MISSING) for by_label in found)] for label in labels]
    return layout(lines)


def _pair(line: Line) -> str:
    return " / ".join(MISSING if value.mean is None else f"{value.mean:.1f}" for value in line.values[:2])


def show(plan: Plan, report: Report) -> None:
    """Print the tables, and write them and the figures below the plan's output folder."""
    (section,) = report.sections
    average, *others = [table for table in section.tables if "-confidence" not in table.key]
    seeds = f"{plan.shots[0]} shots; mean ± deviation over {len(plan.seeds)} seeds"
    title = f"Accuracy (%) with the tiny CLIP, average over {len(others)} datasets, {seeds}"
    text = f"{title}\n\n{average_table(average)}\n\nEach dataset:\n\n{dataset_table(others)}\n"
    print(f"\n{text}")
    table, data, figures = written(plan)
    write_text(table, text)
    write_json(data, render_json(report))
    from cocoamix.report.render import plots  # matplotlib takes a second to import

    plots.write(report, figures)


def written(plan: Plan) -> tuple[Path, Path, Path]:
    """Return the files of the tables and the folder of the figures."""
    return plan.output / "table.md", plan.output / "table.json", plan.output / "figures"


def clear(plan: Plan, fresh: bool) -> None:
    """Delete the tables and figures of an earlier start, which may not be of these runs; if `fresh`, the runs, too."""
    table, data, figures = written(plan)
    table.unlink(missing_ok=True)
    data.unlink(missing_ok=True)
    folders = [figures, *((run.folder for run in expand(plan)) if fresh else ())]
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def run(fresh: bool) -> int:
    """Run the plan and show its results."""
    plan = load_plan("quick")
    clear(plan, fresh)
    start = time.monotonic()
    names = ", ".join(dataset.name for dataset in plan.datasets)
    print(f"Training on base classes, evaluating on base and new: {names}", flush=True)
    summary = run_plan(plan)
    if summary.failures:
        tell(plan, summary, time.monotonic() - start)
        return 1
    show(plan, make_report(plan, summary))
    print(f"{time.monotonic() - start:.0f} s. Runs, tables and figures are in {plan.output}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", action="store_true", help="delete the results of these runs and run them again")
    args = parser.parse_args()
    os.chdir(ROOT)  # the plan's folders are seen from here
    return run_command(lambda: run(args.fresh), "\nStopped. Finished runs are kept; the same command resumes.")


if __name__ == "__main__":
    sys.exit(main())
