"""ImageNet's listing, its cache, and its variants."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from dassl.data.datasets import Datum

from cocoamix.errors import UserError
from tests.datasets import layouts
from tests.datasets.test_base import Evil, rows
from tests.datasets.test_coop_hashes import build


def imagenet(root: Path, shots: int = 2, subset: str = "all", seed: int = 1) -> Any:
    return build("ImageNet", root, seed=seed, shots=shots, subset=subset)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    layouts.imagenet(tmp_path / "data")
    return tmp_path / "data"


def test_listing_is_sorted(root: Path) -> None:
    found = imagenet(root, shots=-1)
    paths = [item.impath for item in found.train_x]
    assert paths == sorted(paths)
    assert [item.label for item in found.train_x] == sorted(item.label for item in found.train_x)
    assert found.classnames == [layouts.SYNSETS[synset] for synset in sorted(layouts.SYNSETS)]
    assert rows(found.val, root) == rows(found.test, root)


def test_the_draw_has_training_images_only(root: Path) -> None:
    imagenet(root)
    content = pickle.loads((root / "imagenet" / "split_fewshot" / "shot_2-seed_1.pkl").read_bytes())
    assert list(content) == ["train"]
    assert {type(item) for item in content["train"]} == {Datum}


def test_the_list_is_cached_and_no_folder_is_scanned_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = imagenet(root)
    content = pickle.loads((root / "imagenet" / "preprocessed.pkl").read_bytes())
    assert [len(content[split]) for split in ("train", "test")] == [45, 18]
    monkeypatch.setattr("cocoamix.datasets.imagenet.read_folders", None)
    (root / "imagenet" / "classnames.txt").unlink()
    assert rows(imagenet(root).train_x, root) == rows(first.train_x, root)
    assert rows(imagenet(root, seed=2).train_x, root) != rows(first.train_x, root)


def test_a_cached_list_keeps_its_order(root: Path) -> None:
    """CoOp's own list is in the order of the file system, and its draws follow that order."""
    imagenet(root, shots=-1)
    kept = root / "imagenet" / "preprocessed.pkl"
    content = pickle.loads(kept.read_bytes())
    content["train"].reverse()
    kept.write_bytes(pickle.dumps(content, protocol=pickle.HIGHEST_PROTOCOL))
    paths = [item.impath for item in imagenet(root, shots=-1).train_x]
    assert paths == sorted(paths, reverse=True)


def test_the_list_moves_with_the_data(root: Path, tmp_path: Path) -> None:
    first = imagenet(root)
    shutil.move(root, tmp_path / "else where")
    root = tmp_path / "else where"
    for shots in (2, 1):  # from the saved draw, and a new one from the cached list
        again = imagenet(root, shots=shots)
        assert all(item.impath.startswith(f"{root}/") for item in [*again.train_x, *again.test])
    assert rows(imagenet(root).train_x, root) == rows(first.train_x, tmp_path / "data")


def test_a_copy_uses_its_own_images(root: Path, tmp_path: Path) -> None:
    imagenet(root)
    copy = shutil.copytree(root, tmp_path / "copy")
    for shots in (2, 1):
        again = imagenet(copy, shots=shots)
        assert all(item.impath.startswith(f"{copy}/") for item in [*again.train_x, *again.test])


def test_a_draw_of_test_images_is_refused(root: Path) -> None:
    whole = imagenet(root)
    kept = root / "imagenet" / "split_fewshot" / "shot_2-seed_1.pkl"
    kept.write_bytes(pickle.dumps({"train": [*whole.train_x[:-1], whole.test[-1]]}))
    with pytest.raises(UserError, match=r"shot_2-seed_1\.pkl does not fit .* 1 of its"):
        imagenet(root)


def test_a_missing_image_is_named_only_if_it_is_used(root: Path) -> None:
    drawn = {item.impath for item in imagenet(root).train_x}
    folder = root / "imagenet" / "images" / "train" / "n01440764"
    unused = next(path for path in sorted(folder.iterdir()) if str(path) not in drawn)
    unused.unlink()
    imagenet(root)
    with pytest.raises(UserError, match=f"1 of .* are missing; the first is {unused}.*delete preprocessed.pkl"):
        imagenet(root, shots=-1)
    test = root / "imagenet" / "images" / "val" / "n01440764" / "ILSVRC2012_val_50.JPEG"
    test.unlink()
    with pytest.raises(UserError, match=test.name):
        imagenet(root)


@pytest.mark.parametrize("kind", ["code", "rubbish", "other", "types", "missing split"])
def test_bad_lists_are_refused(root: Path, tmp_path: Path, kind: str) -> None:
    imagenet(root, shots=-1)
    kept = root / "imagenet" / "preprocessed.pkl"
    good = pickle.loads(kept.read_bytes())
    strange = Datum(impath=__file__, label=0, classname="x")
    strange._label = "0"  # type: ignore[assignment]
    content = {
        "code": pickle.dumps({"train": good["train"], "test": [Evil(tmp_path / "witness")]}),
        "rubbish": kept.read_bytes()[:-100],
        "other": pickle.dumps({"train": ["a"], "test": []}),
        "types": pickle.dumps({"train": [strange], "test": []}),
        "missing split": pickle.dumps({"train": good["train"]}),
    }[kind]
    kept.write_bytes(content)
    with pytest.raises(UserError, match=r"preprocessed\.pkl is not a list of ImageNet's images .* Delete it"):
        imagenet(root)
    assert not (tmp_path / "witness").exists()


def test_a_pickle_cannot_change_the_class_of_items(root: Path) -> None:
    """The opcode that sets an object's state can also set attributes of a class."""
    imagenet(root, shots=-1)
    attack = (
        b"\x80\x04cdassl.data.datasets.base_dataset\nDatum\n(N}\x8c\x04draw\x8c\x01xstb0}(\x8c\x05train]\x8c\x04test]u."
    )
    (root / "imagenet" / "preprocessed.pkl").write_bytes(attack)
    with pytest.raises(UserError, match="ImageNet has no training images"):
        imagenet(root)
    assert not hasattr(Datum, "draw")
    assert not (root / "imagenet" / "split_fewshot").exists()


def test_mismatched_folders_are_refused(root: Path) -> None:
    images = root / "imagenet" / "images"
    (images / "val" / "n01440764").rename(images / "val" / "n00000001")
    with pytest.raises(UserError, match="class folder n00000001 is in only one of"):
        imagenet(root)
    (images / "train" / "n01440764").rename(images / "train" / "n00000001")
    with pytest.raises(UserError, match=r"classnames\.txt has no line for n00000001"):
        imagenet(root)
    assert not (root / "imagenet" / "preprocessed.pkl").exists()


@pytest.mark.parametrize("line", ["n01440764", "n01440764 ", "\xff"])
def test_unusable_class_names_are_refused(root: Path, line: str) -> None:
    (root / "imagenet" / "classnames.txt").write_bytes(f"n01443537 goldfish\n{line}\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"classnames\.txt (is|cannot)"):
        imagenet(root)


@pytest.mark.parametrize("part", ["classnames.txt", "images/val", "images/train", "images"])
def test_missing_parts_are_reported(root: Path, part: str) -> None:
    path = root / "imagenet" / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(UserError, match=f"{part} is missing"):
        imagenet(root)


@pytest.mark.parametrize("name", layouts.VARIANTS)
def test_variants_are_test_only(name: str, tmp_path: Path) -> None:
    layouts.LAYOUTS[name](tmp_path)
    whole = build(name, tmp_path, seed=1, shots=16, subset="all")
    assert rows(whole.train_x, tmp_path) == rows(whole.test, tmp_path)
    assert not whole.val
    with pytest.raises(UserError, match=f"SUBSAMPLE_CLASSES is 'new', but {name} is tested on all"):
        build(name, tmp_path, seed=1, shots=16, subset="new")


def test_v2_needs_a_folder_for_every_line(tmp_path: Path) -> None:
    layouts.imagenetv2(tmp_path)
    shutil.rmtree(tmp_path / "imagenetv2" / layouts.FOLDERS["ImageNetV2"][1] / "17")
    with pytest.raises(UserError, match=r"0 to 999, .* 17 is missing"):
        build("ImageNetV2", tmp_path, seed=1, shots=-1, subset="all")


def test_read_only_folder_does_not_change_the_list(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*args: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("cocoamix.datasets.common.pickles.write_atomically", refuse)
    assert rows(imagenet(root).train_x, root) == rows(imagenet(root).train_x, root)
    assert "preprocessed.pkl is not saved" in capsys.readouterr().out
    assert sorted(os.listdir(root / "imagenet")) == ["classnames.txt", "images"]
