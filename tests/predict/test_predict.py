"""`cocoamix predict` says of every image what the run's own evaluation says, from the run's folder alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cocoamix.io import checkpoints
from cocoamix.predict import classifier
from cocoamix.predict.classifier import load
from cocoamix.predict.command import main
from tests.conftest import CLASSES, ROOT, Run, Runner
from tests.faults.runs import KINDS

from .conftest import Trained, read_rows

Table = Callable[..., Path]


def predictions(csv: Path) -> dict[str, tuple[str, str]]:
    return {row["image"]: (row["label"], row["predicted"]) for row in read_rows(csv)}


@pytest.mark.parametrize("kind", [*KINDS, "zero-shot", "zero-shot, sessions"])
def test_every_image_as_in_the_evaluation(
    kind: str, trained: Trained, run: Runner, test_table: Table, data_root: Path, tmp_path: Path
) -> None:
    if kind.startswith("zero-shot"):
        keep = ["--eval-only", "TEST.SAVE_PREDICTIONS", "True"]
        cut = ["FSCIL.BASE", "4", "FSCIL.WAY", "2", "FSCIL.SHOTS", "2"]
        name, extra = ("ZeroshotCLIPFSCIL", cut) if "sessions" in kind else ("ZeroshotCLIP", [])
        done = run(*keep, *extra, trainer=name, name="trained")
    else:
        done = trained(kind)
    shutil.rmtree(data_root / "eurosat" / "split_fewshot", ignore_errors=True)
    wanted = predictions(done.folder / "predictions.csv")
    assert len(wanted) == done.results["evaluated_images"]
    table = test_table(done.results["classnames"])
    (data_root / "eurosat" / "split_zhou_EuroSAT.json").unlink()  # no dataset is needed
    assert main([str(done.folder), str(table), "--csv", str(tmp_path / "found.csv"), "--no-store"]) == 0
    assert predictions(tmp_path / "found.csv") == wanted
    right = sum(label == predicted for label, predicted in wanted.values())
    assert 100 * right / len(wanted) == pytest.approx(done.results["metrics"]["accuracy"])


def test_from_the_folder_of_an_evaluation(trained: Trained, run: Runner, data_root: Path) -> None:
    done = trained("CoCoAMix")
    evaluate = ["--eval-only", "--model-dir", str(done.folder), "DATASET.SUBSAMPLE_CLASSES", "new", *MIX]
    evaluation = run(*evaluate, trainer="CoCoAMix", name="evaluation")
    assert evaluation.status == 0, evaluation.output[-500:]
    images = sorted(data_root.rglob("*_13.png"))
    one, other = load(done.folder), load(evaluation.folder)
    assert one.classes == other.classes == CLASSES[:5]
    assert torch.equal(one.probabilities(images), other.probabilities(images))


MIX = ["TRAINER.COCOAMIX.N_CTX", "2", "DATASET.NUM_SHOTS", "4"]


@pytest.mark.parametrize("kind", ["CoOp", "CoCoAMix", "CoCoAMix, folds", "DePT", "MaPLe", "TuneEn", "CoCoOp"])
def test_other_classes_are_those_of_an_evaluation_on_all(
    kind: str, trained: Trained, run: Runner, test_table: Table, tmp_path: Path
) -> None:
    """Trained on half of the classes: the others take what they take in an evaluation on all of them."""
    done = trained(kind)
    trainer, settings = KINDS[kind]
    everything = ["all" if value == "base" else value for value in settings]
    keep = ["--eval-only", "--model-dir", str(done.folder), "TEST.SAVE_PREDICTIONS", "True"]
    evaluation = run(*keep, *everything, trainer=trainer, name="everything")
    assert evaluation.status == 0, evaluation.output[-500:]
    out = tmp_path / "found.csv"
    assert main([str(done.folder), str(test_table()), "--csv", str(out), "--add", *CLASSES[5:]]) == 0
    assert predictions(out) == predictions(evaluation.folder / "predictions.csv")
    more = load(done.folder).with_classes(["zebra"])
    assert more.classes == [*CLASSES[:5], "zebra"]
    assert more.trained_classes == CLASSES[:5]
    with pytest.raises(Exception, match="'sea or lake' is there twice"):
        more.with_classes(["Sea or Lake", "sea or lake"])


def test_sessions_take_other_classes(trained: Trained, data_root: Path) -> None:
    done = load(trained("CoCoAMix, sessions").folder)
    image = next(data_root.rglob("River_13.png"))
    same = done.with_classes(CLASSES, keep=False)
    assert same.classes == done.classes == CLASSES
    torch.testing.assert_close(same.probabilities(image), done.probabilities(image), atol=1e-5, rtol=0)
    more = done.with_classes(["zebra", "okapi"])
    found = more.probabilities(image)
    assert found.shape == (1, 12)
    # Without centring, the logits of the classes of before do not change.
    torch.testing.assert_close(found[:, :10] / found[:, :10].sum(), done.probabilities(image), atol=1e-5, rtol=0)


class TestOdd:
    """Images of all kinds, among them some that cannot be read."""

    @pytest.fixture
    def images(self, tmp_path: Path, data_root: Path) -> Path:
        folder = tmp_path / "images"
        folder.mkdir()
        good = Image.open(next(data_root.rglob("River_13.png")))
        good.save(folder / "plain.png")
        good.convert("L").save(folder / "grey.png")
        good.convert("RGBA").save(folder / "alpha.png")
        Image.fromarray(np.array(good.convert("L")).astype(np.uint16) * 257).save(folder / "deep.png")
        exif = Image.Exif()
        exif[0x0112] = 6
        good.save(folder / "turned.jpg", exif=exif)
        good.save(folder / "ünï 日本.png")
        (folder / "corrupt.jpg").write_bytes(b"\xff\xd8 nothing")
        (folder / "notes.txt").write_text("not an image")
        return folder

    def test_the_rest_goes_on(
        self, trained: Trained, images: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        done = trained("CoOp")
        capfd.readouterr()
        out = tmp_path / "found"
        files = ["--csv", f"{out}.csv", "--json", f"{out}.json", "--html", f"{out}.html", "--top", "2"]
        assert main([str(done.folder), str(images), *files]) == 1
        told = capfd.readouterr().out
        assert "corrupt.jpg cannot be read" in told
        assert "6 images, 1 unreadable" in told
        assert "Probabilities are not calibrated." in told
        rows = {Path(row["image"]).name: row for row in read_rows(Path(f"{out}.csv"))}
        assert set(rows) == {"plain.png", "grey.png", "alpha.png", "deep.png", "turned.jpg", "ünï 日本.png"}
        # Grey in 8 and in 16 bits is the same image, and so are the plain one and that with alpha.
        assert rows["grey.png"]["probability_1"] == rows["deep.png"]["probability_1"]
        assert rows["plain.png"]["probability_1"] == rows["alpha.png"]["probability_1"]
        assert "class_2" in rows["plain.png"]
        assert "class_3" not in rows["plain.png"]
        content = json.loads(Path(f"{out}.json").read_text())
        assert len(content["images"]) == 6
        assert content["classes"] == CLASSES[:5]
        assert content["calibrated"] is False

    def test_own_images_are_turned_upright_as_in_training(self, trained: Trained, images: Path) -> None:
        done = load(trained("CoOp").folder)
        assert not done.upright  # CoOp's datasets are read as CoOp reads them
        turned = images / "turned.jpg"
        as_stored = done.probabilities(Image.open(turned).convert("RGB"))
        assert torch.equal(done.probabilities(turned), as_stored)


def test_many_images_in_parts(trained: Trained, data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = load(trained("CoOp").folder, store=False)
    images = sorted(data_root.rglob("*.png"))[:40]
    whole = done.probabilities(images)
    monkeypatch.setattr(classifier, "_AT_ONCE", 7)
    torch.testing.assert_close(done.probabilities(images), whole, atol=1e-5, rtol=0)


def test_labels_from_folders(
    trained: Trained, data_root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = trained("CoOp")
    for name, other in (("River", "001_Forest"), ("Pasture", "002_annual crop land"), ("Highway", "003_zebra")):
        target = tmp_path / "folders" / other
        target.mkdir(parents=True)
        for path in list(data_root.rglob(f"{name}*_1?.png"))[:3]:
            shutil.copy(path, target)
    assert main([str(done.folder), str(tmp_path / "folders"), "--csv", str(tmp_path / "out.csv")]) == 0
    assert {row["label"] for row in read_rows(tmp_path / "out.csv")} == {"Forest", "Annual Crop Land", "zebra"}
    told = capfd.readouterr().out
    assert "over 6 images with a label among the classes" in told
    assert "3 images have a label that is none of the classes" in told


class TestUnknown:
    def test_by_held_out_images(
        self, trained: Trained, data_root: Path, test_table: Table, capfd: pytest.CaptureFixture[str]
    ) -> None:
        done = trained("CoOp")
        table = str(test_table(CLASSES[:5]))
        assert main([str(done.folder), table, "--unknown", "0.25", "--held-out", table]) == 0
        told = capfd.readouterr().out
        # Set and tried on the same 20 images: 5 of them, where a quarter is to be below.
        assert "false alarms 25.00 % of 20 images of known classes" in told
        everything = str(test_table())
        assert main([str(done.folder), everything, "--unknown", "0.25", "--held-out", table]) == 0
        assert "of 20 images of other classes" in capfd.readouterr().out

    def test_by_the_folds_of_training(
        self, trained: Trained, data_root: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        done = trained("CoCoAMix, folds")
        image = str(next(data_root.rglob("River_13.png")))
        assert len(done.results["heldout"]["confidence"]) == 101
        assert main([str(done.folder), image, "--unknown", "0.05"]) == 0
        told = capfd.readouterr().out
        assert "5 % of 20 held-out images of training" in told
        assert "Probabilities are calibrated" in told
        assert main([str(done.folder), image, "--unknown", "0.05", "--add", "zebra"]) == 2
        assert "for the classes of training alone: add --held-out" in capfd.readouterr().err

    @pytest.mark.parametrize(
        ("rate", "words"), [("2", "between 0 and 1"), ("0.1", "fitted nothing to held-out images")]
    )
    def test_refused(
        self, rate: str, words: str, trained: Trained, data_root: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        done = trained("CoOp")
        assert main([str(done.folder), str(next(data_root.rglob("River_13.png"))), "--unknown", rate]) == 2
        assert words in capfd.readouterr().err


class TestOthers:
    """A folder as CoOp's own code leaves it: checkpoints that tell nothing of themselves."""

    @pytest.fixture
    def theirs(self, trained: Trained, tmp_path: Path) -> tuple[Run, Path]:
        done = trained("CoOp")
        folder = tmp_path / "theirs"
        shutil.copytree(done.folder / "prompt_learner", folder / "prompt_learner")
        for path in (folder / "prompt_learner").glob("model*"):
            content = checkpoints.load(path)
            del content["cocoamix"]
            torch.save(content, path)
        return done, folder

    def test_with_their_configuration(
        self,
        theirs: tuple[Run, Path],
        test_table: Table,
        tiny_config: Path,
        tmp_path: Path,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        done, folder = theirs
        names, out = tmp_path / "names.txt", tmp_path / "found.csv"
        table = str(test_table(CLASSES[:5]))
        arguments = [str(folder), table, "--csv", str(out), "--trainer", "CoOp", "--config-file", str(tiny_config)]
        assert main(arguments) == 2
        assert "do not name their classes: give --classes" in capfd.readouterr().err
        names.write_text("\n".join(reversed(CLASSES[:5])))
        assert main([*arguments, "--classes", str(names)]) == 2
        assert "or they are in another order" in capfd.readouterr().err
        names.write_text("\n".join(CLASSES[:5]))
        assert main([*arguments, "--classes", str(names)]) == 0
        assert predictions(out) == predictions(done.folder / "predictions.csv")

    def test_without(self, theirs: tuple[Run, Path], test_table: Table, capfd: pytest.CaptureFixture[str]) -> None:
        assert main([str(theirs[1]), str(test_table())]) == 2
        assert "does not tell how it was trained" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere", "x.png"], "There is no folder nowhere"),
        (["empty", "x.png"], "There is no run in empty"),
        (["trained", "x.png"], "There is no image, folder or table x.png"),
        (["trained", "empty"], "empty holds no images"),
        (["trained", "data", "--top", "0"], "--top is 0"),
        (["trained", "data", "--classes", "nothing.txt"], "nothing.txt does not exist"),
        (["trained", "data", "--add", " "], "A class name is empty"),
        (["trained", "data", "--trainer", "CoOpp", "--classes", "names.txt"], "Did you mean CoOp?"),
    ],
)
def test_bad_input(
    arguments: list[str],
    words: str,
    trained: Trained,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    trained("CoOp", "OPTIM.MAX_EPOCH", "1")
    (tmp_path / "empty").mkdir()
    (tmp_path / "names.txt").write_text("one\ntwo\n")
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert words in capfd.readouterr().err


def test_without_its_checkpoint_a_trained_run_is_refused(
    trained: Trained, tmp_path: Path, data_root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = trained("CoOp")
    (tmp_path / "alone").mkdir()
    shutil.copy(done.folder / "results.json", tmp_path / "alone")
    assert main([str(tmp_path / "alone"), str(next(data_root.rglob("River_13.png")))]) == 2
    assert "has no checkpoint" in capfd.readouterr().err


def test_numbers_for_labels_are_refused(
    trained: Trained, tmp_path: Path, data_root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The table of a training may count from 1, and a run does not tell how its numbers were counted."""
    done = trained("CoOp")
    table = tmp_path / "numbers.csv"
    table.write_text(f"path,label\n{next(data_root.rglob('River_13.png'))},1\n")
    assert main([str(done.folder), str(table)]) == 2
    assert "the label is 1, a number. Add a column `classname`" in capfd.readouterr().err


def test_other_classes_are_not_called_calibrated(
    trained: Trained, tmp_path: Path, data_root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = trained("CoCoAMix, folds")
    (tmp_path / "names.txt").write_text("zebra\nokapi\n")
    image = str(next(data_root.rglob("River_13.png")))
    capfd.readouterr()
    assert main([str(done.folder), image, "--classes", str(tmp_path / "names.txt")]) == 0
    told = capfd.readouterr().out
    assert "2 classes, none of them trained on" in told
    assert "Probabilities are not calibrated." in told


def test_an_unfinished_run_is_refused(trained: Trained, run: Runner, capfd: pytest.CaptureFixture[str]) -> None:
    done = trained("CoOp")
    (done.folder / "results.json").unlink()
    assert load(done.folder).classes == CLASSES[:5]  # it was trained to its end
    path = done.folder / "prompt_learner" / "model.pth.tar-4"
    content = checkpoints.load(path)
    content["cocoamix"]["finished"] = False
    checkpoints.save(path, content)
    assert main([str(done.folder), str(ROOT / "README.md")]) == 2
    assert "is not finished" in capfd.readouterr().err
