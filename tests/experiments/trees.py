"""Trees of runs, written as CoOp and code derived from it write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# What CoOp's train.py prints before it builds its trainer; every descendant has kept it, including the stars.
HEAD = """***************
** Arguments **
***************
backbone:{nothing}
config_file: configs/trainers/{trainer}/{config}.yaml
dataset_config_file: configs/datasets/{folder}.yaml
eval_only: {eval_only}
head:{nothing}
load_epoch: {load_epoch}
model_dir: {model_dir}
no_train: False
opts: ['DATASET.NUM_SHOTS', '{shots}']
output_dir: somewhere
resume:{nothing}
root: /data
seed: {seed}
source_domains: None
target_domains: None
trainer: {trainer}
transforms: None
************
** Config **
************
DATALOADER:
  K_TRANSFORMS: 1
  NUM_WORKERS: 8
  TEST:
    BATCH_SIZE: 100
    SAMPLER: SequentialSampler
  TRAIN_X:
    BATCH_SIZE: 32
    SAMPLER: RandomSampler
DATASET:
  CIFAR_C_TYPE:{nothing}
  NAME: {dataset}
  NUM_SHOTS: {shots}
  ROOT: /data
  SOURCE_DOMAINS: ()
  SUBSAMPLE_CLASSES: {subset}
INPUT:
  INTERPOLATION: bicubic
  PIXEL_MEAN: [0.48145466, 0.4578275, 0.40821073]
  SIZE: (224, 224)
  TRANSFORMS: ('random_resized_crop', 'random_flip', 'normalize')
MODEL:
  BACKBONE:
    NAME: {backbone}
    PRETRAINED: True
  INIT_WEIGHTS:{nothing}
OPTIM:
  LR: 0.002
  MAX_EPOCH: {epochs}
  NAME: sgd
  STEPSIZE: (-1,)
OUTPUT_DIR: somewhere
RESUME:{nothing}
SEED: {seed}
TEST:
  FINAL_MODEL: last_step
  SPLIT: test
TRAINER:
  CDAC:
    CLASS_LR_MULTI: 10
  {section}:
    CTX_INIT: a photo of a
    PREC: fp16
{own}{more}  NAME: {trainer}
  SE:
    CONF_THRE: 0.95
USE_CUDA: True
VERSION: 1
Collecting env info ...
** System info **
PyTorch version: 1.8.1
Is debug build: False

OS: Ubuntu 20.04.2 LTS (x86_64)
Python version: 3.8 (64-bit runtime)

Versions of relevant libraries:
[pip3] torch==1.8.1
        Pillow (8.3.1)

"""

UPSTREAM = (
    "epoch [{e}/{E}] batch [5/5] time 0.2 (0.2) data 0.1 (0.1) loss 1.2 (1.3) acc 50.0 (48.1) lr 2.0000e-03 eta 0:01\n"
)
FORK = "epoch [{e}/{E}][5/5]\ttime 0.2 (0.2)\tdata 0.1 (0.1)\teta 0:01\tloss 1.2 (1.3)\tacc 50.0 (48.1)\tlr 0.002\n"


def head(
    trainer: str,
    dataset: str,
    subset: str = "all",
    seed: int = 1,
    shots: int = 16,
    folder: str = "",
    config: str = "vit_b16",
    backbone: str = "ViT-B/16",
    epochs: int = 50,
    model_dir: str = "",
    more: str = "",
    load_epoch: int | None = None,
    section: str = "",
    own: str = "",
) -> str:
    """Return the start of a log: arguments, configuration, system.

    `more` has lines of the node TRAINER, `section` is the trainer's own node, and `own` has its lines.
    """
    return HEAD.format(
        trainer=trainer,
        section=section or trainer.upper(),
        dataset=dataset,
        subset=subset,
        seed=seed,
        shots=shots,
        folder=folder or dataset.lower(),
        config=config,
        backbone=backbone,
        epochs=epochs,
        eval_only=bool(model_dir),
        model_dir=model_dir,
        more=more,
        load_epoch=load_epoch,
        own=own,
        nothing=" ",  # as print writes it
    )


def training(line: str = UPSTREAM, epochs: int = 2, last: int = 2, signal: str = "Finish training") -> str:
    """Return the lines of a training, including its final line if it finished."""
    text = "".join(line.format(e=epoch, E=last) for epoch in range(1, epochs + 1))
    return text + (f"{signal}\n" if epochs == last else "")


def result(correct: int, total: int = 1000, decimals: int = 1, split: str = "test") -> str:
    """Return the lines of an evaluation."""
    shown = f"{100 * correct / total:.{decimals}f}%"
    error = f"{100 - 100 * correct / total:.{decimals}f}%"
    return (
        f"Evaluate on the *{split}* set\n=> result\n* total: {total:,}\n* correct: {correct:,}\n"
        f"* accuracy: {shown}\n* error: {error}\n* macro_f1: {shown}\n"
    )


def write_log(folder: Path, *parts: str, name: str = "log.txt") -> Path:
    """Write a log into a run's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("".join(parts), encoding="utf-8")
    return path


def session_entries(accuracies: Sequence[float]) -> list[dict[str, Any]]:
    """Return the `sessions` of a results.json for accuracies after each."""
    return [
        {
            "session": number,
            "classes": 60 + 5 * number,
            "images": 100,
            "accuracy": accuracy,
            "base": accuracy,
            "novel_sessions": [accuracy] * number,
            "novel": accuracy if number else None,
            "harmonic_mean": accuracy if number else None,
            "forgetting": [0.0] * number,
            "mean_forgetting": 0.0 if number else None,
        }
        for number, accuracy in enumerate(accuracies)
    ]


def write_results(folder: Path, accuracy: float, **changes: Any) -> Path:
    """Write a results.json as train.py does. protocol and config may be given in part; sessions are accuracies."""
    if "sessions" in changes:
        changes["sessions"] = session_entries(changes["sessions"])
    protocol = {
        "dataset": "EuroSAT",
        "subset": changes.get("subset", "base"),
        "shots": 4,
        "splits": {"train": "t", "test": f"test of {changes.get('subset', 'base')}"},
        "backbone": "ViT-B/16",
        "weights_sha256": "0" * 64,
        "precision": "fp32",
        "activation": "quick_gelu",
        "transforms": {"SIZE": [224, 224]},
        "templates": ["a photo of a {}."],
    }
    config = {"SEED": changes.get("seed", 1), "OPTIM": {"MAX_EPOCH": 50}, "TRAINER": {"NAME": "CoOp"}}
    content = {
        "version": 2,
        "trainer": "CoOp",
        "dataset": "EuroSAT",
        "subset": "base",
        "split": "test",
        "seed": 1,
        "shots": 4,
        "metrics": {"accuracy": accuracy, "macro_f1": accuracy},
        "fingerprint": "f",
        **changes,
        "protocol": {**protocol, **changes.get("protocol", {})},
        "config": {**config, **changes.get("config", {})},
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def write_pair(root: Path, base: float, new: float, **changes: Any) -> None:
    """Write the two runs of a seed, base and new, in CoOp's layout."""
    trainer, dataset = changes.get("trainer", "CoOp"), changes.get("dataset", "EuroSAT")
    config_name = changes.pop("config_name", "vit_b16")
    tail = f"{dataset.lower()}/shots_4/{trainer}/{config_name}/seed{changes.get('seed', 1)}"
    write_results(root / "base2new/train_base" / tail, base, **{**changes, "subset": "base"})
    write_results(root / "base2new/test_new" / tail, new, **{**changes, "subset": "new"})
