"""The two charts that several figures share: curves in panels, and rows of dots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .style import INK, MUTED, Look, Style, looks, name_series, percent_range, wrap

_MANY = 6  # values of which quartiles are drawn
PUBLISHED = " (published"  # ends the name of a method of ours, whose look the published one has


def name_published(rows: pd.DataFrame) -> pd.DataFrame:
    """Return published numbers under names that say so. Equal names of several tables have their places, too."""
    tables = rows.drop_duplicates(["method", "place", "source_name"])
    several = rows["method"].map(tables["method"].value_counts()) > 1
    same = rows["place"].map(tables.groupby("place")["source_name"].nunique()) > 1
    where = ("; " + rows["place"] + (" of " + rows["source_name"]).where(same, "")).where(several, "")
    return rows.assign(method=rows["method"] + PUBLISHED + where + ")")


def over_seeds(values: pd.DataFrame) -> pd.DataFrame:
    """Return curves from `method`, `x` and `value`, a row per seed: `mean`, `std`, and `by_seed`, if several."""
    groups = values.groupby(["method", "x"], sort=False, dropna=False)["value"]
    table = groups.agg(mean="mean", std=lambda own: own.std(ddof=0) if len(own) > 1 else np.nan, by_seed=tuple)
    return table.reset_index().assign(published="")


def draw_lines(
    panels: Mapping[str, pd.DataFrame], style: Style, title: str = "", x_label: str = "", shared: bool = True
) -> Figure:
    """Draw a panel of curves for each title: bands are deviations, dots are seeds, dashed lines are published.

    Args:
        panels: Rows with `method`, `x`, `mean`, `std`, `by_seed` and the place where a number is `published`, or "". A
            row without `x` is a baseline: a dashed line across its panel.
        style: Width and title.
        title: The title of the figure.
        x_label: What `x` is. Numbers of shots are evenly spaced, and 0 shots are zero-shot.
        shared: Whether the panels have one scale of accuracies.
    """
    figure, axes = style.panels(len(panels), 1.9, title, sharey=shared)
    whole = pd.concat(list(panels.values()))
    shown = looks(whole["method"].str.partition(PUBLISHED)[0])
    for panel, (name, own) in zip(axes, panels.items(), strict=True):
        scale = whole if shared else own
        values = sorted(set(scale["x"].dropna()))
        names = ["zero-shot" if x_label == "shots" and not x else f"{x:g}" for x in values]
        places = {x: place if x_label == "shots" else x for place, x in enumerate(values)}
        for method, curve in own.groupby("method", sort=False):
            _draw_line(panel, curve.assign(x=curve["x"].map(places)), shown[str(method).partition(PUBLISHED)[0]])
        step = 1 + (len(values) - 1) // 12
        panel.set_xticks(list(places.values())[::step], names[::step])
        spread, dots = scale["std"].astype(float).fillna(0), scale["by_seed"].explode().dropna()
        limits = percent_range([*(scale["mean"] - spread), *(scale["mean"] + spread), *dots])
        panel.set(xlabel=x_label, title=name, ylim=limits)
    figure.supylabel("accuracy (%)", fontsize="medium", color=MUTED)
    name_series(figure, axes)
    return figure


def _draw_line(axes: Any, curve: pd.DataFrame, look: Look) -> None:
    name = curve["method"].iloc[0]
    if curve["x"].isna().all():
        axes.axhline(curve["mean"].iloc[0], color=look.colour, linestyle="--", linewidth=1, label=name)
        return
    x, mean, spread = curve["x"].astype(float), curve["mean"], curve["std"].astype(float).fillna(0)
    axes.fill_between(x, mean - spread, mean + spread, color=look.colour, alpha=0.15, linewidth=0)
    dots = curve.assign(x=x).explode("by_seed")
    axes.plot(dots["x"], dots["by_seed"].astype(float), ".", color=look.colour, markersize=2, alpha=0.8)
    dashes, width = ("--", 0.9) if curve["published"].any() else ("-", 1.4)
    axes.plot(x, mean, dashes, marker=look.marker, color=look.colour, label=name, linewidth=width)


def draw_rows(
    values: pd.DataFrame, style: Style, title: str, x_label: str, note: Callable[[pd.Series], str] | None = None
) -> Figure:
    """Draw rows of values: a small dot for each, a large mark for the mean, and a box of quartiles if there are many.

    Args:
        values: A value per row, with `row`, `series` (of one colour) and `value`. A row may have several series.
        style: Width and title.
        title: The title of the figure.
        x_label: What the values are.
        note: Returns the words to the right of the values of a series.
    """
    rows, shown = list(values["row"].unique()), looks(values["series"])
    several = values.groupby("row")["series"].nunique().max() > 1  # else the row names its series
    slots: list[Any] = list(shown) if several else [None]
    figure, (axes,) = style.panels(1, 0.55 + len(rows) * (0.14 + len(slots) * (0.13 if note else 0.075)), title)
    for (row, series), own in values.groupby(["row", "series"], sort=False)["value"]:
        label = series if several else None
        at = rows.index(row) + 0.84 * ((slots.index(label) + 0.5) / len(slots) - 0.5)
        colour = shown[series].colour
        axes.plot(own, [at] * len(own), ".", color=colour, markersize=3, alpha=0.6)
        axes.plot(own.mean(), at, linestyle="", marker=shown[series].marker, color=colour, label=label, zorder=4)
        if len(own) >= _MANY:
            line = {"color": colour, "linewidth": 0.9}
            options: Any = dict.fromkeys(("boxprops", "whiskerprops", "medianprops"), line)
            options |= {"orientation": "horizontal", "whis": (0, 100), "showcaps": False, "manage_ticks": False}
            axes.boxplot([own], positions=[at], widths=0.6 / len(slots), **options)
        if note:
            axes.text(1.01, at, note(own), transform=axes.get_yaxis_transform(), va="center", fontsize=7)
    if values["value"].min() < 0:  # differences
        axes.axvline(0, color=MUTED, linewidth=0.9, zorder=1)
    axes.set_yticks(range(len(rows)), [row if "\n" in row else wrap(row, 24) for row in rows])
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set(ylim=(len(rows) - 0.5, -0.5), xlabel=x_label)
    name_series(figure, [axes])
    return figure
