"""Keys of CoCoA-Mix."""

from __future__ import annotations

from cocoamix import choices
from cocoamix.config.allowed import OneOf, Range, Strings, Template
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
        "The hand-crafted prompt. `dataset`: CoOp's template for each dataset.",
        default="a photo of a {}.",
        allowed=Template(),
        also=(list,),
        role=TRAINING,
        from_checkpoint=FromCheckpoint.ALWAYS,
    ),
    Key(
        f"{_NODE}.BACKBONES",
        "Several CLIP models whose similarities are averaged. Empty: `MODEL.BACKBONE.NAME` alone.",
        default=[],
        allowed=Strings(),
        role=MODEL,
    ),
    Key(
        f"{_NODE}.BACKBONE_WEIGHTS",
        'A weights file (or `""` or `random`) for each of `BACKBONES`. Empty: OpenAI\'s weights, downloaded.',
        default=[],
        allowed=Strings(),
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
        "Mix the prompts with learned (`coa`) or equal (`uniform`) weights, or use the learned prompt alone (`none`).",
        default="coa",
        allowed=OneOf(choices.MIXTURES),
        role=MODEL,
    ),
    Key(
        f"{_NODE}.STAGE",
        "`one` learns the weights together with the prompt, `two` in a second stage after it.",
        default="one",
        allowed=OneOf(choices.STAGES),
        role=TRAINING,
        from_checkpoint=FromCheckpoint.ALWAYS,  # it defines the meaning of the numbers in the checkpoint
    ),
    Key(
        f"{_NODE}.WEIGHT_EPOCHS",
        "Epochs of the second stage. 0: until the weights converge.",
        default=0,
        allowed=Range(0),
        role=TRAINING,
    ),
    Key(
        f"{_NODE}.WEIGHT_TOLERANCE",
        "The weights have converged when pi changes by less than this in 50 steps, or in one epoch if that is longer.",
        default=0.001,
        allowed=Range(1e-9, 1),
        role=TRAINING,
    ),
    Key(
        f"{_NODE}.WEIGHT_MAX_STEPS",
        "Maximum number of steps of the second stage if the weights do not converge.",
        default=5000,
        allowed=Range(1),
        role=TRAINING,
    ),
    Key(
        f"{_NODE}.WEIGHT_FIT",
        "Images that pi^in is fitted to. `train`: the training images, as in the paper. `heldout`: images held out in "
        "folds; needs `STAGE two`.",
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
        "Learning rate of the weights. It follows the schedule of `OPTIM`, but is constant in a second stage with "
        "`WEIGHT_EPOCHS` 0.",
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
        "How much less confident the learned prompt must be on out-classes than the hand-crafted one; the paper's d.",
        default=0.2,
        allowed=Range(0, 1),
        role=TRAINING,
        symbol="d",
    ),
    Key(
        f"{_NODE}.OUT_CLASSES",
        "Names of the out-classes: nouns (`word`), random letters (`string`), half of each (`both`), or `none`.",
        default="word",
        allowed=OneOf(choices.OUT_CLASSES),
        role=TRAINING,
        from_checkpoint=FromCheckpoint.ALWAYS,  # without out-classes there is one weight for all classes
    ),
    Key(
        f"{_NODE}.CALIBRATED",
        "Evaluate at the temperature fitted by `WEIGHT_FIT heldout`. Accuracies do not change.",
        default=False,
        role=RUN,
    ),
    Key(
        f"{_NODE}.CENTRE",
        "Centre each prompt's similarities over the classes, if the classes have different weights.",
        default=False,
        role=RUN,
    ),
    Key(
        f"{_NODE}.DOMAIN",
        "Weight of a class: pi^in if its name was trained on, else pi^out (`auto`); always pi^in (`in`); always pi^out "
        "(`out`).",
        default="auto",
        allowed=OneOf(choices.DOMAINS),
        role=RUN,
    ),
)

SECTIONS = (
    Section(
        "CoCoA-Mix",
        "[METHOD.md](METHOD.md) has the formulas. pi^in and pi^out are the weights of the learned prompt for trained "
        "classes and for all others; out-classes are generated class names that stand in for the others.",
        (*PROMPTS, *LOSS, *WEIGHTS),
    ),
)
