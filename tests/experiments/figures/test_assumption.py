"""`assumption`: its numbers recomputed from results with scipy, and missing or incompatible runs."""

from __future__ import annotations

import csv
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


def sentences(root: Path) -> list[str]:
    return (root.parent / "out" / "assumption.txt").read_text().splitlines()


def refused(capfd: pytest.CaptureFixture[str], root: Path, *more: str) -> str:
    """Return the error message of the command."""
    assert main(["assumption", "--runs", str(root), "--output", str(root.parent / "none"), *more]) == 2
    assert not (root.parent / "none").exists()
    return capfd.readouterr().err


def assert_tests(line: str, rows: list[dict[str, str]]) -> None:
    """Compare the numbers of a sentence with scipy's tests on the accuracies in the table."""
    for side, better, worse in (("in", "learned", "hand_crafted"), ("out", "hand_crafted", "learned")):
        first, second = ([float(row[f"{side}_{prompt}"]) for row in rows] for prompt in (better, worse))
        p = stats.ttest_rel(first, second, alternative="greater").pvalue
        assert f"p = {p:.2g})" in line
        assert f"{sum(first) / len(first) - sum(second) / len(second):+.2f}" in line
        assert f"on {side}-classes {'holds' if p < 0.05 else 'does not hold'}" in line


def test_numbers_of_random_halves_match_the_results(tree: Path) -> None:
    rows = draw(tree)
    assert [row["partition"] for row in rows] == ["random:1", "random:2", "random:3", "random:10"]
    for row, number in zip(rows, CLIP, strict=True):
        values = [float(row[f"{side}_{prompt}"]) for prompt in ("learned", "hand_crafted") for side in ("in", "out")]
        assert values == [*COOP[number], *CLIP[number]]
        assert float(row["in_difference"]) == COOP[number][0] - CLIP[number][0]
        assert float(row["out_difference"]) == CLIP[number][1] - COOP[number][1]
    assert_tests(sentences(tree)[0], rows)
    assert ", 4 pairs: " in sentences(tree)[0]


def test_label_and_random_halves_are_separate_groups(tree: Path) -> None:
    """Those by label of all datasets and seeds are one group; CLIP counts for every seed."""
    for dataset, (base, new) in {"DTD": (60.0, 62.0), "UCF101": (70.0, 75.0)}.items():
        write(tree, None, (base, new), trainer="ZeroshotCLIP", dataset=dataset)
        for seed in (10, 9):
            write(tree, None, (base + base / 20 + seed / 4, new - 2 - seed / 3), dataset=dataset, seed=seed)
    rows = draw(tree)
    assert [row["group"] for row in rows] == ["random halves of EuroSAT"] * 4 + ["halves by label"] * 4
    assert [row["seed"] for row in rows[4:]] == ["9", "10"] * 2
    assert_tests(sentences(tree)[1], rows[4:])
    means = [
        sum(float(row["in_difference"]) for row in rows if row["dataset"] == name) / 2 for name in ("DTD", "UCF101")
    ]
    assert f"2 pairs: p = {stats.ttest_1samp(means, 0, alternative='greater').pvalue:.2g} " in sentences(tree)[1]


def test_one_of_several_methods_can_be_chosen(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for number in COOP:
        write(tree, number, (70.0 + number, 70.0), trainer="KgCoOp")
        write(tree, number, (60.0 + number, 60.0), trainer="ZeroshotCLIP2")
    assert "CoOp, KgCoOp" in refused(capfd, tree)
    assert "Did you mean CoOp?" in refused(capfd, tree, "--learned", "CoOpp")
    rows = draw(tree, "--learned", "kgcoop")
    assert [float(row["in_learned"]) for row in rows] == [71.0, 72.0, 73.0, 80.0]
    assert [float(row["in_hand_crafted"]) for row in rows] == [CLIP[number][0] for number in CLIP]
    rows = draw(tree, "--learned", "CoOp", "--hand-crafted", "ZeroshotCLIP2")
    assert [float(row["in_hand_crafted"]) for row in rows] == [61.0, 62.0, 63.0, 70.0]


def test_missing_halves_and_seeds_are_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "runs"
    for number in COOP:
        write(root, number, COOP[number])
    assert "zero-shot" in refused(capfd, root)
    for number in (1, 2, 3):
        write(root, number, CLIP[number], trainer="ZeroshotCLIP")
    assert "CLIP has no result on the base classes of EuroSAT under random:10" in refused(capfd, root)
    folders = write(root, 10, CLIP[10], trainer="ZeroshotCLIP")
    (folders[1] / "results.json").write_text("{")
    message = refused(capfd, root)
    assert "CLIP has no result on the new classes of EuroSAT under random:10" in message
    assert str(folders[1]) in message
    write(root, 10, CLIP[10], trainer="ZeroshotCLIP")
    (write(root, 2, (75.0, 75.0), seed=2)[1] / "results.json").unlink()
    assert "CoOp has no result on the new classes of EuroSAT under random:2 with seed 2" in refused(capfd, root)


@pytest.mark.parametrize("number", [None, 1])
def test_a_single_pair_is_not_tested(tmp_path: Path, capfd: pytest.CaptureFixture[str], number: int | None) -> None:
    root = tmp_path / "runs"
    write(root, number, CLIP[1], trainer="ZeroshotCLIP")
    write(root, number, COOP[1])
    name = "halves by label" if number is None else "random halves of EuroSAT"
    assert name in refused(capfd, root)
    other = 2 if number is None else None  # among others, it is left out with a note
    write(root, other, CLIP[1], trainer="ZeroshotCLIP")
    for seed, shift in ((1, 0.0), (2, 0.5)):
        write(root, other, (COOP[1][0] + shift, 70.0), seed=seed)
    assert len(draw(root)) == 2
    assert name in sentences(root)[-1]


def test_incompatible_runs_are_not_mixed(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Runs of other shots, of other settings, and of a CLIP on other images."""
    write(tree, 3, COOP[3], shots=16)
    assert "4 and 16 shots" in refused(capfd, tree)
    write(tree, 3, COOP[3], protocol={"backbone": "RN50"})
    assert "RN50" in refused(capfd, tree)
    write(tree, 3, COOP[3])
    write(tree, 3, CLIP[3], trainer="ZeroshotCLIP", protocol={"splits": {"train": "t", "test": "others"}})
    assert "splits.test" in refused(capfd, tree)
