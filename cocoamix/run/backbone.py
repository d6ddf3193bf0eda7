"""Loads the CLIP model or models that a configuration names."""

from __future__ import annotations

import torch
from yacs.config import CfgNode

from cocoamix.clip import FrozenCLIP, load_clip
from cocoamix.clip.ensemble import SeveralCLIPs
from cocoamix.errors import UserError
from cocoamix.io.screen import detail


def load_one(cfg: CfgNode, precision: str, device: torch.device, name: str = "", weights: str = "") -> FrozenCLIP:
    """Load a CLIP model and log how it runs. A given `name` and `weights` replace those in MODEL.BACKBONE."""
    backbone = cfg.MODEL.BACKBONE
    name, weights = (name, weights) if name else (backbone.NAME, backbone.WEIGHTS)
    detail(f"Loading CLIP (backbone: {name})")
    clip = load_clip(name, weights, backbone.SOURCE, precision, device, backbone.ACTIVATION)
    clip.text.at_once = 0 if backbone.TEXT_CHUNK == "auto" else backbone.TEXT_CHUNK
    detail(
        f"CLIP runs through {clip.source} in {clip.precision} on {device}, weights {clip.weights_hash[:16]}"
        + (" (random weights: results are meaningless)" if weights == "random" else "")
    )
    if tuple(cfg.INPUT.SIZE) != (clip.sizes.resolution,) * 2:
        raise UserError(
            f"INPUT.SIZE is {tuple(cfg.INPUT.SIZE)}, but {clip.name} reads "
            f"{clip.sizes.resolution} x {clip.sizes.resolution} images."
        )
    return clip


def load_clips(cfg: CfgNode, settings: CfgNode, device: torch.device, several: bool) -> FrozenCLIP | SeveralCLIPs:
    """Load what a method runs on: one CLIP model, or, if it may use several, those that its settings list."""
    return _load_several(cfg, settings, device) if several else load_one(cfg, settings.PREC, device)


def _load_several(cfg: CfgNode, settings: CfgNode, device: torch.device) -> SeveralCLIPs:
    """Load the models that BACKBONES in a trainer's settings lists, or else the one in MODEL.BACKBONE, as one."""
    names = list(settings.BACKBONES) or [cfg.MODEL.BACKBONE.NAME]
    files = list(settings.BACKBONE_WEIGHTS)
    if not files:
        files = [cfg.MODEL.BACKBONE.WEIGHTS] if len(names) == 1 else [""] * len(names)
    return SeveralCLIPs(
        [load_one(cfg, settings.PREC, device, name, file) for name, file in zip(names, files, strict=True)]
    )
