"""What a training step of each method costs beside one of CoOp, through the trainers themselves.

    python benchmarks/methods.py                     all that are trained, as a Markdown table
    python benchmarks/methods.py KgCoOp CoCoOp       these
    python benchmarks/methods.py --batch 1 CoCoOp    with batches of one image

At ViT-B/16's size with random weights, on the 60 base classes of Shapes, in CPU time; on features where the image
encoder is frozen (as the store gives them), on pictures where it is not. Each step is timed in turn with one of CoOp.
The configuration is the method's vit_b16_ep50, but contexts are "a photo of a" and batches of one size for all.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import train  # first: finds Dassl, or our fallback of it

# isort: split
import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY, build_trainer

from benchmarks.measure import BACKBONES, BATCH, ROOT, cpu_time


def build(name: str, folder: str, quick: bool = False, **settings: str) -> Any:
    """Return a trainer on the base classes of Shapes, at true size with random weights.

    settings: further keys, with __ for a dot.
    """
    config = ROOT / f"configs/trainers/{name}/{'tiny' if quick else 'vit_b16_ep50'}.yaml"
    flags = ["--trainer", name, "--seed", "1", "--backbone", BACKBONES[quick], "--output-dir", f"{folder}/{name}"]
    flags += ["--dataset-config-file", str(ROOT / "configs/datasets/shapes.yaml"), "--config-file", str(config)]
    options = {"DATASET.SUBSAMPLE_CLASSES": "base", "DATASET.NUM_SHOTS": "1", "MODEL.BACKBONE.WEIGHTS": "random"}
    options |= {"CACHE.MODE": "off", "DATALOADER.NUM_WORKERS": "0"}  # a step is given its batch
    options |= {key.replace("__", "."): value for key, value in settings.items()}
    cfg = train.setup_cfg(train.parse_arguments(flags + [part for pair in options.items() for part in pair]))
    section = cfg.TRAINER[TRAINER_REGISTRY.get(name).section]
    cfg.defrost()
    section.PREC = "fp32"
    if "CTX_INIT" in section:
        section.CTX_INIT = "a photo of a"
        section.N_CTX = min(4, section.N_CTX)
    cfg.freeze()
    with contextlib.redirect_stdout(io.StringIO()):
        return build_trainer(cfg)


def methods() -> list[str]:
    """Return the trainers that have something to train and a configuration for the comparison."""
    folders = (ROOT / "configs" / "trainers").glob("*/vit_b16_ep50.yaml")
    return sorted({path.parent.name for path in folders} & set(TRAINER_REGISTRY.registered_names()))


def batch_for(trainer: Any, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs as the loader gives them to this trainer, and labels."""
    draw = torch.Generator().manual_seed(0)
    side, width = trainer.clip.sizes.resolution, trainer.clip.sizes.embedding
    labels = torch.randint(trainer.num_classes, (size,), generator=draw)
    if trainer.frozen_images:
        return F.normalize(torch.randn(size, width, generator=draw), dim=-1), labels
    return torch.randn(size, 3, side, side, generator=draw), labels


def step_costs(name: str, size: int, rounds: int, quick: bool = False) -> tuple[list[float], list[float]]:
    """Time steps of a method and of CoOp in turn; return the CPU seconds of both."""
    with tempfile.TemporaryDirectory() as folder:
        pair = build(name, f"{folder}/method", quick), build("CoOp", f"{folder}/coop", quick)
    times: tuple[list[float], list[float]] = [], []
    for number in range(rounds + 1):
        for trainer, seconds in zip(pair, times, strict=True):
            inputs, labels = batch_for(trainer, size)
            trainer.epoch = trainer.batch_idx = 0
            spent = cpu_time(lambda t=trainer, i=inputs, y=labels: t._step(i, y))  # type: ignore[misc]
            if number:  # the first touches memory
                seconds.append(spent)
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trainers", nargs="*", help="names of trainers (default: all)")
    parser.add_argument("--batch", type=int, default=BATCH, help=f"images of a step, also of CoOp's (default {BATCH})")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="the tiny CLIP, to see that it runs")
    args = parser.parse_args()
    print(f"Steps of {args.batch} images, median of {args.rounds}, {BACKBONES[args.quick]}, fp32, CPU time\n")
    print("| method | seconds | CoOp's | cost relative to CoOp |\n|---|---|---|---|")
    for name in args.trainers or methods():
        own, coop = step_costs(name, args.batch, args.rounds, args.quick)
        ratios = [one / other for one, other in zip(own, coop, strict=True)]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        row = (name, f"{statistics.median(own):.3f}", f"{statistics.median(coop):.3f}", spread)
        print(f"| {' | '.join(row)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
