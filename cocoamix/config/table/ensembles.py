"""Keys of T_En, and of zero-shot CLIP with several templates."""

from __future__ import annotations

from cocoamix import choices
from cocoamix.config.allowed import OneOf, Only, Range, Strings
from cocoamix.config.key import MODEL, TRAINING, TRAINING_PROTOCOL, FromCheckpoint, Key

from .contexts import precision
from .section import Section

_NODE = "TRAINER.ENLEARN"
_SEARCHED = "TuneEn learns its weights, and the ensemble that searches for them is not here. Leave it out."


def _searched(leaf: str, default: bool | float) -> Key:
    """Return a key of the original's ensemble with searched weights, which its configurations set next to T_En's."""
    comment = "From the original's ensemble with searched weights; it has no effect."
    return Key(f"{_NODE}.{leaf}", comment, default=default, allowed=Only(default, _SEARCHED), role=TRAINING)


ENLEARN = (
    precision(_NODE),
    Key(
        f"{_NODE}.BACKBONES",
        "The CLIP models, at least two.",
        default=["RN50", "RN101", "ViT-B/32", "ViT-B/16"],
        allowed=Strings(),
        role=MODEL,
    ),
    Key(
        f"{_NODE}.BACKBONE_WEIGHTS",
        'A weights file (or `""` or `random`) for each. Empty: OpenAI\'s weights, downloaded.',
        default=[],
        allowed=Strings(),
        role=MODEL,
    ),
    Key(
        f"{_NODE}.DOWNSCALE",
        "Input width of the generator divided by the width of its hidden layer.",
        default=32,
        allowed=Range(1),
        role=TRAINING,
    ),
    Key(
        f"{_NODE}.NUM_WEIGHT",
        "0 or the number of models; accepted for compatibility.",
        default=0,
        role=TRAINING,
    ),
    Key(
        f"{_NODE}.LOSS",
        "`ce` treats probabilities as logits, as the original does; `nll` is the mixture's negative log-likelihood.",
        default="ce",
        allowed=OneOf(choices.SAMPLE_LOSSES),
        role=TRAINING,
    ),
    Key(
        f"{_NODE}.PROMPTS",
        "Output folders of the runs that trained the prompts, one per model or one for all. Empty: hand-crafted "
        "prompts, or in an evaluation those used in training.",
        default=[],
        allowed=Strings(),
        role=TRAINING_PROTOCOL,  # a path, which differs between machines; the protocol records its contents
        from_checkpoint=FromCheckpoint.IF_EMPTY,
    ),
    _searched("WEIGHTS_SEARCH", False),
    _searched("SEARCH_EVAL", False),
    _searched("WEIGHT_RN50", 1.0),
    _searched("WEIGHT_RN101", 1.0),
    _searched("WEIGHT_VIT32", 1.0),
    _searched("WEIGHT_VIT16", 1.0),
    Key(
        f"{_NODE}.MODEL_DIR",
        "Key of the original; use `PROMPTS` instead.",
        default="",
        allowed=Only("", "runs are named one by one: use TRAINER.ENLEARN.PROMPTS."),
        role=TRAINING,
    ),
)

ZEROSHOT = (
    Key(
        "TRAINER.ZEROSHOT.ENSEMBLE",
        "`ZeroshotCLIP2`: CLIP's selection of 7 ImageNet templates, or all 80.",
        default=7,
        allowed=OneOf(choices.ENSEMBLES),
        role=MODEL,
    ),
)

SECTIONS = (
    Section(
        "T_En (TuneEn)",
        "[METHODS.md](METHODS.md) explains the generator, and how to use prompts of other runs.",
        ENLEARN,
    ),
    Section("Zero-shot CLIP", "", ZEROSHOT),
)
