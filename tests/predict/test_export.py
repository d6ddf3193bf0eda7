"""Exported files give the probabilities of the run, with nothing of this package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open

from cocoamix import compat
from cocoamix.features.reading import read_image
from cocoamix.predict.classifier import Classifier, load
from cocoamix.predict.export_command import main

from .conftest import Trained

LINEAR = ["CoOp", "KgCoOp", "DePT", "CoCoAMix", "CoCoAMix, folds", "CoOp, sessions", "CoCoAMix, sessions"]
LINEAR += ["CoOp, sessions, names of all", "FSPT, sessions"]


def pixels(classifier: Classifier, paths: list[Path]) -> torch.Tensor:
    """Return preprocessed images."""
    transform = classifier.trainer.test_loader.dataset.transform  # type: ignore[attr-defined]
    return torch.stack([transform(read_image(str(path))) for path in paths])


@pytest.mark.parametrize("kind", LINEAR)
def test_safetensors(kind: str, trained: Trained, data_root: Path, tmp_path: Path) -> None:
    done = trained(kind)
    path = tmp_path / "classes.safetensors"
    assert main([str(done.folder), "--to", str(path), "--add", "zebra"]) == 0
    run = load(done.folder).with_classes(["zebra"])
    images = sorted(data_root.rglob("*.png"))
    with safe_open(path, "pt") as file:
        names, model = json.loads(file.metadata()["classes"]), run.trainer.clip.each()[0]
        features = model.encode_image_raw(pixels(run, images))
        logits = F.normalize(features, dim=-1) @ file.get_tensor("matrix").T * file.get_tensor("scale")
        if "raw" in file.keys():  # noqa: SIM118  (not a mapping)
            logits = logits + features @ file.get_tensor("raw").T + file.get_tensor("bias")
        assert "clip.load" in file.metadata()["README"]
        assert json.loads(file.metadata()["preprocessing"])["size"] == [32, 32]
    wanted = run.probabilities(images)
    assert names == run.classes
    torch.testing.assert_close(logits.softmax(dim=-1).double(), wanted, atol=1e-4, rtol=0)
    assert torch.equal(logits.argmax(dim=1), wanted.argmax(dim=1))


def test_with_openais_clip_alone(trained: Trained, data_root: Path, tmp_path: Path) -> None:
    """The lines of the file's README, on the weights of the embedded backbone."""
    clip = compat.import_openai_clip()
    from cocoamix.clip.backbones import fetch_weights
    from cocoamix.clip.weights import read_weights

    done = trained("CoCoAMix", "MODEL.BACKBONE.WEIGHTS", "")
    path = tmp_path / "classes.safetensors"
    assert main([str(done.folder), "--to", str(path)]) == 0
    image = next(data_root.rglob("River_13.png"))
    run = load(done.folder)
    wanted = run.probabilities(image)
    tower = clip.model.build_model(read_weights(fetch_weights("tiny"))).float()
    with safe_open(path, "pt") as file, torch.no_grad():
        features = tower.encode_image(pixels(run, [image])).float()
        logits = F.normalize(features, dim=-1) @ file.get_tensor("matrix").T * file.get_tensor("scale")
    torch.testing.assert_close(logits.softmax(-1).double(), wanted, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ["CoCoAMix, folds", "MaPLe", "DePT"])
def test_onnx(kind: str, trained: Trained, data_root: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    done = trained(kind)
    path = tmp_path / "classifier.onnx"
    assert main([str(done.folder), "--to", str(path)]) == 0
    run = load(done.folder)
    images = sorted(data_root.rglob("*.png"))[:50]
    session = runtime.InferenceSession(str(path))
    keys = run.trainer.cfg.INPUT
    mean, std = (torch.tensor(side).view(1, 3, 1, 1) for side in (keys.PIXEL_MEAN, keys.PIXEL_STD))
    given = (pixels(run, images) * std + mean).numpy()
    for some in (given, given[:1]):
        found = torch.from_numpy(session.run(None, {"pixels": some})[0])
        wanted = run.probabilities(images[: len(some)])
        torch.testing.assert_close(found.double(), wanted, atol=1e-4, rtol=0)
        assert torch.equal(found.argmax(dim=1), wanted.argmax(dim=1))
    told = session.get_modelmeta().custom_metadata_map
    assert json.loads(told["classes"]) == run.classes


@pytest.mark.parametrize(
    ("kind", "file", "words"),
    [
        ("MaPLe", "a.safetensors", "tunes the image side, too"),
        ("TuneEn", "a.safetensors", "runs 2 CLIP models"),
        ("TuneEn", "a.onnx", "runs 2 CLIP models"),
        ("CoCoOp", "a.safetensors", "makes its prompts anew for every image"),
        ("CoOp", "a.pt", "must end in .safetensors or .onnx"),
    ],
)
def test_refused(
    kind: str, file: str, words: str, trained: Trained, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = trained(kind)
    assert main([str(done.folder), "--to", str(tmp_path / file)]) == 2
    assert words in capfd.readouterr().err
    assert not (tmp_path / file).exists()
