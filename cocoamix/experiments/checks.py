"""Notes on results that are averaged or compared although they may not be alike."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from .frame import Frame

_PACKAGES = ("cocoamix", "torch")
_ROUNDING = 0.11  # points by which accuracy and error may miss 100: each has one decimal in logs


def check(frame: Frame) -> list[str]:
    """Return sentences on different versions, different test images, and metrics that contradict each other."""
    return [*_versions(frame.runs), *_images(frame.runs), *_errors(frame)]


def _versions(runs: pd.DataFrame) -> Iterator[str]:
    for package in _PACKAGES:
        stated = runs.assign(version=[versions.get(package) for versions in runs["versions"]]).dropna(subset="version")
        for (method, *_), members in stated.groupby(["method", "task", "source"], sort=False):
            first = members.drop_duplicates("version")
            if len(first) > 1:
                listed = "; ".join(f"{run.version} in {run.folder}" for run in first[:3].itertuples())
                yield f"{method}: its runs are of different versions of {package}: {listed}."


def _images(runs: pd.DataFrame) -> Iterator[str]:
    stated = runs.dropna(subset="images")
    for (dataset, subset, *_), members in stated.groupby(["dataset", "subset", "draw", "task"], sort=False):
        first = members.drop_duplicates("images")
        if len(first) > 1:
            listed = "; ".join(f"{run.images:,} in {run.folder}" for run in first[:3].itertuples())
            yield f"{dataset}, {subset} classes: different numbers of images were evaluated: {listed}."


def _errors(frame: Frame) -> Iterator[str]:
    metrics = frame.values[frame.values["session"].isna()].pivot_table(index="run", columns="metric", values="value")
    if "error_rate" not in metrics:
        return
    wrong = metrics[(metrics["accuracy"] + metrics["error_rate"] - 100).abs() > _ROUNDING]
    for run, values in wrong.iterrows():
        yield (
            f"{frame.runs.loc[run, 'folder']}: its accuracy is {values['accuracy']:.2f} and its error_rate is "
            f"{values['error_rate']:.2f}, which contradict each other."
        )
