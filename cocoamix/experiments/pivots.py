"""Pivots of the tidy frame: a row per method, dataset and seed, and their means over seeds and datasets."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from .names import is_zero_shot
from .stats import harmonic

INDEX = ["method", "dataset", "seed"]


def measures(values: pd.DataFrame) -> pd.DataFrame:
    """Return all metrics of whole runs, a column per subset and metric, such as `base_ece`."""
    chosen = values[values["session"].isna()]
    return _pivot(chosen.assign(name=chosen["subset"] + "_" + chosen["metric"]), "name")


def base_to_new(values: pd.DataFrame) -> pd.DataFrame:
    """Return base, new and H of each method, dataset and seed. H is computed for each seed, as in the paper."""
    wide = _pivot(_accuracy(values, "base2new"), "subset").reindex(columns=["base", "new"])
    return wide.assign(H=harmonic(wide["base"], wide["new"])).dropna(how="all")


def few_shot(values: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy on all classes, a column per number of shots: 0 for zero-shot methods, -1 for all images."""
    chosen = _accuracy(values, "few-shot")
    unknown = chosen["trainer"].map(is_zero_shot).map({True: 0, False: -1})
    return _pivot(chosen.assign(shots=chosen["shots"].fillna(unknown)), "shots").sort_index(axis=1)


def sessions(values: pd.DataFrame, metric: str = "accuracy") -> pd.DataFrame:
    """Return a metric (accuracy, base, novel) after each session, a column per session."""
    chosen = values[(values["task"] == "fscil") & values["metric"].eq(metric) & values["session"].notna()]
    return _pivot(chosen, "session").sort_index(axis=1)


def over_sessions(values: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy after each session, its mean, and PD, the first minus the last."""
    wide = sessions(values)
    return wide.assign(mean=wide.mean(axis=1, skipna=False), PD=wide.iloc[:, 0] - wide.iloc[:, -1])


def by_seed(wide: pd.DataFrame, datasets: Sequence[str]) -> pd.DataFrame:
    """Return the averages over datasets of each method and seed; missing where a dataset lacks the seed."""
    groups = wide[wide.index.isin(list(datasets), level="dataset")].groupby(level=["method", "seed"], sort=False)
    return groups.mean().where(groups.count() == len(datasets))


def over_datasets(wide: pd.DataFrame, datasets: Sequence[str]) -> pd.DataFrame:
    """Return mean, standard deviation and number of seeds of each column, averaged over datasets, by method.

    The mean is over the datasets' means over seeds. A method that lacks a dataset has no average. The deviation is that
    of the population, as in CoOp's parser, over the seeds' averages. A single seed has none. If datasets have different
    seeds, there is no deviation, and the number of seeds is 0.
    """
    chosen = wide[wide.index.isin(list(datasets), level="dataset")]
    cells = chosen.groupby(level=["method", "dataset"], sort=False)
    of_dataset, counts = cells.mean().groupby(level="method", sort=False), cells.count()
    mean = of_dataset.mean().where(of_dataset.count() == len(datasets))
    seeds = by_seed(wide, datasets).groupby(level="method", sort=False)
    same = counts.groupby(level="method", sort=False).max() == seeds.count()
    n = seeds.count().where(same, 0)
    return pd.concat({"mean": mean, "std": seeds.std(ddof=0).where(n > 1), "n": n}, axis=1)


def _accuracy(values: pd.DataFrame, task: str) -> pd.DataFrame:
    return values[values["task"].eq(task) & values["metric"].eq("accuracy") & values["session"].isna()]


def _pivot(values: pd.DataFrame, columns: str) -> pd.DataFrame:
    # A run without a seed still counts as one: pivots drop missing index values.
    chosen = values.assign(seed=values["seed"].fillna(-1))
    return chosen.pivot_table(index=INDEX, columns=columns, values="value", sort=False).rename_axis(columns=None)
