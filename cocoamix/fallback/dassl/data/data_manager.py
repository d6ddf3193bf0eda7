"""Loaders over a dataset's items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from dassl.config import refuse_unsupported
from dassl.utils import read_image
from torch.utils.data import DataLoader, Dataset
from yacs.config import CfgNode

from cocoamix.errors import UserError
from cocoamix.io.screen import detail

from .datasets import Datum, build_dataset
from .samplers import build_sampler
from .transforms import build_transform


def build_data_loader(
    cfg: CfgNode,
    sampler_type: str = "SequentialSampler",
    data_source: Sequence[Datum] | None = None,
    batch_size: int = 64,
    n_domain: int = 0,
    n_ins: int = 2,
    tfm: Any = None,
    is_train: bool = True,
    dataset_wrapper: Callable[..., Dataset[Any]] | None = None,
) -> DataLoader[Any]:
    """Build a loader. In training, an incomplete batch is dropped, unless it is the only one.

    `n_domain` is part of Dassl's signature; no sampler here uses it.
    """
    if not data_source:
        raise UserError(
            f"The {'training' if is_train else 'evaluation'} set is empty. Check the dataset, its split and NUM_SHOTS."
        )
    loader: DataLoader[Any] = DataLoader(
        (dataset_wrapper or DatasetWrapper)(cfg, data_source, transform=tfm, is_train=is_train),
        sampler=build_sampler(sampler_type, cfg, data_source, batch_size, n_ins=n_ins),
        batch_size=batch_size,
        drop_last=is_train and batch_size <= len(data_source),
        num_workers=cfg.DATALOADER.NUM_WORKERS,
        pin_memory=cfg.USE_CUDA and torch.cuda.is_available(),
    )
    if len(loader) == 0:
        raise UserError(f"{sampler_type} makes no whole batch of {batch_size}. Use a smaller batch.")
    return loader


class DataManager:
    """The dataset of a configuration and its loaders; `val_loader` is None without validation items."""

    def __init__(
        self,
        cfg: CfgNode,
        custom_tfm_train: Any = None,
        custom_tfm_test: Any = None,
        dataset_wrapper: Callable[..., Dataset[Any]] | None = None,
    ) -> None:
        self.dataset = build_dataset(cfg)
        if self.dataset.train_u:
            raise UserError(
                f"The dataset {cfg.DATASET.NAME} has unlabelled training images. Training on them needs Dassl itself: "
                "install it, or leave them out (train_u)."
            )

        train = build_transform(cfg, is_train=True) if custom_tfm_train is None else custom_tfm_train
        test = build_transform(cfg, is_train=False) if custom_tfm_test is None else custom_tfm_test

        def loader(items: Sequence[Datum], keys: CfgNode, transform: Any) -> DataLoader[Any]:
            return build_data_loader(
                cfg,
                keys.SAMPLER,
                items,
                keys.BATCH_SIZE,
                n_ins=keys.get("N_INS", 2),
                tfm=transform,
                is_train=keys is cfg.DATALOADER.TRAIN_X,
                dataset_wrapper=dataset_wrapper,
            )

        data, keys = self.dataset, cfg.DATALOADER
        self.train_loader_x = loader(data.train_x, keys.TRAIN_X, train)
        self.train_loader_u = None  # trainers expect the attribute
        self.val_loader = loader(data.val, keys.TEST, test) if data.val else None
        self.test_loader = loader(data.test, keys.TEST, test)
        self.num_classes: int = data.num_classes
        self.num_source_domains = len(cfg.DATASET.SOURCE_DOMAINS)
        self.lab2cname: dict[int, str] = data.lab2cname
        if cfg.VERBOSE:
            detail(self._summary(cfg.DATASET))

    def _summary(self, keys: CfgNode) -> str:
        """Return the size of the dataset as a small table."""
        rows = [
            ("dataset", keys.NAME),
            ("source", ", ".join(keys.SOURCE_DOMAINS)),
            ("target", ", ".join(keys.TARGET_DOMAINS)),
            ("classes", f"{self.num_classes:,}"),
        ]
        rows += [(split, f"{len(getattr(self.dataset, split) or ()):,}") for split in ("train_x", "val", "test")]
        return "\n".join(f"  {name:8} {value}" for name, value in rows if value not in ("", "0"))


class DatasetWrapper(Dataset[Any]):
    """Reads and transforms items. An item becomes a dictionary: img, label, domain, impath, index."""

    def __init__(self, cfg: CfgNode, data_source: Sequence[Datum], transform: Any = None, is_train: bool = False):
        refuse_unsupported(cfg.DATALOADER, "DATALOADER.")
        self.cfg, self.is_train = cfg, is_train
        self.data_source, self.transform = data_source, transform

    def __getitem__(self, idx: int) -> dict[str, Any]:
        item = self.data_source[idx]
        image = read_image(item.impath, upright=bool(getattr(item, "upright", False)))
        known = {key: getattr(item, key) for key in ("label", "domain", "impath")}
        return {**known, "index": idx, "img": image if self.transform is None else self.transform(image)}

    def __len__(self) -> int:
        return len(self.data_source)
