"""The main job on the embedded default: train on base classes, evaluate on base and new, three seeds, one table.

    bash scripts/quickstart.sh            # makes the environment, then runs this
    bash scripts/quickstart.sh --fresh    # runs everything again

It is the plan `quick` of `python -m cocoamix.bench`: runs that are finished are not repeated, those of other code or
other settings are. Everything is written below output/quickstart, in CoOp's layout.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cocoamix.bench.benchmark import Summary, run_plan, tell  # noqa: E402
from cocoamix.bench.plan import Plan, load_plan  # noqa: E402
from cocoamix.files import write_json, write_text  # noqa: E402

Rows = dict[str, list[tuple[float, float]]]  # by method, for each seed: accuracy on base and on new


def collect(plan: Plan, summary: Summary) -> Rows:
    """Return the accuracies of all runs."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for run in summary.runs:
        found.setdefault((run.method, run.seed), {})[run.subset] = summary.accuracy(run)
    return {
        method.name: [(pair["base"], pair["new"]) for (name, _), pair in found.items() if name == method.name]
        for method in plan.methods
    }


def harmonic(base: float, new: float) -> float:
    """Return the harmonic mean."""
    return 2 * base * new / (base + new) if base + new else 0.0


def cell(values: list[float]) -> str:
    mean = statistics.fmean(values)
    return f"{mean:.2f}" if len(values) == 1 else f"{mean:.2f} ± {statistics.pstdev(values):.2f}"


def table(rows: Rows) -> str:
    """Return a Markdown table that also reads well on a terminal."""
    cells = [["method", "base", "new", "H"]]
    for title, pairs in rows.items():
        columns = [list(column) for column in zip(*pairs, strict=True)] + [[harmonic(*pair) for pair in pairs]]
        cells.append([title, *(cell(column) for column in columns)])
    widths = [max(len(row[i]) for row in cells) for i in range(4)]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", action="store_true", help="delete earlier results and run everything again")
    args = parser.parse_args()
    os.chdir(ROOT)  # the plan's folders are seen from here
    plan = load_plan("quick")
    if args.fresh:
        shutil.rmtree(plan.output, ignore_errors=True)
    start = time.monotonic()
    (dataset,), (shots,) = plan.datasets, plan.shots
    seeds = ", ".join(map(str, plan.seeds))
    print(f"{dataset.name}, {shots} shots, seeds {seeds}: training on base, evaluating on base and new", flush=True)
    try:
        summary = run_plan(plan)
    except KeyboardInterrupt:
        print("\nStopped. What is done is kept; the same command goes on.", file=sys.stderr)
        return 130
    if summary.failures:
        tell(plan, summary, time.monotonic() - start)
        return 1
    rows = collect(plan, summary)
    text = table(rows)
    told = f"{shots} shots; mean ± deviation over {len(plan.seeds)} seeds"
    title = f"Accuracy (%) on {dataset.name} with the tiny CLIP, {told}"
    print(f"\n{title}\n\n{text}\n")
    print(f"{time.monotonic() - start:.0f} s. Runs, logs and this table are in {plan.output}")
    write_text(plan.output / "table.md", f"{title}\n\n{text}\n")
    write_json(plan.output / "table.json", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
