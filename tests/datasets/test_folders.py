"""Real-world folders and lists: empty, incomplete, with symlink cycles, other files and non-ASCII letters."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from cocoamix.errors import UserError
from tests.datasets import layouts
from tests.datasets.test_base import rows
from tests.datasets.test_coop_hashes import build


def make(name: str, root: Path, shots: int = -1, subset: str = "all") -> Any:
    return build(name, root, seed=1, shots=shots, subset=subset)


@pytest.fixture
def textures(tmp_path: Path) -> Path:
    layouts.dtd(tmp_path)
    return tmp_path / "dtd" / "images"


def test_spaces_and_non_ascii_letters_are_preserved(textures: Path, tmp_path: Path) -> None:
    """Through the folder, the split file and the saved draw."""
    first = make("DescribableTextures", tmp_path, shots=2)
    assert first.classnames == ["banded", "dotted", "zigzagged", "été crème", "斑点"]
    again = make("DescribableTextures", tmp_path, shots=2)
    assert rows(again.train_x, tmp_path) == rows(first.train_x, tmp_path)
    content = json.loads((tmp_path / "dtd" / "split_zhou_DescribableTextures.json").read_text(encoding="ascii"))
    assert {row[2] for row in content["train"]} == set(first.classnames)


def test_other_files_are_skipped_and_reported(
    textures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = rows(make("DescribableTextures", tmp_path).train_x, tmp_path)
    (tmp_path / "dtd" / "split_zhou_DescribableTextures.json").unlink()
    layouts.touch(textures / "banded" / "Thumbs.db", textures / "banded" / ".DS_Store", textures / "notes.txt")
    (textures / "dotted" / "old").mkdir()
    capsys.readouterr()
    assert rows(make("DescribableTextures", tmp_path).train_x, tmp_path) == wanted
    assert "Ignored 2 entries that are not images" in capsys.readouterr().out


def test_missing_split_file_is_reported(textures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make("DescribableTextures", tmp_path)
    assert "are not comparable" in capsys.readouterr().out
    make("DescribableTextures", tmp_path)
    assert "are not comparable" not in capsys.readouterr().out


def test_split_that_cannot_be_saved_is_used_with_a_note(
    textures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*args: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("cocoamix.datasets.common.splits.write_text", refuse)
    first, again = (rows(make("DescribableTextures", tmp_path).train_x, tmp_path) for _ in range(2))
    assert first == again
    assert "The split is not saved" in capsys.readouterr().out


def test_an_empty_class_is_refused(textures: Path, tmp_path: Path) -> None:
    (textures / "empty").mkdir()
    with pytest.raises(UserError, match=r"class folder .*/empty has no images"):
        make("DescribableTextures", tmp_path)
    layouts.touch(*(textures / "empty" / f"{n}.png" for n in range(3)))
    with pytest.raises(UserError, match="class empty has 3 images, too few"):
        make("DescribableTextures", tmp_path)
    layouts.touch(textures / "empty" / "3.png")
    assert make("DescribableTextures", tmp_path).num_classes == 6


def test_a_folder_without_classes_is_refused(textures: Path, tmp_path: Path) -> None:
    shutil.rmtree(textures)
    with pytest.raises(UserError, match="images is missing"):
        make("DescribableTextures", tmp_path)
    textures.mkdir()
    with pytest.raises(UserError, match=r"no class folders in .*/dtd/images"):
        make("DescribableTextures", tmp_path)


def test_symlink_cycles_are_refused(textures: Path, tmp_path: Path) -> None:
    (textures / "loop").symlink_to("loop")
    with pytest.raises(UserError, match="loop is a broken link"):
        make("DescribableTextures", tmp_path)
    (textures / "loop").unlink()
    (textures / "banded" / "loop.jpg").symlink_to("loop.jpg")
    with pytest.raises(UserError, match=r"loop\.jpg is a broken link"):
        make("DescribableTextures", tmp_path)
    (textures / "banded" / "loop.jpg").unlink()
    (textures / "up").symlink_to("..", target_is_directory=True)  # a folder without images
    with pytest.raises(UserError, match=r"class folder .*/up has no images"):
        make("DescribableTextures", tmp_path)


def test_a_listed_image_that_is_a_symlink_cycle_is_missing(textures: Path, tmp_path: Path) -> None:
    """Counted as missing in a split file, with many images in the folder and with few."""
    make("DescribableTextures", tmp_path)
    for count, name in ((1, "image 1.jpg"), (2, "image 2.jpg")):
        path = textures / "斑点" / name
        path.unlink()
        path.symlink_to(name)
        with pytest.raises(UserError, match=f"{count} of 60 images of .*json are missing; the first is .*斑点"):
            make("DescribableTextures", tmp_path)


def test_symlinks_to_images_are_images(textures: Path, tmp_path: Path) -> None:
    shutil.move(textures, tmp_path / "elsewhere")
    textures.mkdir()
    for folder in sorted((tmp_path / "elsewhere").iterdir()):
        if folder.is_dir():
            (textures / folder.name).symlink_to(folder, target_is_directory=True)
    (tmp_path / "elsewhere" / "banded" / "image 99.jpg").symlink_to("image 1.jpg")
    for _ in range(2):  # from the folder, and from the split file
        found = make("DescribableTextures", tmp_path)
        assert len([*found.train_x, *found.val, *found.test]) == 61


def test_many_files_in_a_folder_are_found_by_listing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cocoamix.datasets.common import items

    paths = [str(tmp_path / f"{number}.jpg") for number in range(50)]
    layouts.touch(*paths)
    asked: list[str] = []
    isfile = os.path.isfile
    monkeypatch.setattr(os.path, "isfile", lambda path: asked.append(path) or isfile(path))  # type: ignore[func-returns-value]
    assert items.missing_files(paths) == []
    assert asked == []
    os.unlink(paths[7])
    (tmp_path / "9.jpg").unlink()
    (tmp_path / "9.jpg").mkdir()
    assert items.missing_files(paths) == [paths[7], paths[9]]
    assert items.missing_files(paths[:8]) == [paths[7]]


BAD_ROWS = [
    ["a.jpg", 0],
    ["a.jpg", 0, "x", "y"],
    ["a.jpg", 0.5, "x"],
    ["a.jpg", True, "x"],
    ["a.jpg", "one", "x"],
    ["a.jpg", None, "x"],
    [3, 0, "x"],
    ["", 0, "x"],
    ["a.jpg", 0, ""],
    ["a.jpg", 0, None],
    "abc",
    None,
]


@pytest.mark.parametrize("row", BAD_ROWS, ids=str)
def test_split_files_with_invalid_rows_are_refused(textures: Path, tmp_path: Path, row: Any) -> None:
    path = tmp_path / "dtd" / "split_zhou_DescribableTextures.json"
    path.write_text(json.dumps({"train": [row], "val": [], "test": []}))
    with pytest.raises(UserError, match=r"DescribableTextures\.json is not a split file"):
        make("DescribableTextures", tmp_path)


def test_other_unusable_split_files_are_refused(textures: Path, tmp_path: Path) -> None:
    path = tmp_path / "dtd" / "split_zhou_DescribableTextures.json"
    for text in ("[" * 100_000, '{"train": 3, "val": [], "test": []}', "\ufeff{", ""):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match="is not a split file"):
            make("DescribableTextures", tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match=r"split file .* cannot be read"):
        make("DescribableTextures", tmp_path)


LISTS = {
    "OxfordPets": ["annotations/trainval.txt", "annotations/test.txt"],
    "SUN397": ["ClassName.txt", "Training_01.txt", "Testing_01.txt"],
    "UCF101": ["ucfTrainTestlist/classInd.txt", "ucfTrainTestlist/trainlist01.txt", "ucfTrainTestlist/testlist01.txt"],
    "FGVCAircraft": ["variants.txt", "images_variant_train.txt", "images_variant_val.txt", "images_variant_test.txt"],
}


@pytest.mark.parametrize(("name", "part"), [(name, part) for name, parts in LISTS.items() for part in parts])
def test_missing_or_malformed_lists_are_refused(name: str, part: str, tmp_path: Path) -> None:
    layouts.LAYOUTS[name](tmp_path)
    path = tmp_path / layouts.FOLDERS[name][0] / part
    good = path.read_text()
    path.write_text("")
    with pytest.raises(UserError, match=f"{part} is empty"):
        make(name, tmp_path)
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(UserError, match=f"{part} cannot be read: it is not UTF-8"):
        make(name, tmp_path)
    if part != "variants.txt":  # in that file, every line is a name
        path.write_text(f"{good}\nwhat is this\n")
        with pytest.raises(UserError, match=rf"Line \d+ of .*{part} is 'what is this', which is not"):
            make(name, tmp_path)
    path.write_text(
        "\ufeff" + good.replace("\n", "\r\n") + "\n\n", encoding="utf-8"
    )  # as an editor on Windows may write it
    assert make(name, tmp_path).num_classes >= 3
    (path.parent / "gone").mkdir()
    path.rename(path.parent / "gone" / "list")
    for split in path.parents[part.count("/")].glob("split_zhou_*"):
        split.unlink()
    with pytest.raises(UserError, match=part):
        make(name, tmp_path)


@pytest.mark.parametrize("name", ["OxfordPets", "SUN397", "UCF101", "FGVCAircraft"])
def test_a_missing_listed_image_is_reported(name: str, tmp_path: Path) -> None:
    layouts.LAYOUTS[name](tmp_path)
    gone = sorted((tmp_path / layouts.FOLDERS[name][0] / layouts.FOLDERS[name][1]).rglob("*.jpg"))[0]
    gone.unlink()
    with pytest.raises(UserError, match=f"1 of .* are missing; the first is {gone}"):
        make(name, tmp_path)
    assert not list(tmp_path.rglob("split_zhou_*"))


@pytest.mark.parametrize("name", ["StanfordCars", "OxfordFlowers"])
def test_scipy_is_required_only_without_a_split_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layouts.LAYOUTS[name](tmp_path)
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(UserError, match=f"needs the package scipy: .* split_zhou_{name}.json"):
        make(name, tmp_path)
    image = next(tmp_path.rglob("*.jpg")).relative_to(tmp_path / Path(*layouts.FOLDERS[name]))
    split = {part: [[str(image), 0, "x"]] for part in ("train", "val", "test")}
    (tmp_path / layouts.FOLDERS[name][0] / f"split_zhou_{name}.json").write_text(json.dumps(split))
    assert make(name, tmp_path).classnames == ["x"]


@pytest.mark.parametrize("name", ["StanfordCars", "OxfordFlowers"])
def test_missing_matlab_files_are_reported(name: str, tmp_path: Path) -> None:
    layouts.LAYOUTS[name](tmp_path)
    for path in tmp_path.rglob("*.mat"):
        path.unlink()
    with pytest.raises(UserError, match=rf"Neither split_zhou_{name}\.json nor .*\.mat exists"):
        make(name, tmp_path)


def test_a_draw_for_other_classes_is_refused(textures: Path, tmp_path: Path) -> None:
    """The split file was replaced, and the draw belongs to the old one."""
    make("DescribableTextures", tmp_path, shots=1)
    path = tmp_path / "dtd" / "split_zhou_DescribableTextures.json"
    content = json.loads(path.read_text())
    for split in content.values():
        split[:] = [[name, 4 - label, classname] for name, label, classname in split]
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"shot_1-seed_1\.pkl does not fit the dataset: .*\(label 0, 'banded'\)"):
        make("DescribableTextures", tmp_path, shots=1)


def test_a_draw_with_deleted_images_is_refused(textures: Path, tmp_path: Path) -> None:
    make("DescribableTextures", tmp_path, shots=1)
    kept = tmp_path / "dtd" / "split_fewshot" / "shot_1-seed_1.pkl"
    content = pickle.loads(kept.read_bytes())
    content["train"][0]._impath = "/old/machine/dtd/images/banded/image 1000.jpg"
    kept.write_bytes(pickle.dumps(content))
    with pytest.raises(UserError, match=r"1 of 5 images of .*shot_1-seed_1\.pkl are missing; .*image 1000"):
        make("DescribableTextures", tmp_path, shots=1)


def test_a_draw_from_windows_is_read(textures: Path, tmp_path: Path) -> None:
    first = make("DescribableTextures", tmp_path, shots=1)
    kept = tmp_path / "dtd" / "split_fewshot" / "shot_1-seed_1.pkl"
    content = pickle.loads(kept.read_bytes())
    for item in [*content["train"], *content["val"]]:
        item._impath = "D:\\data" + item.impath.removeprefix(str(tmp_path)).replace("/", "\\")
    kept.write_bytes(pickle.dumps(content))
    assert rows(make("DescribableTextures", tmp_path, shots=1).train_x, tmp_path) == rows(first.train_x, tmp_path)


def test_templates_match_coop() -> None:
    """Also for a dataset under its prefixed name."""
    from cocoamix.clip.templates import dataset_template

    wanted = dict.fromkeys((*layouts.FOLDERS, "CIFAR100"), "a photo of a {}.")
    wanted |= {"OxfordPets": "a photo of a {}, a type of pet.", "OxfordFlowers": "a photo of a {}, a type of flower."}
    wanted |= {"FGVCAircraft": "a photo of a {}, a type of aircraft.", "DescribableTextures": "{} texture."}
    wanted |= {"EuroSAT": "a centered satellite photo of {}.", "Food101": "a photo of {}, a type of food."}
    wanted |= {"UCF101": "a photo of a person doing {}."}
    assert {name: dataset_template(name) for name in wanted} == wanted
    assert {name: dataset_template(f"cocoamix.{name}") for name in wanted} == wanted
