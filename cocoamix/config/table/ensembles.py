"""Keys of T_En, and of zero-shot CLIP with several templates."""

from __future__ import annotations

from cocoamix import choices
from cocoamix.config.allowed import OneOf, Only, Range, Texts
from cocoamix.config.key import MODEL, TRAINING, TRAINING_PROTOCOL, Key

from .contexts import precision
from .section import Section

_NODE = "TRAINER.ENLEARN"
_SEARCHED = "TuneEn learns its weights, and the ensemble that searches for them is not here. Leave it out."


def _searched(leaf: str, default: bool | float) -> Key:
    """A key of the original's ensemble that searches for fixed weights, which its configurations set beside T_En's."""
    comment = "Of the original's ensemble that searches for its weights."
    return Key(f"{_NODE}.{leaf}", comment, default=default, allowed=Only(default, _SEARCHED), role=TRAINING)


ENLEARN = (
    precision(_NODE),
    Key(
        f"{_NODE}.BACKBONES",
        "The models, at least two.",
        default=["RN50", "RN101", "ViT-B/32", "ViT-B/16"],
        allowed=Texts(),
        role=MODEL,
    ),
    Key(
        f"{_NODE}.BACKBONE_WEIGHTS",
        'A file (or `""` or `random`) for each; empty downloads OpenAI\'s.',
        default=[],
        allowed=Texts(),
        role=MODEL,
    ),
    Key(
        f"{_NODE}.DOWNSCALE",
        "By how much the hidden layer of the generator is smaller than its input.",
        default=32,
        allowed=Range(1),
        role=TRAINING,
    ),
    Key(
        f"{_NODE}.NUM_WEIGHT",
        "0, or the number of models; taken for compatibility.",
        default=0,
        role=TRAINING,
    ),
    Key(
        f"{_NODE}.LOSS",
        "`ce` takes the probabilities for logits, as the original does; `nll` is that of the mixture.",
        default="ce",
        allowed=OneOf(choices.SAMPLE_LOSSES),
        role=TRAINING,
    ),
    Key(
        f"{_NODE}.PROMPTS",
        "Output folders of the runs that trained the models' prompts, one for each or one for all; empty takes "
        "hand-crafted prompts, and in an evaluation those of training.",
        default=[],
        allowed=Texts(),
        role=TRAINING_PROTOCOL,  # a path, which may differ from machine to machine; the protocol tells what was in it
    ),
    _searched("WEIGHTS_SEARCH", False),
    _searched("SEARCH_EVAL", False),
    _searched("WEIGHT_RN50", 1.0),
    _searched("WEIGHT_RN101", 1.0),
    _searched("WEIGHT_VIT32", 1.0),
    _searched("WEIGHT_VIT16", 1.0),
    Key(
        f"{_NODE}.MODEL_DIR",
        "Of the original's; `PROMPTS` takes its place.",
        default="",
        allowed=Only("", "runs are named one by one: use TRAINER.ENLEARN.PROMPTS."),
        role=TRAINING,
    ),
)

ZEROSHOT = (
    Key(
        "TRAINER.ZEROSHOT.ENSEMBLE",
        "`ZeroshotCLIP2`: CLIP's choice of 7 ImageNet templates, or all 80.",
        default=7,
        allowed=OneOf(choices.ENSEMBLES),
        role=MODEL,
    ),
)

SECTIONS = (
    Section("T_En (TuneEn)", "[METHODS.md](METHODS.md) says how prompts of other runs are named.", ENLEARN),
    Section("Zero-shot CLIP", "", ZEROSHOT),
)
