"""What a run prints: an overview and its results; the log also has the configuration."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import parse_test_res
from cocoamix.experiments.logs import read_log
from cocoamix.run.results import RANDOM_WEIGHTS, TINY_IS_LOST
from tests.conftest import ROOT, Runner, command, train_here
from tests.datasets.own import classes
from tests.io.test_progress import Terminal
from tests.trainers.kinds import BASE

NAMES = ["trainer", "dataset", "images", "backbone", "training", "trained", "features", "seed", "protocol", "output"]


def overview(lines: Sequence[str]) -> dict[str, str]:
    found = dict(line.split(maxsplit=1) for line in lines)
    assert list(found) == NAMES
    return found


def test_overview_of_a_training(run: Runner, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = run(*BASE, "OPTIM.MAX_EPOCH", "1")
    screen, log = done.output.splitlines(), (done.folder / "log.txt").read_text()
    shown = overview(screen[:10])
    results = done.results
    assert shown["trainer"] == "CoOp"
    assert shown["dataset"] == "EuroSAT, 5 classes (base)"
    assert shown["images"] == "20 for training (4 per class), 20 for the evaluation (test)"
    assert shown["backbone"].startswith("tiny, fp32, on cpu (1 thread)")
    assert "(random weights: results are meaningless)" in shown["backbone"]
    assert shown["training"] == "1 epoch, batches of 8"
    assert shown["trained"] == f"{results['trained_parameters']:,} parameters (prompt_learner)"
    assert "CACHE.MODE all" in shown["features"]
    assert (shown["seed"], shown["protocol"]) == ("1", results["fingerprint"])
    assert shown["output"].startswith(str(done.folder))
    assert "** Config **" not in done.output
    for heading in ("** Arguments **", "** Config **", "** System info **", "MAX_EPOCH: 1", *screen):
        assert heading in log
    assert read_log(done.folder / "log.txt").config["OPTIM.MAX_EPOCH"] == 1
    # The output captured by `| tee` is enough for CoOp's parser.
    (tmp_path / "tee" / "seed1").mkdir(parents=True)
    (tmp_path / "tee" / "seed1" / "log.txt").write_text(done.output)
    capfd.readouterr()
    assert parse_test_res.main([str(tmp_path / "tee")]) == 0
    assert f"accuracy: {results['metrics']['accuracy']:.2f}%" in capfd.readouterr().out


NOTE = "Note: the tiny CLIP knows only the synthetic images of this project; results on photographs are meaningless."


def test_fewer_images_of_a_class_are_not_counted_as_all_shots(run: Runner) -> None:
    done = run(*BASE, "OPTIM.MAX_EPOCH", "1", "DATASET.NUM_SHOTS", "16", "DATASET.FEWER_SHOTS", "True")
    assert overview(done.output.splitlines()[:10])["images"].startswith("30 for training (at most 16 per class), ")


@pytest.mark.parametrize("images", ["photographs", "drawn", "written", "random"])
def test_the_tiny_clip_on_other_images_is_noted(run: Runner, tmp_path: Path, images: str) -> None:
    """On photographs only; images of `cocoamix shapes write` are recognised in a folder of any name."""
    arguments = ["--eval-only"]
    if images in ("drawn", "written"):
        config = "shapes" if images == "drawn" else "folder"
        arguments += ["--dataset-config-file", str(ROOT / "configs" / "datasets" / f"{config}.yaml")]
    root = tmp_path / "own"
    for name in ("red_striped_circle", "blue_plain_house"):
        classes(root, name, count=4)
    where = {"data": root} if images == "written" else {}
    weights = ["MODEL.BACKBONE.WEIGHTS", "random" if images == "random" else ""]
    done = run(*arguments, *weights, trainer="ZeroshotCLIP", **where)
    assert done.status == 0, done.output[-800:]
    assert done.output.count(NOTE) == done.log.count(NOTE) == (images == "photographs")
    expected = {"photographs": [TINY_IS_LOST], "random": [RANDOM_WEIGHTS]}.get(images, [])
    assert done.results["caveats"] == expected


def test_verbose_prints_the_whole_log(run: Runner) -> None:
    done = run("--verbose", *BASE, "OPTIM.MAX_EPOCH", "1")
    assert done.output == (done.folder / "log.txt").read_text()
    assert "** Config **" in done.output


def test_overview_of_an_evaluation(run: Runner) -> None:
    trained = run(*BASE, "OPTIM.MAX_EPOCH", "1", name="trained")
    done = run("--eval-only", "--model-dir", str(trained.folder), *BASE)
    lines = done.output.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("trainer "))
    assert overview(lines[first : first + 10])["training"] == "none (evaluation only)"
    assert "* accuracy" in done.output
    zero_shot = run("--eval-only", *BASE, name="clip", trainer="ZeroshotCLIP").output.splitlines()
    assert overview(zero_shot[:10])["trained"] == "nothing"


def test_overview_of_sessions(run: Runner) -> None:
    done = run("FSCIL.BASE", "6", "FSCIL.WAY", "2", "FSCIL.SHOTS", "2", "OPTIM.MAX_EPOCH", "1", trainer="CoOpFSCIL")
    assert "\ndataset   EuroSAT, 10 classes in 3 sessions\n" in done.output


def test_epochs_are_a_bar_on_a_terminal(
    data_root: Path, tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, terminal)
    arguments = command(data_root, tmp_path / "run", tiny_config, "OPTIM.MAX_EPOCH", "2")
    assert train_here(arguments) == 0, terminal.getvalue()
    assert not re.findall(r"^epoch \[(\d)/2\] batch", terminal.getvalue(), re.M)
    assert "epoch 1/2 (train)" in terminal.getvalue()
