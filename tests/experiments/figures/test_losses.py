"""`losses`, `settings`, `sensitivity` and `gradient`: their numbers recomputed, and what they refuse."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.experiments.figures.conftest import Draw
from tests.experiments.trees import write_results

DATASETS, SEEDS = ("Alpha", "Beta"), (1, 2, 3)
# Folder of each configuration: the loss in figures, its setting, and the settings of the run.
LOSSES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "focal": ("focal", "\u03b3 2", {"LOSS": "focal", "GAMMA": 2.0}),
    "focal_5": ("focal", "\u03b3 5", {"LOSS": "focal", "GAMMA": 5.0}),
    "ce": ("CE", "", {"LOSS": "ce"}),
    "coa": ("CoA", "", {"LOSS": "coa", "W": 9.0}),  # a w without effect
    "ce_coa_1": ("CE + CoA", "w 1", {"LOSS": "ce+coa", "W": 1.0}),
    "ce_coa": ("CE + CoA", "w 5", {"LOSS": "ce+coa"}),  # 5 is the default
}
W = {"w0": 0.0, "w1": 1.0, "mix": 5.0, "w9": 9.0}
D = {"d0": 0.0, "mix": 0.2, "d5": 0.5}
Accuracies = dict[tuple[str, str, str, int], float]  # by configuration, subset, dataset and seed


def write(root: Path, config: str, dataset: str, subset: str, seed: int, accuracy: float, **settings: Any) -> None:
    epoch = settings.pop("epoch", 50)
    folder = root / f"base2new/test_{subset}/{dataset}/shots_4/CoCoAMix/{config}/seed{seed}"
    names = {"trainer": "CoCoAMix", "dataset": dataset, "subset": subset, "seed": seed, "epoch": epoch}
    config_node = {"OPTIM": {"MAX_EPOCH": 50}, "TRAINER": {"NAME": "CoCoAMix", "COCOAMIX": settings}}
    splits = {"splits": {"train": "t", "test": f"{dataset} {subset}"}, "dataset": dataset}
    write_results(folder, accuracy, **names, config=config_node, protocol=splits)


@pytest.fixture
def tree(tmp_path: Path) -> tuple[Path, Accuracies]:
    """Losses without an ensemble, and CoCoA-Mix over w and d; accuracies are random."""
    generator, root, accuracies = np.random.default_rng(1), tmp_path / "runs", {}
    plans = {config: {"ENSEMBLE": "none", **settings} for config, (_, _, settings) in LOSSES.items()}
    plans |= {config: {"ENSEMBLE": "coa", "W": w, "MARGIN": 0.2} for config, w in W.items()}
    plans |= {config: {"ENSEMBLE": "coa", "W": 5.0, "MARGIN": d} for config, d in D.items()}
    plans["no_out"] = {"ENSEMBLE": "coa", "OUT_CLASSES": "none"}
    for config, settings in plans.items():
        for subset, dataset, seed in ((s, d, n) for s in ("base", "new") for d in DATASETS for n in SEEDS):
            accuracy = accuracies[config, subset, dataset, seed] = round(float(generator.uniform(20, 90)), 3)
            write(root, config, dataset, subset, seed, accuracy, **settings)
    return root, accuracies


def means(rows: list[dict[str, str]], column: str, *keys: str) -> dict[tuple[str, ...], float]:
    """Return the means of a column by the values of others."""
    values: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        values.setdefault(tuple(row[key] for key in keys), []).append(float(row[column]))
    return {key: float(np.mean(own)) for key, own in values.items()}


def mean(accuracies: Accuracies, config: str, subset: str = "base") -> float:
    return float(np.mean([value for key, value in accuracies.items() if key[:2] == (config, subset)]))


def test_losses_and_settings_match_the_results(tree: tuple[Path, Accuracies], draw: Draw) -> None:
    """Earlier epochs and ensembles do not count."""
    root, accuracies = tree
    write(root, "ce_epoch5", "Alpha", "base", 1, 1.0, epoch=5, LOSS="ce", ENSEMBLE="none")
    write(root, "uniform", "Alpha", "base", 1, 1.0, ENSEMBLE="uniform")
    every = {LOSSES[config][:2]: mean(accuracies, config) for config in LOSSES}
    assert means(draw("settings", root)["settings"], "base_accuracy", "loss", "setting") == pytest.approx(every)
    usual = {key: value for key, value in every.items() if key[1] not in ("\u03b3 5", "w 1")}
    shown = means(draw("losses", root)["losses"], "base_accuracy", "loss", "setting")
    assert shown == pytest.approx(usual)
    assert [loss for loss, _ in shown] == ["focal", "CE", "CoA", "CE + CoA"]


def test_sensitivity_matches_the_results(tree: tuple[Path, Accuracies], draw: Draw) -> None:
    root, accuracies = tree
    expected = {("w", str(w), "0.2", "word", str(int(not w))): mean(accuracies, c) for c, w in W.items()}
    expected |= {("d", "5.0", str(d), "word", "0"): mean(accuracies, c, "new") for c, d in D.items()}
    expected["d", "5.0", "0.2", "none", "1"] = mean(accuracies, "no_out", "new")
    rows = draw("sensitivity", root)["sensitivity"]
    assert means(rows, "accuracy", "panel", "w", "d", "out_classes", "baseline") == pytest.approx(expected)


def test_means_cover_only_datasets_and_seeds_that_all_losses_have(tree: tuple[Path, Accuracies], draw: Draw) -> None:
    root, _ = tree
    folder = root / "base2new/test_base/Beta/shots_4/CoCoAMix/focal"
    shutil.rmtree(folder / "seed2")
    assert {row["seed"] for row in draw("losses", root)["losses"]} == {"1", "3"}
    shutil.rmtree(folder)
    assert {row["dataset"] for row in draw("losses", root)["losses"]} == {"Alpha"}


def test_losses_under_other_settings_are_refused(tree: tuple[Path, Accuracies], refused: Callable[..., str]) -> None:
    write(tree[0], "ctx", "Alpha", "base", 1, 50.0, LOSS="gce", ENSEMBLE="none", N_CTX=8)
    assert "N_CTX" in refused("losses", "--runs", tree[0])
    for folder in tree[0].glob("**/CoCoAMix/*"):
        if folder.name not in ("ce", "mix"):
            shutil.rmtree(folder)
    assert "LOSS" in refused("losses", "--runs", tree[0])
    assert "MARGIN" in refused("sensitivity", "--runs", tree[0])


def test_gradients_match_finite_differences(draw: Draw) -> None:
    def loss(label: float, wrong: float, w: float) -> float:
        p = 1 / (1 + math.exp(wrong - label))
        return -math.log(p) + w * (1 - p)

    step = 1e-5
    rows = draw("gradient")["gradient"]
    assert {row["w"] for row in rows} == {"0.0", "1.0", "3.0", "5.0", "7.0"}
    for row in ({key: float(value) for key, value in row.items()} for row in rows):
        label, wrong, w = math.log(row["p_label"]), math.log(1 - row["p_label"]), row["w"]
        slopes = {
            "label": (loss(label + step, wrong, w) - loss(label - step, wrong, w)) / (2 * step),
            "wrong": (loss(label, wrong + step, w) - loss(label, wrong - step, w)) / (2 * step),
        }
        for side, slope in slopes.items():
            assert row[f"{side}_closed"] == pytest.approx(slope, abs=1e-8)
            assert row[f"{side}_autograd"] == pytest.approx(slope, abs=1e-5)  # the loss computes in fp32
