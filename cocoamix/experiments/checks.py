"""Notes on results that are averaged or compared although they may not be alike."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from .frame import Frame

_PACKAGES = ("cocoamix", "torch")
_ROUNDING = 0.11  # points by which accuracy and error may miss 100: each has one decimal in logs


def check(frame: Frame) -> list[str]:
    """Return sentences on different versions, different test images, and metrics that contradict each other."""
    runs = frame.runs.assign(**{name: [of.get(name) for of in frame.runs["versions"]] for name in _PACKAGES})
    notes = [note for name in _PACKAGES for note in _unlike(runs, name, ["method", "task", "source"])]
    return [*notes, *_unlike(runs, "images", ["dataset", "subset", "draw", "task"]), *_errors(frame)]


def describe_caveats(frame: Frame) -> str:
    """Return which runs must not be read without a remark; "" if there are none."""
    counts = frame.runs["caveats"].explode().dropna().value_counts()
    texts = [f"{caveat} ({count} of {len(frame.runs)} runs)" for caveat, count in counts.items()]
    return f"Caveats: {'; '.join(texts)}." if texts else ""


def _unlike(runs: pd.DataFrame, fact: str, alike: list[str]) -> Iterator[str]:
    """Yield which runs that are alike state different facts."""
    for names, members in runs.dropna(subset=fact).groupby(alike, sort=False):
        first = members.drop_duplicates(fact)[[fact, "folder"]].head(3)
        if len(first) > 1:
            listed = "; ".join(f"{value} in {folder}" for value, folder in first.itertuples(index=False))
            yield f"{', '.join(filter(None, names))}: {fact} differs: {listed}."


def _errors(frame: Frame) -> Iterator[str]:
    for run in frame.runs.itertuples():
        error = run.metrics.get("error_rate")
        if error is not None and abs(run.accuracy + error - 100) > _ROUNDING:
            yield f"{run.folder}: accuracy {run.accuracy:.2f} and error_rate {error:.2f} contradict each other."
