"""`cocoamix figures weights`: its numbers recomputed from features, its files, and errors for bad input."""

from __future__ import annotations

import csv
import json
import math
import shutil
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from cocoamix.clip import FrozenCLIP, load_clip
from cocoamix.clip.backbones import BACKBONES
from cocoamix.figures.command import main
from cocoamix.figures.weights import STEM
from cocoamix.figures.weights.over_pi import COLUMNS, GRID
from cocoamix.io import checkpoints
from tests.clip.test_model import original
from tests.conftest import CLASSES, Run, Runner
from tests.trainers import by_hand

MIX = {"trainer": "CoCoAMix"}
# Whole epochs in one batch, so that the steps of a training show all its images.
BASE = [*("DATASET.NUM_SHOTS", "4", "DATASET.SUBSAMPLE_CLASSES", "base", "DATALOADER.TRAIN_X.BATCH_SIZE", "20")]
BASE += [*("OPTIM.NAME", "adam", "OPTIM.LR", "0.02", "OPTIM.WARMUP_EPOCH", "0", "OPTIM.MAX_EPOCH", "2")]
FIGURES = [f"{STEM}{colours}.{kind}" for colours in ("", "-dark") for kind in ("svg", "png")]
KINDS: dict[str, dict[str, object]] = {
    "one stage": {"STAGE": "one"},
    "two stages": {"STAGE": "two", "WEIGHT_EPOCHS": 2},
    "held-out": {"STAGE": "two", "WEIGHT_FIT": "heldout", "WEIGHT_EPOCHS": 2},
}


def keys(**values: object) -> list[str]:
    return [part for key, value in values.items() for part in (f"TRAINER.COCOAMIX.{key}", str(value))]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[FrozenCLIP, str]:
    """A model with highly asymmetric weights and its own temperature, and its file."""
    file = str(tmp_path_factory.mktemp("weights") / "3.pt")
    torch.save(original(BACKBONES["tiny"].sizes, 3).state_dict(), file)
    clip = load_clip("tiny", file, precision="fp32")
    assert 20 < clip.logit_scale < 30  # not 100, which it might be confused with
    return clip, file


def train(run: Runner, model: tuple[FrozenCLIP, str], kind: str = "one stage", *extra: str, name: str = "run") -> Run:
    settings = [*BASE, "MODEL.BACKBONE.WEIGHTS", model[1], *keys(N_CTX=2, WEIGHT_LR=2.0, **KINDS[kind])]
    done = run(*settings, *extra, name=name, **MIX)
    assert done.status == 0, done.output[-800:]
    return done


def read(folder: Path) -> dict[str, list[dict[str, str]]]:
    """Return the lines of the table for each set of images."""
    with (folder / f"{STEM}.csv").open() as file:
        reader = csv.DictReader(file)
        assert tuple(reader.fieldnames or ()) == COLUMNS
        rows = list(reader)
    return {
        images: [row for row in rows if row["images"] == images] for images in dict.fromkeys(r["images"] for r in rows)
    }


Array = np.ndarray[Any, Any]


def log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return cast(Array, shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def cross_entropy(logits: Array, labels: Array) -> float:
    return -float(log_softmax(logits)[np.arange(len(logits)), labels].mean())


def measure(logits: Array, labels: Array) -> tuple[float, float, float]:
    """Return accuracy, NLL and ECE of logits, computed with numpy."""
    p = np.exp(log_softmax(logits))
    right, sure = p.argmax(axis=1) == labels, p.max(axis=1)
    gap = 0.0
    for low in range(15):
        inside = (sure > low / 15) & (sure <= (low + 1) / 15)
        gap += abs(float(right[inside].sum() - sure[inside].sum()))
    return 100 * float(right.mean()), cross_entropy(logits, labels), 100 * gap / len(p)


def assert_curves(rows: list[dict[str, str]], sides: tuple[Tensor, Tensor], labels: Tensor, scale: float) -> None:
    """Compare a set of images with s_0/tau and s_1/tau mixed by hand, and the best pi with a search."""
    hand_crafted, learned = (side.detach().double().numpy() for side in sides)
    answers = labels.numpy()
    assert [float(row["pi"]) for row in rows] == list(GRID)
    for row, pi in zip(rows, GRID, strict=True):
        wanted = measure(scale * ((1 - pi) * hand_crafted + pi * learned), answers)
        assert [float(row[key]) for key in ("accuracy", "nll", "ece")] == pytest.approx(wanted, rel=1e-3, abs=1e-3)
        if pi == 1:
            assert row["one_stage_nll"] == row["one_stage_ece"] == ""
            continue
        # tau_0 is CLIP's, and tau_1 the one that gives this pi.
        inverse = scale * pi / (1 - pi)
        _, nll, ece = measure(scale * hand_crafted + inverse * learned, answers)
        assert [float(row[key]) for key in ("one_stage_nll", "one_stage_ece")] == pytest.approx(
            (nll, ece), rel=1e-3, abs=1e-3
        )
    fine = np.linspace(0, 0.998, 500)
    plain = [cross_entropy(scale * ((1 - pi) * hand_crafted + pi * learned), answers) for pi in fine]
    scaled = [cross_entropy(scale * (hand_crafted + pi / (1 - pi) * learned), answers) for pi in fine]
    for key, values in (("lowest_pi", plain), ("one_stage_lowest_pi", scaled)):
        (found,) = {float(row[key]) for row in rows}
        assert found == pytest.approx(fine[int(np.argmin(values))], abs=4e-3)


@pytest.mark.parametrize("kind", list(KINDS))
def test_numbers_match_manual_calculation(
    run: Runner,
    model: tuple[FrozenCLIP, str],
    data_root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    kind: str,
) -> None:
    """Test images from their pixels; training images as in the steps that trained the weights."""
    steps = by_hand.watch_steps(monkeypatch, lambda trainer: None)
    done, (clip, _), out = train(run, model, kind), model, tmp_path / "out"
    before = {path: path.read_bytes() for path in done.folder.rglob("*") if path.is_file()}
    assert main(["weights", "--runs", str(done.folder), "--output", str(out)]) == 0
    assert {path: path.read_bytes() for path in done.folder.rglob("*") if path.is_file()} == before
    printed, found = capfd.readouterr().out.splitlines(), read(out)
    names, (context,) = CLASSES[:5], [value for name, value in steps[-1].after.items() if name.endswith(".ctx")][:1]

    def sides(batch: Tensor) -> tuple[Tensor, Tensor]:
        return by_hand.hand_crafted([clip], [batch], names), by_hand.learned([clip], [batch], names, [context])

    pixels, labels = by_hand.read_test_images(data_root, range(5))
    assert_curves(found["test"], sides(clip.encode_image(pixels)), labels, clip.logit_scale)
    # Folds hold out images; their steps show no others.
    seen = [step for step in steps if step.phase != "fold"]
    views = {step.features.sum().item(): step for step in seen}.values()  # a second stage may show a view again
    features, labels = torch.cat([step.features for step in views]), torch.cat([step.labels for step in views])
    assert len(features) in (40, 80)  # two epochs of 20 images, or two more of a second stage
    assert_curves(found["training"], sides(features), labels, clip.logit_scale)

    inside = float(steps[-1].after["coa_weights.inside"])
    pi_in = 1 / (1 + clip.logit_scale / math.exp(inside)) if kind == "one stage" else 1 / (1 + math.exp(-inside))
    assert abs(pi_in - 0.5) > 0.01
    rows = [row for part in found.values() for row in part]
    assert [float(one) for one in {row["pi_in"] for row in rows}] == [pytest.approx(pi_in, abs=1e-6)]
    assert {(row["dataset"], row["kind"], row["shots"], row["seed"]) for row in rows} == {("EuroSAT", kind, "4", "1")}
    if kind == "held-out":
        heldout = done.results["heldout"]
        assert [[float(row["pi"]), float(row["nll"])] for row in found["held-out"]] == heldout["curve"]
        assert heldout["pi_in"] == pytest.approx(pi_in, abs=1e-6)
    else:
        assert set(found) == {"training", "test"}

    assert len(printed) == 2
    name = "held-out" if kind == "held-out" else "learned"
    assert printed[0].startswith(f"{done.folder} (EuroSAT, {kind}, seed 1): the {name} pi^in is {pi_in:.2f}; ")
    plain, scaled = (
        [f"{float(found[images][0][key]):.2f}" for images in ("training", "test")]
        for key in ("lowest_pi", "one_stage_lowest_pi")
    )
    assert f"lowest at pi {plain[0]} on training images and {plain[1]} on test images at CLIP's" in printed[0]
    assert f"and at {scaled[0]} and {scaled[1]} with the scale" in printed[0]
    assert printed[1] == f"Written to {out}: {', '.join([f'{STEM}.csv', f'{STEM}.txt', *FIGURES])}"
    assert sorted(path.name for path in out.iterdir()) == sorted([f"{STEM}.csv", f"{STEM}.txt", *FIGURES])
    assert f"πⁱⁿ {pi_in:.2f}" in (out / f"{STEM}.svg").read_text()


def test_only_the_last_views_of_a_long_training_are_used(
    run: Runner, model: tuple[FrozenCLIP, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps = by_hand.watch_steps(monkeypatch, lambda trainer: None)
    monkeypatch.setattr("cocoamix.figures.weights.over_pi._VIEWS", 1)
    done, clip = train(run, model), model[0]
    assert main(["weights", "--runs", str(done.folder), "--output", str(tmp_path / "out")]) == 0
    first, last = (
        cross_entropy(
            clip.logit_scale * by_hand.hand_crafted([clip], [step.features], CLASSES[:5]).numpy(), step.labels.numpy()
        )
        for step in steps
    )
    row = read(tmp_path / "out")["training"][0]
    assert float(row["nll"]) == pytest.approx(last, rel=1e-4)
    assert first != pytest.approx(last, rel=1e-3)


def test_an_evaluation_folder_finds_its_training(run: Runner, model: tuple[FrozenCLIP, str], tmp_path: Path) -> None:
    """For new classes, in another folder and of an earlier epoch: the curves are of the base classes, at that epoch."""
    trained = train(run, model, "one stage", "TRAIN.CHECKPOINT_FREQ", "1", name="trained")
    settings = ["new" if part == "base" else part for part in BASE]
    settings += ["MODEL.BACKBONE.WEIGHTS", model[1], *keys(N_CTX=2)]
    outs = []
    for epoch in ("1", "2"):
        flags = ["--eval-only", "--model-dir", str(trained.folder), "--load-epoch", epoch]
        done = run(*flags, *settings, name=f"new{epoch}", **MIX)
        assert done.results["subset"] == "new"
        outs.append(tmp_path / f"out{epoch}")
        assert main(["weights", "--runs", str(done.folder), "--output", str(outs[-1])]) == 0
    assert main(["weights", "--runs", str(trained.folder), "--output", str(tmp_path / "out")]) == 0

    def numbers(folder: Path) -> list[list[str]]:
        return [list(row.values())[1:] for rows in read(folder).values() for row in rows]

    assert numbers(outs[1]) == numbers(tmp_path / "out")
    assert numbers(outs[0]) != numbers(tmp_path / "out")


def test_curve_contains_the_evaluation_of_the_run(run: Runner, model: tuple[FrozenCLIP, str], tmp_path: Path) -> None:
    """If pi^in is on the grid, the evaluation of the run itself is a point of its curve."""
    for kind in ("one stage", "two stages"):
        trained = train(run, model, kind, name=kind)
        (file,) = (trained.folder / "coa_weights").glob("model.pth.tar-*")
        content, odds = checkpoints.load(file), math.log(0.3 / 0.7)
        start = math.log(model[0].logit_scale) if kind == "one stage" else 0.0
        content["state_dict"]["inside"] = torch.tensor([start + odds])
        checkpoints.save(file, content)
        settings = [*BASE, "MODEL.BACKBONE.WEIGHTS", model[1], *keys(N_CTX=2, **KINDS[kind])]
        done = run("--eval-only", "--model-dir", str(trained.folder), *settings, name=f"{kind} again", **MIX)
        assert main(["weights", "--runs", str(done.folder), "--output", str(tmp_path / kind)]) == 0
        (row,) = (row for row in read(tmp_path / kind)["test"] if row["pi"] == "0.3")
        metrics, prefix = done.results["metrics"], "one_stage_" if kind == "one stage" else ""
        assert float(row["pi_in"]) == pytest.approx(0.3, abs=1e-6)
        assert float(row["accuracy"]) == pytest.approx(metrics["accuracy"])
        assert float(row[f"{prefix}nll"]) == pytest.approx(metrics["nll"], rel=1e-4)
        assert float(row[f"{prefix}ece"]) == pytest.approx(metrics["ece"], rel=1e-3)


def test_runs_without_a_store_and_more_than_four_runs_are_drawn(
    run: Runner, model: tuple[FrozenCLIP, str], tmp_path: Path
) -> None:
    """Re-encoded images give the same result; the fifth run starts a second figure."""
    stored = train(run, model, name="stored")
    fresh = train(run, model, "one stage", "CACHE.MODE", "off", name="fresh")
    out = tmp_path / "out"
    runs = [str(stored.folder), str(fresh.folder), *[str(stored.folder)] * 3]
    assert main(["weights", "--runs", *runs, "--output", str(out)]) == 0
    rows = read(out)
    for images in ("training", "test"):
        one, other = (
            [row for row in rows[images] if row["run"] == str(done.folder)][: len(GRID)] for done in (stored, fresh)
        )
        for ours, theirs in zip(one, other, strict=True):
            assert float(ours["nll"]) == pytest.approx(float(theirs["nll"]), rel=1e-4)
    assert {path.name for path in out.glob("*.svg")} == {
        f"{STEM}{number}{colours}.svg" for number in ("", "-2") for colours in ("", "-dark")
    }


# ---------------------------------------------------------------------- bad input


def refused(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the error message of the command."""
    capfd.readouterr()
    assert main(["weights", "--runs", *arguments]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_folders_without_a_suitable_run_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out, folder = ["--output", str(tmp_path / "out")], tmp_path / "tree" / "run"
    assert f"There is no folder {folder}. Give the output folder" in refused(capfd, str(folder), *out)
    folder.mkdir(parents=True)
    assert f"There is no run in {folder}. Give the output folder" in refused(capfd, str(folder), *out)
    (folder / "results.json").write_text("{")
    assert f"{folder / 'results.json'} cannot be used" in refused(capfd, str(folder), *out)
    assert f"below it: {folder}." in refused(capfd, str(folder.parent), *out)

    def record(trainer: str, **settings: str) -> None:
        config = {"TRAINER": {"COCOAMIX": settings}}
        results = {"trainer": trainer, "config": config, "metrics": {"accuracy": 50.0}}
        (folder / "results.json").write_text(json.dumps(results))

    record("CoOp")
    assert f"The run in {folder} is a CoOp run. Give" in refused(capfd, str(folder), *out)
    record("CoCoAMixFSCIL")
    assert f"The run in {folder} is a CoCoAMixFSCIL run. Give" in refused(capfd, str(folder), *out)
    for ensemble in ("uniform", "none"):
        record("cocoamix.CoCoAMix", ENSEMBLE=ensemble)
        message = refused(capfd, str(folder), *out)
        assert f"The run in {folder} has no learned weights: its TRAINER.COCOAMIX.ENSEMBLE is {ensemble}." in message
        assert "ENSEMBLE coa" in message
    record("CoCoAMix", ENSEMBLE="coa")
    assert f"{folder} has no checkpoint, and no log.txt" in refused(capfd, str(folder), *out)
    line = 'Loading weights to coa_weights from "elsewhere/coa_weights/model.pth.tar-2" (epoch = 2)\n'
    (folder / "log.txt").write_text(line)
    message = refused(capfd, str(folder), *out)
    assert f"{folder} evaluated elsewhere/coa_weights/model.pth.tar-2, which does not exist." in message
    assert not (tmp_path / "out").exists()


def test_runs_that_cannot_be_drawn_are_refused(
    run: Runner,
    model: tuple[FrozenCLIP, str],
    data_root: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    done, out = train(run, model), ["--output", str(tmp_path / "out")]
    folder = str(done.folder)
    unfinished = tmp_path / "unfinished"
    shutil.copytree(done.folder, unfinished)
    (unfinished / "results.json").unlink()
    message = refused(capfd, folder, str(unfinished), *out)  # before the other one is computed
    assert f"The run in {unfinished} is not finished: it has no results.json. Start its command again" in message

    (tmp_path / "file").write_text("")
    assert "cannot be written" in refused(capfd, folder, "--output", str(tmp_path / "file"))

    moved = data_root.with_name("moved")
    data_root.rename(moved)
    message = refused(capfd, folder, *out)
    assert f"The run in {folder} cannot be drawn. The data folder {data_root} does not exist. --root is" in message
    assert main(["weights", "--runs", folder, *out, "--root", str(moved)]) == 0

    split = moved / "eurosat" / "split_zhou_EuroSAT.json"
    content = json.loads(split.read_text())
    content["test"] = content["test"][1:]
    split.write_text(json.dumps(content))
    message = refused(capfd, folder, *out, "--root", str(moved))
    assert f"The run in {folder} cannot be drawn. The test images of EuroSAT are not those of the run" in message
