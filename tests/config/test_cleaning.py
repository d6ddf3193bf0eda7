"""A train.py that removes the sections of other trainers, as DePT's does before it sets any key."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from yacs.config import CfgNode

from cocoamix.config.cleaning import keep_our_sections
from cocoamix.config.defaults import extend_cfg


def clean_cfg(cfg: CfgNode, trainer: str) -> None:
    """Dassl's contract: only NAME and one section of TRAINER are kept."""
    for key in list(cfg.TRAINER):
        if key not in ("NAME", trainer.upper()):
            cfg.TRAINER.pop(key, None)


def test_our_sections_are_kept_and_others_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    config, script = ModuleType("dassl_config"), ModuleType("their_train")
    for module in (config, script):  # the script imported the function before our trainers
        module.clean_cfg = clean_cfg  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(sys.modules[__name__], "clean_cfg", clean_cfg)  # also defined in this module: restore it
    keep_our_sections(config)
    keep_our_sections(config)  # imported twice
    cfg = CfgNode({"TRAINER": {"NAME": "", "DAEL": {"WEIGHT_U": 0.5}, "COOP": {"N_CTX": 16}}})
    extend_cfg(cfg)
    cfg.TRAINER.COCOAMIX.W = 3.0
    script.clean_cfg(cfg, "coop")
    assert "DAEL" not in cfg.TRAINER
    assert cfg.TRAINER.COOP.N_CTX == 16
    cfg.merge_from_list(["TRAINER.COCOAMIX.N_CTX", "2"])
    assert (cfg.TRAINER.COCOAMIX.W, cfg.TRAINER.COCOAMIX.N_CTX) == (3.0, 2)


def test_a_dassl_without_the_function_is_unchanged() -> None:
    config = ModuleType("dassl_config")
    keep_our_sections(config)
    assert not hasattr(config, "clean_cfg")
