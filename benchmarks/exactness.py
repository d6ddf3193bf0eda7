"""Difference between the fast and the plain text encoder: features, and gradients of the context.

    python benchmarks/exactness.py

At ViT-B/16 size with random weights, for `clip` and `open_clip`, with 2, 4 and 16 context vectors, on 60 of ImageNet's
class names.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks.measure import BACKBONES, class_names
from benchmarks.plain import PlainPrompts
from cocoamix.clip import FrozenCLIP, load_clip
from cocoamix.prompts.context import PromptLearner

NAMES = class_names(60)  # evenly spaced among all; more would take too long on the plain path


def differences(clip: FrozenCLIP, names: list[str], n_ctx: int) -> tuple[float, float]:
    """Return the largest absolute difference of the features, and the relative difference of the context's gradient."""
    learner = PromptLearner(clip, names, n_ctx=n_ctx, seed=1)
    plain, ours = PlainPrompts(clip, names, learner.ctx).encode(), clip.encode_prompts(learner())
    weights = torch.randn(plain.shape, generator=torch.Generator().manual_seed(0))
    expected, found = (torch.autograd.grad((x * weights).sum(), learner.ctx)[0] for x in (plain, ours))
    return float((ours - plain).detach().abs().max()), float((found - expected).norm() / expected.norm())


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tiny model, only to test the script")
    name = BACKBONES[parser.parse_args().quick]
    print("| package | vectors | features, absolute | gradient, relative |\n|---|---|---|---|")
    for source in ("clip", "open_clip"):
        clip = load_clip(name, "random", source=source, precision="fp32")
        for n_ctx in (2, 4, 16):
            feature, gradient = differences(clip, NAMES, n_ctx)
            print(f"| {source} | {n_ctx} | {feature:.1e} | {gradient:.1e} |", flush=True)


if __name__ == "__main__":
    main()
