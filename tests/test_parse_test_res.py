"""parse_test_res.py: CoOp's arguments and lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from parse_test_res import main
from tests.conftest import ROOT
from tests.experiments.trees import FORK, head, result, training, write_log


def write_seeds(folder: Path, corrects: list[int], signal: str = "Finish training") -> None:
    for seed, correct in enumerate(corrects, start=1):
        log = [head("CoOp", "EuroSAT", "base", seed), result(10), training(FORK, signal=signal), result(correct)]
        write_log(folder / f"seed{seed}", *log)


@pytest.mark.parametrize("signal", ["Finish training", "Finished training"])
def test_output_matches_coop(tmp_path: Path, capsys: pytest.CaptureFixture[str], signal: str) -> None:
    write_seeds(tmp_path, [900, 920, 940], signal)
    assert main([str(tmp_path)]) == 0
    # The mean of 90, 92, 94 is 92; the deviation is sqrt(8/3) = 1.63.
    expected = [f"Parsing files in {tmp_path}"]
    expected += [f"file: {tmp_path}/seed{s}/log.txt. accuracy: {v}.00%. " for s, v in ((1, 90), (2, 92), (3, 94))]
    expected += ["===", f"Summary of directory: {tmp_path}", "* accuracy: 92.00% +- 1.63%", "==="]
    assert capsys.readouterr().out.splitlines() == expected


def test_confidence_interval_and_keyword(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_seeds(tmp_path, [900, 920, 940])
    assert main([str(tmp_path), "--ci95", "--keyword", "error"]) == 0
    # 1.96 * 1.63299 / sqrt(3) = 1.85
    assert "* error: 8.00% +- 1.85%" in capsys.readouterr().out


def test_test_log_and_several_experiments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, corrects in (("one", [500, 600]), ("two", [700])):
        for seed, correct in enumerate(corrects, start=1):
            write_log(tmp_path / name / f"seed{seed}", head("CoOp", "EuroSAT", model_dir="m"), result(correct))
    assert main([str(tmp_path), "--test-log", "--multi-exp"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == ["Average performance", "* accuracy: 62.50%"]


def test_end_of_training_line_is_required_without_test_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(tmp_path / "seed1", head("CoOp", "EuroSAT", model_dir="m"), result(500))
    assert main([str(tmp_path)]) == 2
    assert "need --test-log" in capsys.readouterr().err


def test_seed_without_result_is_reported_and_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_seeds(tmp_path, [900, 920])
    (tmp_path / "seed3").mkdir()
    assert main([str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert "* accuracy: 91.00% +- 1.00%" in printed.out
    assert "seed3 has no log with a result" in printed.err


def test_script_in_the_top_folder_prints_the_same(tmp_path: Path) -> None:
    write_seeds(tmp_path, [900])
    command = [sys.executable, str(ROOT / "parse_test_res.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "* accuracy: 90.00% +- 0.00%" in done.stdout
