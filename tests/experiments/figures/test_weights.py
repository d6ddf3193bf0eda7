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
from PIL import Image
from torch import Tensor

from benchmarks.plain import PlainPrompts
from cocoamix.clip import FrozenCLIP, load_clip
from cocoamix.clip.backbones import BACKBONES
from cocoamix.errors import UserError
from cocoamix.experiments.figures import add_arguments, weights
from cocoamix.experiments.figures.style import Drawing, Style
from cocoamix.parser import Parser
from tests.clip.test_model import original
from tests.conftest import CLASSES, Run, Runner
from tests.trainers import kinds

Array = np.ndarray[Any, Any]
# Whole epochs in one batch, so that the steps of a training show all its images.
BASE = [*("DATASET.NUM_SHOTS", "4", "DATASET.SUBSAMPLE_CLASSES", "base", "DATALOADER.TRAIN_X.BATCH_SIZE", "20")]
BASE += [*("OPTIM.NAME", "adam", "OPTIM.LR", "0.02", "OPTIM.WARMUP_EPOCH", "0", "OPTIM.MAX_EPOCH", "2")]
MIX = {"N_CTX": 2, "WEIGHT_LR": 2.0}
KINDS: dict[str, dict[str, object]] = {
    "one stage": {"STAGE": "one"},
    "two stages": {"STAGE": "two", "WEIGHT_EPOCHS": 2},
    "held-out": {"STAGE": "two", "WEIGHT_FIT": "heldout", "WEIGHT_EPOCHS": 2},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[FrozenCLIP, str]:
    """A model with highly asymmetric weights and its own temperature, and its file."""
    file = str(tmp_path_factory.mktemp("weights") / "3.pt")
    torch.save(original(BACKBONES["tiny"].sizes, 3).state_dict(), file)
    clip = load_clip("tiny", file, precision="fp32")
    assert 20 < clip.logit_scale < 30  # not 100, which it might be confused with
    return clip, file


def train(run: Runner, model: tuple[FrozenCLIP, str], name: str = "run", **mix: object) -> Run:
    keys = [part for key, value in (MIX | mix).items() for part in (f"TRAINER.COCOAMIX.{key}", str(value))]
    done = run(*BASE, "MODEL.BACKBONE.WEIGHTS", model[1], *keys, name=name, trainer="CoCoAMix")
    assert done.status == 0, done.output[-800:]
    return done


def make(*arguments: object) -> Drawing:
    """Return what the command yields for --runs."""
    parser = Parser()
    add_arguments(parser)
    (drawing,) = weights.make(parser.parse_args(["weights", "--runs", *map(str, arguments)]))
    return drawing


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
    assert tuple(rows["pi"]) == weights.GRID
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
    steps = kinds.watch_steps(monkeypatch)
    done, (clip, _) = train(run, model, **KINDS[kind]), model
    before = {path: path.read_bytes() for path in done.folder.rglob("*") if path.is_file()}
    drawing = make(done.folder)
    assert {path: path.read_bytes() for path in done.folder.rglob("*") if path.is_file()} == before
    curves = dict(list(drawing.data.groupby("images")))
    names, (context,) = CLASSES[:5], [value for name, value in steps[-1].after.items() if name.endswith(".ctx")][:1]

    def sides(batch: Tensor) -> tuple[Tensor, Tensor]:
        texts = (
            clip.encode_texts([f"a photo of a {name}." for name in names]),
            PlainPrompts(clip, names, context).encode(),
        )
        hand_crafted, learned = (batch.double() @ text.detach().double().t() for text in texts)
        return hand_crafted, learned

    split = json.loads((data_root / "eurosat" / "split_zhou_EuroSAT.json").read_text())
    items = [(name, label) for name, label, _ in split["test"] if label < 5]
    opened = [Image.open(data_root / "eurosat" / "2750" / name).convert("RGB") for name, _ in items]
    pixels, labels = torch.stack([clip.transform(image) for image in opened]), torch.tensor([y for _, y in items])
    assert_curves(curves["test"], sides(clip.encode_image(pixels)), labels, clip.logit_scale)
    # Folds hold out images; their steps show no others.
    seen = [step for step in steps if step.phase.name != "fold"]
    views = {step.inputs.sum().item(): step for step in seen}.values()  # a second stage may show a view again
    features, labels = torch.cat([step.inputs for step in views]), torch.cat([step.labels for step in views])
    assert_curves(curves["training"], sides(features), labels, clip.logit_scale)

    inside = float(steps[-1].after["coa_weights.inside"])
    pi_in = 1 / (1 + clip.logit_scale / math.exp(inside)) if kind == "one stage" else 1 / (1 + math.exp(-inside))
    about = drawing.data[["dataset", "kind", "shots", "seed"]].drop_duplicates().to_numpy().tolist()
    assert about == [["EuroSAT", kind, 4, 1]]
    assert drawing.data["pi_in"].to_numpy() == pytest.approx(pi_in, abs=1e-6)
    if kind == "held-out":
        assert curves["held-out"][["pi", "nll"]].to_numpy().tolist() == done.results["heldout"]["curve"]
    lines = [list(line.get_ydata()) for axes in drawing.draw(Style()).axes for line in axes.lines]
    drawn = [list(curves[images][metric]) for images in ("training", "test") for metric in ("accuracy", "nll", "ece")]
    assert all(line in lines for line in drawn)


def test_runs_without_learned_weights_are_refused(run: Runner, model: tuple[FrozenCLIP, str]) -> None:
    folder = train(run, model, ENSEMBLE="uniform").folder
    with pytest.raises(UserError, match=str(folder)):
        make(folder)


def test_data_may_move_but_not_change(run: Runner, model: tuple[FrozenCLIP, str], data_root: Path) -> None:
    folder = train(run, model).folder
    moved = data_root.with_name("moved")
    data_root.rename(moved)
    assert len(make(folder, "--root", moved).data)
    split = moved / "eurosat" / "split_zhou_EuroSAT.json"
    content = json.loads(split.read_text())
    split.write_text(json.dumps(content | {"test": content["test"][1:]}))
    with pytest.raises(UserError, match="EuroSAT"):
        make(folder, "--root", moved)
