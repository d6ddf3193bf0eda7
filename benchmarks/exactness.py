"""Difference between the fast and the plain text encoder: features, and gradients of the context.

    python benchmarks/exactness.py [--splits DIR]

At ViT-B/16 size with random weights, for `clip` and `open_clip`, with 2, 4 and 16 context vectors, on ImageNet's class
names and, where DIR holds CoOp's split files, on those of Pets and Cars.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks.measure import class_names
from benchmarks.plain import PlainPrompts
from cocoamix.clip import FrozenCLIP, load_clip
from cocoamix.clip.class_names import class_words
from cocoamix.prompts.context import PromptLearner

MOST_NAMES = 60  # evenly spaced among all; more would take too long on the plain path


def collect_names(splits: Path | None) -> dict[str, list[str]]:
    """Return the class names to try, by dataset."""
    found = {"ImageNet": class_names(MOST_NAMES)}
    for name in ("OxfordPets", "StanfordCars"):
        path = splits / f"split_zhou_{name}.json" if splits else None
        if path and path.is_file():
            names = sorted({row[2] for row in json.loads(path.read_text())["test"]})
            step = max(1, len(names) // MOST_NAMES)
            found[name] = [class_words(one) for one in names[::step]][:MOST_NAMES]
    return found


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
    parser.add_argument("--splits", type=Path, default=None, help="folder of CoOp's split files")
    names = collect_names(parser.parse_args().splits)
    print("| package | class names | vectors | features, absolute | gradient, relative |\n|---|---|---|---|---|")
    for source in ("clip", "open_clip"):
        clip = load_clip("ViT-B/16", "random", source=source, precision="fp32")
        for dataset, classes in names.items():
            for n_ctx in (2, 4, 16):
                feature, gradient = differences(clip, classes, n_ctx)
                print(
                    f"| {source} | {len(classes)} of {dataset} | {n_ctx} | {feature:.1e} | {gradient:.1e} |", flush=True
                )


if __name__ == "__main__":
    main()
