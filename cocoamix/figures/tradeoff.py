"""`tradeoff`: accuracy on new classes against accuracy on base classes, a point for each method."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from cocoamix.drawing.chart import Chart

from . import sources
from .drawn import Drawn
from .from_charts import charts_of, stems, to_drawn
from .sources import Choice, Plans

ABOUT = "Accuracy on new classes against accuracy on base classes, with lines of equal H."
TIME = "about three minutes on two cores"
_PLANS = Plans(Choice("quick"), Choice("base2new"))
_LACKING = (
    "The runs have no base and new accuracy of two methods, so there is nothing to compare. Evaluate them with "
    "DATASET.SUBSAMPLE_CLASSES base and new. Runs of several random halves are for `cocoamix figures assumption`."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose the runs."""
    sources.add_arguments(parser, _PLANS)
    parser.add_argument("--paper", action="store_true", help="also show the numbers printed in the paper")


def make(args: argparse.Namespace) -> Iterator[Drawn]:
    """Yield a figure for each number of shots."""
    report = sources.build_report(sources.find_source(args, _PLANS), args.paper)
    for stem, chart in zip(stems("tradeoff"), charts_of(report, "tradeoff", _LACKING), strict=False):
        yield to_drawn(stem, [chart], chart.title, describe(chart))


def describe(chart: Chart) -> str:
    """Describe what each method gains or loses on base and on new classes, from the start of its arrow."""
    parts = []
    for start in dict.fromkeys(start for start, _ in chart.arrows):
        first = chart.series[start]
        moves = [
            f"{one.label} {one.x[0] - first.x[0]:+.1f} and {one.y[0] - first.y[0]:+.1f}"
            for one in (chart.series[end] for begin, end in chart.arrows if begin == start)
        ]
        parts.append(f"Against {first.label} ({first.x[0]:.1f}, {first.y[0]:.1f}): {'; '.join(moves)}.")
    return " ".join(["Accuracy on base and on new classes, in points.", *(parts or [f"{chart.alt}."])])
