"""The origin of a checkpoint: the metadata of its run, and checks that it fits the current run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from yacs.config import CfgNode

from cocoamix.config.partition import KEY as PARTITION
from cocoamix.config.partition import LABEL
from cocoamix.errors import UserError, brief
from cocoamix.registry import plain_name

from . import protocol

# Types of the entries that results are derived from.
_KINDS = {
    "settings": dict,
    "protocol": dict,
    "seed": int,
    "classnames": list,
    "categories": dict,
    "trainer": str,
    "heldout": dict,
    "second_stage": dict,
    "synsets": list,
}


def origin_of(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the origin of a checkpoint; empty if this project did not write it. `path` is its file, for messages."""
    origin = content.get("cocoamix")
    if not isinstance(origin, dict):
        return {}
    for key, kind in _KINDS.items():
        if key in origin and not isinstance(origin[key], kind):
            raise UserError(
                f"{path} does not record the {key} of its run as a checkpoint should: it was altered. Restore it."
            )
    return origin


def check_trainer(origin: Mapping[str, Any], trainer: str, path: Path) -> None:
    """Refuse a checkpoint of another trainer."""
    now = plain_name(trainer)
    then = plain_name(str(origin.get("trainer", now)))
    if then != now:
        raise UserError(f"{path} was trained by {then}, but this run's trainer is {now}. Use --trainer {then}.")


def refuse_untrained(origin: Mapping[str, Any], path: Path) -> None:
    """Refuse a checkpoint of OPTIM.STAGED_LR without its learning rates: some parameters were left untrained."""
    staged = (origin.get("settings") or {}).get("OPTIM.STAGED_LR")
    if staged and "staged_lr" not in (origin.get("protocol") or {}):
        raise UserError(
            f"{path} was trained with OPTIM.STAGED_LR True, but does not record its learning rates, so the "
            "optimizer may have lacked some parameters. Train it again."
        )


def check_weights(
    origin: Mapping[str, Any],
    now: Mapping[str, Any],
    state: Mapping[str, Tensor],
    model: nn.Module,
    classnames: Sequence[str],
    path: Path,
) -> None:
    """Refuse a checkpoint that was trained on other CLIP weights, or a class-specific context of other classes.

    Args:
        origin: Origin of the checkpoint.
        now: Origin that this run records.
        state: Weights of the checkpoint.
        model: The model to load them into.
        classnames: Classes of this run.
        path: File of the checkpoint, for messages.
    """
    for key in ("weights_sha256", "activation"):
        if origin.get(key, now[key]) != now[key]:
            raise UserError(
                f"{path} was trained on {origin.get('backbone')} with {key} {str(origin[key])[:16]}, "
                f"but this run uses {now['backbone']} with {now[key][:16]}."
            )
    own = dict(model.named_buffers())
    # CoOp's checkpoints do not name a backbone, but contain its embedding of the start token ...
    prefix, mine = find_tensor(state, "token_prefix"), find_tensor(own, "token_prefix")
    if not origin and prefix is not None and mine is not None and not nearly_equal(_first(prefix), _first(mine)):
        raise UserError(f"{path} was trained on other CLIP weights than {now['backbone']} has in this run.")
    # ... and those of the class names.
    context, mine = state.get("ctx"), find_tensor(dict(model.named_parameters()), "ctx")
    if context is not None and mine is not None and context.dim() == 3 and context.shape[1:] == mine.shape[-2:]:
        names, suffix = origin.get("classnames"), state.get("token_suffix")
        same = names == list(classnames) if names else suffix is None or nearly_equal(suffix, own["token_suffix"])
        if not same:
            raise UserError(
                f"{path} holds class-specific contexts (CSC) of other classes than this run's. "
                "They belong to their classes and cannot be transferred: train on these classes, or with CSC False."
            )


def check_partition(origin: Mapping[str, Any], dataset: CfgNode, path: Path) -> None:
    """Refuse a prompt that was trained on half of the classes under another partition.

    Some of its training classes would otherwise count as new.

    Args:
        origin: Origin of the checkpoint.
        dataset: The node DATASET of this run.
        path: File of the checkpoint, for messages.
    """
    settings = origin.get("settings") or {}
    if not settings and dataset.PARTITION != LABEL:
        raise UserError(
            f"{path} does not record which classes it was trained on, so some of them may be new under {PARTITION} "
            f"{dataset.PARTITION}. Other code divides classes by label: use {PARTITION} {LABEL}."
        )
    then = settings.get(PARTITION, LABEL)
    half = settings.get("DATASET.SUBSAMPLE_CLASSES", "all")
    same = plain_name(str(settings.get("DATASET.NAME", ""))) == plain_name(dataset.NAME)
    if half != "all" and same and differ(then, dataset.PARTITION):
        raise UserError(
            f"{path} was trained on the {half} classes of {PARTITION} {then}, but this run has {dataset.PARTITION}, "
            f"which puts some of them into the other half. Set {PARTITION} {then}."
        )


def check_settings(
    path: Path,
    then: Mapping[str, Any],
    now: Mapping[str, Any],
    protocol_then: Mapping[str, Any],
    protocol_now: Mapping[str, Any],
) -> None:
    """Refuse to resume a run with other settings, because the result would belong to neither.

    Args:
        path: File of the run to resume, for messages.
        then: Training settings of that run.
        now: Training settings of this run.
        protocol_then: Protocol of that run.
        protocol_now: Protocol of this run.
    """
    for side in (then, protocol_then):
        if not isinstance(side, Mapping) or not all(isinstance(key, str) for key in side):
            raise UserError(f"{path} does not record the settings of its run: it is damaged. Restore it, or delete it.")
    then = protocol.updated(protocol.relevant(then), now)
    differing = [key for key in sorted({*now, *then}) if differ(now.get(key), then.get(key))]
    shown = "; ".join(
        f"{key} was {brief(then[key])} and is {brief(now.get(key))}"
        if key in then
        else f"{key} is {brief(now[key])}, but that run did not record this key"
        for key in differing[:5]
    )
    if not differing:
        changed = [key for key in protocol_now if differ(protocol_now[key], protocol_then.get(key))]
        shown = ", ".join(f"{key} has changed" for key in changed)
    if shown:
        raise UserError(
            f"{path} belongs to a run with other settings ({shown}). "
            f"Choose another --output-dir, or delete that folder to start again."
        )


def follow_training(
    cfg: CfgNode, recorded: Mapping[str, Any], section: str, own: Iterable[str] = ()
) -> tuple[CfgNode, dict[str, Any]]:
    """Return a configuration with the settings of the training run that is evaluated.

    The classes, the mixture (ENSEMBLE), the test images and their encoding stay as configured.

    Args:
        cfg: The configuration of the evaluation.
        recorded: Settings of the training run.
        section: The trainer's node below TRAINER.
        own: Keys that the evaluation may choose.

    Returns:
        The configuration, and the values of `cfg` that it replaces, by key.
    """
    now = protocol.training_settings(cfg, section)
    then = protocol.updated(protocol.relevant(recorded), now)
    overridden = {
        key: value
        for key, value in now.items()
        if protocol.comes_from_training(key) and key not in own and differ(then.get(key, value), value)
    }
    followed = cfg.clone()
    followed.defrost()
    for key in overridden:
        *path, leaf = key.split(".")
        node = followed
        for name in path:
            node = node[name]
        node[leaf] = then[key]
    followed.freeze()
    return followed, overridden


def training_facts(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a protocol that describe training, from the checkpoint that is evaluated.

    Args:
        then: Protocol in the checkpoint.
        now: Protocol of the evaluation, whose training images are irrelevant.
    """
    splits = then.get("splits")
    trained_on = {key: splits.get(key) for key in ("train", "folds")} if isinstance(splits, Mapping) else {}
    return {
        **{key: then.get(key, now[key]) for key in ("shots", "views")},
        **{key: then[key] for key in ("folds",) if key in then},
        "splits": {**now["splits"], "train": None, **{key: value for key, value in trained_on.items() if value}},
    }


def differ(one: object, other: object) -> bool:
    """Return whether two settings differ. Values that cannot be compared, such as arrays, always do."""
    try:
        return bool(one != other)
    except (RuntimeError, ValueError, TypeError):
        return True


def find_tensor(tensors: Mapping[str, Tensor], name: str) -> Tensor | None:
    """Return the tensor with a name, in whichever module another code base registered it."""
    return next((tensor for key, tensor in tensors.items() if key.rsplit(".", 1)[-1] == name), None)


def _first(tensor: Tensor) -> Tensor:
    """Return the first row, or what an altered file has instead."""
    return tensor[:1] if tensor.dim() and tensor.layout == torch.strided else tensor


def nearly_equal(one: Tensor, other: Tensor) -> bool:
    """Return whether two embeddings are equal up to half precision."""
    if one.layout != torch.strided:
        return False
    return one.shape == other.shape and torch.allclose(one.float().cpu(), other.float().cpu(), atol=1e-3, rtol=1e-2)
