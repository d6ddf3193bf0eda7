"""What the table accepts and refuses, and how values are merged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dassl.config import get_cfg_default
from yacs.config import CfgNode

from cocoamix.config import checks, keys
from cocoamix.errors import UserError

Check = Callable[[CfgNode], None]


def configuration() -> CfgNode:
    cfg = get_cfg_default()
    keys.extend_cfg(cfg)
    return cfg


def of_section(section: str) -> Check:
    return lambda cfg: checks.check_method(section, cfg)


def enlearn(cfg: CfgNode) -> None:
    checks.check_enlearn(cfg.TRAINER.ENLEARN)


def prograd(cfg: CfgNode) -> None:
    checks.check_prograd(cfg.LOSS)


def mix(cfg: CfgNode) -> None:
    checks.check_method("COCOAMIX", cfg)
    checks.check_mix(cfg.TRAINER.COCOAMIX)


def zeroshot(cfg: CfgNode) -> None:
    checks.check_below("TRAINER.ZEROSHOT", cfg.TRAINER.ZEROSHOT)


@pytest.mark.parametrize("check", [checks.check_common, checks.check_sessions, mix, enlearn, prograd, zeroshot])
def test_defaults_pass(check: Check) -> None:
    check(configuration())


@pytest.mark.parametrize(
    ("check", "key", "value", "words"),
    [
        (checks.check_common, "DATASET.BAD_IMAGES", "drop", "Did you mean stop? Known: stop, skip."),
        (checks.check_common, "TEST.FINAL_MODEL", "best", "Did you mean best_val?"),
        (checks.check_common, "CACHE.VIEWS", -1, "CACHE.VIEWS is -1; it must be at least 0 and at most 1000000."),
        (checks.check_common, "MODEL.BACKBONE.TEXT_CHUNK", "few", "Known: auto, a number of prompts."),
        (checks.check_common, "MODEL.BACKBONE.TEXT_CHUNK", 0, "TEXT_CHUNK is 0; it must be at least 1"),
        (checks.check_common, "INPUT.PIXEL_MEAN", [0.5, -0.5, 0.5], "INPUT.PIXEL_MEAN is [0.5, -0.5, 0.5]"),
        (checks.check_common, "INPUT.PIXEL_STD", [0.5, 0.0, 0.5], "images cannot be divided by 0."),
        (checks.check_common, "INPUT.RRCROP_SCALE", (0.9, 0.1), "the smaller number must come first."),
        (checks.check_common, "DATALOADER.TRAIN_X.SAMPLER", "RandomClassSampler", "Known: RandomSampler, Seq"),
        (checks.check_common, "TEST.EVALUATOR", "Own", "TEST.EVALUATOR is 'Own', but there is no other"),
        (checks.check_common, "TRAIN.COUNT_ITER", "train_u", "COUNT_ITER is 'train_u', but no trainer here"),
        (checks.check_common, "DATALOADER.RETURN_IMG0", True, "RETURN_IMG0 is True, but no trainer here"),
        (of_section("COOP"), "TRAINER.COOP.W", -1.0, "TRAINER.COOP.W is -1.0; it must be at least 0."),
        (of_section("COOP"), "TRAINER.COOP.TEMPLATE", "a photo", "'a photo', which needs one {} for the class name"),
        (of_section("COOP"), "TRAINER.COOP.TEMPLATE", ["a {}.", "{0}"], "'{0}', which needs one {}"),
        (of_section("COOP"), "TRAINER.COOP.TEMPLATE", [], "TRAINER.COOP.TEMPLATE is empty."),
        (of_section("MAPLE"), "TRAINER.MAPLE.N_CTX", 0, "TRAINER.MAPLE.N_CTX is 0; it must be at least 1."),
        (of_section("DEPT"), "TRAINER.DEPT.WEIGHT", 1.5, "it must be at least 0 and at most 1."),
        (prograd, "LOSS.GM", True, "LOSS.GM is True, but no loss here uses it. Leave it out."),
        (prograd, "LOSS.ALPHA", 0.5, "LOSS.ALPHA is 0.5"),
        (mix, "TRAINER.COCOAMIX.LOSS", "ce+cao", "Did you mean ce+coa?"),
        (mix, "TRAINER.COCOAMIX.BACKBONES", ["RN50", 3], "BACKBONES holds 3, which is a whole number; strings"),
        (mix, "TRAINER.COCOAMIX.BACKBONE_WEIGHTS", ["a"], "names 1 files for 0 BACKBONES. Name one for each."),
        (mix, "TRAINER.COCOAMIX.WEIGHT_FIT", "heldout", "WEIGHT_FIT is heldout, but STAGE is one"),
        (enlearn, "TRAINER.ENLEARN.SEARCH_EVAL", True, "SEARCH_EVAL is True, but TuneEn learns its weights"),
        (enlearn, "TRAINER.ENLEARN.MODEL_DIR", "x", "MODEL_DIR is 'x', but runs are named one by one"),
        (enlearn, "TRAINER.ENLEARN.BACKBONES", ["RN50"], "names 1 models; an ensemble has at least two."),
        (zeroshot, "TRAINER.ZEROSHOT.ENSEMBLE", 9, "ENSEMBLE is 9, which is not known. Known: 7, 80."),
        (checks.check_sessions, "FSCIL.SPLIT", "cecc", "Did you mean cec?"),
        (checks.check_sessions, "TEST.FINAL_MODEL", "best_val", "sessions are evaluated after their last epoch"),
    ],
)
def test_invalid_values_are_refused(check: Check, key: str, value: Any, words: str) -> None:
    cfg = configuration()
    *path, leaf = key.split(".")
    node = cfg
    for name in path:
        node = node[name]
    node[leaf] = value
    with pytest.raises(UserError) as refusal:
        check(cfg)
    assert words in str(refusal.value)
    assert key in str(refusal.value)


def test_a_value_can_replace_one_of_another_type(tmp_path: Path) -> None:
    """Another project's file may set `CTX_INIT: True`, and the command line a string."""
    cfg, file = configuration(), tmp_path / "peer.yaml"
    file.write_text("TRAINER: {COOP: {CTX_INIT: True, TEMPLATE: ['a {}.', 'the {}.']}}\n")
    keys.merge_file(cfg, str(file))
    assert (cfg.TRAINER.COOP.CTX_INIT, cfg.TRAINER.COOP.TEMPLATE) == (True, ["a {}.", "the {}."])
    keys.merge_options(cfg, ["TRAINER.COOP.CTX_INIT", "a photo of a", "TRAINER.COOP.TEMPLATE", "a {}."])
    assert (cfg.TRAINER.COOP.CTX_INIT, cfg.TRAINER.COOP.TEMPLATE) == ("a photo of a", "a {}.")


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("MODEL.BACKBONE.TEXT_CHUNK", "64", 64),
        ("TRAINER.COCOAMIX.TEMPLATE", "('a {}.', 'the {}.')", ["a {}.", "the {}."]),
        ("TRAINER.COCOAMIX.W", "7", 7.0),
        ("INPUT.SIZE", "[32, 32]", (32, 32)),
    ],
)
def test_accepted_types(key: str, text: str, value: Any) -> None:
    cfg = configuration()
    keys.merge_options(cfg, [key, text])
    node: Any = cfg
    for name in key.split("."):
        node = node[name]
    assert node == value
    assert type(node) is type(value)


@pytest.mark.parametrize(
    ("key", "text"),
    [("MODEL.BACKBONE.TEXT_CHUNK", "True"), ("TRAINER.COOP.CSC", "1"), ("TRAINER.COOP.CLASS_TOKEN_POSITION", "[1]")],
)
def test_types_that_are_refused(key: str, text: str) -> None:
    with pytest.raises(UserError, match=key):
        keys.merge_options(configuration(), [key, text])
