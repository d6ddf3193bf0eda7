from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from dassl.evaluation import Classification, build_evaluator
from dassl.metrics import compute_accuracy
from torch.nn import functional as F
from yacs.config import CfgNode

from .engine import OURS, REFUSALS, only_ours

TRUE = [0, 0, 0, 1, 1, 3, 3]
PRED = [0, 0, 1, 1, 0, 2, 3]  # 2 is predicted but does not occur


def evaluated(cfg: CfgNode) -> Classification:
    evaluator = build_evaluator(cfg, lab2cname={0: "cat", 1: "dog", 2: "eel", 3: "fox"})
    evaluator.process(torch.zeros(3, 4), torch.zeros(3, dtype=torch.long))
    evaluator.reset()  # discards the batch above
    for part in (slice(0, 4), slice(4, 7)):
        evaluator.process(F.one_hot(torch.tensor(PRED[part]), 4).float(), torch.tensor(TRUE[part]))
    return evaluator


def test_results_are_returned_and_printed(cfg: CfgNode, capsys: pytest.CaptureFixture[str]) -> None:
    evaluator = evaluated(cfg)
    assert isinstance(evaluator, Classification)
    capsys.readouterr()
    results = evaluator.evaluate()
    f1 = [2 * 2 / (3 + 3), 2 * 1 / (2 + 2), 2 * 1 / (2 + 1)]  # over the classes that occur
    assert list(results) == ["accuracy", "error_rate", "macro_f1"]
    assert list(results.values()) == pytest.approx([400 / 7, 300 / 7, 100 * sum(f1) / 3])
    printed = capsys.readouterr().out
    found = re.search(
        r"=> result\n\* total: 7\n\* correct: 4\n\* accuracy: ([\.\deE+-]+)%\n\* error: (.+)%\n\* macro_f1: (.+)%\n",
        printed,
    )
    assert found
    if OURS:
        assert found.groups() == ("57.14", "42.86", "61.11")


def test_large_numbers_have_commas(cfg: CfgNode, capsys: pytest.CaptureFixture[str]) -> None:
    evaluator = build_evaluator(cfg, lab2cname=None)
    evaluator.process(F.one_hot(torch.zeros(1234, dtype=torch.long), 2), torch.zeros(1234, dtype=torch.long))
    evaluator.evaluate()
    assert "* total: 1,234\n* correct: 1,234\n* accuracy: 100.0" in capsys.readouterr().out


def test_per_class_results(cfg: CfgNode, capsys: pytest.CaptureFixture[str]) -> None:
    cfg.TEST.PER_CLASS_RESULT = True
    results = evaluated(cfg).evaluate()
    assert results["perclass_accuracy"] == pytest.approx(100 * (2 / 3 + 1 / 2 + 1 / 2) / 3)
    printed = capsys.readouterr().out
    assert "* class: 0 (cat)\ttotal: 3\tcorrect: 2\tacc: 66." in printed
    assert "(eel)" not in printed
    assert re.search(r"\* average: 55\.56?%|\* average: 55\.6%", printed)


def test_per_class_results_need_class_names(cfg: CfgNode) -> None:
    cfg.TEST.PER_CLASS_RESULT = True
    with pytest.raises(REFUSALS):
        build_evaluator(cfg, lab2cname=None)


def test_confusion_matrix_is_saved(cfg: CfgNode) -> None:
    cfg.TEST.COMPUTE_CMAT = True
    Path(cfg.OUTPUT_DIR).mkdir()
    evaluated(cfg).evaluate()
    path = Path(cfg.OUTPUT_DIR) / "cmat.pt"
    # Dassl saves a NumPy array, which the safe loader refuses; ours is a tensor.
    matrix = np.asarray(torch.load(path, weights_only=OURS))
    expected = [[2 / 3, 1 / 3, 0, 0], [1 / 2, 1 / 2, 0, 0], [0, 0, 0, 0], [0, 0, 1 / 2, 1 / 2]]
    assert matrix == pytest.approx(np.array(expected))


@only_ours
def test_an_evaluation_without_images_is_reported(cfg: CfgNode) -> None:
    with pytest.raises(REFUSALS, match="no images"):
        build_evaluator(cfg, lab2cname={}).evaluate()


def test_an_unknown_evaluator_suggests_the_nearest(cfg: CfgNode) -> None:
    cfg.TEST.EVALUATOR = "Clasification"
    with pytest.raises(ValueError, match="Classification"):
        build_evaluator(cfg)


def test_accuracy_of_a_batch() -> None:
    logits = torch.tensor([[0.1, 0.9, 0.0], [0.8, 0.1, 0.1], [0.3, 0.1, 0.2]])
    target = torch.tensor([1, 0, 2])
    (top1,) = compute_accuracy(logits, target)
    assert top1.shape == (1,)
    assert top1.item() == pytest.approx(200 / 3)
