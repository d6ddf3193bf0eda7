"""Image loaders, built by Dassl's data manager, which read images with `cocoamix.features.images`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from dassl.data import DataManager
from dassl.data.data_manager import build_data_loader
from dassl.data.transforms import build_transform
from torch.utils.data import DataLoader
from yacs.config import CfgNode

from cocoamix.config.partition import LABEL
from cocoamix.errors import UserError
from cocoamix.features.images import ImageItems, collate

from . import given


class GivenManager:
    """Loaders over data that the caller passes, with the attributes of Dassl's data manager."""

    def __init__(self, cfg: CfgNode, data: given.GivenData, train: Any, test: Any) -> None:
        self.dataset, self.num_classes, self.lab2cname = data, data.num_classes, data.lab2cname
        self.num_source_domains, self.train_loader_u = 0, None
        self.train_loader_x = self._loader(cfg, data.train_x, train, True)
        self.val_loader = self._loader(cfg, data.val, test, False) if data.val else None
        self.test_loader = self._loader(cfg, data.test, test, False)

    def _loader(self, cfg: CfgNode, items: Sequence[Any], transform: Any, is_train: bool) -> DataLoader[Any]:
        keys = cfg.DATALOADER.TRAIN_X if is_train else cfg.DATALOADER.TEST
        return build_data_loader(
            cfg,
            sampler_type=keys.SAMPLER,
            data_source=items,
            batch_size=keys.BATCH_SIZE,
            n_domain=cfg.DATALOADER.TRAIN_X.N_DOMAIN,
            n_ins=cfg.DATALOADER.TRAIN_X.N_INS,
            tfm=transform,
            is_train=is_train,
            dataset_wrapper=ImageItems,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's warning about more workers than cores: CoOp's configurations ask for 8 on every machine."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        yield


@_quiet()
def build_manager(cfg: CfgNode) -> Any:
    """Return a data manager for the dataset in the configuration, or for the data that the caller passes."""
    try:
        train_transform, test_transform = (build_transform(cfg, is_train=is_train) for is_train in (True, False))
    except UserError:
        raise
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"The transforms cannot be built from INPUT.*: {error}.") from error
    fixed = cfg.CACHE.VIEWS == 1
    if fixed:
        train_transform = test_transform
    data = given.current()
    if data:
        manager: Any = GivenManager(cfg, data, train_transform, test_transform)
    else:
        manager = DataManager(cfg, train_transform, test_transform, dataset_wrapper=ImageItems)
    if len(manager.dataset.classnames) != manager.num_classes:
        raise UserError(
            f"The labels of {cfg.DATASET.NAME} run to {manager.num_classes - 1}, but only "
            f"{len(manager.dataset.classnames)} classes have training images. Every class needs at least one."
        )
    if not data:
        _refuse_other_halves(cfg, manager.dataset)
    for loader in (manager.train_loader_x, manager.val_loader, manager.test_loader):
        if loader is not None:
            loader.collate_fn = collate
    cast(ImageItems, manager.train_loader_x.dataset).is_random = not fixed
    if cfg.TEST.FINAL_MODEL == "best_val" and manager.val_loader is None:
        raise UserError(
            "TEST.FINAL_MODEL is best_val, but the dataset has no validation images, "
            "and selecting a model on test images would bias the result. Use last_step."
        )
    return manager


def _refuse_other_halves(cfg: CfgNode, dataset: Any) -> None:
    """Refuse a partition that a dataset of another code base ignores."""
    wanted = cfg.DATASET.PARTITION
    if getattr(dataset, "partition", LABEL) != wanted:
        raise UserError(
            f"DATASET.PARTITION is {wanted}, but the dataset {cfg.DATASET.NAME} is not this project's and always "
            f"divides its classes by label. Use ours, such as DATASET.NAME cocoamix.EuroSAT, or leave it at {LABEL}."
        )


@_quiet()
def loader_over(
    cfg: CfgNode, whole: DataLoader[Any], items: Sequence[Any], train: bool, seed: int, batch_size: int | None = None
) -> DataLoader[Any]:
    """Return a loader over some items with the transform of another loader.

    Args:
        cfg: The configuration, which sets the order and the batch size.
        whole: The loader whose transform to use.
        items: The items.
        train: Whether it is for training. If not, it reads the items in order.
        seed: Seed of the augmentations.
        batch_size: Replaces the batch size in `cfg`.
    """
    all_items = cast(ImageItems, whole.dataset)
    keys = cfg.DATALOADER.TRAIN_X if train else cfg.DATALOADER.TEST
    loader: DataLoader[Any] = build_data_loader(
        cfg,
        sampler_type=keys.SAMPLER,
        data_source=list(items),
        batch_size=batch_size or keys.BATCH_SIZE,
        n_domain=cfg.DATALOADER.TRAIN_X.N_DOMAIN,
        n_ins=cfg.DATALOADER.TRAIN_X.N_INS,
        tfm=all_items.transform,
        is_train=train,
        dataset_wrapper=ImageItems,
    )
    loader.collate_fn = collate
    dataset = cast(ImageItems, loader.dataset)
    dataset.is_random, dataset.seed = train and all_items.is_random, seed
    return loader
