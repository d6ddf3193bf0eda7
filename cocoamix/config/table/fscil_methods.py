"""Keys of class-incremental methods other than CoCoA-Mix: FSPT-FSCIL, FACT and L2P."""

from __future__ import annotations

from cocoamix import choices
from cocoamix.config.allowed import OneOf, Range, Template
from cocoamix.config.key import MODEL, TRAINING, TRAINING_ONLY, FromCheckpoint, Key

from .contexts import precision
from .section import Section


def _count(name: str, comment: str, default: int, least: int = 1, training_only: bool = True) -> Key:
    role = TRAINING_ONLY if training_only else TRAINING
    return Key(name, comment, default=default, allowed=Range(least), role=role)


def _share(name: str, comment: str, default: float, least: float = 0.0) -> Key:
    return Key(name, comment, default=default, allowed=Range(least), role=TRAINING_ONLY)


FSPT = (
    _count("TRAINER.FSPT.N_CTX", "Number of vectors in the slow context.", 12, training_only=False),
    _count("TRAINER.FSPT.F_N_CTX", "Number of vectors in the fast context.", 8, training_only=False),
    precision("TRAINER.FSPT"),
    Key(
        "TRAINER.FSPT.CLASS_TOKEN_POSITION",
        "Position of the class name in the prompt: after both contexts, or between the slow and the fast one.",
        default="end",
        allowed=OneOf(choices.FSPT_POSITIONS),
        role=TRAINING,
        from_checkpoint=FromCheckpoint.ALWAYS,
    ),
    _share(
        "TRAINER.FSPT.INNER_LR",
        "Learning rate of the fast context in the inner loop. The outer step uses `OPTIM.LR`.",
        0.03,
    ),
    _count("TRAINER.FSPT.N_WAYS", "Classes per episode; all classes if the session has fewer.", 10),
    _count("TRAINER.FSPT.K_SHOTS", "Images per class in the inner loop of session 0.", 5),
    _count("TRAINER.FSPT.LATER_SHOTS", "Images per class in the inner loop of a later session.", 1),
    _count(
        "TRAINER.FSPT.QUERY_SHOTS",
        "Outer step: maximum number of further images per class of the episode.",
        5,
        least=0,
    ),
    _count("TRAINER.FSPT.OUTER_BATCH", "Outer step: maximum number of images from all classes of the session.", 50),
    _count("TRAINER.FSPT.OUTER_STEPS", "Outer steps of session 0. `OPTIM.MAX_EPOCH` is not used.", 10_001),
    _count("TRAINER.FSPT.LATER_STEPS", "Outer steps of each later session.", 5),
    _count(
        "TRAINER.FSPT.BLOCK_STEPS",
        "Outer steps per epoch. A run resumes at an epoch, and each epoch has its own augmentations.",
        100,
    ),
)

FACT = (
    precision("TRAINER.FACT"),
    _count(
        "TRAINER.FACT.REDUCTION",
        "Width of the image features divided by the width of the hidden layer.",
        4,
        training_only=False,
    ),
    _count(
        "TRAINER.FACT.VIRTUAL",
        "Number of virtual prototypes. 0: one for each later class.",
        0,
        0,
        training_only=False,
    ),
    _count("TRAINER.FACT.OPEN_TO", "Number of base classes per virtual prototype.", 3),
    Key(
        "TRAINER.FACT.TEMPERATURE",
        "Scale of the cosine similarities, in training and evaluation.",
        default=16.0,
        allowed=Range(1e-6),
        role=TRAINING,
    ),
    _share("TRAINER.FACT.BALANCE", "Weight of the three losses with virtual prototypes.", 0.001),
    _share("TRAINER.FACT.ALPHA", "Mixed features are weighted by draws from Beta(`ALPHA`, `ALPHA`).", 0.5, 1e-6),
    Key(
        "TRAINER.FACT.ETA",
        "Weight of the probabilities through virtual prototypes, from session 1 on.",
        default=0.1,
        allowed=Range(0, 1),
        role=MODEL,
    ),
)

L2P = (
    Key(
        "TRAINER.L2P.POOL",
        "Where the chosen prompts are used: `text` as the context of class names, `visual` next to the image patches.",
        default="text",
        allowed=OneOf(choices.POOLS),
        role=MODEL,
    ),
    precision("TRAINER.L2P"),
    _count("TRAINER.L2P.POOL_SIZE", "Number of prompts, each with a key.", 10, training_only=False),
    Key(
        "TRAINER.L2P.TOP_K",
        "Number of prompts per image: those whose keys are nearest to its feature.",
        default=5,
        allowed=Range(1),
        role=TRAINING,
        from_checkpoint=FromCheckpoint.ALWAYS,
    ),
    _count("TRAINER.L2P.LENGTH", "Number of vectors per prompt.", 5, training_only=False),
    _share("TRAINER.L2P.KEY_WEIGHT", "Weight of the term that pulls keys towards the images that chose them.", 0.1),
    _share("TRAINER.L2P.CLIP_NORM", "Maximum norm of the gradient. 0: no limit.", 1.0),
    Key(
        "TRAINER.L2P.TEMPLATE",
        "`POOL visual`: the hand-crafted prompt of class names. `dataset`: CoOp's template for each dataset.",
        default="dataset",
        allowed=Template(),
        also=(list,),
        role=TRAINING,
    ),
)

SECTIONS = (
    Section("FSPT-FSCIL", "For `FSPTFSCIL`: see [its description](FSCIL_METHODS.md#fspt-fscil).", FSPT),
    Section("FACT with CLIP", "For `FACTFSCIL`: see [its description](FSCIL_METHODS.md#fact-with-clip).", FACT),
    Section("L2P", "For `L2PFSCIL`: see [its description](FSCIL_METHODS.md#l2p).", L2P),
)
