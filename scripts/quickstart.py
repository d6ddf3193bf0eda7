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
from cocoamix.files import write_json, write_text  # noqa: E402
from cocoamix.report.build import Options, Report, build  # noqa: E402
from cocoamix.report.cells import plain  # noqa: E402
from cocoamix.report.render_data import render_json  # noqa: E402
from cocoamix.report.render_markdown import layout  # noqa: E402
from cocoamix.report.tables import METRICS, Table  # noqa: E402


def make_report(plan: Plan, summary: Summary) -> Report:
    """Return the report on the runs of the plan. Rows are named as the plan names its methods."""
    return build([run.folder for run in summary.runs], Options(names=report_names(plan)))


def average_table(table: Table) -> str:
    """Return base, new and H of each method, averaged over the datasets: mean ± deviation over seeds."""
    lines = [[table.first, *(column.title for column in METRICS)]]
    for line in table.lines:
        lines.append([line.label, *(plain(*pair) for pair in zip(line.values, METRICS, strict=False))])
    return layout(lines)


def dataset_table(tables: Sequence[Table]) -> str:
    """Return base / new of each method on each dataset, means over seeds."""
    lines = [["base / new", *(table.title for table in tables)]]
    for number, first in enumerate(tables[0].lines):
        found = [table.lines[number].values[:2] for table in tables]
        lines.append([first.label, *(f"{base.mean:.1f} / {new.mean:.1f}" for base, new in found)])
    return layout(lines)


def show(plan: Plan, report: Report) -> None:
    """Print the tables, and write them and the figures below the plan's output folder."""
    (section,) = report.sections
    average, *others = [table for table in section.tables if not table.key.endswith("-confidence")]
    seeds = f"{plan.shots[0]} shots; mean ± deviation over {len(plan.seeds)} seeds"
    title = f"Accuracy (%) with the tiny CLIP, average over {len(others)} datasets, {seeds}"
    text = f"{title}\n\n{average_table(average)}\n\nEach dataset:\n\n{dataset_table(others)}\n"
    print(f"\n{text}")
    write_text(plan.output / "table.md", text)
    write_json(plan.output / "table.json", render_json(report))
    from cocoamix.report import plots  # matplotlib takes a second to import

    plots.write(report, plan.output / "figures")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", action="store_true", help="delete earlier results and run everything again")
    args = parser.parse_args()
    os.chdir(ROOT)  # the plan's folders are seen from here
    plan = load_plan("quick")
    if args.fresh:
        shutil.rmtree(plan.output, ignore_errors=True)
    start = time.monotonic()
    names = ", ".join(dataset.name for dataset in plan.datasets)
    print(f"Training on base classes, evaluating on base and new: {names}", flush=True)
    try:
        summary = run_plan(plan)
    except KeyboardInterrupt:
        print("\nStopped. Finished runs are kept; the same command resumes.", file=sys.stderr)
        return 130
    if summary.failures:
        tell(plan, summary, time.monotonic() - start)
        return 1
    show(plan, make_report(plan, summary))
    print(f"{time.monotonic() - start:.0f} s. Runs, tables and figures are in {plan.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
