"""Non-finite numbers before any training: the cause is named, not the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cocoamix.clip import FrozenCLIP, load_clip
from cocoamix.clip.tokens import tokenize
from cocoamix.run import backbone
from tests.conftest import Runner
from tests.faults.runs import KINDS
from tests.test_bad_input import BASE, refused
from tests.trainers.kinds import TWO

SHORT = [*BASE, "OPTIM.MAX_EPOCH", "1"]
SESSIONS = ["FSCIL.BASE", "8", "FSCIL.WAY", "2", "FSCIL.SHOTS", "1", "FSCIL.LAST_SESSION", "0", "OPTIM.MAX_EPOCH", "1"]
Breaker = Callable[[Callable[[FrozenCLIP], None]], None]


@pytest.fixture
def with_clip(monkeypatch: pytest.MonkeyPatch) -> Breaker:
    """Modify every CLIP that a run loads."""

    def change_with(change: Callable[[FrozenCLIP], None]) -> None:
        def load(*arguments: object) -> FrozenCLIP:
            clip = load_clip(*arguments)  # type: ignore[arg-type]
            with torch.no_grad():
                change(clip)
            return clip

        monkeypatch.setattr(backbone, "load_clip", load)

    return change_with


def break_forest(clip: FrozenCLIP) -> None:
    """One token of one class name."""
    clip.text.token_embedding.weight[int(tokenize(["forest"])[0, 1])] = math.nan


def break_text(clip: FrozenCLIP) -> None:
    clip.text.text_projection[0, 0] = math.inf


def break_vision(clip: FrozenCLIP) -> None:
    next(clip.visual.parameters()).fill_(math.nan)


def not_blamed_on_training(sentence: str) -> None:
    for word in ("diverged", "OPTIM.LR", "learning rate", "The loss"):
        assert word not in sentence
    assert len(sentence) < 400


@pytest.fixture
def one_bad_image(monkeypatch: pytest.MonkeyPatch, data_root: Path) -> list[Path]:
    """Make the features of every third image of an encoded batch NaN; return the images of the dataset."""
    encode = FrozenCLIP.encode_image_raw

    def spoil(self: FrozenCLIP, images: torch.Tensor) -> torch.Tensor:
        features = encode(self, images)
        features[2] = math.nan
        return features

    monkeypatch.setattr(FrozenCLIP, "encode_image_raw", spoil)
    return sorted(data_root.rglob("*.png"))


@pytest.mark.parametrize("cache", ["off", "all"])
@pytest.mark.parametrize(
    ("trainer", "extra"),
    [
        ("CoOp", SHORT),
        ("ZeroshotCLIP", ["--eval-only", *BASE]),
        ("CoOpFSCIL", SESSIONS),
        ("TuneEn", [*SHORT, *TWO]),
    ],
)
def test_image_is_named(
    run: Runner, one_bad_image: list[Path], trainer: str, extra: list[str], cache: str, tmp_path: Path
) -> None:
    store = ["CACHE.MODE", cache, "CACHE.DIR", str(tmp_path / "store")]
    sentence = refused(run, *extra, *store, trainer=trainer)
    assert sum(str(path) in sentence for path in one_bad_image) == 1
    assert "image features of tiny are not finite" in sentence
    not_blamed_on_training(sentence)


@pytest.mark.parametrize("cache", ["off", "all"])
def test_non_finite_weights_of_the_image_tower_are_named(
    run: Runner, with_clip: Breaker, cache: str, tmp_path: Path
) -> None:
    with_clip(break_vision)
    sentence = refused(run, *SHORT, "CACHE.MODE", cache, "CACHE.DIR", str(tmp_path / "store"))
    assert "visual." in sentence
    assert "MODEL.BACKBONE.WEIGHTS" in sentence
    assert "PREC" not in sentence
    not_blamed_on_training(sentence)


@pytest.mark.parametrize(
    ("trainer", "extra"),
    [
        ("CoOp", SHORT),
        ("CoCoAMix", [*SHORT, "TRAINER.COCOAMIX.N_CTX", "4"]),
        ("MaPLe", [*SHORT, "TRAINER.MAPLE.PROMPT_DEPTH", "2"]),
        ("ZeroshotCLIP", ["--eval-only", *BASE]),
        ("ZeroshotCLIPFSCIL", SESSIONS),
        ("FSPTFSCIL", [*KINDS["FSPT, sessions"][1]]),
    ],
)
def test_class_is_named(run: Runner, with_clip: Breaker, trainer: str, extra: list[str]) -> None:
    with_clip(break_forest)
    sentence = refused(run, *extra, trainer=trainer)
    assert "The text features of tiny are not finite for 'Forest'" in sentence
    assert "token_embedding.weight" in sentence
    not_blamed_on_training(sentence)


def test_non_finite_weights_of_the_text_tower_are_named(run: Runner, with_clip: Breaker) -> None:
    with_clip(break_text)
    sentence = refused(run, *SHORT)
    assert "for all classes" in sentence
    assert "text.text_projection" in sentence
    not_blamed_on_training(sentence)


def test_non_finite_scale_is_named(run: Runner, with_clip: Breaker) -> None:
    def break_scale(clip: FrozenCLIP) -> None:
        clip.logit_scale = math.nan

    with_clip(break_scale)
    sentence = refused(run, *SHORT)
    assert "The logit scale of tiny is nan" in sentence
    not_blamed_on_training(sentence)


def test_precision_is_blamed_where_weights_are_finite(
    run: Runner, one_bad_image: list[Path], with_clip: Breaker
) -> None:
    def halve(clip: FrozenCLIP) -> None:
        clip.precision = "bf16"

    with_clip(halve)
    sentence = refused(run, *SHORT, "CACHE.MODE", "off")
    assert "PREC fp32 (now bf16)" in sentence
    not_blamed_on_training(sentence)


def test_divergence_is_still_reported_as_divergence(run: Runner) -> None:
    settings = ["OPTIM.LR", "1e38", "OPTIM.WARMUP_EPOCH", "0", "OPTIM.MAX_EPOCH", "1"]
    assert "OPTIM.LR" in refused(run, *BASE, *settings)
