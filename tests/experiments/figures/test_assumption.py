"""`assumption`: its numbers recomputed from results with scipy, and incompatible runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from tests.experiments.figures.conftest import Draw
from tests.experiments.trees import write_results

# Accuracies on base and on new, of CLIP and of CoOp, by partition.
CLIP = {1: (80.0, 82.0), 2: (70.0, 75.5), 3: (76.0, 71.0), 10: (90.0, 60.0)}
COOP = {1: (84.0, 80.0), 2: (75.0, 75.0), 3: (79.5, 68.0), 10: (92.0, 61.0)}


def write(root: Path, number: int | None, accuracies: tuple[float, float], **changes: Any) -> None:
    """Write the runs on base and new classes under a random partition, or under CoOp's."""
    trainer, seed, dataset = changes.get("trainer", "CoOp"), changes.get("seed", 1), changes.get("dataset", "EuroSAT")
    protocol = {"partition": f"random:{number}"} if number else {}
    for part, half, accuracy in zip(("train_base", "test_new"), ("base", "new"), accuracies, strict=True):
        above = root / "base2new" / (f"random_{number}" if number else "") / part
        folder = above / dataset.lower() / "shots_4" / trainer / "vit_b16" / f"seed{seed}"
        recorded = {"splits": {"train": "t", "test": f"{dataset} {number} {half}"}, **protocol}
        recorded |= changes.get("protocol", {})
        write_results(folder, accuracy, **{**changes, "subset": half, "protocol": recorded})


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for number in CLIP:
        write(tmp_path / "runs", number, CLIP[number], trainer="ZeroshotCLIP")
        write(tmp_path / "runs", number, COOP[number])
    return tmp_path / "runs"


def test_numbers_match_the_results(tree: Path, draw: Draw, capfd: pytest.CaptureFixture[str]) -> None:
    """Halves by label of all datasets are one group; CLIP counts for every seed; means of seeds are tested, too."""
    for dataset, (base, new) in {"DTD": (60.0, 62.0), "UCF101": (70.0, 75.0)}.items():
        write(tree, None, (base, new), trainer="ZeroshotCLIP", dataset=dataset)
        for seed in (10, 9):
            write(tree, None, (base + base / 20 + seed / 4, new - 2 - seed / 3), dataset=dataset, seed=seed)
    rows = draw("assumption", tree)["assumption"]
    assert [row["group"] for row in rows] == ["random halves of EuroSAT"] * 4 + ["halves by label"] * 4
    assert [row["partition"] for row in rows[:4]] == [f"random:{number}" for number in CLIP]
    assert [row["seed"] for row in rows[4:]] == ["9", "10"] * 2
    sentence = capfd.readouterr().out
    for half, column in enumerate(("in_difference", "out_difference")):
        expected = [(1 - 2 * half) * (COOP[number][half] - CLIP[number][half]) for number in CLIP]
        assert [float(row[column]) for row in rows[:4]] == expected
        p = stats.ttest_1samp(expected, 0, alternative="greater").pvalue
        assert f"is {sum(expected) / 4:+.2f} points on average (p = {p:.2g}" in sentence
    means = [float(rows[n]["in_difference"]) / 2 + float(rows[n + 1]["in_difference"]) / 2 for n in (4, 6)]
    assert f"{stats.ttest_1samp(means, 0, alternative='greater').pvalue:.2g} over 2 means of seeds" in sentence


def test_incomplete_and_single_pairs_are_left_out(tree: Path, draw: Draw, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(tree / "base2new/random_2/test_new")
    write(tree, None, CLIP[1], trainer="ZeroshotCLIP")
    write(tree, None, COOP[1])
    rows = draw("assumption", tree)["assumption"]
    assert [row["partition"] for row in rows] == ["random:1", "random:3", "random:10"]
    assert "EuroSAT random:2" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("change", "word"),
    [({"trainer": "KgCoOp"}, "KgCoOp"), ({"shots": 16}, "shots"), ({"protocol": {"backbone": "RN50"}}, "RN50")],
)
def test_runs_that_cannot_be_paired_are_refused(
    tree: Path, refused: Callable[..., str], change: dict[str, Any], word: str
) -> None:
    write(tree, 3, COOP[3], **change)
    assert word in refused("assumption", "--runs", tree)
