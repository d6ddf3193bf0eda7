"""`cocoamix predict` matches the run's own evaluation for every image, from the run's folder alone."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from PIL import Image

from cocoamix.clip.backbones import ASSETS
from cocoamix.errors import UserError
from cocoamix.features.extract import FrozenFeatures, Source
from cocoamix.features.images import ImageItems
from cocoamix.io import checkpoints
from cocoamix.predict import classifier
from cocoamix.predict.classifier import load
from cocoamix.predict.command import main
from cocoamix.run.predictions import read_predictions
from tests.conftest import CLASSES, ROOT, Run, Runner
from tests.faults.runs import KINDS

from .conftest import Trained, read_rows

Table = Callable[..., Path]


def predictions(csv: Path) -> dict[str, tuple[str, str]]:
    return {Path(row["image"]).name: (row["label"], row["predicted"]) for row in read_rows(csv)}


@pytest.mark.parametrize("kind", [*KINDS, "zero-shot", "zero-shot, sessions"])
def test_predictions_match_the_evaluation(
    kind: str, trained: Trained, test_table: Table, data_root: Path, tmp_path: Path
) -> None:
    done = trained(kind)
    wanted = predictions(done.folder / "predictions.csv")
    assert len(wanted) == done.results["evaluated_images"]
    table = test_table(done.results["classnames"])
    (data_root / "eurosat" / "split_zhou_EuroSAT.json").unlink()  # no dataset is needed
    assert main([str(done.folder), str(table), "--csv", str(tmp_path / "found.csv"), "--no-store"]) == 0
    assert predictions(tmp_path / "found.csv") == wanted
    right = sum(label == predicted for label, predicted in wanted.values())
    assert 100 * right / len(wanted) == pytest.approx(done.results["metrics"]["accuracy"])


def test_predicting_from_an_evaluation_folder(trained: Trained, run: Runner, data_root: Path) -> None:
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
def test_other_classes_match_an_evaluation_on_all(
    kind: str, trained: Trained, run: Runner, test_table: Table, tmp_path: Path
) -> None:
    """Trained on half of the classes: the others score as in an evaluation on all of them."""
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
    for same in (["Sea or Lake", "sea or lake"], ["two  words", "two_words"], ["e\u0301", "é"]):
        with pytest.raises(UserError, match=r"The class .* occurs twice .* Give every class a different name"):
            more.with_classes(same)
    with pytest.raises(UserError, match=r"The class 'ZEBRA' occurs twice \('zebra'\)"):
        more.with_classes(["ZEBRA"])


def test_sessions_accept_other_classes(trained: Trained, data_root: Path) -> None:
    done = load(trained("CoCoAMix, sessions").folder)
    image = next(data_root.rglob("River_13.png"))
    same = done.with_classes(CLASSES, keep=False)
    assert same.classes == done.classes == CLASSES
    torch.testing.assert_close(same.probabilities(image), done.probabilities(image), atol=1e-5, rtol=0)
    more = done.with_classes(["zebra", "okapi"])
    found = more.probabilities(image)
    assert found.shape == (1, 12)
    # Without centring, the logits of the original classes do not change.
    torch.testing.assert_close(found[:, :10] / found[:, :10].sum(), done.probabilities(image), atol=1e-5, rtol=0)


class TestUnusualImages:
    """All kinds of images, including some that cannot be read."""

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
        with open(os.path.join(os.fsencode(folder), b"caf\xe9.png"), "wb") as file:  # a name that is not UTF-8
            good.save(file, "PNG")
        (folder / "corrupt.jpg").write_bytes(b"\xff\xd8 nothing")
        (folder / "notes.txt").write_text("not an image")
        return folder

    def test_readable_images_are_labelled(
        self, trained: Trained, images: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        done = trained("CoOp")
        out = tmp_path / "found"
        files = ["--csv", f"{out}.csv", "--json", f"{out}.json", "--html", f"{out}.html", "--top", "2"]
        assert main([str(done.folder), str(images), *files]) == 1
        printed = capfd.readouterr().out
        assert "corrupt.jpg cannot be read" in printed
        assert "7 images, 1 unreadable" in printed
        assert "Probabilities are not calibrated." in printed
        assert "\ncaf\\xe9.png  " in printed
        rows = {Path(row["image"]).name: row for row in read_rows(Path(f"{out}.csv"))}
        corrupt = rows.pop("corrupt.jpg")
        assert corrupt["error"].startswith("it is not an image")
        assert {corrupt[column] for column in corrupt if column not in ("image", "error")} == {""}
        good = {"plain.png", "grey.png", "alpha.png", "deep.png", "turned.jpg", "ünï 日本.png", "caf\\xe9.png"}
        assert set(rows) == good
        assert {row["error"] for row in rows.values()} == {""}
        # 8-bit and 16-bit grey are the same image; so are the plain ones and the one with alpha.
        assert rows["grey.png"]["probability_1"] == rows["deep.png"]["probability_1"]
        for other in ("alpha.png", "caf\\xe9.png", "ünï 日本.png"):
            assert rows["plain.png"]["probability_1"] == rows[other]["probability_1"]
        assert "class_2" in rows["plain.png"]
        assert "class_3" not in rows["plain.png"]
        content = json.loads(Path(f"{out}.json").read_bytes().decode("utf-8"))
        assert {Path(one["image"]).name for one in content["images"]} == good
        (bad,) = content["unreadable"]
        assert bad == {"image": str(images / "corrupt.jpg"), "error": corrupt["error"]}
        assert content["classes"] == CLASSES[:5]
        assert content["calibrated"] is False
        assert "caf\\\\xe9.png" in Path(f"{out}.html").read_bytes().decode("utf-8")
        assert [one.error for one in read_predictions(f"{out}.csv") if one.error] == [corrupt["error"]]

    def test_user_images_are_rotated_upright_as_in_training(self, trained: Trained, images: Path) -> None:
        done = load(trained("CoOp").folder)
        assert not done.upright  # CoOp's datasets are read as CoOp reads them
        turned = images / "turned.jpg"
        as_stored = done.probabilities(Image.open(turned).convert("RGB"))
        assert torch.equal(done.probabilities(turned), as_stored)


def test_many_images_are_labelled_in_chunks(trained: Trained, data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = load(trained("CoOp").folder, store=False)
    images = sorted(data_root.rglob("*.png"))[:40]
    whole = done.probabilities(images)
    monkeypatch.setattr(classifier, "_AT_ONCE", 7)
    torch.testing.assert_close(done.probabilities(images), whole, atol=1e-5, rtol=0)


def test_labels_are_taken_from_folders(
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
    printed = capfd.readouterr().out
    assert "over 6 images with a label among the classes" in printed
    assert "3 images with a label that is not among the classes" in printed


def test_rows_distinguish_files(
    trained: Trained,
    data_root: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = trained("CoOp")
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b/c"):
        Path("photos", name).mkdir(parents=True)
        shutil.copy(next(data_root.rglob("River_13.png")), Path("photos", name, "1.png"))
    for given in (["photos"], ["photos/a", "photos/b"], ["photos/a/1.png", str(tmp_path / "photos" / "b")]):
        assert main([str(done.folder), *given]) == 0
        printed = capfd.readouterr().out
        assert "\na/1.png    " in printed, given
        assert "\nb/c/1.png  " in printed, given
    assert main([str(done.folder), "photos/a"]) == 0
    assert "\n1.png  " in capfd.readouterr().out


def test_a_partly_labelled_table_is_accepted(
    trained: Trained, data_root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = trained("CoOp")
    first, second, third = sorted(data_root.rglob("Forest_1?.png"))[:3]
    for head, rows in (
        ("path,classname", (",Forest", ",", ",zebra")),
        ("path,label", (",Forest", ",", ",zebra")),
        ("path,label,classname,split", (",1,Forest,train", ",2,,", ",,zebra,other")),
    ):
        table = tmp_path / "some.csv"
        lines = [f"{path}{rest}" for path, rest in zip((first, second, third), rows, strict=True)]
        table.write_text("\n".join([head, *lines]))
        out = tmp_path / "out.csv"
        assert main([str(done.folder), str(table), "--csv", str(out)]) == 0, head
        assert [record.label for record in read_predictions(out)] == ["Forest", "", "zebra"]
        printed = capfd.readouterr().out
        assert "over 1 image with a label among the classes" in printed
        assert "1 image with a label that is not among the classes" in printed
    table.write_text(f"path,classname\n{first},Forest\n,Forest\n")
    assert main([str(done.folder), str(table)]) == 2
    assert "line 3: the path is empty" in capfd.readouterr().err


def test_classes_with_equal_names_are_numbered(
    trained: Trained, data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like two of ImageNet's. Outputs number them, prompts use their name, and other classes can still be added."""
    done = trained("zero-shot")
    content = json.loads((done.folder / "results.json").read_text())
    content["classnames"][3] = "forest"
    (done.folder / "results.json").write_text(json.dumps(content))
    run = load(done.folder)
    assert run.classes[1:4] == ["Forest (1)", CLASSES[2], "forest (2)"]
    found = run.probabilities(next(data_root.rglob("River_13.png")))[0]
    more = run.with_classes(["zebra"])
    assert more.classes[1:4] == run.classes[1:4]
    again = more.probabilities(next(data_root.rglob("River_13.png")))[0]
    torch.testing.assert_close(again[:10] / again[:10].sum(), found)
    with pytest.raises(UserError, match="'FOREST' occurs twice"):
        run.with_classes(["FOREST"])
    names = tmp_path / "names.txt"
    names.write_text("zebra\nZebra\n")
    assert main([str(done.folder), str(data_root), "--classes", str(names)]) == 2


class TestUnknown:
    def test_threshold_is_set_on_held_out_images(
        self, trained: Trained, data_root: Path, test_table: Table, capfd: pytest.CaptureFixture[str]
    ) -> None:
        done = trained("CoOp")
        table = str(test_table(CLASSES[:5]))
        assert main([str(done.folder), table, "--unknown", "0.25", "--held-out", table]) == 0
        printed = capfd.readouterr().out
        # Set and tested on the same 20 images: a quarter must be below, so 5 of them.
        assert "25.00 % of 20 images of known classes flagged as unknown (false alarms)" in printed
        table = shutil.copy(table, data_root)
        everything, out = str(test_table()), data_root / "found.json"
        unknown = ["--unknown", "0.25", "--held-out", table, "--json", str(out)]
        assert main([str(done.folder), everything, *unknown]) == 0
        printed = capfd.readouterr().out
        marked = [one for one in json.loads(out.read_text())["images"] if one["predicted"] == "(unknown)"]
        right = [one["label"] for one in marked if one["correct"]]
        assert set(right) <= set(CLASSES[5:])
        assert len(marked) - len(right) == 5
        assert f"{100 * len(right) / 20:.2f} % of 20 images of other classes flagged as unknown" in printed

    def test_threshold_is_set_on_training_folds(
        self, trained: Trained, data_root: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        done = trained("CoCoAMix, folds")
        image = str(next(data_root.rglob("River_13.png")))
        assert len(done.results["heldout"]["confidence"]) == 101
        assert main([str(done.folder), image, "--unknown", "0.05"]) == 0
        printed = capfd.readouterr().out
        assert "5 % of 20 held-out images of training" in printed
        assert "Probabilities are calibrated" in printed
        assert main([str(done.folder), image, "--unknown", "0.05", "--add", "zebra"]) == 2
        assert "for the training classes only: add --held-out" in capfd.readouterr().err

    @pytest.mark.parametrize(
        ("rate", "words"), [("2", "between 0 and 1"), ("0.1", "fitted nothing to held-out images")]
    )
    def test_invalid_false_alarm_rates_are_refused(
        self, rate: str, words: str, trained: Trained, data_root: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        done = trained("CoOp")
        assert main([str(done.folder), str(next(data_root.rglob("River_13.png"))), "--unknown", rate]) == 2
        assert words in capfd.readouterr().err


class TestOtherCheckpoints:
    """A folder as CoOp's own code writes it: checkpoints without metadata."""

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

    def test_their_configuration_gives_the_same_predictions(
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
        assert "do not list their classes: give --classes" in capfd.readouterr().err
        names.write_text("\n".join(reversed(CLASSES[:5])))
        assert main([*arguments, "--classes", str(names)]) == 2
        assert "or they are in another order" in capfd.readouterr().err
        names.write_text("\n".join(CLASSES[:5]))
        assert main([*arguments, "--classes", str(names)]) == 0
        assert predictions(out) == predictions(done.folder / "predictions.csv")

    def test_their_configuration_is_required(
        self, theirs: tuple[Run, Path], test_table: Table, capfd: pytest.CaptureFixture[str]
    ) -> None:
        assert main([str(theirs[1]), str(test_table())]) == 2
        assert "does not record how it was trained" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere", "x.png"], "There is no folder nowhere"),
        (["empty", "x.png"], "There is no run in empty"),
        (["trained", "x.png"], "There is no image, folder or table x.png"),
        (["trained", "empty"], "empty contains no images"),
        (["trained", "data", "--top", "0"], "--top is 0"),
        (["trained", "data", "--classes", "nothing.txt"], "nothing.txt does not exist"),
        (["trained", "data", "--add", " "], "A class name is empty"),
        (["trained", "data", "--trainer", "CoOpp", "--classes", "names.txt"], "Did you mean CoOp?"),
    ],
)
def test_invalid_input_is_refused(
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
    """A training table may count from 1, and a run does not record how its numbers were counted."""
    done = trained("CoOp")
    table = tmp_path / "numbers.csv"
    table.write_text(f"path,label\n{next(data_root.rglob('River_13.png'))},1\n")
    assert main([str(done.folder), str(table)]) == 2
    assert "the label is 1, a number. Add a column `classname`" in capfd.readouterr().err


def test_other_classes_are_not_reported_as_calibrated(
    trained: Trained, tmp_path: Path, data_root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = trained("CoCoAMix, folds")
    (tmp_path / "names.txt").write_text("zebra\nokapi\n")
    image = str(next(data_root.rglob("River_13.png")))
    capfd.readouterr()
    assert main([str(done.folder), image, "--classes", str(tmp_path / "names.txt")]) == 0
    printed = capfd.readouterr().out
    assert "2 classes, none of them trained on" in printed
    assert "Probabilities are not calibrated." in printed


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


class TestForeignFolders:
    """The folder of a run may come from somebody else: what its results.json names is neither written nor trusted."""

    @pytest.fixture
    def image(self, data_root: Path) -> str:
        return str(next(data_root.rglob("River_13.png")))

    @pytest.mark.parametrize("name", ["EuroSAT", "../../../mine", "ABSOLUTE"])
    def test_no_path_that_results_name_is_written(
        self, name: str, trained: Trained, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COCOAMIX_CACHE", str(tmp_path / "cache"))
        done, mine = trained("CoOp"), tmp_path / "mine"
        (mine / "predict").mkdir(parents=True)
        (mine / "predict" / "user.safetensors").write_bytes(b"of the user")
        dataset = str(mine) if name == "ABSOLUTE" else name
        store = _link_a_store(load(done.folder), tmp_path / "store", mine)
        _alter(done, CACHE={"DIR": str(store)}, DATASET={"NAME": dataset})
        before = _contents(tmp_path)
        assert main([str(done.folder), image]) == 0
        assert _contents(tmp_path) == before
        assert list((tmp_path / "cache").rglob("*.safetensors"))  # in the user's own cache

    @pytest.mark.parametrize("recorded", ["0" * 64, None])
    def test_weights_that_results_name_must_have_the_recorded_hash(
        self, recorded: str | None, trained: Trained, image: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        done = trained("zero-shot", "MODEL.BACKBONE.WEIGHTS", str(ASSETS / "tiny.safetensors"))
        file = str(shutil.copy(ASSETS / "tiny.safetensors", tmp_path / "moved.safetensors"))
        _alter(done, MODEL={"BACKBONE": {"NAME": "tiny", "WEIGHTS": file}})
        assert main([str(done.folder), image]) == 0
        results = done.results
        results["protocol"]["weights_sha256"] = recorded
        (done.folder / "results.json").write_text(json.dumps(results))
        capfd.readouterr()
        assert main([str(done.folder), image]) == 2
        assert file in capfd.readouterr().err
        assert (main([str(done.folder), image, "--weights", file]) == 0) == (recorded is None)


def _link_a_store(run: classifier.Classifier, folder: Path, target: Path) -> Path:
    """Make a folder of feature stores in which the dataset's part of the run's store is a link to another folder."""
    trainer = run.trainer
    images = FrozenFeatures(trainer.clip.each(), folder)
    (store,) = images._stores_of(Source(cast(ImageItems, trainer.test_loader.dataset), "", 1, 0))
    store.folder.mkdir(parents=True)
    (store.folder / "EuroSAT").symlink_to(target)
    return folder


def _alter(run: Run, **sections: dict[str, object]) -> None:
    """Change the configuration in a run's results.json, and the name of the dataset in its checkpoint as well."""
    results = run.results
    for section, values in sections.items():
        results["config"][section] |= values
    (run.folder / "results.json").write_text(json.dumps(results))
    for path in run.folder.glob("*/model.pth.tar-*"):
        content = checkpoints.load(path)
        content["cocoamix"]["settings"]["DATASET.NAME"] = results["config"]["DATASET"]["NAME"]
        checkpoints.save(path, content)


def _contents(folder: Path) -> dict[Path, bytes]:
    """Return the files below a folder, except those of the cache."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.parts[len(folder.parts)] != "cache")
    return {path: path.read_bytes() for path in found}
