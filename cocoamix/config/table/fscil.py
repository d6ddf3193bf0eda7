"""Keys of class-incremental learning."""

from __future__ import annotations

from cocoamix import choices
from cocoamix.config.allowed import OneOf, Range
from cocoamix.config.key import HIDDEN, RUN, TRAINING_ONLY, Key

from .section import Section

FSCIL = (
    Key("FSCIL.BASE", "Number of classes in session 0.", default=60, allowed=Range(1), role=RUN),
    Key("FSCIL.WAY", "Number of classes in each later session.", default=5, allowed=Range(1), role=RUN),
    Key(
        "FSCIL.SHOTS",
        "Images per class in each later session. Session 0 has all images of its classes.",
        default=5,
        allowed=Range(1),
        role=TRAINING_ONLY,
    ),
    Key(
        "FSCIL.SPLIT",
        "Training images of later sessions. `cec`: the published ones, for CIFAR-100, miniImageNet and CUB-200. "
        "`random`: drawn from the seed. `auto`: `cec` if available, else `random`.",
        default="auto",
        allowed=OneOf(choices.SESSION_SPLITS),
        role=TRAINING_ONLY,
    ),
    Key(
        "FSCIL.LAST_SESSION",
        "Last session to train or evaluate. -1: all sessions.",
        default=-1,
        allowed=Range(-1),
        role=HIDDEN,  # a run may continue with later sessions
    ),
    Key(
        "FSCIL.BASE_BATCH_SIZE",
        "Batch size of session 0. 0: `DATALOADER.TRAIN_X.BATCH_SIZE`, as in the paper. With stored features a step "
        "costs about the same for any size, so larger batches make an epoch cheaper. The protocol records it.",
        default=0,
        allowed=Range(0, 10**6),
        role=TRAINING_ONLY,
    ),
    Key(
        "FSCIL.BASE_WEIGHT_EPOCHS",
        "`CoCoAMixFSCIL`: epochs of the weights in session 0. 0: until they converge.",
        default=2,
        allowed=Range(0),
        role=TRAINING_ONLY,
    ),
    Key(
        "FSCIL.WEIGHT_EPOCHS",
        "`CoCoAMixFSCIL`: epochs of the weights in each later session. 0: until they converge. "
        "`TRAINER.COCOAMIX.WEIGHT_EPOCHS` is not used.",
        default=100,
        allowed=Range(0),
        role=TRAINING_ONLY,
    ),
    Key(
        "FSCIL.TUNED_CLASSES",
        "`CoOpFSCIL`, `FSPTFSCIL`, `L2PFSCIL`: classes in the loss. `session`: those of the session. `seen`: all "
        "classes seen so far. `all`: those of all sessions, including later ones.",
        default="session",
        allowed=OneOf(choices.TUNED_CLASSES),
        role=TRAINING_ONLY,
    ),
    Key("FSCIL.*", role=TRAINING_ONLY),
)

SECTIONS = (
    Section(
        "Class-incremental sessions",
        "For trainers whose names end in `FSCIL`: see [FSCIL.md](FSCIL.md).",
        FSCIL,
    ),
)
