"""`parameters`: H against the number of trained parameters."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

from cocoamix.drawing.chart import Chart

from . import sources
from .drawn import Drawn
from .from_charts import charts_of, stems, to_drawn
from .sources import Choice, Plans

ABOUT = "H against the number of trained parameters, and base against new with bubbles of that size."
TIME = "about two minutes on two cores"
_PLANS = Plans(Choice("methods", datasets=("warm_cool",), seeds=(1,)), Choice("base2new"))
_LACKING = (
    "The runs have no base and new accuracy of two trained methods with a number of parameters, which results.json "
    "holds and logs do not."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose the runs."""
    sources.add_arguments(parser, _PLANS)


def make(args: argparse.Namespace) -> Iterator[Drawn]:
    """Yield a figure for each number of shots."""
    report = sources.build_report(sources.find_source(args, _PLANS))
    halves = {chart.key.removesuffix("-tradeoff"): chart for chart in charts_of(report, "tradeoff", _LACKING)}
    for stem, chart in zip(stems("parameters"), charts_of(report, "bubbles", _LACKING), strict=False):
        plane = with_sizes(halves[chart.key.removesuffix("-parameters")], chart)
        panels = [replace(chart, title="H and parameters"), replace(plane, title="base and new")]
        yield to_drawn(stem, panels, chart.title, describe(chart))


def with_sizes(tradeoff: Chart, counted: Chart) -> Chart:
    """Return a trade-off chart as bubbles, with the methods and their numbers of parameters in `counted`."""
    points = {series.label: series for series in tradeoff.series}
    series = tuple(replace(points[one.label], size=one.size) for one in counted.series if one.label in points)
    return replace(tradeoff, kind="bubbles", series=series, arrows=())


def describe(chart: Chart) -> str:
    """Describe the best method and the smallest one within a point of it."""
    trained = [one for one in chart.series if one.x[0]]
    best = max(trained, key=lambda one: one.y[0])
    smaller = [one for one in trained if one.x[0] < best.x[0] and one.y[0] >= best.y[0] - 1]
    highest = f"{best.label} has the highest H, {best.y[0]:.2f}, with {best.x[0]:,.0f} trained parameters"
    if not smaller:
        return f"{highest}; no smaller method is within a point of it."
    near = min(smaller, key=lambda one: one.x[0])
    return f"{highest}; {near.label} is within a point of it ({near.y[0]:.2f}) with {near.x[0]:,.0f}."
