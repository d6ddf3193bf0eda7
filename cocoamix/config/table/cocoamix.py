"""Keys of CoCoA-Mix."""

from __future__ import annotations

from cocoamix import choices
from cocoamix.config.allowed import OneOf, Range, Template, Texts
from cocoamix.config.key import MODEL, RUN, TRAINING, FromCheckpoint, Key

from .contexts import length, position, precision, words
from .section import Section

_NODE = "TRAINER.COCOAMIX"

PROMPTS = (
    length(_NODE),
    words(_NODE),
    precision(_NODE),
    position(_NODE),
    Key(
        f"{_NODE}.TEMPLATE",
        "The hand-crafted prompt; `dataset` is CoOp's own template for each dataset.",
        default="a photo of a {}.",
        allowed=Template(),
        also=(list,),
        role=TRAINING,
        from_checkpoint=FromCheckpoint.ALWAYS,
    ),
    Key(
        f"{_NODE}.BACKBONES",
        "Several CLIP models, whose similarities are averaged; empty is `MODEL.BACKBONE.NAME`.",
        default=[],
        allowed=Texts(),
        role=MODEL,
    ),
    Key(
        f"{_NODE}.BACKBONE_WEIGHTS",
        'A file (or `""` or `random`) for each of `BACKBONES`; empty downloads OpenAI\'s.',
        default=[],
        allowed=Texts(),
        role=MODEL,
    ),
)

LOSS = (
    Key(
        f"{_NODE}.LOSS",
        "Loss of the learned prompt.",
        default="ce+coa",
        allowed=OneOf(choices.LOSSES),
        role=TRAINING,
    ),
    Key(
        f"{_NODE}.W",
        "Weight of the second term of `LOSS`; the paper's w.",
        default=5.0,
        allowed=Range(0),
        role=TRAINING,
        symbol="w",
    ),
    Key(f"{_NODE}.GAMMA", "Exponent of the focal loss.", default=2.0, allowed=Range(0), role=TRAINING),
    Key(
        f"{_NODE}.Q",
        "Exponent of the generalised cross-entropy.",
        default=0.7,
        allowed=Range(1e-6, 1),
        role=TRAINING,
    ),
)

WEIGHTS = (
    Key(
        f"{_NODE}.ENSEMBLE",
        "`coa` mixes by learned weights, `uniform` by equal ones; `none` is the learned prompt alone.",
        default="coa",
        allowed=OneOf(choices.MIXTURES),
        role=MODEL,
    ),
    Key(
        f"{_NODE}.STAGE",
        "`one` learns the weights with the prompt, `two` after it, in a stage of their own.",
        default="one",
        allowed=OneOf(choices.STAGES),
        role=TRAINING,
        from_checkpoint=FromCheckpoint.ALWAYS,  # it tells what the numbers in the checkpoint are
    ),
    Key(
        f"{_NODE}.WEIGHT_EPOCHS",
        "Epochs of the second stage; 0 trains until the weights converge.",
        default=0,
        allowed=Range(0),
        role=TRAINING,
    ),
    Key(
        f"{_NODE}.WEIGHT_TOLERANCE",
        "They have converged where pi moves by less than this in 50 steps, or in an epoch if that is longer.",
        default=0.001,
        allowed=Range(1e-9, 1),
        role=TRAINING,
    ),
    Key(
        f"{_NODE}.WEIGHT_MAX_STEPS",
        "Where they do not converge, the second stage ends after so many steps.",
        default=5000,
        allowed=Range(1),
        role=TRAINING,
    ),
    Key(
        f"{_NODE}.WEIGHT_FIT",
        "Images that pi^in is fitted to: `train`, as in the paper, or `heldout` ones, by folds; the latter needs "
        "`STAGE two`.",
        default="train",
        allowed=OneOf(choices.WEIGHT_FITS),
        role=TRAINING,
    ),
    Key(
        f"{_NODE}.WEIGHT_OPTIM",
        "Optimizer of the weights.",
        default="sgd",
        allowed=OneOf(choices.OPTIMIZERS),
        role=TRAINING,
    ),
    Key(
        f"{_NODE}.WEIGHT_LR",
        "Its learning rate. The schedule is that of `OPTIM`, and constant where `WEIGHT_EPOCHS` is 0.",
        default=0.002,
        allowed=Range(0),
        role=TRAINING,
    ),
    Key(
        f"{_NODE}.W_IN",
        "Weight of the mixture's cross-entropy, which sets pi^in.",
        default=1.0,
        allowed=Range(0),
        role=TRAINING,
    ),
    Key(
        f"{_NODE}.W_OUT",
        "Weight of the entropy loss, which sets pi^out.",
        default=10.0,
        allowed=Range(0),
        role=TRAINING,
    ),
    Key(
        f"{_NODE}.MARGIN",
        "By how much less sure the learned prompt must be of out-classes than the hand-crafted one; the paper's d.",
        default=0.2,
        allowed=Range(0, 1),
        role=TRAINING,
        symbol="d",
    ),
    Key(
        f"{_NODE}.OUT_CLASSES",
        "Names of out-classes: nouns (`word`), random letters (`string`), half and half (`both`), or `none`.",
        default="word",
        allowed=OneOf(choices.OUT_CLASSES),
        role=TRAINING,
        from_checkpoint=FromCheckpoint.ALWAYS,  # without out-classes there is one weight for all classes
    ),
    Key(
        f"{_NODE}.CALIBRATED",
        "Evaluate at the temperature that `WEIGHT_FIT heldout` fits. No accuracy changes.",
        default=False,
        role=RUN,
    ),
    Key(
        f"{_NODE}.CENTRE",
        "Centre each prompt's similarities over the classes where these have different weights.",
        default=False,
        role=RUN,
    ),
    Key(
        f"{_NODE}.DOMAIN",
        "Weights of a class: by its name (`auto`), pi^in for all (`in`), or pi^out for all (`out`).",
        default="auto",
        allowed=OneOf(choices.DOMAINS),
        role=RUN,
    ),
)

SECTIONS = (
    Section(
        "CoCoA-Mix",
        "[METHOD.md](METHOD.md) has the formulas.",
        (*PROMPTS, *LOSS, *WEIGHTS),
    ),
)
