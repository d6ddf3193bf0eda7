"""Draw the mixture over pi: a column for each run, with accuracy, cross-entropy and calibration error."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any, Literal

from matplotlib.lines import Line2D

from cocoamix.coa.calibration import Point
from cocoamix.drawing.style import LIGHT, Figure, Palette, apply

from .over_pi import Curve, Weights

# Label, value, and the sign: 1 if high values are best, -1 if low ones are.
_ROWS: tuple[tuple[str, Callable[[Point], float], int], ...] = (
    ("accuracy in %", lambda point: point.accuracy, 1),
    ("cross-entropy in nats", lambda point: point.nll, -1),
    ("calibration error in %", lambda point: point.ece, -1),
)
_CROSS_ENTROPY = 1  # index of its row
_DASHES = (0, (4, 2))
_HELDOUT_HUE = 2  # the curves use the hues before it
# Inches:
_COLUMN, _MARGIN, _HEIGHT = 2.75, 0.65, 7.6


def draw(found: Sequence[Weights], palette: Palette = LIGHT) -> Figure:
    """Return the figure of some runs."""
    with apply(palette):
        figure = Figure(figsize=(_MARGIN + _COLUMN * max(len(found), 1.6), _HEIGHT), layout="constrained")
        # Values of different datasets are not compared, and a shared axis would hide the shapes of the curves.
        share: Literal["row", "none"] = "row" if len({weights.dataset for weights in found}) == 1 else "none"
        grid = figure.subplots(len(_ROWS), len(found), squeeze=False, sharex=True, sharey=share)
        for column, weights in enumerate(found):
            for row, (label, value, sign) in enumerate(_ROWS):
                _draw_panel(grid[row][column], weights, value, palette)
                _draw_heldout(grid[row][column], weights, found, palette)
                if row != _CROSS_ENTROPY:  # its lowest point is computed more exactly
                    _mark_best(grid[row][column], weights, value, sign, palette)
                if not column:
                    grid[row][column].set_ylabel(label)
            _draw_losses(grid[_CROSS_ENTROPY][column], weights, palette)
            _name(grid[0][column], weights, palette)
            grid[-1][column].set_xlabel("π of the learned prompt")
        figure.align_ylabels(list(grid[:, 0]))
        _add_legend(figure, found, palette)
    return figure


def _draw_panel(axes: Any, weights: Weights, value: Callable[[Point], float], palette: Palette) -> None:
    for place, curve in enumerate(weights.curves):
        x, y = _line(curve.points, value)
        axes.plot(x, y, color=palette.hue(place))
    axes.axvline(weights.pi_in, color=palette.ink, linewidth=1.1, zorder=1.5)
    axes.set_xlim(-0.03, 1.03)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])


def _draw_heldout(axes: Any, weights: Weights, found: Sequence[Weights], palette: Palette) -> None:
    """Mark the held-out weights of other runs on the same training images."""
    for other in found:
        if other.heldout and other is not weights and other.images == weights.images:
            axes.axvline(other.pi_in, color=palette.hue(_HELDOUT_HUE), linestyle=":", linewidth=1.4, zorder=1.4)


def _mark_best(axes: Any, weights: Weights, value: Callable[[Point], float], sign: int, palette: Palette) -> None:
    for place, curve in enumerate(weights.curves):
        best = max(curve.points, key=lambda point: sign * value(point))
        _mark(axes, best.pi, value(best), palette.hue(place))


def _draw_losses(axes: Any, weights: Weights, palette: Palette) -> None:
    """Mark the lowest cross-entropy, and add the curves at the one-stage scale and on held-out images."""
    for place, curve in enumerate(weights.curves):
        _draw_one_stage(axes, curve, palette.hue(place))
        _mark(axes, curve.lowest, _at(curve.points, curve.lowest), palette.hue(place))
    if weights.heldout_lowest:
        colour = palette.hue(_HELDOUT_HUE)
        axes.plot(*zip(*weights.heldout, strict=True), color=colour)
        _mark(axes, *weights.heldout_lowest, colour)


def _draw_one_stage(axes: Any, curve: Curve, colour: str) -> None:
    """Draw the curve at the one-stage scale up to where it rises above its start: it diverges towards pi = 1."""
    start = curve.one_stage[0].nll
    shown = [point for point in curve.one_stage if point.nll <= start * 1.02]
    axes.plot(*_line(shown, lambda point: point.nll), color=colour, linestyle=_DASHES, linewidth=1.3)
    lowest = curve.one_stage_lowest
    if lowest <= curve.one_stage[-1].pi:
        _mark(axes, lowest, _at(curve.one_stage, lowest), colour)


def _line(points: Sequence[Point], value: Callable[[Point], float]) -> tuple[list[float], list[float]]:
    return [point.pi for point in points], [value(point) for point in points]


def _at(points: Sequence[Point], pi: float) -> float:
    """Interpolate the cross-entropy between two points of a curve."""
    after = next(number for number, point in enumerate(points) if number and point.pi >= min(pi, points[-1].pi))
    low, high = points[after - 1], points[after]
    return low.nll + (high.nll - low.nll) * (min(pi, high.pi) - low.pi) / (high.pi - low.pi)


def _mark(axes: Any, x: float, y: float, colour: str) -> None:
    axes.plot(x, y, "o", color=colour, markersize=5.5, clip_on=False, zorder=4)


def _name(axes: Any, weights: Weights, palette: Palette) -> None:
    """Write the name of the run above its column, and its weight above the line that marks it."""
    shots = f"{weights.shots} shots" if weights.shots > 0 else "all images"
    title = "\n".join(textwrap.wrap(f"{weights.dataset}, {weights.kind}", 26))
    axes.set_title(f"{title}\n{shots}, seed {weights.seed}", pad=20)
    side = "left" if weights.pi_in < 0.2 else "right" if weights.pi_in > 0.8 else "center"
    place = {"xy": (weights.pi_in, 1), "xycoords": axes.get_xaxis_transform()}
    shift = {"xytext": (0, 3), "textcoords": "offset points"}
    axes.annotate(f"πⁱⁿ {weights.pi_in:.2f}", **place, **shift, ha=side, va="bottom", color=palette.ink, fontsize=9)


def _add_legend(figure: Figure, found: Sequence[Weights], palette: Palette) -> None:
    evaluated = dict.fromkeys(f"{weights.curves[1].images} images" for weights in found)  # test, or val
    names = ["training images, augmented", " or ".join(evaluated)]
    handles = [Line2D([], [], color=palette.hue(place), label=name) for place, name in enumerate(names)]
    if any(weights.heldout for weights in found):
        handles.append(Line2D([], [], color=palette.hue(_HELDOUT_HUE), label="training images, held out"))
    dashed = Line2D([], [], color=palette.muted, linestyle=_DASHES, linewidth=1.3, label="with the one-stage scale")
    handles.append(dashed)
    handles.append(Line2D([], [], color=palette.muted, marker="o", linestyle="", label="best of a curve"))
    handles.append(Line2D([], [], color=palette.ink, linewidth=1.1, label="πⁱⁿ of the run"))
    if any(weights.heldout for weights in found) and not all(weights.heldout for weights in found):
        colour = palette.hue(_HELDOUT_HUE)
        handles.append(Line2D([], [], color=colour, linestyle=":", linewidth=1.4, label="πⁱⁿ of the held-out run"))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(3, 1 + len(found)), columnspacing=1.6)
