"""A small dataset, a small trainer, and a config for both."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.nn import functional as F
from yacs.config import CfgNode

from . import engine as _engine  # noqa: F401  (before dassl: it makes dassl importable)

# isort: split

from dassl.config import get_cfg_default
from dassl.data.datasets import DATASET_REGISTRY, DatasetBase, Datum
from dassl.engine import TRAINER_REGISTRY, TrainerX
from dassl.metrics import compute_accuracy
from dassl.optim import build_lr_scheduler, build_optimizer
from dassl.utils import Logger

if hasattr(Logger, "__del__"):
    del Logger.__del__  # Dassl's logger closes its console when deleted, and under pytest that is pytest's

COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30), "deep blue": (30, 30, 200)}


@DATASET_REGISTRY.register(force=True)
class ToyColours(DatasetBase):
    """Three classes of one colour each: 4 training, 1 validation and 2 test images per class."""

    def __init__(self, cfg: CfgNode) -> None:
        splits: dict[str, list[Datum]] = {"train": [], "val": [], "test": []}
        for split, number in (("train", 4), ("val", 1), ("test", 2)):
            for label, name in enumerate(COLOURS):
                for index in range(number):
                    path = str(Path(cfg.DATASET.ROOT) / f"{split}-{name}-{index}.png")
                    splits[split].append(Datum(impath=path, label=label, domain=index % 2, classname=name))
        super().__init__(train_x=splits["train"], val=splits["val"], test=splits["test"])


@TRAINER_REGISTRY.register(force=True)
class ToyTrainer(TrainerX):
    """A linear model of an image's mean colour, trained as CoOp trains its contexts."""

    def build_model(self) -> None:
        self.built_with = (self.num_classes, len(self.train_loader_x))
        self.model = torch.nn.Linear(3, self.num_classes)
        self.optim = build_optimizer(self.model, self.cfg.OPTIM)
        self.sched = build_lr_scheduler(self.optim, self.cfg.OPTIM)
        self.register_model("prompt_learner", self.model, self.optim, self.sched)
        self.rates: list[float] = []

    def parse_batch_train(self, batch: Any) -> Any:
        return batch["img"].mean(dim=(2, 3)).to(self.device), batch["label"].to(self.device)

    def parse_batch_test(self, batch: Any) -> Any:
        return self.parse_batch_train(batch)

    def before_epoch(self) -> None:
        self.rates.append(self.get_current_lr())

    def forward_backward(self, batch: Any) -> Any:
        image, label = self.parse_batch_train(batch)
        output = self.model(image)
        loss = F.cross_entropy(output, label)
        self.model_backward_and_update(loss)
        if self.batch_idx + 1 == self.num_batches:
            self.update_lr()
        return {"loss": loss.item(), "acc": compute_accuracy(output, label)[0].item()}


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the toy dataset's images."""
    root = tmp_path_factory.mktemp("images")
    for split, number in (("train", 4), ("val", 1), ("test", 2)):
        for name, colour in COLOURS.items():
            for index in range(number):
                shade = tuple(value + 5 * index for value in colour)
                Image.new("RGB", (20, 12), shade).save(root / f"{split}-{name}-{index}.png")
    return root


@pytest.fixture
def cfg(images: Path, tmp_path: Path) -> CfgNode:
    """The settings of a very short run."""
    node = get_cfg_default()
    node.OUTPUT_DIR = str(tmp_path / "run")
    node.DATASET.ROOT = str(images)
    node.DATASET.NAME = "ToyColours"
    node.TRAINER.NAME = "ToyTrainer"
    node.INPUT.SIZE = (8, 8)
    node.INPUT.INTERPOLATION = "bicubic"
    node.DATALOADER.NUM_WORKERS = 0
    node.DATALOADER.TRAIN_X.BATCH_SIZE = 5
    node.DATALOADER.TEST.BATCH_SIZE = 4
    node.OPTIM.NAME = "sgd"
    node.OPTIM.LR = 0.002
    node.OPTIM.LR_SCHEDULER = "cosine"
    node.OPTIM.MAX_EPOCH = 10
    node.OPTIM.WARMUP_EPOCH = 1
    node.OPTIM.WARMUP_TYPE = "constant"
    node.TRAIN.PRINT_FREQ = 2
    return node


@pytest.fixture
def items(images: Path) -> Callable[[list[int]], list[Datum]]:
    """Create items with the given labels; item i has domain i % 2."""
    path = str(images / "train-red-0.png")
    return lambda labels: [Datum(path, label, i % 2, f"class {label}") for i, label in enumerate(labels)]


@pytest.fixture(autouse=True)
def same_stdout() -> Iterator[None]:
    """Undo what setup_logger does."""
    before = sys.stdout
    yield
    sys.stdout = before
