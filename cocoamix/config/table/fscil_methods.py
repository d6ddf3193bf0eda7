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
    _count("TRAINER.FSPT.N_CTX", "Vectors of the slow context.", 12, training_only=False),
    _count("TRAINER.FSPT.F_N_CTX", "Vectors of the fast context.", 8, training_only=False),
    precision("TRAINER.FSPT"),
    Key(
        "TRAINER.FSPT.CLASS_TOKEN_POSITION",
        "Place of the class name in the prompt: behind both contexts, or between the slow and the fast one.",
        default="end",
        allowed=OneOf(choices.FSPT_POSITIONS),
        role=TRAINING,
        from_checkpoint=FromCheckpoint.ALWAYS,
    ),
    _share(
        "TRAINER.FSPT.INNER_LR",
        "Learning rate of the fast context in the inner loop. That of the outer step is `OPTIM.LR`.",
        0.03,
    ),
    _count("TRAINER.FSPT.N_WAYS", "Classes of an episode, or all that a session has.", 10),
    _count("TRAINER.FSPT.K_SHOTS", "Images of each class in the inner loop of session 0.", 5),
    _count("TRAINER.FSPT.LATER_SHOTS", "And in that of a later session.", 1),
    _count("TRAINER.FSPT.QUERY_SHOTS", "Other images of each of these classes in the outer step, at most.", 5, least=0),
    _count("TRAINER.FSPT.OUTER_BATCH", "Images of any class of the session in the outer step, at most.", 50),
    _count("TRAINER.FSPT.OUTER_STEPS", "Outer steps of session 0. `OPTIM.MAX_EPOCH` is not used.", 10_001),
    _count("TRAINER.FSPT.LATER_STEPS", "And of each later session.", 5),
    _count(
        "TRAINER.FSPT.BLOCK_STEPS",
        "Outer steps that count as an epoch: a run resumes between them, and each shows other augmentations.",
        100,
    ),
)

FACT = (
    precision("TRAINER.FACT"),
    _count(
        "TRAINER.FACT.REDUCTION",
        "Width of image features over that of the network's hidden layer.",
        4,
        training_only=False,
    ),
    _count(
        "TRAINER.FACT.VIRTUAL", "Virtual prototypes; 0 for as many as classes come later.", 0, 0, training_only=False
    ),
    _count("TRAINER.FACT.OPEN_TO", "Base classes that each virtual prototype is open to.", 3),
    Key(
        "TRAINER.FACT.TEMPERATURE",
        "Factor of cosine similarities, in training and evaluation.",
        default=16.0,
        allowed=Range(1e-6),
        role=TRAINING,
    ),
    _share("TRAINER.FACT.BALANCE", "Weight of the three losses that virtual prototypes take part in.", 0.001),
    _share("TRAINER.FACT.ALPHA", "Shares of a mixed feature are drawn from Beta(`ALPHA`, `ALPHA`).", 0.5, 1e-6),
    Key(
        "TRAINER.FACT.ETA",
        "Share of the probabilities by way of virtual prototypes, from session 1 on.",
        default=0.1,
        allowed=Range(0, 1),
        role=MODEL,
    ),
)

L2P = (
    Key(
        "TRAINER.L2P.POOL",
        "Where the chosen prompts go: `text` as the context of class names, `visual` beside the patches of images.",
        default="text",
        allowed=OneOf(choices.POOLS),
        role=MODEL,
    ),
    precision("TRAINER.L2P"),
    _count("TRAINER.L2P.POOL_SIZE", "Prompts, each with a key.", 10, training_only=False),
    Key(
        "TRAINER.L2P.TOP_K",
        "Prompts that an image chooses, those of the keys that are nearest to its feature.",
        default=5,
        allowed=Range(1),
        role=TRAINING,
        from_checkpoint=FromCheckpoint.ALWAYS,
    ),
    _count("TRAINER.L2P.LENGTH", "Vectors of a prompt.", 5, training_only=False),
    _share("TRAINER.L2P.KEY_WEIGHT", "Weight of the term that pulls chosen keys to the images that chose them.", 0.1),
    _share("TRAINER.L2P.CLIP_NORM", "Largest norm of the gradient in a step; 0 for any.", 1.0),
    Key(
        "TRAINER.L2P.TEMPLATE",
        "`visual`: the hand-crafted prompt of class names; `dataset` is CoOp's template for each dataset.",
        default="dataset",
        allowed=Template(),
        also=(list,),
        role=TRAINING,
    ),
)

SECTIONS = (
    Section("FSPT-FSCIL", "Of `FSPTFSCIL`: [FSCIL.md](FSCIL.md#fspt-fscil).", FSPT),
    Section("FACT with CLIP", "Of `FACTFSCIL`: [FSCIL.md](FSCIL.md#fact-with-clip).", FACT),
    Section("L2P", "Of `L2PFSCIL`: [FSCIL.md](FSCIL.md#l2p).", L2P),
)
