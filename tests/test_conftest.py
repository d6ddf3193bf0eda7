"""What the tests share behaves like the original: random weights, shared runs, the mark of fast tests."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from cocoamix.clip import load_clip
from cocoamix.clip.backbones import BACKBONES
from cocoamix.clip.openai import build_openai
from cocoamix.clip.weights import hash_weights
from tests.conftest import Runner
from tests.fast import is_fast


def test_copies_of_the_random_weights() -> None:
    """They are those that `load_clip` draws itself, and changing one copy does not change another."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build_openai(BACKBONES["tiny"].sizes)
    torch.nn.init.constant_(model.logit_scale, torch.tensor(100.0).log().item())
    first = load_clip("tiny", "random", precision="fp32")
    assert first.weights_hash == hash_weights(model.state_dict())
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.zero_()
    second = load_clip("tiny", "random", precision="fp32")
    assert second.weights_hash == first.weights_hash
    assert float(second.text.embed(torch.tensor([[1]])).abs().sum()) > 0


def test_a_shared_run_matches_a_run(run: Runner, shared_run: Runner) -> None:
    settings = ["DATASET.NUM_SHOTS", "1", "OPTIM.MAX_EPOCH", "1", "DATALOADER.TRAIN_X.BATCH_SIZE", "10"]
    own, one = run(*settings, name="own"), shared_run(*settings, name="one")
    for key in ("metrics", "fingerprint", "protocol"):
        assert one.results[key] == own.results[key]
    assert "Finish training" in one.output
    (one.folder / "results.json").unlink()
    other = shared_run(*settings, name="other")  # its own copy
    assert other.results["metrics"] == own.results["metrics"]


def test_a_run_does_not_depend_on_earlier_runs(run: Runner, shared_run: Runner) -> None:
    """Runs on shared images do not use features that another batch size encoded, whose last bits may differ."""
    settings = ["DATASET.NUM_SHOTS", "2", "OPTIM.MAX_EPOCH", "1", "DATALOADER.TRAIN_X.BATCH_SIZE"]
    run(*settings, "1", "DATALOADER.TEST.BATCH_SIZE", "1", name="before")
    own, other = run(*settings, "12", name="own"), shared_run(*settings, "12", name="other")
    contexts = [
        torch.load(one.folder / "prompt_learner" / "model.pth.tar-1")["state_dict"]["ctx"] for one in (own, other)
    ]
    assert torch.equal(*contexts)


def _trains(run: Runner) -> None:
    pass


def _starts() -> Any:
    return subprocess.run(["true"])


def _starts_through_another(tmp_path: Path) -> None:
    _starts()


@pytest.mark.parametrize(
    ("function", "fixtures", "fast"),
    [
        (test_copies_of_the_random_weights, set(), True),
        (_trains, {"run", "tmp_path"}, False),
        (_starts, set(), False),
        (_starts_through_another, {"tmp_path"}, False),
    ],
)
def test_which_tests_are_fast(function: Any, fixtures: set[str], fast: bool) -> None:
    assert is_fast("coa", "test_losses.py", function.__name__, function, fixtures) == fast
    assert not is_fast("trainers", "test_coop.py", function.__name__, function, fixtures)
