"""The example of docs/PREDICT.md runs as written, and what a run leaves behind is correct."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open

from cocoamix import cli, load_clip
from cocoamix.features.reading import read_image
from cocoamix.predict.classifier import load
from cocoamix.run.card import wilson, write_card
from cocoamix.run.predictions import read_predictions
from cocoamix.run.results import Results
from cocoamix.shapes.command import main as shapes
from cocoamix.train import main as train
from tests.conftest import ROOT, Runner, own_stdout
from tests.faults.runs import KINDS

from .conftest import Trained


def test_example_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert shapes(["write", "images", "--dataset", "WarmCool"]) == 0
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "PREDICT.md").read_text(), re.DOTALL)
    (example,) = [block for block in blocks if "PromptClassifier(" in block]
    assert len(example.splitlines()) < 15
    capfd.readouterr()
    exec(compile(example.replace("*/00*.png", "*/000[0-7].png"), "PREDICT.md", "exec"), {})
    assert "accuracy 0." in capfd.readouterr().out
    assert (tmp_path / "model" / "prompt_learner").is_dir()


def test_card_describes_the_run(trained: Trained) -> None:
    done = trained("CoCoAMix, folds")
    card = (done.folder / "README.md").read_text()
    for words in (
        "# CoCoAMix on EuroSAT",
        "| data | EuroSAT, base classes |",
        "| seed | 1 |",
        "20 (4 of each class)",
        "| calibration | temperature ",
        "fitted to 20 held-out images |",
        "95 % confidence interval",
        "cocoamix predict",
    ):
        assert words in card
    assert f"{done.results['metrics']['accuracy']:.2f} % (" in card
    (done.folder / "README.md").write_text("mine")
    assert write_card(done.folder, Results.read(done.folder / "results.json")) is None
    assert (done.folder / "README.md").read_text() == "mine"


@pytest.mark.parametrize("kind", ["CoOp, best on val", "CoOp, sessions", "zero-shot"])
def test_every_run_that_can_predict_documents_the_command(kind: str, trained: Trained) -> None:
    assert "cocoamix predict THIS_FOLDER" in (trained(kind).folder / "README.md").read_text()


@pytest.mark.parametrize("kind", ["CoCoAMix, folds", "CoOp, sessions"])
def test_card_states_that_a_run_was_not_evaluated(kind: str, run: Runner) -> None:
    trainer, settings = KINDS[kind]
    done = run(*settings, "TEST.NO_TEST", "True", trainer=trainer)
    assert done.status == 0, done.output[-500:]
    assert not (done.folder / "results.json").exists()
    card = (done.folder / "README.md").read_text()
    assert "The run was not evaluated." in card
    assert "| seed | 1 |" in card
    if kind == "CoOp, sessions":
        assert "Evaluate the sessions first" in card
    else:
        assert "fitted to 20 held-out images" in card
        assert "cocoamix predict THIS_FOLDER" in card


def test_card_of_an_evaluation_refers_to_the_training_run(trained: Trained, run: Runner) -> None:
    done = trained("CoOp")
    other = run("--eval-only", "--model-dir", str(done.folder), "DATASET.NUM_SHOTS", "4", name="other")
    assert "The checkpoints are in the output folder of the training run" in (other.folder / "README.md").read_text()


NEW_USER = (("red fox", (200, 60, 40)), ("bluebird", (40, 80, 200)), ("Grüner_Frosch", (60, 180, 70)))


def write_images(folder: Path) -> None:
    """Write a typical folder of a new user: all kinds of files, unreadable ones, and names that are not UTF-8."""
    generator = np.random.default_rng(0)
    for name, colour in NEW_USER:
        place = folder / name
        place.mkdir(parents=True)
        drawn = [
            Image.fromarray(np.clip(colour + generator.normal(0, 30, (48, 60, 3)), 0, 255).astype(np.uint8))
            for _ in range(8)
        ]
        exif = Image.Exif()
        exif[0x0112] = 6
        drawn[0].save(place / "turned.jpg", exif=exif)
        drawn[1].convert("L").save(place / "grey.png")
        drawn[2].convert("RGBA").save(place / "alpha.png")
        Image.fromarray(np.array(drawn[3].convert("L")).astype(np.uint16) * 257).save(place / "deep.png")
        drawn[4].save(place / "ünï 日本.png")
        with open(os.path.join(os.fsencode(place), b"caf\xe9.png"), "wb") as file:
            drawn[5].save(file, "PNG")
        for number in (6, 7):
            drawn[number].save(place / f"{number}.jpg")
    for number in range(4):  # some for each split
        (folder / "red fox" / f"corrupt {number}.jpg").write_bytes(b"\xff\xd8 nothing")


def test_user_images_are_classified_in_three_commands(
    tmp_path: Path, tiny_config: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The README's commands as written, except for the size of the model."""
    monkeypatch.chdir(tmp_path)
    write_images(Path("IMAGES"))
    write_images(Path("PHOTOS"))
    block = re.search(r"```bash\n(cocoamix data check folder.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    lines = block[1].replace("\\\n", " ").strip().splitlines()
    commands = [shlex.split(line, comments=True) for line in lines]
    assert [words[:2] for words in commands] == [["cocoamix", "data"], ["python", "train.py"], ["cocoamix", "predict"]]
    small = {"configs/trainers/CoCoAMix/vit_b16_ep50.yaml": str(tiny_config)}
    statuses = []
    for words in commands:
        given = [small.get(word, word.replace("configs/", f"{ROOT}/configs/")) for word in words]
        with own_stdout():
            statuses.append(train(given[2:]) if given[0] == "python" else cli.main(given[1:]))
    printed = capfd.readouterr().out
    assert statuses == [0, 0, 1], printed[-800:]  # some images get no label, since they cannot be read
    assert (
        printed.count("IMAGES/red fox/corrupt") > 4
    )  # the check reports all, and the training those that it encounters
    assert "ImageFolderDataset is ready for training." in printed
    found = read_predictions("labels.csv")
    assert len(found) == 28
    assert {record.label for record in found} == {"red fox", "bluebird", "Grüner Frosch"}
    assert [Path(record.image).name for record in found if record.error] == [f"corrupt {n}.jpg" for n in range(4)]
    assert Path("page.html").is_file()
    card = Path("output/own/README.md").read_text()
    assert "# CoCoAMix on own images in IMAGES\n" in card
    assert "| data | own images in IMAGES, all classes |" in card
    assert "(at most 16 of each class)" in card
    assert "| unreadable images, left out | " in card
    kept = {"exif_orientation": "applied"}
    assert cli.main(["export", "output/own", "--to", "classes.safetensors"]) == 0
    with safe_open("classes.safetensors", "pt") as file:
        assert kept.items() <= json.loads(file.metadata()["preprocessing"]).items()


def test_interval_matches_wilsons_formula() -> None:
    low, high = wilson(0.5, 100)
    assert (low, high) == pytest.approx((0.4038, 0.5962), abs=1e-4)  # Wilson's formula, as in statistics textbooks
    assert wilson(0.0, 10)[0] == 0
    assert wilson(1.0, 10)[1] == pytest.approx(1)


def test_transform_matches_evaluations(trained: Trained, data_root: Path) -> None:
    clip = load_clip("tiny", "random")
    image = read_image(str(next(data_root.rglob("River_13.png"))))
    theirs = load(trained("CoOp").folder).trainer.test_loader.dataset.transform  # type: ignore[attr-defined]
    assert torch.equal(clip.transform(image), theirs(image))
