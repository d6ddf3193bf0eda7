"""Choose runs of CoCoA-Mix that differ only in the settings which a figure varies."""

from __future__ import annotations

import sys
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
_LONGEST = 160  # characters of the list of folders that are left out
_WAYS_OUT = {
    "dataset": "Run what is missing, or give only output folders of runs on the same datasets.",
    "epoch": "Evaluate the models of one epoch with --load-epoch, and add these folders.",
    "seed": "Run what is missing, or give only output folders of runs with the same seeds.",
}


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
    """Return the runs of the kind with the most points, each once; print the others to stderr.

    Args:
        runs: Runs of a frame.
        varied: Settings in which the runs of a figure may differ.
        points: Columns that tell the points of the figure apart.
        need: What the figure needs, for the error message.
    """
    if runs.empty:
        raise UserError(f"There is no run to draw: {need}.")
    kinds = pd.Series([repr(sorted(_facts(run, varied).items())) for run in runs.itertuples()], runs.index)
    groups = [group for _, group in runs.groupby(kinds, sort=False)]
    groups.sort(key=lambda group: len(group[points].drop_duplicates()), reverse=True)
    chosen, *others = groups
    for other in others:
        why = _difference(next(other.itertuples()), next(chosen.itertuples()), varied)
        if len(other[points].drop_duplicates()) == len(chosen[points].drop_duplicates()):
            raise UserError(f"The runs are of several kinds: {why}. Give the folders of one kind.")
        print(f"Left out: {some_of(other['folder'], _LONGEST)}: {why}.", file=sys.stderr)
    check_images(chosen)
    # Of runs that agree in everything, the newest counts, whatever the order in which folders are read.
    newest = chosen.sort_values(["written", "folder"])
    return newest.drop_duplicates([*points, "dataset", "subset", "seed"], keep="last")


def check_settings(runs: pd.DataFrame, varied: Collection[str]) -> None:
    """Refuse runs that differ in shots, partition or settings other than those that a figure varies."""
    rows = [{**run.settings, "shots": run.shots, "partition": run.draw} for run in runs.itertuples()]
    facts = (
        pd.DataFrame(rows).drop(columns=list(varied), errors="ignore").astype(object).fillna("not stated").astype(str)
    )
    for key in facts.columns[facts.nunique() > 1]:
        if not key.startswith("DATASET."):
            values = " and ".join(facts[key].unique()[:3])
            raise UserError(f"The runs differ in {key}: {values}. Give the folders of runs that agree in it.")


def _facts(run: Any, varied: Collection[str]) -> dict[str, Any]:
    """Return the settings on which runs must agree. Images are compared by dataset."""
    facts = {k: v for k, v in run.settings.items() if k not in varied and not k.startswith("DATASET.")}
    return {**facts, "backbone": run.protocol.get("backbone"), "shots": str(run.shots)}


def _difference(run: Any, other: Any, varied: Collection[str]) -> str:
    facts, others = _facts(run, varied), _facts(other, varied)
    key = next(key for key in [*facts, *others] if facts.get(key) != others.get(key))
    return f"{key} is {show(facts.get(key))} in {run.folder} and {show(others.get(key))} in {other.folder}"


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
    """Return the values of a column that all groups of runs have; refuse groups that share none.

    Args:
        column: dataset, epoch or seed.
        groups: The runs of each point of a figure, by the name of the point.
        where: The runs in question, such as "on base classes".
    """
    values = {name: set(group[column].astype(object)) for name, group in groups.items()}
    common = set.intersection(*values.values())
    if common:
        return _sorted(common)
    listed = [f"{name} has {', '.join(map(_in_words, _sorted(own))) or 'none'}" for name, own in values.items()]
    raise UserError(printable(f"No {column} is shared by all runs {where}: {some_of(listed)}. {_WAYS_OUT[column]}"))


def _sorted(values: Iterable[Any]) -> list[Any]:
    return sorted(values, key=lambda value: (value is pd.NA, 0 if value is pd.NA else value))


def _in_words(value: Any) -> str:
    return "an unknown epoch" if value is pd.NA else str(value)


def seeds_in_words(seeds: Iterable[Any]) -> str:
    """Describe the seeds of a mean."""
    shown = [str(seed) for seed in seeds if seed is not pd.NA]
    if not shown:
        return "one run each"
    return f"seed {shown[0]}" if len(shown) == 1 else f"mean of seeds {', '.join(shown)}"
