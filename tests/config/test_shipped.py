"""Every shipped configuration can be read, and contains what it claims."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from yacs.config import CfgNode

from cocoamix.run.schedules import build_schedule
from tests.conftest import ROOT

TRAINERS = sorted((ROOT / "configs" / "trainers").glob("*/*.yaml"))
DATASETS = sorted((ROOT / "configs" / "datasets").glob("*.yaml"))


def load(trainer: Path, dataset: Path = ROOT / "configs" / "datasets" / "shapes.yaml") -> CfgNode:
    sys.path.insert(0, str(ROOT))
    import train

    empty: dict[str, Any] = dict.fromkeys(("root", "output_dir", "resume", "backbone", "head"), "")
    empty.update(dict.fromkeys(("seed", "source_domains", "target_domains", "transforms")), opts=[])
    arguments = {"trainer": trainer.parent.name, "config_file": str(trainer), "dataset_config_file": str(dataset)}
    return train.setup_cfg(Namespace(**empty, **arguments, imports=[]))


@pytest.mark.parametrize("path", TRAINERS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_each_trainer_accepts_its_configurations(path: Path) -> None:
    from dassl.engine import TRAINER_REGISTRY

    cfg = load(path)
    TRAINER_REGISTRY.get(path.parent.name).check_cfg(cfg)


@pytest.mark.parametrize("path", DATASETS, ids=lambda path: path.stem)
def test_each_dataset_configuration_names_its_dataset(path: Path) -> None:
    assert load(ROOT / "configs" / "trainers" / "ZeroshotCLIP" / "tiny.yaml", path).DATASET.NAME


def test_cocoamix_has_the_papers_settings() -> None:
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
    two = load(folder / "vit_b16_ep50_two_stage.yaml").TRAINER.COCOAMIX
    assert (two.STAGE, two.W, two.W_IN, two.W_OUT, two.MARGIN, two.WEIGHT_EPOCHS) == ("two", 5.0, 1.0, 8.0, 0.2, 0)
    held = load(folder / "vit_b16_ep50_heldout.yaml").TRAINER.COCOAMIX
    assert (two.WEIGHT_FIT, held.WEIGHT_FIT) == ("train", "heldout")
    assert {**held, "WEIGHT_FIT": "train"} == dict(two)
    assert list(several.TRAINER.COCOAMIX.BACKBONES) == ["RN50", "RN101", "ViT-B/16", "ViT-B/32"]


def test_cocoamix_fscil_has_the_papers_settings() -> None:
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


def published(name: str, **wanted: object) -> None:
    """Compare a configuration with its paper, or with the scripts of its code."""
    cfg = load(ROOT / "configs" / "trainers" / f"{name}.yaml")
    optim = cfg.OPTIM
    # The same in all of them: Dassl's defaults and CoOp's schedule.
    assert (optim.NAME, optim.MOMENTUM, optim.WEIGHT_DECAY, optim.SGD_NESTEROV) == ("sgd", 0.9, 5e-4, False)
    schedule = (optim.LR_SCHEDULER, optim.WARMUP_EPOCH, optim.WARMUP_TYPE, optim.WARMUP_CONS_LR)
    assert schedule == ("cosine", 1, "constant", 1e-5)
    assert (tuple(cfg.INPUT.SIZE), cfg.INPUT.INTERPOLATION) == ((224, 224), "bicubic")
    assert list(cfg.INPUT.TRANSFORMS) == ["random_resized_crop", "random_flip", "normalize"]
    for key, value in wanted.items():
        node: Any = cfg
        for part in _KEYS.get(key, key).split("."):
            node = node[part]
        assert node == value, key


_KEYS = {
    "epochs": "OPTIM.MAX_EPOCH",
    "lr": "OPTIM.LR",
    "batch": "DATALOADER.TRAIN_X.BATCH_SIZE",
    "backbone": "MODEL.BACKBONE.NAME",
}
_WORDS = "a photo of a"


@pytest.mark.parametrize(
    ("name", "epochs", "words"),
    [
        *(("rn50", 200, ""), ("rn50_ep100", 100, ""), ("rn50_ep50", 50, "")),
        *(("vit_b16_ctxv1", 200, _WORDS), ("vit_b16_ep50_ctxv1", 50, _WORDS), ("vit_b16_ep50", 50, "")),
    ],
)
def test_coop_has_its_papers_settings(name: str, epochs: int, words: str) -> None:
    backbone = "RN50" if name.startswith("rn50") else "ViT-B/16"
    context = {"TRAINER.COOP.CTX_INIT": words, "TRAINER.COOP.CSC": False, "TRAINER.COOP.CLASS_TOKEN_POSITION": "end"}
    if not words:
        context["TRAINER.COOP.N_CTX"] = 16
    published(f"CoOp/{name}", epochs=epochs, lr=0.002, batch=32, backbone=backbone, **context)


@pytest.mark.parametrize(("name", "epochs"), [("vit_b16_c4_ep10_batch1_ctxv1", 10), ("vit_b16_ep50", 50)])
def test_cocoop_has_its_papers_settings(name: str, epochs: int) -> None:
    context = {"TRAINER.COCOOP.CTX_INIT": _WORDS, "TRAINER.COCOOP.N_CTX": 4}
    published(f"CoCoOp/{name}", epochs=epochs, lr=0.002, batch=1, backbone="ViT-B/16", **context)


@pytest.mark.parametrize(
    ("name", "epochs", "batch"),
    [("vit_b16_ep100_ctxv1", 100, 128), ("vit_b16_ep50_ctxv1", 50, 128), ("vit_b16_ep50", 50, 32)],
)
def test_kgcoop_has_its_papers_settings(name: str, epochs: int, batch: int) -> None:
    context = {"TRAINER.COOP.CTX_INIT": _WORDS, "TRAINER.COOP.N_CTX": 4, "TRAINER.COOP.W": 8.0}
    published(f"KgCoOp/{name}", epochs=epochs, lr=0.002, batch=batch, backbone="ViT-B/16", **context)


@pytest.mark.parametrize(
    ("name", "epochs"), [("rn50", 200), ("rn50_ep100", 100), ("rn50_ep50", 50), ("vit_b16_ep50", 50)]
)
def test_prograd_has_its_papers_settings(name: str, epochs: int) -> None:
    backbone = "RN50" if name.startswith("rn50") else "ViT-B/16"
    context = {"TRAINER.COOP.N_CTX": 16, "TRAINER.COOP.CTX_INIT": "template", "LOSS.LAMBDA": 1.0, "LOSS.T": 1.0}
    published(f"ProGrad/{name}", epochs=epochs, lr=0.002, batch=32, backbone=backbone, **context)


@pytest.mark.parametrize(
    ("name", "epochs", "lr", "depth"),
    [
        ("vit_b16_c2_ep5_batch4_2ctx", 5, 0.0035, 9),
        ("vit_b16_c2_ep5_batch4_2ctx_cross_datasets", 2, 0.0026, 3),
        ("vit_b16_ep50", 50, 0.0035, 9),
        ("vit_b16_ep50_xd", 50, 0.0026, 3),
    ],
)
def test_maple_has_its_papers_settings(name: str, epochs: int, lr: float, depth: int) -> None:
    context = {"TRAINER.MAPLE.N_CTX": 2, "TRAINER.MAPLE.CTX_INIT": _WORDS, "TRAINER.MAPLE.PROMPT_DEPTH": depth}
    published(f"MaPLe/{name}", epochs=epochs, lr=lr, batch=4, backbone="ViT-B/16", **context)


@pytest.mark.parametrize(("name", "epochs"), [("vit_b16_ep10_batch4", 10), ("vit_b16_ep50", 50)])
@pytest.mark.parametrize("trainer", ["DePT", "DePTKgCoOp"])
def test_dept_has_its_papers_settings(trainer: str, name: str, epochs: int) -> None:
    more: dict[str, object] = {"TRAINER.DEPT.WEIGHT": 0.7, "TRAINER.DEPT.LR_FACTOR": 6.5, "TRAINER.DEPT.W": 2.0}
    more |= {"TRAINER.DEPT.CTX_INIT": ""} if trainer == "DePT" else {"TRAINER.DEPT.CTX_INIT": _WORDS}
    more |= {"TRAINER.DEPT.N_CTX": 16} if trainer == "DePT" else {}
    published(f"{trainer}/{name}", epochs=epochs, lr=0.0035, batch=4, backbone="ViT-B/16", **more)


@pytest.mark.parametrize(("name", "epochs"), [("En_ep5_batch128", 5), ("ensemble_ep50", 50)])
def test_tune_en_has_its_papers_settings(name: str, epochs: int) -> None:
    more = {"TRAINER.ENLEARN.BACKBONES": ["RN50", "RN101", "ViT-B/32", "ViT-B/16"], "TRAINER.ENLEARN.LOSS": "ce"}
    published(f"TuneEn/{name}", epochs=epochs, lr=0.005, batch=128, **more, **{"TRAINER.ENLEARN.DOWNSCALE": 32})


@pytest.mark.parametrize("name", ["vit_l14_source", "tiny_source"])
def test_rates_of_coop_fscil_match_its_source(name: str) -> None:
    """One step per epoch in later sessions, at the rates of its configuration."""
    cfg = load(ROOT / "configs" / "trainers" / "CoOpFSCIL" / f"{name}.yaml")
    assert (cfg.FSCIL.TUNED_CLASSES, cfg.DATALOADER.TRAIN_X.BATCH_SIZE) == ("all", 32)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=cfg.OPTIM.LR)
    schedule, rates = build_schedule(optimizer, cfg.OPTIM), []
    for _ in range(cfg.OPTIM.MAX_EPOCH):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([1e-5, 1e-3, 9.05e-4, 6.55e-4, 3.455e-4], rel=1e-3)
