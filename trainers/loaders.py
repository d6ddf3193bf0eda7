"""Loaders over some of the items of another loader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from dassl.data.data_manager import build_data_loader
from torch.utils.data import DataLoader
from yacs.config import CfgNode

from cocoamix import images


def loader_over(
    cfg: CfgNode, whole: DataLoader[Any], items: Sequence[Any], train: bool, seed: int, batch_size: int | None = None
) -> DataLoader[Any]:
    """Return a loader that treats items as `whole` does: its transform, and the order and batches that cfg names.

    train: whether it is one for training, or one that goes through its items in their order.
    batch_size: if not the one that cfg names.
    """
    shown = cast(images.ImageItems, whole.dataset)
    keys = cfg.DATALOADER.TRAIN_X if train else cfg.DATALOADER.TEST
    loader: DataLoader[Any] = build_data_loader(
        cfg,
        sampler_type=keys.SAMPLER,
        data_source=list(items),
        batch_size=batch_size or keys.BATCH_SIZE,
        n_domain=cfg.DATALOADER.TRAIN_X.N_DOMAIN,
        n_ins=cfg.DATALOADER.TRAIN_X.N_INS,
        tfm=shown.transform,
        is_train=train,
        dataset_wrapper=images.ImageItems,
    )
    loader.collate_fn = images.collate
    mine = cast(images.ImageItems, loader.dataset)
    mine.is_random, mine.seed = train and shown.is_random, seed
    return loader
