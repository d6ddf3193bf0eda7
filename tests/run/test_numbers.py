"""The numbers of an evaluation, by hand from its logits; and what its fingerprint depends on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cocoamix.run.evaluation import Evaluation
from tests.conftest import Runner
from tests.trainers.kinds import BASE, KINDS, SPLIT, evaluate


def by_hand(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Return accuracy, ECE and NLL, image by image."""
    bins: dict[int, list[float]] = {}
    total, hits = 0.0, 0
    for row, label in zip(logits.double(), labels.tolist(), strict=True):
        p = row.softmax(dim=0)
        total -= float(p[label].log())
        hit = int(row.argmax()) == label
        hits += hit
        number = next(number for number in range(15) if float(p.max()) <= (number + 1) / 15 or number == 14)
        bins.setdefault(number, []).append(float(p.max()) - hit)
    error = sum(abs(sum(gaps)) for gaps in bins.values()) / len(labels)
    return {"accuracy": 100 * hits / len(labels), "ece": 100 * error, "nll": total / len(labels)}


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[Tensor], list[Tensor]]]:
    """The logits and labels of each evaluation."""
    seen: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
    order: list[tuple[list[Tensor], list[Tensor]]] = []
    kept: list[Evaluation] = []  # so that no two have the same id
    add = Evaluation.add

    def watch(self: Evaluation, logits: Tensor, labels: Tensor, *rest: Any) -> Any:
        if id(self) not in seen:
            seen[id(self)] = ([], [])
            order.append(seen[id(self)])
            kept.append(self)
        for side, value in zip(seen[id(self)], (logits, labels), strict=True):
            side.append(value.clone())
        return add(self, logits, labels, *rest)

    monkeypatch.setattr(Evaluation, "add", watch)
    return order


@pytest.mark.parametrize("kind", ["CoOp", "TuneEn", "CoCoAMix"])
def test_numbers_match_manual_calculation(run: Runner, evaluated: Any, kind: str) -> None:
    """Accuracy and confidence; among all classes, also those of base and new, F1, and whether new ones are unsure."""
    trainer, settings = KINDS[kind]
    short = [*settings, "OPTIM.MAX_EPOCH", "1", "TRAINER.COCOAMIX.WEIGHT_LR", "0.5"]
    trained = run(*short, trainer=trainer)
    done = evaluate(run, trained, *short, *BASE[:3], "all", trainer=trainer, name="all")
    for each, (logits, labels) in zip((trained, done), evaluated, strict=True):
        metrics, wanted = each.results["metrics"], by_hand(torch.cat(logits), torch.cat(labels))
        assert {key: metrics[key] for key in wanted} == pytest.approx(wanted, rel=1e-6)
    assert "auroc" not in trained.results["metrics"]
    logits, labels = (torch.cat(side) for side in evaluated[-1])
    metrics, guess = done.results["metrics"], logits.argmax(dim=1)
    hits = (guess == labels).double()
    base, new = (float(100 * hits[side].mean()) for side in (labels < 5, labels >= 5))
    assert (metrics["base_accuracy"], metrics["new_accuracy"]) == pytest.approx((base, new))
    assert metrics["harmonic_mean"] == pytest.approx(2 * base * new / (base + new) if base + new else 0)
    assert metrics["error_rate"] == pytest.approx(100 - metrics["accuracy"])
    scores = []
    for label in range(10):
        right = int(((guess == label) & (labels == label)).sum())
        scores.append(2 * right / int((guess == label).sum() + (labels == label).sum()))
    assert metrics["macro_f1"] == pytest.approx(100 * sum(scores) / 10)
    sure = logits.double().softmax(dim=1).amax(dim=1)
    pairs = sure[labels < 5][:, None] - sure[labels >= 5]
    above = (pairs > 0).double() + (pairs == 0).double() / 2
    assert metrics["auroc"] == pytest.approx(100 * float(above.mean()), rel=1e-9)


def test_numbers_of_each_session_match_manual_calculation(run: Runner, evaluated: Any) -> None:
    done = run("--eval-only", *SPLIT, trainer="ZeroshotCLIPFSCIL")
    for session, (logits, labels) in zip(done.results["sessions"], evaluated, strict=True):
        wanted = by_hand(torch.cat(logits), torch.cat(labels))
        assert {key: session[key] for key in wanted} == pytest.approx(wanted, rel=1e-6)
    assert len(evaluated) == 4
    hits = [torch.cat([(l.argmax(dim=1) == y) for l, y in zip(*one, strict=True)]) for one in evaluated]  # noqa: E741
    first = [float(100 * one[:16].double().mean()) for one in hits]
    assert [each["base"] for each in done.results["sessions"]] == pytest.approx(first)


def test_fingerprint_covers_settings_that_change_results(run: Runner) -> None:
    def fingerprint(*settings: str) -> Any:
        name = "-".join(settings) or "plain"
        return run("--eval-only", *settings, trainer="ZeroshotCLIP", name=name).results["fingerprint"]

    plain, source = fingerprint(), ("MODEL.BACKBONE.SOURCE", "open_clip")
    for key, value in (("DATALOADER.NUM_WORKERS", "1"), ("DATALOADER.TEST.BATCH_SIZE", "7")):
        assert fingerprint(key, value) == plain
    assert fingerprint(*source) != fingerprint(*source, "MODEL.BACKBONE.ACTIVATION", "gelu")
    for key, value in (("INPUT.RRCROP_SCALE", "(0.9, 1.0)"), ("INPUT.INTERPOLATION", "bilinear"), BASE[2:]):
        assert fingerprint(key, value) != plain
