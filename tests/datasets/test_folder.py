"""A folder of images becomes a dataset, or gives a message that explains the problem."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from cocoamix.clip.templates import DEFAULT, dataset_template
from cocoamix.errors import UserError
from tests.conftest import ROOT, Runner
from tests.datasets.own import below, classes, folder, write_image
from tests.datasets.test_base import config


def test_labels_follow_the_sorted_folders(tmp_path: Path) -> None:
    data = folder(classes(tmp_path, "dog", "cat", "Emu"))
    assert data.classnames == ["Emu", "cat", "dog"]
    for item in [*data.train_x, *data.val, *data.test]:
        assert data.classnames[item.label] == Path(item.impath).parent.name == item.classname


def test_automatic_split_follows_the_documented_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the hash of the path below the folder, recomputed here from the documented rule."""
    data = folder(classes(tmp_path / "one", "cat", "dog"))
    assert "SHA-256" in capsys.readouterr().out
    for part, wanted in (("test", slice(0, 3)), ("val", slice(3, 5)), ("train_x", slice(5, 10))):
        found = set(below(getattr(data, part), tmp_path / "one"))
        names = [[f"{c}/{i}.png" for i in range(10)] for c in ("cat", "dog")]
        ordered = [sorted(one, key=lambda name: hashlib.sha256(name.encode()).hexdigest()) for one in names]
        assert found == {name for one in ordered for name in one[wanted]}
    moved = shutil.copytree(tmp_path / "one", tmp_path / "elsewhere")
    again = folder(moved, seed=7)  # neither the location nor the seed matters
    assert below(again.test, moved) == below(data.test, tmp_path / "one")


@pytest.mark.parametrize("count", range(2, 12))
def test_every_class_has_training_and_test_images(tmp_path: Path, count: int) -> None:
    data = folder(classes(tmp_path, "a", "b", count=count))
    sizes = [len(data.train_x), len(data.val), len(data.test)]
    assert min(sizes[0], sizes[2]) >= 2
    assert sum(sizes) == 2 * count


def test_split_fractions_can_be_chosen(tmp_path: Path) -> None:
    classes(tmp_path, "a", "b")
    data = folder(tmp_path, split=[0.6, 0.0, 0.4])
    assert (len(data.train_x), len(data.val), len(data.test)) == (12, 0, 8)
    for wrong in ([0.5, 0.5], [0.5, 0.2, 0.4], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [1.2, -0.5, 0.3]):
        with pytest.raises(UserError, match=r"DATASET\.SPLIT"):
            folder(tmp_path, split=wrong)


@pytest.mark.parametrize("val", ["val", "valid", "validation", "Val"])
def test_split_folders_are_used(tmp_path: Path, val: str) -> None:
    for split, count in (("train", 5), (val, 2), ("test", 3)):
        classes(tmp_path / split, "cat", "dog", count=count)
    data = folder(tmp_path)
    assert (len(data.train_x), len(data.val), len(data.test)) == (10, 4, 6)
    assert {name.split("/")[0] for name in below(data.val, tmp_path)} == {val}
    assert {name.split("/")[0] for name in below(data.test, tmp_path)} == {"test"}


def test_val_is_used_as_test_without_a_test_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    classes(tmp_path / "train", "cat", "dog", count=5)
    classes(tmp_path / "val", "cat", "dog", count=2)
    data = folder(tmp_path)
    assert (len(data.train_x), len(data.val), len(data.test)) == (10, 0, 4)
    assert "no test split" in capsys.readouterr().out


def test_single_train_folder_is_split(tmp_path: Path) -> None:
    data = folder(classes(tmp_path / "train", "cat", "dog").parent)
    assert (len(data.train_x), len(data.val), len(data.test)) == (10, 4, 6)


def test_classes_may_be_named_like_splits(tmp_path: Path) -> None:
    data = folder(classes(tmp_path, "train", "test", "plane"))
    assert data.classnames == ["plane", "test", "train"]


def test_folder_below_the_root_is_found_by_name(tmp_path: Path) -> None:
    classes(tmp_path / "animals", "cat", "dog")
    assert folder(tmp_path, folder="animals").classnames == ["cat", "dog"]
    with pytest.raises(UserError, match=r"no folder .*animal \(DATASET\.FOLDER"):
        folder(tmp_path, folder="animal")
    with pytest.raises(UserError, match="no folder"):
        folder(tmp_path / "nowhere")


def test_missing_root_is_refused() -> None:
    from cocoamix.datasets.own.folder import ImageFolderDataset

    cfg = config(Path("."))
    cfg.DATASET.ROOT = ""
    with pytest.raises(UserError, match="give --root"):
        ImageFolderDataset(cfg)


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["001.Black_footed_Albatross", "002.Ani"], ["Black footed Albatross", "Ani"]),
        (["1_cat", "10_emu", "2_dog"], ["emu", "cat", "dog"]),  # by folder name, as everywhere
        (["2012_BMW", "2012_Audi"], ["2012 Audi", "2012 BMW"]),  # a year is not a number in a sequence
        (["3_series", "cat"], ["3 series", "cat"]),
        (["707-320", "727-200"], ["707-320", "727-200"]),
        (["T-shirt", "iPhone", "McLaren"], ["McLaren", "T-shirt", "iPhone"]),
        (["sea_lake", "  two  spaces "], ["two spaces", "sea lake"]),
        (["Þórshöfn", "北京 鸭", "cat"], ["cat", "Þórshöfn", "北京 鸭"]),
    ],
)
def test_class_names_are_derived_from_folders(tmp_path: Path, folders: list[str], names: list[str]) -> None:
    assert folder(classes(tmp_path, *folders, count=2)).classnames == names


def test_decomposed_letters_are_composed(tmp_path: Path) -> None:
    """As stored by some file systems: prompt and order are those of the composed letters."""
    taken_apart = unicodedata.normalize("NFD", "é")
    data = folder(classes(tmp_path, f"{taken_apart}mu", "f", count=2))
    assert data.classnames == ["f", "ému"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("names.txt", "a b\tgreat tit\nn02\tcoot\nn99\tnot here\n"),
        ("names.csv", 'a b, great tit\nn02,"coot"\n'),
        ("names.txt", "# comment\n\nn02 coot\na b great tit\n"),  # as CoOp's classnames.txt
        ("names.json", json.dumps({"a b": "great_tit", "n02": "coot", "n99": "not here"})),
        ("names.txt", "\ufeffa b;great tit\r\nn02;coot\r\n"),
    ],
)
def test_class_names_are_read_from_a_file(tmp_path: Path, file: str, text: str) -> None:
    classes(tmp_path, "a b", "n02", count=2)
    (tmp_path / file).write_bytes(text.encode())
    assert folder(tmp_path, classnames=file).classnames == ["great tit", "coot"]
    assert folder(tmp_path, classnames=str(tmp_path / file)).classnames == ["great tit", "coot"]


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("names.txt", "n01\ttit\n", ["no class name for 1 of 2 folders: n02.", "check folder", "--write-names FILE"]),
        ("names.txt", "n03\ttit\n", ["no class name for 2 of 2 folders: n01, n02."]),
        ("names.txt", "n01\ttit\nn02\n", ["n02", "empty class name"]),
        ("names.txt", "n01\ttit\nn02\tcoot\nn01\tape\n", ["n01", "'tit' in line 1", "'ape' in line 3"]),
        ("names.txt", "n01\ttit\nn02\tTit\n", ["n01", "n02", "same class name", "DATASET.CLASSNAMES"]),
        ("names.json", '{"n01": "tit",}', ["names.json", "not valid JSON", "line 1"]),
        ("names.json", '["tit", "coot"]', ["names.json", "JSON object"]),
        ("absent.txt", None, ["absent.txt", "not a file"]),
        ("names.txt", b"n01\tt\xe9t\n", ["names.txt", "UTF-8"]),
    ],
)
def test_unusable_class_name_files_are_refused(tmp_path: Path, file: str, text: Any, words: list[str]) -> None:
    classes(tmp_path, "n01", "n02", count=2)
    if text is not None:
        (tmp_path / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError) as caught:
        folder(tmp_path, classnames=file)
    for word in words:
        assert word in str(caught.value)


def test_non_images_are_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    classes(tmp_path, "cat", "dog", count=3)
    (tmp_path / "cat" / "notes.txt").write_text("x")
    (tmp_path / "cat" / ".hidden.png").write_bytes(b"")
    (tmp_path / "cat" / "._1.png").write_bytes(b"")
    (tmp_path / ".git").mkdir()
    (tmp_path / "__MACOSX").mkdir()
    (tmp_path / "README.md").write_text("x")
    write_image(tmp_path / "dog" / "more" / "UPPER.PNG")
    data = folder(tmp_path)
    names = below([*data.train_x, *data.val, *data.test], tmp_path)
    assert sorted(names) == [f"{c}/{i}.png" for c in ("cat", "dog") for i in range(3)] + ["dog/more/UPPER.PNG"]
    assert "notes.txt" in capsys.readouterr().out


def _empty(root: Path) -> None:
    (root / "empty").mkdir()


def _no_images(root: Path) -> None:
    (root / "texts").mkdir()
    (root / "texts" / "a.txt").write_text("x")


def _one_image(root: Path) -> None:
    write_image(root / "single" / "1.png")


def _broken_link(root: Path) -> None:
    (root / "cat" / "gone.png").symlink_to(root / "nowhere.png")


def _symlink_cycle(root: Path) -> None:
    (root / "cat" / "circle").symlink_to(root / "cat" / "circle")


def _class_is_the_root(root: Path) -> None:
    (root / "again").symlink_to(root, target_is_directory=True)


def _two_names_of_one_folder(root: Path) -> None:
    (root / "kitty").symlink_to(root / "cat", target_is_directory=True)


def _only_split(root: Path) -> None:
    shutil.move(root, root.parent / "moved")
    shutil.move(root.parent / "moved", root / "test")


def _untrained(root: Path) -> None:
    _only_split(root)
    shutil.copytree(root / "test" / "cat", root / "train" / "cat")


def _splits_beside_classes(root: Path) -> None:
    classes(root / "train", "cat", "dog", count=2)


def _two_validations(root: Path) -> None:
    for name in ("train", "val", "valid"):
        classes(root / name, "cat", "dog", count=2)


def _image_in_two_splits(root: Path) -> None:
    _only_split(root)
    (root / "train").symlink_to(root / "test", target_is_directory=True)


def _images_without_class_folders(root: Path) -> None:
    for name in ("cat", "dog"):
        shutil.rmtree(root / name)
    write_image(root / "1.png")


def _too_deep(root: Path) -> None:
    shutil.move(root, root.parent / "moved")
    shutil.move(root.parent / "moved", root / "photos")


def _nothing(root: Path) -> None:
    for name in ("cat", "dog"):
        shutil.rmtree(root / name)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_empty, ["empty has no images", "remove the folder"]),
        (_no_images, ["texts has no images", "1 other files", "a.txt"]),
        (_one_image, ["'single' has one image"]),
        (_broken_link, ["gone.png", "broken or circular link"]),
        (_symlink_cycle, ["circle", "broken or circular link"]),
        (_class_is_the_root, ["again has no images", "is a link to a folder above it"]),
        (_two_names_of_one_folder, ["kitty", "cat", "same folder"]),
        (_only_split, ["test", "no train images"]),
        (_untrained, ["'dog'", "test images but no train"]),
        (_splits_beside_classes, ["train/", "cat/", "either splits or classes"]),
        (_two_validations, ["val/", "valid/"]),
        (_image_in_two_splits, ["train/cat", "test/cat", "same folder"]),
        (_images_without_class_folders, ["has 1 images", "1.png", "separate folder"]),
        (_too_deep, ["photos/", "did you mean", "photos?"]),
        (_nothing, ["has no folders of images"]),
    ],
)
def test_unusable_folders_are_refused(tmp_path: Path, spoil: Any, words: list[str]) -> None:
    root = classes(tmp_path / "root", "cat", "dog", count=4)
    spoil(root)
    with pytest.raises(UserError) as caught:
        folder(root)
    for word in words:
        assert word in str(caught.value)


def test_symlink_cycle_is_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    classes(tmp_path, "cat", "dog", count=4)
    (tmp_path / "cat" / "up").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "cat" / "more").mkdir()
    (tmp_path / "cat" / "more" / "up").symlink_to(tmp_path / "cat", target_is_directory=True)
    data = folder(tmp_path)
    assert len([*data.train_x, *data.val, *data.test]) == 8
    assert "is a link to a folder above it" in capsys.readouterr().out


def test_symlinks_elsewhere_are_followed(tmp_path: Path) -> None:
    classes(tmp_path / "store", "a", "b", count=4)
    (tmp_path / "root").mkdir()
    for name, target in (("cat", "a"), ("dog", "b")):
        (tmp_path / "root" / name).symlink_to(tmp_path / "store" / target, target_is_directory=True)
    data = folder(tmp_path / "root")
    assert data.classnames == ["cat", "dog"]
    assert len([*data.train_x, *data.val, *data.test]) == 8


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_folder_is_reported(tmp_path: Path) -> None:
    classes(tmp_path, "cat", "dog", count=2)
    (tmp_path / "cat").chmod(0)
    with pytest.raises(UserError, match="cat cannot be read"):
        folder(tmp_path)


def test_few_shots_of_a_half_are_drawn_again(tmp_path: Path) -> None:
    classes(tmp_path, "a", "b", "c", "d", "e")
    data = folder(tmp_path, num_shots=2, subsample_classes="new")
    assert (data.classnames, len(data.train_x), len(data.test)) == (["d", "e"], 4, 6)
    assert (tmp_path / "split_fewshot" / "shot_2-seed_1.pkl").is_file()
    again = folder(tmp_path, num_shots=2, subsample_classes="new")  # whose folder is not a class
    assert below(again.train_x, tmp_path) == below(data.train_x, tmp_path)


@pytest.mark.parametrize("change", ["class in front", "class at the end", "renamed", "other split"])
def test_a_saved_draw_of_different_folder_contents_is_refused(tmp_path: Path, change: str) -> None:
    """Its labels would silently refer to other classes."""
    classes(tmp_path, "cat", "dog")
    folder(tmp_path, num_shots=2)
    options: dict[str, Any] = {"num_shots": 2}
    if change.startswith("class"):
        classes(tmp_path, "ape" if "front" in change else "emu")
    elif change == "renamed":
        shutil.move(tmp_path / "dog", tmp_path / "wolf")
    else:
        options["split"] = [0.1, 0.1, 0.8]
        options["fewer_shots"] = True
    with pytest.raises(UserError, match=r"shot_2-seed_1\.pkl"):
        folder(tmp_path, **options)
    (tmp_path / "split_fewshot" / "shot_2-seed_1.pkl").unlink()
    assert folder(tmp_path, **options).train_x


def test_a_saved_draw_is_used_with_other_class_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As after a run that stopped for want of weights: the images and their labels are the same."""
    first = folder(classes(tmp_path, "cat", "dog"), num_shots=2)
    (tmp_path / "names.txt").write_text("cat,tom\ndog,dog\n")
    note = "shot_2-seed_1.pkl was made under other class names"
    assert note not in capsys.readouterr().out
    again = folder(tmp_path, num_shots=2, classnames="names.txt")
    assert capsys.readouterr().out.count(note) == 1
    assert again.classnames == ["tom", "dog"]
    for one, other in ((first.train_x, again.train_x), (first.val, again.val)):
        assert below(one, tmp_path) == below(other, tmp_path)
        assert [item.label for item in one] == [item.label for item in other]
        assert {item.classname for item in other} == {"tom", "dog"}


def test_adding_images_keeps_a_draw(tmp_path: Path) -> None:
    classes(tmp_path, "cat", "dog", count=4)
    first = folder(tmp_path, num_shots=1, split=[0.5, 0.0, 0.5])
    drawn = below(first.train_x, tmp_path)
    # Images with larger hashes come after all others, and so leave the test images unchanged.
    for name in ("cat", "dog"):
        largest = max((f"{name}/{n}.png" for n in range(4)), key=lambda n: hashlib.sha256(n.encode()).hexdigest())
        more = (f"{name}/new{n}.png" for n in range(10000))
        write_image(tmp_path / next(n for n in more if _digest(n) > _digest(largest)))
    assert below(folder(tmp_path, num_shots=1, split=[0.5, 0.0, 0.5]).train_x, tmp_path) == drawn


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def test_unknown_datasets_take_the_default_template() -> None:
    assert dataset_template("ImageFolderDataset") == dataset_template("CSVDataset") == DEFAULT


@pytest.mark.parametrize("trainer", ["CoCoAMix", "ZeroshotCLIP"])
def test_training_needs_only_a_configuration(run: Runner, tmp_path: Path, trainer: str) -> None:
    classes(tmp_path / "own", "red star", "blue_ring", "green cross", "pink heart", count=6)
    dataset = ["--dataset-config-file", str(ROOT / "configs" / "datasets" / "folder.yaml")]
    only = ["--eval-only"] if trainer == "ZeroshotCLIP" else []
    settings = ["DATASET.NUM_SHOTS", "2", "OPTIM.MAX_EPOCH", "1", "TRAINER.COCOAMIX.N_CTX", "2"]
    done = run(*dataset, *only, *settings, data=tmp_path / "own", trainer=trainer)
    assert done.status == 0, done.output[-2000:]
    assert done.results["dataset"] == "ImageFolderDataset"
    assert "a photo of a {}." in json.dumps(done.results)


@pytest.mark.parametrize("shares", [["half", 0.2, 0.3], [True, 0, 0], [0.5, 0.5]])
def test_invalid_split_fractions_are_refused(tmp_path: Path, shares: list[Any]) -> None:
    with pytest.raises(UserError, match=r"DATASET\.SPLIT is"):
        folder(classes(tmp_path, "cat", "dog", count=4), split=shares)


def test_names_that_are_not_utf8_are_refused_for_classes_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Allowed for files but not for a class, since its prompt is text."""
    classes(tmp_path, "cat", "dog")
    (tmp_path / "cat" / "0.png").rename(tmp_path / "cat" / "caf\udce9.png")
    (tmp_path / "cat" / "notes\udce9.txt").touch()
    data = folder(tmp_path)
    assert sum(len(one) for one in (data.train_x, data.val, data.test)) == 20
    assert "the first is" in capsys.readouterr().out
    (tmp_path / "dog").rename(tmp_path / "\udcff")
    with pytest.raises(UserError, match=r"The name of the folder \\xff is not UTF-8, so it cannot be used in a prompt"):
        folder(tmp_path)
