"""Measure how difficult the synthetic datasets are for the tiny CLIP: zero-shot accuracy on test images, by template.

python benchmarks/tiny_zeroshot.py [--dataset WarmCool] [--weights FILE]
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
from cocoamix.io.progress import progress
from cocoamix.shapes import DATASETS, SyntheticDataset
from cocoamix.shapes.captions import style_templates

DEFAULT = "a photo of a {}."
TEMPLATES = (
    DEFAULT,
    "{}.",
    "a picture of a {}.",
    "an image of a {}.",
    "a good photo of a {}.",
    "a close-up of a {}.",
    *style_templates(),
)
CONFIG = Path(__file__).resolve().parent.parent / "configs" / "trainers" / "ZeroshotCLIP" / "tiny.yaml"


def encode(clip: FrozenCLIP, dataset: SyntheticDataset) -> tuple[Tensor, Tensor]:
    """Return the features and labels of all test images, normalised as the tiny configuration does."""
    settings = CfgNode.load_cfg(CONFIG.read_text()).INPUT
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (settings.PIXEL_MEAN, settings.PIXEL_STD))
    items = list(dataset.items("test"))
    features = []
    for start in progress(range(0, len(items), 200), -(-len(items) // 200), f"drawing and encoding {dataset.name}"):
        drawn = [torch.from_numpy(dataset.draw(*item)) for item in items[start : start + 200]]
        images = torch.stack(drawn).permute(0, 3, 1, 2).float() / 255
        features.append(clip.encode_image((images - mean) / std))
    return torch.cat(features), torch.tensor([label for label, _ in items])


def accuracies(clip: FrozenCLIP, dataset: SyntheticDataset) -> dict[str, tuple[float, float]]:
    """Return the accuracy (%) on base and on new classes by template."""
    features, labels = encode(clip, dataset)
    names = [one.name for one in dataset.classes]
    base = labels < dataset.base
    found = {}
    for template in TEMPLATES:
        text = clip.encode_classes(names, [template]).t()
        on_base = (features[base] @ text[:, : dataset.base]).argmax(dim=1) == labels[base]
        on_new = (features[~base] @ text[:, dataset.base :]).argmax(dim=1) == labels[~base] - dataset.base
        found[template] = (100 * float(on_base.float().mean()), 100 * float(on_new.float().mean()))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=DATASETS, action="append", help="only this one; may be repeated")
    parser.add_argument("--weights", default="", help="weights of another pre-training")
    args = parser.parse_args()
    clip = load_clip("tiny", args.weights)
    names = args.dataset or list(DATASETS)
    found = {name: accuracies(clip, DATASETS[name]) for name in names}
    print(f"| base / new | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
    for template in TEMPLATES:
        cells = [f"{found[name][template][0]:.1f} / {found[name][template][1]:.1f}" for name in names]
        print(f"| {template} | {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
