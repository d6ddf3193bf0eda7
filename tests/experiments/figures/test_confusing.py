"""`confusing` and `gains`: their numbers recomputed from the prediction tables, and what they refuse."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.experiments.figures.conftest import Draw

IMAGES, CLASSES, EPOCHS, SEEDS = 60, 4, (5, 30), (1, 2)
LOSSES = {"CE": "ce", "CE + CoA": "ce+coa"}
Prediction = tuple[str, str, str, float, float]  # image, label, predicted, confidence, probability of the label


def write_run(root: Path, config: str, dataset: str, subset: str, predictions: list[Prediction], **facts: Any) -> Path:
    """Write a run in CoOp's layout: of zero-shot CLIP, or of a learned prompt if a LOSS is given."""
    trainer, section = ("CoCoAMix", "COCOAMIX") if "LOSS" in facts else ("ZeroshotCLIP", "ZEROSHOTCLIP")
    seed, epoch, accuracy = facts.pop("seed", 1), facts.pop("epoch", 0), facts.pop("accuracy", 50.0)
    folder = root / "base2new" / f"test_{subset}" / dataset / "shots_4" / trainer / config / f"seed{seed}"
    folder.mkdir(parents=True)
    results = {"trainer": trainer, "dataset": dataset, "subset": subset, "seed": seed, "shots": 4, "epoch": epoch} | {
        "metrics": {"accuracy": accuracy},
        "evaluated_images": 7,
        "protocol": {"backbone": "tiny", **facts.pop("protocol", {})},
        "config": {"TRAINER": {section: {"ENSEMBLE": "none", **facts}}, "OPTIM": {"MAX_EPOCH": 30}},
    }
    (folder / "results.json").write_text(json.dumps(results))
    with (folder / "predictions.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "label", "predicted", "confidence", "label_probability"])
        writer.writerows([*row[:3], f"{row[3]:.6f}", f"{row[4]:.6f}"] for row in predictions)
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


def by_hand(root: Path, dataset: str, method: str, seed: int = 1) -> pd.DataFrame:
    (path,) = root.glob(f"**/test_base/{dataset}/shots_4/{method}/seed{seed}/predictions.csv")
    return pd.read_csv(path)


def parts_by_hand(root: Path, dataset: str, millionths: int) -> dict[str, np.ndarray]:
    """Return which images are easy, confusing and hard, in whole millionths."""
    zero = by_hand(root, dataset, "ZeroshotCLIP/tiny")
    easy = (zero["predicted"] == zero["label"]).to_numpy()
    ahead = (1e6 * zero["confidence"]).round().astype(int) - (1e6 * zero["label_probability"]).round().astype(int)
    near = (ahead < millionths).to_numpy()
    return {"easy": easy, "confusing": ~easy & near, "hard": ~easy & ~near, "all": np.ones(len(easy), bool)}


def accuracy_by_hand(root: Path, dataset: str, loss: str, epoch: str, seed: str, chosen: np.ndarray) -> float:
    own = by_hand(root, dataset, f"CoCoAMix/{LOSSES[loss].replace('+', '_')}_{epoch}", int(seed))
    return 100 * float((own["predicted"] == own["label"])[chosen].mean())


def test_curves_match_the_predictions(tree: Path, draw: Draw) -> None:
    """Of the dataset with several epochs, also if there is a newer zero-shot run of another protocol."""
    guessed = [(f"img/{n}.png", "c0", "c1", 0.5, 0.4) for n in range(IMAGES)]
    write_run(tree, "zz", "Alpha", "base", guessed, accuracy=1.0, protocol={"backbone": "other"})
    (rows,) = draw("confusing", tree).values()
    parts = parts_by_hand(tree, "Alpha", 200_000)
    assert parts["hard"][0]
    zero = {row["images"]: (float(row["accuracy"]), int(row["count"])) for row in rows if row["epoch"] == "0"}
    exact = {"easy": 100.0, "confusing": 0.0, "hard": 0.0, "all": 100 * parts["easy"].mean()}
    assert zero == {**{name: (exact[name], part.sum()) for name, part in parts.items()}, "new": (61.5, 7)}
    trained = [row for row in rows if row["epoch"] != "0"]
    assert len(trained) == len(LOSSES) * len(EPOCHS) * len(SEEDS) * 5
    for row in trained:
        if row["images"] != "new":
            about = row["dataset"], row["loss"], row["epoch"], row["seed"], parts[row["images"]]
            assert float(row["accuracy"]) == pytest.approx(accuracy_by_hand(tree, *about))


def test_gains_match_the_predictions(tree: Path, draw: Draw) -> None:
    rows = draw("gains", tree)["gains"]
    assert len(rows) == 4
    for row in rows:
        chosen = parts_by_hand(tree, row["dataset"], 500_000)["confusing"]
        before, after = (accuracy_by_hand(tree, row["dataset"], loss, "30", row["seed"], chosen) for loss in LOSSES)
        numbers = [float(row[key]) for key in ("baseline_accuracy", "accuracy", "gain")]
        assert numbers == pytest.approx([before, after, after - before])
        assert (int(row["confusing"]), int(row["images"])) == (chosen.sum(), IMAGES)


def test_several_kinds_of_runs_are_refused(tree: Path, refused: Callable[..., str]) -> None:
    other = write_run(tree, "other", "Alpha", "base", [], LOSS="ce+coa", epoch=30)
    assert "CE + CoA at epoch 30" in refused("confusing", "--runs", tree)
    shutil.rmtree(other)
    for path in tree.glob("**/ce_coa_*/**/results.json"):
        path.write_text(path.read_text().replace('"LOSS": "ce+coa"', '"LOSS": "ce+coa", "N_CTX": 8'))
    assert "N_CTX" in refused("confusing", "--runs", tree)


@pytest.mark.parametrize("damaged", ["ZeroshotCLIP/tiny", "CoCoAMix/ce_5"])
def test_missing_predictions_are_named(tree: Path, damaged: str, refused: Callable[..., str]) -> None:
    (tree / f"base2new/test_base/Alpha/shots_4/{damaged}/seed1/predictions.csv").unlink()
    assert "SAVE_PREDICTIONS" in refused("confusing", "--runs", tree)
