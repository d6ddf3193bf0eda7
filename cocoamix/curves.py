"""Curves of class-incremental runs: tables over methods and seeds, and plots.

    python -m cocoamix.curves DIR [DIR ...] [--out STEM]

reads every `fscil.json` below the folders, takes the runs of a method together, prints a table of the accuracy after
each session, and writes STEM.md, STEM.csv, STEM.json and STEM.png. Where the runs are of CIFAR-100, the plot shows the
lines that the paper publishes beside ours, named as such.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import UserError
from .files import write_atomically, write_json, write_text

PUBLISHED = Path(__file__).resolve().parent / "assets" / "fscil_published.json"
PUBLISHED_FOR = {"base": 60, "way": 5, "shots": 5}  # of CIFAR-100
NO_PLOT = (
    "No plot was drawn: matplotlib is not installed. `pip install matplotlib` and run `python -m cocoamix.curves`."
)
Run = Mapping[str, Any]


def published_lines(run: Run) -> dict[str, dict[str, Any]]:
    """Return the paper's lines by method where a run's sessions are the paper's, else nothing."""
    told = {key: run["fscil"].get(key) for key in PUBLISHED_FOR}
    if not str(run["dataset"]).endswith("CIFAR100FSCIL") or told != PUBLISHED_FOR:
        return {}
    lines: dict[str, dict[str, Any]] = json.loads(PUBLISHED.read_text(encoding="utf-8"))["lines"]
    return lines


def accuracies(run: Run) -> list[float]:
    """Return a run's accuracy after each session."""
    return [session["accuracy"] for session in run["sessions"]]


def by_method(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Group runs by method, and refuse to put together what cannot be compared."""
    first = runs[0]
    for run in runs:
        for key in ("dataset", "backbone", "fscil"):
            if run[key] != first[key]:
                raise UserError(f"The runs do not compare: {key} is {first[key]} in one and {run[key]} in another.")
        if len(run["sessions"]) != len(first["sessions"]):
            raise UserError(
                f"{run['method']} with seed {run['seed']} has {len(run['sessions'])} sessions and another run has "
                f"{len(first['sessions'])}: finish them all."
            )
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run["method"], []).append(run)
    for method, group in groups.items():
        seeds = [run["seed"] for run in group]
        if len(set(seeds)) < len(seeds):
            raise UserError(f"{method} has several runs of one seed ({sorted(seeds)}). Name fewer folders.")
    return groups


# ---------------------------------------------------------------------- tables


def table(groups: Mapping[str, Sequence[Run]]) -> list[list[str]]:
    """Return a line for each method: the accuracy after each session, mean, PD, the last H and forgetting."""
    count = len(next(iter(groups.values()))[0]["sessions"])
    lines = [["method", *(str(number) for number in range(count)), "mean", "PD", "base", "novel", "H", "forgetting"]]
    for method, runs in groups.items():
        last = [run["sessions"][-1] for run in runs]
        columns: list[list[float | None]] = [list(column) for column in zip(*map(accuracies, runs), strict=True)]
        columns += [[run[key] for run in runs] for key in ("mean", "pd")]
        columns += [[one[key] for one in last] for key in ("base", "novel", "harmonic_mean", "mean_forgetting")]
        lines.append([method, *(_cell(column) for column in columns)])
    return lines


def _cell(values: Sequence[float | None]) -> str:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return ""
    mean = f"{statistics.fmean(numbers):.2f}"
    return mean if len(numbers) == 1 else f"{mean} ± {statistics.pstdev(numbers):.2f}"


def published_table(lines: Mapping[str, Mapping[str, Any]], count: int) -> list[list[str]]:
    """Return the paper's lines in the columns of `table`, as far as it prints them."""
    return [
        [
            f"paper: {method}",
            *(f"{value:.1f}" for value in line.get("sessions", [])),
            *([""] * (count if "sessions" not in line else 0)),
            f"{line['mean']:.1f}",
            f"{line['PD']:.1f}" if "PD" in line else "",
            *([""] * 4),
        ]
        for method, line in lines.items()
    ]


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table that also reads well on a terminal."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text) + "\n"


# ---------------------------------------------------------------------- plots


def try_to_draw(runs: Sequence[Run], path: Path) -> bool:
    """Draw the curves, or say why not: a plot is no reason to stop."""
    try:
        draw(by_method(runs), path)
    except ImportError:
        print(NO_PLOT)
        return False
    return True


def draw(groups: Mapping[str, Sequence[Run]], path: Path) -> None:
    """Plot the accuracy after each session: the mean over the seeds, with its range where there are several."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")  # not pyplot, which would choose a window for us
    axes = figure.subplots()
    first = next(iter(groups.values()))[0]
    for method, runs in groups.items():
        curves = [accuracies(run) for run in runs]
        sessions = range(len(curves[0]))
        columns = list(zip(*curves, strict=True))
        label = method if len(runs) == 1 else f"{method} ({len(runs)} seeds)"
        (line,) = axes.plot(sessions, [statistics.fmean(column) for column in columns], marker="o", ms=4, label=label)
        if len(runs) > 1:
            low, high = [min(column) for column in columns], [max(column) for column in columns]
            axes.fill_between(sessions, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    for method, told in published_lines(first).items():
        if "sessions" in told:
            axes.plot(told["sessions"], linestyle="--", linewidth=1, alpha=0.7, label=f"paper: {method}")
        else:
            axes.axhline(told["mean"], color="gray", linestyle=":", linewidth=1, label=f"paper: {method} (mean)")
    axes.set_xlabel("session")
    axes.set_ylabel("accuracy on all classes seen so far (%)")
    axes.set_title(f"{first['dataset']}, {first['backbone']}")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    canvas = FigureCanvasAgg(figure)
    write_atomically(path, lambda file: canvas.print_png(file))


# ---------------------------------------------------------------------- the command


def find_runs(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the reports of finished runs below the folders."""
    found = []
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"The folder {folder} does not exist.")
        for path in sorted(folder.rglob("fscil.json")):
            try:
                run = json.loads(path.read_text(encoding="utf-8"))
                if not run["finished"]:
                    print(f"{path.parent} is not finished, and left out")
                    continue
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(f"{path} is not the report of a run in sessions ({error}).") from error
            found.append(run)
    if not found:
        raise UserError(f"There is no fscil.json of a finished run below {', '.join(map(str, folders))}.")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m cocoamix.curves", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folders with runs, at any depth")
    parser.add_argument("--out", type=Path, default=None, metavar="STEM", help="files to write, without extension")
    args = parser.parse_args(arguments)
    try:
        groups = by_method(find_runs(args.folders))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    first = next(iter(groups.values()))[0]
    lines = table(groups) + published_table(published_lines(first), len(first["sessions"]))
    title = (
        f"Accuracy (%) after each session on {first['dataset']} with {first['backbone']}, mean ± deviation over seeds"
    )
    print(f"{title}\n\n{markdown(lines)}")
    if args.out is not None:
        write_text(args.out.with_suffix(".md"), f"{title}\n\n{markdown(lines)}")
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows(lines)
        write_text(args.out.with_suffix(".csv"), stream.getvalue())
        write_json(args.out.with_suffix(".json"), {method: list(runs) for method, runs in groups.items()})
        try_to_draw([run for runs in groups.values() for run in runs], args.out.with_suffix(".png"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
