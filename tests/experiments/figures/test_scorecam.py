"""`scorecam`: its maps against our own ScoreCAM, its images, its passes through the tower, and bad input."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

import cocoamix
from cocoamix import compat
from cocoamix.clip import FrozenCLIP, load_clip
from cocoamix.clip.backbones import BACKBONES, Backbone, Sizes
from cocoamix.clip.text_encoder import TextEncoder
from cocoamix.errors import UserError
from cocoamix.experiments.figures import scorecam
from cocoamix.experiments.figures.catalogue import FIGURES, add_arguments
from cocoamix.experiments.figures.style import Drawing, Style
from cocoamix.parser import Parser
from cocoamix.predict.linear import find_linear
from tests.clip.test_model import original
from tests.conftest import CLASSES, Run, Runner

try:
    compat.import_grad_cam()
except ImportError as error:
    pytest.skip(f"grad-cam does not import: {error}", allow_module_level=True)

FEW = ["DATASET.NUM_SHOTS", "2", "DATASET.SUBSAMPLE_CLASSES", "base", "OPTIM.MAX_EPOCH", "2", "OPTIM.LR", "0.5"]
SMALL = Sizes(64, 64, (1, 1, 1, 1), 8, None, 64, 2)  # a ResNet of 256 channels on a grid of 2 x 2
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


def make(*arguments: object) -> list[Drawing]:
    """Return what the figure yields."""
    parser = Parser()
    add_arguments(parser, FIGURES["scorecam"])
    return list(scorecam.make(parser.parse_args([str(argument) for argument in arguments])))


def map_in(data: pd.DataFrame, image: str, method: str) -> tuple[Array, Any]:
    """Return the map of an image by a method, and the first of its rows."""
    cells = data[(data["image"] == image) & (data["method"] == method)]
    return cells.pivot(index="row", columns="column", values="value").to_numpy(), cells.iloc[0]


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


def resnet_by_hand(clip: FrozenCLIP, image: Tensor) -> Tensor:
    """Return the (channels, side, side) output of the last stage, stage by stage."""
    visual: Any = clip.visual
    x = image
    for number in (1, 2, 3):
        x = F.relu(getattr(visual, f"bn{number}")(getattr(visual, f"conv{number}")(x)))
    x = visual.avgpool(x)
    for number in (1, 2, 3, 4):
        x = getattr(visual, f"layer{number}")(x)
    return x[0]


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


def prepared(clip: FrozenCLIP, path: str) -> Tensor:
    with Image.open(path) as image:
        return clip.transform(image.convert("RGB"))[None]


def assert_by_hand(
    data: pd.DataFrame, path: str, method: str, folder: Path, clip: FrozenCLIP, explained: str = ""
) -> None:
    """Compare a map with ours, computed from the matrices of an export and the features of OpenAI's tower."""
    classifier = cocoamix.load(folder)
    linear, image = find_linear(classifier), prepared(clip, path)

    def score(images: Tensor) -> Tensor:
        return linear.logits(clip.visual(images)).softmax(dim=1)

    by_hand = resnet_by_hand if clip.sizes.patch is None else vit_by_hand
    with torch.no_grad():
        activations, probabilities = by_hand(clip, image), score(image)[0]
    found, row = map_in(data, path, method)
    assert row["predicted"] == classifier.classes[int(probabilities.argmax())] == classifier.predict(path)[0]
    assert row["probability"] == pytest.approx(float(probabilities.max()), abs=1e-5)
    assert row["explained"] == (explained or row["predicted"])
    wanted = score_cam(score, activations, image, classifier.classes.index(row["explained"]))
    assert wanted.std() > 0.1  # not flat
    np.testing.assert_allclose(found, wanted, atol=1e-3)


def test_vit_maps_match_manual_calculation(
    train: Callable[..., Run], weights: str, data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also: text features are computed once, and methods share the passes of the frozen tower."""
    folders = {
        "CLIP": train("ZeroshotCLIP", flags=("--eval-only",)).folder,
        "CoOp": train("CoOp").folder,
        "CoCoA-Mix": train("CoCoAMix", "TRAINER.COCOAMIX.N_CTX", "2").folder,
    }
    texts, encoded, images = [], [], paths_of(data_root, 1, 4)
    forward, watched = TextEncoder.forward, FrozenCLIP.encode_image_watched

    def count_text(self: TextEncoder, *rest: Any) -> Tensor:
        texts.append(1)
        return forward(self, *rest)

    def count_images(self: FrozenCLIP, pixels: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        encoded.append(len(pixels))
        return watched(self, pixels, *rest)

    monkeypatch.setattr(TextEncoder, "forward", count_text)
    monkeypatch.setattr(FrozenCLIP, "encode_image_watched", count_images)
    runs = ["--runs", *folders.values(), "--images", *images, "--labels", CLASSES[1], CLASSES[4]]
    (drawing,) = make(*runs)
    assert len(texts) == 1 + 1 + 2  # CoCoA-Mix has two prompts
    assert sum(encoded) == 2 * (128 + 3)  # each image masked by each of 128 channels, and unmasked for each method
    monkeypatch.undo()
    clip = load_clip("tiny", weights, source="clip", precision="fp32")
    for path, label in zip(images, (CLASSES[1], CLASSES[4]), strict=True):
        for method, folder in folders.items():
            assert_by_hand(drawing.data, path, method, folder, clip)
            row = map_in(drawing.data, path, method)[1]
            assert (row["label"], row["right"]) == (label, int(row["predicted"] == label))
    assert len(drawing.data) == 2 * 3 * 16
    rights = drawing.data.drop_duplicates(["image", "method"]).groupby("method")["right"].sum()
    assert all(f"{method} {rights[method]}" in drawing.sentence for method in folders)

    monkeypatch.setattr(scorecam, "_BATCH", 50)
    data = make(*runs, "--target", "label")[0].data
    assert (data["predicted"] != data["label"]).any()
    for path, label in zip(images, (CLASSES[1], CLASSES[4]), strict=True):
        assert_by_hand(data, path, "CoOp", folders["CoOp"], clip, label)


def test_resnet_maps_match_manual_calculation(
    train: Callable[..., Run], data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BACKBONES, "small", Backbone(SMALL, "small.pt"))
    file = str(tmp_path / "resnet.pt")
    torch.save(original(SMALL, 5).state_dict(), file)
    settings = ["MODEL.BACKBONE.NAME", "small", "MODEL.BACKBONE.WEIGHTS", file, "INPUT.SIZE", "(64, 64)"]
    folder = train("CoOp", *settings).folder
    images = paths_of(data_root, 0, 3)
    data = make("--runs", folder, "--images", *images)[0].data
    clip = load_clip("small", file, source="clip", precision="fp32")
    for path in images:
        assert_by_hand(data, path, "CoOp", folder, clip)
    assert data["right"].isna().all()  # their classes are not known


@pytest.mark.parametrize(
    ("trainer", "settings"),
    [
        ("MaPLe", ("TRAINER.MAPLE.PROMPT_DEPTH", "2")),  # its own tower
        ("CoCoOp", ("TRAINER.COCOOP.N_CTX", "2")),  # its own text features for every image
        ("DePT", ()),  # reads the length of image features
    ],
)
def test_maps_of_methods_without_a_class_matrix_match_manual_calculation(
    train: Callable[..., Run], data_root: Path, trainer: str, settings: tuple[str, ...]
) -> None:
    """By hand from the trainer's own logits and, for MaPLe, from the patches next to its prompts."""
    folder, (path,) = train(trainer, *settings).folder, paths_of(data_root, 2)
    data = make("--runs", folder, "--images", path)[0].data
    classifier = cocoamix.load(folder)
    own, clip = classifier.trainer, classifier.trainer.clip.each()[0]
    image = prepared(clip, path)
    with torch.no_grad():
        _, activations = clip.encode_image_watched(image, own.vision_prompts())
        same = torch.allclose(activations[0], vit_by_hand(clip, image), atol=1e-4)
        assert same == (not own.vision_prompts())
    found, row = map_in(data, path, data["method"].iloc[0])
    assert row["predicted"] == classifier.predict(path)[0]
    target = classifier.classes.index(row["predicted"])
    wanted = score_cam(lambda images: own.infer(own.encode(images)).softmax(dim=1), activations[0], image, target)
    np.testing.assert_allclose(found, wanted, atol=1e-3)


# ---------------------------------------------------------------------- images and the figure


def test_images_are_chosen_evenly_from_both_halves(train: Callable[..., Run], data_root: Path) -> None:
    """Evenly spaced classes of both halves, each compared within its half, also if the data has moved."""
    folders = [train("CoOp", name=f"seed{seed}", flags=("--seed", seed)).folder for seed in ("1", "2")]
    moved = data_root.with_name("moved")
    data_root.rename(moved)
    (drawing,) = make("--runs", *folders, "--root", moved, "--count", "2")
    data = drawing.data
    split = json.loads((moved / "eurosat" / "split_zhou_EuroSAT.json").read_text())["test"]
    first = {label: path for path, label, _ in reversed(split)}
    wanted = [[first[at], part, CLASSES[at]] for at, part in ((1, "base"), (3, "base"), (6, "new"), (8, "new"))]
    assert data[["image", "part", "label"]].drop_duplicates().to_numpy().tolist() == wanted
    assert set(data[data["part"] == "base"]["predicted"]) <= set(CLASSES[:5])
    assert set(data[data["part"] == "new"]["predicted"]) <= set(CLASSES[5:])
    assert list(data["method"].unique()) == ["CoOp (seed1)", "CoOp (seed2)"]

    panels = drawing.draw(Style()).axes[:-1]  # without the scale
    assert len(panels) == 4 * 3
    marks = [axes.get_xlabel()[0] for axes in panels]
    rights = int(data.drop_duplicates(["image", "method"])["right"].sum())
    assert (marks.count("\u2713"), marks.count("\u2717")) == (rights, 8 - rights)
    values = panels[1].images[1].get_array()  # over the image in grey
    np.testing.assert_allclose(values, map_in(data, first[1], "CoOp (seed1)")[0])


def test_images_with_known_and_unknown_labels(
    train: Callable[..., Run], data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders name the classes of their images; the ninth image starts a second figure."""
    folder, pixels = train("CoOp").folder, tmp_path / "mine"
    for number in range(9):
        place = pixels / CLASSES[number % 5]
        place.mkdir(parents=True, exist_ok=True)
        with Image.open(paths_of(data_root, number)[0]) as image:
            image.save(place / f"{number}.png")
    drawings = make("--runs", folder, "--names", "mine", "--images", pixels)
    assert [drawing.data["image"].nunique() for drawing in drawings] == [8, 1]
    data = pd.concat([drawing.data for drawing in drawings])
    assert (data["label"] == [Path(image).parent.name for image in data["image"]]).all()
    assert set(data["method"]) == {"mine"}
    with pytest.raises(UserError, match="--labels"):
        make("--runs", folder, "--images", pixels, "--labels", "River")
    monkeypatch.setitem(sys.modules, "pytorch_grad_cam", None)
    with pytest.raises(UserError, match="requirements-cam"):
        make("--runs", folder)
