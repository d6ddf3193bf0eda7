"""Runs of CoCoA-Mix that differ only in the settings which a figure varies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from cocoamix.errors import UserError, printable, some_of
from cocoamix.registry import plain_name

from ..labels import not_comparable, show
from ..names import simplify

SECTION = "TRAINER.COCOAMIX."
# The losses of the learned prompt with their names in figures, in the paper's order.
LOSSES = {"focal": "focal", "gce": "GCE", "ce": "CE", "ce+mae": "CE + MAE", "coa": "CoA", "ce+coa": "CE + CoA"}
# The key of a loss's hyperparameter, its symbol and its default.
SETTINGS = {
    "focal": ("GAMMA", "\u03b3", 2.0),
    "gce": ("Q", "q", 0.7),
    "ce+mae": ("W", "w", 5.0),
    "ce+coa": ("W", "w", 5.0),
}
LOSS_KEYS = tuple(SECTION + key for key in ("LOSS", "W", "GAMMA", "Q"))


def own_runs(runs: pd.DataFrame, ensemble: str) -> pd.DataFrame:
    """Return the base-to-new runs of CoCoA-Mix with one kind of ensemble: coa, uniform or none."""
    own = [simplify(plain_name(trainer)) == "cocoamix" for trainer in runs["trainer"]]
    same = [settings.get(f"{SECTION}ENSEMBLE", "coa") == ensemble for settings in runs["settings"]]
    return runs[pd.Series(own, runs.index) & pd.Series(same, runs.index) & (runs["task"] == "base2new")]


def name_losses(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with a known loss, as `loss` (its key) and `setting` (its hyperparameter in words)."""
    losses = [str(settings.get(f"{SECTION}LOSS", "ce+coa")) for settings in runs["settings"]]
    texts = []
    for loss, settings in zip(losses, runs["settings"], strict=True):
        key, symbol, default = SETTINGS.get(loss, ("", "", 0.0))
        texts.append(f"{symbol} {settings.get(SECTION + key, default):g}" if key else "")
    return runs.assign(loss=losses, setting=texts).loc[[loss in LOSSES for loss in losses]]


def one_kind(runs: pd.DataFrame, varied: Collection[str], points: Sequence[str], need: str) -> pd.DataFrame:
    """Return the newest run of each point, dataset, subset and seed; refuse runs that differ in other settings."""
    if runs.empty:
        raise UserError(f"There is no run to draw: {need}.")
    check_settings(runs, varied)
    check_images(runs)
    newest = runs.sort_values(["written", "folder"])
    return newest.drop_duplicates([*points, "dataset", "subset", "seed"], keep="last")


def check_settings(runs: pd.DataFrame, varied: Collection[str]) -> None:
    """Refuse runs that differ in shots, partition or settings other than those that a figure varies."""
    rows = [{**run.settings, "shots": run.shots, "partition": run.draw} for run in runs.itertuples()]
    facts = pd.DataFrame(rows).drop(columns=list(varied), errors="ignore").astype(object).fillna("not stated")
    facts = facts.astype(str)
    for key in facts.columns[facts.nunique() > 1]:
        if not key.startswith("DATASET."):
            values = " and ".join(facts[key].unique()[:3])
            raise UserError(f"The runs differ in {key}: {values}. Give the folders of runs that agree in it.")


def check_images(runs: pd.DataFrame) -> None:
    """Refuse a comparison of accuracies on different images or of different models."""
    for _, cell in runs.groupby(["dataset", "subset"]):
        first, *others = cell.itertuples()
        for other in others:
            for key, value, second in not_comparable(first, other)[:1]:
                raise UserError(
                    f"{first.folder} and {other.folder} cannot be compared: {key} is {show(value)} in the first and "
                    f"{show(second)} in the second. Give the folders of one protocol."
                )


def shared(column: str, groups: Mapping[str, pd.DataFrame], where: str) -> list[Any]:
    """Return the values of a column that all groups of runs, `where` they are, have; refuse groups that share none."""
    values = {name: set(group[column]) for name, group in groups.items()}
    common = set.intersection(*values.values())
    if common:
        return sorted(common)
    listed = [f"{name} has {', '.join(map(str, sorted(own)))}" for name, own in values.items()]
    raise UserError(printable(f"No {column} is shared by all runs {where}: {some_of(listed)}. Run what is missing."))


def seeds_in_words(seeds: Iterable[Any]) -> str:
    """Describe the seeds of a mean."""
    shown = [str(seed) for seed in seeds if seed is not pd.NA]
    return f"seed {shown[0]}" if len(shown) == 1 else f"mean of seeds {', '.join(shown)}" if shown else "one run each"
