"""`scorecam`: its maps against our own ScoreCAM, its images, its passes through the tower, and bad input."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

import cocoamix
from cocoamix import compat
from cocoamix.clip import FrozenCLIP
from cocoamix.clip.backbones import BACKBONES
from cocoamix.errors import UserError
from cocoamix.experiments.figures import add_arguments, scorecam
from cocoamix.experiments.figures.style import Drawing, Style
from cocoamix.parser import Parser
from tests.clip.test_model import original
from tests.conftest import CLASSES, Run, Runner

try:
    compat.import_grad_cam()
except ImportError as error:
    pytest.skip(f"grad-cam does not import: {error}", allow_module_level=True)

FEW = ["DATASET.NUM_SHOTS", "2", "DATASET.SUBSAMPLE_CLASSES", "base", "OPTIM.MAX_EPOCH", "2", "OPTIM.LR", "0.5"]
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A ViT whose weights are far from symmetric."""
    file = tmp_path_factory.mktemp("weights") / "vit.pt"
    torch.save(original(BACKBONES["tiny"].sizes, 3).state_dict(), file)
    return str(file)


@pytest.fixture
def train(run: Runner, weights: str) -> Callable[..., Run]:
    def trained(trainer: str, *extra: str, name: str = "", flags: tuple[str, ...] = ()) -> Run:
        done = run(*flags, *FEW, "MODEL.BACKBONE.WEIGHTS", weights, *extra, name=name or trainer, trainer=trainer)
        assert done.status == 0, done.output[-800:]
        return done

    return trained


def make(*arguments: object) -> Drawing:
    """Return what the figure yields."""
    parser = Parser()
    add_arguments(parser)
    (drawing,) = scorecam.make(parser.parse_args(["scorecam", *map(str, arguments)]))
    return drawing


def paths_of(data: Path, *labels: int) -> list[str]:
    """Return the first test image of some classes."""
    split = json.loads((data / "eurosat" / "split_zhou_EuroSAT.json").read_text())["test"]
    return [str(data / "eurosat" / "2750" / next(p for p, at, _ in split if at == label)) for label in labels]


# ---------------------------------------------------------------------- by hand


def vit_by_hand(clip: FrozenCLIP, image: Tensor) -> Tensor:
    """Return the (channels, side, side) patches before the last attention, by OpenAI's own forward pass."""
    found: list[Tensor] = []
    visual: Any = clip.visual
    handle = visual.transformer.resblocks[-1].ln_1.register_forward_hook(lambda *call: found.append(call[2]))
    visual(image)
    handle.remove()
    (tokens,) = found
    assert tokens.shape[1] == 1  # (L, N, D)
    side = round((len(tokens) - 1) ** 0.5)
    return tokens[1:, 0].t().reshape(-1, side, side)


@torch.no_grad()
def score_cam(score: Callable[[Tensor], Tensor], activations: Tensor, image: Tensor, target: int) -> Array:
    """Mask the image by one channel at a time; weight the channels by the softmax of the remaining score."""
    hidden = []
    for channel in activations:
        mask = F.interpolate(channel[None, None], image.shape[-2:], mode="bilinear", align_corners=True)
        hidden.append(image[0] * (mask[0] - mask.min()) / (mask.max() - mask.min() + 1e-8))
    weights = score(torch.stack(hidden))[:, target].double().softmax(dim=0)
    found = torch.einsum("k,khw->hw", weights, activations.double()).clamp(min=0)
    found = found - found.min()
    return (found / (found.max() + 1e-7)).numpy()


@pytest.mark.parametrize(
    ("trainer", "settings"),
    [
        ("CoOp", ()),
        ("CoCoAMix", ("TRAINER.COCOAMIX.N_CTX", "2")),
        ("MaPLe", ("TRAINER.MAPLE.PROMPT_DEPTH", "2")),  # its own tower
        ("CoCoOp", ("TRAINER.COCOOP.N_CTX", "2")),  # its own text features for every image
        ("DePT", ()),  # reads the length of image features
    ],
)
def test_maps_match_manual_calculation(
    train: Callable[..., Run], data_root: Path, trainer: str, settings: tuple[str, ...]
) -> None:
    """By hand from the trainer's own logits and, for MaPLe, from the patches next to its prompts."""
    folder, (path,) = train(trainer, *settings).folder, paths_of(data_root, 2)
    data = make("--runs", folder, "--images", path).data
    trained = cocoamix.load(folder)
    clip, own = trained.model.clip.each()[0], trained.classifier
    with Image.open(path) as file:
        image = clip.transform(file.convert("RGB"))[None]
    with torch.no_grad():
        _, activations = clip.encode_image_watched(image, own.vision_prompts)
        same = torch.allclose(activations[0], vit_by_hand(clip, image), atol=1e-4)
        assert same == (not own.vision_prompts)
    row, (predicted,) = data.iloc[0], trained.predict(path)
    assert row["predicted"] == predicted
    assert row["probability"] == pytest.approx(float(trained.probabilities(path).max()), abs=1e-5)
    index = trained.classes.index(predicted)
    wanted = score_cam(lambda images: own.logits(own.encode(images)).softmax(dim=1), activations[0], image, index)
    values = data.pivot(index="row", columns="column", values="value").to_numpy()
    np.testing.assert_allclose(values, wanted, atol=1e-3)


def test_methods_share_the_passes_of_a_frozen_tower(
    train: Callable[..., Run], data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [train("CoOp").folder, train("CoCoAMix", "TRAINER.COCOAMIX.N_CTX", "2").folder]
    encoded, watched = [], FrozenCLIP.encode_image_watched

    def count(self: FrozenCLIP, pixels: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        encoded.append(len(pixels))
        return watched(self, pixels, *rest)

    monkeypatch.setattr(FrozenCLIP, "encode_image_watched", count)
    make("--runs", *folders, "--images", *paths_of(data_root, 1, 4))
    assert sum(encoded) == 2 * (128 + 2)  # each image masked by each of 128 channels, and unmasked for each method


# ---------------------------------------------------------------------- images and the figure


def test_images_are_chosen_evenly_from_both_halves(train: Callable[..., Run], data_root: Path) -> None:
    """Evenly spaced classes of both halves, each compared within its half, also if the data has moved."""
    folders = [train("CoOp", name=f"seed{seed}", flags=("--seed", seed)).folder for seed in ("1", "2")]
    moved = data_root.with_name("moved")
    data_root.rename(moved)
    drawing = make("--runs", *folders, "--root", moved)
    data = drawing.data
    split = json.loads((moved / "eurosat" / "split_zhou_EuroSAT.json").read_text())["test"]
    first = {label: path for path, label, _ in reversed(split)}
    wanted = [[first[at], "base" if at < 5 else "new", CLASSES[at]] for at in (0, 2, 4, 5, 7, 9)]
    assert data[["image", "part", "label"]].drop_duplicates().to_numpy().tolist() == wanted
    assert set(data[data["part"] == "base"]["predicted"]) <= set(CLASSES[:5])
    assert set(data[data["part"] == "new"]["predicted"]) <= set(CLASSES[5:])
    assert list(data["method"].unique()) == ["CoOp (seed1)", "CoOp (seed2)"]

    panels = drawing.draw(Style()).axes
    assert len(panels) == 6 * 3
    marks = [axes.get_xlabel()[0] for axes in panels]
    rights = int(data.drop_duplicates(["image", "method"])["right"].sum())
    assert (marks.count("\u2713"), marks.count("\u2717")) == (rights, 12 - rights)


def test_folders_name_the_classes_of_images(
    train: Callable[..., Run], data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, pixels = train("CoOp").folder, tmp_path / "mine"
    for number in range(2):
        (pixels / CLASSES[number]).mkdir(parents=True)
        with Image.open(paths_of(data_root, number)[0]) as image:
            image.save(pixels / CLASSES[number] / f"{number}.png")
    data = make("--runs", folder, "--images", pixels).data
    assert data["image"].nunique() == 2
    assert (data["label"] == [Path(image).parent.name for image in data["image"]]).all()
    assert (data["right"] == (data["label"] == data["predicted"])).all()
    monkeypatch.setitem(sys.modules, "pytorch_grad_cam", None)
    with pytest.raises(UserError, match="requirements-cam"):
        make("--runs", folder)
