"""Helpers to derive CoCoA-Mix's numbers by hand: features of images and texts, and what a run computed.

Nothing here calls the mixing of the library or of the trainers. The features of a learned prompt come from the plain
path over all positions, and everything after the features is in double precision.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from benchmarks.plain import PlainPrompts
from cocoamix.clip import FrozenCLIP

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
Context = Sequence[Tensor]  # (M, width) for each model
Batch = Sequence[Tensor]  # (B, embedding) unit vectors of the same images for each model


# ---------------------------------------------------------------------- features


def read_test_images(root: Path, labels: range) -> tuple[Tensor, Tensor]:
    """Return the pixels of the test images of some classes, and their labels, counted from the first of them."""
    split = json.loads((root / "eurosat" / "split_zhou_EuroSAT.json").read_text())
    chosen = [(name, label) for name, label, _ in split["test"] if label in labels]
    pixels = []
    for name, _ in chosen:
        image = Image.open(root / "eurosat" / "2750" / name)
        short = min(image.size)
        image = image.resize([int(32 * side / short) for side in image.size], Image.Resampling.BICUBIC)
        left, top = (round((side - 32) / 2) for side in image.size)
        values = np.asarray(image.crop((left, top, left + 32, top + 32))) / 255
        pixels.append(torch.tensor((values - MEAN) / STD, dtype=torch.float32).permute(2, 0, 1))
    return torch.stack(pixels), torch.tensor([label - labels.start for _, label in chosen])


def split_features(features: Tensor, models: int) -> Batch:
    """Return the unit vectors of each model, from the concatenated ones of all."""
    return [F.normalize(one, dim=-1) for one in features.chunk(models, dim=1)]


def hand_crafted(
    clips: Sequence[FrozenCLIP], batch: Batch, names: Sequence[str], templates: Sequence[str] = ("a photo of a {}.",)
) -> Tensor:
    """Return the (B, C) similarities of a hand-crafted prompt, the mean over the models."""
    sides = []
    for clip, images in zip(clips, batch, strict=True):
        written = [torch.stack([clip.encode_texts([one.format(name)])[0] for name in names]) for one in templates]
        text = F.normalize(torch.stack(written).mean(dim=0), dim=-1)
        sides.append(images.double() @ text.double().t())
    return torch.stack(sides).mean(dim=0)


def learned(clips: Sequence[FrozenCLIP], batch: Batch, names: Sequence[str], context: Context) -> Tensor:
    """Return the (B, C) similarities of a learned prompt, the mean over the models. Keeps gradients."""
    sides = []
    for clip, images, vectors in zip(clips, batch, context, strict=True):
        text = PlainPrompts(clip, names, vectors).encode()
        sides.append(images.double() @ text.double().t())
    return torch.stack(sides).mean(dim=0)


# ---------------------------------------------------------------------- what a run computes


def watch_evaluations(monkeypatch: pytest.MonkeyPatch) -> list[list[Tensor]]:
    """Return a list that receives the batches of (B, C) logits of each evaluation."""
    from dassl.evaluation import Classification

    found: list[list[Tensor]] = []
    places: dict[int, tuple[Any, list[Tensor]]] = {}  # kept with the evaluator, so that its id is not reused
    process = Classification.process

    def watched(self: Any, logits: Tensor, labels: Tensor) -> None:
        if id(self) not in places:
            places[id(self)] = (self, [])
            found.append(places[id(self)][1])
        places[id(self)][1].append(logits.clone())
        process(self, logits, labels)

    monkeypatch.setattr(Classification, "process", watched)
    return found


@dataclass
class Step:
    """A training step: its initial state, its inputs and its result."""

    phase: str
    session: int
    features: Tensor
    labels: Tensor
    before: dict[str, Tensor]
    shown: dict[str, float]
    gradients: dict[str, Tensor | None]
    after: dict[str, Tensor]


def watch_steps(monkeypatch: pytest.MonkeyPatch, prepare: Callable[[Any], None]) -> list[Step]:
    """Return a list that receives each step of CoCoA-Mix. `prepare` is called with the trainer before each step."""
    from cocoamix.trainers.cocoamix import CoCoAMix

    steps: list[Step] = []
    forward_backward = CoCoAMix.forward_backward

    def parameters(trainer: Any) -> dict[str, Any]:
        models = trainer._models.items()
        return {f"{name}.{key}": value for name, model in models for key, value in model.named_parameters()}

    def values(trainer: Any) -> dict[str, Tensor]:
        return {key: value.detach().clone() for key, value in parameters(trainer).items()}

    def watched(self: Any, batch: Any) -> Any:
        prepare(self)
        inputs, labels = self.parse_batch_train(batch)
        features, before = self.encode(inputs), values(self)
        for value in parameters(self).values():
            value.grad = None
        shown = forward_backward(self, batch)
        gradients = {key: None if p.grad is None else p.grad.clone() for key, p in parameters(self).items()}
        session = getattr(self, "session", 0)
        steps.append(Step(self.phase, session, features, labels, before, shown, gradients, values(self)))
        return shown

    monkeypatch.setattr(CoCoAMix, "forward_backward", watched)
    return steps


# ---------------------------------------------------------------------- formulas


def entropy(logits: Tensor) -> Tensor:
    """Return the (B,) entropy of (B, C) logits divided by log C."""
    p = logits.softmax(dim=1)
    return -(p * p.log()).sum(dim=1) / np.log(logits.shape[1])


def entropy_slope(similarities: Tensor, scale: float) -> Tensor:
    """Return dH/d(scale) of the entropy above at scale x similarities: -scale x variance under p, over log C."""
    p = (scale * similarities).softmax(dim=1)
    mean = (p * similarities).sum(dim=1, keepdim=True)
    variance = (p * (similarities - mean) ** 2).sum(dim=1)
    return -scale * variance / np.log(similarities.shape[1])


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean of -log p(y)."""
    return -logits.softmax(dim=1)[range(len(labels)), labels].log().mean()


def cross_entropy_slope(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the (B, C) slope of the mean cross-entropy: (p - 1[y]) / B."""
    slope = logits.softmax(dim=1)
    slope[range(len(labels)), labels] -= 1
    return slope / len(labels)
