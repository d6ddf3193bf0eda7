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
from cocoamix.clip import load_clip, tokenize
from cocoamix.clip.backbones import BACKBONES, fetch_weights
from cocoamix.clip.openai import build_openai
from cocoamix.clip.preprocess import MEAN, STD
from cocoamix.clip.weights import read_weights
from cocoamix.predict.classifier import load
from cocoamix.predict.export import export
from cocoamix.predict.export_command import main
from cocoamix.predict.readme import find_loadings
from tests.conftest import ROOT

from .conftest import Trained

LINEAR = ["CoOp", "CoOp, best on val", "KgCoOp", "ProGrad", "DePT", "CoCoAMix", "CoCoAMix, two stages"]
LINEAR += ["CoCoAMix, folds", "CoOp, sessions", "CoCoAMix, sessions", "zero-shot", "zero-shot, sessions"]
LINEAR += ["CoOp, sessions, names of all", "FSPT, sessions"]
WHOLE = ["CoCoAMix, folds", "MaPLe"]  # one for each way to compute logits, since an export takes seconds


@pytest.fixture(scope="module")
def images(request: pytest.FixtureRequest) -> list[np.ndarray[Any, Any]]:
    """150 images, or 1,000 where slow tests are asked for: gradients of two colours under noise."""
    count = 150 if request.config.option.markexpr == "not slow" else 1000
    generator = np.random.default_rng(1)
    ramp = np.linspace(0, 1, 40)[:, None, None]
    found = []
    for colours in generator.integers(0, 256, size=(count, 2, 3)):
        plain = colours[0] * ramp + colours[1] * (1 - ramp)
        found.append(np.clip(plain + generator.normal(0, 25, size=(40, 36, 3)), 0, 255).astype(np.uint8))
    return found


@pytest.fixture(scope="module")
def pixels(images: list[np.ndarray[Any, Any]]) -> torch.Tensor:
    """The images as CLIP's own preprocessing leaves them."""
    transform = load_clip("tiny", "random").transform
    return torch.stack([transform(Image.fromarray(image)) for image in images])


@pytest.fixture(scope="module")
def features(pixels: torch.Tensor) -> torch.Tensor:
    """Their features, as returned by the image tower, not normalised."""
    return load_clip("tiny", "random").encode_image_raw(pixels)


def assert_same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Check that probabilities and predicted classes are the same."""
    torch.testing.assert_close(found.double(), wanted, atol=1e-4, rtol=0)
    assert torch.equal(found.argmax(dim=1), wanted.argmax(dim=1))
    spread = wanted.max(dim=0).values - wanted.min(dim=0).values
    assert spread.max() > 0.01  # probabilities vary between images by far more than the tolerance


@pytest.mark.parametrize("kind", LINEAR)
def test_safetensors_give_the_probabilities_of_the_run(
    kind: str, trained: Trained, images: list[np.ndarray[Any, Any]], features: torch.Tensor, tmp_path: Path
) -> None:
    done = trained(kind)
    path = tmp_path / "classes.safetensors"
    assert main([str(done.folder), "--to", str(path), "--add", "zebra"]) == 0
    run = load(done.folder).with_classes(["zebra"])
    with safe_open(path, "pt") as file:
        logits = F.normalize(features, dim=-1) @ file.get_tensor("matrix").T * file.get_tensor("scale")
        if "raw" in file.keys():  # noqa: SIM118  (not a mapping)
            logits = logits + features @ file.get_tensor("raw").T + file.get_tensor("bias")
        assert json.loads(file.metadata()["classes"]) == run.classes
        preprocessing = json.loads(file.metadata()["preprocessing"])
    assert preprocessing["size"] == [32, 32]
    assert preprocessing["exif_orientation"] == "ignored"  # CoOp's datasets are read as CoOp reads them
    assert "0 to 65535" in preprocessing["bits"]
    assert_same(logits.softmax(dim=-1), run.probabilities(images))


@pytest.mark.parametrize(
    "kind",
    [*WHOLE, *(pytest.param(kind, marks=pytest.mark.slow) for kind in LINEAR if kind not in WHOLE)],
)
def test_onnx_gives_the_probabilities_of_the_run(
    kind: str, trained: Trained, images: list[np.ndarray[Any, Any]], pixels: torch.Tensor, tmp_path: Path
) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    done = trained(kind)
    path = tmp_path / "classifier.onnx"
    assert main([str(done.folder), "--to", str(path)]) == 0
    run = load(done.folder)
    session = runtime.InferenceSession(str(path))
    mean, std = (torch.tensor(side).view(1, 3, 1, 1) for side in (MEAN, STD))
    given = (pixels * std + mean).numpy()
    parts = [session.run(None, {"pixels": some})[0] for some in (given[:1], given[1:40], given[40:])]
    assert_same(torch.from_numpy(np.concatenate(parts)), run.probabilities(images))
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["classes"]) == run.classes
    assert json.loads(about["preprocessing"])["exif_orientation"] == "ignored"


class TestReadme:
    """The code in a file's README and in docs/PREDICT.md runs as written, and gives the run's probabilities."""

    @pytest.fixture
    def done(self, trained: Trained, data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A run on the weights of the tiny CLIP, in a folder with a photo. Like OpenAI's, they are fp16."""
        monkeypatch.chdir(tmp_path)
        Image.open(next(data_root.rglob("River_13.png"))).save("photo.jpg")
        compat.import_openai_clip()
        return trained("DePT", "MODEL.BACKBONE.WEIGHTS", "").folder

    @pytest.fixture
    def weights(self, tmp_path: Path) -> dict[str, torch.Tensor]:
        return read_weights(fetch_weights("tiny"))

    def run_lines(self, lines: str, wanted: torch.Tensor, error: float = 1e-4) -> None:
        names: dict[str, Any] = {}
        exec(compile(lines, "README", "exec"), names)
        torch.testing.assert_close(names["logits"].softmax(dim=-1).double(), wanted, atol=error, rtol=0)

    def lines_in(self, path: str) -> dict[str, str]:
        """Return the code in a file's README by the package that it uses."""
        with safe_open(path, "pt") as file:
            readme = file.metadata()["README"]
        blocks = re.findall(r"With (\w+).*?:\n\n((?:    .*\n)+)", readme)
        return {package: textwrap.dedent(lines) for package, lines in blocks}

    def test_code_for_embedded_weights_runs(self, done: Path) -> None:
        assert main([str(done), "--to", "classes.safetensors"]) == 0
        found = self.lines_in("classes.safetensors")
        assert list(found) == ["cocoamix"]
        self.run_lines(found["cocoamix"], load(done).probabilities("photo.jpg"))

    @pytest.mark.parametrize("kind", ["state.pt", "wrapped.pt", "weights.safetensors"])
    def test_code_for_a_weights_file_runs(self, kind: str, done: Path, trained: Trained) -> None:
        """In fp32, which OpenAI's code would round."""
        done = trained("DePT", name="fp32").folder
        weights = random_weights()
        if kind == "state.pt":
            torch.save(weights, kind)
        elif kind == "wrapped.pt":
            torch.save({"epoch": 3, "state_dict": {f"module.{key}": one for key, one in weights.items()}}, kind)
        else:
            save_file(weights, kind)
        assert main([str(done), "--to", "classes.safetensors", "--weights", kind]) == 0
        found = self.lines_in("classes.safetensors")
        assert list(found) == ["OpenAI"]  # open_clip has no model of this name
        wanted = load(done).probabilities("photo.jpg")
        self.run_lines(found["OpenAI"], wanted, 2e-6)
        # The same file under a name that open_clip knows, of a model of this size.
        add_small_model("ViT-B-16-quickgelu")
        run = load(done, kind)
        run.trainer.clip.name = "ViT-B/16"
        export(run, Path("classes.safetensors"))
        found = self.lines_in("classes.safetensors")
        assert list(found) == ["OpenAI", "open_clip"]
        assert f'pretrained="{Path(kind).absolute()}"' in found["open_clip"]
        assert "code execution" not in found["open_clip"]
        self.run_lines(found["open_clip"], wanted, 2e-6)

    @pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::UserWarning", "ignore::DeprecationWarning")
    def test_code_for_an_openai_archive_runs(self, done: Path, weights: dict[str, torch.Tensor]) -> None:
        model = build_openai(BACKBONES["tiny"].sizes).float().eval()
        model.load_state_dict(weights)
        given = (torch.randn(1, 3, 32, 32), tokenize(["cat"]))
        torch.jit.save(torch.jit.trace_module(model, {"forward": given}, check_trace=False), "archive.pt")
        add_small_model("ViT-B-16-quickgelu")
        run = load(done, "archive.pt")
        run.trainer.clip.name = "ViT-B/16"
        export(run, Path("classes.safetensors"))
        found = self.lines_in("classes.safetensors")
        for lines in found.values():
            self.run_lines(lines, load(done).probabilities("photo.jpg"))
        # open_clip reads such an archive with code execution enabled; the line above says so.
        loading = found["open_clip"].splitlines()
        (place,) = (index for index, line in enumerate(loading) if line.startswith("model, _"))
        assert loading[place].endswith("weights_only=False)")
        assert loading[place - 1].startswith("# ")
        assert "code execution enabled: use only a file from a source that you trust." in loading[place - 1]
        assert "weights_only" not in found["OpenAI"]

    def test_gelu_needs_open_clip(self) -> None:
        (loading,) = find_loadings("ViT-B/16", "", "gelu")
        assert loading.package == "open_clip"
        assert '"ViT-B-16", pretrained' in loading.lines[0]

    def test_code_for_openais_weights_runs_as_documented(
        self, done: Path, weights: dict[str, torch.Tensor], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By name, which would download them, so a small model replaces the download."""
        import clip.clip

        torch.save(weights, "small.pt")
        monkeypatch.setattr(clip.clip, "_download", lambda *_: "small.pt")
        add_small_model("ViT-B-16-quickgelu")
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "PREDICT.md").read_text(), re.DOTALL)
        shown = [block for block in blocks if "safe_open" in block]
        run = load(done)
        run.trainer.clip.name = "ViT-B/16"
        run.run.protocol["images"] = "upright"  # type: ignore[index]
        export(run, Path("classes.safetensors"))
        found = self.lines_in("classes.safetensors")
        without = [line for line in found["OpenAI"].splitlines() if not line.startswith("logits +=")]
        assert [line for line in shown[0].splitlines() if line] == without  # DePT has two more lines
        assert len(without) == 11
        loading = next(line for line in found["open_clip"].splitlines() if line.startswith("model, _"))
        assert loading in shown[1]
        wanted = load(done).probabilities("photo.jpg")
        self.run_lines(found["OpenAI"], wanted)
        local = found["open_clip"].replace('pretrained="openai"', 'pretrained="small.pt"')
        assert local != found["open_clip"]
        self.run_lines(local, wanted)

    def test_custom_preprocessing_is_in_the_code(self, done: Path) -> None:
        run = load(done)
        cfg = run.trainer.cfg
        cfg.defrost()
        cfg.INPUT.INTERPOLATION, cfg.INPUT.PIXEL_MEAN = "bilinear", [0.5, 0.5, 0.5]
        export(run, Path("classes.safetensors"))
        (lines,) = self.lines_in("classes.safetensors").values()
        names: dict[str, Any] = {}
        exec(compile(lines, "README", "exec"), names)
        steps = names["preprocess"].transforms
        assert steps[0].interpolation.value == "bilinear"
        assert tuple(steps[-1].mean) == (0.5, 0.5, 0.5)


def random_weights() -> dict[str, torch.Tensor]:
    """Return the weights of MODEL.BACKBONE.WEIGHTS random."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build_openai(BACKBONES["tiny"].sizes)
    torch.nn.init.constant_(model.logit_scale, math.log(100))
    return {key: one.clone() for key, one in model.float().state_dict().items()}


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
        ("CoCoOp", "a.safetensors", "makes a prompt for every image"),
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
