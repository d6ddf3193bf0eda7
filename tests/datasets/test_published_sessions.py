"""miniImageNet and CUB-200 in sessions: the published lists, the layouts, and differing lists on disk."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cocoamix.errors import UserError
from cocoamix.fscil.split import SessionSplit, split_into_sessions
from tests.conftest import Runner
from tests.datasets import session_layouts
from tests.datasets.test_base import config

SPLIT = SessionSplit(session_layouts.BASE, session_layouts.WAY, session_layouts.SHOTS)


def loader_of(name: str) -> Any:
    import cocoamix.datasets  # noqa: F401

    # isort: split
    from dassl.data.datasets import DATASET_REGISTRY

    return DATASET_REGISTRY.get(name)


class Small(NamedTuple):
    """A small dataset of one of the two kinds."""

    name: str
    root: Path
    facts: Path
    sessions: dict[str, list[str]]  # the lines of each list, as they would be published

    def load(self, **dataset: Any) -> Any:
        return loader_of(self.name)(config(self.root, num_shots=-1, **dataset))


LAYOUTS = {"MiniImageNetFSCIL": session_layouts.mini_imagenet, "CUB200FSCIL": session_layouts.cub200}


@pytest.fixture(params=LAYOUTS)
def small(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Small:
    facts, sessions = LAYOUTS[request.param](tmp_path)
    monkeypatch.setattr(loader_of(request.param), "lists", facts)
    return Small(request.param, tmp_path, facts, sessions)


# ---------------------------------------------------------------------- what is published


@pytest.mark.parametrize(
    ("name", "sizes", "images"),
    [
        ("MiniImageNetFSCIL", (100, 60, 5, 8), (50_000, 10_000, 30_000)),
        ("CUB200FSCIL", (200, 100, 10, 10), (5994, 5794, 3000)),
    ],
)
def test_published_lists_are_rebuilt_exactly(name: str, sizes: tuple[int, ...], images: tuple[int, ...]) -> None:
    """Reading them rebuilds each published file and compares its MD5."""
    lists = loader_of(name).read_lists()
    assert (len(lists.classes), lists.base, lists.way, len(lists.few)) == sizes
    assert lists.shots == 5
    assert tuple(lists.whole[part].images for part in ("train", "test", "base")) == images
    for few in lists.few:
        assert [len(set(names)) for names in few.values()] == [5] * lists.way
    assert [one for few in lists.few for one in few] == list(lists.classes)[lists.base :]
    assert len(set(lists.classes.values())) == len(lists.classes)


def test_class_names_are_clips() -> None:
    mini = loader_of("MiniImageNetFSCIL").read_lists().classes
    assert list(mini) == sorted(mini)
    assert all(re.fullmatch(r"n\d{8}", number) for number in mini)
    # CLIP's names, where the first word of WordNet's would be another.
    wanted = {"n02110341": "Dalmatian", "n02747177": "trash can", "n04612504": "sailboat", "n13133613": "corn cob"}
    assert {number: mini[number] for number in wanted} == wanted
    birds = loader_of("CUB200FSCIL").read_lists().classes
    assert [int(folder[:3]) for folder in birds] == list(range(1, 201))
    assert birds["001.Black_footed_Albatross"] == "Black footed Albatross"
    assert birds["200.Common_Yellowthroat"] == "Common Yellowthroat"


def test_altered_reference_data_is_refused(small: Small) -> None:
    content = json.loads(small.facts.read_text())

    def refused(message: str, **changed: Any) -> None:
        small.facts.write_text(json.dumps({**content, **changed}))
        with pytest.raises(UserError, match=message):
            small.load()

    sessions = content["sessions"]
    swapped = [sessions[0], {**sessions[1], "images": sessions[1]["images"][::-1]}]
    refused("the list of session 2 has a different hash", sessions=swapped)
    refused("its 1 lists do not cover all classes", sessions=sessions[:1])
    refused("does not hold the published lists", sessions=[{"md5": "", "images": [["a"]]}])
    refused("does not hold the published lists", classes=[1, 2])
    refused("does not hold the published lists", whole=[])
    small.facts.write_text("[]")
    with pytest.raises(UserError, match="does not hold the published lists"):
        small.load()


# ---------------------------------------------------------------------- what is on disk


def test_sessions_are_the_published_ones(small: Small) -> None:
    dataset = small.load()
    sessions = split_into_sessions(dataset, dataset.test, SPLIT)
    assert [len(one.train) for one in sessions] == [8, 4, 4]
    assert [len(one.test) for one in sessions] == [6, 6, 6]
    for number, session in enumerate(sessions, 1):
        names = [Path(item.impath).name for item in session.train]
        published = [line.split("/")[-1] for line in small.sessions[f"session_{number}"]]
        # The base session has all images of its classes in the order of the tables, the others the published one.
        assert (sorted(names) == sorted(published)) if number == 1 else (names == published)
        assert all(Path(item.impath).is_file() for item in [*session.train, *session.test])
        assert Counter(item.label for item in session.test) == dict.fromkeys(session.labels, session_layouts.TEST)
    assert not dataset.val


def test_file_order_on_disk_does_not_matter(small: Small) -> None:
    before = small.load()
    for table in [*small.root.glob("miniimagenet/split/*.csv"), *small.root.glob("CUB_200_2011/*.txt")]:
        first, *lines = table.read_text().splitlines(keepends=True)
        header = [first] if table.suffix == ".csv" else []
        random.Random(1).shuffle(lines := lines if header else [first, *lines])
        table.write_text("".join(header + lines))
    after = small.load()
    assert after.classnames == before.classnames
    assert {(item.impath, item.label) for item in after.train_x} == {
        (item.impath, item.label) for item in before.train_x
    }
    one, other = (split_into_sessions(data, data.test, SPLIT)[2] for data in (before, after))
    assert [item.impath for item in one.train] == [item.impath for item in other.train]


def test_unpublished_session_sizes_and_splits_are_refused(small: Small) -> None:
    dataset = small.load()
    with pytest.raises(UserError, match=r"for FSCIL\.BASE 2, WAY 2 and SHOTS 2, not for 2, 2 and 1"):
        split_into_sessions(dataset, dataset.test, SessionSplit(2, 2, 1))
    assert len(split_into_sessions(dataset, dataset.test, SessionSplit(4, 1, 1, "random"))) == 3
    dataset._train_x = [item for item in dataset.train_x if item != dataset.train_x[0]]
    with pytest.raises(UserError, match=r"The 7 training images of the first 2 classes are not the 8 of the published"):
        split_into_sessions(dataset, dataset.test, SPLIT)


def test_missing_files_and_folders_are_reported(small: Small, capsys: pytest.CaptureFixture[str]) -> None:
    gone = Path(small.load().test[3].impath)
    gone.unlink()
    with pytest.raises(UserError, match=rf"1 of 42 images of .* are missing; the first is .*{gone.name}"):
        small.load()
    small.load(bad_images="skip")
    assert "They are skipped (DATASET.BAD_IMAGES skip)" in capsys.readouterr().out
    folder = gone.parents[1 if small.name == "MiniImageNetFSCIL" else 2]
    table = folder / ("split/test.csv" if small.name == "MiniImageNetFSCIL" else "train_test_split.txt")
    table.rename(table.with_suffix(".away"))
    with pytest.raises(UserError, match=rf"{small.name} is incomplete: .*{table.name} is missing"):
        small.load()


def test_data_check_finds_the_dataset(small: Small, capsys: pytest.CaptureFixture[str]) -> None:
    from cocoamix.data.command import main

    assert main(["check", small.name, "--root", str(small.root)]) == 0
    printed = capsys.readouterr().out
    assert "6 classes; images: 24 train, 0 val, 18 test" in printed
    birds = small.name == "CUB200FSCIL"
    assert ("a photo of a Painted Bunting, a type of bird." if birds else "a photo of a forest.") in printed
    assert f"{small.name} is ready for training." in printed


# ---------------------------------------------------------------------- the tables of miniImageNet


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Small:
    facts, sessions = session_layouts.mini_imagenet(tmp_path)
    monkeypatch.setattr(loader_of("MiniImageNetFSCIL"), "lists", facts)
    return Small("MiniImageNetFSCIL", tmp_path, facts, sessions)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: "".join(text.splitlines(True)[:-4]), "it names 20 train images of 5 classes, but .* 24 of 6"),
        (lambda text: text.replace("00000000.jpg", "00000005.jpg", 1), "as many train images, but not the same ones"),
        (lambda text: text.replace(",n00000005", ",n00000009"), "'n00000009' is not one of the published classes"),
        (lambda text: text.replace(",", ";"), "Line 1 of .*train.csv is .*, which is not a file name of images/"),
        (lambda text: text.replace("n0000000000000001.jpg", "../x.jpg"), "Line 3 of .*train.csv is"),
        (lambda text: "", "train.csv is empty"),
    ],
)
def test_modified_miniimagenet_tables_are_refused(mini: Small, change: Any, message: str) -> None:
    table = mini.root / "miniimagenet" / "split" / "train.csv"
    table.write_text(change(table.read_text()))
    with pytest.raises(UserError, match=message):
        mini.load()


def test_a_table_without_a_header_is_read(mini: Small) -> None:
    table = mini.root / "miniimagenet" / "split" / "train.csv"
    table.write_text(table.read_text().removeprefix("filename,label\n"))
    assert len(mini.load().train_x) == 24


# ---------------------------------------------------------------------- the tables of CUB


@pytest.fixture
def cub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Small:
    facts, sessions = session_layouts.cub200(tmp_path)
    monkeypatch.setattr(loader_of("CUB200FSCIL"), "lists", facts)
    return Small("CUB200FSCIL", tmp_path, facts, sessions)


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("train_test_split", ("\n2 0\n", "\n2 1\n"), "it names 25 train images of 6 classes, but .* 24 of 6"),
        ("image_class_labels", ("\n9 2\n", "\n9 3\n"), "gives image 9 the class 3, but .* has it in 002.Ani"),
        ("image_class_labels", ("\n9 2\n", "\n"), "do not list the same images: the number 9 is in only one of them"),
        ("train_test_split", ("\n2 0\n", "\n1 1\n"), "has the image number 1 2 times"),
        ("train_test_split", ("\n2 0\n", "\n2 yes\n"), "Line 2 of .* is '2 yes', which is not an image's number and 1"),
        ("images", ("_0000_701", "_0000_702"), "it names as many train images, but not the same ones"),
        ("images", ("002.Ani/", "Ani/"), "gives image 8 the class 2, but .* has it in Ani"),
        ("images", ("8 002.Ani/", "8 ../../"), "Line 8 of .*images.txt is"),
    ],
)
def test_modified_cub_tables_are_refused(cub: Small, table: str, change: tuple[str, str], message: str) -> None:
    path = cub.root / "CUB_200_2011" / f"{table}.txt"
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(change[0], change[1], 1))
    with pytest.raises(UserError, match=message):
        cub.load()


# ---------------------------------------------------------------------- a run


def test_run_over_published_sessions(small: Small, run: Runner) -> None:
    done = run(
        *("DATASET.NAME", small.name, "FSCIL.BASE", "2", "FSCIL.WAY", "2", "FSCIL.SHOTS", "2"),
        *("OPTIM.MAX_EPOCH", "1", "FSCIL.WEIGHT_EPOCHS", "1", "FSCIL.BASE_WEIGHT_EPOCHS", "1"),
        *("TRAINER.COCOAMIX.N_CTX", "2", "TRAINER.COCOAMIX.STAGE", "two"),
        data=small.root,
        trainer="CoCoAMixFSCIL",
    )
    assert done.status == 0, done.output[-800:]
    assert "2 base classes with 8 images, then 2 x 2 classes with 2 images each (the published ones)" in done.output
    results = done.results
    assert [one["classes"] for one in results["sessions"]] == [2, 4, 6]
    assert [one["images"] for one in results["sessions"]] == [6, 12, 18]
    assert results["protocol"]["fscil"] == {"base": 2, "way": 2, "shots": 2, "split": "cec"}
    assert results["finished"]
