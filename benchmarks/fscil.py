"""Cost of session 0 of CIFAR-100: 30,000 stored features, its 60 classes, ViT-L/14's text encoder, batches of 32.

    python benchmarks/fscil.py [--steps N] [--batch N] [--json FILE] [--quick]

The trainer is the real one with the paper's configuration. The features are noise and the weights random, at true size;
the image encoder is left out, because stored features do not need it. An epoch runs twice: once without the text
encoder (reading batches, loss, optimizer) for all steps, and once with it for all steps or the first --steps. Without
the encoder, fixed features with a zero gradient take its place, so that the context is still updated. Times are CPU
seconds of all threads.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cocoamix.datasets
import cocoamix.trainers  # noqa: F401

# isort: split
import torch
import torch.nn.functional as F
from dassl.data.datasets import DATASET_REGISTRY, DatasetBase, Datum
from dassl.engine import build_trainer

import train
from cocoamix.clip import backbones
from cocoamix.datasets.cifar100_fscil import official_names
from cocoamix.features.extract import FrozenFeatures, Source
from cocoamix.features.images import ImageItems
from cocoamix.io.files import write_json

ROOT = Path(__file__).resolve().parent.parent
BASE, IMAGES, EPOCHS = 60, 500, 50
NAMES = official_names()


class FakeItem(Datum):
    """An item with a class name but without a file."""

    def __init__(self, number: int, label: int) -> None:
        self._impath, self._label, self._domain = f"noise/{label}/{number}", label, 0
        self._classname = NAMES[label]
        self.identity = self._impath


@DATASET_REGISTRY.register()
class StoredNoise(DatasetBase):
    """A dataset with as many items as session 0 of CIFAR-100, and one later session, because one is required."""

    images = IMAGES

    def __init__(self, cfg: Any) -> None:
        items = [FakeItem(number, label) for label in range(BASE + 5) for number in range(self.images)]
        super().__init__(train_x=items, test=items[:: self.images])


def noise(count: int, width: int) -> torch.Tensor:
    """Return random unit vectors."""
    return F.normalize(torch.randn(count, width, generator=torch.Generator().manual_seed(0)), dim=-1)


def build(folder: str, quick: bool, batch: int) -> Any:
    """Return the trainer in session 0, on noise."""
    layers = 1 if quick else 12
    sizes = backbones.Sizes(768, 224, 1, 64, 56, 768, layers)
    backbones.BACKBONES["ViT-L/14"] = backbones.Backbone(sizes, "none")
    StoredNoise.images = 5 if quick else IMAGES
    arguments = ["--trainer", "CoCoAMixFSCIL", "--seed", "1", "--output-dir", folder]
    arguments += ["--config-file", str(ROOT / "configs/trainers/CoCoAMixFSCIL/vit_l14.yaml")]
    options = ["DATASET.NAME", "StoredNoise", "MODEL.BACKBONE.WEIGHTS", "random", "DATALOADER.NUM_WORKERS", "0"]
    options += ["FSCIL.BASE_BATCH_SIZE", str(batch)]
    return build_trainer(train.setup_cfg(train.parse_arguments([*arguments, *options])))


def store_time(trainer: Any, folder: str) -> float:
    """Return the CPU seconds that it takes to read the features of an epoch from the store."""
    items: ImageItems = trainer.train_loader_x.dataset
    source = Source(items, "noise", 32, 0)
    features = FrozenFeatures(trainer.clip.each(), Path(folder))
    (store,) = features._stores_of(source)
    keys, rows = source.keys(0), noise(len(items), 768)
    for first in range(0, len(keys), 4096):
        store.write(source.part(0), keys[first : first + 4096], rows[first : first + 4096])
    start = time.process_time()
    features.load(source, 0, 0)
    return time.process_time() - start


def run_steps(trainer: Any, steps: int) -> tuple[float, float, int]:
    """Run steps (0: a whole epoch); return the CPU seconds of reading batches and of steps, and the number of steps."""
    loader = trainer.train_loader_x
    trainer.num_batches = len(loader)
    reading, stepping, done = 0.0, 0.0, 0
    batches = iter(loader)
    for number in range(min(steps or len(loader), len(loader))):
        start = time.process_time()
        batch = next(batches)
        middle = time.process_time()
        trainer.batch_idx = number
        trainer.forward_backward(batch)
        reading += middle - start
        stepping += time.process_time() - middle
        done += 1
    return reading, stepping, done


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=0, help="steps with the text encoder; 0 for the whole epoch")
    parser.add_argument("--batch", type=int, default=0, help="FSCIL.BASE_BATCH_SIZE; 0 for the paper's 32")
    parser.add_argument("--json", type=Path, default=None, help="file for the numbers")
    parser.add_argument("--quick", action="store_true", help="300 images and one layer, only to test the script")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["COCOAMIX_CACHE"] = folder
        trainer = build(folder, args.quick, args.batch)
        stored = store_time(trainer, folder)
        trainer.set_model_mode("train")
        trainer.begin_training()
        encode = trainer.encode_learners
        stand_in = noise(BASE, 768)
        trainer.encode_learners = lambda learners: stand_in + 0 * learners[0].ctx.sum()
        reading, rest, steps = run_steps(trainer, 0)
        if not trainer._optims["prompt_learner"].state:
            raise RuntimeError("the steps without the text encoder updated nothing")
        trainer.encode_learners = encode
        _, stepping, measured = run_steps(trainer, args.steps)
    per_step = stepping / measured
    text = max(0.0, per_step - rest / steps)
    epoch = stored + reading + steps * per_step
    numbers = {
        "threads": torch.get_num_threads(),
        "steps_of_an_epoch": steps,
        "steps_measured_with_text": measured,
        "store_seconds_per_epoch": round(stored, 2),
        "reading_ms_per_step": round(1000 * reading / steps, 3),
        "loss_and_optimizer_ms_per_step": round(1000 * rest / steps, 3),
        "text_encoder_ms_per_step": round(1000 * text, 1),
        "epoch_seconds": round(epoch, 1),
        "hours_of_50_epochs": round(EPOCHS * epoch / 3600, 2),
        "text_share": round(text * steps / epoch, 4),
        "data_share": round((stored + reading) / epoch, 4),
    }
    features, batch = len(trainer.train_loader_x.dataset), trainer.train_loader_x.batch_size
    print(f"\n{features:,} features, {BASE} classes, batches of {batch}, CPU seconds")
    for name, value in numbers.items():
        print(f"  {name.replace('_', ' '):32} {value}")
    if args.json:
        write_json(args.json, numbers)


if __name__ == "__main__":
    main()
