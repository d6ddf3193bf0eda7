"""The protocol of a run, which must match before results are compared, and its fingerprint."""

from __future__ import annotations

import hashlib
import importlib
import json
import platform
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import dassl
import numpy
import PIL
import torch
from yacs.config import CfgNode

from cocoamix import __version__
from cocoamix.clip.interface import AnyCLIP
from cocoamix.config import partition, roles
from cocoamix.config.settings import flatten
from cocoamix.features.images import image_name, is_upright
from cocoamix.registry import plain_name

_MIX = "TRAINER.COCOAMIX."
# Keys that some recorded runs lack, with the values that those runs used.
_AS_BEFORE = {
    partition.KEY: partition.LABEL,
    f"{_MIX}WEIGHT_FIT": "train",
    f"{_MIX}CENTRE": False,
    f"{_MIX}CALIBRATED": False,
    "FSCIL.BASE_BATCH_SIZE": 0,
}


def plain(node: Any) -> Any:
    """Return a config node as plain dicts and lists."""
    if isinstance(node, Mapping):
        return {key: plain(value) for key, value in node.items()}
    return [plain(value) for value in node] if isinstance(node, (list, tuple)) else node


def settings_of(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Return every setting that a result can depend on, of all trainers."""
    return relevant(flatten(plain(cfg)))


def relevant(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dotted settings that results depend on. Recorded runs may list others."""
    return {key: value for key, value in settings.items() if roles.matters(key)}


def updated(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dotted settings of a recorded run, with the keys that it lacks added if they do not affect it.

    Args:
        then: Settings of the recorded run.
        now: Settings to compare them with.
    """
    full = {key: value for key, value in _AS_BEFORE.items() if key in now} | dict(then)
    two_stages = (then.get(f"{_MIX}ENSEMBLE"), then.get(f"{_MIX}STAGE")) == ("coa", "two")
    if not two_stages and f"{_MIX}WEIGHT_TOLERANCE" not in then:
        # WEIGHT_EPOCHS is older, but had another default before the other two existed.
        unread = [f"{_MIX}{key}" for key in ("WEIGHT_EPOCHS", "WEIGHT_TOLERANCE", "WEIGHT_MAX_STEPS")]
        full |= {key: now[key] for key in unread if key in now}
    return full


def comes_from_training(key: str) -> bool:
    """Return whether an evaluation takes a setting from the training run."""
    return roles.of_training(key)


def training_settings(cfg: CfgNode, section: str) -> dict[str, Any]:
    """Return the settings that a resumed run must share with the original run.

    Args:
        cfg: The configuration.
        section: The trainer's node below TRAINER. Those of other trainers are ignored.
    """
    own = ("TRAINER.NAME", f"TRAINER.{section}.")
    return {
        key: value for key, value in settings_of(cfg).items() if not key.startswith("TRAINER.") or key.startswith(own)
    }


def digest(content: Any, length: int = 16) -> str:
    """Return a short hash of plain content."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:length]


def items_hash(items: Iterable[Any]) -> str:
    """Hash the images and labels of a split, independently of the data root."""
    return digest([[image_name(item.impath), int(item.label), item.classname] for item in items])


def views(cfg: CfgNode, epochs: int = 0) -> int:
    """Return how many augmentations of an image the epochs cycle through; 0 if each epoch has its own.

    Args:
        cfg: The configuration.
        epochs: Number of epochs, if not OPTIM.MAX_EPOCH.
    """
    given, last = cfg.CACHE.VIEWS, epochs or cfg.OPTIM.MAX_EPOCH
    return given if given < last or given == 1 else 0


def describe_protocol(cfg: CfgNode, clip: AnyCLIP, dataset: Any, templates: Iterable[str]) -> dict[str, Any]:
    """Return what must match before two results are averaged or compared."""
    facts = {
        "dataset": plain_name(cfg.DATASET.NAME),
        "subset": cfg.DATASET.SUBSAMPLE_CLASSES,
        "shots": cfg.DATASET.NUM_SHOTS,
        "splits": {
            "train": items_hash(dataset.train_x),
            "test": items_hash(dataset.val if cfg.TEST.SPLIT == "val" else dataset.test),
        },
        "evaluated_on": cfg.TEST.SPLIT,
        "model_selection": cfg.TEST.FINAL_MODEL,
        "backbone": clip.name,
        "weights_sha256": clip.weights_hash,
        "source": clip.source,
        "precision": clip.precision,
        "activation": clip.activation,
        "transforms": plain(cfg.INPUT),
        "views": views(cfg),
        "templates": list(templates),
    }
    if cfg.DATASET.PARTITION != partition.LABEL:  # the fingerprints of CoOp's halves stay the same
        facts["partition"] = cfg.DATASET.PARTITION
    # Only for own images: CoOp's datasets are read as in CoOp, and their fingerprints stay the same.
    upright = any(is_upright(item) for items in (dataset.train_x, dataset.test) for item in items or ())
    return {**facts, "images": "upright by EXIF, more than 8 bits scaled"} if upright else facts


def staged_rates(optim: CfgNode) -> dict[str, Any]:
    """Return the learning rates of OPTIM.STAGED_LR.

    In the protocol they distinguish these runs from those that do not record them, which left parameters out.
    """
    return {"new_layers": plain(optim.NEW_LAYERS), "base_lr_mult": optim.BASE_LR_MULT}


def copy_staged_rates(protocol: dict[str, Any], then: Mapping[str, Any]) -> None:
    """Replace the learning rates in a protocol by those in `then`, the protocol of a checkpoint's run."""
    protocol.pop("staged_lr", None)
    protocol.update({key: value for key, value in then.items() if key == "staged_lr"})


def fingerprint(protocol: Mapping[str, Any]) -> str:
    """Hash a protocol without the parts that differ between seeds by design."""
    return digest({**protocol, "splits": {"test": protocol["splits"]["test"]}})


def versions(source: str) -> dict[str, str]:
    """Return the package versions that results may depend on. `source` is the package that runs CLIP."""
    packages = {"clip": ("clip-anytorch", "openai-clip", "clip"), "open_clip": ("open_clip_torch",)}[source]
    return {
        "cocoamix": __version__,
        "engine": f"dassl {getattr(dassl, '__version__', '')}".strip(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": _version("torchvision"),
        source: _clip_version(source, packages),
        "numpy": numpy.__version__,
        "pillow": PIL.__version__,
        "platform": platform.platform(),
        "cuda": torch.version.cuda or "none",
    }


def _clip_version(module: str, packages: Iterable[str]) -> str:
    """Return the version of the package that runs CLIP; `folder` if it is a folder of a CoOp tree."""
    file = Path(importlib.import_module(module).__file__ or "").resolve()
    for package in packages:
        try:
            found = metadata.distribution(package)
        except metadata.PackageNotFoundError:
            continue
        if Path(str(found.locate_file(f"{module}/__init__.py"))).resolve() == file:
            return found.version
    return "folder"


def _version(*packages: str) -> str:
    for package in packages:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return "unknown"
