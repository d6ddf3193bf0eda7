"""`assumption`: its numbers recomputed from results with scipy, and missing or incompatible runs."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from cocoamix.experiments.figures import main
from tests.experiments.trees import write_results

# Accuracies on base and on new, of CLIP and of CoOp, by partition.
CLIP = {1: (80.0, 82.0), 2: (70.0, 75.5), 3: (76.0, 71.0), 10: (90.0, 60.0)}
COOP = {1: (84.0, 80.0), 2: (75.0, 75.0), 3: (79.5, 68.0), 10: (92.0, 61.0)}


def write(root: Path, number: int | None, accuracies: tuple[float, float], **changes: Any) -> list[Path]:
    """Write the runs on base and new classes under a random partition, or under CoOp's."""
    trainer, seed, dataset = changes.get("trainer", "CoOp"), changes.get("seed", 1), changes.get("dataset", "EuroSAT")
    protocol, folders = changes.pop("protocol", {}), []
    for part, half, accuracy in zip(("train_base", "test_new"), ("base", "new"), accuracies, strict=True):
        above = root / "base2new" / ("" if number is None else f"random_{number}")
        folders.append(above / part / dataset.lower() / "shots_4" / trainer / "vit_b16" / f"seed{seed}")
        recorded = {"splits": {"train": "t", "test": f"{dataset} {number} {half}"}, **protocol}
        recorded |= {} if number is None else {"partition": f"random:{number}"}
        write_results(folders[-1], accuracy, **{**changes, "subset": half}, protocol=recorded)
    return folders


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for number in CLIP:
        write(tmp_path / "runs", number, CLIP[number], trainer="ZeroshotCLIP")
        write(tmp_path / "runs", number, COOP[number])
    return tmp_path / "runs"


def draw(root: Path, *more: str) -> list[dict[str, str]]:
    """Return the data of the figure."""
    assert main(["assumption", "--runs", str(root), "--output", str(root.parent / "out"), *more]) == 0
    with (root.parent / "out" / "assumption.csv").open() as file:
        return list(csv.DictReader(file))


def sentence(root: Path) -> str:
    return (root.parent / "out" / "assumption.txt").read_text()


def refused(capfd: pytest.CaptureFixture[str], root: Path, *more: str) -> str:
    """Return the error message of the command."""
    assert main(["assumption", "--runs", str(root), "--output", str(root.parent / "none"), *more]) == 2
    assert not (root.parent / "none").exists()
    return capfd.readouterr().err


def test_numbers_of_random_halves_match_the_results(tree: Path) -> None:
    rows = draw(tree)
    assert [row["partition"] for row in rows] == ["random:1", "random:2", "random:3", "random:10"]
    for row, number in zip(rows, CLIP, strict=True):
        values = [float(row[f"{side}_{prompt}"]) for prompt in ("learned", "hand_crafted") for side in ("in", "out")]
        assert values == [*COOP[number], *CLIP[number]]
    for column, sign in (("in_difference", 1), ("out_difference", -1)):
        half = sign < 0
        expected = [sign * (COOP[number][half] - CLIP[number][half]) for number in CLIP]
        assert [float(row[column]) for row in rows] == expected
        p = stats.ttest_1samp(expected, 0, alternative="greater").pvalue
        assert f"is {sum(expected) / 4:+.2f} points on average (p = {p:.2g}" in sentence(tree)


def test_halves_by_label_of_all_datasets_are_one_group(tree: Path) -> None:
    """CLIP counts for every seed; the means of seeds are tested, too."""
    for dataset, (base, new) in {"DTD": (60.0, 62.0), "UCF101": (70.0, 75.0)}.items():
        write(tree, None, (base, new), trainer="ZeroshotCLIP", dataset=dataset)
        for seed in (10, 9):
            write(tree, None, (base + base / 20 + seed / 4, new - 2 - seed / 3), dataset=dataset, seed=seed)
    rows = draw(tree)
    assert [row["group"] for row in rows] == ["random halves of EuroSAT"] * 4 + ["halves by label"] * 4
    assert [row["seed"] for row in rows[4:]] == ["9", "10"] * 2
    means = [float(rows[n]["in_difference"]) / 2 + float(rows[n + 1]["in_difference"]) / 2 for n in (4, 6)]
    assert f"{stats.ttest_1samp(means, 0, alternative='greater').pvalue:.2g} over 2 means of seeds" in sentence(tree)


def test_one_of_several_methods_can_be_chosen(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for number in COOP:
        write(tree, number, (70.0 + number, 70.0), trainer="KgCoOp")
    assert "CoOp, KgCoOp" in refused(capfd, tree)
    assert "--learned" in refused(capfd, tree, "--learned", "CoOpp")
    assert [float(row["in_learned"]) for row in draw(tree, "--learned", "kgcoop")] == [71.0, 72.0, 73.0, 80.0]


def test_incomplete_and_single_pairs_are_left_out(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(tree / "base2new/random_2/test_new")
    write(tree, None, CLIP[1], trainer="ZeroshotCLIP")
    write(tree, None, COOP[1])
    assert [row["partition"] for row in draw(tree)] == ["random:1", "random:3", "random:10"]
    assert "EuroSAT random:2" in capfd.readouterr().err


def test_incompatible_runs_are_not_mixed(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tree, 3, COOP[3], shots=16)
    assert "16 shots" in refused(capfd, tree)
    write(tree, 3, COOP[3], protocol={"backbone": "RN50"})
    assert "RN50" in refused(capfd, tree)
