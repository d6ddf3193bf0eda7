"""The comparison of weights: its figures recomputed from results, and the rule that judges CENTRE."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import weights
from benchmarks.weights import FinishedRun
from cocoamix.experiments.plan import load_plan
from cocoamix.run.results import Results
from tests.experiments.trees import session_entries


def run_of(seconds: float | None = None, weights: Any = None, **accuracies: float) -> FinishedRun:
    return FinishedRun(Results(metrics=accuracies).with_more({"weights": weights}), seconds)


def sessions_of(*accuracies: float) -> FinishedRun:
    return FinishedRun(Results.parse({"metrics": {}, "sessions": session_entries(accuracies)}, Path("results.json")))


def judged(one: float, two: float, sessions: float) -> bool:
    """Judge changes by CENTRE of H in one stage, H in two stages and the mean over sessions."""
    found = {
        (name + suffix, "d", "all", 1): run_of(harmonic_mean=70.0 + gain * bool(suffix))
        for name, gain in (("one stage", one), ("two stages", two))
        for suffix in ("", ", centred")
    }
    kept = {
        ("CoCoA-Mix" + suffix, "d", "all", 1): sessions_of(80.0 + sessions * bool(suffix))
        for suffix in ("", ", centred")
    }
    return weights.judge(found, kept)


def test_all_three_criteria_are_required() -> None:
    assert judged(0.1, 0.1, 0.0)
    assert not judged(-0.1, 5.0, 5.0)
    assert not judged(5.0, 0.0, 5.0)
    assert not judged(5.0, 5.0, -0.1)


def test_a_missing_run_gives_no_verdict() -> None:
    found = {("one stage", "d", "all", 1): run_of(harmonic_mean=70.0)}
    with pytest.raises(KeyError, match="one stage, centred"):
        weights.judge(found, {})


def test_the_plans_contain_the_compared_methods() -> None:
    planned = {method.name for method in load_plan("quick_weights").methods}
    assert planned >= {*weights.JUDGED, *weights.SHOWN, *(f"{name}, centred" for name in weights.JUDGED)}
    assert {method.name for method in load_plan("quick_fscil").methods} >= {"CoCoA-Mix", "CoCoA-Mix, centred"}


def test_row_has_the_means_over_seeds() -> None:
    found = {
        ("m", "d", "base", 1): run_of(2.0, {"pi_in": 0.5, "pi_out": 0.25}, accuracy=80.0),
        ("m", "d", "new", 1): run_of(accuracy=60.0),
        ("m", "d", "base", 2): run_of(4.0, {"pi_in": 0.7, "pi_out": 0.25}, accuracy=40.0),
        ("m", "d", "new", 2): run_of(accuracy=40.0),
        ("m", "d", "all", 1): run_of(accuracy=50.0, base_accuracy=55.0, new_accuracy=45.0, harmonic_mean=49.5),
    }
    row = weights.weights_table(found, ["m"])[-1]
    # H is the mean over seeds: (2 * 80 * 60 / 140 + 40) / 2.
    assert row == "| m | 60.00 | 50.00 | 54.29 | 50.00 | 55.00 | 45.00 | 49.50 | 0.600 | 0.250 | 3.0 |"


def test_sessions_are_averaged_within_a_run_first() -> None:
    found = {
        ("m", "a", "all", 1): sessions_of(90.0, 70.0),
        ("m", "b", "all", 1): sessions_of(60.0),
    }
    assert weights.session_means(found, "m") == pytest.approx((70.0, 65.0))
