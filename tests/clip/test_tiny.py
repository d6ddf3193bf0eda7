"""The tiny CLIP that is shipped with the project: its file, its features, and the script that trains it."""

from __future__ import annotations

import importlib.util
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cocoamix import shapes
from cocoamix.clip import load_clip, tiny, tokenize
from cocoamix.clip.backbones import ASSETS, BACKBONES
from cocoamix.clip.model import _build_open_clip
from cocoamix.clip.openai import build_openai
from cocoamix.clip.weights import read_weights
from cocoamix.coa.out_classes import make_outclasses
from tests.conftest import ROOT

WEIGHTS = ASSETS / "tiny.safetensors"


def test_file_is_small() -> None:
    assert WEIGHTS.stat().st_size <= 4 * 2**20


def test_three_code_bases_give_the_same_features() -> None:
    """OpenAI's own class over all 77 positions, open_clip's, and ours."""
    state = read_weights(WEIGHTS)
    model = build_openai(BACKBONES["tiny"].sizes).float().eval()
    model.load_state_dict(state)
    one = shapes.DATASETS["Shapes"]
    pixels = np.stack([one.draw(label, 40) for label in range(20)])
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 127.5 - 1
    texts = [f"a photo of a {c.name}." for c in one.classes[:20]] + ["an unknown zebra and its serendipity"]
    with torch.no_grad():
        image = F.normalize(model.encode_image(images), dim=-1)
        text = F.normalize(model.encode_text(tokenize(texts)), dim=-1)
    theirs = _build_open_clip(BACKBONES["tiny"].sizes, torch.float32, "quick_gelu").eval()
    theirs.load_state_dict(state)
    with torch.no_grad():
        torch.testing.assert_close(F.normalize(theirs.encode_image(images), dim=-1), image, atol=1e-5, rtol=0)
        torch.testing.assert_close(F.normalize(theirs.encode_text(tokenize(texts)), dim=-1), text, atol=1e-5, rtol=0)
    for source in ("clip", "open_clip"):
        ours = load_clip("tiny", source=source)
        torch.testing.assert_close(ours.encode_image(images), image, atol=1e-5, rtol=0)
        torch.testing.assert_close(ours.encode_texts(texts), text, atol=1e-5, rtol=0)


def test_recognises_held_out_compositions() -> None:
    """Far above chance on clean images of compositions that pre-training never saw."""
    clip = load_clip("tiny")
    held_out = [one for one in shapes.compositions() if one.held_out][::6]
    pixels = np.stack([shapes.draw(one, "clean", seed=77, item=0) for one in held_out])
    mean, std = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    images = (torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(
        std
    ).view(3, 1, 1)
    classes = clip.encode_classes([one.name for one in held_out], ["a photo of a {}."])
    found = (clip.encode_image(images) @ classes.t()).argmax(dim=1)
    assert (found == torch.arange(len(held_out))).float().mean() > 0.8


def test_packed_weights_round_trip() -> None:
    generator = torch.Generator().manual_seed(0)
    full = {
        "token_embedding.weight": torch.randn(50, 8, generator=generator),
        "ln_final.weight": torch.randn(8, generator=generator),
        "logit_scale": torch.tensor(3.14159),
    }
    ids, content = torch.tensor([3, 7, 9, 49]), torch.tensor([7, 9])
    state = tiny.unpack(tiny.pack(full, ids, content), vocabulary=50)
    torch.testing.assert_close(
        state["token_embedding.weight"][ids], full["token_embedding.weight"][ids], atol=2e-3, rtol=0
    )
    assert torch.equal(state["logit_scale"], full["logit_scale"])
    assert state["token_embedding.weight"].shape == (50, 8)
    others = state["token_embedding.weight"][[i for i in range(50) if i not in ids.tolist()]]
    assert len(torch.unique(others, dim=0)) > 1


def test_unknown_words_have_different_features() -> None:
    """Generated class names must differ for the tiny CLIP as they do for a real one."""
    features = load_clip("tiny").encode_classes(make_outclasses("word", 40, [], seed=1), ["a photo of a {}."])
    cosines = (features @ features.t())[~torch.eye(40, dtype=torch.bool)]
    assert cosines.mean() < 0.8


@pytest.fixture
def pretrain(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, with small rounds drawn in this process."""
    spec = importlib.util.spec_from_file_location("pretrain_tiny", ROOT / "scripts" / "pretrain_tiny.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "pretrain_tiny", script)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "ROUND", 32)

    def rounds(seed: int, first: int, count: int) -> Iterator[Any]:
        for number in range(first, count):
            yield script.draw_round(seed, number)

    monkeypatch.setattr(script, "rounds", rounds)
    return script


def test_pretraining_uses_only_its_own_domains_and_compositions(pretrain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: set[tuple[bool, str]] = set()

    def note(one: shapes.Composition, domain: str, *others: Any) -> Any:
        drawn.add((one.held_out, domain))
        return shapes.draw(one, domain, *others)

    monkeypatch.setattr(pretrain, "ROUND", 300)
    monkeypatch.setattr(pretrain, "draw", note)
    pretrain.draw_round(1, 0)
    assert drawn == {(False, domain) for domain in shapes.PRETRAINED}
    assert set(shapes.PRETRAINED) < set(shapes.DOMAINS)


def test_pretraining_resumes_exactly(pretrain: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def options(name: str) -> Namespace:
        shared = {"seed": 1, "images": 96, "batch": 16, "rate": 1e-3, "decay": 0.05, "threads": 1}
        return Namespace(output=tmp_path / f"{name}.safetensors", **shared)

    pretrain.train(options("whole"))
    rounds = pretrain.rounds

    def stopping(seed: int, first: int, count: int) -> Iterator[Any]:
        for number, one in enumerate(rounds(seed, first, count)):
            if number == 2:
                raise KeyboardInterrupt
            yield one

    with monkeypatch.context() as patch:
        patch.setattr(pretrain, "rounds", stopping)
        with pytest.raises(KeyboardInterrupt):
            pretrain.train(options("stopped"))
    assert not (tmp_path / "stopped.safetensors").exists()
    pretrain.train(options("stopped"))
    assert (tmp_path / "whole.safetensors").read_bytes() == (tmp_path / "stopped.safetensors").read_bytes()
    weights = read_weights(tmp_path / "whole.safetensors")
    assert weights["token_embedding.weight"].shape == (49408, 128)
