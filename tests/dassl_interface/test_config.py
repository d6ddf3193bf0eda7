from __future__ import annotations

import json
import subprocess
import sys

import pytest
from dassl.config import clean_cfg, get_cfg_default
from yacs.config import CfgNode

from tests.conftest import ROOT

from .engine import REFERENCE


def flat(node: CfgNode, prefix: str = "") -> dict[str, str]:
    """Every key with its value as text, without the nodes of Dassl's own trainers."""
    found: dict[str, str] = {}
    for key, value in node.items():
        if not isinstance(value, CfgNode):
            found[prefix + key] = repr(value)
        elif prefix != "TRAINER.":
            found.update(flat(value, f"{prefix}{key}."))
    return found


def test_every_key_has_the_known_default() -> None:
    """In a process of its own: importing our trainers adds our keys."""
    code = "import json, tests.dassl_interface.engine; from tests.dassl_interface import test_config as t\n"
    code += "print(json.dumps(t.flat(t.get_cfg_default())))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == REFERENCE["defaults"]


def test_defaults_are_fresh_each_time() -> None:
    first = get_cfg_default()
    before = flat(first)
    first.OPTIM.LR = 7.0
    first.INPUT.PIXEL_MEAN.append(1.0)
    assert flat(get_cfg_default()) == before


def test_lists_and_unknown_keys() -> None:
    cfg = get_cfg_default()
    cfg.merge_from_list(["OPTIM.MAX_EPOCH", "3", "INPUT.TRANSFORMS", "('normalize',)"])
    assert cfg.OPTIM.MAX_EPOCH == 3
    assert tuple(cfg.INPUT.TRANSFORMS) == ("normalize",)
    with pytest.raises((KeyError, AssertionError)):
        cfg.merge_from_list(["OPTIM.MAX_EPOCHS", "3"])


def test_clean_cfg_keeps_one_trainer() -> None:
    cfg = get_cfg_default()
    cfg.TRAINER.COOP = CfgNode({"N_CTX": 4})
    cfg.TRAINER.OTHER = CfgNode({"W": 1.0})
    clean_cfg(cfg, "CoOp")
    assert set(cfg.TRAINER) == {"NAME", "COOP"}
