"""Every configuration that is shipped can be read, and is what it says."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from yacs.config import CfgNode

from tests.conftest import ROOT

TRAINERS = sorted((ROOT / "configs" / "trainers").glob("*/*.yaml"))
DATASETS = sorted((ROOT / "configs" / "datasets").glob("*.yaml"))


def load(trainer: Path, dataset: Path = ROOT / "configs" / "datasets" / "shapes.yaml") -> CfgNode:
    sys.path.insert(0, str(ROOT))
    import train

    empty: dict[str, Any] = dict.fromkeys(("root", "output_dir", "resume", "backbone", "head"), "")
    empty.update(dict.fromkeys(("seed", "source_domains", "target_domains", "transforms")), opts=[])
    arguments = {"trainer": trainer.parent.name, "config_file": str(trainer), "dataset_config_file": str(dataset)}
    return train.setup_cfg(Namespace(**empty, **arguments))


@pytest.mark.parametrize("path", TRAINERS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_trainers(path: Path) -> None:
    from dassl.engine import TRAINER_REGISTRY

    cfg = load(path)
    trainer = TRAINER_REGISTRY.get(path.parent.name)
    trainer.check_cfg(trainer.__new__(trainer), cfg)


@pytest.mark.parametrize("path", DATASETS, ids=lambda path: path.stem)
def test_datasets(path: Path) -> None:
    assert load(ROOT / "configs" / "trainers" / "ZeroshotCLIP" / "tiny.yaml", path).DATASET.NAME


def test_settings_of_the_paper() -> None:
    folder = ROOT / "configs" / "trainers" / "CoCoAMix"
    base, transfer, several = (load(folder / f"{n}.yaml") for n in ("vit_b16_ep50", "vit_b16_ep50_xd", "ensemble_ep50"))
    for cfg in (base, transfer, several):
        mix, optim = cfg.TRAINER.COCOAMIX, cfg.OPTIM
        assert (optim.NAME, optim.LR, optim.WEIGHT_DECAY, optim.MAX_EPOCH) == ("adam", 0.002, 5e-4, 50)
        assert (mix.WEIGHT_OPTIM, mix.WEIGHT_LR, optim.MOMENTUM) == ("sgd", 0.002, 0.9)
        assert (mix.N_CTX, mix.CTX_INIT, mix.W_OUT, mix.MARGIN, mix.STAGE) == (16, "", 10.0, 0.2, "one")
        assert (mix.LOSS, mix.ENSEMBLE, mix.OUT_CLASSES) == ("ce+coa", "coa", "word")
        assert cfg.DATALOADER.TRAIN_X.BATCH_SIZE == 32
        assert (optim.LR_SCHEDULER, optim.WARMUP_EPOCH, optim.WARMUP_CONS_LR) == ("cosine", 1, 1e-5)
    assert (base.MODEL.BACKBONE.NAME, base.TRAINER.COCOAMIX.W, base.TRAINER.COCOAMIX.W_IN) == ("ViT-B/16", 5.0, 1.0)
    assert (transfer.TRAINER.COCOAMIX.W, transfer.TRAINER.COCOAMIX.W_IN) == (7.0, 2.0)
    assert list(several.TRAINER.COCOAMIX.BACKBONES) == ["RN50", "RN101", "ViT-B/16", "ViT-B/32"]


def test_settings_of_the_paper_in_sessions() -> None:
    dataset = ROOT / "configs" / "datasets" / "cifar100_fscil.yaml"
    cfg = load(ROOT / "configs" / "trainers" / "CoCoAMixFSCIL" / "vit_l14.yaml", dataset)
    mix, optim, fscil = cfg.TRAINER.COCOAMIX, cfg.OPTIM, cfg.FSCIL
    assert (cfg.DATASET.NAME, cfg.DATASET.NUM_SHOTS, cfg.MODEL.BACKBONE.NAME) == ("CIFAR100FSCIL", -1, "ViT-L/14")
    assert (fscil.BASE, fscil.WAY, fscil.SHOTS, fscil.SPLIT) == (60, 5, 5, "auto")
    assert (fscil.BASE_WEIGHT_EPOCHS, fscil.WEIGHT_EPOCHS, optim.MAX_EPOCH) == (2, 100, 50)
    assert (optim.NAME, optim.LR, optim.WEIGHT_DECAY, optim.MOMENTUM) == ("adam", 0.002, 5e-4, 0.9)
    assert (optim.LR_SCHEDULER, optim.WARMUP_EPOCH, optim.WARMUP_CONS_LR) == ("cosine", 1, 1e-5)
    assert (mix.WEIGHT_OPTIM, mix.WEIGHT_LR, mix.N_CTX, mix.CTX_INIT, mix.STAGE) == ("sgd", 0.002, 2, "", "two")
    assert (mix.W, mix.W_IN, mix.W_OUT, mix.MARGIN) == (5.0, 1.0, 10.0, 0.1)
    assert (mix.LOSS, mix.ENSEMBLE, mix.OUT_CLASSES, mix.TEMPLATE) == ("ce+coa", "coa", "word", "a photo of a {}.")
    assert cfg.DATALOADER.TRAIN_X.BATCH_SIZE == 32
