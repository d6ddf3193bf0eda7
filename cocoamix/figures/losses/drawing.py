"""Draw accuracies by loss and setting, and over w and d. Axes begin near the lowest value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cocoamix.drawing.style import LIGHT, Figure, Palette, apply

from ..loss_names import Loss
from .averages import Average
from .sensitivity import Panel


def draw_losses(averages: Mapping[Loss, Average], palette: Palette = LIGHT) -> Figure:
    """Return the figure of one setting of each loss: a mark for the mean, a dot for each seed."""
    with apply(palette):
        figure = Figure(figsize=(5.2, 1.3 + 0.42 * len(averages)), layout="constrained")
        axes: Any = figure.add_subplot()
        for place, (_, one) in enumerate(averages.items()):
            colour = palette.hue(place)
            axes.plot([min(one.values), max(one.values)], [place] * 2, color=colour, linewidth=1.2, alpha=0.7)
            axes.plot(one.values, [place] * len(one.values), ".", color=colour, markersize=6)
            axes.plot(one.mean, place, "D", color=colour, markersize=7)
            where = {"x": 1.02, "transform": axes.get_yaxis_transform()}
            axes.text(y=place, s=f"{one.mean:.2f}", **where, va="center", fontsize=9, color=palette.ink)
        axes.set_yticks(range(len(averages)), [loss.full_title for loss in averages])
        axes.tick_params(axis="y", labelcolor=palette.ink)
        axes.set_ylim(len(averages) - 0.5, -0.5)
        axes.set_xlabel("base accuracy in %; dots are seeds, the number is their mean")
        axes.set_title(f"Loss of the learned prompt\n{_where(next(iter(averages.values())))}")
    return figure


def draw_settings(averages: Mapping[Loss, Average], palette: Palette = LIGHT) -> Figure:
    """Return the figure of all settings: losses side by side, the setting above each mean."""
    with apply(palette):
        figure = Figure(figsize=(max(5.0, 1.2 + 0.55 * len(averages)), 3.9), layout="constrained")
        axes: Any = figure.add_subplot()
        names = list(dict.fromkeys(loss.name for loss in averages))
        centres, x = [], 0.0
        for place, name in enumerate(names):
            own = [(loss, one) for loss, one in averages.items() if loss.name == name]
            colour = palette.hue(place)
            first = x
            for loss, one in own:
                axes.plot([x] * 2, [min(one.values), max(one.values)], color=colour, linewidth=1.2, alpha=0.7)
                axes.plot([x] * len(one.values), one.values, ".", color=colour, markersize=5)
                axes.plot(x, one.mean, "D", color=colour, markersize=6.5)
                shift = {"xytext": (0, 6), "textcoords": "offset points"}
                where = (x, max(one.values))
                axes.annotate(loss.setting_text, where, **shift, ha="center", fontsize=8, color=palette.ink)
                x += 1
            centres.append((first + x - 1) / 2)
            x += 0.6
        axes.set_xticks(centres, [next(loss.title for loss in averages if loss.name == name) for name in names])
        axes.tick_params(axis="x", labelcolor=palette.ink)
        axes.grid(visible=False, axis="x")
        axes.margins(x=0.06, y=0.14)
        axes.set_ylabel("base accuracy in %")
        axes.set_title(f"Losses under several settings\n{_where(next(iter(averages.values())))}")
    return figure


def draw_sensitivity(panels: Sequence[Panel], palette: Palette = LIGHT) -> Figure:
    """Return the figure of the sensitivity: a line of means, a dot for each seed, a dashed line for the baseline."""
    with apply(palette):
        figure = Figure(figsize=(0.6 + 3.6 * len(panels), 3.6), layout="constrained")
        for place, axes in enumerate(figure.subplots(1, len(panels), squeeze=False)[0]):
            _draw_panel(axes, panels[place], palette.look(place), palette)
    return figure


def _draw_panel(axes: Any, panel: Panel, look: tuple[str, str], palette: Palette) -> None:
    colour, marker = look
    x = [panel.value(setting) for setting in panel.points]
    for at, one in zip(x, panel.points.values(), strict=True):
        axes.plot([at] * len(one.values), one.values, ".", color=colour, markersize=4.5, alpha=0.7)
    axes.plot(x, [one.mean for one in panel.points.values()], marker=marker, color=colour)
    if panel.baseline:
        level = panel.baseline[1].mean
        axes.axhline(level, color=palette.hue(4), linestyle="--", linewidth=1.4)
        shift = {"xytext": (0, 3), "textcoords": "offset points"}
        where = {"xy": (1, level), "xycoords": axes.get_yaxis_transform()}
        axes.annotate(panel.baseline_name, **where, **shift, ha="right", fontsize=8.5, color=palette.hue(4))
    axes.set_xticks(x)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.margins(x=0.06, y=0.12)
    what = "weight w of the CoA-loss" if panel.symbol == "w" else "margin d"
    axes.set_xlabel(what)
    axes.set_ylabel(f"{panel.subset} accuracy in %")
    axes.set_title(
        f"{panel.subset.capitalize()} classes over {panel.symbol}\n{_where(next(iter(panel.points.values())))}"
    )


def _where(one: Average) -> str:
    """Return a short description of what an average is over."""
    datasets, seeds = list(one.accuracy), len(one.values)
    return f"{datasets[0] if len(datasets) == 1 else f'{len(datasets)} datasets'}, {seeds} seed{'s' * (seeds != 1)}"
