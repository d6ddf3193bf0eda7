"""The evaluation has Dassl's keys and lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from dassl.config import get_cfg_default
from torch.nn import functional as F
from yacs.config import CfgNode

from cocoamix.errors import UserError
from cocoamix.run.evaluation import Classification

TRUE = [0, 0, 0, 1, 1, 3, 3]
PRED = [0, 0, 1, 1, 0, 2, 3]  # 2 is predicted but does not occur


@pytest.fixture
def cfg(tmp_path: Path) -> CfgNode:
    node = get_cfg_default()
    node.OUTPUT_DIR = str(tmp_path)
    return node


def evaluated(cfg: CfgNode) -> Classification:
    evaluator = Classification(cfg, lab2cname={0: "cat", 1: "dog", 2: "eel", 3: "fox"})
    for part in (slice(0, 4), slice(4, 7)):
        evaluator.process(F.one_hot(torch.tensor(PRED[part]), 4).float(), torch.tensor(TRUE[part]))
    return evaluator


def test_results_are_returned_and_printed(cfg: CfgNode, capsys: pytest.CaptureFixture[str]) -> None:
    results = evaluated(cfg).evaluate()
    f1 = [2 * 2 / (3 + 3), 2 * 1 / (2 + 2), 2 * 1 / (2 + 1)]  # over the classes that occur
    assert list(results) == ["accuracy", "error_rate", "macro_f1"]
    assert list(results.values()) == pytest.approx([400 / 7, 300 / 7, 100 * sum(f1) / 3])
    assert capsys.readouterr().out == (
        "=> result\n* total: 7\n* correct: 4\n* accuracy: 57.14%\n* error: 42.86%\n* macro_f1: 61.11%\n"
    )


def test_large_numbers_have_commas(cfg: CfgNode, capsys: pytest.CaptureFixture[str]) -> None:
    evaluator = Classification(cfg, lab2cname={})
    evaluator.process(F.one_hot(torch.zeros(1234, dtype=torch.long), 2), torch.zeros(1234, dtype=torch.long))
    evaluator.evaluate()
    assert "* total: 1,234\n* correct: 1,234\n* accuracy: 100.00%" in capsys.readouterr().out


def test_per_class_results(cfg: CfgNode, capsys: pytest.CaptureFixture[str]) -> None:
    cfg.TEST.PER_CLASS_RESULT = True
    results = evaluated(cfg).evaluate()
    assert results["perclass_accuracy"] == pytest.approx(100 * (2 / 3 + 1 / 2 + 1 / 2) / 3)
    printed = capsys.readouterr().out
    assert re.search(r"^\* class: 0 \(cat\)\ttotal: 3\tcorrect: 2\tacc: 66\.67%$", printed, re.M)
    assert "(eel)" not in printed
    assert "* average: 55.56%" in printed


def test_confusion_matrix_is_saved(cfg: CfgNode) -> None:
    cfg.TEST.COMPUTE_CMAT = True
    evaluated(cfg).evaluate()
    matrix = torch.load(Path(cfg.OUTPUT_DIR) / "cmat.pt", weights_only=True)
    expected = [[2 / 3, 1 / 3, 0, 0], [1 / 2, 1 / 2, 0, 0], [0, 0, 0, 0], [0, 0, 1 / 2, 1 / 2]]
    assert matrix.tolist() == [pytest.approx(row) for row in expected]


def test_an_evaluation_without_images_is_refused(cfg: CfgNode) -> None:
    with pytest.raises(UserError, match="no images"):
        Classification(cfg, lab2cname={}).evaluate()
