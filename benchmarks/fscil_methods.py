"""Cost of a step of session 0 and of a later session for each class-incremental method, at the size of ViT-L/14.

    python benchmarks/fscil_methods.py [--methods NAME ...] [--json FILE] [--quick]

Trainers and configurations are the real ones; the weights are random, and features and images are noise. The classes
are those of CIFAR-100, 60 and then five, and the names of all 100 if a method uses them. Each method runs in a separate
process: one step of session 0, all of session 1, and the evaluation after it on 16 images. Times are CPU seconds of all
threads; memory is the peak of the process. Ratios are relative to the step of CoOp-FSCIL.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cocoamix.datasets
import cocoamix.trainers  # noqa: F401

# isort: split
import numpy as np
import torch
from dassl.data.datasets import DATASET_REGISTRY, DatasetBase
from dassl.engine import build_trainer
from PIL import Image

import train
from benchmarks.fscil import BASE, ROOT, FakeItem, noise
from cocoamix.clip import backbones
from cocoamix.io.files import write_json
from cocoamix.seeding import derive_seed
from cocoamix.trainers.base import CLIPTrainer

# Trainer, configuration and further settings.
METHODS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "CoOp-FSCIL": ("CoOpFSCIL", "vit_l14", ()),
    "CoOp-FSCIL, as its source": ("CoOpFSCIL", "vit_l14_source", ()),
    "L2P, text pool": ("L2PFSCIL", "vit_l14", ()),
    "L2P, text pool, laptop": ("L2PFSCIL", "vit_l14_laptop", ()),
    "L2P, visual pool": ("L2PFSCIL", "vit_l14_visual", ()),
    "FACT w/ CLIP, our interpretation": ("FACTFSCIL", "vit_l14", ()),
    "FSPT-FSCIL": ("FSPTFSCIL", "vit_l14", ()),
    "FSPT-FSCIL, laptop": ("FSPTFSCIL", "vit_l14_laptop", ()),
}
REFERENCE = "CoOp-FSCIL"
CLASSES, IMAGES = 100, 10  # images per class
TESTED = 11  # base classes with an image to evaluate on


class NoiseImage(FakeItem):
    """An item whose image is noise."""

    def draw(self) -> Image.Image:
        """Return an image of noise."""
        seed = derive_seed(self._impath)
        return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (224, 224, 3), dtype=np.uint8))


@DATASET_REGISTRY.register()
class ImagesOfNoise(DatasetBase):
    """CIFAR-100's classes with few images."""

    def __init__(self, cfg: Any) -> None:
        items = [NoiseImage(number, label) for label in range(CLASSES) for number in range(IMAGES)]
        tested = [NoiseImage(IMAGES, label) for label in (*range(TESTED), *range(BASE, CLASSES))]
        super().__init__(train_x=items, test=tested)


def build(name: str, folder: str, quick: bool) -> Any:
    """Return the trainer of a method in session 0."""
    trainer, config, settings = METHODS[name]
    layers, vision = (2, 2) if quick else (12, 24)
    if "visual" not in name:
        vision = 1  # stored features do not need the image encoder
    sizes = backbones.Sizes(768, 224, vision, 1024, 14, 768, layers)
    backbones.BACKBONES["ViT-L/14"] = backbones.Backbone(sizes, "none")
    arguments = ["--trainer", trainer, "--seed", "1", "--output-dir", f"{folder}/run"]
    arguments += ["--config-file", str(ROOT / f"configs/trainers/{trainer}/{config}.yaml")]
    options = ["DATASET.NAME", "ImagesOfNoise", "MODEL.BACKBONE.WEIGHTS", "random", "DATALOADER.NUM_WORKERS", "0"]
    options += ["CACHE.VIEWS", "1", "CACHE.DIR", f"{folder}/store", "FSCIL.LAST_SESSION", "1", *settings]
    return build_trainer(train.setup_cfg(train.parse_arguments([*arguments, *options])))


def fill(trainer: Any, loader: Any, part: str) -> None:
    """Write noise to the store as the features of a loader's images."""
    if trainer.images.features is None:
        return
    source = trainer.images._source(loader, part, 0)
    (store,) = trainer.images.features._stores_of(source)
    store.write(source.part(0), source.keys(0), noise(len(loader.dataset), 768))


def first_step(trainer: Any) -> float:
    """Return the CPU seconds of a step of session 0."""
    fill(trainer, trainer.train_loader_x, trainer.store_part("train"))
    trainer.begin_training()
    trainer.epoch = 0
    trainer.before_epoch()
    trainer.set_model_mode("train")
    trainer.num_batches, trainer.batch_idx = len(trainer.train_loader_x), 0
    batch = next(iter(trainer.train_loader_x))
    start = time.process_time()
    trainer.forward_backward(batch)
    return time.process_time() - start


def later_session(trainer: Any) -> tuple[float, float]:
    """Return the CPU seconds of session 1, and of the evaluation after it."""
    trainer._began = time.time()
    trainer.epoch, trainer.max_epoch, trainer.trained_epochs = 0, 1, 1  # session 0 counts as trained
    if trainer.main_model == "prototypes":  # FACT ends session 0 with the class means
        with torch.no_grad():
            trainer.learned.prototypes.copy_(trainer.class_means())
    found = {name: model.named_parameters() for name, model in trainer._models.items()}
    trainer.session_models = [{name: {k: v.detach().clone() for k, v in one} for name, one in found.items()}]
    trainer.origins = [trainer.describe_origin()]
    evaluate, seconds = trainer.test, []

    def timed(split: str | None = None) -> float:
        begun = time.process_time()
        result: float = evaluate(split)
        seconds.append(time.process_time() - begun)
        return result

    trainer.test = timed
    start = time.process_time()
    trainer.begin(1)
    fill(trainer, trainer.train_loader_x, trainer.store_part("train"))
    for loader in trainer._tests[:2]:
        fill(trainer, loader, "test")
    CLIPTrainer.train(trainer)
    return time.process_time() - start - sum(seconds), sum(seconds)


def measure(name: str, quick: bool) -> dict[str, Any]:
    """Measure one method in this process."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "run").mkdir()
        trainer = build(name, folder, quick)
        step = first_step(trainer)
        later, evaluation = later_session(trainer)
        results = json.loads(Path(folder, "run", "results.json").read_text())
    return {
        "first_step_seconds": round(step, 3),
        "later_session_seconds": round(later, 2),
        "evaluation_seconds": round(evaluation, 2),
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "sessions_evaluated": len(results["sessions"]),
    }


def main() -> None:
    """Measure each method in a separate process, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), help="only these methods")
    parser.add_argument("--json", type=Path, default=None, help="file for the numbers")
    parser.add_argument("--quick", action="store_true", help="two layers, only to test the script")
    parser.add_argument("--in-this-process", metavar="FILE", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.in_this_process:
        write_json(Path(args.in_this_process), measure(args.methods[0], args.quick))
        return
    numbers: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in args.methods:
            file = Path(folder, "numbers.json")
            command = [sys.executable, __file__, "--methods", name, "--in-this-process", str(file)]
            done = subprocess.run(command + ["--quick"] * args.quick, capture_output=True, text=True, env=os.environ)
            if done.returncode:
                sys.exit(f"{name}: {done.stdout[-1500:]}{done.stderr[-3000:]}")
            numbers[name] = json.loads(file.read_text())
            print(f"{name}: {numbers[name]}", flush=True)
    print(f"\n{CLASSES} names, CPU seconds, {torch.get_num_threads()} threads; ratio to a step of {REFERENCE}\n")
    print(f"{'method':28} {'step of session 0':>18} {'ratio':>7} {'session 1':>10} {'evaluation':>11} {'memory':>9}")
    reference = numbers.get(REFERENCE, {}).get("first_step_seconds")
    for name, one in numbers.items():
        ratio = f"{one['first_step_seconds'] / reference:.2f}" if reference else ""
        print(
            f"{name:28} {one['first_step_seconds']:>16.2f} s {ratio:>7} {one['later_session_seconds']:>8.1f} s "
            f"{one['evaluation_seconds']:>9.1f} s {one['peak_megabytes']:>6} MB"
        )
    if args.json:
        write_json(args.json, numbers)


if __name__ == "__main__":
    main()
