"""Pivots of the tidy frame: a row per method, dataset and seed, and their means over seeds and datasets."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from .stats import harmonic

INDEX = ["method", "dataset", "seed"]


def base_to_new(values: pd.DataFrame) -> pd.DataFrame:
    """Return base, new and H of each method, dataset and seed. H is computed for each seed, as in the paper."""
    wide = _pivot(_of_runs(values, "base2new", "accuracy"), "subset").reindex(columns=["base", "new"])
    return wide.assign(H=harmonic(wide["base"], wide["new"])).dropna(how="all")


def all_classes(values: pd.DataFrame) -> pd.DataFrame:
    """Return the metrics of evaluations in which base and new classes share one label space, a column per metric."""
    chosen = values[(values["task"] == "base2new") & (values["subset"] == "all")]
    return _pivot(chosen, "metric")


def transfer(values: pd.DataFrame, source: str, targets: Sequence[str]) -> pd.DataFrame:
    """Return the accuracy on the source and on each target, their average and the mean of H(source, target), by seed.

    Args:
        values: Values of transfers from the source, and of zero-shot methods.
        source: The training dataset.
        targets: The datasets to which the models are transferred.
    """
    accuracy = values[values["metric"].eq("accuracy") & values["session"].isna()]
    wide = accuracy.pivot_table(index=["method", "seed"], columns="dataset", values="value", sort=False)
    wide = wide.reindex(columns=[source, *targets]).rename_axis(columns=None)
    both = wide[list(targets)].apply(lambda column: harmonic(wide[source], column))
    target, mean = wide[list(targets)].mean(axis=1, skipna=False), both.mean(axis=1, skipna=False)
    return wide.assign(target=target, H=mean)


def few_shot(values: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy on all classes, a column per number of shots; those of zero-shot methods are in column 0."""
    chosen = _of_runs(values, "few-shot", "accuracy")
    return _pivot(chosen.assign(shots=chosen["shots"].fillna(0)), "shots").sort_index(axis=1)


def sessions(values: pd.DataFrame, metric: str = "accuracy") -> pd.DataFrame:
    """Return a metric (accuracy, base, novel) after each session, a column per session."""
    chosen = values[(values["task"] == "fscil") & values["metric"].eq(metric) & values["session"].notna()]
    return _pivot(chosen, "session").sort_index(axis=1)


def over_sessions(values: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy after each session, its mean, and PD, the first minus the last."""
    wide = sessions(values)
    return wide.assign(mean=wide.mean(axis=1, skipna=False), PD=wide.iloc[:, 0] - wide.iloc[:, -1])


def metric(values: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return a metric of whole runs, a column per subset."""
    return _pivot(values[values["metric"].eq(name) & values["session"].isna()], "subset")


def by_dataset(wide: pd.DataFrame) -> pd.DataFrame:
    """Return mean, standard deviation and number of seeds of each column, by method and dataset.

    The deviation is that of the population, as in CoOp's parser; a single seed has none.
    """
    return _summarise(wide.groupby(level=["method", "dataset"], sort=False))


def over_datasets(wide: pd.DataFrame, datasets: Sequence[str]) -> pd.DataFrame:
    """Return mean, standard deviation and number of seeds of each column, averaged over datasets, by method.

    The mean is over the datasets' means over seeds. A method that lacks a dataset has no average. The deviation is over
    the seeds' averages, if all datasets have the same seeds.
    """
    means = wide.groupby(level=["method", "dataset"], sort=False).mean()
    full = pd.MultiIndex.from_product([means.index.unique("method"), list(datasets)], names=["method", "dataset"])
    average = means.reindex(full).groupby(level="method", sort=False).agg(lambda column: column.mean(skipna=False))
    counts = wide.groupby(level=["method", "dataset"], sort=False).count().reindex(full)
    whole = counts.groupby(level="method", sort=False).nunique().eq(1) & average.notna()
    of_seed = wide[wide.index.isin(list(datasets), level="dataset")].groupby(level=["method", "seed"], sort=False)
    complete = of_seed.mean().where(of_seed.count() == len(datasets))
    shared = _summarise(complete.groupby(level="method", sort=False))
    same = shared["n"].reindex(average.index).eq(counts.groupby(level="method", sort=False).min()) & whole
    std, n = shared["std"].reindex(average.index).where(same), shared["n"].reindex(average.index).where(same, 0)
    return pd.concat({"mean": average, "std": std, "n": n.astype(int)}, axis=1)


def _summarise(groups: pd.api.typing.DataFrameGroupBy) -> pd.DataFrame:
    count = groups.count()
    return pd.concat({"mean": groups.mean(), "std": groups.std(ddof=0).where(count > 1), "n": count}, axis=1)


def _of_runs(values: pd.DataFrame, task: str, metric: str) -> pd.DataFrame:
    """Return the values of a metric of whole runs."""
    return values[values["task"].eq(task) & values["metric"].eq(metric) & values["session"].isna()]


def _pivot(values: pd.DataFrame, columns: str) -> pd.DataFrame:
    # A run without a seed still counts as one: pivots drop missing index values.
    chosen = values.assign(seed=values["seed"].fillna(-1))
    return chosen.pivot_table(index=INDEX, columns=columns, values="value", sort=False).rename_axis(columns=None)
