"""The rules of the synthetic datasets are decided by the numbers, at the stated thresholds."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from benchmarks import rules, weights
from benchmarks.rules import DEFAULT, Pair
from cocoamix.errors import UserError
from cocoamix.experiments.plan import load_plan
from cocoamix.experiments.runner import Outcome
from cocoamix.experiments.runs import Run
from cocoamix.run.results import RESULTS
from cocoamix.shapes import FAMILY, captions
from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("default", "best", "holds"),
    [
        ((60.0, 92.0), (60.0, 92.0), True),
        ((59.9, 80.0), (59.9, 80.0), False),
        ((80.0, 59.9), (80.0, 59.9), False),
        ((80.0, 92.1), (80.0, 92.1), False),
        ((90.0, 80.0), (90.0, 80.0), False),  # 90 is too much for base
        ((80.0, 80.0), (83.0, 81.0), True),  # better by 2 on the mean
        ((80.0, 80.0), (83.0, 81.2), False),
    ],
)
def test_zero_shot_rule_at_its_thresholds(default: tuple[float, float], best: tuple[float, float], holds: bool) -> None:
    (found,) = rules.check_zero_shot({"One": {DEFAULT: default, "{}.": best}})
    assert found.holds is holds


def seeds(base: float, new: float) -> list[Pair]:
    """Three seeds around a mean."""
    return [Pair(base + shift, new - shift) for shift in (-0.5, 0.0, 0.5)]


CLIP = {name: Pair(80.0, 80.0) for name in "abcde"}


@pytest.mark.parametrize(
    ("on_base", "on_new", "held"),
    [
        ([2, 2, 2, 2, 2], [-1.5] * 5, [True, True, True]),
        ([1.9] * 5, [-1.5] * 5, [False, True, True]),
        ([2] * 5, [-1.4] * 5, [True, False, True]),
        ([11, 1, 1, 1, -1], [-2] * 5, [True, True, True]),
        ([11, 1, 1, -1, -1], [-2] * 5, [True, True, False]),
        ([2] * 5, [-9, 1, 1, -1, -1], [True, True, False]),
    ],
)
def test_trade_off_rule_at_its_thresholds(on_base: list[float], on_new: list[float], held: list[bool]) -> None:
    coop = {name: seeds(80 + base, 80 + new) for name, base, new in zip("abcde", on_base, on_new, strict=True)}
    assert [one.holds for one in rules.check_trade_off(CLIP, coop)] == held


def test_assumption_is_a_paired_t_test() -> None:
    stats = pytest.importorskip("scipy.stats")
    coop = {name: seeds(80 + gain, 80 - gain / 2) for name, gain in zip("abcde", (1, 2, 3, 4, 5), strict=True)}
    base, new = rules.check_assumption(CLIP, coop)
    assert base.holds
    assert new.holds
    gains = [one.base - 80 for seeds in coop.values() for one in seeds]
    mean = sum(gains) / len(gains)
    deviation = math.sqrt(sum((one - mean) ** 2 for one in gains) / (len(gains) - 1))
    p = stats.t.sf(mean / (deviation / math.sqrt(len(gains))), len(gains) - 1)
    assert f"15 pairs: p = {p:.2g}" in base.words
    worse = {name: [Pair(one.new, one.base) for one in pairs] for name, pairs in coop.items()}
    assert [one.holds for one in rules.check_assumption(CLIP, worse)] == [False, False]


def test_every_template_of_a_style_is_tried() -> None:
    named = [text for text in rules.TEMPLATES if "{}" in text]
    assert len(named) == len(set(rules.TEMPLATES)) == len(rules.TEMPLATES)
    for words in captions._STYLE_WORDS.values():
        assert all(any(word in text for text in rules.TEMPLATES) for word in words if word != "sketched")
    assert "a drawing of the {}." in rules.TEMPLATES


PLANS = (
    *("quick", "methods", "quick_transfer", "quick_fscil", "methods_fscil"),
    *("quick_weights", "quick_assumption"),
    *("quick_confusing", "quick_losses", "quick_sensitivity", str(rules.__file__)),
)


@pytest.mark.parametrize("name", PLANS)
def test_plans_run_on_the_family(name: str) -> None:
    plan = load_plan(str(Path(name).with_suffix(".yaml")) if name.endswith(".py") else name)
    found = [one.stem for one in plan.datasets if one.stem != "shapes"]
    assert found == [one.folder for one in FAMILY]


@pytest.mark.parametrize("file", sorted((ROOT / "configs" / "trainers").glob("*FSCIL/tiny*.yaml")), ids=str)
def test_session_0_has_the_base_classes(file: Path) -> None:
    settings = yaml.safe_load(file.read_text())
    assert {settings["FSCIL"]["BASE"]} == {one.base for one in FAMILY}


def test_each_weights_file_has_separate_runs(tmp_path: Path) -> None:
    """Including those that replace others at the same path."""
    file = tmp_path / "tiny.safetensors"
    folders = set()
    for content in (b"one", b"two"):
        file.write_bytes(content)
        folders.add(rules.prepare(str(file), "").output)
    assert len(folders | {rules.prepare("", "").output}) == 3
    with pytest.raises(UserError, match="nothing is not a file"):
        rules.prepare("nothing", "")


def test_results_are_collected(tmp_path: Path) -> None:
    plan = rules.prepare("", str(tmp_path))
    clip, coop = plan.methods
    base = Run(plan, clip, plan.datasets[0], seed=1, shots=4, subset="base")
    runs = [replace(base, method=method, subset=subset) for method in (clip, coop) for subset in ("base", "new")]
    for number, run in enumerate(runs):
        run.folder.mkdir(parents=True)
        (run.folder / RESULTS).write_text(json.dumps({"metrics": {"accuracy": 70.0 + number}}))
    name = FAMILY[0].name
    assert rules.collect(Outcome(plan, runs)) == ({name: Pair(70.0, 71.0)}, {name: [Pair(72.0, 73.0)]})
    values = weights.collect(Outcome(plan, runs))
    assert values.loc[("CoOp", FAMILY[0].folder, "new", 1), "accuracy"] == 73.0


def test_runs_match_the_quick_start() -> None:
    """So the table and the rules use the same runs, and neither repeats the other's."""
    quick, own = load_plan("quick"), rules.prepare("", "")
    assert (own.output, own.store, own.seeds, own.shots) == (quick.output, quick.store, quick.seeds, quick.shots)
    assert [one.stem for one in quick.datasets] == [one.folder for one in FAMILY]
    assert all(dataset in own.datasets for dataset in quick.datasets)
    assert all(method in quick.methods for method in own.methods)
