"""`confusing`: the effect of a loss on test images that zero-shot CLIP misclassifies by a narrow margin.

An image is easy if zero-shot CLIP's prediction is right. Otherwise it is confusing if the prediction is more probable
than the label by less than a gap, else hard.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from cocoamix.errors import UserError, check_choice
from cocoamix.run.predictions import FILE, read_predictions

from ..frame import Frame
from ..labels import not_comparable
from ..names import dataset_name, is_clip, sort_datasets
from ..plan import load_plan
from . import source
from .kinds import LOSS_KEYS, LOSSES, check_settings, name_losses, own_runs
from .source import Choice, Plans
from .style import COLUMN, INK, MUTED, PAGE, Drawing, Look, Style, looks, name_series

_TITLE = "Easy, confusing and hard test images under zero-shot CLIP"
_PLANS = Plans(Choice("quick_confusing"), Choice("confusing"))
ZERO_SHOT = "zero-shot CLIP"
EASY, CONFUSING, HARD, ALL, NEW = "easy", "confusing", "hard", "all", "new"
_PARTS = [EASY, CONFUSING, HARD, ALL, NEW]
_ORDER = {name: place for place, name in enumerate([ZERO_SHOT, *LOSSES.values(), *_PARTS])}
_CURVES = ["dataset", "loss", "epoch", "seed", "images", "count", "accuracy"]
_GAINS = [*_CURVES[:4], "confusing", "images", "baseline", "baseline_accuracy", "accuracy", "gain"]
_DIGITS = 1_000_000  # predictions are saved with six decimals


def make(args: argparse.Namespace) -> Iterator[Drawing]:
    """Yield the curves of one dataset over epochs, and the gains on all datasets."""
    names = [LOSSES[loss] for loss in dict.fromkeys(args.losses)]
    shown = args.curves or ("eurosat" if args.root else "texture_colour")  # the paper's; the most confusing one
    runs = choose_runs(_read(args, names, [shown], with_epochs=True), names)
    points = runs.drop_duplicates(["dataset", "loss", "epoch"])["dataset"].value_counts()
    datasets = sort_datasets(points.index)
    dataset = dataset_name(args.curves) if args.curves else max(datasets, key=lambda name: points[name])
    check_choice("--curves", dataset, datasets)
    curves = find_curves(runs[runs["dataset"] == dataset], args.gap)
    yield Drawing("confusing", _TITLE, _describe_curves(curves, args.gap), partial(_draw_curves, curves), curves)
    if not args.runs:  # the other datasets, without epochs
        runs = choose_runs(_read(args, names, args.datasets, with_epochs=False), names)
    gains = find_gains(runs, names[0], args.datasets_gap)
    title = f"Gain on confusing images (wrong by less than {args.datasets_gap:g} under zero-shot CLIP)"
    yield Drawing("confusing-datasets", title, _describe_gains(gains), partial(_draw_gains, gains, title), gains)


def _read(args: argparse.Namespace, names: Sequence[str], datasets: Sequence[str], with_epochs: bool) -> Frame:
    """Return the frame of --runs, or of the part of the plan that one of the figures needs."""
    if args.runs:
        return source.find_source(args, _PLANS).frame()
    plan = _PLANS.real.plan if args.root else _PLANS.synthetic.plan
    methods = load_plan(plan).methods
    kept = [m.name for m in methods if not m.train or m.name in names or (with_epochs and m.model_of in names)]
    part = Choice(plan, tuple(kept), tuple(datasets))
    return source.find_source(argparse.Namespace(**{**vars(args), "datasets": []}), Plans(part, part)).frame()


# ---------------------------------------------------------------------------------------- the numbers


def choose_runs(frame: Frame, names: Sequence[str]) -> pd.DataFrame:
    """Return the runs of some losses without an ensemble, and comparable ones of zero-shot CLIP, by `loss`."""
    prompts = name_losses(own_runs(frame.runs, "none").dropna(subset="epoch"))
    prompts = prompts.assign(loss=prompts["loss"].map(LOSSES))
    prompts = prompts[prompts["loss"].isin(names) & prompts["subset"].isin(["base", "new"])]
    if set(prompts["loss"]) != set(names):
        raise UserError(f"Runs of CoCoAMix with TRAINER.COCOAMIX.ENSEMBLE none are needed, with {' and '.join(names)}.")
    check_settings(prompts, LOSS_KEYS)
    for (loss, epoch), kinds in prompts.groupby(["loss", "epoch"])["method"]:
        if kinds.nunique() > 1:  # of different settings of the loss, or in several folders
            raise UserError(f"{loss} at epoch {epoch} has several kinds: {', '.join(kinds.unique())}. Choose one.")
    zero = frame.runs[[is_clip(run.trainer) and _agrees(run, prompts) for run in frame.runs.itertuples()]]
    newest = zero.sort_values("written").drop_duplicates(["dataset", "subset"], keep="last")
    return pd.concat([newest.assign(loss=ZERO_SHOT, epoch=0, seed=pd.NA), prompts])


def _agrees(zero: Any, prompts: pd.DataFrame) -> bool:
    """Return whether a run of zero-shot CLIP has predictions, and the protocol of the prompts on the same images."""
    same = prompts[(prompts["dataset"] == zero.dataset) & (prompts["subset"] == zero.subset)]
    usable = zero.subset == "new" or Path(zero.folder, FILE).is_file()
    return usable and len(same) > 0 and not any(not_comparable(zero, prompt) for prompt in same.itertuples())


def measure(runs: pd.DataFrame, gap: float) -> pd.DataFrame:
    """Return the accuracies of the runs on one dataset: on each part of the base test images, and on new classes."""
    dataset, base, new = runs["dataset"].iloc[0], runs[runs["subset"] == "base"], runs[runs["subset"] == "new"]
    if ZERO_SHOT not in set(base["loss"]):
        raise UserError(
            f"No run of ZeroshotCLIP on the base classes of {dataset} has predictions and the protocol of the prompts. "
            "Run it with TEST.SAVE_PREDICTIONS True, and add its folder."
        )
    tables = pd.concat([_predictions(run) for run in base.itertuples()])
    first = tables[tables["loss"] == ZERO_SHOT]
    ahead = ((first["confidence"] - first["label_probability"]) * _DIGITS).round()  # differences of floats are inexact
    part = np.select([first["right"], ahead < round(gap * _DIGITS)], [EASY, CONFUSING], HARD)
    parts = pd.concat([first[["image"]].assign(images=part), first[["image"]].assign(images=ALL)])
    keys = ["loss", "epoch", "images", "seed"]
    data = tables.merge(parts, on="image").groupby(keys, dropna=False)["right"].agg(["sum", "count"]).reset_index()
    whole = new.assign(images=NEW, count=new["images"], accuracy=[metrics["accuracy"] for metrics in new["metrics"]])
    data = pd.concat([data.assign(accuracy=100 * data["sum"] / data["count"]), whole[[*keys, "count", "accuracy"]]])
    data = data.sort_values(
        keys, key=lambda column: column.map(lambda value: _ORDER.get(value, value)), ignore_index=True
    )
    return data.assign(dataset=dataset).astype({"epoch": "Int64", "seed": "Int64", "count": "Int64"})[_CURVES]


def _predictions(run: Any) -> pd.DataFrame:
    """Return the predictions of a run for the images that could be read."""
    path = Path(run.folder, FILE)
    if not path.is_file():
        raise UserError(f"{run.folder} has no {FILE}. Evaluate it again with TEST.SAVE_PREDICTIONS True.")
    records = [record for record in read_predictions(path) if record.predicted]
    rows = [(r.image, r.predicted == r.label, r.confidence, r.label_probability) for r in records]
    table = pd.DataFrame(rows, columns=["image", "right", "confidence", "label_probability"])
    return table.assign(loss=run.loss, epoch=run.epoch, seed=run.seed)


def _complete(data: pd.DataFrame, points: list[str], across: list[str]) -> pd.DataFrame:
    """Return the rows of the points that have values across all of the others, and those of zero-shot CLIP."""
    trained = data[data["loss"] != ZERO_SHOT]
    shared = trained.pivot(index=points, columns=across, values="accuracy").dropna().index
    if shared.empty:
        what = f"{' and '.join(points)} has results and confusing images for every {' and '.join(across)}"
        raise UserError(f"No {what}. Run what is missing, or choose a larger gap.")
    return data[data.set_index(points).index.isin(shared) | (data["loss"] == ZERO_SHOT)]


def find_curves(runs: pd.DataFrame, gap: float) -> pd.DataFrame:
    """Return the accuracies over epochs on one dataset, of the seeds that all losses have at all epochs."""
    return _complete(measure(runs, gap), ["seed"], ["loss", "epoch", "images"])


def find_gains(runs: pd.DataFrame, baseline: str, gap: float) -> pd.DataFrame:
    """Return the gain of each loss over the first one on the confusing images of each dataset, by seed.

    All models are of the last epoch that every loss has on every dataset.
    """
    base = runs[runs["subset"] == "base"]
    data = pd.concat([measure(base[base["dataset"] == name], gap) for name in sort_datasets(base["dataset"])])
    totals = data[data["images"] == ALL].drop_duplicates("dataset").set_index("dataset")["count"]
    data = data[(data["images"] == CONFUSING) & (data["loss"] != ZERO_SHOT)]
    # An average over datasets is of the same datasets for every loss.
    data = data[data.groupby("dataset")["loss"].transform("nunique") == data["loss"].nunique()]
    data = _complete(data, ["epoch", "seed"], ["dataset", "loss"])
    data = data[data["epoch"] == data["epoch"].max()].rename(columns={"count": "confusing"})
    first = data[data["loss"] == baseline].rename(columns={"accuracy": "baseline_accuracy"})
    data = data[data["loss"] != baseline].merge(first[["dataset", "seed", "baseline_accuracy"]])
    gain = data["accuracy"] - data["baseline_accuracy"]
    return data.assign(images=data["dataset"].map(totals), baseline=baseline, gain=gain)[_GAINS]


# ---------------------------------------------------------------------------------------- words and figures


def _describe_curves(data: pd.DataFrame, gap: float) -> str:
    """Describe the parts, and the accuracies of each loss after its last epoch."""
    last = data[data["epoch"] == data.groupby("loss")["epoch"].transform("max")]
    means = last.groupby(["loss", "images"], sort=False)["accuracy"].mean()
    values = ", ".join(f"{loss} {mean:.1f} on {part}" for (loss, part), mean in means.items())
    counts = ", ".join(f"{count} {part}" for part, count in _counts(data).items())
    return (
        f"Test images of {data['dataset'].iloc[0]} under zero-shot CLIP: {counts}; confusing means wrong by less than "
        f"{gap:g}. Accuracy in % after the last epoch, mean over seeds: {values}."
    )


def _describe_gains(data: pd.DataFrame) -> str:
    """Describe the mean gain of each loss on each dataset, and their average."""
    means = data.groupby(["loss", "dataset"], sort=False)["gain"].mean()
    values = [f"{loss} {mean:+.1f} on {dataset}" for (loss, dataset), mean in means.items()]
    values += [f"{loss} {mean:+.1f} on average" for loss, mean in means.groupby("loss", sort=False).mean().items()]
    first = data.iloc[0]
    return f"Gain over {first['baseline']} in points at epoch {first['epoch']}, mean over seeds: {', '.join(values)}."


def _counts(data: pd.DataFrame) -> pd.Series:
    return data.drop_duplicates("images").set_index("images")["count"]


def _draw_curves(data: pd.DataFrame, style: Style) -> Figure:
    """Draw accuracies over epochs in a panel for each part, whose title has its share of the base test images."""
    counts, colours = _counts(data), looks(loss for loss in data["loss"] if loss != ZERO_SHOT)
    width = style.width or PAGE
    across = 3 if width > COLUMN + 1 else 2
    figure = style.figure(width, 1.75 * 6 / across, f"{_TITLE}: {data['dataset'].iloc[0]}")
    panels = list(figure.subplots(6 // across, across).flat)
    for unused in panels[len(counts) :]:
        unused.remove()
    for axes, (part, own) in zip(panels, data.groupby("images", sort=False), strict=False):
        for loss, runs in own.groupby("loss", sort=False):
            _draw_loss(axes, str(loss), runs, colours)
        share = f"{counts[part]} images" if part in (ALL, NEW) else f"{100 * counts[part] / counts[ALL]:.1f} %"
        axes.set(title=f"{part}: {share}", xlabel="epoch", ylabel="accuracy in %")
    name_series(figure, panels[: len(counts)])
    return figure


def _draw_loss(axes: Any, loss: str, runs: pd.DataFrame, colours: Mapping[str, Look]) -> None:
    """Draw the mean over seeds with a dot for each seed; zero-shot CLIP as a line, since it has no epochs."""
    if loss == ZERO_SHOT:
        axes.axhline(runs["accuracy"].iloc[0], color=MUTED, linestyle="--", linewidth=1, label=loss)
        return
    axes.plot(runs["epoch"], runs["accuracy"], ".", color=colours[loss].colour, markersize=3, alpha=0.7)
    means = runs.groupby("epoch")["accuracy"].mean()
    axes.plot(means.index, means, marker=colours[loss].marker, color=colours[loss].colour, label=loss)


def _draw_gains(data: pd.DataFrame, title: str, style: Style) -> Figure:
    """Draw a bar for each dataset and for their average, with a dot for each seed."""
    average = data.groupby(["loss", "seed"], sort=False)["gain"].mean().reset_index().assign(dataset="average")
    names = [f"{row.dataset}\n{row.confusing} images" for row in data.drop_duplicates("dataset").itertuples()]
    base, losses = data["baseline"].iloc[0], list(data["loss"].unique())
    data, rows = pd.concat([data, average]), [*data["dataset"].unique(), "average"]
    figure = style.figure(style.width or COLUMN, 0.55 + len(rows) * (0.18 + 0.22 * len(losses)), title)
    axes, thick = figure.subplots(), 0.76 / len(losses)
    colours = looks(loss for loss in LOSSES.values() if loss in (base, *losses))  # as over epochs
    for (loss, dataset), own in data.groupby(["loss", "dataset"], sort=False):
        at, mean = rows.index(dataset) + (losses.index(loss) - (len(losses) - 1) / 2) * thick, own["gain"].mean()
        axes.barh(at, mean, height=thick * 0.84, color=colours[loss].colour, alpha=0.85, label=loss)
        axes.plot(own["gain"], [at] * len(own), ".", color=INK, markersize=4)
        # In a column of their own, because next to a dot the number would look like the value of that dot.
        axes.text(1.02, at, f"{mean:+.1f}", transform=axes.get_yaxis_transform(), va="center", fontsize=7.5)
    axes.set(yticks=range(len(rows)), yticklabels=[*names, "average"], ylim=(len(rows) - 0.45, -0.55))
    axes.axvline(0, color=MUTED, linewidth=1)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"{losses[0] if len(losses) == 1 else 'loss'} minus {base} in points (dots: seeds)")
    name_series(figure, [axes])
    return figure
