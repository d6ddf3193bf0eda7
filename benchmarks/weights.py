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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cocoamix.errors import run_command
from cocoamix.experiments.plan import load_plan
from cocoamix.experiments.runner import Outcome, run_plan
from cocoamix.run.results import RESULTS, Results
from cocoamix.run.state import read_stamp

JUDGED = ("one stage", "two stages")
SHOWN = ("one stage", "two stages", "held-out")  # in the table by dataset
SESSIONS = "CoCoA-Mix"
Value = float | None


@dataclass(frozen=True)
class FinishedRun:
    """A finished run, with the seconds of its training if the runner recorded them."""

    results: Results
    seconds: Value = None


Runs = dict[tuple[str, str, str, int], FinishedRun]  # by method, dataset, subset, seed


def collect(outcome: Outcome) -> Runs:
    """Return the results of all runs, with the seconds that a run took."""
    found: Runs = {}
    for run in outcome.runs:
        seconds = read_stamp(run.folder).get("seconds") if run.trains else None
        key = run.method.name, run.dataset.stem, run.subset, run.seed
        found[key] = FinishedRun(Results.read(run.folder / RESULTS), seconds)
    return found


def harmonic(base: float, new: float) -> float:
    """Return the harmonic mean."""
    return 2 * base * new / (base + new) if base + new else 0.0


def mean_of(runs: Runs, method: str, subset: str, take: Callable[[FinishedRun], Value]) -> Value:
    """Return the mean of a value over datasets and seeds; None if no run has it."""
    values = [take(one) for (name, _, part, _), one in runs.items() if (name, part) == (method, subset)]
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def mean_h(runs: Runs, method: str) -> float:
    """Return the mean of H over datasets and seeds."""
    pairs = [
        (one.results.metrics["accuracy"], runs[name, dataset, "new", seed].results.metrics["accuracy"])
        for (name, dataset, part, seed), one in runs.items()
        if (name, part) == (method, "base")
    ]
    return fmean(harmonic(*pair) for pair in pairs)


def metric(key: str) -> Callable[[FinishedRun], Value]:
    """Return a function that reads a metric from a run."""
    return lambda run: run.results.metrics.get(key)


def weight(key: str) -> Callable[[FinishedRun], Value]:
    """Return a function that reads a learned weight from a run."""
    return lambda run: None if run.results.weights is None else getattr(run.results.weights, key)


def weights_table(runs: Runs, methods: Sequence[str]) -> list[str]:
    """Return the table of base-to-new as Markdown."""
    heads = "weights | base | new | H | all | base among all | new among all | H among all | pi^in | pi^out | seconds"
    lines = [f"| {heads} |", "|---" * 11 + "|"]
    for method in methods:
        accuracies = [
            mean_of(runs, method, "base", metric("accuracy")),
            mean_of(runs, method, "new", metric("accuracy")),
            mean_h(runs, method),
            *(mean_of(runs, method, "all", metric(key)) for key in AMONG_ALL),
        ]
        shown = [_show(value, 2) for value in accuracies]
        shown += [_show(mean_of(runs, method, "base", weight(key)), 3) for key in ("pi_in", "pi_out")]
        shown.append(_show(mean_of(runs, method, "base", lambda one: one.seconds), 1))
        lines.append(f"| {' | '.join([method, *shown])} |")
    return lines


AMONG_ALL = ("accuracy", "base_accuracy", "new_accuracy", "harmonic_mean")


def session_means(runs: Runs, method: str) -> tuple[float, float]:
    """Return the mean accuracy over sessions and the accuracy after the last one, over datasets and seeds."""
    sessions = [one.results.sessions or () for (name, *_), one in runs.items() if name == method]
    accuracies = [[session.accuracy for session in each] for each in sessions]
    return fmean(fmean(each) for each in accuracies), fmean(each[-1] for each in accuracies)


def _show(value: Value, decimals: int) -> str:
    return "" if value is None else f"{value:.{decimals}f}"


def datasets_table(runs: Runs, methods: Sequence[str]) -> list[str]:
    """Return pi^in and the accuracy on base of each dataset as Markdown, means over seeds."""
    names = list(dict.fromkeys(dataset for _, dataset, _, _ in runs))
    lines = [f"| pi^in, base | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for method in methods:
        cells = []
        for name in names:
            own = {key: run for key, run in runs.items() if key[1] == name}
            pi, base = (mean_of(own, method, "base", take) for take in (weight("pi_in"), metric("accuracy")))
            cells.append(f"{_show(pi, 2)}, {_show(base, 1)}")
        lines.append(f"| {' | '.join([method, *cells])} |")
    return lines


def differences(runs: Runs, method: str, take: Callable[[FinishedRun], float]) -> list[float]:
    """Return by how much CENTRE changes a value among all classes, for each dataset and seed."""
    pairs = [
        (take(run), take(runs[f"{method}, centred", dataset, part, seed]))
        for (name, dataset, part, seed), run in runs.items()
        if (name, part) == (method, "all")
    ]
    return [centred - plain for plain, centred in pairs]


def judge(runs: Runs, sessions: Runs) -> bool:
    """Print the values that the rule uses, and return whether CENTRE should be on by default."""
    found = {
        f"H among all classes, {method}": differences(runs, method, lambda run: run.results.metrics["harmonic_mean"])
        for method in JUDGED
    }
    over_sessions = differences(
        sessions, SESSIONS, lambda run: fmean(one.accuracy for one in run.results.sessions or ())
    )
    found["mean accuracy over sessions"] = over_sessions
    for words, values in found.items():
        spread = f" ± {stdev(values):.2f} over {len(values)} pairs of runs" if len(values) > 1 else ""
        print(f"CENTRE changes {words} by {fmean(values):+.2f}{spread}")
    gains = [fmean(values) for values in found.values()]
    return all(gain > 0 for gain in gains[:-1]) and gains[-1] >= 0


def compare(output: str) -> int:
    """Execute the unfinished runs, print the tables and the decision, and return the exit status."""
    plans = [load_plan("quick_weights"), load_plan("quick_fscil", methods=[SESSIONS, f"{SESSIONS}, centred"])]
    outcomes = [run_plan(replace(plan, output=Path(output)) if output else plan) for plan in plans]
    runs, sessions = map(collect, outcomes)
    print("\n" + "\n".join(weights_table(runs, [method.name for method in plans[0].methods])))
    print("\n" + "\n".join(datasets_table(runs, SHOWN)))
    print("\n| sessions | mean accuracy | after the last |\n|---|---|---|")
    for name in (method.name for method in plans[1].methods):
        print("| {} | {:.2f} | {:.2f} |".format(name, *session_means(sessions, name)))
    print()
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
