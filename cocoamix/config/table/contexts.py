"""Keys of the methods that learn a context: CoOp, KgCoOp, ProGrad, CoCoOp, MaPLe, DePT."""

from __future__ import annotations

from cocoamix import choices
from cocoamix.config.allowed import OneOf, Only, Range, Template
from cocoamix.config.key import MODEL, PROTOCOL, TRAINING, TRAINING_ONLY, FromCheckpoint, Key

from .section import Section


def length(node: str) -> Key:
    """Return the key of the number of context vectors."""
    comment = "Number of context vectors, at least 1 if `CTX_INIT` has no words."
    return Key(f"{node}.N_CTX", comment, default=16, role=TRAINING)


def words(node: str) -> Key:
    """Return the key of the words that initialise the context."""
    comment = (
        "Words that initialise the context and set its length. Empty or `False`: random. `True`: as in the method's "
        "own code."
    )
    return Key(f"{node}.CTX_INIT", comment, default="", also=(bool,), role=TRAINING)


def class_specific(node: str) -> Key:
    """Return the key of class-specific contexts."""
    return Key(f"{node}.CSC", "Learn one context per class instead of one for all.", default=False, role=TRAINING)


def precision(node: str) -> Key:
    """Return the key of CLIP's precision."""
    return Key(
        f"{node}.PREC",
        "Precision of CLIP. `auto`: `fp32` on a CPU, `fp16` on a GPU.",
        default="auto",
        allowed=OneOf(choices.PRECISIONS),
        role=PROTOCOL,
    )


def position(node: str) -> Key:
    """Return the key of the class name's position."""
    return Key(
        f"{node}.CLASS_TOKEN_POSITION",
        "Position of the class name in the prompt.",
        default="end",
        allowed=OneOf(choices.POSITIONS),
        role=TRAINING,
        from_checkpoint=FromCheckpoint.ALWAYS,
    )


def hand_crafted(node: str, teacher: bool = False) -> tuple[Key, ...]:
    """Return the keys of the hand-crafted prompt. teacher: whether some of the methods train with it."""
    taken = FromCheckpoint.IF_TRAINED_WITH_TEMPLATE if teacher else FromCheckpoint.NEVER
    return (
        Key(
            f"{node}.ENSEMBLE",
            "`uniform` evaluates the mean of the learned and the hand-crafted prompt.",
            default="none",
            allowed=OneOf(choices.UNIFORM_MIXTURES),
            role=MODEL,
        ),
        Key(
            f"{node}.TEMPLATE",
            "The hand-crafted prompt. `dataset`: the method's own template for each dataset.",
            default="dataset",
            allowed=Template(),
            also=(list,),
            role=TRAINING,
            from_checkpoint=taken,
        ),
    )


COOP = (
    length("TRAINER.COOP"),
    class_specific("TRAINER.COOP"),
    words("TRAINER.COOP"),
    precision("TRAINER.COOP"),
    position("TRAINER.COOP"),
    Key(
        "TRAINER.COOP.W",
        "`KgCoOp`: weight of the distance to the hand-crafted prompt. KgCoOp's code uses 1, its scripts 8.",
        default=8.0,
        allowed=Range(0),
        role=TRAINING_ONLY,  # an evaluation by KgCoOp's scripts does not repeat it
    ),
    *hand_crafted("TRAINER.COOP", teacher=True),
)

_UNUSED = "no loss here uses it. Leave it out."

PROGRAD = (
    Key(
        "LOSS.NAME",
        "Set by ProGrad's configurations; it has no effect.",
        default="",
        allowed=OneOf(("", "prograd")),
        role=TRAINING_ONLY,
    ),
    Key(
        "LOSS.LAMBDA",
        "Fraction of the conflicting gradient component that is removed.",
        default=1.0,
        allowed=Range(0),
        role=TRAINING_ONLY,
    ),
    Key(
        "LOSS.T",
        "Temperature of the distance to zero-shot CLIP.",
        default=1.0,
        allowed=Range(1e-6),
        role=TRAINING_ONLY,
    ),
    Key("LOSS.GM", "Unused key of ProGrad's code.", default=False, allowed=Only(False, _UNUSED), role=TRAINING_ONLY),
    Key("LOSS.ALPHA", "Unused key of ProGrad's code.", default=0.0, allowed=Only(0.0, _UNUSED), role=TRAINING_ONLY),
    Key("LOSS.*", role=TRAINING_ONLY),
)

COCOOP = (
    length("TRAINER.COCOOP"),
    words("TRAINER.COCOOP"),
    precision("TRAINER.COCOOP"),
    *hand_crafted("TRAINER.COCOOP"),
)

MAPLE = (
    Key(
        "TRAINER.MAPLE.N_CTX",
        "Number of text prompts, and of vision prompts, per layer.",
        default=2,
        allowed=Range(1),
        role=TRAINING,
    ),
    Key(
        "TRAINER.MAPLE.CTX_INIT",
        "The first `N_CTX` words initialise the first text prompts; the other words stay in the prompt.",
        default="a photo of a",
        also=(bool,),
        role=TRAINING,
        from_checkpoint=FromCheckpoint.ALWAYS,  # the words that are not learned are not in the checkpoint
    ),
    precision("TRAINER.MAPLE"),
    Key(
        "TRAINER.MAPLE.PROMPT_DEPTH",
        "Number of layers with their own prompts; 1 is the input alone.",
        default=9,
        allowed=Range(1),
        role=TRAINING,
    ),
    *hand_crafted("TRAINER.MAPLE"),
)

DEPT = (
    length("TRAINER.DEPT"),
    class_specific("TRAINER.DEPT"),
    words("TRAINER.DEPT"),
    precision("TRAINER.DEPT"),
    position("TRAINER.DEPT"),
    Key(
        "TRAINER.DEPT.WEIGHT",
        "Share of the head in the loss, and in the logits if all classes were trained on. 0: the head is not used.",
        default=0.7,
        allowed=Range(0, 1),
        role=TRAINING,
        from_checkpoint=FromCheckpoint.ALWAYS,
    ),
    Key(
        "TRAINER.DEPT.LR_FACTOR",
        "Learning rate of the head and its affine maps, as a multiple of `OPTIM.LR`.",
        default=6.5,
        allowed=Range(0),
        role=TRAINING,
    ),
    Key(
        "TRAINER.DEPT.W",
        "`DePTKgCoOp`: weight of the distance to the hand-crafted prompt.",
        default=2.0,
        allowed=Range(0),
        role=TRAINING,
    ),
    *hand_crafted("TRAINER.DEPT", teacher=True),
)

SECTIONS = (
    Section("CoOp and KgCoOp", "ProGrad reads these keys too, and zero-shot CLIP reads `PREC`.", COOP),
    Section("ProGrad", "ProGrad reads these keys in addition to `TRAINER.COOP.*`.", PROGRAD),
    Section("CoCoOp", "", COCOOP),
    Section("MaPLe", "", MAPLE),
    Section("DePT", "`DePT` extends CoOp, `DePTKgCoOp` extends KgCoOp.", DEPT),
)
