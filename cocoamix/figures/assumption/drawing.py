"""Draw the assumption: box plots of accuracy differences on in-classes (left) and out-classes (right)."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from cocoamix.drawing.style import LIGHT, Figure, Palette, apply
from cocoamix.report.model.t_test import OneSided

from .halves import Group, Halves

_HEIGHT, _BOX, _MARGIN = 4.2, 1.55, 0.9  # inches; the width of a box with its name
_SPREAD = 0.13  # by which dots are moved sideways from the middle of a box


def draw(groups: Sequence[Group], halves: Halves, palette: Palette = LIGHT) -> Figure:
    """Return the figure of groups of pairs."""
    with apply(palette):
        width = 2 * max(_BOX * len(groups), 2.4) + _MARGIN
        figure = Figure(figsize=(width, _HEIGHT), layout="constrained")
        inside, outside = figure.subplots(1, 2, sharey=True)
        names = halves.learned, halves.hand_crafted
        for place, group in enumerate(groups):
            colour = palette.hue(place)
            _draw_box(inside, place, [pair.in_difference for pair in group.pairs], colour, palette)
            _draw_box(outside, place, [pair.out_difference for pair in group.pairs], colour, palette)
        _finish(inside, "in-classes", names, [(group.name, group.inside) for group in groups], palette)
        _finish(outside, "out-classes", names[::-1], [(group.name, group.outside) for group in groups], palette)
        inside.set_ylabel("difference of accuracies in points")
        _add_legend(figure, palette)
    return figure


def _draw_box(axes: Any, place: int, values: list[float], colour: str, palette: Palette) -> None:
    """Draw quartiles and extremes as a box, every pair as a dot, and the mean as a diamond."""
    line = {"color": colour, "linewidth": 1.4}
    axes.boxplot(
        [values],
        positions=[place],
        widths=0.5,
        whis=(0, 100),
        showcaps=False,
        boxprops=line,
        whiskerprops=line,
        medianprops={**line, "linewidth": 2.2},
        manage_ticks=False,
    )
    shift = [_SPREAD * (number % 3 - 1) for number in range(len(values))]  # so that equal values stay visible
    axes.plot([place + one for one in shift], sorted(values), ".", color=colour, alpha=0.65, markersize=6)
    axes.plot(place, sum(values) / len(values), "D", color=palette.ink, markersize=5, zorder=4)


def _finish(
    axes: Any, kind: str, names: tuple[str, str], tests: Sequence[tuple[str, OneSided]], palette: Palette
) -> None:
    axes.axhline(0, color=palette.muted, linewidth=1.1, zorder=1)
    axes.set_title(f"{kind}: {names[0]} − {names[1]}")  # noqa: RUF001  (a minus)
    labels = ["\n".join([*textwrap.wrap(name, 16), f"p = {test.p:.2g}, n = {test.pairs}"]) for name, test in tests]
    axes.set_xticks(range(len(tests)), labels)
    axes.tick_params(axis="x", labelcolor=palette.ink)
    axes.grid(visible=False, axis="x")
    axes.set_xlim(-0.6, len(tests) - 0.4)


def _add_legend(figure: Figure, palette: Palette) -> None:
    grey = palette.muted
    handles = [
        Line2D([], [], marker=".", linestyle="", color=grey, label="a pair"),
        Line2D([], [], marker="D", linestyle="", color=palette.ink, label="mean"),
        Patch(fill=False, edgecolor=grey, linewidth=1.4, label="quartiles and median; lines to the extremes"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), handlelength=1.2, columnspacing=1.4)
