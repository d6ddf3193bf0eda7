"""Every config key that this project adds to Dassl's, with its default, and the way files and flags are merged."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from yacs.config import CfgNode

from cocoamix.clip.model import ACTIVATIONS, SOURCES
from cocoamix.clip.precision import PRECISIONS
from cocoamix.configurations import locate
from cocoamix.errors import UserError, check_choice, nearest
from cocoamix.generator import LOSSES as MIXTURE_LOSSES
from cocoamix.losses import LOSSES
from cocoamix.outclasses import KINDS as OUT_CLASS_KINDS
from cocoamix.prompts import POSITIONS
from cocoamix.schedules import SCHEDULES, WARMUPS
from cocoamix.sessions import SPLITS as SESSION_SPLITS
from cocoamix.settings import flatten, literal
from cocoamix.weights import STAGES

SUBSETS = ("all", "base", "new")
OPTIMIZERS = ("adam", "amsgrad", "sgd", "rmsprop", "radam", "adamw")
SAMPLERS = ("RandomSampler", "SequentialSampler", "RandomClassSampler", "RandomDomainSampler")
ENSEMBLES = (7, 80)
DOMAIN_KINDS = ("auto", "in", "out")
WEIGHT_FITS = ("train", "heldout")
CACHE_MODES = ("off", "test", "all")
BAD_IMAGES = ("stop", "skip")
TUNED_CLASSES = ("session", "seen")
KGCOOP_CONTEXT = "a photo of a"  # what the peers whose CTX_INIT is true or false mean by true

# Keys of the original's ensemble that searches for fixed weights (TF_En), which its configurations set beside T_En's.
_SEARCHED: dict[str, bool | float] = {"WEIGHTS_SEARCH": False, "SEARCH_EVAL": False}
_SEARCHED |= {f"WEIGHT_{model}": 1.0 for model in ("RN50", "RN101", "VIT32", "VIT16")}


def extend_cfg(cfg: CfgNode) -> None:
    """Add our keys to Dassl's defaults. A key that is there already, from another code base, stays as it is."""
    _add(cfg.DATASET, "SUBSAMPLE_CLASSES", "all")  # all, base (first half of the labels) or new (the rest)
    _add(cfg.DATASET, "FEWER_SHOTS", False)  # take what there is where a class has fewer than NUM_SHOTS images
    _add(cfg.DATASET, "BAD_IMAGES", "stop")  # stop at an unreadable image, or skip it
    _add(cfg.DATASET, "FOLDER", "")  # own pictures: their folder below ROOT; "" is ROOT itself
    _add(cfg.DATASET, "CSV", "")  # CSVDataset: the table; "" is the one .csv or .tsv file in the folder
    _add(cfg.DATASET, "CLASSNAMES", "")  # own pictures: file of class names; "" takes the folders' or the table's
    _add(cfg.DATASET, "SPLIT", [0.5, 0.2, 0.3])  # own pictures: shares of train, val, test where there is no split

    _add(cfg.MODEL.BACKBONE, "SOURCE", "auto")  # package that runs CLIP: clip, open_clip, auto (clip where it imports)
    _add(cfg.MODEL.BACKBONE, "WEIGHTS", "")  # file of CLIP weights; "" downloads OpenAI's, "random" is for trials
    _add(cfg.MODEL.BACKBONE, "ACTIVATION", "quick_gelu")  # OpenAI's; gelu for open_clip weights trained with it

    _add(cfg.MODEL.BACKBONE, "TEXT_CHUNK", "auto")  # prompts that are encoded together; auto bounds their memory

    cache = _node(cfg, "CACHE")
    _add(cache, "MODE", "all")  # image features that are stored: off, test (test and val images), all
    _add(cache, "DIR", "")  # where; "" is $COCOAMIX_CACHE/features or ~/.cache/cocoamix/features
    _add(cache, "VIEWS", 0)  # augmentations of a training image: 0 one for each epoch; 1 a fixed centre crop instead

    coop = _node(cfg.TRAINER, "COOP")
    _add(coop, "N_CTX", 16)  # number of context vectors
    _add(coop, "CSC", False)  # class-specific contexts
    _add(coop, "CTX_INIT", "")  # words the context starts from; they also set its length
    _add(coop, "PREC", "auto")  # fp32, fp16, bf16, amp; auto is fp32 on a CPU and fp16 on a GPU
    _add(coop, "CLASS_TOKEN_POSITION", "end")  # class name at the end, in the middle or at the front
    _add(coop, "W", 8.0)  # KgCoOp: weight of the distance to the hand-crafted prompt; its code has 1, its scripts 8
    _add_handmade(coop)

    loss = _node(cfg, "LOSS")  # ProGrad's keys stand here
    _add(loss, "NAME", "")  # prograd, as its configurations say
    _add(loss, "LAMBDA", 1.0)  # share of the conflicting part of the gradient that is taken out
    _add(loss, "T", 1.0)  # temperature of the distance to zero-shot CLIP
    _add(loss, "GM", False)  # known to ProGrad's code, used by none of its configurations, refused here
    _add(loss, "ALPHA", 0.0)  # the same

    cocoop = _node(cfg.TRAINER, "COCOOP")
    _add(cocoop, "N_CTX", 16)  # number of context vectors
    _add(cocoop, "CTX_INIT", "")  # words the context starts from; they also set its length
    _add(cocoop, "PREC", "auto")  # fp32, fp16, bf16, amp; auto is fp32 on a CPU and fp16 on a GPU
    _add_handmade(cocoop)

    mix = _node(cfg.TRAINER, "COCOAMIX")
    _add(mix, "N_CTX", 16)  # number of context vectors
    _add(mix, "CTX_INIT", "")  # words the context starts from; they also set its length
    _add(mix, "PREC", "auto")  # fp32, fp16, bf16, amp; auto is fp32 on a CPU and fp16 on a GPU
    _add(mix, "CLASS_TOKEN_POSITION", "end")  # class name at the end, in the middle or at the front
    _add(mix, "TEMPLATE", "a photo of a {}.")  # of the hand-crafted prompt; `dataset` for CoOp's own, or a list
    _add(mix, "BACKBONES", [])  # several CLIP models whose similarities are averaged; empty is MODEL.BACKBONE.NAME
    _add(mix, "BACKBONE_WEIGHTS", [])  # a file (or "" or "random") for each of BACKBONES; empty downloads OpenAI's
    _add(mix, "LOSS", "ce+coa")  # of the learned prompt: ce, coa, focal, gce, ce+mae, ce+coa
    _add(mix, "W", 5.0)  # weight of the second term of LOSS
    _add(mix, "GAMMA", 2.0)  # of the focal loss
    _add(mix, "Q", 0.7)  # of the generalised cross-entropy, above 0 and at most 1
    _add(mix, "ENSEMBLE", "coa")  # coa (learned weights), uniform (equal weights), none (the learned prompt alone)
    _add(mix, "STAGE", "one")  # one: weights learned with the prompt; two: after it, in a stage of their own
    _add(mix, "WEIGHT_EPOCHS", 0)  # epochs of the second stage; 0 goes on until the weights stand still
    _add(mix, "WEIGHT_TOLERANCE", 0.001)  # they do where pi moves by less than this in 50 steps, or an epoch if longer
    _add(mix, "WEIGHT_MAX_STEPS", 5000)  # where they do not, the second stage ends after so many steps
    _add(
        mix, "WEIGHT_FIT", "train"
    )  # images that pi^in is fitted to: train (the paper's) or heldout (folds; needs STAGE two)
    _add(mix, "WEIGHT_OPTIM", "sgd")  # optimizer of the weights
    _add(mix, "WEIGHT_LR", 0.002)  # its learning rate; the schedule is OPTIM's, constant where WEIGHT_EPOCHS is 0
    _add(mix, "W_IN", 1.0)  # weight of the mixture's cross-entropy, which sets pi^in
    _add(mix, "W_OUT", 10.0)  # weight of the entropy loss, which sets pi^out
    _add(mix, "MARGIN", 0.2)  # by how much less sure the learned prompt must be of out-classes, 0 to 1
    _add(mix, "OUT_CLASSES", "word")  # made-up names: word (nouns), string (letters), both, none
    _add(mix, "CALIBRATED", False)  # evaluate at the temperature that WEIGHT_FIT heldout fits; no accuracy changes
    _add(mix, "CENTRE", False)  # centre each prompt's similarities over the classes where these have different weights
    _add(mix, "DOMAIN", "auto")  # weights of a class by its name (auto), or all pi^in (in), or all pi^out (out)

    fscil = _node(cfg, "FSCIL")  # class-incremental sessions, of the trainers whose name ends in FSCIL
    _add(fscil, "BASE", 60)  # classes of session 0, with all their images
    _add(fscil, "WAY", 5)  # classes of each later session
    _add(fscil, "SHOTS", 5)  # images of each of those
    _add(fscil, "SPLIT", "auto")  # which images: cec (published, CIFAR-100), random (by SEED), auto (cec if there is)
    _add(fscil, "LAST_SESSION", -1)  # go on, or evaluate, up to this session; -1 for all
    _add(fscil, "BASE_WEIGHT_EPOCHS", 2)  # CoCoAMixFSCIL: epochs of the weights in session 0; 0 until they stand still
    _add(fscil, "WEIGHT_EPOCHS", 100)  # and in each later session; TRAINER.COCOAMIX.WEIGHT_EPOCHS is not used
    _add(fscil, "TUNED_CLASSES", "session")  # CoOpFSCIL: its loss is over the session's classes, or all seen so far

    maple = _node(cfg.TRAINER, "MAPLE")
    _add(maple, "N_CTX", 2)  # number of text and of vision prompts of a layer
    _add(maple, "CTX_INIT", "a photo of a")  # the first text prompts start from its first N_CTX words; the others stay
    _add(maple, "PREC", "auto")  # fp32, fp16, bf16, amp; auto is fp32 on a CPU and fp16 on a GPU
    _add(maple, "PROMPT_DEPTH", 9)  # layers that have prompts of their own; 1 is the input alone
    _add_handmade(maple)

    dept = _node(cfg.TRAINER, "DEPT")
    _add(dept, "N_CTX", 16)  # number of context vectors
    _add(dept, "CSC", False)  # class-specific contexts
    _add(dept, "CTX_INIT", "")  # words the context starts from; they also set its length
    _add(dept, "PREC", "auto")  # fp32, fp16, bf16, amp; auto is fp32 on a CPU and fp16 on a GPU
    _add(dept, "CLASS_TOKEN_POSITION", "end")  # class name at the end, in the middle or at the front
    _add(dept, "WEIGHT", 0.7)  # of the head, in the loss and in the logits of base classes; 0 is the method below it
    _add(dept, "LR_FACTOR", 6.5)  # learning rate of the head and its affine maps, relative to OPTIM.LR
    _add(dept, "W", 2.0)  # DePTKgCoOp: weight of the distance to the hand-crafted prompt
    _add_handmade(dept)

    ensemble = _node(cfg.TRAINER, "ENLEARN")
    _add(ensemble, "PREC", "auto")  # fp32, fp16, bf16, amp; auto is fp32 on a CPU and fp16 on a GPU
    _add(ensemble, "BACKBONES", ["RN50", "RN101", "ViT-B/32", "ViT-B/16"])  # the models, at least two
    _add(ensemble, "BACKBONE_WEIGHTS", [])  # a file (or "" or "random") for each; empty downloads OpenAI's
    _add(ensemble, "DOWNSCALE", 32)  # of the generator's hidden layer
    _add(ensemble, "NUM_WEIGHT", 0)  # as many as there are models; taken for compatibility
    _add(ensemble, "LOSS", "ce")  # ce takes the probabilities for logits, as the original does; nll of the mixture
    _add(ensemble, "PROMPTS", [])  # output folder of the run that trained each model's prompt; empty: hand-crafted
    for key, default in _SEARCHED.items():
        _add(ensemble, key, default)  # of the original's other ensembles; anything else is refused
    _add(ensemble, "MODEL_DIR", "")  # the same: PROMPTS takes its place

    zeroshot = _node(cfg.TRAINER, "ZEROSHOT")
    _add(zeroshot, "ENSEMBLE", 7)  # ZeroshotCLIP2: CLIP's choice of 7 ImageNet templates, or all 80


def _add_handmade(node: CfgNode) -> None:
    _add(node, "ENSEMBLE", "none")  # uniform evaluates the mean of the learned and the hand-crafted prompt
    _add(node, "TEMPLATE", "dataset")  # of the hand-crafted prompt: dataset (the method's own), a text or a list


# Keys that a fork of an older Dassl lacks, with what it does in their place. They are not among the defaults, so that
# setting one there is refused instead of having no effect.
_NEWER_KEYS = {"INPUT.RRCROP_SCALE": (0.08, 1.0)}


def complete(cfg: CfgNode) -> CfgNode:
    """Return a configuration with every key that our trainers read; what is there stays as it is.

    Another code base's train.py knows nothing of our keys: it may make TRAINER.COOP anew with its own alone.
    """
    full = cfg.clone()
    full.defrost()
    extend_cfg(full)
    for key, value in _NEWER_KEYS.items():
        section, name = key.split(".")
        _add(full[section], name, value)
    if cfg.is_frozen():
        full.freeze()
    return full


def _node(parent: CfgNode, name: str) -> CfgNode:
    if name not in parent:
        parent[name] = CfgNode()
    return parent[name]


def _add(node: CfgNode, key: str, default: Any) -> None:
    if key not in node:
        node[key] = default


def check_common(cfg: CfgNode) -> None:
    """Refuse values of the keys that all trainers share."""
    check_choice("DATASET.SUBSAMPLE_CLASSES", cfg.DATASET.SUBSAMPLE_CLASSES, SUBSETS)
    check_choice("DATASET.BAD_IMAGES", cfg.DATASET.BAD_IMAGES, BAD_IMAGES)
    check_choice("MODEL.BACKBONE.SOURCE", cfg.MODEL.BACKBONE.SOURCE, SOURCES)
    check_choice("MODEL.BACKBONE.ACTIVATION", cfg.MODEL.BACKBONE.ACTIVATION, ACTIVATIONS)
    check_choice("CACHE.MODE", cfg.CACHE.MODE, CACHE_MODES)
    if isinstance(cfg.MODEL.BACKBONE.TEXT_CHUNK, str):
        check_choice("MODEL.BACKBONE.TEXT_CHUNK", cfg.MODEL.BACKBONE.TEXT_CHUNK, ("auto", "a number of prompts"))
    else:
        check_range("MODEL.BACKBONE.TEXT_CHUNK", cfg.MODEL.BACKBONE.TEXT_CHUNK, 1, 10**6)
    check_choice("TEST.FINAL_MODEL", cfg.TEST.FINAL_MODEL, ("last_step", "best_val"))
    check_choice("TEST.SPLIT", cfg.TEST.SPLIT, ("test", "val"))
    check_choice("OPTIM.NAME", cfg.OPTIM.NAME, OPTIMIZERS)
    check_choice("OPTIM.LR_SCHEDULER", cfg.OPTIM.LR_SCHEDULER, SCHEDULES)
    check_choice("OPTIM.WARMUP_TYPE", cfg.OPTIM.WARMUP_TYPE, WARMUPS)
    check_choice("DATALOADER.TRAIN_X.SAMPLER", cfg.DATALOADER.TRAIN_X.SAMPLER, SAMPLERS)
    for key, value, least, most in (
        ("SEED", cfg.SEED, -1, 2**32 - 1),
        ("OPTIM.MAX_EPOCH", cfg.OPTIM.MAX_EPOCH, 1, 10**6),
        ("OPTIM.LR", cfg.OPTIM.LR, 0, math.inf),
        ("OPTIM.WARMUP_CONS_LR", cfg.OPTIM.WARMUP_CONS_LR, 0, math.inf),
        ("OPTIM.WARMUP_MIN_LR", cfg.OPTIM.WARMUP_MIN_LR, 0, math.inf),
        ("OPTIM.GAMMA", cfg.OPTIM.GAMMA, 0, math.inf),
        ("DATALOADER.TRAIN_X.N_INS", cfg.DATALOADER.TRAIN_X.N_INS, 1, 10**6),
        ("DATALOADER.TRAIN_X.BATCH_SIZE", cfg.DATALOADER.TRAIN_X.BATCH_SIZE, 1, 10**6),
        ("DATALOADER.TEST.BATCH_SIZE", cfg.DATALOADER.TEST.BATCH_SIZE, 1, 10**6),
        ("DATALOADER.NUM_WORKERS", cfg.DATALOADER.NUM_WORKERS, 0, 10**4),
        ("DATALOADER.K_TRANSFORMS", cfg.DATALOADER.K_TRANSFORMS, 1, 1),
        ("CACHE.VIEWS", cfg.CACHE.VIEWS, 0, 10**6),
        ("TRAIN.PRINT_FREQ", cfg.TRAIN.PRINT_FREQ, 1, math.inf),
    ):
        check_range(key, value, least, most)
    for key, values, count in (
        ("INPUT.SIZE", cfg.INPUT.SIZE, 2),
        ("INPUT.PIXEL_MEAN", cfg.INPUT.PIXEL_MEAN, 3),
        ("INPUT.PIXEL_STD", cfg.INPUT.PIXEL_STD, 3),
        ("INPUT.RRCROP_SCALE", cfg.INPUT.RRCROP_SCALE, 2),
    ):
        if len(values) != count or not all(isinstance(v, (int, float)) and v >= 0 for v in values):
            raise UserError(f"{key} is {values}; it must be {count} numbers.")
    if cfg.INPUT.RRCROP_SCALE[0] > cfg.INPUT.RRCROP_SCALE[1]:
        raise UserError(f"INPUT.RRCROP_SCALE is {cfg.INPUT.RRCROP_SCALE}; the smaller share comes first.")
    if 0 in cfg.INPUT.PIXEL_STD:
        raise UserError(f"INPUT.PIXEL_STD is {cfg.INPUT.PIXEL_STD}; pictures cannot be divided by 0.")
    unused = {"INPUT.NO_TRANSFORM": cfg.INPUT.NO_TRANSFORM, "DATALOADER.RETURN_IMG0": cfg.DATALOADER.RETURN_IMG0}
    for key, value in unused.items():
        if value:
            raise UserError(f"{key} is True, but no trainer here uses pictures that are not transformed.")


def check_prompt(section: str, node: CfgNode) -> None:
    """Refuse values of a prompt's keys."""
    check_choice(f"TRAINER.{section}.PREC", node.PREC, PRECISIONS)
    if "CLASS_TOKEN_POSITION" in node:
        check_choice(f"TRAINER.{section}.CLASS_TOKEN_POSITION", node.CLASS_TOKEN_POSITION, POSITIONS)
    if not context_words(node.CTX_INIT) and node.N_CTX < 1:
        raise UserError(f"TRAINER.{section}.N_CTX is {node.N_CTX}; a context has at least one vector.")


def check_dept(node: CfgNode) -> None:
    """Refuse values of the keys of DePT."""
    check_range("TRAINER.DEPT.WEIGHT", node.WEIGHT, 0, 1)
    check_range("TRAINER.DEPT.LR_FACTOR", node.LR_FACTOR, 0)
    check_range("TRAINER.DEPT.W", node.W, 0)


def check_maple(node: CfgNode) -> None:
    """Refuse values of the keys of MaPLe."""
    for key in ("N_CTX", "PROMPT_DEPTH"):
        check_range(f"TRAINER.MAPLE.{key}", node[key], 1)


def check_handmade(section: str, node: CfgNode, ensembles: Sequence[str]) -> None:
    """Refuse values of the keys of a hand-crafted prompt. ensembles: what the trainer can do with it."""
    check_choice(f"TRAINER.{section}.ENSEMBLE", node.ENSEMBLE, ensembles)
    given = [node.TEMPLATE] if isinstance(node.TEMPLATE, str) else node.TEMPLATE
    if not given:
        raise UserError(f"TRAINER.{section}.TEMPLATE is empty. Give a text, several, or dataset.")
    for template in given:
        if template != "dataset" and not _is_template(template):
            raise UserError(
                f"TRAINER.{section}.TEMPLATE holds {template!r}, which needs one {{}} for the class name and no other "
                "braces."
            )


def _is_template(text: object) -> bool:
    """Tell whether a text has one place for a name, as `str.format` reads it."""
    if not isinstance(text, str):
        return False
    try:
        places = [place for _, *place in string.Formatter().parse(text) if place[0] is not None]
    except ValueError:
        return False
    return places == [["", "", None]]


def check_prograd(node: CfgNode) -> None:
    """Refuse values of ProGrad's LOSS.*."""
    check_choice("LOSS.NAME", node.NAME, ("", "prograd"))
    check_range("LOSS.LAMBDA", node.LAMBDA, 0)
    check_range("LOSS.T", node.T, 1e-6)
    for key in ("GM", "ALPHA"):
        if node[key]:
            raise UserError(f"LOSS.{key} is {node[key]}, but no loss here uses it. Leave it out.")


def check_mix(node: CfgNode) -> None:
    """Refuse values of the keys of CoCoA-Mix."""
    for key, allowed in (
        ("LOSS", LOSSES),
        ("STAGE", STAGES),
        ("WEIGHT_FIT", WEIGHT_FITS),
        ("WEIGHT_OPTIM", OPTIMIZERS),
        ("OUT_CLASSES", OUT_CLASS_KINDS),
        ("DOMAIN", DOMAIN_KINDS),
    ):
        check_choice(f"TRAINER.COCOAMIX.{key}", node[key], allowed)
    for key, least, most in (
        ("W", 0, math.inf),
        ("GAMMA", 0, math.inf),
        ("Q", 1e-6, 1),
        ("WEIGHT_EPOCHS", 0, math.inf),
        ("WEIGHT_TOLERANCE", 1e-9, 1),
        ("WEIGHT_MAX_STEPS", 1, math.inf),
        ("WEIGHT_LR", 0, math.inf),
        ("W_IN", 0, math.inf),
        ("W_OUT", 0, math.inf),
        ("MARGIN", 0, 1),
    ):
        check_range(f"TRAINER.COCOAMIX.{key}", node[key], least, most)
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


def check_backbones(section: str, node: CfgNode) -> None:
    """Refuse lists of backbones that do not hold names, and of weights that are not one file for each."""
    for key in ("BACKBONES", "BACKBONE_WEIGHTS"):
        check_texts(f"TRAINER.{section}.{key}", node[key])
    if node.BACKBONE_WEIGHTS and len(node.BACKBONE_WEIGHTS) != len(node.BACKBONES):
        raise UserError(
            f"TRAINER.{section}.BACKBONE_WEIGHTS names {len(node.BACKBONE_WEIGHTS)} files for "
            f"{len(node.BACKBONES)} BACKBONES. Name one for each."
        )


def check_sessions(cfg: CfgNode) -> None:
    """Refuse values of the keys of class-incremental sessions, and of others that do not go with them."""
    check_choice("FSCIL.SPLIT", cfg.FSCIL.SPLIT, SESSION_SPLITS)
    check_choice("FSCIL.TUNED_CLASSES", cfg.FSCIL.TUNED_CLASSES, TUNED_CLASSES)
    for key, least in (
        ("BASE", 1),
        ("WAY", 1),
        ("SHOTS", 1),
        ("LAST_SESSION", -1),
        ("BASE_WEIGHT_EPOCHS", 0),
        ("WEIGHT_EPOCHS", 0),
    ):
        check_range(f"FSCIL.{key}", cfg.FSCIL[key], least, math.inf)
    if cfg.DATASET.NUM_SHOTS > 0:
        raise UserError(
            f"DATASET.NUM_SHOTS is {cfg.DATASET.NUM_SHOTS}, but session 0 has all images of its classes: leave it at "
            "-1. FSCIL.SHOTS says how many images a class of a later session has."
        )
    if cfg.DATASET.SUBSAMPLE_CLASSES != "all":
        raise UserError(
            f"DATASET.SUBSAMPLE_CLASSES is {cfg.DATASET.SUBSAMPLE_CLASSES}, but sessions are cut from all classes: "
            "FSCIL.BASE says how many are base."
        )
    if cfg.TEST.FINAL_MODEL != "last_step":
        raise UserError("TEST.FINAL_MODEL is best_val, but sessions are evaluated after their last epoch: last_step.")


def check_enlearn(node: CfgNode) -> None:
    """Refuse values of the keys of T_En."""
    check_choice("TRAINER.ENLEARN.PREC", node.PREC, PRECISIONS)
    check_choice("TRAINER.ENLEARN.LOSS", node.LOSS, MIXTURE_LOSSES)
    check_range("TRAINER.ENLEARN.DOWNSCALE", node.DOWNSCALE, 1)
    check_backbones("ENLEARN", node)
    check_texts("TRAINER.ENLEARN.PROMPTS", node.PROMPTS)
    for key, default in _SEARCHED.items():
        if node[key] != default:
            raise UserError(
                f"TRAINER.ENLEARN.{key} is {node[key]!r}, but TuneEn learns its weights, and the ensemble that "
                "searches for them is not here. Leave it out."
            )
    if node.MODEL_DIR:
        raise UserError(
            f"TRAINER.ENLEARN.MODEL_DIR is {node.MODEL_DIR!r}, but runs are named one by one: use "
            "TRAINER.ENLEARN.PROMPTS."
        )
    models = len(node.BACKBONES)
    if models < 2:
        raise UserError(f"TRAINER.ENLEARN.BACKBONES names {models} models; an ensemble has at least two.")
    if node.NUM_WEIGHT not in (0, models):
        raise UserError(f"TRAINER.ENLEARN.NUM_WEIGHT is {node.NUM_WEIGHT}, but there are {models} BACKBONES.")
    if len(node.PROMPTS) not in (0, 1, models):
        raise UserError(
            f"TRAINER.ENLEARN.PROMPTS names {len(node.PROMPTS)} runs for {models} BACKBONES. "
            "Name one for each, or one run that has them all."
        )


def check_texts(key: str, values: Sequence[object]) -> None:
    """Refuse a list that holds anything but texts."""
    for value in values:
        if not isinstance(value, str):
            raise UserError(f"{key} holds {value!r}, which is {_kind(value)}; texts are expected.")


def check_range(key: str, value: float, least: float, most: float = math.inf) -> None:
    """Refuse a number outside of a range."""
    if not least <= value <= most:
        limit = "" if most == math.inf else f" and at most {most}"
        raise UserError(f"{key} is {value}; it must be at least {least}{limit}.")


def context_words(ctx_init: str | bool) -> str:
    """Return the words of CTX_INIT, which is a string in CoOp and true or false in some peers."""
    if isinstance(ctx_init, bool):
        return KGCOOP_CONTEXT if ctx_init else ""
    return ctx_init


def merge_file(cfg: CfgNode, path: str) -> None:
    """Merge a YAML file, refusing unknown keys and values of the wrong type by name."""
    file = locate(path)
    if not file.is_file():
        siblings = [str(other) for other in file.parent.glob("*.yaml")] if file.parent.is_dir() else []
        raise UserError(f"There is no configuration file {path}.{nearest(path, siblings)}")
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a configuration: its top level is {type(content).__name__}, not keys.")
    for key, value in flatten(content).items():
        _set(cfg, key, value, path)


def merge_options(cfg: CfgNode, options: Sequence[str]) -> None:
    """Merge trailing `KEY VALUE` pairs of a command line."""
    flags = [option for option in options if option.startswith("--")]
    if flags:
        raise UserError(f"{flags[0]} comes after KEY VALUE pairs, where it is not read. Put it before them.")
    if len(options) % 2:
        raise UserError(f"The options at the end are KEY VALUE pairs, but {options[-1]!r} has no value.")
    for key, text in zip(options[::2], options[1::2], strict=True):
        value = literal(text)
        if isinstance(value, (dict, set)):
            value = text  # the template "{}" is a text: no key takes either
        _set(cfg, key, value, "the command line")


def merge_value(cfg: CfgNode, key: str, value: Any) -> None:
    """Merge the value of a named flag."""
    _set(cfg, key, value, "the command line")


def merge_told(cfg: CfgNode, told: Mapping[str, Any], origin: str) -> None:
    """Merge what a run of any version tells of its settings, as nested or dotted keys; others than today's are left."""
    known = flatten(cfg)
    for key, value in flatten(told).items():
        if key in known:
            _set(cfg, key, value, origin)


def _set(cfg: CfgNode, key: str, value: Any, origin: str) -> None:
    """Set one key, which must exist, to a value of its type."""
    *path, leaf = key.split(".")
    node = cfg
    for name in path:
        if name not in node or not isinstance(node[name], CfgNode):
            raise _unknown(cfg, key, origin)
        node = node[name]
    if leaf in node and isinstance(node[leaf], CfgNode):
        if value is None:  # an empty section of a file
            return
        raise UserError(f"{origin} sets {key} to {value!r}, but {key} is a section with keys of its own.")
    if leaf not in node:
        raise _unknown(cfg, key, origin)
    node[leaf] = _coerce(key, node[leaf], value, origin)


def _unknown(cfg: CfgNode, key: str, origin: str) -> UserError:
    known = list(flatten(cfg))
    return UserError(f"{origin} sets {key}, which is no configuration key.{nearest(key, known)}")


def _coerce(key: str, default: Any, value: Any, origin: str) -> Any:
    """Return `value` in the type of `default`, as yacs would, or refuse it."""
    if isinstance(value, str) and not isinstance(default, str):
        value = literal(value)  # YAML leaves "(224, 224)" and "1e-5" as text
    if key.endswith(".CTX_INIT") and isinstance(value, bool):
        return value  # what it means is the trainer's to say
    if key.endswith(".TEXT_CHUNK") and isinstance(value, int):
        return value
    if key.endswith(".TEMPLATE") and isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(default, (list, tuple)) and isinstance(value, (list, tuple)):
        return type(default)(value)
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(default):
        raise UserError(
            f"{origin} sets {key} to {value!r}, which is {_kind(value)}; {_kind(default)} like {default!r} is expected."
        )
    return value


def _kind(value: Any) -> str:
    kinds = {bool: "a truth value", int: "a whole number", float: "a number", str: "a text"}
    return kinds.get(type(value), "a list")
