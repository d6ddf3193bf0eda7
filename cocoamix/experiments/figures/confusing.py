"""`confusing`: the effect of a loss on test images that zero-shot CLIP misclassifies by a narrow margin.

An image is easy if zero-shot CLIP's prediction is right. Otherwise it is confusing if the prediction is more probable
than the label by less than a gap, else hard.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from cocoamix.errors import UserError
from cocoamix.run.predictions import FILE, read_predictions

from ..frame import Frame
from ..labels import not_comparable
from ..names import is_clip, sort_datasets
from . import source
from .charts import draw_lines, draw_rows, over_seeds
from .losses import LOSS_KEYS, LOSSES, prompts
from .source import Choice, Plans
from .style import Drawing, Style

_TITLE = "Easy, confusing and hard test images under zero-shot CLIP"
_GAINED = "Gain on confusing images (wrong by less than 0.5 under zero-shot CLIP)"
_THREE = ("CLIP", "CE", "CE + CoA")
_PLANS = {  # all losses and epochs on one dataset, or the paper's loss on all datasets after the last epoch
    "confusing": Plans(
        [Choice("quick_confusing", datasets=("texture_colour",))], [Choice("confusing", datasets=("eurosat",))]
    ),
    "gains": Plans([Choice("quick_confusing", _THREE)], [Choice("confusing", _THREE)]),
}
ZERO_SHOT, BASELINE = "zero-shot CLIP", "CE"
EASY, CONFUSING, HARD, ALL, NEW = "easy", "confusing", "hard", "all", "new"
_ORDER = {name: place for place, name in enumerate([ZERO_SHOT, *LOSSES.values(), EASY, CONFUSING, HARD, ALL, NEW])}
_GAPS = {"confusing": 0.2, "gains": 0.5}  # of the paper
_CURVES = ["dataset", "loss", "epoch", "seed", "images", "count", "accuracy"]
_GAINS = [*_CURVES[:4], "confusing", "images", "baseline", "baseline_accuracy", "accuracy", "gain"]
_DIGITS = 1_000_000  # predictions are saved with six decimals


def make(args: argparse.Namespace) -> Iterator[Drawing]:
    """Yield the gains on all datasets, or the curves of each dataset with several epochs."""
    frame = source.find_frame(args, _PLANS[args.figure])
    runs = choose_runs(frame)
    if args.figure == "gains":
        gains = find_gains(runs, _GAPS["gains"])
        drawing = Drawing("gains", _GAINED, _describe_gains(gains), partial(_draw_gains, gains), gains)
        yield source.captioned(drawing, replace(frame, runs=runs))
        return
    for dataset in sort_datasets(runs["dataset"]):
        own = runs[runs["dataset"] == dataset]
        if own["epoch"].nunique() > 2:  # zero-shot CLIP is of epoch 0
            curves = find_curves(own, _GAPS["confusing"])
            title = f"{_TITLE}: {dataset}"
            drawn = partial(_draw_curves, curves, title)
            drawing = Drawing("confusing", title, _describe_curves(curves), drawn, curves)
            yield source.captioned(drawing, replace(frame, runs=own))


# ---------------------------------------------------------------------------------------- the numbers


def choose_runs(frame: Frame) -> pd.DataFrame:
    """Return the runs of the losses without an ensemble, and comparable ones of zero-shot CLIP, by `loss`."""
    trained = prompts(frame.runs, "none").dropna(subset="epoch")
    trained = trained.assign(loss=trained["LOSS"].map(LOSSES))
    if not {BASELINE} < set(trained["loss"]):
        raise UserError(
            f"Runs with TRAINER.COCOAMIX.LOSS ce are needed, and with another loss to compare with {BASELINE}."
        )
    source.check_alike(trained, LOSS_KEYS)
    for (loss, epoch), kinds in trained.groupby(["loss", "epoch"])["method"]:
        if kinds.nunique() > 1:  # of different settings of the loss, or in several folders
            raise UserError(f"{loss} at epoch {epoch} has several kinds: {', '.join(kinds.unique())}. Choose one.")
    zero = frame.runs[[is_clip(run.trainer) and _agrees(run, trained) for run in frame.runs.itertuples()]]
    newest = zero.sort_values("written").drop_duplicates(["dataset", "subset"], keep="last")
    return pd.concat([newest.assign(loss=ZERO_SHOT, epoch=0, seed=pd.NA), trained])


def _agrees(zero: Any, trained: pd.DataFrame) -> bool:
    """Return whether a run of zero-shot CLIP has predictions, and the protocol of the prompts on the same images."""
    same = trained[(trained["dataset"] == zero.dataset) & (trained["subset"] == zero.subset)]
    usable = zero.subset == "new" or Path(zero.folder, FILE).is_file()
    return usable and len(same) > 0 and not any(not_comparable(zero, run) for run in same.itertuples())


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
    data = tables.merge(parts, on="image").groupby(keys, dropna=False)["right"].agg(["mean", "count"]).reset_index()
    whole = new.assign(images=NEW, count=new["images"], accuracy=[metrics["accuracy"] for metrics in new["metrics"]])
    data = pd.concat([data.assign(accuracy=100 * data["mean"]), whole[[*keys, "count", "accuracy"]]])
    data = data.sort_values(keys, key=lambda own: own.map(lambda value: _ORDER.get(value, value)), ignore_index=True)
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


def find_curves(runs: pd.DataFrame, gap: float) -> pd.DataFrame:
    """Return the accuracies over epochs on one dataset, of the seeds that all losses have at all epochs."""
    data = measure(runs, gap)
    trained = data["loss"] != ZERO_SHOT
    return pd.concat([data[~trained], source.complete(data[trained], ["seed"], ["loss", "epoch", "images"])])


def find_gains(runs: pd.DataFrame, gap: float) -> pd.DataFrame:
    """Return the gain of each loss over CE on the confusing images of each dataset, by seed.

    All models are of the last epoch that every loss has on every dataset.
    """
    base = runs[runs["subset"] == "base"]
    data = pd.concat([measure(base[base["dataset"] == name], gap) for name in sort_datasets(base["dataset"])])
    totals = data[data["images"] == ALL].drop_duplicates("dataset").set_index("dataset")["count"]
    data = data[(data["images"] == CONFUSING) & (data["loss"] != ZERO_SHOT)]
    # An average over datasets is of the same datasets for every loss.
    data = data[data.groupby("dataset")["loss"].transform("nunique") == data["loss"].nunique()]
    data = source.complete(data, ["epoch", "seed"], ["dataset", "loss"])
    data = data[data["epoch"] == data["epoch"].max()].rename(columns={"count": "confusing"})
    first = data[data["loss"] == BASELINE].rename(columns={"accuracy": "baseline_accuracy"})
    data = data[data["loss"] != BASELINE].merge(first[["dataset", "seed", "baseline_accuracy"]])
    gain = data["accuracy"] - data["baseline_accuracy"]
    return data.assign(images=data["dataset"].map(totals), baseline=BASELINE, gain=gain)[_GAINS]


# ---------------------------------------------------------------------------------------- words and figures


def _describe_curves(data: pd.DataFrame) -> str:
    """Describe the parts, and the accuracies of each loss after its last epoch."""
    last = data[data["epoch"] == data.groupby("loss")["epoch"].transform("max")]
    means = last.groupby(["loss", "images"], sort=False)["accuracy"].mean()
    values = ", ".join(f"{loss} {mean:.1f} on {part}" for (loss, part), mean in means.items())
    counts = ", ".join(f"{row['count']} {row['images']}" for _, row in data.drop_duplicates("images").iterrows())
    return (
        f"Test images of {data['dataset'].iloc[0]} under zero-shot CLIP: {counts}; confusing means wrong by less than "
        f"{_GAPS['confusing']:g}. Accuracy in % after the last epoch, mean over seeds: {values}."
    )


def _describe_gains(data: pd.DataFrame) -> str:
    """Describe the mean gain of each loss on each dataset, and their average."""
    means = data.groupby(["loss", "dataset"], sort=False)["gain"].mean()
    values = [f"{loss} {mean:+.1f} on {dataset}" for (loss, dataset), mean in means.items()]
    values += [f"{loss} {mean:+.1f} on average" for loss, mean in means.groupby("loss", sort=False).mean().items()]
    epoch = data["epoch"].iloc[0]
    return f"Gain over {BASELINE} in points at epoch {epoch}, mean over seeds: {', '.join(values)}."


def _draw_curves(data: pd.DataFrame, title: str, style: Style) -> Figure:
    """Draw accuracies over epochs in a panel for each part, whose title has its share of the base test images."""
    counts = data.drop_duplicates("images").set_index("images")["count"]
    panels = {}
    for part, own in data.groupby("images", sort=False):
        share = f"{counts[part]} images" if part in (ALL, NEW) else f"{100 * counts[part] / counts[ALL]:.1f} %"
        x = own["epoch"].astype(float).where(own["loss"] != ZERO_SHOT)
        panels[f"{part}: {share}"] = over_seeds(own.assign(method=own["loss"], x=x, value=own["accuracy"]))
    return draw_lines(panels, style, title, "epoch", shared=False)


def _draw_gains(data: pd.DataFrame, style: Style) -> Figure:
    """Draw a row for each dataset and for their average, with a dot for each seed."""
    average = data.groupby(["loss", "seed"], sort=False)["gain"].mean().reset_index().assign(row="average")
    names = data["dataset"] + "\n" + data["confusing"].astype(str) + " images"
    rows = pd.concat([data.assign(row=names), average]).rename(columns={"loss": "series", "gain": "value"})
    losses = " and ".join(data["loss"].unique()) if data["loss"].nunique() == 1 else "loss"
    words = f"{losses} minus {BASELINE} in points (dots: seeds)"
    # The number is in a column of its own: next to a dot it would look like the value of that dot.
    return draw_rows(rows, style, _GAINED, words, note=lambda values: f"{values.mean():+.1f}")
