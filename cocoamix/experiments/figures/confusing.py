"""`confusing`: the effect of a loss on test images that zero-shot CLIP misclassifies by a narrow margin."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from cocoamix.errors import UserError, check_choice

from ..frame import Frame
from ..plan import load_plan
from . import source
from .confusing_data import (
    ALL,
    CONFUSING,
    EASY,
    HARD,
    NEW,
    ZERO_SHOT,
    choose_dataset,
    choose_prompts,
    find_curves,
    find_gains,
)
from .kinds import LOSSES, seeds_in_words
from .source import Choice, Plans
from .style import COLUMN, GRID, INK, MUTED, PAGE, Drawing, Style, look, looks, name_series

STEM = "confusing"
_TITLE = "Easy, confusing and hard test images under zero-shot CLIP"
_GAINS_TITLE = "Gain on confusing images"
_PLANS = Plans(Choice("quick_confusing"), Choice("confusing"))
# The synthetic dataset with the most confusing images, and the paper's dataset.
_SYNTHETIC, _REAL = "texture_colour", "eurosat"
_PANELS = {
    EASY: "easy images",
    CONFUSING: "confusing images",
    HARD: "hard images",
    ALL: "all base images",
    NEW: "new classes",
}


def make(args: argparse.Namespace) -> Iterator[Drawing]:
    """Yield the curves of one dataset over epochs, and the gains on all datasets."""
    for flag, gap in (("--gap", args.gap), ("--datasets-gap", args.datasets_gap)):
        if not 0 < gap <= 1:
            raise UserError(f"{flag} is {gap:g}; a gap between two probabilities is above 0 and at most 1.")
    losses = list(dict.fromkeys(args.losses))
    if args.runs:
        frame = _read(args, losses, args.datasets, with_epochs=True)
        prompts = choose_prompts(frame, losses)
        dataset = choose_dataset(prompts, args.curves)
    else:
        frame = _read(args, losses, [_dataset_of_curves(args)], with_epochs=True)
        prompts = choose_prompts(frame, losses)
        dataset = choose_dataset(prompts, None)
    curves = find_curves(frame, prompts, dataset, args.gap)
    yield Drawing(STEM, _TITLE, _describe_curves(curves, args.gap), partial(_draw_curves, curves), curves)
    present = [loss for loss in losses if (prompts["loss"] == loss).any()]
    if len(present) < 2:
        print(f"No gains are drawn: of the losses {', '.join(losses)}, only {present[0]} has runs.", file=sys.stderr)
        return
    if not args.runs:  # the other datasets, without epochs
        frame = _read(args, losses, args.datasets, with_epochs=False)
        prompts = choose_prompts(frame, losses)
    gains = find_gains(frame, prompts, present, args.datasets_gap)
    sentence, draw = _describe_gains(gains, args.datasets_gap), partial(_draw_gains, gains, args.datasets_gap)
    yield Drawing(f"{STEM}-datasets", _GAINS_TITLE, sentence, draw, gains)


def _dataset_of_curves(args: argparse.Namespace) -> str:
    """Return the dataset of the curves by its name in the plan."""
    default = _REAL if args.root else _SYNTHETIC
    if args.curves:
        plan = load_plan((_PLANS.real if args.root else _PLANS.synthetic).plan)
        check_choice("--curves", args.curves, [dataset.name for dataset in plan.datasets])
        return str(args.curves)
    return str(args.datasets[0]) if args.datasets and default not in args.datasets else default


def _read(args: argparse.Namespace, losses: Sequence[str], datasets: Sequence[str], with_epochs: bool) -> Frame:
    """Return the frame of --runs, or of the part of the plan that one of the figures needs."""
    names = [LOSSES[loss] for loss in losses]
    choices = []
    for choice in (_PLANS.synthetic, _PLANS.real):
        methods = load_plan(choice.plan).methods
        kept = [m.name for m in methods if not m.trained or m.name in names or (with_epochs and m.model_of in names)]
        choices.append(Choice(choice.plan, tuple(kept)))
    chosen = argparse.Namespace(**{**vars(args), "datasets": list(datasets)})
    return source.find_source(chosen, Plans(*choices)).frame()


# ---------------------------------------------------------------------------------------- words


def _describe_curves(data: pd.DataFrame, gap: float) -> str:
    """Describe the parts, and the accuracies of each loss after its last epoch."""
    counts = _counts(data)
    shares = [f"{counts[part]} ({100 * counts[part] / counts[ALL]:.1f} %)" for part in (EASY, CONFUSING, HARD)]
    text = (
        f"Of the {counts[ALL]} test images of the base classes of {data['dataset'].iloc[0]}, {shares[0]} are easy, "
        f"{shares[1]} confusing and {shares[2]} hard under zero-shot CLIP; confusing means wrong by less than {gap:g}."
    )
    words = {ALL: "all base images", NEW: "new classes"}
    trained = data[data["loss"] != ZERO_SHOT]
    for loss, points in trained.groupby("loss", sort=False):
        last = points[points["epoch"] == points["epoch"].max()]
        means = last.groupby("images", sort=False)["accuracy"].mean()
        parts = [f"{mean:.1f} % on {words.get(part, f'{part} ones')}" for part, mean in means.items()]
        text += f" After epoch {last['epoch'].iloc[0]}, {loss} has {', '.join(parts[:-1])} and {parts[-1]}."
    return f"{text} ({seeds_in_words(trained['seed'].unique()).capitalize()}.)"


def _counts(data: pd.DataFrame) -> pd.Series:
    counts = data.drop_duplicates("images").set_index("images")["count"]
    return counts.reindex([EASY, CONFUSING, HARD, ALL], fill_value=0)


def _describe_gains(data: pd.DataFrame, gap: float) -> str:
    """Describe the mean gain of each loss on each dataset, and which models are compared."""
    text = ""
    for loss, own in data.groupby("loss", sort=False):
        means = own.groupby(["dataset", "confusing"], sort=False)["gain"].mean()
        parts = [f"{mean:+.1f} on {dataset} ({count} images)" for (dataset, count), mean in means.items()]
        parts += [f"{means.mean():+.1f} on average"] if len(means) > 1 else []
        text += f"Accuracy of {loss} minus that of {own['baseline'].iloc[0]}, in points: {', '.join(parts)}. "
    epoch = data["epoch"].iloc[0]
    which = "models selected on validation images" if epoch is pd.NA else f"models of epoch {epoch}"
    seeds = seeds_in_words(data["seed"].unique())
    return f"{text}Over confusing base test images, wrong by less than {gap:g}; {which} ({seeds})."


# ---------------------------------------------------------------------------------------- figures


def _draw_curves(data: pd.DataFrame, style: Style) -> Figure:
    """Draw the share of each part, then accuracies over epochs in a panel for each part."""
    width = style.width or PAGE
    across = 3 if width > 5 else 2
    figure = style.figure(width, 1.75 * 6 / across, f"{_TITLE}: {data['dataset'].iloc[0]}")
    shares, *panels = figure.subplots(6 // across, across).flat
    _draw_shares(shares, _counts(data))
    for axes, (part, title) in zip(panels, _PANELS.items(), strict=True):
        _draw_panel(axes, data[data["images"] == part], part in (ALL, NEW))
        axes.set(title=title, xlabel="epoch", ylabel="accuracy in %")
    panels[-1].plot([], [], ".", color=MUTED, markersize=4, label="one seed")
    name_series(figure, panels)
    return figure


def _draw_shares(axes: Any, counts: pd.Series) -> None:
    """Draw the share of each part as a bar with its number of images."""
    parts = [EASY, CONFUSING, HARD]
    for place, part in enumerate(parts):
        share = 100 * counts[part] / counts[ALL]
        axes.barh(place, share, height=0.62, color=look(place + 2).colour)  # the losses have the first colours
        axes.text(share + 3, place, f"{share:.1f} %\n{counts[part]}", va="center", fontsize=7)
    axes.set(yticks=range(3), yticklabels=parts, xticks=[0, 50, 100], xlim=(0, 145), ylim=(2.6, -0.6))
    axes.set(title="base test images", xlabel="share in %")
    axes.grid(visible=False, axis="y")


def _draw_panel(axes: Any, data: pd.DataFrame, with_zero_shot: bool) -> None:
    """Draw the line of each loss, the mean over seeds, with a dot for each seed."""
    trained = data[data["loss"] != ZERO_SHOT]
    for (loss, runs), style in zip(trained.groupby("loss", sort=False), looks(trained["loss"]).values(), strict=True):
        axes.plot(runs["epoch"], runs["accuracy"], ".", color=style.colour, markersize=3, alpha=0.7)
        means = runs.groupby("epoch")["accuracy"].mean()
        axes.plot(means.index, means, marker=style.marker, color=style.colour, label=loss)
    for value in data.loc[data["loss"] == ZERO_SHOT, "accuracy"] if with_zero_shot else ():
        axes.axhline(value, color=MUTED, linestyle="--", linewidth=1, label=ZERO_SHOT)
    if trained.empty:
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "not evaluated", ha="center", transform=axes.transAxes)


def _draw_gains(data: pd.DataFrame, gap: float, style: Style) -> Figure:
    """Draw a bar for each dataset and for their average, with a dot for each seed."""
    names = [f"{row.dataset}\n{row.confusing} images" for row in data.drop_duplicates("dataset").itertuples()]
    losses = data["loss"].unique()
    if len(names) > 1:
        means = data.groupby(["loss", "seed"], sort=False, dropna=False)["gain"].mean().reset_index()
        data, names = pd.concat([data, means.assign(dataset="average")]), [*names, "average"]
    base = data["baseline"].iloc[0]
    title = f"{_GAINS_TITLE} (wrong by less than {gap:g} under zero-shot CLIP)"
    figure = style.figure(style.width or COLUMN, 0.55 + len(names) * (0.18 + 0.22 * len(losses)), title)
    axes = figure.subplots()
    thick = 0.76 / len(losses)
    colours = looks(loss for loss in LOSSES.values() if loss in (base, *losses))  # as over epochs
    for (loss, dataset), own in data.groupby(["loss", "dataset"], sort=False):
        place, row = list(losses).index(loss), list(data["dataset"].unique()).index(dataset)
        at, mean = row + (place - (len(losses) - 1) / 2) * thick, own["gain"].mean()
        colour = colours[loss].colour
        axes.barh(at, mean, height=thick * 0.84, color=colour, alpha=0.85, label=loss)
        axes.plot(own["gain"], [at] * len(own), ".", color=INK, markersize=4)
        # In a column of their own, because next to a dot the number would look like the value of that dot.
        text = f"{mean:+.1f}".replace("-", "\u2212")
        axes.text(1.02, at, text, transform=axes.get_yaxis_transform(), va="center", fontsize=7.5)
    axes.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.45, -0.55))
    axes.axvline(0, color=MUTED, linewidth=1)
    if len(names) > 1:
        axes.axhline(len(names) - 1.5, color=GRID, linewidth=0.8)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"{losses[0] if len(losses) == 1 else 'loss'} minus {base} in points (dots: seeds)")
    name_series(figure, [axes])
    return figure
