"""Compare ways to weight the two prompts of CoCoA-Mix on the synthetic datasets, and check the default of CENTRE.

    python benchmarks/weights.py [--output DIR]

The first table has one row per way to set pi: accuracy on base, new and H in separate label spaces,
accuracy in the label space of all classes with its two halves and their H, the learned pi, and the seconds of a run.
The second has pi^in and the accuracy on base of each dataset, the third the centred models in class-incremental
sessions.

CENTRE is on by default if, on average over datasets and seeds, it raises H among all classes for one stage and for two,
and does not lower the mean accuracy over sessions. The rule was fixed before the runs.
The runs are those of the plans quick_weights and quick_fscil; finished ones are not repeated.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pandas as pd

from cocoamix.errors import run_command
from cocoamix.experiments.plan import load_plan
from cocoamix.experiments.runner import Outcome, run_plan
from cocoamix.experiments.stats import harmonic
from cocoamix.run.results import RESULTS, Results
from cocoamix.run.state import read_stamp

JUDGED = ("one stage", "two stages")
SHOWN = ("one stage", "two stages", "held-out")  # in the table by dataset
SESSIONS = "CoCoA-Mix"
KEYS = ["method", "dataset", "subset", "seed"]
ALL = {"accuracy": "all", "base_accuracy": "base among all", "new_accuracy": "new among all", "harmonic_mean": "H"}


def values_of(results: Results, seconds: float | None = None) -> dict[str, Any]:
    """Return the values of a run: its metrics, weights, accuracies over sessions, and the seconds of its training."""
    weights, sessions = results.weights, [session.accuracy for session in results.sessions or ()]
    pi = {"pi^in": weights.pi_in, "pi^out": weights.pi_out} if weights is not None else {}
    over = {"mean accuracy": fmean(sessions), "after the last": sessions[-1]} if sessions else {}
    return {**results.metrics, **pi, **over, "seconds": seconds}


def collect(outcome: Outcome) -> pd.DataFrame:
    """Return a row of values for each run."""
    rows = []
    for run in outcome.runs:
        seconds = read_stamp(run.folder).get("seconds") if run.trains else None
        known = dict(zip(KEYS, (run.method.name, run.dataset.stem, run.subset, run.seed), strict=True))
        rows.append(known | values_of(Results.read(run.folder / RESULTS), seconds))
    return frame(rows)


def frame(rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Return rows of values, by method, dataset, subset and seed."""
    columns = [*ALL, "pi^in", "pi^out", "mean accuracy", "after the last", "seconds"]
    return pd.DataFrame(rows).set_index(KEYS).reindex(columns=columns).astype(float).sort_index()


def weights_table(runs: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    """Return the table of base-to-new: means over datasets and seeds."""
    base, new, together = (
        runs.xs(subset, level="subset") if subset in runs.index.unique("subset") else runs.iloc[:0].droplevel("subset")
        for subset in ("base", "new", "all")
    )
    h = harmonic(base.accuracy, new.accuracy)  # of each dataset and seed
    columns = {"base": base.accuracy, "new": new.accuracy, "H": h}
    columns |= {words if words != "H" else "H among all": together[key] for key, words in ALL.items()}
    columns |= {key: base[key] for key in ("pi^in", "pi^out", "seconds")}
    return pd.DataFrame({name: column.groupby("method").mean() for name, column in columns.items()}).reindex(methods)


def datasets_table(runs: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    """Return pi^in and the accuracy on base of each dataset, means over seeds."""
    means = runs.xs("base", level="subset").groupby(["method", "dataset"])[["pi^in", "accuracy"]].mean()
    shown = means.apply(lambda row: f"{row['pi^in']:.2f}, {row['accuracy']:.1f}", axis=1)
    return shown.unstack("dataset").reindex(methods)


def markdown(table: pd.DataFrame, title: str, decimals: int = 2) -> str:
    """Return a table as Markdown."""
    lines = [f"| {' | '.join([title, *table.columns])} |", "|---" * (len(table.columns) + 1) + "|"]
    for name, row in table.iterrows():
        cells = [cell if isinstance(cell, str) else "" if pd.isna(cell) else f"{cell:.{decimals}f}" for cell in row]
        lines.append(f"| {' | '.join([str(name), *cells])} |")
    return "\n".join(lines)


def differences(runs: pd.DataFrame, method: str, key: str) -> pd.Series:
    """Return by how much CENTRE changes a value among all classes, for each dataset and seed."""
    values = runs.xs("all", level="subset")[key]
    return values.loc[f"{method}, centred"] - values.loc[method]


def judge(runs: pd.DataFrame, sessions: pd.DataFrame) -> bool:
    """Print the values that the rule uses, and return whether CENTRE should be on by default."""
    changes = {f"H among all classes, {method}": differences(runs, method, "harmonic_mean") for method in JUDGED}
    changes["mean accuracy over sessions"] = differences(sessions, SESSIONS, "mean accuracy")
    for words, values in changes.items():
        spread = f" ± {values.std():.2f} over {len(values)} pairs of runs" if len(values) > 1 else ""
        print(f"CENTRE changes {words} by {values.mean():+.2f}{spread}")
    *gains, over_sessions = [values.mean() for values in changes.values()]
    return all(gain > 0 for gain in gains) and bool(over_sessions >= 0)


def compare(output: str) -> int:
    """Execute the unfinished runs, print the tables and the decision, and return the exit status."""
    plans = [load_plan("quick_weights"), load_plan("quick_fscil", methods=[SESSIONS, f"{SESSIONS}, centred"])]
    outcomes = [run_plan(replace(plan, output=Path(output)) if output else plan) for plan in plans]
    runs, sessions = map(collect, outcomes)
    print("\n" + markdown(weights_table(runs, [method.name for method in plans[0].methods]), "weights"))
    print("\n" + markdown(datasets_table(runs, SHOWN), "pi^in, base"))
    means = sessions.groupby("method", sort=False)[["mean accuracy", "after the last"]].mean()
    print("\n" + markdown(means, "sessions") + "\n")
    print(f"By the rule, CENTRE is {'on' if judge(runs, sessions) else 'off'} by default.")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default="", help="output folder of the runs (output/quickstart)")
    args = parser.parse_args()
    output = os.path.abspath(args.output) if args.output else ""
    os.chdir(Path(__file__).resolve().parent.parent)  # the plans' folders are relative to it
    return run_command(lambda: compare(output), "Stopped. Finished runs are kept; the same command resumes.")


if __name__ == "__main__":
    sys.exit(main())
