"""Draw accuracies on easy, confusing and hard images, and the gain of a loss on confusing ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cocoamix.drawing.style import LIGHT, Figure, Palette, apply

from .curves import Curves
from .difficulty import ALL, CONFUSING, EASY, HARD, PARTS
from .gains import Gain
from .runs import NEW

_HUES = {EASY: 2, CONFUSING: 1, HARD: 4}  # green, orange and red
_PANELS = ((EASY, "easy images"), (CONFUSING, "confusing images"), (HARD, "hard images"))
_WHOLE = ((ALL, "all base images"), (NEW, "new classes"))


def draw_curves(curves: Curves, palette: Palette = LIGHT) -> Figure:
    """Return the figure of one dataset: the parts, then accuracies over epochs, a panel for each part."""
    with apply(palette):
        figure = Figure(figsize=(9.0, 5.4), layout="constrained")
        grid = figure.subplots(2, 3).flatten()
        _draw_shares(grid[0], curves, palette)
        for axes, (part, title) in zip(grid[1:], (*_PANELS, *_WHOLE), strict=True):
            _draw_panel(axes, curves, part, title, palette)
        grid[1].set_ylabel("accuracy in %")
        grid[3].set_ylabel("accuracy in %")
        handles, names = grid[4].get_legend_handles_labels()
        handles.append(grid[4].plot([], [], ".", color=palette.muted, markersize=4)[0])
        figure.legend(handles, [*names, "one seed"], loc="outside lower center", ncols=6, handlelength=1.8)
    return figure


def _draw_shares(axes: Any, curves: Curves, palette: Palette) -> None:
    """Draw the share of each part as a bar with its number of images."""
    total = curves.difficulty.count(ALL)
    for place, part in enumerate(PARTS):
        count = curves.difficulty.count(part)
        share = 100 * count / total
        axes.barh(place, share, height=0.62, color=palette.hue(_HUES[part]))
        axes.text(share + 2, place, f"{share:.1f} %\n{count} images", va="center", fontsize=8.5, color=palette.ink)
    axes.set_yticks(range(len(PARTS)), PARTS)
    axes.tick_params(axis="y", labelcolor=palette.ink)
    axes.set_ylim(len(PARTS) - 0.4, -0.6)
    axes.set_xlim(0, 138)
    axes.set_xticks([0, 50, 100])
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("share of base test images in %")
    axes.set_title(f"{curves.difficulty.dataset}\nunder zero-shot CLIP")


def _draw_panel(axes: Any, curves: Curves, part: str, title: str, palette: Palette) -> None:
    """Draw the lines of all losses: means over seeds, with a dot for each seed."""
    for place, (loss, epochs) in enumerate(curves.accuracy.items()):
        colour, marker = palette.look(place)
        shown = {epoch: by_part[part] for epoch, by_part in epochs.items() if part in by_part}
        for epoch, values in shown.items():
            axes.plot([epoch] * len(values), values, ".", color=colour, markersize=3.5, alpha=0.7)
        means = [sum(values) / len(values) for values in shown.values()]
        axes.plot(list(shown), means, marker=marker, color=colour, label=loss.title)
    if part in curves.zero_shot:
        axes.axhline(curves.zero_shot[part], color=palette.muted, linestyle="--", linewidth=1.2, label="zero-shot CLIP")
    axes.set_title(title)
    axes.set_xlabel("epoch")
    if not any(part in by_part for epochs in curves.accuracy.values() for by_part in epochs.values()):
        axes.set_xticks([])
        axes.set_yticks([])
        axes.text(0.5, 0.5, "not evaluated" if part == NEW else "no image", ha="center", transform=axes.transAxes)


def draw_gains(gains: Sequence[Gain], base: str, palette: Palette = LIGHT) -> Figure:
    """Return the figure of all datasets: a bar for each and for their average, with a dot for each seed."""
    with apply(palette):
        losses = list(dict.fromkeys(gain.loss for gain in gains))
        counts = {gain.difficulty.dataset: gain.difficulty.count(CONFUSING) for gain in gains}
        lines = len(counts) + (len(counts) > 1)
        figure = Figure(figsize=(5.6, 1.4 + lines * (0.2 + 0.3 * len(losses))), layout="constrained")
        axes: Any = figure.add_subplot()
        thick = 0.76 / len(losses)
        for place, loss in enumerate(losses):
            colour = palette.hue(place + 1)  # the first hue is that of the reference loss
            for row, values in enumerate(_rows([gain.values for gain in gains if gain.loss == loss])):
                at, mean = row + (place - (len(losses) - 1) / 2) * thick, sum(values) / len(values)
                name = loss.title if not row else None
                axes.barh(at, mean, height=thick * 0.84, color=colour, alpha=0.85, label=name)
                axes.plot(values, [at] * len(values), ".", color=palette.ink, markersize=4.5, zorder=3)
                # In a separate column, because next to a dot the number would look like the value of that dot.
                where = {"x": 1.02, "transform": axes.get_yaxis_transform()}
                axes.text(
                    y=at, s=f"{mean:+.1f}".replace("-", "\u2212"), **where, va="center", fontsize=9, color=palette.ink
                )
        names = [f"{name}\n{count} images" for name, count in counts.items()] + ["average"]
        axes.set_yticks(range(lines), names[:lines])
        axes.tick_params(axis="y", labelcolor=palette.ink)
        axes.set_ylim(lines - 0.45, -0.55)
        axes.axvline(0, color=palette.muted, linewidth=1)
        if lines > 1:
            axes.axhline(lines - 1.5, color=palette.grid, linewidth=0.8)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(f"gain over {base} in points; dots are seeds, the number is their mean")
        only = f" of {losses[0].title}" if len(losses) == 1 else ""
        gap = gains[0].difficulty.gap
        axes.set_title(f"Gain{only} on confusing images\n(wrong by less than {gap:g} under zero-shot CLIP)")
        if len(losses) > 1:
            figure.legend(loc="outside lower center", ncols=len(losses))
    return figure


def _rows(by_dataset: Sequence[Sequence[float]]) -> list[Sequence[float]]:
    """Return the values by seed of each dataset and, if there are several datasets, of their average."""
    if len(by_dataset) == 1:
        return list(by_dataset)
    return [*by_dataset, [sum(seed) / len(by_dataset) for seed in zip(*by_dataset, strict=True)]]
