"""The dataset of a run and its loaders, with the batches of Dassl's data manager."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from dassl.data.datasets import DATASET_REGISTRY
from torch.utils.data import DataLoader, RandomSampler, Sampler, SequentialSampler
from yacs.config import CfgNode

from cocoamix.config.partition import LABEL
from cocoamix.errors import UserError, check_choice
from cocoamix.features.images import ImageItems, collate
from cocoamix.features.transforms import build_transform
from cocoamix.io.screen import detail


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's warning about more workers than cores: CoOp's configurations ask for 8 on every machine."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        yield


class DataManager:
    """The dataset of a configuration and its loaders, with the attributes of Dassl's data manager.

    Attributes:
        dataset: The dataset, with the interface of Dassl's `DatasetBase`.
        val_loader: None without validation images.

    Args:
        cfg: The configuration.
        dataset: The dataset; by default the one that DATASET.NAME names.
    """

    def __init__(self, cfg: CfgNode, dataset: Any = None) -> None:
        train, test = _transforms(cfg)
        self.dataset = self._build(cfg) if dataset is None else dataset
        data = self.dataset
        self.train_loader_x = make_loader(cfg, data.train_x, train, train=True)
        self.val_loader = make_loader(cfg, data.val, test, train=False) if data.val else None
        self.test_loader = make_loader(cfg, data.test, test, train=False)
        self.num_classes, self.lab2cname = int(data.num_classes), dict(data.lab2cname)
        cast(ImageItems, self.train_loader_x.dataset).is_random = cfg.CACHE.VIEWS != 1
        self._check(cfg)
        if cfg.VERBOSE:
            counts = {split: len(getattr(data, split) or ()) for split in ("train_x", "val", "test")}
            rows = {"dataset": cfg.DATASET.NAME, "classes": self.num_classes, **counts}
            detail("\n".join(f"  {name:8} {value}" for name, value in rows.items() if value))

    def _build(self, cfg: CfgNode) -> Any:
        check_choice("DATASET.NAME", cfg.DATASET.NAME, DATASET_REGISTRY.registered_names())
        dataset = DATASET_REGISTRY.get(cfg.DATASET.NAME)(cfg)
        if getattr(dataset, "partition", LABEL) != cfg.DATASET.PARTITION:
            raise UserError(
                f"DATASET.PARTITION is {cfg.DATASET.PARTITION}, but the dataset {cfg.DATASET.NAME} is not this "
                "project's and always divides its classes by label. Use ours, such as DATASET.NAME cocoamix.EuroSAT, "
                f"or leave it at {LABEL}."
            )
        return dataset

    def _check(self, cfg: CfgNode) -> None:
        if getattr(self.dataset, "train_u", None):
            raise UserError(
                f"The dataset {cfg.DATASET.NAME} has unlabelled images (train_u), which no trainer here uses."
            )
        if len(self.dataset.classnames) != self.num_classes:
            raise UserError(
                f"The labels of {cfg.DATASET.NAME} run to {self.num_classes - 1}, but only "
                f"{len(self.dataset.classnames)} classes have training images. Every class needs at least one."
            )
        if cfg.TEST.FINAL_MODEL == "best_val" and self.val_loader is None:
            raise UserError(
                "TEST.FINAL_MODEL is best_val, but the dataset has no validation images, "
                "and selecting a model on test images would bias the result. Use last_step."
            )


def _transforms(cfg: CfgNode) -> tuple[Any, Any]:
    """Return the transforms of training and of test images."""
    try:
        train, test = (build_transform(cfg, is_train=is_train) for is_train in (True, False))
    except UserError:
        raise
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"The transforms cannot be built from INPUT.*: {error}.") from error
    return (test if cfg.CACHE.VIEWS == 1 else train), test


@_quiet()
def make_loader(
    cfg: CfgNode, items: Sequence[Any], transform: Any, train: bool, batch_size: int = 0
) -> DataLoader[Any]:
    """Return a loader over some items. In training, an incomplete batch is dropped, unless it is the only one.

    Args:
        cfg: The configuration, which sets the order and the batch size.
        items: The items.
        transform: The transform of an image.
        train: Whether it is for training.
        batch_size: Replaces the batch size of the configuration.
    """
    if not items:
        raise UserError(
            f"The {'training' if train else 'evaluation'} set is empty. Check the dataset, its split and NUM_SHOTS."
        )
    settings = cfg.DATALOADER.TRAIN_X if train else cfg.DATALOADER.TEST
    is_shuffled, size = settings.SAMPLER == "RandomSampler", batch_size or settings.BATCH_SIZE
    sampler: Sampler[int] = RandomSampler(items) if is_shuffled else SequentialSampler(items)
    return DataLoader(
        ImageItems(cfg, items, transform, train),
        sampler=sampler,
        batch_size=size,
        drop_last=train and size <= len(items),
        num_workers=cfg.DATALOADER.NUM_WORKERS,
        pin_memory=cfg.USE_CUDA and torch.cuda.is_available(),
        collate_fn=collate,
    )


def loader_over(
    cfg: CfgNode, whole: DataLoader[Any], items: Sequence[Any], train: bool, seed: int, batch_size: int = 0
) -> DataLoader[Any]:
    """Return a loader over some items with the transform of another loader.

    Args:
        cfg: The configuration, which sets the order and the batch size.
        whole: The loader whose transform to use.
        items: The items.
        train: Whether it is for training. If not, its images are not augmented.
        seed: Seed of the augmentations.
        batch_size: Replaces the batch size of the configuration.
    """
    all_items = cast(ImageItems, whole.dataset)
    loader = make_loader(cfg, list(items), all_items.transform, train, batch_size)
    dataset = cast(ImageItems, loader.dataset)
    dataset.is_random, dataset.seed = train and all_items.is_random, seed
    return loader
