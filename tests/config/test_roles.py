"""The roles of keys, against lists written by hand."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cocoamix.config import roles
from cocoamix.config.key import ROLES
from cocoamix.config.table import KEYS
from tests.conftest import ROOT

HIDDEN = [
    "OUTPUT_DIR",
    "RESUME",
    "VERBOSE",
    "USE_CUDA",
    "DATASET.ROOT",
    "MODEL.BACKBONE.WEIGHTS",
    "MODEL.BACKBONE.TEXT_CHUNK",
    "CACHE.MODE",
    "CACHE.DIR",
    "DATALOADER.NUM_WORKERS",
    "DATALOADER.TEST.BATCH_SIZE",
    "TRAIN.PRINT_FREQ",
    "TEST.SAVE_PREDICTIONS",
    "TRAIN.CHECKPOINT_FREQ",
    "TRAIN.WANDB",
    "TRAIN.WANDB_PROJECT",
    "TEST.PER_CLASS_RESULT",
    "TEST.COMPUTE_CMAT",
    "TEST.NO_TEST",
    "FSCIL.LAST_SESSION",
]

# For an evaluation of sessions: what training fixes, and what the evaluation may choose.
FIXED = [
    "SEED",
    "OPTIM.LR",
    "OPTIM.WEIGHT_DECAY",
    "TRAIN.COUNT_ITER",
    "LOSS.LAMBDA",
    "FSCIL.SHOTS",
    "FSCIL.SPLIT",
    "FSCIL.TUNED_CLASSES",
    "CACHE.VIEWS",
    "DATALOADER.TRAIN_X.BATCH_SIZE",
    "TRAINER.COOP.N_CTX",
    "TRAINER.COOP.W",
    "TRAINER.COCOAMIX.TEMPLATE",
    "TRAINER.COCOAMIX.OUT_CLASSES",
    "TRAINER.COOP.KEY_OF_ANOTHER_TREE",
]
CHOSEN = [
    "FSCIL.BASE",
    "FSCIL.WAY",
    "TRAINER.NAME",
    "TRAINER.COCOAMIX.ENSEMBLE",
    "TRAINER.COCOAMIX.DOMAIN",
    "TRAINER.COCOAMIX.CENTRE",
    "TRAINER.COCOAMIX.CALIBRATED",
    "TRAINER.COCOAMIX.PREC",
    "TRAINER.COCOAMIX.BACKBONES",
    "TRAINER.COCOAMIX.BACKBONE_WEIGHTS",
    "TRAINER.PROMPTSRC.PREC",
    "DATASET.NAME",
    "INPUT.SIZE",
    "TEST.SPLIT",
    "MODEL.BACKBONE.NAME",
]

# For the report: what the path or protocol gives, what runs of one cell must share, what runs of one model must share.
KNOWN = [
    "SEED",
    "DATASET.NAME",
    "DATASET.NUM_SHOTS",
    "DATASET.SUBSAMPLE_CLASSES",
    "CACHE.VIEWS",
    "CACHE.OF_AN_OLDER_VERSION",
    "INPUT.SIZE",
    "INPUT.GB_K",
    "MODEL.BACKBONE.NAME",
    "MODEL.BACKBONE.SOURCE",
    "MODEL.BACKBONE.ACTIVATION",
    "DATALOADER.TEST.SAMPLER",
    "TEST.SPLIT",
    "TEST.EVALUATOR",
    "TRAINER.NAME",
    "TRAINER.COOP.PREC",
    "TRAINER.PROMPTSRC.PREC",
    "TRAINER.ENLEARN.PROMPTS",
]
CELL_ALONE = [
    "TRAINER.COOP.W",
    "LOSS.LAMBDA",
    "LOSS.T",
    "TRAINER.COCOAMIX.DOMAIN",
    "TRAINER.COCOAMIX.CENTRE",
    "TRAINER.COCOAMIX.CALIBRATED",
    "DATASET.FEWER_SHOTS",
    "MODEL.INIT_WEIGHTS",
    "TRAIN.COUNT_ITER",
    "FSCIL.BASE",
    "FSCIL.SHOTS",
    "KEY.NOBODY.KNOWS",
]
MODEL = [
    "OPTIM.LR",
    "OPTIM.MAX_EPOCH",
    "DATALOADER.TRAIN_X.BATCH_SIZE",
    "TRAINER.COOP.N_CTX",
    "TRAINER.COOP.ENSEMBLE",
    "TRAINER.DEPT.W",
    "TRAINER.COCOAMIX.W",
    "TRAINER.COCOAMIX.TEMPLATE",
    "TRAINER.COCOAMIX.BACKBONES",
    "TRAINER.PROMPTSRC.N_CTX_TEXT",
    "TRAINER.MODAL",
]


def test_keys_that_no_result_depends_on() -> None:
    assert sorted(HIDDEN) == sorted(key.name for key in KEYS if not key.role.matters)
    assert not any(roles.matters(name) for name in HIDDEN)
    assert all(roles.matters(name) for name in (*FIXED, *CHOSEN))


@pytest.mark.parametrize("name", FIXED)
def test_keys_fixed_by_training(name: str) -> None:
    assert roles.of_training(name)


@pytest.mark.parametrize("name", CHOSEN)
def test_keys_chosen_by_an_evaluation(name: str) -> None:
    assert not roles.of_training(name)


@pytest.mark.parametrize(
    ("names", "in_cell", "in_model"), [(KNOWN, False, False), (CELL_ALONE, True, False), (MODEL, True, True)]
)
def test_keys_compared_by_the_report(names: list[str], in_cell: bool, in_model: bool) -> None:
    for name in names:
        assert (roles.compared_in_cell(name), roles.compared_in_model(name)) == (in_cell, in_model), name


@pytest.mark.parametrize(
    ("section", "with_template", "wanted"),
    [
        ("COOP", False, {"CLASS_TOKEN_POSITION"}),
        ("COOP", True, {"CLASS_TOKEN_POSITION", "TEMPLATE"}),  # KgCoOp, ProGrad
        ("COCOOP", False, set()),
        ("MAPLE", False, {"CTX_INIT"}),
        ("DEPT", False, {"CLASS_TOKEN_POSITION", "WEIGHT"}),
        ("DEPT", True, {"CLASS_TOKEN_POSITION", "WEIGHT", "TEMPLATE"}),
        ("COCOAMIX", True, {"CLASS_TOKEN_POSITION", "TEMPLATE", "STAGE", "OUT_CLASSES"}),
        ("ENLEARN", False, {"PROMPTS"}),  # unless the evaluation names its own
    ],
)
def test_keys_an_evaluation_takes_from_a_checkpoint(section: str, with_template: bool, wanted: set[str]) -> None:
    taken = roles.taken_from_checkpoint(section, with_template, {"PROMPTS": []})
    assert sorted(taken) == sorted(wanted)
    assert "PROMPTS" not in roles.taken_from_checkpoint(section, with_template, {"PROMPTS": ["own"]})


def test_symbols_of_the_paper() -> None:
    names = ("TRAINER.COCOAMIX.W", "TRAINER.COCOAMIX.MARGIN", "TRAINER.COCOAMIX.GAMMA", "TRAINER.COOP.W")
    assert [roles.symbol(name) for name in names] == ["w", "d", "GAMMA", "W"]


def test_table_rows_agree_with_their_pattern() -> None:
    """A row that exists for its allowed values has the same role as its siblings, unless it is hidden."""
    for prefix in ("INPUT.", "OPTIM.", "DATALOADER.TRAIN_X.", "DATALOADER.TEST.", "TEST.", "TRAIN."):
        for key in KEYS:
            # How a model was selected is a fact about its training, unlike all other keys of TEST.
            if key.name.startswith(prefix) and key.role.matters and key.name != "TEST.FINAL_MODEL":
                assert key.role is roles.find(f"{prefix}ANOTHER").role, key.name


def test_roles_differ() -> None:
    """No two roles mean the same."""
    assert len({(one.matters, one.of_training, one.in_cell, one.in_model) for one in ROLES}) == len(ROLES)


def test_roles_are_read_without_torch_or_yaml() -> None:
    code = (
        "import sys; from cocoamix.config import roles; assert roles.matters('SEED'); "
        "print([name for name in ('torch', 'yaml', 'yacs', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_keys_are_read_without_torch() -> None:
    code = "import sys; from cocoamix.config import keys, extend_cfg; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
