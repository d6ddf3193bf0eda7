"""Labels of the user's own images: folders and cells of tables mean what they mean in the run's dataset."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cocoamix.io import checkpoints
from cocoamix.predict.command import main
from cocoamix.predict.inputs import Labels, find_images
from cocoamix.predict.predicting import _totals
from cocoamix.predict.summary import Summary
from cocoamix.run.predictions import make_record
from tests.conftest import ROOT, Run, Runner
from tests.datasets.own import write_image

from .conftest import read_rows

# Two names are those of each other's folders, one folder is numbered and the others are not, one has a decomposed é.
NAMES = {"cat": "dog", "dog": "cat", "n03": "tench", "04_big_owl": "owl", "caf\u0065\u0301": "coffee", "f_ox": "fox"}
SETTINGS = ["DATASET.NUM_SHOTS", "2", "OPTIM.MAX_EPOCH", "1", "TEST.SAVE_PREDICTIONS", "True"]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Write train and test folders of six classes, with a file of names."""
    root = tmp_path / "photos"
    for split, count in (("train", 4), ("test", 5)):
        for label, name in enumerate(NAMES):
            for number in range(count):
                write_image(root / split / name / f"{number}.png", 40 * label + 7 * number + 3 * (split == "test"))
    (root / "names.txt").write_text("".join(f"{one}\t{name}\n" for one, name in NAMES.items()))
    return root


Train = Callable[..., Run]


@pytest.fixture
def train(run: Runner, photos: Path) -> Train:
    def start(
        *extra: str, flags: tuple[str, ...] = (), config: str = "folder", trainer: str = "CoOp", name: str = "run"
    ) -> Run:
        files = ["--dataset-config-file", str(ROOT / "configs" / "datasets" / f"{config}.yaml")]
        done = run(*files, *flags, *SETTINGS, *extra, data=photos, trainer=trainer, name=name)
        assert done.status == 0, done.output[-800:]
        return done

    return start


def predicted(done: Run, *arguments: str, capfd: pytest.CaptureFixture[str]) -> tuple[dict[str, tuple[str, str]], str]:
    """Return the label and the prediction of each image, and what the command prints."""
    out = done.folder / "found.csv"
    assert main([str(done.folder), *arguments, "--csv", str(out), "--no-store"]) == 0, capfd.readouterr().err
    return labels_in(out), capfd.readouterr().out


def labels_in(table: Path) -> dict[str, tuple[str, str]]:
    return {"/".join(Path(row["image"]).parts[-2:]): (row["label"], row["predicted"]) for row in read_rows(table)}


@pytest.mark.parametrize("how", ["trained", "not evaluated", "zero-shot", "evaluation", "sessions"])
def test_folders_have_the_class_names_of_the_run(
    how: str, train: Train, photos: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The same labels, predictions and accuracy as in the run's own evaluation."""
    names = ["DATASET.CLASSNAMES", "names.txt"]
    if how == "sessions":
        sizes = ["FSCIL.BASE", "2", "FSCIL.WAY", "2", "FSCIL.SHOTS", "2"]
        done = train(*names, *sizes, "DATASET.NUM_SHOTS", "-1", trainer="CoOpFSCIL")
    elif how == "zero-shot":
        done = train(*names, flags=("--eval-only",), trainer="ZeroshotCLIP")
    else:
        done = train(*names)
    evaluated = done
    if how == "evaluation":
        done = train(*names, flags=("--eval-only", "--model-dir", str(done.folder)), name="again")
    elif how == "not evaluated":
        (done.folder / "results.json").unlink()
        (photos / "names.txt").unlink()  # nothing but the run's folder is needed
    found, printed = predicted(done, str(photos / "test"), capfd=capfd)
    assert found == labels_in(evaluated.folder / "predictions.csv")
    assert {label for label, _ in found.values()} == set(NAMES.values())
    if how != "not evaluated":
        accuracy = evaluated.results["metrics"]["accuracy"]
        assert f"accuracy {accuracy:.2f} % over 30 images with a label among the classes" in printed
    assert "not among the classes" not in printed
    assert "match no class" not in printed


def test_class_names_do_not_enter_the_fingerprint_twice(train: Train, photos: Path) -> None:
    """The names of a half's other classes are recorded, but do not affect whether runs can be compared."""
    one = train("DATASET.CLASSNAMES", "names.txt", "DATASET.SUBSAMPLE_CLASSES", "base").results
    assert one["categories"] == NAMES
    text = (photos / "names.txt").read_text()
    (photos / "names.txt").write_text(text.replace("\ttench", "\tcarp"))  # the third of six in order is in neither
    assert sorted(NAMES).index("n03") == 5
    other = train("DATASET.CLASSNAMES", "names.txt", "DATASET.SUBSAMPLE_CLASSES", "base", name="other").results
    assert other["categories"]["n03"] == "carp"
    assert other["fingerprint"] == one["fingerprint"]


def test_names_that_folders_yield_do_not_depend_on_the_other_folders(
    train: Train, photos: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In training, a leading number stays because not all folders are numbered. Alone it would be dropped."""
    done = train()
    assert "04 big owl" in done.results["classnames"]
    shutil.copytree(photos / "test" / "04_big_owl", photos / "some" / "04_big_owl")
    shutil.copytree(photos / "test" / "cat", photos / "some" / "05_cat")  # not a folder of the run
    found, _ = predicted(done, str(photos / "some"), capfd=capfd)
    assert {label for label, _ in found.values()} == {"04 big owl", "cat"}


def test_cells_of_tables_have_the_class_names_of_the_run(
    train: Train, photos: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Numbers too, because here the run records their meaning."""
    rows = [(path.relative_to(photos), path.parts[-2]) for path in sorted(photos.glob("*/*/*.png"))]
    numbers = {name: str(number) for number, name in enumerate(NAMES, 1)}
    (photos / "all.csv").write_text(
        "path,label,split\n" + "".join(f"{path},{numbers[name]},{path.parts[0]}\n" for path, name in rows)
    )
    (photos / "names.txt").write_text("".join(f"{numbers[one]},{name}\n" for one, name in NAMES.items()))
    done = train("DATASET.CLASSNAMES", "names.txt", config="csv")
    test = photos / "test.csv"
    test.write_text(
        "path,label\n" + "".join(f"{path},{numbers[name]}\n" for path, name in rows if path.parts[0] == "test")
    )
    found, _ = predicted(done, str(test), capfd=capfd)
    assert found == labels_in(done.folder / "predictions.csv")
    test.write_text(f"path,label\n{rows[0][0]},9\n")
    assert main([str(done.folder), str(test)]) == 2
    assert "the label is 9, a number. Add a column `classname`" in capfd.readouterr().err


def test_runs_that_do_not_record_their_folders_are_explained(
    train: Train, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As those of earlier versions. The advice works."""
    done = train("DATASET.CLASSNAMES", "names.txt")
    content = done.results
    del content["categories"]
    (done.folder / "results.json").write_text(json.dumps(content))
    for path in done.folder.glob("prompt_learner/model.pth.tar-*"):
        state = checkpoints.load(path)
        del state["cocoamix"]["categories"]
        checkpoints.save(path, state)
    page = tmp_path / "page.html"
    _, printed = predicted(done, str(photos / "test"), "--html", str(page), capfd=capfd)
    note = (
        f"Note: 4 of 6 sub-folders of {photos / 'test'} match no class, such as '04_big_owl'. The run does not record"
    )
    assert note in printed
    assert "The run does not record the class names of its folders" in page.read_text()
    flags = ("--eval-only", "--model-dir", str(done.folder))
    again = train("DATASET.CLASSNAMES", "names.txt", flags=flags, name="again")
    _, printed = predicted(again, str(photos / "test"), capfd=capfd)
    assert "match no class" not in printed
    assert "over 30 images with a label among the classes" in printed


def test_names_are_compared_as_they_read(tmp_path: Path) -> None:
    """File systems differ in how they write é. A folder of draws is not a class, and does not hide a numbering."""
    labels = Labels(["coffee", "tea", "owl"], {"caf\u00e9": "coffee"})
    assert labels.find("caf\u0065\u0301", "") == ("coffee", True)
    for name in ("1_owl", "2_tea"):
        write_image(tmp_path / name / "1.png")
    (tmp_path / "split_fewshot").mkdir()
    assert [image.label for image in find_images([str(tmp_path)], labels)] == ["owl", "tea"]
    assert labels.notes == []


@pytest.mark.parametrize(("folders", "noted"), [(["cat", "x"], False), (["cat", "x", "y"], True), (["x"], True)])
def test_most_folders_should_match_a_class(tmp_path: Path, folders: list[str], noted: bool) -> None:
    for name in folders:
        write_image(tmp_path / name / "1.png")
    labels = Labels(["cat", "dog"])
    found = find_images([str(tmp_path)], labels)
    assert [image.label for image in found] == ([""] if folders == ["x"] else folders)
    assert len(labels.notes) == noted
    assert not noted or "To label them, list the images in a table" in labels.notes[0]


def test_the_list_of_predicted_classes_tells_how_many_it_leaves_out() -> None:
    names = [f"class {number}" for number in range(60)]
    for count, last in ((40, "class"), (41, "... and 1 more class"), (60, "... and 20 more classes")):
        summary = Summary(names)
        for number in range(count):
            summary.add(make_record("a.png", "", [float(one == number) for one in range(60)], names, 1))
        lines = _totals(summary)
        assert len(lines) == 1 + min(count, 40) + (count > 40)
        assert re.match(re.escape(last) + ("$" if count > 40 else ""), lines[-1])
