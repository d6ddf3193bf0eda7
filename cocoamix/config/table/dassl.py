"""Dassl's own keys that are checked here, or whose role is not `run`."""

from __future__ import annotations

from functools import partial

from cocoamix import choices
from cocoamix.config.allowed import Numbers, OneOf, Only, Range
from cocoamix.config.key import HIDDEN, PROTOCOL, TRAINING, TRAINING_ONLY, TRAINING_PROTOCOL, Key

from .section import Section

_UNTRANSFORMED = "no trainer here uses images that are not transformed. Leave it out."
_UNLABELLED = "no trainer here uses unlabelled images. Leave it out."
_EVALUATOR = "there is no other evaluator here. Leave it out."

_hidden = partial(Key, role=HIDDEN)
_protocol = partial(Key, role=PROTOCOL)
_training = partial(Key, role=TRAINING)

RUN_AND_DATA = (
    _hidden("OUTPUT_DIR"),
    _hidden("RESUME"),
    _hidden("VERBOSE"),
    _hidden("USE_CUDA"),
    Key("SEED", "Differs among runs that are averaged.", allowed=Range(-1, 2**32 - 1), role=TRAINING_PROTOCOL),
    _hidden("DATASET.ROOT"),
    _protocol("DATASET.NAME"),
    Key("DATASET.NUM_SHOTS", role=TRAINING_PROTOCOL),
    _protocol("MODEL.BACKBONE.NAME"),
    _hidden("DATALOADER.NUM_WORKERS", allowed=Range(0, 10**4)),
    Key("DATALOADER.K_TRANSFORMS", allowed=Range(1, 1)),
    Key("DATALOADER.RETURN_IMG0", allowed=Only(False, _UNTRANSFORMED)),
    _training("DATALOADER.TRAIN_X.SAMPLER", allowed=OneOf(choices.SAMPLERS)),
    _training("DATALOADER.TRAIN_X.N_INS", allowed=Range(1, 10**6)),
    _training("DATALOADER.TRAIN_X.BATCH_SIZE", allowed=Range(1, 10**6)),
    _training("DATALOADER.TRAIN_X.*"),
    _hidden("DATALOADER.TEST.BATCH_SIZE", allowed=Range(1, 10**6)),
    _protocol("DATALOADER.TEST.SAMPLER", allowed=OneOf(choices.SAMPLERS)),
    _protocol("DATALOADER.TEST.*"),
)

INPUT = (
    _protocol("INPUT.SIZE", allowed=Numbers(2)),
    _protocol("INPUT.PIXEL_MEAN", allowed=Numbers(3)),
    _protocol("INPUT.PIXEL_STD", allowed=Numbers(3, divisor=True)),
    _protocol("INPUT.RRCROP_SCALE", allowed=Numbers(2, ascending=True), older=(0.08, 1.0)),
    _protocol("INPUT.NO_TRANSFORM", allowed=Only(False, _UNTRANSFORMED)),
    _protocol("INPUT.*"),
)

OPTIM = (
    _training("OPTIM.NAME", allowed=OneOf(choices.OPTIMIZERS)),
    _training("OPTIM.LR", allowed=Range(0)),
    _training("OPTIM.LR_SCHEDULER", allowed=OneOf(choices.SCHEDULES)),
    _training("OPTIM.GAMMA", allowed=Range(0)),
    _training("OPTIM.MAX_EPOCH", allowed=Range(1, 10**6)),
    _training("OPTIM.WARMUP_TYPE", allowed=OneOf(choices.WARMUPS)),
    _training("OPTIM.WARMUP_CONS_LR", allowed=Range(0)),
    _training("OPTIM.WARMUP_MIN_LR", allowed=Range(0)),
    _training("OPTIM.*"),
)

TRAIN_AND_TEST = (
    _hidden("TRAIN.PRINT_FREQ", allowed=Range(1)),
    _hidden("TRAIN.CHECKPOINT_FREQ"),
    Key("TRAIN.COUNT_ITER", role=TRAINING_ONLY, allowed=Only("train_x", _UNLABELLED)),
    Key("TRAIN.*", role=TRAINING_ONLY),
    _hidden("TEST.PER_CLASS_RESULT"),
    _hidden("TEST.COMPUTE_CMAT"),
    _hidden("TEST.NO_TEST"),
    Key("TEST.FINAL_MODEL", allowed=OneOf(choices.FINAL_MODELS), role=TRAINING_PROTOCOL),
    _protocol("TEST.SPLIT", allowed=OneOf(choices.TEST_SPLITS)),
    _protocol("TEST.EVALUATOR", allowed=Only("Classification", _EVALUATOR)),
    _protocol("TEST.*"),
)

TRAINER = (
    _protocol("TRAINER.NAME"),
    # Sections of other code bases, whose logs the report reads.
    _protocol("TRAINER.*.PREC"),
    _training("TRAINER.*"),
)

SECTIONS = (
    Section(
        "Dassl's keys",
        "Declared and documented by Dassl. This table lists those with checked values or a role other than `run`; "
        "`*` matches all other keys with that prefix.",
        (*RUN_AND_DATA, *INPUT, *OPTIM, *TRAIN_AND_TEST, *TRAINER),
    ),
)
