"""Cost of a training step of each method relative to CoOp, measured with the trainers themselves.

    python benchmarks/methods.py                     all trained methods, as a Markdown table
    python benchmarks/methods.py KgCoOp CoCoOp       only these
    python benchmarks/methods.py --batch 32 CoCoOp   with batches of 32 images instead of the method's own size

At true size with random weights, on the 60 base classes of Shapes, in CPU time; on stored features if the image encoder
is frozen, otherwise on images. Each step is timed in turn with a step of CoOp on as many images. The configuration is
that of the method in the paper's comparison, on ViT-B/16 (T_En: its four models), but contexts are "a photo of a".
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

import train  # first: finds Dassl or our fallback

# isort: split
import torch
import torch.nn.functional as F
import yaml
from dassl.engine import TRAINER_REGISTRY, build_trainer

from benchmarks.measure import BACKBONES, ROOT, cpu_time

COMPARISON = ("vit_b16_ep50", "ensemble_ep50")  # the first that a method has is its configuration in the comparison


def build(name: str, folder: str, quick: bool = False, **settings: str) -> Any:
    """Return a trainer on the base classes of Shapes, at true size with random weights.

    `settings` are further keys, with __ for a dot.
    """
    config = configuration(name, quick)
    flags = ["--trainer", name, "--seed", "1", "--backbone", BACKBONES[quick], "--output-dir", f"{folder}/{name}"]
    flags += ["--dataset-config-file", str(ROOT / "configs/datasets/shapes.yaml"), "--config-file", str(config)]
    options = {"DATASET.SUBSAMPLE_CLASSES": "base", "DATASET.NUM_SHOTS": "1", "MODEL.BACKBONE.WEIGHTS": "random"}
    options |= {"CACHE.MODE": "off", "DATALOADER.NUM_WORKERS": "0"}  # a step is given its batch
    options |= {key.replace("__", "."): value for key, value in settings.items()}
    cfg = train.setup_cfg(train.parse_arguments(flags + [part for pair in options.items() for part in pair]))
    section = cfg.TRAINER[TRAINER_REGISTRY.get(name).section]
    cfg.defrost()
    section.PREC = "fp32"
    if "BACKBONE_WEIGHTS" in section:
        section.BACKBONE_WEIGHTS = ["random"] * len(section.BACKBONES)
    if "CTX_INIT" in section:
        section.CTX_INIT = "a photo of a"
        section.N_CTX = min(4, section.N_CTX)
    cfg.freeze()
    with contextlib.redirect_stdout(io.StringIO()):
        trainer = build_trainer(cfg)
        trainer.begin_training()
    return trainer


def configuration(name: str, quick: bool = False) -> Path:
    """Return the configuration file for timing a trainer."""
    files = [ROOT / f"configs/trainers/{name}/{each}.yaml" for each in (("tiny",) if quick else COMPARISON)]
    return next((file for file in files if file.is_file()), files[0])


def methods() -> list[str]:
    """Return the trainers that have something to train and a configuration for the comparison, CoOp first."""
    names = [name for name in TRAINER_REGISTRY.registered_names() if configuration(name).is_file()]
    return sorted(names, key=lambda name: (name != "CoOp", name))


def batch_for(trainer: Any, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random inputs, as this trainer's loader would give them, and labels."""
    draw = torch.Generator().manual_seed(0)
    side = trainer.clip.sizes.resolution
    width = sum(clip.sizes.embedding for clip in trainer.clip.each())
    labels = torch.randint(trainer.num_classes, (size,), generator=draw)
    if trainer.frozen_images:
        return F.normalize(torch.randn(size, width, generator=draw), dim=-1), labels
    return torch.randn(size, 3, side, side, generator=draw), labels


def step_costs(name: str, size: int, rounds: int, quick: bool = False) -> tuple[list[float], list[float]]:
    """Time steps of a method and of CoOp in turn; return the CPU seconds of both.

    `size` is the batch size; 0 for that of the method's configuration.
    """
    with tempfile.TemporaryDirectory() as folder:
        pair = build(name, f"{folder}/method", quick), build("CoOp", f"{folder}/coop", quick)
    size = size or own_batch(name, quick)
    times: tuple[list[float], list[float]] = [], []
    for number in range(rounds + 1):
        for trainer, seconds in zip(pair, times, strict=True):
            inputs, labels = batch_for(trainer, size)
            trainer.epoch = trainer.batch_idx = 0
            spent = cpu_time(lambda t=trainer, i=inputs, y=labels: t.take_step(i, y))  # type: ignore[misc]
            if number:  # the first step also allocates memory
                seconds.append(spent)
    return times


def own_batch(name: str, quick: bool = False) -> int:
    """Return the batch size of the configuration for timing a trainer."""
    return int(yaml.safe_load(configuration(name, quick).read_text())["DATALOADER"]["TRAIN_X"]["BATCH_SIZE"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trainers", nargs="*", help="names of trainers (default: all)")
    parser.add_argument("--batch", type=int, default=0, help="images of a step (default: as configured)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="the tiny CLIP, to see that it runs")
    args = parser.parse_args()
    print(f"Median of {args.rounds} steps, {BACKBONES[args.quick]}, fp32, CPU time\n")
    print("| method | batch | seconds | CoOp's | cost relative to CoOp |\n|---|---|---|---|---|")
    for name in args.trainers or methods():
        own, coop = step_costs(name, args.batch, args.rounds, args.quick)
        ratios = [one / other for one, other in zip(own, coop, strict=True)]
        spread = f"{statistics.median(ratios):.3g} ({min(ratios):.3g} to {max(ratios):.3g})"
        batch = args.batch or own_batch(name, args.quick)
        row = (name, str(batch), f"{statistics.median(own):.3f}", f"{statistics.median(coop):.3f}", spread)
        print(f"| {' | '.join(row)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
