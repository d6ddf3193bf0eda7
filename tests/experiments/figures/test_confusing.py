"""`confusing`: its numbers recomputed from the prediction tables, and what it refuses."""

from __future__ import annotations

import argparse
import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cocoamix.errors import UserError
from cocoamix.experiments.figures import confusing
from cocoamix.experiments.figures.catalogue import FIGURES, declare
from cocoamix.experiments.figures.source import Plans, Source
from cocoamix.experiments.figures.style import Drawing, Style
from cocoamix.parser import Parser

IMAGES, CLASSES, EPOCHS, SEEDS = 60, 4, (5, 30), (1, 2)
LOSSES = {"CE": "ce", "CE + CoA": "ce+coa"}
Prediction = tuple[str, str, str, float, float]  # image, label, predicted, confidence, probability of the label


def make(*arguments: object) -> list[Drawing]:
    """Return what the figure yields."""
    parser = Parser()
    declare(parser, FIGURES["confusing"])
    return list(confusing.make(parser.parse_args(["--curves", "Alpha", *map(str, arguments)])))


def write_predictions(folder: Path, predictions: list[Prediction]) -> None:
    with (folder / "predictions.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "label", "predicted", "confidence", "label_probability"])
        writer.writerows([*row[:3], f"{row[3]:.6f}", f"{row[4]:.6f}"] for row in predictions)


def write_run(root: Path, config: str, dataset: str, subset: str, predictions: list[Prediction], **facts: Any) -> Path:
    """Write a run in CoOp's layout: of zero-shot CLIP, or of a learned prompt if a LOSS is given."""
    trainer, section = ("CoCoAMix", "COCOAMIX") if "LOSS" in facts else ("ZeroshotCLIP", "ZEROSHOTCLIP")
    seed, epoch, accuracy = facts.pop("seed", 1), facts.pop("epoch", 0), facts.pop("accuracy", 50.0)
    protocol = {"backbone": "tiny", **facts.pop("protocol", {})}
    folder = root / "base2new" / f"test_{subset}" / dataset / "shots_4" / trainer / config / f"seed{seed}"
    folder.mkdir(parents=True)
    results = {"trainer": trainer, "dataset": dataset, "subset": subset, "seed": seed, "shots": 4, "epoch": epoch} | {
        "metrics": {"accuracy": accuracy},
        "evaluated_images": 7,
        "protocol": protocol,
        "config": {"TRAINER": {section: {"ENSEMBLE": "none", **facts}}, "OPTIM": {"MAX_EPOCH": 30}},
    }
    (folder / "results.json").write_text(json.dumps(results))
    write_predictions(folder, predictions)
    return folder


def guess(generator: np.random.Generator, labels: np.ndarray) -> list[Prediction]:
    """Return predictions with random probabilities."""
    shares = np.round(generator.dirichlet(np.full(CLASSES, 1.5), len(labels)), 6)
    best = shares.argmax(1)
    rows = enumerate(zip(labels, best, shares, strict=True))
    return [(f"img/{n}.png", f"c{label}", f"c{top}", row[top], row[label]) for n, (label, top, row) in rows]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two datasets, two losses at two epochs, two seeds; the second dataset has only the last epoch."""
    generator, root = np.random.default_rng(0), tmp_path / "runs"
    for dataset in ("Alpha", "Beta"):
        labels = generator.integers(0, CLASSES, IMAGES)
        guessed = guess(generator, labels)
        # A gap of exactly 0.2 is not below 0.2, though 0.6 - 0.4 is in floating point.
        guessed[0] = ("img/0.png", f"c{labels[0]}", f"c{(labels[0] + 1) % CLASSES}", 0.6, 0.4)
        write_run(root, "tiny", dataset, "base", guessed)
        write_run(root, "tiny", dataset, "new", [], accuracy=61.5)
        for loss in LOSSES.values():
            for epoch in EPOCHS if dataset == "Alpha" else EPOCHS[-1:]:
                for seed in SEEDS:
                    facts = {"seed": seed, "epoch": epoch, "LOSS": loss}
                    config = f"{loss.replace('+', '_')}_{epoch}"
                    write_run(root, config, dataset, "base", guess(generator, labels), **facts)
                    write_run(root, config, dataset, "new", [], accuracy=float(generator.integers(10, 90)), **facts)
    return root


def only(folder: Path, pattern: str) -> Path:
    return next(iter(sorted(folder.glob(pattern))))


def table(root: Path, dataset: str, method: str, seed: int = 1) -> pd.DataFrame:
    return pd.read_csv(only(root, f"**/test_base/{dataset}/shots_4/{method}/seed{seed}/predictions.csv"))


def by_hand(root: Path, dataset: str, millionths: int) -> dict[str, np.ndarray]:
    """Return which images are easy, confusing and hard, in whole millionths."""
    zero = table(root, dataset, "ZeroshotCLIP/tiny")
    easy = (zero["predicted"] == zero["label"]).to_numpy()
    ahead = (1e6 * zero["confidence"]).round().astype(int) - (1e6 * zero["label_probability"]).round().astype(int)
    near = (ahead < millionths).to_numpy()
    return {"easy": easy, "confusing": ~easy & near, "hard": ~easy & ~near, "all": np.ones(len(easy), bool)}


def accuracy_by_hand(root: Path, dataset: str, loss: str, epoch: int, seed: int, chosen: np.ndarray) -> float:
    own = table(root, dataset, f"CoCoAMix/{LOSSES[loss].replace('+', '_')}_{epoch}", seed)
    return 100 * float((own["predicted"] == own["label"])[chosen].mean())


def test_numbers_match_the_predictions(tree: Path) -> None:
    curves, gains = make("--runs", tree)
    parts = by_hand(tree, "Alpha", 200_000)
    assert parts["hard"][0]
    assert all(part.any() for part in parts.values())
    zero, trained = (curves.data[(curves.data["loss"] == "zero-shot CLIP") == own] for own in (True, False))
    exact = {"easy": 100.0, "confusing": 0.0, "hard": 0.0, "all": 100 * parts["easy"].mean(), "new": 61.5}
    counts = {**{name: part.sum() for name, part in parts.items()}, "new": 7}
    assert dict(zip(zero["images"], zero["accuracy"], strict=True)) == pytest.approx(exact)
    assert dict(zip(zero["images"], zero["count"], strict=True)) == counts
    assert len(trained) == len(LOSSES) * len(EPOCHS) * len(SEEDS) * 5
    for row in trained[trained["images"] != "new"].itertuples():
        wanted = accuracy_by_hand(tree, "Alpha", row.loss, row.epoch, row.seed, parts[row.images])
        assert row.accuracy == pytest.approx(wanted)
    assert set(trained.loc[trained["images"] == "new", "accuracy"]) <= set(map(float, range(10, 90)))

    for axes, part in zip(curves.draw(Style()).axes, ("easy", "confusing", "hard", "all", "new"), strict=True):
        drawn = {line.get_label(): line.get_ydata() for line in axes.lines}
        for loss in LOSSES:
            own = trained[(trained["images"] == part) & (trained["loss"] == loss)]
            means = [own[own["epoch"] == epoch]["accuracy"].mean() for epoch in EPOCHS]
            assert list(drawn[loss]) == pytest.approx(means)  # of the seeds

    chosen = {dataset: by_hand(tree, dataset, 500_000)["confusing"] for dataset in ("Alpha", "Beta")}
    assert len(gains.data) == 4
    for row in gains.data.itertuples():
        before, after = (
            accuracy_by_hand(tree, row.dataset, loss, 30, row.seed, chosen[row.dataset]) for loss in LOSSES
        )
        assert [row.baseline_accuracy, row.accuracy, row.gain] == pytest.approx([before, after, after - before])
        assert (row.confusing, row.images) == (chosen[row.dataset].sum(), IMAGES)
    means = list(gains.data.groupby("dataset")["gain"].mean())
    assert [bar.get_width() for bar in gains.draw(Style()).axes[0].patches] == pytest.approx([*means, np.mean(means)])
    assert f"{np.mean(means):+.1f} on average" in gains.sentence


def test_a_wider_gap_moves_hard_images_to_confusing(tree: Path) -> None:
    counts = [make("--runs", tree, "--gap", gap)[0].data.groupby("images")["count"].first() for gap in (0.05, 0.2, 0.5)]
    assert counts[0]["confusing"] < counts[1]["confusing"] < counts[2]["confusing"]
    assert all(count[["easy", "confusing", "hard"]].sum() == IMAGES for count in counts)


def test_a_zero_shot_run_of_another_protocol_does_not_count(tree: Path) -> None:
    before = [drawing.data for drawing in make("--runs", tree)]
    guessed = [(f"img/{n}.png", "c0", "c1", 0.5, 0.4) for n in range(IMAGES)]
    write_run(tree, "zz", "Alpha", "base", guessed, accuracy=1.0, protocol={"backbone": "other"})  # the newest
    for drawing, data in zip(make("--runs", tree), before, strict=True):
        pd.testing.assert_frame_equal(drawing.data, data)


def test_several_kinds_of_runs_are_refused(tree: Path) -> None:
    other = write_run(tree, "other", "Alpha", "base", [], LOSS="ce+coa", epoch=30)
    with pytest.raises(UserError, match=r"CE \+ CoA at epoch 30"):
        make("--runs", tree)
    shutil.rmtree(other)
    for path in tree.glob("**/ce_coa_*/**/results.json"):
        path.write_text(path.read_text().replace('"LOSS": "ce+coa"', '"LOSS": "ce+coa", "N_CTX": 8'))
    with pytest.raises(UserError, match="N_CTX"):
        make("--runs", tree)


@pytest.mark.parametrize("damaged", ["ZeroshotCLIP/tiny", "CoCoAMix/ce_5"])
def test_missing_predictions_are_named(tree: Path, damaged: str) -> None:
    (only(tree, f"**/test_base/Alpha/**/{damaged}/seed1") / "predictions.csv").unlink()
    with pytest.raises(UserError, match="SAVE_PREDICTIONS"):
        make("--runs", tree)


def test_only_the_needed_part_of_a_plan_is_run(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First the dataset of the curves with its epochs, then the other datasets without them."""
    asked = []

    def find_source(args: argparse.Namespace, plans: Plans) -> Source:
        asked.append((plans.synthetic.datasets, plans.synthetic.methods))
        return Source((tree,))

    monkeypatch.setattr(confusing.source, "find_source", find_source)
    make("--datasets", "Beta")
    (first, with_epochs), (others, without) = asked
    assert (first, others) == (("Alpha",), ("Beta",))
    assert without == ("CLIP", "CE", "CE + CoA")
    assert set(with_epochs) == {name for name in with_epochs if name.split(",")[0] in without} > set(without)
