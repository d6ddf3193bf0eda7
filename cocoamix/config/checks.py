"""Checks values against the table, and keys against each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from yacs.config import CfgNode

from cocoamix.errors import UserError, check_choice

from .key import Key
from .partition import LABEL
from .table import KEYS

KGCOOP_CONTEXT = "a photo of a"  # what True means in code bases whose CTX_INIT is a boolean
_OF_METHODS = ("TRAINER.", "LOSS.", "FSCIL.")


def check_common(cfg: CfgNode) -> None:
    """Check the keys that all trainers share."""
    _check((key for key in KEYS if not key.name.startswith(_OF_METHODS)), cfg)


def check_below(prefix: str, node: CfgNode) -> None:
    """Check a section against the table. `prefix` is its dotted name, and `node` the section itself."""
    _check((key for key in KEYS if key.name.startswith(f"{prefix}.")), node, skip=len(prefix.split(".")))


def _check(keys: Iterable[Key], node: CfgNode, skip: int = 0) -> None:
    """Check the keys that are present. `skip` is the number of name parts that lead to `node`."""
    for key in keys:
        *path, leaf = key.path[skip:]
        at = node
        for name in path:
            at = at[name] if name in at else CfgNode()
        if leaf in at:
            key.check(at[leaf])


def check_method(section: str, cfg: CfgNode, ensembles: Sequence[str] = ()) -> None:
    """Check the keys of one method.

    Args:
        section: The name of its node below TRAINER.
        cfg: The configuration.
        ensembles: The mixtures that it supports; empty if it has no such key.
    """
    node = cfg.TRAINER[section]
    check_below(f"TRAINER.{section}", node)
    if "CTX_INIT" in node and not context_words(node.CTX_INIT) and node.N_CTX < 1:
        raise UserError(f"TRAINER.{section}.N_CTX is {node.N_CTX}; a context has at least one vector.")
    if ensembles:
        check_choice(f"TRAINER.{section}.ENSEMBLE", node.ENSEMBLE, ensembles)


def context_words(ctx_init: str | bool) -> str:
    """Return the words of CTX_INIT, which is a string in CoOp and a boolean in some of its forks."""
    if isinstance(ctx_init, bool):
        return KGCOOP_CONTEXT if ctx_init else ""
    return ctx_init


def check_prograd(node: CfgNode) -> None:
    """Check ProGrad's LOSS.*."""
    check_below("LOSS", node)


def check_mix(node: CfgNode) -> None:
    """Check the keys of CoCoA-Mix against each other."""
    check_backbones("COCOAMIX", node)
    if node.WEIGHT_FIT == "heldout" and node.ENSEMBLE == "coa" and node.STAGE != "two":
        raise UserError(
            f"TRAINER.COCOAMIX.WEIGHT_FIT is heldout, but STAGE is {node.STAGE}: held-out weights are fitted after the "
            "prompt, at CLIP's temperature. Use STAGE two, or WEIGHT_FIT train."
        )
    if node.CALIBRATED and node.ENSEMBLE != "coa":
        raise UserError(
            f"TRAINER.COCOAMIX.CALIBRATED is True, but ENSEMBLE is {node.ENSEMBLE}: the temperature is fitted to the "
            "mixture with learned weights. Use ENSEMBLE coa, or CALIBRATED False."
        )


def check_heldout(cfg: CfgNode) -> None:
    """Refuse settings under which held-out images would not be held out."""
    mix = cfg.TRAINER.COCOAMIX
    if mix.WEIGHT_FIT == "heldout" and cfg.TEST.FINAL_MODEL == "best_val":
        raise UserError(
            "TEST.FINAL_MODEL is best_val, but TRAINER.COCOAMIX.WEIGHT_FIT heldout fits the weights to the prompt "
            "of the last epoch: use last_step, or WEIGHT_FIT train."
        )
    if mix.WEIGHT_FIT == "heldout" and mix.ENSEMBLE == "coa" and cfg.MODEL.INIT_WEIGHTS:
        raise UserError(
            f"MODEL.INIT_WEIGHTS is {cfg.MODEL.INIT_WEIGHTS}, but TRAINER.COCOAMIX.WEIGHT_FIT is heldout: a prompt "
            "that starts from a checkpoint may have seen the images that its fold leaves out. "
            "Leave MODEL.INIT_WEIGHTS out, or use WEIGHT_FIT train."
        )


def check_backbones(section: str, node: CfgNode) -> None:
    """Check that there is one weights file for each of several backbones."""
    if node.BACKBONE_WEIGHTS and len(node.BACKBONE_WEIGHTS) != len(node.BACKBONES):
        raise UserError(
            f"TRAINER.{section}.BACKBONE_WEIGHTS names {len(node.BACKBONE_WEIGHTS)} files for "
            f"{len(node.BACKBONES)} BACKBONES. Name one for each."
        )


def check_enlearn(node: CfgNode) -> None:
    """Check the keys of T_En."""
    check_below("TRAINER.ENLEARN", node)
    check_backbones("ENLEARN", node)
    models = len(node.BACKBONES)
    if models < 2:
        raise UserError(f"TRAINER.ENLEARN.BACKBONES names {models} models; an ensemble has at least two.")
    if node.NUM_WEIGHT not in (0, models):
        raise UserError(
            f"TRAINER.ENLEARN.NUM_WEIGHT is {node.NUM_WEIGHT}, but there are {models} BACKBONES. Use {models}."
        )
    if len(node.PROMPTS) not in (0, 1, models):
        raise UserError(
            f"TRAINER.ENLEARN.PROMPTS names {len(node.PROMPTS)} runs for {models} BACKBONES. "
            "Name one for each, or one run that has them all."
        )


def check_sessions(cfg: CfgNode) -> None:
    """Check the keys of class-incremental sessions, and the keys that conflict with them."""
    check_below("FSCIL", cfg.FSCIL)
    if cfg.DATASET.NUM_SHOTS > 0:
        raise UserError(
            f"DATASET.NUM_SHOTS is {cfg.DATASET.NUM_SHOTS}, but session 0 has all images of its classes: leave it at "
            "-1. FSCIL.SHOTS sets how many images a class of a later session has."
        )
    if cfg.DATASET.SUBSAMPLE_CLASSES != "all":
        raise UserError(
            f"DATASET.SUBSAMPLE_CLASSES is {cfg.DATASET.SUBSAMPLE_CLASSES}, but sessions are formed from all classes: "
            "FSCIL.BASE sets how many are base."
        )
    if cfg.DATASET.PARTITION != LABEL:
        raise UserError(
            f"DATASET.PARTITION is {cfg.DATASET.PARTITION}, but sessions are formed from all classes: leave it at "
            f"{LABEL}."
        )
    if cfg.TEST.FINAL_MODEL != "last_step":
        raise UserError(
            "TEST.FINAL_MODEL is best_val, but sessions are evaluated after their last epoch: use last_step."
        )
