"""The example of docs/PREDICT.md runs as it stands, and what a run leaves says what it should."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from cocoamix import load_clip
from cocoamix.features.reading import read_image
from cocoamix.predict.classifier import load
from cocoamix.run.card import wilson
from cocoamix.shapes.command import main as shapes
from tests.conftest import ROOT, Runner

from .conftest import Trained


def test_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert shapes(["write", "images", "--dataset", "WarmCool"]) == 0
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "PREDICT.md").read_text(), re.DOTALL)
    (example,) = [block for block in blocks if "PromptClassifier(" in block]
    assert len(example.splitlines()) < 15
    capfd.readouterr()
    exec(compile(example.replace("*/00*.png", "*/000[0-7].png"), "PREDICT.md", "exec"), {})
    assert "accuracy 0." in capfd.readouterr().out
    assert (tmp_path / "model" / "prompt_learner").is_dir()


def test_card(trained: Trained, run: Runner) -> None:
    done = trained("CoCoAMix, folds")
    card = (done.folder / "README.md").read_text()
    for words in (
        "# CoCoAMix on EuroSAT",
        "| seed | 1 |",
        "20 (4 of each class)",
        "held-out images",
        "cocoamix predict",
    ):
        assert words in card
    assert f"{done.results['metrics']['accuracy']:.2f} % (" in card
    (done.folder / "README.md").write_text("mine")
    trained("CoCoAMix, folds")
    assert (done.folder / "README.md").read_text() == "mine"


def test_interval() -> None:
    low, high = wilson(0.5, 100)
    assert (low, high) == pytest.approx((0.4038, 0.5962), abs=1e-4)  # by Wilson's formula, as statistics books have it
    assert wilson(0.0, 10)[0] == 0
    assert wilson(1.0, 10)[1] == pytest.approx(1)


def test_the_transform_of_a_clip_is_that_of_evaluations(trained: Trained, data_root: Path) -> None:
    clip = load_clip("tiny", "random")
    image = read_image(str(next(data_root.rglob("River_13.png"))))
    theirs = load(trained("CoOp").folder).trainer.test_loader.dataset.transform  # type: ignore[attr-defined]
    assert torch.equal(clip.transform(image), theirs(image))
