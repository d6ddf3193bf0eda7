"""`cocoamix predict` matches the run's own evaluation for every image, from the run's folder alone."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cocoamix import trained as trained_module
from cocoamix.clip.backbones import ASSETS
from cocoamix.errors import UserError
from cocoamix.features.extract import FrozenFeatures, Source
from cocoamix.features.images import ImageItems
from cocoamix.io import checkpoints
from cocoamix.predict import Page, main
from cocoamix.run.predictions import UNKNOWN, Record, read_predictions, unreadable_record
from cocoamix.trained import TrainedModel, check_different, load
from tests.conftest import CLASSES, ROOT, Run, Runner
from tests.faults.runs import KINDS

from .conftest import Trained, read_rows

Table = Callable[..., Path]
Printed = pytest.CaptureFixture[str]


def predictions(csv: Path) -> dict[str, tuple[str, str]]:
    return {Path(row["image"]).name: (row["label"], row["predicted"]) for row in read_rows(csv)}


@pytest.fixture
def image(data_root: Path) -> str:
    return str(next(data_root.rglob("River_13.png")))


@pytest.mark.parametrize("kind", [*KINDS, "zero-shot", "zero-shot, sessions"])
def test_predictions_match_the_evaluation(
    kind: str, trained: Trained, test_table: Table, data_root: Path, tmp_path: Path
) -> None:
    done = trained(kind)
    wanted = predictions(done.folder / "predictions.csv")
    assert len(wanted) == done.results["evaluated_images"]
    assert ("checkpoint" in done.results) == ("zero-shot" not in kind)
    table = test_table(done.results["classnames"])
    (data_root / "eurosat" / "split_zhou_EuroSAT.json").unlink()  # no dataset is needed
    assert main([str(done.folder), str(table), "--csv", str(tmp_path / "out.csv"), "--no-store"]) == 0
    assert predictions(tmp_path / "out.csv") == wanted
    right = sum(label == predicted for label, predicted in wanted.values())
    assert 100 * right / len(wanted) == pytest.approx(done.results["metrics"]["accuracy"])


EVALUATIONS = {  # other mixtures and checkpoints than those of the training run
    "CoCoAMix": ("DATASET.SUBSAMPLE_CLASSES", "base", "TRAINER.COCOAMIX.ENSEMBLE", "uniform"),
    "CoOp": ("DATASET.SUBSAMPLE_CLASSES", "base", "TRAINER.COOP.ENSEMBLE", "uniform", "TRAINER.COOP.TEMPLATE", "{}."),
    "CoOp, best on val": ("DATASET.SUBSAMPLE_CLASSES", "base"),
    "CoCoAMix, sessions": ("FSCIL.LAST_SESSION", "1", "TRAINER.COCOAMIX.ENSEMBLE", "uniform"),
}


@pytest.mark.parametrize("kind", EVALUATIONS)
def test_an_evaluation_names_its_checkpoint(
    kind: str, trained: Trained, run: Runner, test_table: Table, tmp_path: Path, capfd: Printed
) -> None:
    """It predicts what it evaluated, wherever both folders are; without the key, only training runs can be opened."""
    done, (trainer, settings) = trained(kind), KINDS[kind]
    early = ("--load-epoch", "2") if kind == "CoOp" else ()
    flags = ("--eval-only", "--model-dir", str(done.folder), *early)
    own = (*settings, *EVALUATIONS[kind], "TEST.SAVE_PREDICTIONS", "True")
    evaluation = run(*flags, *own, trainer=trainer, name="evaluation")
    assert evaluation.status == 0, evaluation.output[-500:]
    epoch = 2 if early else done.results["epoch"]
    assert evaluation.results["checkpoint"] == {"folder": "../trained", "epoch": epoch}
    classes = evaluation.results["classnames"]
    table = test_table(classes)
    (tmp_path / "moved").mkdir()
    for each in (done.folder, evaluation.folder):
        shutil.move(each, tmp_path / "moved")
    folder, out = tmp_path / "moved" / "evaluation", tmp_path / "out.csv"
    assert main([str(folder), str(table), "--csv", str(out)]) == 0
    assert predictions(out) == predictions(folder / "predictions.csv")
    wanted = {Path(row["image"]).name: row["probability_1"] for row in read_rows(folder / "predictions.csv")}
    for row in read_rows(out):
        assert float(row["probability_1"]) == pytest.approx(float(wanted[Path(row["image"]).name]), abs=1e-5)
    assert load(folder).classes == classes
    capfd.readouterr()
    for place, status in ((folder, 2), (tmp_path / "moved" / "trained", 0)):
        content = json.loads((place / "results.json").read_text())
        del content["checkpoint"]
        (place / "results.json").write_text(json.dumps(content))
        assert main([str(place), str(table)]) == status
    assert "its results.json names none. Evaluate it again" in capfd.readouterr().err


def test_damaged_checkpoints_are_refused(trained: Trained, image: str, capfd: Printed) -> None:
    done = trained("CoOp")
    results = done.results
    for checkpoint, words in (
        ({"folder": "../gone", "epoch": 4}, "which does not exist"),
        ({"folder": ".", "epoch": 9}, "has no checkpoint of epoch 9"),
        ({"folder": 3}, "checkpoint.folder"),
    ):
        (done.folder / "results.json").write_text(json.dumps({**results, "checkpoint": checkpoint}))
        assert main([str(done.folder), image]) == 2
        assert words in capfd.readouterr().err
    (done.folder / "results.json").write_text(json.dumps(results))
    path = done.folder / "prompt_learner" / "model.pth.tar-4"
    content = checkpoints.load(path)
    for change, words in (
        ({"classnames": 3}, "does not record the classnames"),
        ({"weights_sha256": "0" * 64}, "weights 0000"),
        ({"trainer": "KgCoOp"}, "trained by KgCoOp"),
        (
            {"settings": {**content["cocoamix"]["settings"], "TRAINER.COOP.CLASS_TOKEN_POSITION": "x"}},
            "CLASS_TOKEN_POSITION",
        ),
    ):
        checkpoints.save(path, {**content, "cocoamix": {**content["cocoamix"], **change}})
        assert main([str(done.folder), image]) == 2
        assert words in capfd.readouterr().err
    path.write_bytes(path.read_bytes()[:-200])
    assert main([str(done.folder), image]) == 2
    assert "cannot be read as a checkpoint" in capfd.readouterr().err
    shutil.rmtree(done.folder / "prompt_learner")
    assert main([str(done.folder), image]) == 2
    assert "There are no checkpoints in" in capfd.readouterr().err


@pytest.mark.parametrize("kind", ["CoOp", "CoCoAMix", "CoCoAMix, folds", "DePT", "MaPLe", "TuneEn", "CoCoOp"])
def test_other_classes_match_an_evaluation_on_all(
    kind: str, trained: Trained, run: Runner, test_table: Table, tmp_path: Path
) -> None:
    """Trained on half of the classes: the others score as in an evaluation on all of them."""
    done, (trainer, settings) = trained(kind), KINDS[kind]
    everything = ["all" if value == "base" else value for value in settings]
    keep = ["--eval-only", "--model-dir", str(done.folder), "TEST.SAVE_PREDICTIONS", "True"]
    evaluation = run(*keep, *everything, trainer=trainer, name="everything")
    assert evaluation.status == 0, evaluation.output[-500:]
    out = tmp_path / "out.csv"
    assert main([str(done.folder), str(test_table()), "--csv", str(out), "--add", *CLASSES[5:]]) == 0
    assert predictions(out) == predictions(evaluation.folder / "predictions.csv")
    more = load(done.folder).with_classes(["zebra"])
    assert more.classes == [*CLASSES[:5], "zebra"]
    assert more.trained_classes == CLASSES[:5]


def test_sessions_accept_other_classes(trained: Trained, image: str) -> None:
    done = load(trained("CoCoAMix, sessions").folder)
    same = done.with_classes(CLASSES, keep=False)
    assert same.classes == done.classes == CLASSES
    torch.testing.assert_close(same.probabilities(image), done.probabilities(image), atol=1e-5, rtol=0)
    more = done.with_classes(["zebra", "okapi"]).probabilities(image)
    assert more.shape == (1, 12)
    # Without centring, the logits of the original classes do not change.
    torch.testing.assert_close(more[:, :10] / more[:, :10].sum(), done.probabilities(image), atol=1e-5, rtol=0)


def test_classes_with_equal_names_are_numbered(trained: Trained, data_root: Path, tmp_path: Path) -> None:
    """Like two of ImageNet's. Outputs number them, prompts use their name, and other classes can still be added."""
    for same in (["Sea or Lake", "sea or lake"], ["two  words", "two_words"], ["e\u0301", "é"], [" "]):
        with pytest.raises(UserError, match=r"occurs twice .* Give every class a different|A class name is empty"):
            check_different(same)
    done = trained("zero-shot")
    content = done.results
    content["classnames"][3] = "forest"
    (done.folder / "results.json").write_text(json.dumps(content))
    model, image = load(done.folder), next(data_root.rglob("River_13.png"))
    assert model.classes[1:4] == ["Forest (1)", CLASSES[2], "forest (2)"]
    more = model.with_classes(["zebra"])
    assert more.classes[1:4] == model.classes[1:4]
    again = more.probabilities(image)[0]
    torch.testing.assert_close(again[:10] / again[:10].sum(), model.probabilities(image)[0])
    with pytest.raises(UserError, match="'FOREST' occurs twice"):
        model.with_classes(["FOREST"])
    (tmp_path / "names.txt").write_text("zebra\nZebra\n")
    assert main([str(done.folder), str(data_root), "--classes", str(tmp_path / "names.txt")]) == 2


def test_unusual_images_are_labelled_and_unreadable_ones_listed(
    trained: Trained, image: str, tmp_path: Path, capfd: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    good = Image.open(image)
    good.save(folder / "plain.png")
    good.convert("L").save(folder / "grey.png")
    good.convert("RGBA").save(folder / "alpha.png")
    Image.fromarray(np.array(good.convert("L")).astype(np.uint16) * 257).save(folder / "deep.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    good.save(folder / "turned.jpg", exif=exif)
    with open(os.path.join(os.fsencode(folder), b"caf\xe9.png"), "wb") as file:  # a name that is not UTF-8
        good.save(file, "PNG")
    (folder / "corrupt.jpg").write_bytes(b"\xff\xd8 nothing")
    (folder / "notes.txt").write_text("not an image")
    done, out = trained("CoOp"), str(tmp_path / "out")
    files = ["--csv", f"{out}.csv", "--json", f"{out}.json", "--html", f"{out}.html", "--top", "2"]
    assert main([str(done.folder), str(folder), *files]) == 1
    printed = capfd.readouterr().out
    for words in ("corrupt.jpg cannot be read", "6 images, 1 unreadable", "not calibrated.", "\ncaf\\xe9.png  "):
        assert words in printed
    rows = {Path(row["image"]).name: row for row in read_rows(Path(f"{out}.csv"))}
    corrupt = rows.pop("corrupt.jpg")
    assert corrupt["error"].startswith("it is not an image")
    assert {corrupt[column] for column in corrupt if column not in ("image", "error")} == {""}
    assert set(rows) == {"plain.png", "grey.png", "alpha.png", "deep.png", "turned.jpg", "caf\\xe9.png"}
    # 8-bit and 16-bit grey are the same image; so are the plain one and the one with alpha.
    for one, other in (("grey", "deep"), ("plain", "alpha"), ("plain", "caf\\xe9")):
        assert rows[f"{one}.png"]["probability_1"] == rows[f"{other}.png"]["probability_1"]
    assert "class_2" in rows["plain.png"]
    assert "class_3" not in rows["plain.png"]
    content = json.loads(Path(f"{out}.json").read_bytes().decode("utf-8"))
    assert {Path(each["image"]).name for each in content["images"]} == set(rows)
    assert content["unreadable"] == [{"image": str(folder / "corrupt.jpg"), "error": corrupt["error"]}]
    assert (content["classes"], content["calibrated"]) == (CLASSES[:5], False)
    assert [record.error for record in read_predictions(f"{out}.csv") if record.error] == [corrupt["error"]]
    model, turned = load(done.folder, store=False), folder / "turned.jpg"
    assert not model.upright  # CoOp's datasets are read as CoOp reads them
    as_stored = np.array(Image.open(turned))
    assert torch.equal(model.probabilities(turned), model.probabilities(as_stored))
    model.record.protocol["images"] = "upright"  # type: ignore[index]  # as for the user's own images
    assert not torch.equal(model.probabilities(turned), model.probabilities(as_stored))
    assert torch.equal(model.probabilities(turned), model.probabilities(np.rot90(as_stored, -1).copy()))
    whole = model.probabilities([image] * 3 + [folder / "grey.png"] * 4)
    monkeypatch.setattr(trained_module, "_AT_ONCE", 3)
    torch.testing.assert_close(model.probabilities([image] * 3 + [folder / "grey.png"] * 4), whole, atol=1e-5, rtol=0)


def test_rows_distinguish_files(
    trained: Trained, image: str, tmp_path: Path, capfd: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = trained("CoOp")
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b/c"):
        Path("photos", name).mkdir(parents=True)
        shutil.copy(image, Path("photos", name, "1.png"))
    for paths in (["photos"], ["photos/a", "photos/b"], ["photos/a/1.png", str(tmp_path / "photos" / "b")]):
        assert main([str(done.folder), *paths]) == 0
        printed = capfd.readouterr().out
        assert "\na/1.png    " in printed, paths
        assert "\nb/c/1.png  " in printed, paths


class TestUnknown:
    def test_threshold_is_set_on_held_out_images(
        self, trained: Trained, data_root: Path, test_table: Table, capfd: Printed
    ) -> None:
        done = trained("CoOp")
        table = str(test_table())
        out = data_root / "out.json"
        unknown = ["--unknown", "0.25", "--held-out", table, "--json", str(out)]
        assert main([str(done.folder), table, *unknown]) == 0
        printed = capfd.readouterr().out
        # Set and tested on the same 20 images of the classes: a quarter must be below, so 5 of them.
        assert "25.00 % of 20 images of known classes flagged as unknown (false alarms)" in printed
        marked = [each for each in json.loads(out.read_text())["images"] if each["predicted"] == UNKNOWN]
        right = [each["label"] for each in marked if each["correct"]]
        assert set(right) <= set(CLASSES[5:])
        assert len(marked) - len(right) == 5
        assert f"{100 * len(right) / 20:.2f} % of 20 images of other classes flagged as unknown" in printed

    def test_threshold_is_set_on_training_folds(
        self, trained: Trained, image: str, tmp_path: Path, capfd: Printed
    ) -> None:
        done = trained("CoCoAMix, folds")
        assert main([str(done.folder), image, "--unknown", "0.05"]) == 0
        printed = capfd.readouterr().out
        assert "5 % of 20 held-out images of training" in printed
        assert "Probabilities are calibrated" in printed
        assert main([str(done.folder), image, "--unknown", "0.05", "--add", "zebra"]) == 2
        assert "for the training classes only: add --held-out" in capfd.readouterr().err
        (tmp_path / "names.txt").write_text("zebra\nokapi\n")
        assert main([str(done.folder), image, "--classes", str(tmp_path / "names.txt")]) == 0
        printed = capfd.readouterr().out
        assert "2 classes, none of them trained on" in printed
        assert "Probabilities are not calibrated." in printed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere", "x.png"], "There is no folder nowhere"),
        (["empty", "x.png"], "There is no run in empty"),
        (["above", "x.png"], "Name one below it: above/run"),
        (["trained", "x.png"], "There is no image, folder or table x.png"),
        (["trained", "empty"], "empty contains no images"),
        (["trained", "data", "--top", "0"], "--top is 0"),
        (["trained", "data", "--classes", "nothing.txt"], "nothing.txt does not exist"),
        (["trained", "data", "--classes", "empty.txt"], "empty.txt contains no class names"),
        (["trained", "data", "--add", " "], "A class name is empty"),
        (["trained", "data", "--unknown", "2"], "between 0 and 1"),
        (["trained", "data", "--unknown", "0.1"], "fitted nothing to held-out images"),
        (["trained", "data", "--import", "no_such_module"], "no_such_module, but there is no such module"),
    ],
)
def test_invalid_input_is_refused(
    arguments: list[str], words: str, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Printed
) -> None:
    done = trained("CoOp", "OPTIM.MAX_EPOCH", "1")
    for name in ("empty", "above/run", "data"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(done.folder / "results.json", tmp_path / "above" / "run")
    (tmp_path / "empty.txt").write_text("\n")
    Image.new("RGB", (40, 40)).save(tmp_path / "data" / "x.png")
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert words in capfd.readouterr().err


def test_an_unfinished_run_is_refused(trained: Trained, capfd: Printed) -> None:
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

    @pytest.mark.parametrize("name", ["EuroSAT", "../../../mine", "ABSOLUTE"])
    def test_no_path_that_results_name_is_written(
        self, name: str, trained: Trained, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COCOAMIX_CACHE", str(tmp_path / "cache"))
        done, mine = trained("CoOp"), tmp_path / "mine"
        for part in ("predict", "images", ""):
            (mine / part).mkdir(parents=True, exist_ok=True)
            (mine / part / "user.safetensors").write_bytes(b"of the user")
        store = _link_stores(load(done.folder), tmp_path / "store", mine)
        _alter(done, CACHE={"DIR": str(store)}, DATASET={"NAME": str(mine) if name == "ABSOLUTE" else name})
        before = _contents(tmp_path)
        assert main([str(done.folder), image, "--no-store"]) == 0
        assert not list((tmp_path / "cache").rglob("*.safetensors"))
        assert main([str(done.folder), image]) == 0
        assert _contents(tmp_path) == before
        assert list((tmp_path / "cache").rglob("*.safetensors"))  # in the user's own cache

    @pytest.mark.parametrize("recorded", ["0" * 64, None])
    def test_weights_that_results_name_must_have_the_recorded_hash(
        self, recorded: str | None, trained: Trained, image: str, tmp_path: Path, capfd: Printed
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


def _link_stores(model: TrainedModel, folder: Path, target: Path) -> Path:
    """Make a folder of feature stores in which parts of the run's store are links to another folder."""
    images = FrozenFeatures(model.model.clip.each(), folder)
    (store,) = images._stores_of(Source(ImageItems(model.cfg, [], model.transform), "", 1, 0))
    store.folder.mkdir(parents=True)
    for name in ("EuroSAT", "predict"):
        (store.folder / name).symlink_to(target)
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
    files = (path for path in folder.rglob("*") if path.is_file() and path.parts[len(folder.parts)] != "cache")
    return {path: path.read_bytes() for path in files}


def test_the_page_loads_nothing_and_shows_texts_as_they_are(tmp_path: Path) -> None:
    nasty = '</li><script>document.title = "owned"</script><img src=x onerror="alert(1)">${title}'
    Image.new("RGB", (40, 20), "red").save(tmp_path / "red.png")
    file, image = io.StringIO(), str(tmp_path / "red.png")
    page = Page(file, nasty, [f"Lead {nasty}"], upright=False, above=str(tmp_path))
    page.add(Record(image, "cat", nasty, 0.8, 0.1, ((nasty, 0.8), ("cat", 0.1))))
    page.add(Record(f"{nasty}.png", nasty, nasty, 0.9, 0.9, ((nasty, 0.9),)))
    page.add(unreadable_record(f"{nasty}.jpg", "cat", f"gone {nasty}"))
    page.end(["2 images, 1 unreadable", nasty])
    text = file.getvalue()
    assert "<script" not in text
    assert not re.search(r'(?:src|href)="(?!data:|#)', text)
    assert text.count('src="data:image/jpeg;base64,') == 1  # there is no other such file
    assert re.findall(r'<li class="(.*?)">', text) == ["wrong", "right", ""]
    assert f'title="{image}">red.png<' in text
    assert "<p>2 images, 1 unreadable</p>" in text
    assert text.count("${title}") > 5
