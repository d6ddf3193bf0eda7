"""`cocoamix figures assumption`: its numbers recomputed from results.json, its runs, and bad input."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cocoamix.figures import assumption
from cocoamix.figures.assumption import COLUMNS, STEM
from cocoamix.figures.command import main
from cocoamix.figures.sources import Choice, Plans
from tests.conftest import ROOT, TINY, write_dataset
from tests.experiments.trees import write_results

FIGURES = [f"{STEM}{colours}.{kind}" for colours in ("", "-dark") for kind in ("svg", "png")]
# Accuracies on base and on new, of CLIP and of CoOp, by partition.
CLIP = {1: (80.0, 82.0), 2: (70.0, 75.5), 3: (76.0, 71.0), 4: (90.0, 60.0)}
COOP = {1: (84.0, 80.0), 2: (75.0, 75.0), 3: (79.5, 68.0), 4: (92.0, 61.0)}


def write(root: Path, number: int | None, accuracies: tuple[float, float], **changes: Any) -> list[Path]:
    """Write the runs on base and new classes under a random partition, or under CoOp's."""
    trainer, seed, dataset = changes.get("trainer", "CoOp"), changes.get("seed", 1), changes.get("dataset", "EuroSAT")
    protocol = changes.pop("protocol", {})
    folders = []
    for part, half, accuracy in zip(("train_base", "test_new"), ("base", "new"), accuracies, strict=True):
        above = root / "base2new" / ("" if number is None else f"random_{number}")
        folders.append(above / part / dataset.lower() / "shots_4" / trainer / "vit_b16" / f"seed{seed}")
        recorded = {"splits": {"train": "t", "test": f"{dataset} {number} {half}"}, **protocol}
        recorded |= {} if number is None else {"partition": f"random:{number}"}
        write_results(folders[-1], accuracy, **{**changes, "subset": half}, protocol=recorded)
    return folders


def write_tree(root: Path) -> Path:
    for number in CLIP:
        write(root, number, CLIP[number], trainer="ZeroshotCLIP")
        write(root, number, COOP[number])
    return root


def draw(capfd: pytest.CaptureFixture[str], root: Path, *more: str) -> tuple[str, list[dict[str, str]]]:
    """Return the output of the command, and its table."""
    out = root.parent / "out"
    assert main([STEM, "--runs", str(root), "--output", str(out), *more]) == 0, capfd.readouterr().err
    with (out / f"{STEM}.csv").open() as file:
        reader = csv.DictReader(file)
        assert tuple(reader.fieldnames or ()) == COLUMNS
        return capfd.readouterr().out, list(reader)


def refused(capfd: pytest.CaptureFixture[str], root: Path, *more: str) -> str:
    """Return the error message of the command."""
    assert main([STEM, "--runs", str(root), "--output", str(root.parent / "none"), *more]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert not list(root.parent.glob("none/*"))
    return captured.err


def in_results(root: Path) -> dict[tuple[str, str, str], dict[str, float]]:
    """Return accuracies by dataset, partition and seed, read without the report."""
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    zero: dict[tuple[str, str], dict[str, float]] = {}
    for path in root.rglob("results.json"):
        results = json.loads(path.read_text())
        where = results["dataset"], results["protocol"].get("partition", "label")
        side = {"base": "in", "new": "out"}[results["subset"]]
        if results["trainer"].endswith("ZeroshotCLIP"):
            zero.setdefault(where, {})[f"{side}_hand_crafted"] = results["metrics"]["accuracy"]
        else:
            found.setdefault((*where, str(results["seed"])), {})[f"{side}_learned"] = results["metrics"]["accuracy"]
    return {key: {**values, **zero[key[:2]]} for key, values in found.items()}


def assert_table(rows: list[dict[str, str]], root: Path) -> None:
    wanted = in_results(root)
    assert len(rows) == len(wanted)
    for row in rows:
        values = wanted[row["dataset"], row["partition"], row["seed"]]
        assert {key: float(row[key]) for key in values} == values
        assert float(row["in_difference"]) == pytest.approx(values["in_learned"] - values["in_hand_crafted"])
        assert float(row["out_difference"]) == pytest.approx(values["out_hand_crafted"] - values["out_learned"])


def assert_tests(line: str, rows: list[dict[str, str]], level: float = 0.05) -> None:
    """Compare the figures of a sentence with scipy's tests on the accuracies in the table."""
    scipy = pytest.importorskip("scipy.stats")
    held = []
    for words, better, worse in (("in", "learned", "hand_crafted"), ("out", "hand_crafted", "learned")):
        one, other = ([float(row[f"{words}_{side}"]) for row in rows] for side in (better, worse))
        p = scipy.ttest_rel(one, other, alternative="greater").pvalue
        gain = sum(one) / len(one) - sum(other) / len(other)
        assert re.search(rf"on {words}-classes \S+ minus \S+ is {re.escape(f'{gain:+.2f}')}\b", line)
        assert f"p = {p:.2g})" in line
        held.append(p < level)
    stated = ["Both inequalities" in line or "on in-classes holds" in line]
    stated.append("Both inequalities" in line or "on out-classes holds" in line)
    assert stated == held
    assert ("Neither inequality of the assumption holds" in line) is not any(held)
    assert f", {len(rows)} pairs: " in line


def test_numbers_of_random_halves_match_the_results(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = write_tree(tmp_path / "runs")
    output, rows = draw(capfd, root)
    assert_table(rows, root)
    assert {row["group"] for row in rows} == {"random halves of EuroSAT"}
    sentence = output.splitlines()[0]
    assert_tests(sentence, rows)
    assert "on in-classes holds at 0.05; the one on out-classes does not." in sentence
    names = [f"{STEM}.csv", f"{STEM}.txt", *FIGURES]
    assert output.splitlines()[1] == f"Written to {tmp_path / 'out'}: {', '.join(names)}"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names)
    assert (tmp_path / "out" / f"{STEM}.txt").read_text() == f"{sentence}\n"
    shown = (tmp_path / "out" / f"{STEM}.svg").read_text()
    for text in ("in-classes: CoOp", "out-classes: CLIP", "random halves of", "n = 4"):
        assert text in shown


def test_label_and_random_halves_are_separate_groups(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Those by label of all datasets and seeds are one group; CLIP counts for every seed."""
    root = write_tree(tmp_path / "runs")
    for dataset, (base, new) in {"DTD": (60.0, 62.0), "UCF101": (70.0, 75.0)}.items():
        write(root, None, (base, new), trainer="ZeroshotCLIP", dataset=dataset)
        for seed in (1, 2):
            write(root, None, (base + 3 + seed / 4, new - 2 - seed / 3), dataset=dataset, seed=seed)
    output, rows = draw(capfd, root)
    assert_table(rows, root)
    groups = {name: [row for row in rows if row["group"] == name] for name in {row["group"] for row in rows}}
    assert {name: len(members) for name, members in groups.items()} == {
        "random halves of EuroSAT": 4,
        "halves by label": 4,
    }
    for line in output.splitlines()[:2]:
        name = line[0].lower() + line[1:].split(",")[0]
        assert_tests(line, groups[name])
    by_label = next(line for line in output.splitlines() if line.startswith("Halves by label"))
    assert "Both inequalities of the assumption hold at 0.05." in by_label


def test_order_does_not_follow_folder_names(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Random halves come first, by number: random_10 sorts before random_2, and train_base after random_1."""
    for number in (10, None, 2):
        write(tmp_path / "runs", number, (70.0, 70.0), trainer="ZeroshotCLIP")
        for seed in (10, 9):
            write(tmp_path / "runs", number, (70.0 + seed, 70.0), seed=seed)
    _, rows = draw(capfd, tmp_path / "runs")
    wanted = [(name, seed) for name in ("random:2", "random:10", "label") for seed in ("9", "10")]
    assert [(row["partition"], row["seed"]) for row in rows] == wanted


def test_equal_differences_use_the_limit_of_p(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for number, (base, new) in CLIP.items():
        write(tmp_path / "runs", number, (base, new), trainer="ZeroshotCLIP")
        write(tmp_path / "runs", number, (base + 1, new))
    output, _ = draw(capfd, tmp_path / "runs")
    assert "+1.00 points on average (one-sided paired t-test, p = 0)" in output
    assert "CLIP minus CoOp is +0.00 (p = 0.5)" in output
    assert "nan" not in output.lower()


def test_one_of_several_methods_can_be_chosen(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = write_tree(tmp_path / "runs")
    for number in COOP:
        write(root, number, (70.0 + number, 70.0), trainer="KgCoOp")
        write(root, number, (60.0 + number, 60.0), trainer="ZeroshotCLIP2")
    assert "several trained methods: CoOp, KgCoOp. Choose one with --learned" in refused(capfd, root)
    message = refused(capfd, root, "--learned", "CoOpp")
    assert "--learned CoOpp: no trained method has that name. Did you mean CoOp? There are: CoOp, KgCoOp." in message
    _, rows = draw(capfd, root, "--learned", "kgcoop")
    assert [float(row["in_learned"]) for row in rows] == [71.0, 72.0, 73.0, 74.0]
    assert [float(row["in_hand_crafted"]) for row in rows] == [CLIP[number][0] for number in CLIP]
    _, rows = draw(capfd, root, "--learned", "CoOp", "--hand-crafted", "ZeroshotCLIP2")
    assert [float(row["in_hand_crafted"]) for row in rows] == [61.0, 62.0, 63.0, 64.0]


# ---------------------------------------------------------------------- bad input


def test_missing_runs_are_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "runs"
    assert f"{root} does not exist" in refused(capfd, root)
    root.mkdir()
    assert f"There is no run below {root}" in refused(capfd, root)
    write_results(root / "eurosat" / "CoOp" / "vit_b16_4shots" / "seed1", 70.0, subset="all")
    message = refused(capfd, root)
    assert f"There is no run on base or new classes below {root}. The figure needs CLIP and a trained method" in message
    assert "--partitions is for runs of a plan" in refused(capfd, root, "--partitions", "1")


def test_a_missing_half_is_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "runs"
    for number in COOP:
        write(root, number, COOP[number])
    assert "There is no zero-shot run. The figure compares" in refused(capfd, root)
    for number in (1, 2, 3):
        write(root, number, CLIP[number], trainer="ZeroshotCLIP")
    assert "CLIP has no result on the base classes of EuroSAT under random:4" in refused(capfd, root)
    folders = write(root, 4, CLIP[4], trainer="ZeroshotCLIP")
    (folders[1] / "results.json").write_text("{")
    message = refused(capfd, root)
    assert "CLIP has no result on the new classes of EuroSAT under random:4" in message
    assert f"{folders[1]}: results.json cannot be used" in message


def test_missing_seeds_are_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = write_tree(tmp_path / "runs")
    (write(root, 2, (75.0, 75.0), seed=2)[1] / "results.json").unlink()
    assert "CoOp has no result on the new classes of EuroSAT under random:2 with seed 2" in refused(capfd, root)


@pytest.mark.parametrize("number", [None, 1])
def test_a_single_pair_is_not_tested(tmp_path: Path, capfd: pytest.CaptureFixture[str], number: int | None) -> None:
    root = tmp_path / "runs"
    write(root, number, CLIP[1], trainer="ZeroshotCLIP")
    write(root, number, COOP[1])
    message = refused(capfd, root)
    name = "halves by label (EuroSAT" if number is None else "random halves of EuroSAT (EuroSAT under random:1"
    assert f"There is only one pair for {name}, seed 1), and a paired test needs two. Add runs of other" in message
    # Among others, it is skipped with a note.
    other = 2 if number is None else None
    for seed, shift in ((1, 0.0), (2, 0.5)):
        write(root, other, (COOP[1][0] + shift, 70.0), seed=seed)
    write(root, other, CLIP[1], trainer="ZeroshotCLIP")
    output, rows = draw(capfd, root)
    assert len(rows) == 2
    assert "There is only one pair for " in output
    assert "which is left out: a paired test needs two." in output


def test_incompatible_runs_are_not_mixed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Runs of other shots, of other settings, and of a CLIP on other images or weights."""
    root = write_tree(tmp_path / "runs")
    write(root, 3, COOP[3], shots=16)
    assert "The runs of CoOp are of 16 and 4 shots" in refused(capfd, root)
    write(root, 3, COOP[3], config={"OPTIM": {"MAX_EPOCH": 200}})
    write(root, 3, COOP[3], protocol={"backbone": "RN50"})
    assert "several trained methods: CoOp [backbone=ViT-B/16], CoOp [backbone=RN50]" in refused(capfd, root)
    write(root, 3, COOP[3])
    write(root, 3, CLIP[3], trainer="ZeroshotCLIP", protocol={"splits": {"train": "t", "test": "others"}})
    message = refused(capfd, root)
    assert "cannot be compared: splits.test is EuroSAT 3 base in the first and others in the second" in message


# ---------------------------------------------------------------------- runs started for the figure


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ten classes, a configuration, and a plan of two random partitions of them."""
    folder = tmp_path_factory.mktemp("assumption")
    write_dataset(folder / "data")
    (folder / "tiny.yaml").write_text(TINY)
    methods = [
        {"name": "CLIP", "trainer": "ZeroshotCLIP", "config": "tiny.yaml", "train": False},
        {"name": "CoOp", "trainer": "CoOp", "config": "tiny.yaml"},
    ]
    plan = {"task": "base2new", "datasets": ["eurosat"], "shots": 4, "seeds": [1], "partitions": [1, 2]}
    (folder / "plan.yaml").write_text(yaml.safe_dump({**plan, "store": "features", "methods": methods}))
    return folder


@pytest.fixture
def ours(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(place)
    choice = Choice(str(place / "plan.yaml"))
    monkeypatch.setattr(assumption, "_PLANS", Plans(choice, choice))
    return place


@pytest.mark.slow
def test_missing_runs_are_completed_first(ours: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = [STEM, "--root", "data", "--run-output", "runs", "--output", "out"]
    assert main(arguments) == 0, capfd.readouterr()
    output = capfd.readouterr().out
    assert output.startswith("8 runs are needed first: ")
    with Path("out", f"{STEM}.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["partition"] for row in rows] == ["random:1", "random:2"]
    assert_table(rows, Path("runs"))
    assert_tests(next(line for line in output.splitlines() if line.startswith("Random halves of EuroSAT")), rows)
    # The same from the runs alone, and nothing is repeated.
    assert main(arguments) == 0
    assert "needed first" not in capfd.readouterr().out
    assert main([STEM, "--runs", "runs", "--output", "again"]) == 0
    for name in (f"{STEM}.csv", f"{STEM}.txt", f"{STEM}.svg"):
        assert Path("again", name).read_bytes() == Path("out", name).read_bytes()


START = """
import sys
from cocoamix.figures import assumption
from cocoamix.figures.command import main
from cocoamix.figures.sources import Choice, Plans
choice = Choice("plan.yaml")
assumption._PLANS = Plans(choice, choice)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_resumes_after_being_killed(place: Path) -> None:
    """With SIGKILL after the first run, in a training, and once more: the files match an undisturbed run."""

    def start(folder: str) -> subprocess.Popen[str]:
        arguments = [STEM, "--root", "data", "--run-output", f"{folder}-runs", "--output", folder, "-j", "1"]
        command = [sys.executable, "-u", "-c", START, *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.PIPE, text=True)

    whole = start("whole")
    assert whole.communicate()[0]
    assert whole.returncode == 0
    for line in (r"^\[1/8\]", r"^\[2/7\]", r"^\[1/5\]"):
        process = start("killed")
        assert process.stdout is not None
        assert any(re.match(line, one) for one in process.stdout), line
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert not list(place.glob("killed/*"))
    last = start("killed")
    output = last.communicate()[0]
    assert last.returncode == 0, output
    assert "4 of 8 runs are due" in output
    for name in (f"{STEM}.csv", f"{STEM}.txt", f"{STEM}.svg"):
        assert (place / "killed" / name).read_bytes() == (place / "whole" / name).read_bytes()
