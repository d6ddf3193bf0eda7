"""Accuracies on easy, confusing and hard test images, from the predictions that evaluations saved.

An image is easy if zero-shot CLIP's prediction is right. Otherwise it is confusing if the prediction is more probable
than the label by less than a gap, else hard.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from cocoamix.errors import UserError
from cocoamix.registry import plain_name
from cocoamix.run.predictions import FILE, Record, read_predictions

from ..frame import Frame
from ..labels import not_comparable, show
from ..names import dataset_name, simplify, sort_datasets
from .kinds import LOSS_KEYS, LOSSES, name_losses, one_kind, own_runs, shared

EASY, CONFUSING, HARD, ALL, NEW = "easy", "confusing", "hard", "all", "new"
PARTS = (EASY, CONFUSING, HARD, ALL)
ZERO_SHOT = "zero-shot CLIP"
_CURVES = ["dataset", "loss", "epoch", "seed", "images", "count", "accuracy"]
_GAINS = [
    "dataset",
    "loss",
    "epoch",
    "seed",
    "confusing",
    "images",
    "baseline",
    "baseline_accuracy",
    "accuracy",
    "gain",
]
_DIGITS = 1_000_000  # predictions are saved with six decimals


@dataclass(frozen=True)
class Difficulty:
    """The base test images of a dataset, divided by the predictions of zero-shot CLIP.

    Attributes:
        folder: The folder of the zero-shot run.
        parts: The part of each image, by its path.
        counts: The number of images of each part, and of all.
    """

    folder: str
    parts: pd.Series
    counts: pd.Series

    def accuracies(self, folder: str) -> pd.Series:
        """Return the accuracy in percent of another run on each part that has images, and on all images."""
        records = _read(folder)
        right = pd.Series({record.image: record.predicted == record.label for record in records}, dtype=bool)
        for image in sorted(set(right.index) ^ set(self.parts.index))[:1]:
            who, other = (folder, self.folder) if image in right.index else (self.folder, folder)
            raise UserError(
                f"{who} has a prediction for {image}, but {other} does not. Evaluate both on the same images."
            )
        present = self.counts[self.counts > 0]
        return 100 * _count(self.parts[right[self.parts.index]]).reindex(present.index) / present

    def by_seed(self, runs: pd.DataFrame, seeds: Sequence[Any]) -> dict[str, list[float]]:
        """Return the accuracies of runs on each part, in the order of the seeds."""
        folders = dict(zip(runs["seed"], runs["folder"], strict=True))
        found = pd.DataFrame([self.accuracies(folders[seed]) for seed in seeds])
        return {part: list(found[part]) for part in found}


def choose_prompts(frame: Frame, losses: Sequence[str]) -> pd.DataFrame:
    """Return the runs of learned prompts without an ensemble of some losses; refuse a loss with several settings."""
    prompts = name_losses(own_runs(frame.runs, "none"))
    prompts = prompts[prompts["loss"].isin(losses) & prompts["subset"].isin(["base", NEW])]
    need = "runs of CoCoAMix from base to new with TRAINER.COCOAMIX.ENSEMBLE none are needed"
    need = f"{need}, with {' or '.join(losses)} for LOSS"
    prompts = one_kind(prompts, LOSS_KEYS, ["loss", "setting", "epoch"], need)
    for loss, settings in prompts.groupby("loss")["setting"]:
        if settings.nunique() > 1:
            raise UserError(
                f"There are runs of {LOSSES[loss]} with {' and with '.join(settings.unique())}. Give the folders of "
                "one setting."
            )
    return prompts


# ---------------------------------------------------------------------------------------- the parts


def find_zero_shot(frame: Frame, prompts: pd.DataFrame, dataset: str, subset: str) -> Any:
    """Return the run of zero-shot CLIP whose protocol is that of the prompts; None if there is no run of either."""
    own = prompts[(prompts["dataset"] == dataset) & (prompts["subset"] == subset)]
    runs = frame.runs[(frame.runs["dataset"] == dataset) & (frame.runs["subset"] == subset)]
    runs = runs.loc[[simplify(plain_name(trainer)) == "zeroshotclip" for trainer in runs["trainer"]]]
    if runs.empty or own.empty:
        return None
    comparable = [run for run in runs.itertuples() if not any(not_comparable(run, one) for one in own.itertuples())]
    if not comparable:
        run = next(runs.itertuples())
        prompt, (key, value, other) = next((p, f[0]) for p in own.itertuples() if (f := not_comparable(run, p)))
        raise UserError(
            f"No run of ZeroshotCLIP on the {subset} classes of {dataset} can be compared with the learned prompts: "
            f"{key} is {show(value)} in {run.folder} and {show(other)} in {prompt.folder}. Give the output folder "
            "of a run of ZeroshotCLIP with the same protocol."
        )
    # Prefer runs that have predictions, then the newest.
    return max(comparable, key=lambda run: (Path(run.folder, FILE).is_file(), run.written, run.folder))


def split_images(frame: Frame, prompts: pd.DataFrame, dataset: str, gap: float) -> Difficulty:
    """Divide the base test images of a dataset by the gap between the probabilities of prediction and label."""
    run = find_zero_shot(frame, prompts, dataset, "base")
    if run is None:
        raise UserError(
            f"There is no run of ZeroshotCLIP on the base classes of {dataset}, which decides what is easy, confusing "
            "and hard. Run it with TEST.SAVE_PREDICTIONS True, and add its folder."
        )
    records = _read(run.folder)
    if not records:
        raise UserError(f"{run.folder} has no prediction for any image of {dataset}.")
    parts = pd.Series({record.image: _part(record, gap, run.folder) for record in records})
    return Difficulty(run.folder, parts, _count(parts))


def _count(parts: pd.Series) -> pd.Series:
    """Return the number of images of each part, and of all."""
    return parts.value_counts().reindex(PARTS, fill_value=0) + [0, 0, 0, len(parts)]


def _read(folder: str) -> list[Record]:
    """Return the predictions of a run for the images that could be read."""
    path = Path(folder, FILE)
    if not path.is_file():
        raise UserError(
            f"{folder} has no {FILE}, because its evaluation kept no predictions. Evaluate it again with "
            "TEST.SAVE_PREDICTIONS True."
        )
    return [record for record in read_predictions(path) if record.predicted]


def _part(record: Record, gap: float, folder: str) -> str:
    if record.predicted == record.label:
        return EASY
    if record.label_probability is None:
        raise UserError(
            f"{Path(folder, FILE)} has a wrong prediction for {record.image} without a label_probability, so its gap "
            "is unknown. Evaluate the run again with TEST.SAVE_PREDICTIONS True, on images of its classes."
        )
    # Rounded to the decimals of the file, because differences of floats are inexact.
    ahead = round((record.confidence - record.label_probability) * _DIGITS)
    return CONFUSING if ahead < round(gap * _DIGITS) else HARD


# ---------------------------------------------------------------------------------------- the data of the figures


def choose_dataset(prompts: pd.DataFrame, name: str | None) -> str:
    """Return the dataset that the user names, or the one with results for the most epochs."""
    base = prompts[prompts["subset"] == "base"]
    points = base.drop_duplicates(["dataset", "loss", "epoch"])["dataset"].value_counts()
    if not name:
        return max(sort_datasets(points.index), key=lambda dataset: points[dataset])
    chosen = name if name in points else dataset_name(name)
    if chosen not in points:
        known = ", ".join(sort_datasets(points.index))
        raise UserError(f"--curves names {name}, for which there is no run. There are: {known}.")
    return chosen


def find_curves(frame: Frame, prompts: pd.DataFrame, dataset: str, gap: float) -> pd.DataFrame:
    """Return the accuracy of each loss at each epoch and seed on each part, after that of zero-shot CLIP."""
    own = prompts[(prompts["dataset"] == dataset) & prompts["epoch"].notna()]
    base, new = own[own["subset"] == "base"], own[own["subset"] == NEW]
    if base.empty:
        raise UserError(
            f"No run of {dataset} on base classes has an epoch, because its models were selected on validation images. "
            "Evaluate with --load-epoch."
        )
    images = split_images(frame, prompts, dataset, gap)
    if not images.counts[CONFUSING]:
        raise UserError(
            f"None of the {images.counts[ALL]} images of {dataset} in {images.folder} is confusing: "
            f"{images.counts[EASY]} are predicted correctly, {images.counts[HARD]} wrong by {gap:g} or more. Choose "
            "another dataset or gap."
        )
    groups = list(base.groupby(["loss", "epoch"]))
    names = {f"{LOSSES[loss]} at epoch {epoch}": runs for (loss, epoch), runs in groups}
    seeds = shared("seed", names, f"on base classes of {dataset}")
    counts = {**images.counts, NEW: next(iter(new["images"]), pd.NA)}
    exact = {EASY: 100.0, CONFUSING: 0.0, HARD: 0.0, ALL: 100 * counts[EASY] / counts[ALL]}
    zero_shot = find_zero_shot(frame, prompts, dataset, NEW)
    if zero_shot is not None:
        exact[NEW] = zero_shot.metrics["accuracy"]
    rows = [(ZERO_SHOT, 0, pd.NA, part, value) for part, value in exact.items() if part == NEW or counts[part]]
    for (loss, epoch), runs in sorted(groups, key=lambda group: (list(LOSSES).index(group[0][0]), group[0][1])):
        values = images.by_seed(runs, seeds)
        point = new[(new["loss"] == loss) & (new["epoch"] == epoch)]
        whole = dict(zip(point["seed"], point["metrics"], strict=True))
        if all(seed in whole for seed in seeds):
            values[NEW] = [whole[seed]["accuracy"] for seed in seeds]
        for part, accuracies in values.items():
            rows += [(LOSSES[loss], epoch, seed, part, own) for seed, own in zip(seeds, accuracies, strict=True)]
    data = pd.DataFrame(rows, columns=["loss", "epoch", "seed", "images", "accuracy"]).astype({"seed": "Int64"})
    data = data.assign(dataset=dataset, count=data["images"].map(counts).astype("Int64"))
    return data[_CURVES]


def find_gains(frame: Frame, prompts: pd.DataFrame, losses: Sequence[str], gap: float) -> pd.DataFrame:
    """Return the gain of each loss over the first one on the confusing images of each dataset, by seed.

    All models are of the last epoch that every loss has on every dataset. Models that were selected on validation
    images have no epoch; they are the final ones of their training.
    """
    base = prompts[prompts["subset"] == "base"]
    by_loss = {LOSSES[loss]: base[base["loss"] == loss] for loss in losses}
    datasets = sort_datasets(shared("dataset", by_loss, "on base classes"))
    groups = {(d, loss): runs[runs["dataset"] == d] for d in datasets for loss, runs in by_loss.items()}
    named = {f"{loss} on {dataset}": runs for (dataset, loss), runs in groups.items()}
    epoch = shared("epoch", named, "on base classes")[-1]
    named = {name: runs[runs["epoch"].fillna(-1) == (-1 if epoch is pd.NA else epoch)] for name, runs in named.items()}
    seeds = shared("seed", named, "on base classes")
    first, *others = by_loss
    rows = []
    for dataset in datasets:
        images = split_images(frame, prompts, dataset, gap)
        if not images.counts[CONFUSING]:
            print(f"Left out: {dataset}, which has no confusing images in {images.folder}.", file=sys.stderr)
            continue
        about = images.counts[CONFUSING], images.counts[ALL], first
        before = images.by_seed(named[f"{first} on {dataset}"], seeds)
        for loss in others:
            after = images.by_seed(named[f"{loss} on {dataset}"], seeds)
            for seed, old, new in zip(seeds, before[CONFUSING], after[CONFUSING], strict=True):
                rows.append((dataset, loss, epoch, seed, *about, old, new, new - old))
    if not rows:
        raise UserError(f"None of {', '.join(datasets)} has confusing images. Choose a larger --datasets-gap.")
    return pd.DataFrame(rows, columns=_GAINS).astype({"epoch": "Int64", "seed": "Int64"})
