"""Name the method of each run, so that runs which may not be averaged have different names.

The name is that of the trainer, or the user's, followed by whatever differs among the runs, in brackets. Runs of one
name on one dataset, subset and partition of the classes differ in the seed alone.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

from cocoamix.config import roles

from .logs import canonical
from .names import is_zero_shot, method_name

# Facts of the protocol that prevent a comparison of two accuracies on the same classes, as a note names them.
COMPARABLE = (
    *("splits.test", "evaluated_on", "backbone", "weights_sha256", "activation"),
    *("transforms.SIZE", "transforms.INTERPOLATION", "transforms.PIXEL_MEAN", "transforms.PIXEL_STD"),
)
CELL = ["dataset", "subset", "draw", "shots"]  # what the seeds behind one number share
SAME = 0.06  # points by which equal accuracies may differ, because logs have one decimal
_OF_CELL = ["splits.test", "templates"]  # facts that depend on the dataset
_FREE = ["dataset", "subset", "shots", "splits.train", "splits.folds", "centred", "calibrated"]  # by design, by seed
_UNSTATED = "not stated"

Names = Sequence[tuple[str, str]]


def label(runs: pd.DataFrame, names: Names, notes: list[str]) -> pd.Series:
    """Return the method of each run of one table: of one task, and one number of shots where tables have one.

    Args:
        runs: The runs.
        names: Pairs of a pattern, matched against Trainer/config and Trainer/config/variant, and a name.
        notes: Receives sentences on runs of one configuration that are not averaged, and why.
    """
    bases = pd.Series([_base(run, names) for run in runs.itertuples()], runs.index)
    methods = bases.copy()
    for base, own in runs.groupby(bases, sort=False):
        facts = _facts(own)
        differing = facts[_differing(own, facts, any(base == name for _, name in names))].map(show)
        notes += [note for key in differing if (note := _difference(f"{base}: {key}", own, differing[key]))]
        for words, kind in own.groupby(_describe(differing), sort=False):
            for place, part in kind.groupby(_places(kind), sort=False):
                text = ", ".join(filter(None, (words, place)))
                methods[part.index] = f"{base} [{text}]" if text else base
                silent = part["folder"][part["protocol"].map(len) == 0]
                if 0 < len(silent) < len(part):
                    notes.append(f"{base}: {silent.iloc[0]} states no protocol; that of the other runs is assumed.")
    return methods


def _base(run: Any, names: Names) -> str:
    """Return the user's name for the method of a run, or else that of its trainer."""
    texts = (f"{run.trainer}/{run.config}/{run.variant}", f"{run.trainer}/{run.config}", run.trainer)
    for pattern, name in names:
        if any(fnmatch.fnmatchcase(text, pattern) for text in texts):
            return name
    return run.title or method_name(run.trainer)


# ---------------------------------------------------------------------------------------- what differs


def _facts(runs: pd.DataFrame) -> pd.DataFrame:
    """Return what must agree among runs that are averaged, a column per fact; missing if a log does not state it."""
    facts = pd.DataFrame(list(runs["facts"]), runs.index, dtype=object)
    # Our own results state their whole protocol: what they lack does not hold for them.
    ours = runs["fingerprint"] != ""
    stated = list(dict.fromkeys(key for protocol in runs["protocol"][ours] for key in protocol))
    facts.loc[ours, stated] = facts.loc[ours, stated].where(facts[stated].notna(), _UNSTATED)
    # Hashes of different datasets cannot be compared: number them within each cell.
    for key in facts.columns.intersection(_OF_CELL):
        cells = facts[key].groupby([runs[column] for column in CELL], dropna=False)
        facts[key] = cells.transform(lambda values: pd.factorize(values)[0] + 1.0).where(facts[key].notna())
    return facts


def _differing(runs: pd.DataFrame, facts: pd.DataFrame, is_users: bool) -> list[str]:
    """Return the facts on which runs that must agree do not, as far as both state them."""
    keys = facts.columns[facts.nunique() > 1].difference(_FREE, sort=False)
    differing = []
    for key in sorted(keys, key=str.islower):  # settings before facts that follow from them
        scope = [runs[column] for column in _scope(key, is_users, runs["task"].iloc[0])]
        values = facts[key].mask(facts[key] == "auto")
        most = values.groupby(scope, dropna=False).nunique().max() if scope else values.nunique()
        differing += [key] if most > 1 else []
    return differing


def _scope(key: str, is_users: bool, task: str) -> list[str]:
    """Return what runs that must agree on a fact have in common.

    A user who names a method may have trained it with another setting on another dataset.
    """
    # Base and new, or source and targets, are combined as if of one model.
    model = ["shots"] if task == "transfer" else ["dataset", "draw", "shots"]
    if key in (*_OF_CELL, "config") or key.startswith("DATASET."):
        return CELL
    if not key.isupper():
        return model if key == "epoch" else []
    trained = roles.compared_in_model(key)
    if is_users:
        return model if trained else CELL
    return ["shots"] if trained else ["shots", "subset"]  # an evaluation need not repeat what only the loss uses


def _describe(facts: pd.DataFrame) -> pd.Series:
    """Describe runs by the fewest facts that tell them apart, without values that are the default."""
    kinds, words = facts.drop_duplicates(), pd.Series("", facts.index)
    for key in facts.columns[::-1]:
        if len(kinds.columns) > 1 and not kinds.drop(columns=key).duplicated().any():
            kinds = kinds.drop(columns=key)
    for key in kinds.columns:
        declared = roles.find(key)
        usual = show(canonical(declared.default)) if declared.ours else _UNSTATED
        text = f"{key.rsplit('.', 1)[-1] if key.isupper() else key}=" + facts[key]
        words += (", " + text).mask(facts[key].isin([usual, _UNSTATED]), "")
    return words.str.removeprefix(", ")


def _difference(what: str, runs: pd.DataFrame, values: pd.Series) -> str:
    """Describe two runs of one configuration that differ in a fact. Other configurations differ on purpose."""
    for _, alike in runs.assign(value=values).groupby(["config", "variant"], sort=False):
        kinds = alike.drop_duplicates("value")
        if len(kinds) > 1:
            texts = [f"{value} in {folder}" for value, folder in kinds[["value", "folder"]].to_numpy()[:2]]
            return f"{what} is {' and '.join(texts)}. Runs that differ in it are not averaged; each has its own row."
    return ""


def _places(runs: pd.DataFrame) -> pd.Series:
    """Tell runs with the same cell and seed apart by the folder below which they are, else by their configuration."""
    for places in (runs["rest"], runs["config"] + "/" + runs["variant"]):
        if _clash(runs) and not any(_clash(part) for _, part in runs.groupby(places)):
            common = os.path.commonpath(list(places))
            return places.str.removeprefix(common).str.strip("/")
    return pd.Series("", runs.index)


def _clash(runs: pd.DataFrame) -> bool:
    """Return whether two runs have the same cell and seed. Equal zero-shot results may occur several times."""
    repeated = runs[runs.duplicated([*CELL, "seed"], keep=False)]
    accuracy = repeated.groupby([*CELL, "seed"], dropna=False)["accuracy"]
    different = accuracy.max() - accuracy.min() > SAME
    return bool(different.any() or not repeated["trainer"].map(is_zero_shot).all())


# ---------------------------------------------------------------------------------------- for other modules


def not_comparable(run: Any, other: Any) -> list[tuple[str, Any, Any]]:
    """Return the facts that prevent a comparison of two runs on the same classes, as (key, value, value)."""
    pairs = [("partition", run.draw, other.draw)]
    pairs += [(key, run.protocol.get(key), other.protocol.get(key)) for key in COMPARABLE]
    return [pair for pair in pairs if None not in pair[1:] and pair[1] != pair[2]]


def show(value: Any) -> str:
    """Return a value of a configuration as a user would write it."""
    if isinstance(value, tuple):
        return "(" + ", ".join(map(show, value)) + ")"
    if value is None or value != value:  # nan
        return _UNSTATED
    text = str(value).removesuffix(".0") if isinstance(value, float) else str(value)
    return text[:12] if re.fullmatch(r"[0-9a-f]{32,}", text) else text or "empty"  # enough of a hash
