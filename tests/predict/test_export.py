"""Exported files give the run's probabilities without this package."""

from __future__ import annotations

import json
import math
import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

from cocoamix import compat
from cocoamix.clip import load_clip
from cocoamix.clip.backbones import BACKBONES, fetch_weights
from cocoamix.clip.openai import build_openai
from cocoamix.clip.preprocess import MEAN, STD
from cocoamix.clip.weights import read_weights
from cocoamix.export import export, main
from cocoamix.trained import TrainedModel, load
from tests.conftest import ROOT

from .conftest import Trained

LINEAR = ["CoOp", "CoOp, best on val", "KgCoOp", "ProGrad", "DePT", "CoCoAMix", "CoCoAMix, two stages"]
LINEAR += ["CoCoAMix, folds", "CoOp, sessions", "CoCoAMix, sessions", "zero-shot", "zero-shot, sessions"]
LINEAR += ["CoOp, sessions, names of all", "FSPT, sessions"]
WHOLE = ["CoCoAMix, folds", "DePT", "MaPLe"]  # one for each way to compute logits, since an export takes seconds


@pytest.fixture(scope="module")
def images(request: pytest.FixtureRequest) -> list[np.ndarray[Any, Any]]:
    """150 images, or 1,000 where slow tests are asked for: gradients of two colours under noise."""
    count = 150 if request.config.option.markexpr == "not slow" else 1000
    generator = np.random.default_rng(1)
    ramp = np.linspace(0, 1, 40)[:, None, None]
    colours = generator.integers(0, 256, size=(count, 2, 3))
    plain = [pair[0] * ramp + pair[1] * (1 - ramp) for pair in colours]
    return [np.clip(image + generator.normal(0, 25, size=(40, 36, 3)), 0, 255).astype(np.uint8) for image in plain]


@pytest.fixture(scope="module")
def pixels(images: list[np.ndarray[Any, Any]]) -> torch.Tensor:
    """The images as CLIP's own preprocessing leaves them."""
    transform = load_clip("tiny", "random").transform
    return torch.stack([transform(Image.fromarray(image)) for image in images])


def assert_same(mine: torch.Tensor, wanted: torch.Tensor) -> None:
    """Check that probabilities and predicted classes are the same."""
    torch.testing.assert_close(mine.double(), wanted, atol=1e-4, rtol=0)
    assert torch.equal(mine.argmax(dim=1), wanted.argmax(dim=1))
    spread = wanted.max(dim=0).values - wanted.min(dim=0).values
    assert spread.max() > 0.01  # probabilities vary between images by far more than the tolerance


@pytest.mark.parametrize("kind", LINEAR)
def test_safetensors_give_the_probabilities_of_the_run(
    kind: str, trained: Trained, images: list[np.ndarray[Any, Any]], pixels: torch.Tensor, tmp_path: Path
) -> None:
    done, path = trained(kind), tmp_path / "classes.safetensors"
    features = load_clip("tiny", "random").encode_image_raw(pixels)
    assert main([str(done.folder), "--to", str(path), "--add", "zebra"]) == 0
    model = load(done.folder).with_classes(["zebra"])
    for names in (None, model.classes[:-1]):
        if names is not None:  # DePT's head serves the trained classes alone
            model = load(done.folder)
            export(model, path)
        with safe_open(path, "pt") as file:
            logits = F.normalize(features, dim=-1) @ file.get_tensor("matrix").T * file.get_tensor("scale")
            if "raw" in file.keys():  # noqa: SIM118  (not a mapping)
                logits = logits + features @ file.get_tensor("raw").T + file.get_tensor("bias")
            assert ("raw" in file.keys()) == (kind == "DePT" and names is not None)  # noqa: SIM118
            assert json.loads(file.metadata()["classes"]) == model.classes
            preprocessing = json.loads(file.metadata()["preprocessing"])
        assert_same(logits.softmax(dim=-1), model.probabilities(images))
    assert preprocessing["size"] == [32, 32]
    assert preprocessing["exif_orientation"] == "ignored"  # CoOp's datasets are read as CoOp reads them


@pytest.mark.parametrize(
    "kind", [*WHOLE, *(pytest.param(kind, marks=pytest.mark.slow) for kind in LINEAR if kind not in WHOLE)]
)
def test_onnx_gives_the_probabilities_of_the_run(
    kind: str, trained: Trained, images: list[np.ndarray[Any, Any]], pixels: torch.Tensor, tmp_path: Path
) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    done, path = trained(kind), tmp_path / "classifier.onnx"
    assert main([str(done.folder), "--to", str(path)]) == 0
    model, session = load(done.folder), runtime.InferenceSession(str(path))
    mean, std = (torch.tensor(side).view(1, 3, 1, 1) for side in (MEAN, STD))
    whole = (pixels * std + mean).numpy()
    parts = [session.run(None, {"pixels": some})[0] for some in (whole[:1], whole[1:40], whole[40:])]
    assert_same(torch.from_numpy(np.concatenate(parts)), model.probabilities(images))
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == model.classes


class TestReadme:
    """The code in a file's README and in docs/PREDICT.md runs as written, and gives the run's probabilities."""

    @pytest.fixture
    def model(self, trained: Trained, data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainedModel:
        """A model on the weights of the tiny CLIP, in a folder with a photo. Like OpenAI's, they are fp16."""
        monkeypatch.chdir(tmp_path)
        Image.open(next(data_root.rglob("River_13.png"))).save("photo.jpg")
        compat.import_openai_clip()
        return load(trained("DePT", "MODEL.BACKBONE.WEIGHTS", "").folder)

    def lines_in(self, model: TrainedModel) -> dict[str, str]:
        """Return the code in an exported file's README by the package that it uses."""
        export(model, Path("classes.safetensors"))
        with safe_open("classes.safetensors", "pt") as file:
            readme = file.metadata()["README"]
        blocks = re.findall(r"With (\w+).*?:\n\n((?:    .*\n)+)", readme)
        return {package: textwrap.dedent(lines) for package, lines in blocks}

    def run_lines(self, lines: str, wanted: torch.Tensor) -> None:
        names: dict[str, Any] = {}
        exec(compile(lines, "README", "exec"), names)
        torch.testing.assert_close(names["logits"].softmax(dim=-1).double(), wanted, atol=1e-4, rtol=0)

    def test_code_for_own_weights_and_preprocessing_runs(self, model: TrainedModel, trained: Trained) -> None:
        lines = self.lines_in(model)
        assert list(lines) == ["cocoamix"]
        self.run_lines(lines["cocoamix"], model.probabilities("photo.jpg"))
        folder = trained("DePT", "INPUT.INTERPOLATION", "bilinear", name="other").folder  # of random weights
        save_file(random_weights(), "moved.safetensors")
        other = load(folder, "moved.safetensors")
        lines = self.lines_in(other)
        assert str(Path("moved.safetensors").absolute()) in lines["cocoamix"]
        self.run_lines(lines["cocoamix"], other.probabilities("photo.jpg"))

    def test_code_for_openais_weights_runs_as_documented(
        self, model: TrainedModel, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By name, which would download them, so a small model replaces the download."""
        import clip.clip

        torch.save(read_weights(fetch_weights("tiny")), "small.pt")
        monkeypatch.setattr(clip.clip, "_download", lambda *_: "small.pt")
        add_small_model("ViT-B-16-quickgelu")
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "PREDICT.md").read_text(), re.DOTALL)
        documented = [block for block in blocks if "safe_open" in block]
        model.model.clip.name = "ViT-B/16"
        model.record.protocol["images"] = "upright"  # type: ignore[index]
        lines = self.lines_in(model)
        for block, package in zip(documented, ("OpenAI", "open_clip"), strict=True):
            # The page shows a method other than DePT.
            code = [line for line in lines[package].splitlines() if not line.startswith("logits +=")]
            assert [line for line in block.splitlines() if line] == code
        wanted = model.probabilities("photo.jpg")
        self.run_lines(lines["OpenAI"], wanted)
        self.run_lines(lines["open_clip"].replace('"openai"', '"small.pt"'), wanted)


def random_weights() -> dict[str, torch.Tensor]:
    """Return the weights of MODEL.BACKBONE.WEIGHTS random."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build_openai(BACKBONES["tiny"].sizes)
    torch.nn.init.constant_(model.logit_scale, math.log(100))
    return {key: value.clone() for key, value in model.float().state_dict().items()}


def add_small_model(name: str) -> None:
    """Give open_clip a model of the size of the tiny CLIP under a separate name."""
    open_clip = compat.import_open_clip()
    sizes = BACKBONES["tiny"].sizes
    config = {
        "embed_dim": sizes.embedding,
        "quick_gelu": True,
        "vision_cfg": {"image_size": 32, "layers": 4, "width": 128, "patch_size": 8},
        "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 128, "heads": 2, "layers": 4},
    }
    Path(f"{name}.json").write_text(json.dumps(config))
    open_clip.add_model_config(f"{name}.json")


@pytest.mark.parametrize(
    ("kind", "file", "words"),
    [
        ("MaPLe", "a.safetensors", "also tunes the image encoder"),
        ("TuneEn", "a.safetensors", "uses 2 CLIP models"),
        ("TuneEn", "a.onnx", "uses 2 CLIP models"),
        ("CoCoOp", "a.safetensors", "makes prompts for every image"),
        ("CoOp", "a.pt", "must end in .safetensors or .onnx"),
    ],
)
def test_unsupported_exports_are_refused(
    kind: str, file: str, words: str, trained: Trained, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = trained(kind)
    assert main([str(done.folder), "--to", str(tmp_path / file)]) == 2
    assert words in capfd.readouterr().err
    assert not (tmp_path / file).exists()
