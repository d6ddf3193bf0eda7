"""`cocoamix figures scorecam`: its maps against our own ScoreCAM, its images, forward passes, and bad input."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
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
from cocoamix.figures import scorecam, sources
from cocoamix.figures.command import main
from cocoamix.figures.drawn import to_csv
from cocoamix.figures.scorecam import STEM
from cocoamix.figures.scorecam.drawing import overlay
from cocoamix.parser import Parser
from cocoamix.predict.classifier import Classifier
from cocoamix.predict.linear import find_linear
from tests.clip.test_model import original
from tests.conftest import CLASSES, Run, Runner

try:
    compat.import_grad_cam()
except ImportError as error:
    pytest.skip(f"grad-cam does not import: {error}", allow_module_level=True)

FEW = ["DATASET.NUM_SHOTS", "2", "DATASET.SUBSAMPLE_CLASSES", "base", "OPTIM.MAX_EPOCH", "2", "OPTIM.LR", "0.5"]
SMALL = Sizes(64, 64, (1, 1, 1, 1), 8, None, 64, 2)  # a ResNet of 256 channels on a grid of 2 x 2
Row = dict[str, str]


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


def read(path: Path) -> list[Row]:
    with path.open() as file:
        return list(csv.DictReader(file))


def draw(out: Path, *arguments: str) -> list[Row]:
    """Return the data of the figure."""
    assert main(["scorecam", *arguments, "--output", str(out)]) == 0
    return read(out / f"{STEM}.csv")


def compute(*arguments: str) -> list[Row]:
    """Return the data of the figure without drawing it."""
    parser = Parser()
    scorecam.add_arguments(parser)
    (drawn,) = scorecam.make(parser.parse_args(arguments))
    return list(csv.DictReader(to_csv(drawn.columns, drawn.rows).splitlines()))


def maps_in(rows: list[Row]) -> dict[tuple[str, str], np.ndarray[Any, Any]]:
    """Return the maps by image and method."""
    found = {}
    for key in dict.fromkeys((row["image"], row["method"]) for row in rows):
        cells = [row for row in rows if (row["image"], row["method"]) == key]
        values = np.empty((int(cells[-1]["row"]), int(cells[-1]["column"])))
        for row in cells:
            values[int(row["row"]) - 1, int(row["column"]) - 1] = float(row["value"])
        found[key] = values
    return found


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
def score_cam(
    score: Callable[[Tensor], Tensor], activations: Tensor, image: Tensor, target: int
) -> np.ndarray[Any, Any]:
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


def assert_by_hand(rows: list[Row], path: str, method: str, folder: Path, clip: FrozenCLIP, target: str = "") -> None:
    """Compare a map with ours, computed from the matrices of an export and the features of OpenAI's tower."""
    classifier = cocoamix.load(folder)
    linear, image = find_linear(classifier), prepared(clip, path)

    def score(images: Tensor) -> Tensor:
        return linear.logits(clip.visual(images)).softmax(dim=1)

    by_hand = resnet_by_hand if clip.sizes.patch is None else vit_by_hand
    with torch.no_grad():
        activations, probabilities = by_hand(clip, image), score(image)[0]
    row = next(row for row in rows if (row["image"], row["method"]) == (path, method))
    assert row["predicted"] == classifier.classes[int(probabilities.argmax())] == classifier.predict(path)[0]
    assert float(row["probability"]) == pytest.approx(float(probabilities.max()), abs=1e-5)
    assert row["explained"] == (target or row["predicted"])
    wanted = score_cam(score, activations, image, classifier.classes.index(row["explained"]))
    assert wanted.std() > 0.1  # not flat
    np.testing.assert_allclose(maps_in(rows)[path, method], wanted, atol=1e-3)


def test_vit_maps_match_manual_calculation(
    train: Callable[..., Run], weights: str, data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also: text features are computed once, and methods share the passes of the frozen tower."""
    folders = {
        "CLIP": train("ZeroshotCLIP", flags=("--eval-only",)).folder,
        "CoOp": train("CoOp").folder,
        "CoCoA-Mix": train("CoCoAMix", "TRAINER.COCOAMIX.N_CTX", "2").folder,
    }
    texts, encoded, images = [], [], paths_of(data_root, 1, 4)
    forward, watched = TextEncoder.forward, FrozenCLIP.encode_image_watched

    def count_text(self: TextEncoder, *given: Any) -> Tensor:
        texts.append(1)
        return forward(self, *given)

    def count_images(self: FrozenCLIP, given: Tensor, *more: Any) -> tuple[Tensor, Tensor]:
        encoded.append(len(given))
        return watched(self, given, *more)

    monkeypatch.setattr(TextEncoder, "forward", count_text)
    monkeypatch.setattr(FrozenCLIP, "encode_image_watched", count_images)
    named = ["--images", *images, "--labels", CLASSES[1], CLASSES[4].upper()]
    runs = ["--runs", *map(str, folders.values()), *named]
    rows = compute(*runs)
    assert len(texts) == 1 + 1 + 2  # CoCoA-Mix has two prompts
    assert sum(encoded) == 2 * (128 + 3)  # each image masked by each of 128 channels, and unmasked for each method
    monkeypatch.undo()
    clip = load_clip("tiny", weights, source="clip", precision="fp32")
    for path, label in zip(images, (CLASSES[1], CLASSES[4]), strict=True):
        for method, folder in folders.items():
            assert_by_hand(rows, path, method, folder, clip)
            row = next(row for row in rows if (row["image"], row["method"]) == (path, method))
            assert (row["label"], row["right"]) == (label, str(int(row["predicted"] == label)))
    assert len(rows) == 2 * 3 * 16
    maps = maps_in(rows)
    assert any(np.abs(maps[path, "CoOp"] - maps[path, "CLIP"]).max() > 1e-3 for path in images)

    # In other batches, and for the true class of the image.
    for size in ("1", "50"):
        again = maps_in(compute(*runs, "--batch-size", size))
        for key, values in maps.items():
            np.testing.assert_allclose(again[key], values, atol=1e-4)
    rows = compute(*runs, "--target", "label")
    wrong = [row for row in rows if row["predicted"] != row["label"]]
    assert wrong, "no target differs from the prediction"
    for path, label in zip(images, (CLASSES[1], CLASSES[4]), strict=True):
        assert_by_hand(rows, path, "CoOp", folders["CoOp"], clip, label)


def test_resnet_maps_match_manual_calculation(
    train: Callable[..., Run], data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BACKBONES, "small", Backbone(SMALL, "small.pt"))
    file = str(tmp_path / "resnet.pt")
    torch.save(original(SMALL, 5).state_dict(), file)
    settings = ["MODEL.BACKBONE.NAME", "small", "MODEL.BACKBONE.WEIGHTS", file, "INPUT.SIZE", "(64, 64)"]
    folder = train("CoOp", *settings).folder
    images = paths_of(data_root, 0, 3)
    rows = compute("--runs", str(folder), "--images", *images)
    clip = load_clip("small", file, source="clip", precision="fp32")
    for path in images:
        assert_by_hand(rows, path, "CoOp", folder, clip)
    assert {row["right"] for row in rows} == {""}  # their classes are not given


@pytest.mark.parametrize(
    ("trainer", "settings"),
    [
        ("MaPLe", ("TRAINER.MAPLE.PROMPT_DEPTH", "2")),  # its own tower
        ("CoCoOp", ("TRAINER.COCOOP.N_CTX", "2")),  # its own text features for every image
        ("DePT", ()),  # reads the length of image features
    ],
)
def test_maps_of_methods_without_a_class_matrix_match_manual_calculation(
    train: Callable[..., Run], data_root: Path, tmp_path: Path, trainer: str, settings: tuple[str, ...]
) -> None:
    """By hand from the trainer's own logits and, for MaPLe, from the patches next to its prompts."""
    folder, (path,) = train(trainer, *settings).folder, paths_of(data_root, 2)
    rows = compute("--runs", str(folder), "--images", path)
    classifier = cocoamix.load(folder)
    own, clip = classifier.trainer, classifier.trainer.clip.each()[0]
    image = prepared(clip, path)

    def score(images: Tensor) -> Tensor:
        return own.infer(own.encode(images)).softmax(dim=1)

    with torch.no_grad():
        _, activations = clip.encode_image_watched(image, own.vision_prompts())
        if not own.vision_prompts():
            torch.testing.assert_close(activations[0], vit_by_hand(clip, image), atol=1e-4, rtol=0)
        else:
            assert (activations[0] - vit_by_hand(clip, image)).abs().max() > 0.01  # the prompts matter
    assert rows[0]["predicted"] == classifier.predict(path)[0]
    target = classifier.classes.index(rows[0]["predicted"])
    wanted = score_cam(score, activations[0], image, target)
    np.testing.assert_allclose(maps_in(rows)[path, rows[0]["method"]], wanted, atol=1e-3)


def test_open_clip_gives_the_same_activations(weights: str) -> None:
    image = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    ours, theirs = (load_clip("tiny", weights, source, "fp32") for source in ("clip", "open_clip"))
    for one, two in zip(ours.encode_image_watched(image), theirs.encode_image_watched(image), strict=True):
        torch.testing.assert_close(one, two, atol=1e-4, rtol=0)
    torch.testing.assert_close(ours.encode_image_watched(image)[0], ours.encode_image_raw(image), atol=1e-4, rtol=0)


# ---------------------------------------------------------------------- images and files


def test_images_are_chosen_evenly_from_both_halves(train: Callable[..., Run], data_root: Path, tmp_path: Path) -> None:
    """Evenly spaced classes of both halves, each compared within its half, also if the data has moved."""
    folders = [str(train("CoOp", name=f"seed{seed}", flags=("--seed", seed)).folder) for seed in ("1", "2")]
    out = tmp_path / "out"
    moved = data_root.with_name("moved")
    data_root.rename(moved)
    rows = draw(out, "--runs", *folders, "--root", str(moved), "--count", "2")
    split = json.loads((moved / "eurosat" / "split_zhou_EuroSAT.json").read_text())["test"]
    first = {label: path for path, label, _ in reversed(split)}
    shown = dict.fromkeys((row["image"], row["part"], row["label"]) for row in rows)
    wanted = [(first[at], part, CLASSES[at]) for at, part in ((1, "base"), (3, "base"), (6, "new"), (8, "new"))]
    assert list(shown) == wanted
    assert {row["predicted"] for row in rows if row["part"] == "base"} <= set(CLASSES[:5])
    assert {row["predicted"] for row in rows if row["part"] == "new"} <= set(CLASSES[5:])
    assert list(dict.fromkeys(row["method"] for row in rows)) == ["CoOp (seed1)", "CoOp (seed2)"]
    images = {(row["method"], row["image"]): int(row["right"]) for row in rows}
    rights = {method: sum(right for (name, _), right in images.items() if name == method) for method, _ in images}
    text = (out / f"{STEM}.txt").read_text()
    assert (
        f"on 4 images. Correct labels, of 4: {', '.join(f'{name} {count}' for name, count in rights.items())}." in text
    )
    svg = (out / f"{STEM}.svg").read_text()
    assert all(CLASSES[at].split()[0] in svg for at in (1, 3, 6, 8))
    assert (svg.count("\u2713"), svg.count("\u2717")) == (sum(rights.values()), 8 - sum(rights.values()))
    assert svg.count("<image") == 4 * 3 + 1  # and the scale


def test_models_of_a_plan_explain_both_halves(
    train: Callable[..., Run], data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model trained on base classes is used for both halves; each dataset has its own figure."""
    folder = train("CoOp").folder

    def run_of(dataset: str, method: str, subset: str) -> SimpleNamespace:
        place = folder if subset == "base" else tmp_path / "not opened"
        about = {"dataset": dataset, "method": method, "subset": subset, "folder": place}
        return SimpleNamespace(**about, seed=1, trains=subset == "base")

    runs = [run_of(*about) for about in [("a", "CoOp", "base"), ("a", "CoOp", "new"), ("b", "KgCoOp", "base")]]
    monkeypatch.setattr(sources, "find_source", lambda args, plans: sources.Source((), (), tuple(runs)))
    parser = Parser()
    scorecam.add_arguments(parser)
    found = {drawn.stem: list(drawn.rows) for drawn in scorecam.make(parser.parse_args(["--count", "1"]))}
    assert {stem: {row[3] for row in rows} for stem, rows in found.items()} == {
        f"{STEM}-a": {"CoOp"},
        f"{STEM}-b": {"KgCoOp"},
    }
    assert {row[1] for row in found[f"{STEM}-a"]} == {"base", "new"}


def test_plans_provide_what_the_figure_needs() -> None:
    from cocoamix.bench.plan import load_plan

    for choice in (scorecam._PLANS.synthetic, scorecam._PLANS.real):
        plan = load_plan(choice.plan)
        assert plan.task == "base2new"
        assert set(choice.methods) <= {method.name for method in plan.methods}
        assert set(choice.datasets) <= {dataset.name for dataset in plan.datasets}
        assert set(choice.seeds) <= set(plan.seeds)


def test_nine_images_are_split_into_two_figures(train: Callable[..., Run], data_root: Path, tmp_path: Path) -> None:
    """Folders name the classes of their images; the ninth image starts a second figure."""
    folder, pixels = str(train("CoOp").folder), tmp_path / "mine"
    for number in range(9):
        place = pixels / CLASSES[number % 5]
        place.mkdir(parents=True, exist_ok=True)
        with Image.open(paths_of(data_root, number)[0]) as image:
            image.save(place / f"{number}.png")
    out = tmp_path / "out"
    rows = draw(out, "--runs", folder, "--names", "=mine", "--images", str(pixels))
    last = read(out / f"{STEM}-2.csv")
    assert [len({row["image"] for row in part}) for part in (rows, last)] == [8, 1]
    assert all(row["label"] == Path(row["image"]).parent.name for row in rows + last)
    assert {row["label"] for row in rows + last} == set(CLASSES[:5])
    assert {row["method"] for row in rows} == {"'=mine"}  # as spreadsheets expect it


def test_overlay_is_brighter_where_the_map_is_higher() -> None:
    pixels, values = np.full((32, 32, 3), 0.5, np.float32), np.zeros((4, 4), np.float32)
    values[0, 3] = 1
    shown = overlay(pixels, values).mean(axis=2)
    assert shown.shape[0] >= 224
    assert (
        np.unravel_index(shown.argmax(), shown.shape)[0] < 56 < 168 < np.unravel_index(shown.argmax(), shown.shape)[1]
    )


# ---------------------------------------------------------------------- bad input


def refused(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the error message of the command."""
    capfd.readouterr()
    assert main(["scorecam", *arguments]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_missing_package_error_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    out = ["--output", str(tmp_path / "out")]
    monkeypatch.setitem(sys.modules, "pytorch_grad_cam", None)
    assert "need the package grad-cam, which is not installed: pip install grad-cam." in refused(capfd, *out)

    def fail() -> None:
        raise ImportError("libGL.so.1: cannot open shared object file")

    monkeypatch.setattr("cocoamix.figures.scorecam.explained.import_grad_cam", fail)
    message = refused(capfd, *out)
    assert "libGL.so.1: cannot open" in message
    assert "pip install opencv-python-headless" in message
    assert not (tmp_path / "out").exists()


def test_invalid_input_is_refused(
    train: Callable[..., Run], data_root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, (image,) = ["--output", str(tmp_path / "out")], paths_of(data_root, 0)
    assert "There is no folder nowhere" in refused(capfd, "--runs", "nowhere", *out)
    assert "There is no run in" in refused(capfd, "--runs", str(data_root), *out)
    folder = str(train("CoOp").folder)
    runs = ["--runs", folder, *out]
    assert "--count is 0; it must be at least 1" in refused(capfd, *runs, "--count", "0")
    assert "--batch-size is -1; it must be" in refused(capfd, *runs, "--batch-size", "-1")
    assert "--seeds is for runs of a plan" in refused(capfd, *runs, "--seeds", "1")
    assert "--names is for" in refused(capfd, "--names", "a", *out)
    assert "--names gives 2 different names to 1 runs" in refused(capfd, *runs, "--names", "a", "b")
    assert "is given twice" in refused(capfd, "--runs", folder, folder, *out)
    assert "--labels is for the images that --images names" in refused(capfd, *runs, "--labels", "Forest")
    assert "There is no image, folder or table nothing.png" in refused(capfd, *runs, "--images", "nothing.png")
    given = [*runs, "--images", image]
    assert "--labels names 2 classes for 1 images" in refused(capfd, *given, "--labels", "Forest", "River")
    message = refused(capfd, *given, "--labels", "River")
    assert "is of the class 'River', which is not one of the 5 candidate classes. List all of them in" in message
    assert "--target label needs the class of" in refused(capfd, *given, "--target", "label")
    one = tmp_path / "one.txt"
    one.write_text("Forest\n")
    assert "there is only one class" in refused(capfd, *given, "--classes", str(one))
    one.write_text("Forest\nforest\n")
    assert "occurs twice" in refused(capfd, *given, "--classes", str(one))
    broken = tmp_path / "broken.png"
    broken.write_bytes(Path(image).read_bytes()[:40])
    assert f"{broken} cannot be read: " in refused(capfd, *given, str(broken))
    many = tmp_path / "many"
    many.mkdir()
    for number in range(65):
        (many / f"{number}.png").write_bytes(b"")
    assert "65 images are too many" in refused(capfd, *runs, "--images", str(many))
    other = str(train("CoOp", "DATASET.SUBSAMPLE_CLASSES", "new", name="other").folder)
    assert "have different classes" in refused(capfd, "--runs", folder, other, "--images", image, *out)
    towers = ["TRAINER.ENLEARN.BACKBONES", "['tiny', 'tiny']", "TRAINER.ENLEARN.BACKBONE_WEIGHTS", "['', 'random']"]
    several = str(train("TuneEn", *towers).folder)
    message = refused(capfd, "--runs", folder, several, "--images", image, *out)
    assert f"The run in {several} uses TuneEn with 2 CLIP models" in message
    assert not (tmp_path / "out").exists()
    # Custom classes allow other labels.
    one.write_text("Forest\nRiver\n")
    rows = compute(*runs[:2], "--images", image, "--classes", str(one), "--labels", "river")
    assert {row["label"] for row in rows} == {"River"}
    assert {row["predicted"] for row in rows} <= {"Forest", "River"}


def test_images_of_all_sessions_are_explained(run: Runner, weights: str, data_root: Path, tmp_path: Path) -> None:
    """A run over sessions is explained over the classes of all of them."""
    settings = ["FSCIL.BASE", "4", "FSCIL.WAY", "3", "FSCIL.SHOTS", "2", "OPTIM.MAX_EPOCH", "1"]
    done = run(*settings, "MODEL.BACKBONE.WEIGHTS", weights, trainer="CoOpFSCIL")
    assert done.status == 0, done.output[-800:]
    rows = compute("--runs", str(done.folder), "--count", "2")
    assert list(dict.fromkeys((row["part"], row["label"]) for row in rows)) == [
        ("all", CLASSES[2]),
        ("all", CLASSES[7]),
    ]
    classifier: Classifier = cocoamix.load(done.folder)
    named = {Path(path).name: path for path in paths_of(data_root, 2, 7)}
    for row in rows:
        assert row["predicted"] == classifier.predict(named[Path(row["image"]).name])[0]
