"""`sessions`: accuracy after each session of class-incremental learning, on all, base and novel classes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

from cocoamix.drawing.chart import Chart
from cocoamix.errors import UserError

from . import sources
from .drawn import Drawn
from .from_charts import charts_of, stems, to_drawn
from .sources import Choice, Plans

ABOUT = "Accuracy after each session of class-incremental learning: on all classes so far, on base, on novel classes."
TIME = "about two minutes on two cores"
_PLANS = Plans(Choice("quick_fscil", datasets=("warm_cool",), seeds=(1,)), Choice("fscil"))
_LACKING = (
    "The runs have no sessions. Give runs of class-incremental learning, such as those of `cocoamix bench run fscil`."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose the runs."""
    sources.add_arguments(parser, _PLANS)
    parser.add_argument("--paper", action="store_true", help="also show the numbers printed in the paper")


def make(args: argparse.Namespace) -> Iterator[Drawn]:
    """Yield a figure of the average over datasets, or of each dataset if there is no average."""
    report = sources.build_report(sources.find_source(args, _PLANS), args.paper)
    charts = {chart.key: chart for chart in charts_of(report, "curves", _LACKING)}
    names = stems("sessions")
    wanted = [key.removesuffix("-base") for key in charts if key.startswith("fscil-") and key.endswith("-base")]
    if not wanted:
        raise UserError(_LACKING)
    for key in wanted:
        whole = charts[f"{key}-curves"]
        parts = [charts[f"{key}-{part}"] for part in ("base", "novel") if f"{key}-{part}" in charts]
        panels = [
            replace(whole, title="all classes so far"),
            *(replace(part, title=f"{part.key.rpartition('-')[2]} classes") for part in parts),
        ]
        yield to_drawn(next(names), panels, whole.title, describe(whole))


def describe(chart: Chart) -> str:
    """Describe the accuracy of each method after the first and the last session."""
    ends = "; ".join(
        f"{one.label} from {one.y[0]:.1f} to {one.y[-1]:.1f} ({one.y[-1] - one.y[0]:+.1f})" for one in chart.series
    )
    last = f"{max(one.x[-1] for one in chart.series):g}"
    return f"{chart.title}: accuracy in percent on all classes so far, from session 0 to session {last}: {ends}."
