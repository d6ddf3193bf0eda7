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
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cocoamix.bench.benchmark import Summary, run_plan, tell  # noqa: E402
from cocoamix.bench.plan import Plan, load_plan  # noqa: E402
from cocoamix.files import write_json, write_text  # noqa: E402
from cocoamix.report.cells import plain  # noqa: E402
from cocoamix.report.render_markdown import layout  # noqa: E402
from cocoamix.report.stats import harmonic  # noqa: E402
from cocoamix.report.tables import METRICS, Seeds, summarise  # noqa: E402

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


def table(rows: Rows) -> str:
    """Return base, new and H of each method, mean ± deviation over seeds, as the report computes them."""
    lines = [["method", *(column.title for column in METRICS)]]
    for title, pairs in rows.items():
        seeds: list[Seeds] = [dict(enumerate(column)) for column in zip(*pairs, strict=True)]
        seeds.append({seed: harmonic(*pair) for seed, pair in enumerate(pairs)})
        lines.append([title, *(plain(summarise(one), column) for one, column in zip(seeds, METRICS, strict=True))])
    return layout(lines)


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
