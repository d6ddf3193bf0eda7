"""Runs on ImageNet: classes of one name are told apart by their folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from cocoamix.io import checkpoints
from cocoamix.trainers.dept import DePTModel
from tests.conftest import Runner

SYNSETS = {"n02123045": "cat", "n03773504": "missile", "n04008634": "missile", "n04285008": "sports car"}
FOUR = ["TRAINER.DEPT.N_CTX", "4"]


def write_imagenet(root: Path) -> Path:
    """Write a small ImageNet in which two classes share a name; ImageNet-R has only the first of them."""
    names = "".join(f"{synset} {name}\n" for synset, name in SYNSETS.items())
    for folder, synsets in {
        "imagenet/images/train": list(SYNSETS),
        "imagenet/images/val": list(SYNSETS),
        "imagenet-rendition/imagenet-r": ["n02123045", "n03773504"],
    }.items():
        (root / folder.split("/")[0]).mkdir(parents=True, exist_ok=True)
        (root / folder.split("/")[0] / "classnames.txt").write_text(names)
        for number, synset in enumerate(synsets):
            (root / folder / synset).mkdir(parents=True)
            for index in range(4):
                colour = (60 * number, 50 * index, 200 - 40 * number)
                Image.new("RGB", (40, 36), colour).save(root / folder / synset / f"{synset}_{index}.JPEG")
    return root


def test_head_of_dept_on_a_variant(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLIP calls two classes "missile": the class's folder determines the row of the head, if it is recorded."""
    root = write_imagenet(tmp_path / "imagenets")
    trained = run("DATASET.NAME", "ImageNet", "DATASET.NUM_SHOTS", "2", *FOUR, trainer="DePT", data=root)
    assert "Logits: similarity and head" in trained.output, trained.output[-500:]
    files = [trained.folder / part / "model.pth.tar-4" for part in ("channel_head", "PromptLearner")]
    assert checkpoints.load(files[0])["cocoamix"]["synsets"] == list(SYNSETS)
    rows: list[list[int]] = []
    find = DePTModel._rows
    monkeypatch.setattr(
        DePTModel, "_rows", lambda self, *names: (rows.append(find(self, *names)[0]), find(self, *names))[1]
    )
    evaluate = ["--eval-only", "--model-dir", str(trained.folder), "DATASET.NAME", "ImageNetR", *FOUR]
    assert run(*evaluate, trainer="DePT", name="r", data=root).status == 0
    assert rows[-1] == [0, 1]
    for path in files:
        content = checkpoints.load(path)
        del content["cocoamix"]["synsets"]
        checkpoints.save(path, content)
    blind = run(*evaluate, trainer="DePT", name="blind", data=root)
    assert "'missile' could be more than one of the trained classes" in blind.output
    assert rows[-1] == []
