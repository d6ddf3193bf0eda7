"""Loaders over a dataset's items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from dassl.utils import read_image
from torch.utils.data import DataLoader, Dataset
from yacs.config import CfgNode

from cocoamix.errors import UserError

from .datasets import Datum, build_dataset
from .samplers import build_sampler
from .transforms import build_transform, plain_transform


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
    """Build a loader. In training an incomplete batch is dropped, unless it is the only one."""
    if not data_source:
        raise UserError(
            f"The {'training' if is_train else 'evaluation'} set is empty. Check the dataset, its split and NUM_SHOTS."
        )
    sampler = build_sampler(sampler_type, cfg, data_source, batch_size, n_domain, n_ins)
    loader: DataLoader[Any] = DataLoader(
        (dataset_wrapper or DatasetWrapper)(cfg, data_source, transform=tfm, is_train=is_train),
        batch_size=batch_size,
        sampler=sampler,
        num_workers=cfg.DATALOADER.NUM_WORKERS,
        drop_last=is_train and len(data_source) >= batch_size,
        pin_memory=torch.cuda.is_available() and cfg.USE_CUDA,
    )
    if len(loader) == 0:
        raise UserError(f"{sampler_type} makes no whole batch of {batch_size}. Use a smaller batch.")
    return loader


class DataManager:
    """A config's dataset and its loaders; `train_loader_u` and `val_loader` are None without such items."""

    def __init__(
        self,
        cfg: CfgNode,
        custom_tfm_train: Any = None,
        custom_tfm_test: Any = None,
        dataset_wrapper: Callable[..., Dataset[Any]] | None = None,
    ) -> None:
        self.dataset = build_dataset(cfg)
        tfm_train = build_transform(cfg, is_train=True) if custom_tfm_train is None else custom_tfm_train
        tfm_test = build_transform(cfg, is_train=False) if custom_tfm_test is None else custom_tfm_test

        def training(items: Sequence[Datum], keys: CfgNode) -> DataLoader[Any]:
            return build_data_loader(
                cfg,
                keys.SAMPLER,
                items,
                keys.BATCH_SIZE,
                keys.N_DOMAIN,
                keys.N_INS,
                tfm=tfm_train,
                is_train=True,
                dataset_wrapper=dataset_wrapper,
            )

        def evaluation(items: Sequence[Datum]) -> DataLoader[Any]:
            return build_data_loader(
                cfg,
                cfg.DATALOADER.TEST.SAMPLER,
                items,
                cfg.DATALOADER.TEST.BATCH_SIZE,
                tfm=tfm_test,
                is_train=False,
                dataset_wrapper=dataset_wrapper,
            )

        data, keys_u = self.dataset, cfg.DATALOADER.TRAIN_U
        if keys_u.SAME_AS_X:
            keys_u = cfg.DATALOADER.TRAIN_X
        self.train_loader_x = training(data.train_x, cfg.DATALOADER.TRAIN_X)
        self.train_loader_u = training(data.train_u, keys_u) if data.train_u else None
        self.val_loader = evaluation(data.val) if data.val else None
        self.test_loader = evaluation(data.test)
        self._num_source_domains = len(cfg.DATASET.SOURCE_DOMAINS)
        if cfg.VERBOSE:
            self.show_dataset_summary(cfg)

    @property
    def num_classes(self) -> int:
        return self.dataset.num_classes

    @property
    def num_source_domains(self) -> int:
        return self._num_source_domains

    @property
    def lab2cname(self) -> dict[int, str]:
        return self.dataset.lab2cname

    def show_dataset_summary(self, cfg: CfgNode) -> None:
        """Print the size of the dataset as a small table."""
        rows: list[tuple[str, object]] = [
            ("dataset", cfg.DATASET.NAME),
            ("source", ", ".join(cfg.DATASET.SOURCE_DOMAINS)),
            ("target", ", ".join(cfg.DATASET.TARGET_DOMAINS)),
            ("classes", f"{self.num_classes:,}"),
        ]
        for split in ("train_x", "train_u", "val", "test"):
            rows.append((split, f"{len(getattr(self.dataset, split) or ()):,}"))
        print("\n".join(f"  {name:8} {value}" for name, value in rows if value not in ("", "0")))


class DatasetWrapper(Dataset[Any]):
    """Reads and transforms items. An item becomes a dictionary: img, label, domain, impath, index.

    With several transforms the results are img, img2, ...; with K_TRANSFORMS above 1, each is a list.
    """

    def __init__(self, cfg: CfgNode, data_source: Sequence[Datum], transform: Any = None, is_train: bool = False):
        self.cfg = cfg
        self.data_source = data_source
        self.transform = transform
        self.is_train = is_train
        self.k_tfm = cfg.DATALOADER.K_TRANSFORMS if is_train else 1
        self.return_img0 = cfg.DATALOADER.RETURN_IMG0
        if self.k_tfm > 1 and transform is None:
            raise UserError(f"DATALOADER.K_TRANSFORMS is {self.k_tfm}, but images are not transformed.")
        if self.return_img0:
            self.to_tensor = plain_transform(cfg)

    def __len__(self) -> int:
        return len(self.data_source)

    def __getitem__(self, idx: int) -> dict[str, Any]:
        item = self.data_source[idx]
        output = {"label": item.label, "domain": item.domain, "impath": item.impath, "index": idx}
        image = read_image(item.impath)
        several = self.transform if isinstance(self.transform, (list, tuple)) else [self.transform]
        for number, transform in enumerate(several, start=1):
            output["img" if number == 1 else f"img{number}"] = self._transform_image(transform, image)
        if self.return_img0:
            output["img0"] = self.to_tensor(image)
        return output

    def _transform_image(self, tfm: Any, img0: Any) -> Any:
        if tfm is None:
            return img0
        versions = [tfm(img0) for _ in range(self.k_tfm)]
        return versions[0] if self.k_tfm == 1 else versions
