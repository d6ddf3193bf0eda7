"""`confusing`: the effect of a loss on test images that zero-shot CLIP misclassifies by a narrow margin.

An image is easy if zero-shot CLIP's prediction is right. Otherwise it is confusing if the prediction is more probable
than the label by less than a gap, else hard.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cocoamix.errors import UserError
from cocoamix.run.predictions import FILE, read_predictions

from ..labels import not_comparable
from ..names import is_clip, sort_datasets
from . import source
from .charts import draw_lines, draw_rows, over_seeds
from .losses import LOSS_KEYS, LOSSES, prompts
from .source import Choice, Plans
from .style import Drawing

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
_GAINS = [*_CURVES[:4], "confusing", "images", "baseline_accuracy", "accuracy", "gain"]
_DIGITS = 1_000_000  # predictions are saved with six decimals


def make(args: argparse.Namespace) -> Iterator[Drawing]:
    """Yield the gains on all datasets, or the curves of each dataset with several epochs."""
    frame = source.find_frame(args, _PLANS[args.figure])
    runs = choose_runs(frame.runs)
    if args.figure == "gains":
        yield source.captioned(_gains(runs), frame, runs)
        return
    for dataset in sort_datasets(runs["dataset"]):
        own = runs[runs["dataset"] == dataset]
        if own["epoch"].nunique() > 2:  # zero-shot CLIP is of epoch 0
            yield source.captioned(_curves(own, dataset), frame, own)


# ---------------------------------------------------------------------------------------- the numbers


def choose_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of the losses without an ensemble, and comparable ones of zero-shot CLIP, by `loss`."""
    trained = prompts(runs, "none").dropna(subset="epoch")
    trained = trained.assign(loss=trained["LOSS"].map(LOSSES))
    if not {BASELINE} < set(trained["loss"]):
        raise UserError("Runs with TRAINER.COCOAMIX.LOSS ce are needed, and with another loss to compare with CE.")
    source.check_alike(trained, LOSS_KEYS)
    for (loss, epoch), kinds in trained.groupby(["loss", "epoch"])["method"]:
        if kinds.nunique() > 1:  # of different settings of the loss, or in several folders
            raise UserError(f"{loss} at epoch {epoch} has several kinds: {', '.join(kinds.unique())}. Choose one.")
    zero = runs[runs["trainer"].map(is_clip).astype(bool)].sort_values("written")
    # Those with predictions, and with the protocol of the prompts on the same images.
    usable = [run.subset == "new" or Path(run.folder, FILE).is_file() for run in zero.itertuples()]
    cells = {(run.dataset, run.subset): run for run in trained.itertuples()}
    first = [cells.get((run.dataset, run.subset)) for run in zero.itertuples()]
    agrees = [run and not not_comparable(own, run) for own, run in zip(zero.itertuples(), first, strict=True)]
    newest = zero[usable & np.array(agrees, bool)].drop_duplicates(["dataset", "subset"], keep="last")
    return pd.concat([newest.assign(loss=ZERO_SHOT, epoch=0, seed=pd.NA), trained])


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


# ---------------------------------------------------------------------------------------- the figures


def _curves(runs: pd.DataFrame, dataset: str) -> Drawing:
    """Return the figure of the accuracies over epochs, of the seeds that all losses have at all epochs."""
    data = measure(runs, _GAPS["confusing"])
    zero = data["loss"] == ZERO_SHOT
    data = pd.concat([data[zero], source.complete(data[~zero], ["seed"], ["loss", "epoch", "images"])])
    last = data[data["epoch"] == data.groupby("loss")["epoch"].transform("max")]
    means = last.groupby(["loss", "images"], sort=False)["accuracy"].mean()
    values = ", ".join(f"{loss} {mean:.1f} on {part}" for (loss, part), mean in means.items())
    counts = data.drop_duplicates("images").set_index("images")["count"]
    sentence = (
        f"Test images of {dataset} under zero-shot CLIP: {', '.join(f'{n} {part}' for part, n in counts.items())}; "
        f"confusing means wrong by less than {_GAPS['confusing']:g}. Accuracy in % after the last epoch, mean over "
        f"seeds: {values}."
    )
    panels = {}
    for part, own in data.groupby("images", sort=False):
        share = f"{counts[part]} images" if part in (ALL, NEW) else f"{100 * counts[part] / counts[ALL]:.1f} %"
        x = own["epoch"].astype(float).where(own["loss"] != ZERO_SHOT)
        panels[f"{part}: {share}"] = over_seeds(own.assign(method=own["loss"], x=x, value=own["accuracy"]))
    title = f"Easy, confusing and hard test images under zero-shot CLIP: {dataset}"
    drawn = partial(draw_lines, panels, title=title, x_label="epoch", shared=False)
    return Drawing("confusing", title, sentence, drawn, data)


def _gains(runs: pd.DataFrame) -> Drawing:
    """Return the figure of the gain of each loss over CE on the confusing images of each dataset, by seed.

    All models are of the last epoch that every loss has on every dataset.
    """
    base = runs[runs["subset"] == "base"]
    data = pd.concat(
        [measure(base[base["dataset"] == name], _GAPS["gains"]) for name in sort_datasets(base["dataset"])]
    )
    totals = data[data["images"] == ALL].drop_duplicates("dataset").set_index("dataset")["count"]
    data = data[(data["images"] == CONFUSING) & (data["loss"] != ZERO_SHOT)]
    # An average over datasets is of the same datasets for every loss.
    data = data[data.groupby("dataset")["loss"].transform("nunique") == data["loss"].nunique()]
    data = source.complete(data, ["epoch", "seed"], ["dataset", "loss"])
    data = data[data["epoch"] == data["epoch"].max()].rename(columns={"count": "confusing"})
    first = data[data["loss"] == BASELINE].rename(columns={"accuracy": "baseline_accuracy"})
    data = data[data["loss"] != BASELINE].merge(first[["dataset", "seed", "baseline_accuracy"]])
    data = data.assign(images=data["dataset"].map(totals), gain=data["accuracy"] - data["baseline_accuracy"])

    average = data.groupby(["loss", "seed"], sort=False)["gain"].mean().reset_index().assign(dataset="average")
    whole = pd.concat([data, average])
    means = whole.groupby(["loss", "dataset"], sort=False)["gain"].mean()
    values = ", ".join(f"{loss} {mean:+.1f} on {dataset}" for (loss, dataset), mean in means.items())
    sentence = f"Gain over CE in points at epoch {data['epoch'].iloc[0]}, mean over seeds: {values}."
    counted = whole["dataset"] + "\n" + whole["confusing"].astype(str) + " images"
    rows = whole.assign(row=counted.where(whole["dataset"] != "average", "average"))
    title = f"Gain on confusing images (wrong by less than {_GAPS['gains']:g} under zero-shot CLIP)"
    words = f"{' and '.join(data['loss'].unique()) if data['loss'].nunique() < 2 else 'loss'} minus CE in points"
    drawn = partial(
        draw_rows,
        rows.rename(columns={"loss": "series", "gain": "value"}),
        title=title,
        x_label=words,
        note=lambda own: f"{own.mean():+.1f}",
    )
    return Drawing("gains", title, sentence, drawn, data[_GAINS])
