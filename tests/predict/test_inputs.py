"""Labels of images: from folders and tables, by the names of the run's own folders and classes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Protocol

import pytest
from PIL import Image
from safetensors import safe_open

from cocoamix import cli
from cocoamix.inputs import Labels, find_images
from cocoamix.predict import Summary, main
from cocoamix.run.predictions import make_record, read_predictions
from tests.conftest import ROOT, Run, Runner, own_stdout, train_here

from .conftest import Trained, read_rows

NAMES = {"n01": "tench", "n02": "hen", "04_big_owl": "owl", "cat": "cat", "n03": "frog", "n05": "newt"}
Printed = pytest.CaptureFixture[str]


def write_image(path: Path, colour: tuple[int, int, int] = (9, 9, 9)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image, exif = Image.new("RGB", (40, 40), colour), Image.Exif()
    image.paste((255, 255, 255), (0, 0, 40, 15))
    exif[0x0112] = 6  # to be turned upright
    image.save(path, exif=exif)


class Train(Protocol):
    def __call__(
        self, *settings: str, flags: tuple[str, ...] = (), name: str = "run", trainer: str = "CoOp"
    ) -> Run: ...


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A user's own images: six folders, whose class names are in a file."""
    for number, folder in enumerate(NAMES):
        for split, count in (("train", 2), ("test", 5)):
            for index in range(count):
                write_image(tmp_path / "photos" / split / folder / f"{index}.png", (number * 40, index * 30, 90))
    (tmp_path / "photos" / "names.txt").write_text("".join(f"{folder}\t{name}\n" for folder, name in NAMES.items()))
    return tmp_path / "photos"


@pytest.fixture
def train(run: Runner, photos: Path) -> Train:
    def start(*settings: str, flags: tuple[str, ...] = (), name: str = "run", trainer: str = "CoOp") -> Run:
        config = ("--dataset-config-file", str(ROOT / "configs/datasets/folder.yaml"), "--root", str(photos))
        own = ("OPTIM.MAX_EPOCH", "1", "DATASET.NUM_SHOTS", "2", "TEST.SAVE_PREDICTIONS", "True")
        done = run(*flags, *config, *own, *settings, name=name, trainer=trainer)
        assert done.status == 0, done.output[-800:]
        return done

    return start


def labels_in(table: Path) -> dict[str, tuple[str, str]]:
    return {"/".join(Path(row["image"]).parts[-2:]): (row["label"], row["predicted"]) for row in read_rows(table)}


@pytest.mark.parametrize("kind", ["trained", "not evaluated", "zero-shot", "evaluation", "sessions"])
def test_folders_have_the_class_names_of_the_run(kind: str, train: Train, photos: Path, capfd: Printed) -> None:
    """The same labels, predictions and accuracy as in the run's own evaluation."""
    names = ("DATASET.CLASSNAMES", "names.txt")
    if kind == "sessions":
        sizes = ("FSCIL.BASE", "2", "FSCIL.WAY", "2", "FSCIL.SHOTS", "2", "DATASET.NUM_SHOTS", "-1")
        done = train(*names, *sizes, trainer="CoOpFSCIL")
    elif kind == "zero-shot":
        done = train(*names, flags=("--eval-only",), trainer="ZeroshotCLIP")
    else:
        done = train(*names)
    accuracy, evaluated = done.results["metrics"]["accuracy"], done.folder / "predictions.csv"
    wanted = labels_in(evaluated)
    if kind == "evaluation":
        done = train(*names, flags=("--eval-only", "--model-dir", str(done.folder)), name="again")
    elif kind == "not evaluated":
        (done.folder / "results.json").unlink()
        (photos / "names.txt").unlink()  # nothing but the run's folder is needed
    out = done.folder / "out.csv"
    assert main([str(done.folder), str(photos / "test"), "--csv", str(out), "--no-store"]) == 0, capfd.readouterr().err
    printed = capfd.readouterr().out
    assert labels_in(out) == wanted
    shares = [
        sorted((row["image"], float(row["probability_1"])) for row in read_rows(each)) for each in (evaluated, out)
    ]
    for one, other in zip(*shares, strict=True):
        assert one == (other[0], pytest.approx(other[1], abs=1e-4))
    assert {label for label, _ in wanted.values()} == set(NAMES.values())
    assert f"accuracy {accuracy:.2f} % over 30 images with a label among the classes" in printed
    assert "not among the classes" not in printed
    assert "match no class" not in printed


def test_names_of_folders_do_not_depend_on_the_other_folders(train: Train, photos: Path) -> None:
    """In training, a leading number stays because not all folders are numbered. Alone it would be dropped."""
    done = train()
    assert "04 big owl" in done.results["classnames"]
    shutil.copytree(photos / "test" / "04_big_owl", photos / "some" / "04_big_owl")
    shutil.copytree(photos / "test" / "cat", photos / "some" / "05_cat")  # not a folder of the run
    out = photos / "out.csv"
    assert main([str(done.folder), str(photos / "some"), "--csv", str(out), "--no-store"]) == 0
    assert {label for label, _ in labels_in(out).values()} == {"04 big owl", "cat"}


def test_a_partly_labelled_table_is_accepted(trained: Trained, data_root: Path, tmp_path: Path, capfd: Printed) -> None:
    done, table, out = trained("CoOp"), tmp_path / "some.csv", tmp_path / "out.csv"
    paths = sorted(data_root.rglob("Forest_1?.png"))[:3]
    for head, rows in (
        ("path,classname", (",Forest", ",", ",zebra")),
        ("path,label", (",Forest", ",", ",zebra")),
        ("path,label,classname,split", (",1,Forest,train", ",2,,", ",,zebra,other")),
    ):
        table.write_text("\n".join([head, *(f"{path}{rest}" for path, rest in zip(paths, rows, strict=True))]))
        assert main([str(done.folder), str(table), "--csv", str(out)]) == 0, head
        assert [record.label for record in read_predictions(out)] == ["Forest", "", "zebra"]
        printed = capfd.readouterr().out
        assert "over 1 image with a label among the classes" in printed
        assert "1 image with a label that is not among the classes" in printed
    for content, words in (
        (f"path,classname\n{paths[0]},Forest\n,Forest\n", "line 3: the path is empty"),
        (f"path,label\n{paths[0]},1\n", "the label is 1, a number. Add a column `classname`"),  # from 0 or from 1?
    ):
        table.write_text(content)
        assert main([str(done.folder), str(table)]) == 2
        assert words in capfd.readouterr().err


def test_names_are_compared_as_they_read(tmp_path: Path) -> None:
    """File systems differ in how they write é. A folder of draws is not a class, and does not hide a numbering."""
    labels = Labels(["coffee", "tea", "owl"], {"caf\u00e9": "coffee"})
    assert labels.find("caf\u0065\u0301", "") == ("coffee", True)
    for name in ("1_owl", "2_tea", ".hidden"):
        write_image(tmp_path / name / "1.png")
    (tmp_path / "split_fewshot").mkdir()
    (tmp_path / "1_owl" / "again").symlink_to(tmp_path)  # a circle
    assert [image.label for image in find_images([str(tmp_path)], labels)] == ["owl", "tea"]
    assert labels.notes == []


@pytest.mark.parametrize(("folders", "noted"), [(["cat", "x"], False), (["cat", "x", "y"], True), (["x"], True)])
def test_most_folders_should_match_a_class(tmp_path: Path, folders: list[str], noted: bool) -> None:
    for name in folders:
        write_image(tmp_path / name / "1.png")
    labels = Labels(["cat", "dog"])
    images = find_images([str(tmp_path)], labels)
    assert [image.label for image in images] == ([""] if folders == ["x"] else folders)
    assert len(labels.notes) == noted


def test_the_list_of_predicted_classes_tells_how_many_it_leaves_out() -> None:
    names = [f"class {number}" for number in range(60)]
    for count, last in ((40, ""), (41, "... and 1 more class"), (60, "... and 20 more classes")):
        summary = Summary(names)
        for number in range(count):
            summary.add(make_record("a.png", "", [float(each == number) for each in range(60)], names, 1))
        lines = summary.table()
        assert len(lines) == 1 + min(count, 40) + (count > 40)
        assert lines[-1].startswith(last or "class")


def test_the_readmes_commands_label_a_users_images(
    tmp_path: Path, tiny_config: Path, monkeypatch: pytest.MonkeyPatch, capfd: Printed
) -> None:
    """As written, except for the size of the model; some images have odd names, and some cannot be read."""
    monkeypatch.chdir(tmp_path)
    for top in ("IMAGES", "PHOTOS"):
        for number, name in enumerate(("red fox", "bluebird", "Grüner_Frosch")):
            for index in range(6):
                write_image(Path(top, name, f"ünï 日本 {index}.png"), (number * 90, index * 40, 50))
            with open(os.path.join(os.fsencode(Path(top, name)), b"caf\xe9.png"), "wb") as file:
                Image.new("L", (50, 40), 80 * number).save(file, "PNG")
        for number in range(4):  # some for each split
            Path(top, "red fox", f"corrupt {number}.jpg").write_bytes(b"\xff\xd8 nothing")
    block = re.search(r"```bash\n(cocoamix data check folder.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    commands = [shlex.split(line, comments=True) for line in block[1].replace("\\\n", " ").strip().splitlines()]
    assert [words[:2] for words in commands] == [["cocoamix", "data"], ["python", "train.py"], ["cocoamix", "predict"]]
    statuses = []
    for words in commands:
        small = [
            str(tiny_config) if "vit_b16" in word else word.replace("configs/", f"{ROOT}/configs/") for word in words
        ]
        with own_stdout():
            statuses.append(train_here(small[2:]) if small[0] == "python" else cli.main(small[1:]))
    printed = capfd.readouterr().out
    assert statuses == [0, 0, 1], printed[-800:]  # some images get no label, since they cannot be read
    assert "ImageFolderDataset is ready for training." in printed
    records = read_predictions("labels.csv")
    assert len(records) == 25
    assert {record.label for record in records} == {"red fox", "bluebird", "Grüner Frosch"}
    assert [Path(record.image).name for record in records if record.error] == [f"corrupt {n}.jpg" for n in range(4)]
    assert "Grüner Frosch" in Path("page.html").read_text(encoding="utf-8")
    assert cli.main(["export", "output/own", "--to", "classes.safetensors"]) == 0
    with safe_open("classes.safetensors", "pt") as file:
        assert json.loads(file.metadata()["preprocessing"])["exif_orientation"] == "applied"
