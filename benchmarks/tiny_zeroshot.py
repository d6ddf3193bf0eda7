"""How hard the small world is for the tiny CLIP: zero-shot accuracy by template, on the test pictures of a dataset.

python benchmarks/tiny_zeroshot.py [--dataset Shapes] [--weights FILE]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch import Tensor
from yacs.config import CfgNode

from cocoamix.clip import FrozenCLIP, load_clip
from cocoamix.progress import progress
from cocoamix.shapes import DATASETS, PictureSet

TEMPLATES = (
    "a photo of a {}.",
    "{}.",
    "a picture of a {}.",
    "a clean photo of a {}.",
    "a cluttered photo of a {}.",
    "a noisy photo of a {}.",
    "a blurry photo of a {}.",
    "a tinted photo of a {}.",
    "a tilted photo of a {}.",
    "a sketch of a {}.",
    "a dark photo of a {}.",
    "a messy photo of a {}.",
    "a {} in the street.",
    "a street photo of a {}.",
)
CONFIG = Path(__file__).resolve().parent.parent / "configs" / "trainers" / "ZeroshotCLIP" / "tiny.yaml"


def encode(clip: FrozenCLIP, pictures: PictureSet) -> tuple[Tensor, Tensor]:
    """Return the features and labels of all test pictures, normalised as the tiny configuration does."""
    settings = CfgNode.load_cfg(CONFIG.read_text()).INPUT
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (settings.PIXEL_MEAN, settings.PIXEL_STD))
    items = list(pictures.items("test"))
    features = []
    for start in progress(range(0, len(items), 200), -(-len(items) // 200), "drawing and encoding"):
        drawn = [torch.from_numpy(pictures.draw(*item)) for item in items[start : start + 200]]
        images = torch.stack(drawn).permute(0, 3, 1, 2).float() / 255
        features.append(clip.encode_image((images - mean) / std))
    return torch.cat(features), torch.tensor([label for label, _ in items])


def accuracy(clip: FrozenCLIP, features: Tensor, labels: Tensor, names: list[str], template: str) -> float:
    predicted = (features @ clip.encode_classes(names, [template]).t()).argmax(dim=1)
    return 100 * float((predicted == labels).float().mean())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=DATASETS, action="append", help="only this one; may be repeated")
    parser.add_argument("--weights", default="", help="weights of another pre-training")
    args = parser.parse_args()
    clip = load_clip("tiny", args.weights)
    for name in args.dataset or DATASETS:
        pictures = DATASETS[name]
        names = [one.name for one in pictures.classes]
        features, labels = encode(clip, pictures)
        base = labels < pictures.base
        print(f"| {name} | base | new |\n|---|---|---|")
        for template in TEMPLATES:
            scores = (
                accuracy(clip, features[base], labels[base], names[: pictures.base], template),
                accuracy(clip, features[~base], labels[~base] - pictures.base, names[pictures.base :], template),
            )
            print(f"| {template} | {scores[0]:.1f} | {scores[1]:.1f} |", flush=True)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
