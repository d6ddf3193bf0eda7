"""The comparison of weights: its figures recomputed from results, and the rule that judges CENTRE."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import weights
from cocoamix.experiments.plan import load_plan
from cocoamix.run.results import Results
from tests.experiments.trees import session_entries

Key = tuple[str, str, str, int]


def values(seconds: float | None = None, pi: Any = None, **accuracies: float) -> dict[str, Any]:
    return weights.values_of(Results(metrics=accuracies).with_more({"weights": pi}), seconds)


def sessions(*accuracies: float) -> dict[str, Any]:
    content = {"metrics": {}, "sessions": session_entries(accuracies)}
    return weights.values_of(Results.parse(content, Path("results.json")))


def frame(runs: dict[Key, dict[str, Any]]) -> Any:
    return weights.frame({**dict(zip(weights.KEYS, key, strict=True)), **run} for key, run in runs.items())


def judged(one: float, two: float, over_sessions: float) -> bool:
    """Judge changes by CENTRE of H in one stage, H in two stages and the mean over sessions."""
    runs = {
        (name + suffix, "d", "all", 1): values(harmonic_mean=70.0 + gain * bool(suffix))
        for name, gain in (("one stage", one), ("two stages", two))
        for suffix in ("", ", centred")
    }
    kept = {
        ("CoCoA-Mix" + suffix, "d", "all", 1): sessions(80.0 + over_sessions * bool(suffix))
        for suffix in ("", ", centred")
    }
    return weights.judge(frame(runs), frame(kept))


def test_all_three_criteria_are_required() -> None:
    assert judged(0.1, 0.1, 0.0)
    assert not judged(-0.1, 5.0, 5.0)
    assert not judged(5.0, 0.0, 5.0)
    assert not judged(5.0, 5.0, -0.1)


def test_a_missing_run_gives_no_verdict() -> None:
    runs = frame({("one stage", "d", "all", 1): values(harmonic_mean=70.0)})
    with pytest.raises(KeyError, match="one stage, centred"):
        weights.judge(runs, runs)


def test_the_plans_contain_the_compared_methods() -> None:
    planned = {method.name for method in load_plan("quick_weights").methods}
    assert planned >= {*weights.JUDGED, *weights.SHOWN, *(f"{name}, centred" for name in weights.JUDGED)}
    assert {method.name for method in load_plan("quick_fscil").methods} >= {"CoCoA-Mix", "CoCoA-Mix, centred"}


def test_rows_have_the_means_over_seeds() -> None:
    runs = {
        ("m", "d", "base", 1): values(2.0, {"pi_in": 0.5, "pi_out": 0.25}, accuracy=80.0),
        ("m", "d", "new", 1): values(accuracy=60.0),
        ("m", "d", "base", 2): values(4.0, {"pi_in": 0.7, "pi_out": 0.25}, accuracy=40.0),
        ("m", "d", "new", 2): values(accuracy=40.0),
        ("m", "d", "all", 1): values(accuracy=50.0, base_accuracy=55.0, new_accuracy=45.0, harmonic_mean=49.5),
        ("n", "d", "base", 1): values(accuracy=1.0),
    }
    table = weights.markdown(weights.weights_table(frame(runs), ["m", "n"]), "weights").splitlines()
    # H is the mean over seeds: (2 * 80 * 60 / 140 + 40) / 2.
    assert table[2:] == [
        "| m | 60.00 | 50.00 | 54.29 | 50.00 | 55.00 | 45.00 | 49.50 | 0.60 | 0.25 | 3.00 |",
        "| n | 1.00 |  |  |  |  |  |  |  |  |  |",
    ]
    assert weights.datasets_table(frame(runs), ["m"]).loc["m", "d"] == "0.60, 60.0"


def test_sessions_are_averaged_within_a_run_first() -> None:
    runs = frame({("m", "a", "all", 1): sessions(90.0, 70.0), ("m", "b", "all", 1): sessions(60.0)})
    means = runs.groupby("method")[["mean accuracy", "after the last"]].mean()
    assert means.loc["m"].tolist() == pytest.approx([70.0, 65.0])
