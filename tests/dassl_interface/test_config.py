from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest
from dassl.config import get_cfg_default
from yacs.config import CfgNode

from cocoamix.errors import UserError
from tests.conftest import ROOT

from .engine import REFERENCE, only_ours


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
    """In a separate process: importing our trainers adds our keys."""
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


# Features of Dassl that the fallback lacks. Each key with a value that is not its default.
REFUSED: dict[str, Any] = {
    "INPUT.NO_TRANSFORM": True,
    "INPUT.CUTOUT_N": 2,
    "INPUT.CUTOUT_LEN": 8,
    "INPUT.GN_MEAN": 0.5,
    "INPUT.GN_STD": 0.5,
    "INPUT.RANDAUGMENT_N": 3,
    "INPUT.RANDAUGMENT_M": 3,
    "DATALOADER.K_TRANSFORMS": 2,
    "DATALOADER.RETURN_IMG0": True,
    "DATALOADER.TRAIN_X.N_DOMAIN": 2,
    "DATALOADER.TRAIN_U.SAME_AS_X": False,
    "DATALOADER.TRAIN_U.SAMPLER": "SequentialSampler",
    "DATALOADER.TRAIN_U.BATCH_SIZE": 8,
    "DATALOADER.TRAIN_U.N_DOMAIN": 2,
    "DATALOADER.TRAIN_U.N_INS": 2,
    "TRAIN.COUNT_ITER": "train_u",
}


@only_ours
@pytest.mark.parametrize("key", REFUSED)
def test_a_key_without_its_feature_is_refused_before_anything_is_built(cfg: CfgNode, key: str) -> None:
    from dassl.engine import TrainerX

    class Unbuilt(TrainerX):
        def build_data_loader(self) -> None:
            raise AssertionError("too late")

    cfg.merge_from_list([key, REFUSED[key]])
    with pytest.raises(UserError, match=rf"{key} is {re.escape(repr(REFUSED[key]))}.*install Dassl"):
        Unbuilt(cfg)


@only_ours
def test_every_unsupported_key_is_tested() -> None:
    from dassl.config.unsupported import UNSUPPORTED  # type: ignore[import-not-found, unused-ignore]

    assert set(UNSUPPORTED) == set(REFUSED)
