"""`confusing`: its numbers recomputed from the prediction tables, and what it refuses."""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cocoamix.errors import UserError
from cocoamix.experiments.figures import confusing
from cocoamix.experiments.figures.catalogue import FIGURES, add_arguments
from cocoamix.experiments.figures.source import Plans, Source
from cocoamix.experiments.figures.style import Drawing, Style
from cocoamix.parser import Parser

IMAGES, CLASSES, EPOCHS, SEEDS = 60, 4, (5, 30), (1, 2)
LOSSES = {"CE": "ce", "CE + CoA": "ce+coa"}
Prediction = tuple[str, str, str, float, float]  # image, label, predicted, confidence, probability of the label


def make(*arguments: object) -> list[Drawing]:
    """Return what the figure yields."""
    parser = Parser()
    add_arguments(parser, FIGURES["confusing"])
    return list(confusing.make(parser.parse_args([str(argument) for argument in arguments])))


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
    for row in trained[trained["images"] == "new"].itertuples():
        config = f"{LOSSES[row.loss].replace('+', '_')}_{row.epoch}"
        results = only(tree, f"**/test_new/Alpha/**/{config}/seed{row.seed}/results.json")
        assert row.accuracy == json.loads(results.read_text())["metrics"]["accuracy"]

    panels = curves.draw(Style()).axes
    assert [bar.get_width() for bar in panels[0].patches] == pytest.approx(
        [100 * parts[part].mean() for part in ("easy", "confusing", "hard")]
    )
    for axes, part in zip(panels[1:], ("easy", "confusing", "hard", "all", "new"), strict=True):
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
    counts = []
    for gap in (0.05, 0.2, 0.5, 1):
        data = make("--runs", tree, "--gap", gap)[0].data
        counts.append(dict(zip(data["images"], data["count"], strict=True)))
    assert len({count["easy"] for count in counts}) == 1
    assert [count["confusing"] for count in counts] == sorted({count["confusing"] for count in counts})
    assert all(count["easy"] + count["confusing"] + count.get("hard", 0) == IMAGES for count in counts)
    assert "hard" not in counts[-1]  # no gap is 1 or more, and a part without images has no accuracy


def test_losses_and_dataset_can_be_selected(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    curves, gains = make("--runs", tree, "--losses", "ce+coa", "ce", "--curves", "Beta")
    assert set(curves.data["dataset"]) == {"Beta"}
    assert {(row.loss, row.baseline) for row in gains.data.itertuples()} == {("CE", "CE + CoA")}
    (curves,) = make("--runs", tree, "--losses", "ce", "gce")
    assert set(curves.data["loss"]) == {"zero-shot CLIP", "CE"}
    assert "only ce has runs" in capsys.readouterr().err


def test_an_image_without_a_prediction_is_not_counted(tree: Path) -> None:
    before = make("--runs", tree)[0].data
    for path in tree.glob("**/predictions.csv"):
        head, *rows = path.read_text().splitlines()
        path.write_text("\n".join([f"{head},error", *(f"{row}," for row in rows), "img/x.png,c0,,,,damaged"]) + "\n")
    pd.testing.assert_frame_equal(make("--runs", tree)[0].data, before)


def test_gains_compare_models_of_one_epoch(tree: Path) -> None:
    for folder in tree.glob("**/Alpha/shots_4/CoCoAMix/ce_30"):
        shutil.rmtree(folder)
    for folder in tree.glob("**/Beta"):
        shutil.rmtree(folder)
    gains = make("--runs", tree)[1].data
    assert set(gains["epoch"]) == {5}  # the last one that both losses have
    chosen = by_hand(tree, "Alpha", 500_000)["confusing"]
    for row in gains.itertuples():
        assert row.accuracy == pytest.approx(accuracy_by_hand(tree, "Alpha", "CE + CoA", 5, row.seed, chosen))


# ---------------------------------------------------------------------- bad input


def _no_predictions(root: Path) -> str:
    folder = only(root, "**/test_base/Alpha/**/ce_5/seed1")
    (folder / "predictions.csv").unlink()
    return str(folder)


def _no_zero_shot(root: Path) -> str:
    shutil.rmtree(only(root, "**/test_base/Alpha/shots_4/ZeroshotCLIP"))
    return "ZeroshotCLIP on the base classes of Alpha"


def _none_confusing(root: Path) -> str:
    folder = only(root, "**/test_base/Alpha/**/ZeroshotCLIP/**/predictions.csv").parent
    right = [(f"img/{n}.png", "c0", "c0", 0.9, 0.9) for n in range(IMAGES - 1)]
    write_predictions(folder, [*right, (f"img/{IMAGES - 1}.png", "c0", "c1", 0.9, 0.1)])
    return f"{folder} is confusing"


def _other_images(root: Path) -> str:
    folder = only(root, "**/test_base/Alpha/**/ce_5/seed2")
    with (folder / "predictions.csv").open("a") as file:
        file.write("img/more.png,c0,c0,0.9,0.9\n")
    return f"{folder} has a prediction for img/more.png"


def _two_settings(root: Path) -> str:
    write_run(root, "ce_coa_w", "Alpha", "base", [], LOSS="ce+coa", W=1.0)
    return "w 1"


def _two_kinds(root: Path) -> str:
    for loss in LOSSES.values():
        for epoch in EPOCHS:
            write_run(root, f"n{loss}{epoch}", "Alpha", "base", [], LOSS=loss, N_CTX=8, epoch=epoch)
    return "TRAINER.COCOAMIX.N_CTX is"


def _only_ensembles(root: Path) -> str:
    for path in root.glob("**/CoCoAMix/**/results.json"):
        path.write_text(path.read_text().replace('"ENSEMBLE": "none"', '"ENSEMBLE": "coa"'))
    return "TRAINER.COCOAMIX.ENSEMBLE none"


def _chosen_on_validation_images(root: Path) -> str:
    for path in root.glob("**/CoCoAMix/**/results.json"):
        path.write_text(path.read_text().replace('"protocol": {', '"protocol": {"model_selection": "best_val", '))
    return "--load-epoch"


def _no_common_seed(root: Path) -> str:
    shutil.rmtree(only(root, "**/test_base/Alpha/**/ce_5/seed1"))
    shutil.rmtree(only(root, "**/test_base/Alpha/**/ce_30/seed2"))
    return "CE at epoch 5 has 2, CE at epoch 30 has 1"


def _no_common_epoch(root: Path) -> str:
    shutil.rmtree(only(root, "**/test_base/Alpha/**/ce_30"))
    shutil.rmtree(only(root, "**/test_base/Alpha/**/ce_coa_5"))
    return "CE on Alpha has 5, CE + CoA on Alpha has 30"


def _no_common_dataset(root: Path) -> str:
    for path in ("Alpha/shots_4/CoCoAMix/ce_[35]*", "Beta/shots_4/CoCoAMix/ce_coa_*"):
        for folder in root.glob(f"**/{path}"):
            shutil.rmtree(folder)
    return "CE has Beta, CE + CoA has Alpha"


def _no_probability_of_a_label(root: Path) -> str:
    path = only(root, "**/test_base/Alpha/**/ZeroshotCLIP/**/predictions.csv")
    path.write_text(path.read_text().replace("0.600000,0.400000", "0.600000,"))
    return f"{path} has a wrong prediction for img/0.png"


@pytest.mark.parametrize(
    "damage",
    [
        *(_no_predictions, _no_zero_shot, _none_confusing, _other_images, _two_settings, _two_kinds, _only_ensembles),
        *(_chosen_on_validation_images, _no_common_seed, _no_common_epoch, _no_common_dataset),
        _no_probability_of_a_label,
    ],
)
def test_unsuitable_runs_are_refused(tree: Path, damage: Callable[[Path], str]) -> None:
    words = damage(tree)
    with pytest.raises(UserError) as raised:
        make("--runs", tree)
    assert words in str(raised.value)


def test_invalid_arguments_are_refused(tree: Path) -> None:
    for flag, value in (("--gap", "0"), ("--datasets-gap", "1.5"), ("--curves", "Gamma")):
        with pytest.raises(UserError, match=flag):
            make("--runs", tree, flag, value)


def test_other_kinds_of_runs_are_left_out(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = make("--runs", tree)[0].data
    folder = write_run(tree, "other", "Alpha", "base", [], LOSS="ce", N_CTX=4)
    pd.testing.assert_frame_equal(make("--runs", tree)[0].data, before)
    assert f"Left out: {folder}: TRAINER.COCOAMIX.N_CTX is 4" in capsys.readouterr().err


def test_the_newest_of_several_runs_of_a_loss_counts(tree: Path) -> None:
    wrong = [
        (f"img/{n}.png", label, "none", 0.9, 0.1)
        for n, label in enumerate(table(tree, "Alpha", "ZeroshotCLIP/tiny")["label"])
    ]
    for config, written in (("a", 2e9), ("z", 1e9)):
        predictions = wrong if written == 2e9 else [(image, label, label, 0.9, 0.9) for image, label, *_ in wrong]
        folder = write_run(tree, config, "Alpha", "base", predictions, LOSS="ce", epoch=30, accuracy=written / 1e8)
        os.utime(folder / "results.json", (written, written))
    curves = make("--runs", tree)[0].data
    (own,) = curves[curves[["loss", "epoch", "seed", "images"]].eq(["CE", 30, 1, "all"]).all(axis=1)]["accuracy"]
    assert own == 0


@pytest.mark.parametrize("protocol", [{"backbone": "other"}, {"partition": "random:1"}])
@pytest.mark.parametrize("subset", ["base", "new"])
def test_zero_shot_run_has_the_protocol_of_the_prompts(tree: Path, protocol: dict[str, str], subset: str) -> None:
    before = [drawing.data for drawing in make("--runs", tree)]
    guessed = [(f"img/{n}.png", "c0", "c1", 0.5, 0.4) for n in range(IMAGES)]
    other = write_run(tree, "zz", "Alpha", subset, guessed, accuracy=1.0, protocol=protocol)  # the newest
    for drawing, data in zip(make("--runs", tree), before, strict=True):
        pd.testing.assert_frame_equal(drawing.data, data)
    shutil.rmtree(only(tree, f"**/test_{subset}/Alpha/shots_4/ZeroshotCLIP/tiny"))
    with pytest.raises(UserError) as raised:
        make("--runs", tree)
    assert f"{next(iter(protocol))} is {next(iter(protocol.values()))} in {other}" in str(raised.value)


def test_an_equal_zero_shot_run_without_predictions_does_not_count(tree: Path) -> None:
    before = make("--runs", tree)[0].data
    (write_run(tree, "zz", "Alpha", "base", []) / "predictions.csv").unlink()
    pd.testing.assert_frame_equal(make("--runs", tree)[0].data, before)


# ---------------------------------------------------------------------- from a plan


def test_only_the_needed_part_of_a_plan_is_run(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First the dataset of the curves with its epochs, then the other datasets without them."""
    asked = []

    def find_source(args: argparse.Namespace, plans: Plans) -> Source:
        asked.append((args.datasets, plans.synthetic.methods))
        return Source((tree,))

    monkeypatch.setattr(confusing.source, "find_source", find_source)
    make("--losses", "ce", "ce+coa")
    (first, with_epochs), (others, without) = asked
    assert (first, others) == (["texture_colour"], [])
    assert without == ("CLIP", "CE", "CE + CoA")
    assert set(with_epochs) == {name for name in with_epochs if name.split(",")[0] in without} > set(without)
