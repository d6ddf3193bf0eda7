"""`check` and `list`: what exists, what is missing, and a reliable exit status."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from cocoamix.data.check import missing_parts, state, why_unreadable
from cocoamix.data.command import main
from cocoamix.data.sources import SOURCES
from cocoamix.data.split_origin import PUBLISHED, about_split
from cocoamix.dataset_table import DATASETS
from tests.conftest import ROOT, SHARED, needs, write_dataset
from tests.datasets import layouts
from tests.datasets.own import classes, folder, write_image
from tests.datasets.test_base import eurosat


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `check` and return its status and its output."""

    def run(name: str, root: Path, *extra: str) -> tuple[int, str]:
        capsys.readouterr()
        status = main(["check", name, "--root", str(root), *extra])
        captured = capsys.readouterr()
        return status, captured.out + captured.err

    return run


def files_below(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_complete_dataset_is_ready(data_root: Path, check: Any) -> None:
    before = files_below(data_root)
    status, printed = check("eurosat", data_root)
    assert status == 0
    assert "10 classes; images: 60 train, 40 val, 40 test" in printed
    assert "     1       6       4       4  a centered satellite photo of Forest." in printed
    assert "140 of 140 files can be read" in printed
    assert "at most 6 shots" in printed
    assert "EuroSAT is ready for training." in printed
    assert files_below(data_root) == before


def test_class_names_cannot_inject_terminal_escapes(tmp_path: Path, check: Any) -> None:
    for name in ("cat", "dog\x1b[2J"):
        for number in range(2):
            write_image(tmp_path / name / f"{number}.png")
    status, printed = check("folder", tmp_path)
    assert status == 0
    assert "\x1b" not in printed
    assert "dog\\x1b[2J" in printed


@needs("data/eurosat")
def test_real_eurosat_is_complete(check: Any) -> None:
    status, printed = check("EuroSAT", SHARED / "data")
    assert status == 0
    assert "640 train, 160 val, 2,000 test" in printed
    assert "2,800 of 2,800" in printed


@pytest.mark.parametrize("name", [name for name, source in SOURCES.items() if not source.synthetic])
def test_missing_dataset_is_reported_with_its_sources(tmp_path: Path, check: Any, name: str) -> None:
    """For every dataset: where each part comes from, without loading anything."""
    status, printed = check(name, tmp_path)
    source = SOURCES[name]
    assert status == 1
    assert source.homepage in printed
    assert source.licence in printed
    assert f"{tmp_path / source.folder} (missing)" in printed
    for part in source.parts:
        assert f"[missing] {part.path}" in printed
    for file in source.files:
        assert (file.drive or file.url) in printed
        assert file.checksum in printed
    assert "is not ready for training" in printed
    assert list(tmp_path.iterdir()) == []


def test_a_missing_image_is_reported(data_root: Path, check: Any) -> None:
    next((data_root / "eurosat" / "2750" / "Forest").iterdir()).unlink()
    status, printed = check("eurosat", data_root)
    assert status == 1
    assert "1 of 140 images" in printed
    assert "Forest" in printed


def test_missing_images_are_listed_before_unreadable_ones(data_root: Path, check: Any) -> None:
    images = data_root / "eurosat" / "2750"
    gone = sorted((images / "Forest").iterdir())[:12]
    for path in gone:
        path.unlink()
    shutil.rmtree(images / "HighwayorRoad")
    broken = sorted((images / "River").iterdir())[0]
    broken.write_bytes(b"not an image")
    status, printed = check("eurosat", data_root)
    assert status == 1
    assert "26 of 140 images are missing" in printed
    assert all(f"  {path}\n" in printed for path in gone)
    assert f"{images / 'HighwayorRoad'}/: the folder is missing, with 14 images" in printed
    assert "HighwayorRoad_1" not in printed
    assert "113 of 114 files can be read" in printed
    assert f"{broken}: it is not an image" in printed
    assert "remove" not in printed.lower(), "a file that the split lists would be missing then"
    assert "Extract the archive again, or train with DATASET.BAD_IMAGES skip" in printed
    assert check("eurosat", data_root, "--fast")[0] == 1
    status, printed = check("eurosat", data_root, "DATASET.BAD_IMAGES", "skip")
    assert status == 0
    assert "26 of 140 images are missing" in printed
    assert "is ready for training" in printed


def test_missing_images_of_a_table_are_reported(tmp_path: Path, check: Any) -> None:
    classes(tmp_path, "cat", "dog", count=4)
    rows = [f"{name}/{number}.png,{name}" for name in ("cat", "dog") for number in range(6)]
    (tmp_path / "list.csv").write_text("\n".join(["path,classname", *rows]))
    status, printed = check("csv", tmp_path)
    assert status == 1
    assert "4 of 12 images are missing" in printed
    assert str(tmp_path / "dog" / "5.png") in printed
    assert check("csv", tmp_path, "DATASET.BAD_IMAGES", "skip")[0] == 0


@needs("data/splits")
@pytest.mark.parametrize("name", layouts.PUBLISHED)
def test_coop_split_is_distinguished_from_others(tmp_path: Path, name: str) -> None:
    published = SHARED / "data" / "splits" / f"split_zhou_{name}.json"
    assert about_split(SOURCES[name], published) == PUBLISHED
    content = json.loads(published.read_text())
    copy = tmp_path / published.name
    copy.write_text(json.dumps(content))  # other white space
    assert about_split(SOURCES[name], copy) == PUBLISHED
    content["train"].reverse()
    copy.write_text(json.dumps(content))
    assert "NOT the split that CoOp publishes" in about_split(SOURCES[name], copy)


def test_a_locally_drawn_split_is_not_reported_as_coops(tmp_path: Path, check: Any) -> None:
    layouts.eurosat(tmp_path)
    eurosat(tmp_path)  # a run draws the split and saves it
    _, printed = check("eurosat", tmp_path, "--fast")
    assert "[found] split_zhou_EuroSAT.json: NOT the split that CoOp publishes" in printed
    drawn = tmp_path / "split_zhou_Food101.json"
    drawn.write_text(json.dumps({"train": [["apple_pie/1.jpg", 0, "apple_pie"]], "val": [], "test": []}))
    assert "NOT the split" in about_split(SOURCES["Food101"], drawn)
    first = ["apple_pie/3113710.jpg", "apple_pie/2485958.jpg", "apple_pie/1350394.jpg"]
    drawn.write_text(json.dumps({"train": [[path, 0, "apple_pie"] for path in first], "val": [], "test": []}))
    assert about_split(SOURCES["Food101"], drawn) == PUBLISHED
    assert "cannot be checked" in about_split(SOURCES["SUN397"], drawn)


@pytest.mark.parametrize(
    ("name", "there", "command"),
    [
        ("Caltech101", ["caltech101/101_ObjectCategories"], "mv {root}/caltech101 {root}/caltech-101"),
        (
            "Caltech101",
            ["caltech-101/caltech-101/101_ObjectCategories"],
            "mv {root}/caltech-101/caltech-101/101_ObjectCategories {root}/caltech-101/101_ObjectCategories",
        ),
        ("DescribableTextures", ["dtd/dtd/images"], "mv {root}/dtd/dtd/images {root}/dtd/images"),
        ("OxfordPets", ["oxford-iiit-pet/images"], "mv {root}/oxford-iiit-pet {root}/oxford_pets"),
        ("OxfordFlowers", ["flowers-102/jpg"], "mv {root}/flowers-102 {root}/oxford_flowers"),
        ("EuroSAT", ["EuroSAT_RGB/2750"], "mv {root}/EuroSAT_RGB {root}/eurosat"),
        ("EuroSAT", ["eurosat/EuroSAT_RGB"], "mv {root}/eurosat/EuroSAT_RGB {root}/eurosat/2750"),
        (
            "FGVCAircraft",
            [
                f"fgvc-aircraft-2013b/data/{part}"
                for part in ("images", "variants.txt", *(f"images_variant_{s}.txt" for s in ("train", "val", "test")))
            ],
            "mv {root}/fgvc-aircraft-2013b/data {root}/fgvc_aircraft",
        ),
        (
            "ImageNetA",
            ["imagenet-a"],
            "mkdir -p {root}/imagenet-adversarial && mv {root}/imagenet-a {root}/imagenet-adversarial/imagenet-a",
        ),
        (
            "ImageNet",
            ["imagenet/train"],
            "mkdir -p {root}/imagenet/images && mv {root}/imagenet/train {root}/imagenet/images/train",
        ),
    ],
)
def test_known_alternative_folder_names_are_recognised(
    tmp_path: Path, check: Any, name: str, there: list[str], command: str
) -> None:
    for path in there:
        (tmp_path / path).mkdir(parents=True)
    status, printed = check(name, tmp_path)
    assert status == 1
    assert f"      {command.format(root=tmp_path)}\n" in printed
    for path in there:
        shutil.rmtree(tmp_path / path)
    assert "another name" not in check(name, tmp_path)[1]


def test_a_check_never_creates_a_missing_split(data_root: Path, check: Any) -> None:
    """A loader may split the images itself; a check must leave the folder unchanged, and explain the consequences."""
    (data_root / "eurosat" / "split_zhou_EuroSAT.json").unlink()
    before = files_below(data_root)
    _, printed = check("eurosat", data_root)
    assert "1Ip7yaCWFi0eaOFUGga0lUdVi_DDQth1o" in printed
    assert "not comparable with published ones" in printed
    assert files_below(data_root) == before


def test_a_check_writes_nothing(tmp_path: Path, check: Any) -> None:
    """Neither a split, nor a draw, nor ImageNet's list of images."""
    layouts.eurosat(tmp_path)
    layouts.imagenet(tmp_path)
    before = files_below(tmp_path)
    for name, options in (("EuroSAT", ()), ("EuroSAT", ("DATASET.NUM_SHOTS", "1", "SEED", "1")), ("ImageNet", ())):
        status, printed = check(name, tmp_path, "--fast", *options)
        assert status == 0
        assert "Sav" not in printed
        assert files_below(tmp_path) == before
    assert "is ready for training" in printed


def test_stored_draws_that_do_not_fit_are_reported(tmp_path: Path, check: Any) -> None:
    """As a run would refuse them; the splits are folders, so that removing an image moves no other."""
    for split in ("train", "test"):
        classes(tmp_path / split, "cat", "dog", "emu", "fox", count=20)
    drawn = {
        (shots, seed): {item.impath for item in folder(tmp_path, num_shots=shots, seed=seed).train_x}
        for shots, seed in ((1, 1), (2, 1), (2, 2))
    }
    draws = tmp_path / "split_fewshot"
    (draws / "notes.txt").touch()
    status, printed = check("folder", tmp_path, "DATASET.SUBSAMPLE_CLASSES", "new")
    assert (status, "3 of 3 stored draws fit the dataset" in printed) == (0, True)
    Path(min(drawn[2, 2] - drawn[2, 1] - drawn[1, 1])).unlink()
    status, printed = check("folder", tmp_path)
    assert status == 1
    assert "2 of 3 stored draws fit the dataset" in printed
    assert f"1 of 8 images of {draws / 'shot_2-seed_2.pkl'} are missing" in printed
    assert "Restore them, or delete that file to draw others." in printed
    assert "ImageFolderDataset is not ready for training" in printed
    for options, wanted in (
        (["DATASET.NUM_SHOTS", "1"], 0),
        (["DATASET.NUM_SHOTS", "2"], 1),
        (["DATASET.NUM_SHOTS", "2", "SEED", "1"], 0),
        (["SEED", "2"], 1),
    ):
        assert check("folder", tmp_path, *options)[0] == wanted, options
    shutil.copy(draws / "shot_2-seed_2.pkl", draws / "shot_3-seed_10.pkl")
    assert "The same holds for shot_3-seed_10.pkl; --all" in check("folder", tmp_path)[1]
    assert check("folder", tmp_path, "--all")[1].count("are missing; the first is") == 2
    status, printed = check("folder", tmp_path, "DATASET.BAD_IMAGES", "skip")
    assert (status, "shot_2-seed_2.pkl does not fit the dataset: 1 of its 8 train" in printed) == (1, True)
    for seed in ("2-seed_2", "3-seed_10"):
        (draws / f"shot_{seed}.pkl").unlink()
    assert check("folder", tmp_path)[0] == 0


def test_stored_draws_of_coops_datasets_are_checked(data_root: Path, check: Any) -> None:
    eurosat(data_root, num_shots=2)
    assert check("eurosat", data_root, "--fast")[0] == 0
    split = data_root / "eurosat" / "split_zhou_EuroSAT.json"
    content = json.loads(split.read_text())
    content["train"], content["test"] = content["test"], content["train"]
    split.write_text(json.dumps(content))
    status, printed = check("eurosat", data_root, "--fast")
    assert (status, "20 of its 20 train images" in printed) == (1, True)
    split.unlink()  # the next run draws a split by its seed, which the check does not know
    assert "stored draws" not in check("eurosat", data_root, "--fast")[1]


def test_class_names_of_folders_can_be_written(tmp_path: Path, check: Any) -> None:
    root, names = classes(tmp_path / "own", "01_red_kite", "02 tit, blue", "03.Ox"), tmp_path / "names.txt"
    status, printed = check("folder", root, "--write-names", str(names))
    assert (status, str(names) in printed) == (0, True)
    assert names.read_text() == "01_red_kite\tred kite\n02 tit, blue\ttit, blue\n03.Ox\tOx\n"
    status, printed = check("folder", root, "--write-names", str(names))
    assert (status, "exists and is not overwritten" in printed) == (2, True)
    names.write_text(names.read_text().replace("red kite", "milan"))
    again = tmp_path / "again.json"
    status, printed = check("folder", root, "--write-names", str(again), "DATASET.CLASSNAMES", str(names))
    assert json.loads(again.read_text()) == {"01_red_kite": "milan", "02 tit, blue": "tit, blue", "03.Ox": "Ox"}
    assert "a photo of a milan." in printed
    status, printed = check("eurosat", root, "--write-names", str(tmp_path / "other.txt"))
    assert (status, "for your own images" in printed) == (2, True)
    (root / "03.Ox").rename(root / "03.O\nx")
    status, printed = check("folder", root, "--write-names", str(tmp_path / "other.txt"))
    assert (status, "Give it the ending .json" in printed) == (2, True)
    assert not (tmp_path / "other.txt").exists()


@pytest.mark.parametrize("folder", ["cifar-100-python", "cifar100/cifar-100-python"])
def test_cifar100_is_found_in_both_locations(tmp_path: Path, check: Any, folder: str, capsys: Any) -> None:
    layouts.cifar100(tmp_path / folder)
    for name in ("CIFAR100", "cocoamix.CIFAR100", str(ROOT / "configs" / "datasets" / "cifar100.yaml")):
        status, printed = check(name, tmp_path)
        assert status == 0, printed
        assert str(tmp_path / folder) in printed
        assert "\nCIFAR100 is ready for training." in printed
    assert main(["list", "--root", str(tmp_path)]) == 0
    assert re.search(r"CIFAR100 .* found\n", capsys.readouterr().out)
    assert main(["download", "CIFAR100", "--root", str(tmp_path)]) == 0
    (tmp_path / folder / "meta").unlink()
    status, printed = check("CIFAR100", tmp_path)
    assert status == 1
    assert "[missing] meta" in printed


def test_unreadable_images_are_listed(data_root: Path, check: Any) -> None:
    images = sorted((data_root / "eurosat" / "2750" / "River").iterdir())
    images[0].write_bytes(b"not an image")
    images[1].write_bytes(images[1].read_bytes()[:-500])
    images[2].write_bytes(b"")
    status, printed = check("eurosat", data_root)
    assert status == 1
    assert "137 of 140 files can be read" in printed
    assert all(str(image) in printed for image in images[:3])
    assert check("eurosat", data_root, "--fast")[0] == 0
    status, printed = check("eurosat", data_root, "DATASET.BAD_IMAGES", "skip")
    assert status == 0
    assert str(images[0]) in printed


def test_truncated_jpeg_is_unreadable(tmp_path: Path) -> None:
    """PIL's `verify` finds nothing wrong with it, but training would."""
    from PIL import Image

    Image.effect_noise((200, 200), 80).convert("RGB").save(tmp_path / "a.jpg")
    assert why_unreadable(str(tmp_path / "a.jpg")) == ""
    content = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "a.jpg").write_bytes(content[: len(content) // 2])
    assert "truncated" in why_unreadable(str(tmp_path / "a.jpg"))


def test_user_folder_is_checked_for_unclear_class_names(tmp_path: Path, check: Any) -> None:
    classes(tmp_path, "AnnualCrop", "n01440764", "7", "猫", "tabby_cat")
    write_image(tmp_path / "tabby_cat" / "more.png")
    status, printed = check("folder", tmp_path)
    assert status == 0
    assert "a photo of a tabby cat." in printed
    assert "4 class names may mean little" in printed
    assert "'AnnualCrop' (looks like joined words)" in printed
    (tmp_path / "names.txt").write_text("AnnualCrop,field\nn01440764,tench\n7,seven\n猫,cat\ntabby_cat,tabby\n")
    status, printed = check("ImageFolderDataset", tmp_path, "DATASET.CLASSNAMES", "names.txt")
    assert status == 0
    assert "a photo of a tench." in printed
    assert "may mean little" not in printed
    (tmp_path / "empty").mkdir()
    status, printed = check("folder", tmp_path)
    assert status == 1
    assert "empty has no images" in printed


def test_configuration_files_are_accepted(tmp_path: Path, check: Any) -> None:
    classes(tmp_path / "birds", "ani", "emu")
    (tmp_path / "birds.yaml").write_text("DATASET:\n  NAME: ImageFolderDataset\n  FOLDER: birds\n")
    assert check(str(tmp_path / "birds.yaml"), tmp_path)[0] == 0
    status, printed = check(str(ROOT / "configs" / "datasets" / "eurosat.yaml"), tmp_path)
    assert status == 1
    assert "[missing] 2750" in printed
    status, printed = check(str(tmp_path / "absent.yaml"), tmp_path)
    assert status == 2
    assert "absent.yaml" in printed


def test_generated_dataset_is_ready(tmp_path: Path, check: Any) -> None:
    status, printed = check("shapes", tmp_path)
    assert status == 0
    assert "120 classes" in printed
    assert "100 more" in printed
    assert len(check("shapes", tmp_path, "--all")[1].splitlines()) > 120


def test_usage_errors(tmp_path: Path, check: Any) -> None:
    classes(tmp_path, "a", "b")
    for name, extra, words in (
        ("eurosatt", [], "Did you mean EuroSAT?"),
        ("folder", ["DATASET.CLASNAMES", "x"], "Did you mean DATASET.CLASSNAMES?"),
        ("folder", ["DATASET.CLASSNAMES"], "has no value"),
    ):
        status, printed = check(name, tmp_path, *extra)
        assert status == 2
        assert words in printed
    for arguments in (["check", "folder"], ["check", "folder", "--root", ".", "--slow"], ["list", "x"], []):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2


def test_a_dataset_without_a_loader_is_reported(tmp_path: Path, check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    shutil.move(write_dataset(tmp_path / "made") / "eurosat", tmp_path / "eurosat")
    monkeypatch.setitem(DATASETS, "Unknown", replace(DATASETS["EuroSAT"], name="Unknown", config="unknown"))
    monkeypatch.setitem(SOURCES, "Unknown", replace(SOURCES["EuroSAT"], name="Unknown", config="unknown"))
    status, printed = check("unknown", tmp_path)
    assert status == 1
    assert "no loader for the dataset Unknown" in printed


def test_list_shows_the_state_of_each_dataset(data_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data_root / "dtd").mkdir()
    assert main(["list", "--root", str(data_root)]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert set(SOURCES) < set(lines)
    assert lines["EuroSAT"].endswith("found")
    assert lines["DescribableTextures"].endswith("incomplete: no images")
    assert lines["Food101"].endswith("-")
    assert main(["list"]) == 0


def test_state_names_missing_files(data_root: Path) -> None:
    (data_root / "eurosat" / "split_zhou_EuroSAT.json").unlink()
    assert state(SOURCES["EuroSAT"], data_root) == "found, without split_zhou_EuroSAT.json"
    assert [part.path for part in missing_parts(SOURCES["EuroSAT"], data_root)] == ["split_zhou_EuroSAT.json"]
