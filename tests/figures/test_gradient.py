"""`cocoamix figures gradient`: its numbers by finite differences, and errors for bad weights."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from cocoamix.figures.command import main

STEP = 1e-5


def loss(label: float, wrong: float, w: float) -> float:
    """Return -log p(y) + w (1 - p(y)) for two similarities in units of tau, in double precision."""
    p = 1 / (1 + math.exp(wrong - label))
    return -math.log(p) + w * (1 - p)


def test_gradients_match_finite_differences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gradient", "--w", "0", "2.5", "7", "2.5", "--output", str(tmp_path)]) == 0
    with (tmp_path / "gradient.csv").open() as file:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    assert sorted({row["w"] for row in rows}) == [0, 2.5, 7]
    assert len(rows) == 3 * len({row["p_label"] for row in rows})  # a weight given twice is drawn once
    strongest = max((row for row in rows if row["w"] == 7), key=lambda row: -row["label_closed"])
    for row in rows:
        p, w = row["p_label"], row["w"]
        assert p + row["p_wrong"] == pytest.approx(1)
        label, wrong = math.log(p), math.log(1 - p)
        by_label = (loss(label + STEP, wrong, w) - loss(label - STEP, wrong, w)) / (2 * STEP)
        by_wrong = (loss(label, wrong + STEP, w) - loss(label, wrong - STEP, w)) / (2 * STEP)
        assert row["label_closed"] == pytest.approx(by_label, abs=1e-8)
        assert row["wrong_closed"] == pytest.approx(by_wrong, abs=1e-8)
        assert row["label_autograd"] == pytest.approx(by_label, abs=1e-5)  # the loss computes in fp32
        assert row["wrong_autograd"] == pytest.approx(by_wrong, abs=1e-5)
    printed = capsys.readouterr().out
    assert f"With w = 7 the gradient of the label is largest at p(y) = {strongest['p_label']:.2f}" in printed
    # The maximum of (1 - p)(1 + w p) is at (w - 1) / 2w.
    assert strongest["p_label"] == pytest.approx(6 / 14, abs=0.011)
    assert f"{-strongest['label_closed']:.2f} / tau against {1 - strongest['p_label']:.2f} / tau" in printed
    assert "w = 2.5" in (tmp_path / "gradient.svg").read_text()


@pytest.mark.parametrize("w", ["-1", "nan", "inf"])
def test_invalid_weights_are_refused(w: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gradient", "--output", str(tmp_path / "out"), "--w", "1", w]) == 2
    printed = capsys.readouterr()
    assert printed.err == f"error: --w is 1 {w}; weights of the CoA-loss are 0 or more.\n"
    assert not printed.out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [["--w"], ["--w", "much"]])
def test_arguments_that_are_not_numbers_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["gradient", *arguments])
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_cross_entropy_can_be_drawn_alone(tmp_path: Path) -> None:
    """Without the CoA-loss there is no misprint of the paper to show."""
    assert main(["gradient", "--w", "0", "--output", str(tmp_path)]) == 0
    assert "as printed" not in (tmp_path / "gradient.svg").read_text()
