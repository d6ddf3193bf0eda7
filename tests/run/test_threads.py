"""One thread for small models, torch's default for the others, and the user's setting before both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from yacs.config import CfgNode

from cocoamix.run import threads
from tests.config.test_shipped import ROOT, load


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Like a machine with two cores, without a number in the environment."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def used(cfg: CfgNode, section: str = "COCOAMIX") -> int:
    with threads.threads_for(cfg, section):
        found = torch.get_num_threads()
    assert torch.get_num_threads() == 2
    return found


def config(name: str, trainer: str = "CoCoAMix") -> CfgNode:
    return load(Path(ROOT, "configs", "trainers", trainer, f"{name}.yaml"))


def test_model_size_sets_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny, large = config("tiny"), config("vit_b16_ep50")
    assert (used(tiny), used(large)) == (1, 2)
    tiny.defrost()
    tiny.TRAINER.COCOAMIX.BACKBONES = ["tiny", "ViT-B/16"]
    assert used(tiny) == 2
    assert used(tiny, "COOP") == 1  # whose section does not name models
    assert used(tiny, "ANOTHER") == 1
    tiny.TRAINER.COCOAMIX.BACKBONES, tiny.MODEL.BACKBONE.NAME = [], "misspelt"
    assert used(tiny) == 2
    assert used(large) == 2


def test_user_setting_takes_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert used(config("tiny")) == 2


def test_number_of_threads_is_restored_even_after_an_error() -> None:
    with pytest.raises(KeyError), threads.threads_for(config("tiny"), "COCOAMIX"):
        raise KeyError
    assert torch.get_num_threads() == 2
