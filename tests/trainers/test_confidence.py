"""Confidence metrics in results.json and logs, for every kind of trainer, against the evaluated logits."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dassl.evaluation import Classification
from torch import Tensor

from cocoamix.experiments.logs import read_log
from parse_test_res import read_last
from tests.conftest import Run, Runner

SHORT = ["DATASET.NUM_SHOTS", "4", "OPTIM.MAX_EPOCH", "1"]
TWO = ["TRAINER.ENLEARN.BACKBONES", "['tiny', 'tiny']", "TRAINER.ENLEARN.BACKBONE_WEIGHTS", "['', 'random']"]
SESSIONS = ["FSCIL.BASE", "4", "FSCIL.WAY", "2", "FSCIL.SHOTS", "2", "OPTIM.MAX_EPOCH", "1"]
SESSIONS += ["FSCIL.WEIGHT_EPOCHS", "1", "FSCIL.BASE_WEIGHT_EPOCHS", "1", "TRAINER.COCOAMIX.STAGE", "two"]
KINDS = [
    ("CoOp", []),
    ("CoOp", ["TRAINER.COOP.ENSEMBLE", "uniform"]),
    ("CoCoOp", ["TRAINER.COCOOP.PREC", "fp32"]),
    ("KgCoOp", []),
    ("ProGrad", []),
    ("MaPLe", ["TRAINER.MAPLE.PROMPT_DEPTH", "2"]),
    ("DePT", []),
    ("TuneEn", TWO),
    ("CoCoAMix", []),
    ("CoCoAMix", ["TRAINER.COCOAMIX.STAGE", "two", "TRAINER.COCOAMIX.WEIGHT_EPOCHS", "1"]),
    ("CoCoAMix", ["TRAINER.COCOAMIX.ENSEMBLE", "none"]),
]

Seen = dict[int, tuple[list[Tensor], list[Tensor]]]  # logits and labels of each evaluator


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What the evaluators received, in the order in which they were first used."""
    found: Seen = {}
    keep: list[Classification] = []  # so that no two have the same id
    process = Classification.process

    def watch(self: Classification, mo: Tensor, gt: Tensor) -> None:
        logits, labels = found.setdefault(id(self), ([], []))
        keep.append(self)
        logits.append(mo.clone())
        labels.append(gt.clone())
        process(self, mo, gt)

    monkeypatch.setattr(Classification, "process", watch)
    return found


def by_hand(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Return accuracy, ECE and NLL, image by image."""
    bins: dict[int, list[float]] = {}
    total, hits = 0.0, 0
    for row, label in zip(logits.double(), labels.tolist(), strict=True):
        p = (row - row.max()).exp() / (row - row.max()).exp().sum()
        total -= float(p[label].log())
        hit = int(row.argmax()) == label
        hits += hit
        number = next(number for number in range(15) if float(p.max()) <= (number + 1) / 15 or number == 14)
        bins.setdefault(number, []).append(float(p.max()) - hit)
    error = sum(abs(sum(gaps)) for gaps in bins.values()) / len(labels)
    return {"accuracy": 100 * hits / len(labels), "ece": 100 * error, "nll": total / len(labels)}


def last(seen: Seen) -> tuple[Tensor, Tensor]:
    logits, labels = list(seen.values())[-1]
    return torch.cat(logits), torch.cat(labels)


def measured(metrics: dict[str, Any]) -> dict[str, float]:
    return {key: metrics[key] for key in ("accuracy", "ece", "nll")}


@pytest.mark.parametrize(("trainer", "settings"), KINDS)
def test_metrics_on_base_and_all_match_manual_calculation(
    run: Runner, seen: Seen, trainer: str, settings: list[str]
) -> None:
    both = [*SHORT, *settings]
    trained = run(*both, "DATASET.SUBSAMPLE_CLASSES", "base", trainer=trainer)
    assert trained.status == 0, trained.output[-800:]
    assert measured(trained.results["metrics"]) == pytest.approx(by_hand(*last(seen)), rel=1e-9)
    assert "auroc" not in trained.results["metrics"]  # all classes were trained
    seen.clear()
    done = run("--eval-only", "--model-dir", str(trained.folder), *both, trainer=trainer, name="all")
    assert done.status == 0, done.output[-800:]
    logits, labels = last(seen)
    metrics = done.results["metrics"]
    assert measured(metrics) == pytest.approx(by_hand(logits, labels), rel=1e-9)
    confidence = logits.double().softmax(dim=1).amax(dim=1)
    of_trained, of_others = confidence[labels < 5], confidence[labels >= 5]  # base is the first half of ten classes
    above = (of_trained[:, None] > of_others).double() + (of_trained[:, None] == of_others).double() / 2
    assert metrics["auroc"] == pytest.approx(100 * float(above.mean()), rel=1e-9)


def test_zero_shot_has_no_trained_classes(run: Runner, seen: Seen) -> None:
    metrics = run("--eval-only", *SHORT, trainer="ZeroshotCLIP").results["metrics"]
    assert measured(metrics) == pytest.approx(by_hand(*last(seen)), rel=1e-9)
    assert "auroc" not in metrics


def test_mixture_of_models_is_not_normalised_again(run: Runner, seen: Seen) -> None:
    """T_En's output is the log of a mixture that sums to one, so a softmax does not change it."""
    metrics = run(*SHORT, *TWO, trainer="TuneEn").results["metrics"]
    logits, labels = last(seen)
    mixture = logits.double().exp()
    torch.testing.assert_close(mixture.sum(dim=1), torch.ones(len(labels), dtype=torch.double), rtol=1e-5, atol=0)
    assert metrics["nll"] == pytest.approx(float(F.nll_loss(logits, labels)), rel=1e-5)


@pytest.mark.parametrize("trainer", ["CoCoAMixFSCIL", "CoOpFSCIL", "ZeroshotCLIPFSCIL"])
def test_metrics_of_each_session_match_manual_calculation(run: Runner, seen: Seen, trainer: str) -> None:
    evaluate = ["--eval-only"] if trainer.startswith("Zero") else []
    done = run(*evaluate, *SESSIONS, trainer=trainer)
    assert done.status == 0, done.output[-800:]
    wanted = [by_hand(torch.cat(logits), torch.cat(labels)) for logits, labels in seen.values()]
    assert len(wanted) == 4
    for session, numbers in zip(done.results["sessions"], wanted, strict=True):
        assert measured(session) == pytest.approx(numbers, rel=1e-9)
    assert measured(done.results["metrics"]) == pytest.approx(wanted[-1], rel=1e-9)
    assert "auroc" not in done.results["metrics"]  # every class seen was trained


def test_parsers_still_find_the_accuracy(run: Runner) -> None:
    """CoOp's and DePT's patterns, on the log of an evaluation with all possible lines."""
    trained = run(*SHORT, "DATASET.SUBSAMPLE_CLASSES", "base")
    evaluate = ["--eval-only", "--model-dir", str(trained.folder), *SHORT]
    done = run(*evaluate, "TEST.PER_CLASS_RESULT", "True", name="all")
    _check_log(trained, "Finish training", test_log=False)
    _check_log(done, "=> result", test_log=True)
    metrics, found = done.results["metrics"], read_log(done.folder / "log.txt").metrics
    for key in ("accuracy", "ece", "nll", "auroc"):
        assert found[key] == pytest.approx(metrics[key], abs=0.006)
    (printed,) = re.findall(r"^\* nll: (\d+\.\d{4})$", done.output, re.MULTILINE)
    assert float(printed) == pytest.approx(metrics["nll"], abs=6e-5)


def _check_log(done: Run, mark: str, test_log: bool) -> None:
    text = (done.folder / "log.txt").read_text()
    wanted = f"{done.results['metrics']['accuracy']:.2f}"
    after = text[text.index(mark) :]
    assert re.findall(r"\* accuracy: ([\.\deE+-]+)%", after) == [wanted]
    assert re.findall(r"accuracy\: (\d+\.\d*)\%", text) == [wanted]
    assert read_last(done.folder / "log.txt", "accuracy", test_log) == float(wanted)
    ece = f"{done.results['metrics']['ece']:.2f}"
    assert read_last(done.folder / "log.txt", "ece", test_log) == float(ece)
