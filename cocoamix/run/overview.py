"""The overview that a run prints before it begins: what is trained on what, and where the output goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from yacs.config import CfgNode

from cocoamix.clip.class_names import plain_class
from cocoamix.clip.interface import AnyCLIP
from cocoamix.features.source import ImageSource
from cocoamix.model import IMAGES
from cocoamix.registry import plain_name
from cocoamix.shapes.world import compositions

from . import protocol
from .course import describe_epochs
from .results import RANDOM_WEIGHTS, THREADS_DIFFER, TINY_IS_LOST

if TYPE_CHECKING:
    from cocoamix.trainer import CLIPTrainer


def render(lines: Mapping[str, str]) -> str:
    """Return the lines, with their texts aligned."""
    width = max(map(len, lines))
    return "\n".join(f"{name:{width}}  {text}" for name, text in lines.items())


def describe(trainer: CLIPTrainer, trains: bool) -> dict[str, str]:
    """Return the lines of the overview of a run by name.

    Args:
        trainer: The trainer.
        trains: Whether the run trains rather than only evaluates.
    """
    cfg, parts = trainer.cfg, dict(trainer.model.parts.items())
    covered = trainer.evaluated(cfg.TEST.SPLIT)
    images = covered.training_images if parts else None
    batches = f"batches of {trainer.train_loader_x.batch_size}"
    training = f"{describe_epochs(trainer.course.phases)}, {batches}" if trains and parts else "none (evaluation only)"
    return {
        "trainer": cfg.TRAINER.NAME,
        "dataset": describe_dataset(cfg, len(trainer.classnames), trainer.sessions),
        "images": describe_images(cfg, images, len(covered.items or ())),
        "backbone": describe_backbone(trainer.clip, trainer.device, cfg.MODEL.BACKBONE.WEIGHTS),
        "training": training,
        "trained": describe_models(parts),
        "features": describe_features(trainer.images.source, trainer.model.reads != IMAGES),
        "seed": str(trainer.seed),
        "protocol": protocol.fingerprint(trainer.evaluated_protocol()),
        "output": f"{trainer.output_dir} (the full configuration is in its log.txt)",
    }


def describe_dataset(cfg: CfgNode, classes: int, sessions: Sequence[Any]) -> str:
    """Return the dataset and the number of classes, for a run in sessions that of all of them."""
    subset, name = cfg.DATASET.SUBSAMPLE_CLASSES, plain_name(cfg.DATASET.NAME)
    if sessions:
        return f"{name}, {sum(len(session.classnames) for session in sessions):,} classes in {len(sessions)} sessions"
    return f"{name}, {classes:,} classes{'' if subset == 'all' else f' ({subset})'}"


def describe_images(cfg: CfgNode, trained: int | None, tested: int) -> str:
    """Return the numbers of training and evaluated images. `trained` is None if it is unknown, or without training."""
    shots = cfg.DATASET.NUM_SHOTS
    most = "at most " if cfg.DATASET.FEWER_SHOTS else ""
    per_class = f" ({most}{shots} per class)" if shots > 0 else ""
    before = "" if trained is None else f"{trained:,} for training{per_class}, "
    return f"{before}{tested:,} for the evaluation ({cfg.TEST.SPLIT})"


def describe_backbone(clip: AnyCLIP, device: torch.device, weights: str) -> str:
    """Return the frozen model and how it runs. `weights` is MODEL.BACKBONE.WEIGHTS."""
    random = " (random weights: results are meaningless)" if weights == "random" else ""
    return f"{clip.name}, {clip.precision}, on {describe_device(device)}{random}"


def is_lost(cfg: CfgNode, clip: AnyCLIP, classnames: Sequence[str]) -> bool:
    """Return whether the tiny CLIP, with its own weights, gets images that it cannot know.

    Synthetic images are recognised by their classes, in any folder that `cocoamix shapes write` has written.
    """
    if all(one.name != "tiny" for one in clip.each()) or cfg.MODEL.BACKBONE.WEIGHTS:
        return False
    return not {plain_class(name) for name in classnames} <= {one.name for one in compositions()}


def note_on_tiny(cfg: CfgNode, clip: AnyCLIP, classnames: Sequence[str]) -> str:
    """Return a note if the tiny CLIP gets images that it cannot know; else nothing."""
    if not is_lost(cfg, clip, classnames):
        return ""
    return (
        "Note: the tiny CLIP knows only the synthetic images of this project; results on photographs are meaningless."
    )


def caveats(cfg: CfgNode, clip: AnyCLIP, classnames: Sequence[str], threads: Sequence[int]) -> tuple[str, ...]:
    """Return why the metrics of a run say less than they seem to.

    Args:
        cfg: Its configuration.
        clip: Its frozen model.
        classnames: The evaluated classes.
        threads: The numbers of threads that it has used.
    """
    reasons = {
        RANDOM_WEIGHTS: any(one.is_random for one in clip.each()),
        TINY_IS_LOST: is_lost(cfg, clip, classnames),
        THREADS_DIFFER: len(threads) > 1,
    }
    return tuple(reason for reason, holds in reasons.items() if holds)


def describe_device(device: torch.device) -> str:
    """Return a device with the name of its GPU, or with the threads that the CPU uses."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    threads = torch.get_num_threads()
    return f"{device} ({threads} thread{'s' if threads > 1 else ''})"


def describe_features(images: ImageSource, frozen: bool) -> str:
    """Return where image features come from. `frozen` is whether the method leaves the image encoder unchanged."""
    if not frozen:
        return "computed in every step, because the method tunes the image encoder"
    mode = images.settings.mode
    if images.features is None:
        return f"computed in every step (CACHE.MODE {mode})"
    which = "" if mode == "all" else "those of test images "
    return f"{which}stored in {images.features.folder} (CACHE.MODE {mode})"


def describe_models(models: Mapping[str, nn.Module]) -> str:
    """Return how many parameters are trained, and of which models."""
    counts = {
        name: sum(one.numel() for one in model.parameters() if one.requires_grad) for name, model in models.items()
    }
    if not counts:
        return "nothing"
    each = ", ".join(name if len(counts) == 1 else f"{name} {count:,}" for name, count in counts.items())
    return f"{sum(counts.values()):,} parameters ({each})"
