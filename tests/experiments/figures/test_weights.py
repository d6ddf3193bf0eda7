"""`weights`: its numbers recomputed from features, and what it refuses."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from cocoamix.clip import FrozenCLIP, load_clip
from cocoamix.clip.backbones import BACKBONES
from cocoamix.errors import UserError
from cocoamix.experiments.figures import weights
from cocoamix.experiments.figures.style import Drawing, Style
from cocoamix.experiments.figures.weights import GRID
from cocoamix.io import checkpoints
from cocoamix.parser import Parser
from tests.clip.test_model import original
from tests.conftest import CLASSES, Run, Runner
from tests.trainers import by_hand

MIX = {"trainer": "CoCoAMix"}
# Whole epochs in one batch, so that the steps of a training show all its images.
BASE = [*("DATASET.NUM_SHOTS", "4", "DATASET.SUBSAMPLE_CLASSES", "base", "DATALOADER.TRAIN_X.BATCH_SIZE", "20")]
BASE += [*("OPTIM.NAME", "adam", "OPTIM.LR", "0.02", "OPTIM.WARMUP_EPOCH", "0", "OPTIM.MAX_EPOCH", "2")]
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


def make(*folders: Path, root: str = "") -> list[Drawing]:
    """Return what the figure yields."""
    parser = Parser()
    weights.add_arguments(parser)
    arguments = ["--runs", *map(str, folders), *(["--root", root] if root else [])]
    return list(weights.make(parser.parse_args(arguments)))


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


def assert_curves(rows: pd.DataFrame, sides: tuple[Tensor, Tensor], labels: Tensor, scale: float) -> None:
    """Compare a set of images with s_0/tau and s_1/tau mixed by hand, and the best pi with a search."""
    hand_crafted, learned = (side.detach().double().numpy() for side in sides)
    answers = labels.numpy()
    assert tuple(rows["pi"]) == GRID
    for row in rows.itertuples():
        wanted = measure(scale * ((1 - row.pi) * hand_crafted + row.pi * learned), answers)
        assert [row.accuracy, row.nll, row.ece] == pytest.approx(wanted, rel=1e-3, abs=1e-3)
        if row.pi == 1:
            assert math.isnan(row.one_stage_nll)
            continue
        # tau_0 is CLIP's, and tau_1 the one that gives this pi.
        inverse = scale * row.pi / (1 - row.pi)
        _, nll, ece = measure(scale * hand_crafted + inverse * learned, answers)
        assert [row.one_stage_nll, row.one_stage_ece] == pytest.approx((nll, ece), rel=1e-3, abs=1e-3)
    fine = np.linspace(0, 0.998, 500)
    plain = [cross_entropy(scale * ((1 - pi) * hand_crafted + pi * learned), answers) for pi in fine]
    scaled = [cross_entropy(scale * (hand_crafted + pi / (1 - pi) * learned), answers) for pi in fine]
    for key, values in (("lowest_pi", plain), ("one_stage_lowest_pi", scaled)):
        (found,) = rows[key].unique()
        assert found == pytest.approx(fine[int(np.argmin(values))], abs=4e-3)


@pytest.mark.parametrize("kind", list(KINDS))
def test_numbers_match_manual_calculation(
    run: Runner, model: tuple[FrozenCLIP, str], data_root: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Test images from their pixels; training images as in the steps that trained the weights."""
    steps = by_hand.watch_steps(monkeypatch, lambda trainer: None)
    done, (clip, _) = train(run, model, kind), model
    before = {path: path.read_bytes() for path in done.folder.rglob("*") if path.is_file()}
    (drawing,) = make(done.folder)
    assert {path: path.read_bytes() for path in done.folder.rglob("*") if path.is_file()} == before
    found = dict(list(drawing.data.groupby("images")))
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
    ((dataset, stage, shots, seed, weight),) = drawing.data[weights._RUN[1:]].drop_duplicates().to_numpy()
    assert (dataset, stage, shots, seed, weight) == ("EuroSAT", kind, 4, 1, pytest.approx(pi_in, abs=1e-6))
    if kind == "held-out":
        heldout = done.results["heldout"]
        assert found["held-out"][["pi", "nll"]].to_numpy().tolist() == heldout["curve"]
        assert heldout["pi_in"] == pytest.approx(pi_in, abs=1e-6)
    else:
        assert set(found) == {"training", "test"}
    name = "held-out" if kind == "held-out" else "learned"
    assert f"the {name} pi^in is {pi_in:.2f}; " in drawing.sentence
    for key in ("lowest_pi", "one_stage_lowest_pi", "most_accurate_pi"):
        assert all(f"{found[images][key].iloc[0]:.2f}" in drawing.sentence for images in ("training", "test"))

    accuracy, entropy, error = drawing.draw(Style()).axes
    for axes, metric in ((accuracy, "accuracy"), (entropy, "nll"), (error, "ece")):
        lines = [list(line.get_ydata()) for line in axes.lines]
        assert all(list(found[images][metric]) in lines for images in ("training", "test"))
        assert [pi_in, pi_in] in [pytest.approx(list(line.get_xdata()), abs=1e-6) for line in axes.lines]


def test_only_the_last_views_of_a_long_training_are_used(
    run: Runner, model: tuple[FrozenCLIP, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = by_hand.watch_steps(monkeypatch, lambda trainer: None)
    monkeypatch.setattr(weights, "_VIEWS", 1)
    done, clip = train(run, model), model[0]
    (drawing,) = make(done.folder)
    first, last = (
        cross_entropy(
            clip.logit_scale * by_hand.hand_crafted([clip], [step.features], CLASSES[:5]).numpy(), step.labels.numpy()
        )
        for step in steps
    )
    assert drawing.data["nll"].iloc[0] == pytest.approx(last, rel=1e-4)
    assert first != pytest.approx(last, rel=1e-3)


def test_curve_contains_the_evaluation_of_the_run(run: Runner, model: tuple[FrozenCLIP, str]) -> None:
    """If pi^in is on the grid, the evaluation of the run, in a folder of its own, is a point of its curve."""
    for kind in ("one stage", "two stages"):
        trained = train(run, model, kind, name=kind)
        (file,) = (trained.folder / "coa_weights").glob("model.pth.tar-*")
        content, odds = checkpoints.load(file), math.log(0.3 / 0.7)
        start = math.log(model[0].logit_scale) if kind == "one stage" else 0.0
        content["state_dict"]["inside"] = torch.tensor([start + odds])
        checkpoints.save(file, content)
        settings = [*BASE, "MODEL.BACKBONE.WEIGHTS", model[1], *keys(N_CTX=2, **KINDS[kind])]
        done = run("--eval-only", "--model-dir", str(trained.folder), *settings, name=f"{kind} again", **MIX)
        (drawing,) = make(done.folder)
        test = drawing.data[drawing.data["images"] == "test"].set_index("pi")
        metrics, prefix = done.results["metrics"], "one_stage_" if kind == "one stage" else ""
        assert test["pi_in"].iloc[0] == pytest.approx(0.3, abs=1e-6)
        assert test["accuracy"][0.3] == pytest.approx(metrics["accuracy"])
        assert test[f"{prefix}nll"][0.3] == pytest.approx(metrics["nll"], rel=1e-4)
        assert test[f"{prefix}ece"][0.3] == pytest.approx(metrics["ece"], rel=1e-3)


def test_runs_without_a_store_give_the_same_curves(
    run: Runner, model: tuple[FrozenCLIP, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also: runs that do not fit side by side are in a second figure."""
    monkeypatch.setattr(weights, "_NARROWEST", 4.0)
    stored, fresh = train(run, model, name="stored"), train(run, model, "one stage", "CACHE.MODE", "off", name="fresh")
    first, second = make(stored.folder, fresh.folder, stored.folder)
    assert (first.stem, second.stem) == ("weights-over-pi", "weights-over-pi-2")
    np.testing.assert_allclose(first.data["nll"], second.data["nll"], rtol=1e-4)


def test_unsuitable_runs_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()

    def reason(trainer: str, **settings: str) -> str:
        config = {"TRAINER": {"COCOAMIX": settings}}
        results = {"trainer": trainer, "config": config, "metrics": {"accuracy": 50.0}}
        (folder / "results.json").write_text(json.dumps(results))
        with pytest.raises(UserError) as raised:
            make(folder)
        assert str(folder) in str(raised.value)
        return str(raised.value)

    assert "CoOp" in reason("CoOp")
    assert "CoCoAMixFSCIL" in reason("CoCoAMixFSCIL")
    assert "uniform" in reason("cocoamix.CoCoAMix", ENSEMBLE="uniform")
    assert "checkpoint" in reason("CoCoAMix", ENSEMBLE="coa")


def test_data_that_changed_are_refused(run: Runner, model: tuple[FrozenCLIP, str], data_root: Path) -> None:
    folder, moved = train(run, model).folder, data_root.with_name("moved")
    data_root.rename(moved)
    with pytest.raises(UserError, match=str(folder)):
        make(folder)
    assert make(folder, root=str(moved))
    split = moved / "eurosat" / "split_zhou_EuroSAT.json"
    content = json.loads(split.read_text())
    split.write_text(json.dumps(content | {"test": content["test"][1:]}))
    with pytest.raises(UserError, match="test images of EuroSAT"):
        make(folder, root=str(moved))
