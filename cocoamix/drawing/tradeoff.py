"""Draw the trade-off between base and new classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .chart import Chart, Series
from .equal_h import equal_h, levels, window
from .placement import Box, Place, Point, Scene, Segment, place_names
from .style import Figure, Palette, add_legend, make_figure, wrap

_HEIGHT = 4.1  # inches
# In points, 1/72 inch:
_MARK = 3.8  # half of a marker
_GAP = 2.0  # between a line of equal H and its label
_SMALL = 7.5  # font size of these labels
_SHORTEST_ARROW = 16.0
_MOST_NAMES = 16  # next to the points; more names are in a legend


@dataclass(frozen=True)
class _Canvas:
    """A figure that is being drawn, with positions in points (1/72 inch)."""

    figure: Figure
    axes: Any
    palette: Palette

    def at(self, x: float, y: float) -> Point:
        """Return the position of a pair of accuracies in the figure, in points."""
        scale = 72 / self.figure.dpi
        across, up = self.axes.transData.transform((x, y))
        return float(across) * scale, float(up) * scale

    def write(self, text: str, **style: Any) -> Any:
        """Add a text, to be moved to its place later, and return it."""
        return self.axes.annotate(text, (0, 0), xycoords="figure points", ha="center", va="center", **style)

    def size(self, text: Any) -> tuple[float, float]:
        """Return width and height of a text, in points."""
        extent, scale = text.get_window_extent(), 72 / self.figure.dpi
        return float(extent.width) * scale, float(extent.height) * scale


def draw_tradeoff(chart: Chart, palette: Palette) -> Figure:
    """Draw methods as points over lines of equal H, with arrows from zero-shot CLIP and hollow points for the paper."""
    figure, axes = make_figure(_HEIGHT, chart.title)
    canvas = _Canvas(figure, axes, palette)
    _set_axes(axes, chart)
    looks = _looks(chart.series, palette)
    for series, (colour, marker) in zip(chart.series, looks, strict=True):
        _draw_point(axes, series, colour, marker)
    figure.draw_without_rendering()  # fixes the position of the axes, which the rest depends on
    scene = _scene(canvas, chart)
    names = _write_names(canvas, chart.series, scene)
    if names is None:
        _add_legend(canvas, chart.series, looks)
        figure.draw_without_rendering()
        scene = _scene(canvas, chart)
    figure.set_layout_engine("none")  # from here on, nothing may move
    _draw_arrows(canvas, chart, looks)
    _draw_levels(canvas, chart, _with_names(scene, names or []))
    return figure


def _set_axes(axes: Any, chart: Chart) -> None:
    shown = window(chart.series)
    axes.set_xlim(shown.left, shown.right)
    axes.set_ylim(shown.bottom, shown.top)
    axes.grid(visible=False)  # lines of equal H take its place
    axes.spines["left"].set_visible(True)
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(nbins=6, steps=[1, 2, 5, 10])
        low, high = axis.get_view_interval()
        axis.set_ticks([tick for tick in axis.get_majorticklocs() if low <= tick <= min(high, 100)])
        axis.set_major_formatter("{x:g}")
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)


# ---------------------------------------------------------------------------------------- points and arrows


def _looks(series: Sequence[Series], palette: Palette) -> list[tuple[str, str]]:
    """Return colour and marker of each point; the paper's point for a method looks like ours."""
    names = list(dict.fromkeys(_method(one) for one in series))
    return [palette.look(names.index(_method(one))) for one in series]


def _method(series: Series) -> str:
    return series.label.removesuffix(" (paper)") if series.paper else series.label


def _draw_point(axes: Any, series: Series, colour: str, marker: str) -> None:
    strength = 0.75 if series.paper else 1.0
    bars = {"xerr": series.x_spread, "yerr": series.spread, "elinewidth": 1.1, "alpha": 0.8 * strength}
    axes.errorbar(series.x, series.y, fmt="none", ecolor=colour, zorder=3, **bars)
    style = {"markerfacecolor": "none"} if series.paper else {}
    axes.plot(
        series.x, series.y, marker, color=colour, markersize=6.5, alpha=strength, clip_on=False, zorder=4, **style
    )


def _draw_arrows(canvas: _Canvas, chart: Chart, looks: Sequence[tuple[str, str]]) -> None:
    for (_, end), line in zip(chart.arrows, _arrow_lines(canvas, chart), strict=True):
        if math.dist(*line) < _SHORTEST_ARROW:
            continue  # the two points are close enough
        paper = chart.series[end].paper
        style = {"arrowstyle": "->", "shrinkA": 6, "shrinkB": 6.5, "mutation_scale": 8, "color": looks[end][0]}
        style |= {"linewidth": 0.8, "alpha": 0.45, "linestyle": ":"} if paper else {"linewidth": 1.1, "alpha": 0.6}
        places = {"xycoords": "figure points", "textcoords": "figure points"}
        canvas.axes.annotate("", line[1], line[0], arrowprops=style, zorder=2, **places)


def _arrow_lines(canvas: _Canvas, chart: Chart) -> list[Segment]:
    points = [canvas.at(one.x[0], one.y[0]) for one in chart.series]
    return [(points[start], points[end]) for start, end in chart.arrows]


# ---------------------------------------------------------------------------------------- names


def _scene(canvas: _Canvas, chart: Chart) -> Scene:
    """Return what names must not cover (points and deviations) and should not cross (arrows)."""
    shown = window(chart.series)
    frame = Box(*canvas.at(shown.left, shown.bottom), *canvas.at(shown.right, shown.top))
    boxes: list[Box] = []
    for one in chart.series:
        (x, y), (across, up) = (one.x[0], one.y[0]), (one.x_spread[0], one.spread[0])
        boxes.append(Box.around(canvas.at(x, y), 2 * _MARK, 2 * _MARK))
        boxes.append(Box(*canvas.at(x - across, y), *canvas.at(x + across, y)).grown(1.0))
        boxes.append(Box(*canvas.at(x, y - up), *canvas.at(x, y + up)).grown(1.0))
    return Scene(frame.grown(-1.0), tuple(boxes), tuple(_arrow_lines(canvas, chart)))


def _with_names(scene: Scene, names: Sequence[Place]) -> Scene:
    leaders = [place.leader for place in names if place.leader]
    return Scene(scene.frame, (*scene.boxes, *(place.box for place in names)), (*scene.lines, *leaders))


def _write_names(canvas: _Canvas, series: Sequence[Series], scene: Scene) -> list[Place] | None:
    """Write each name next to its point; return None if there is no room for all."""
    if len(series) > _MOST_NAMES:
        return None
    colours = [canvas.palette.muted if one.paper else canvas.palette.ink for one in series]
    texts = [
        canvas.write(wrap(one.label), color=colour, fontsize=8.5 if one.paper else 9, linespacing=1.0, zorder=5)
        for one, colour in zip(series, colours, strict=True)
    ]
    points = [canvas.at(one.x[0], one.y[0]) for one in series]
    places = place_names(points, [canvas.size(text) for text in texts], scene)
    if places is None:
        for text in texts:
            text.remove()
        return None
    for text, place in zip(texts, places, strict=True):
        _move(text, place.box)
        _draw_leader(canvas, place)
    return places


def _move(text: Any, box: Box) -> None:
    text.xy = text.xyann = ((box.left + box.right) / 2, (box.bottom + box.top) / 2)


def _draw_leader(canvas: _Canvas, place: Place) -> None:
    if place.leader:
        point, end = place.leader
        style = {"arrowstyle": "-", "shrinkA": 0, "shrinkB": 4.5, "linewidth": 0.7, "color": canvas.palette.muted}
        places = {"xycoords": "figure points", "textcoords": "figure points"}
        canvas.axes.annotate("", point, end, arrowprops=style, zorder=2, **places)


def _add_legend(canvas: _Canvas, series: Sequence[Series], looks: Sequence[tuple[str, str]]) -> None:
    """Name the points in a legend: each method once, with a hollow mark for the paper's points."""
    own = {one.label for one in series if not one.paper}
    labels = []
    for one, (colour, marker) in zip(series, looks, strict=True):
        if not one.paper or _method(one) not in own:
            labels.append(one.label)
            style = {"markerfacecolor": "none"} if one.paper else {}
            canvas.axes.plot([], [], marker, color=colour, markersize=6.5, label=one.label, **style)
    if any(one.paper and _method(one) in own for one in series):
        labels.append("hollow: paper")
        canvas.axes.plot([], [], "o", color=canvas.palette.muted, markerfacecolor="none", label=labels[-1])
    longest = sorted(len(label) for label in labels)[-2:]
    lines = add_legend(canvas.figure, canvas.axes, len(labels), sum(longest) // len(longest))
    canvas.figure.set_figheight(_HEIGHT + 0.2 * lines)


# ---------------------------------------------------------------------------------------- lines of equal H


def _draw_levels(canvas: _Canvas, chart: Chart, scene: Scene) -> None:
    """Draw the lines of equal H, each interrupted by its label. A line without room for its label is left out."""
    shown = window(chart.series)
    for level in levels(shown):
        line = equal_h(level, shown)
        text = canvas.write(f"H {level:g}", color=canvas.palette.muted, fontsize=_SMALL, zorder=1)
        box = _label_box(canvas, line, canvas.size(text), scene)
        if box is None:
            text.remove()
            continue
        _move(text, box)
        scene = Scene(scene.frame, (*scene.boxes, box), scene.lines)
        gap = box.grown(_GAP)
        x = [math.nan if gap.contains(canvas.at(*one)) else one[0] for one in line]
        canvas.axes.plot(x, [one[1] for one in line], color=canvas.palette.grid, linewidth=0.9, zorder=0.5)


def _label_box(canvas: _Canvas, line: Sequence[Point], size: tuple[float, float], scene: Scene) -> Box | None:
    """Return the first free place for a label along a line, starting at its upper end."""
    boxes = [Box.around(canvas.at(*one), *size) for one in line]
    free = [box for box in boxes if box.inside(scene.frame) and not any(box.overlaps(one) for one in scene.boxes)]
    clear = [box for box in free if not any(box.crosses(one) for one in scene.lines)]
    return next(iter(clear or free), None)
