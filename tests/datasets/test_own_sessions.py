"""User images in sessions: a folder and a table, the order of the classes, and too little data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cocoamix.errors import UserError
from cocoamix.fscil.split import SessionSplit, label_ranges, split_into_sessions
from tests.conftest import Runner
from tests.datasets.own import classes, folder, table, write_image

SPLIT = ["FSCIL.BASE", "2", "FSCIL.WAY", "2", "FSCIL.SHOTS", "2"]
SHORT = ["OPTIM.MAX_EPOCH", "1", "FSCIL.WEIGHT_EPOCHS", "1", "FSCIL.BASE_WEIGHT_EPOCHS", "1"]
SHORT += ["TRAINER.COCOAMIX.N_CTX", "2", "TRAINER.COCOAMIX.STAGE", "two"]
FOLDER, TABLE = (["DATASET.NAME", name] for name in ("ImageFolderDataset", "CSVDataset"))
ANIMALS = ("ant", "bee", "cat", "dog", "emu", "fox")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return classes(tmp_path / "own", *ANIMALS, count=8)


def sessions(dataset: Any, how: SessionSplit) -> list[list[str]]:
    return [one.classnames for one in split_into_sessions(dataset, dataset.test, how)]


def test_folder_is_trained_evaluated_and_predicted(own: Path, run: Runner, tmp_path: Path, capfd: Any) -> None:
    """Train, evaluate in a separate run, and label images with the classes of all sessions."""
    done = run(*FOLDER, *SPLIT, *SHORT, data=own, trainer="CoCoAMixFSCIL")
    assert done.status == 0, done.output[-800:]
    results = done.results
    assert [one["classes"] for one in results["sessions"]] == [2, 4, 6]
    assert [one["images"] for one in results["sessions"]] == [4, 8, 12]  # 30 % of eight
    assert results["train_images"] == 2 * 4 + 4 * 2
    assert results["protocol"]["fscil"] == {"base": 2, "way": 2, "shots": 2, "split": "random"}
    model = ["--eval-only", "--model-dir", str(done.folder)]
    again = run(*model, *FOLDER, *SPLIT, *SHORT, data=own, trainer="CoCoAMixFSCIL", name="again")
    assert again.status == 0, again.output[-800:]
    assert again.results["sessions"] == results["sessions"]

    from cocoamix.predict import main

    assert main([str(done.folder), str(own / "cat"), "--csv", str(tmp_path / "labels.csv")]) == 0
    capfd.readouterr()
    rows = (tmp_path / "labels.csv").read_text().splitlines()
    assert len(rows) == 1 + 8


def test_labels_of_a_table_order_the_sessions(own: Path, run: Runner) -> None:
    """The labels give the order in which classes arrive."""
    order = ["fox", "ant", "dog", "cat", "emu", "bee"]
    lines = [f"{name}/{number}.png,{name},{order.index(name)}\n" for name in ANIMALS for number in range(8)]
    (own / "list.csv").write_text("path,classname,label\n" + "".join(lines))
    done = run(*TABLE, *SPLIT, *SHORT, data=own, trainer="CoCoAMixFSCIL")
    assert done.status == 0, done.output[-800:]
    results = json.loads((done.folder / "results.json").read_text())
    assert results["classnames"] == order
    assert sessions(table(own), SessionSplit(2, 2, 2)) == [order[:2], order[2:4], order[4:]]


def test_folder_names_order_the_sessions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Alphabetical; leading numbers change the order, and are not part of the names."""
    plain = classes(tmp_path / "plain", "dog", "ant", "cat", "bee", count=6)
    assert sessions(folder(plain), SessionSplit(2, 1, 1)) == [["ant", "bee"], ["cat"], ["dog"]]
    padded = classes(tmp_path / "padded", "02_ant", "01_dog", "10_bee", "03_cat", count=6)
    assert sessions(folder(padded), SessionSplit(2, 1, 1)) == [["dog", "ant"], ["cat"], ["bee"]]
    assert "Note" not in capsys.readouterr().out
    bare = classes(tmp_path / "bare", "2_ant", "1_dog", "10_bee", "3_cat", count=6)
    assert sessions(folder(bare), SessionSplit(2, 1, 1)) == [["bee", "dog"], ["ant"], ["cat"]]
    printed = capsys.readouterr().out
    assert "Note: the folders are numbered, but sorted as text: 10_bee comes before 1_dog" in printed
    assert "Leading zeros (01)" in printed


def test_few_shot_images_do_not_depend_on_other_classes(own: Path) -> None:
    """Other session sizes, or an additional class, do not change a class's images."""

    def few(label: int, how: SessionSplit) -> set[str]:
        data = folder(own)
        shown = split_into_sessions(data, data.test, how)
        return {item.impath for one in shown[1:] for item in one.train if item.classname == ANIMALS[label]}

    before = few(4, SessionSplit(2, 2, 2))
    assert len(before) == 2
    assert few(4, SessionSplit(4, 1, 2)) == before
    classes(own, "zebra", count=8)
    assert few(4, SessionSplit(3, 2, 2)) == before


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ([], "6 classes cannot be split into FSCIL.BASE 60 and sessions of FSCIL.WAY 5: there are too few. Choose "),
        ([], "such as FSCIL.BASE 4 FSCIL.WAY 1."),
        (["FSCIL.BASE", "3", "FSCIL.WAY", "2"], "the 3 left are not a multiple of 2. Choose other values, such as"),
        (["FSCIL.BASE", "2", "FSCIL.WAY", "2"], "FSCIL.SHOTS is 5, but the class cat has 4 training images."),
        ([*SPLIT, "FSCIL.SPLIT", "cec"], "ImageFolderDataset has no published sessions"),
    ],
)
def test_too_few_classes_or_images_are_refused(own: Path, run: Runner, extra: list[str], message: str) -> None:
    done = run(*FOLDER, *SHORT, *extra, data=own, trainer="CoCoAMixFSCIL")
    assert done.status == 2
    assert message in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize("found", range(2, 40))
@pytest.mark.parametrize("way", [1, 5, 10])
def test_suggested_sizes_are_valid(found: int, way: int) -> None:
    with pytest.raises(UserError) as refused:
        label_ranges(found, SessionSplit(found + 1, way, 1))
    base, proposed = (int(word) for word in str(refused.value).rstrip(".").split("such as ")[1].split()[1::2])
    assert base >= max(1, proposed)
    assert len(label_ranges(found, SessionSplit(base, proposed, 1))) > 1


def test_sessions_without_test_images_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own"
    for number, name in enumerate(ANIMALS[:4]):
        for split in ("train", "test") if name in ("ant", "bee", "cat") else ("train",):
            write_image(own / split / name / f"{split}.png", number)
    data = folder(own)
    assert "1 classes have no test images; the first is 'dog'" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"There are no test images of the classes of session 2 \(dog\)"):
        split_into_sessions(data, data.test, SessionSplit(2, 1, 1))
    assert len(split_into_sessions(data, data.test, SessionSplit(2, 2, 1))) == 2
