"""What a run prints: an overview and its results; the log has the configuration as well."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cocoamix.report.readers import coop_parser
from cocoamix.report.readers.logs import read_log
from tests.conftest import Runner
from tests.trainers.test_resume import BASE

NAMES = ["trainer", "dataset", "images", "backbone", "training", "trained", "features", "seed", "protocol", "output"]


def overview(lines: Sequence[str]) -> dict[str, str]:
    found = dict(line.split(maxsplit=1) for line in lines)
    assert list(found) == NAMES
    return found


def test_a_training(run: Runner, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = run(*BASE, "OPTIM.MAX_EPOCH", "1")
    screen, log = done.output.splitlines(), (done.folder / "log.txt").read_text()
    shown = overview(screen[:10])
    results = done.results
    assert shown["trainer"] == "CoOp"
    assert shown["dataset"] == "EuroSAT, 5 classes (base)"
    assert shown["images"] == "20 for training (4 per class), 20 for the evaluation (test)"
    assert shown["backbone"].startswith("tiny, fp32, on cpu (1 thread)")
    assert "RANDOM" in shown["backbone"]
    assert shown["training"] == "1 epoch, batches of 8"
    assert shown["trained"] == f"{results['trained_parameters']:,} parameters (prompt_learner)"
    assert "CACHE.MODE all" in shown["features"]
    assert (shown["seed"], shown["protocol"]) == ("1", results["fingerprint"])
    assert shown["output"].startswith(str(done.folder))
    assert "** Config **" not in done.output
    for heading in ("** Arguments **", "** Config **", "** System info **", "MAX_EPOCH: 1", *screen):
        assert heading in log
    assert read_log(done.folder / "log.txt").config["OPTIM.MAX_EPOCH"] == 1
    # What `| tee` keeps is enough for CoOp's parser.
    (tmp_path / "tee" / "seed1").mkdir(parents=True)
    (tmp_path / "tee" / "seed1" / "log.txt").write_text(done.output)
    capfd.readouterr()
    assert coop_parser.main([str(tmp_path / "tee")]) == 0
    assert f"accuracy: {results['metrics']['accuracy']:.2f}%" in capfd.readouterr().out


def test_verbose(run: Runner) -> None:
    done = run("--verbose", *BASE, "OPTIM.MAX_EPOCH", "1")
    assert done.output == (done.folder / "log.txt").read_text()
    assert "** Config **" in done.output


def test_an_evaluation(run: Runner) -> None:
    trained = run(*BASE, "OPTIM.MAX_EPOCH", "1", name="trained")
    done = run("--eval-only", "--model-dir", str(trained.folder), *BASE)
    lines = done.output.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("trainer "))
    assert overview(lines[first : first + 10])["training"] == "none (evaluation only)"
    assert "* accuracy" in done.output
    zero_shot = run("--eval-only", *BASE, name="clip", trainer="ZeroshotCLIP").output.splitlines()
    assert overview(zero_shot[:10])["trained"] == "nothing"


def test_sessions(run: Runner) -> None:
    done = run("FSCIL.BASE", "6", "FSCIL.WAY", "2", "FSCIL.SHOTS", "2", "OPTIM.MAX_EPOCH", "1", trainer="CoOpFSCIL")
    assert "\ndataset   EuroSAT, 10 classes in 3 sessions\n" in done.output
