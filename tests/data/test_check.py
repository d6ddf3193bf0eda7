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
from tests.datasets.own import classes, write_image


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


def test_complete_dataset(data_root: Path, check: Any) -> None:
    before = files_below(data_root)
    status, said = check("eurosat", data_root)
    assert status == 0
    assert "10 classes; images: 60 train, 40 val, 40 test" in said
    assert "     1       6       4       4  a centered satellite photo of Forest." in said
    assert "140 of 140 files can be read" in said
    assert "at most 6 shots" in said
    assert "EuroSAT is ready for training." in said
    assert files_below(data_root) == before


def test_class_names_cannot_inject_terminal_escapes(tmp_path: Path, check: Any) -> None:
    for name in ("cat", "dog\x1b[2J"):
        for number in range(2):
            write_image(tmp_path / name / f"{number}.png")
    status, said = check("folder", tmp_path)
    assert status == 0
    assert "\x1b" not in said
    assert "dog\\x1b[2J" in said


@needs("data/eurosat")
def test_real_eurosat(check: Any) -> None:
    status, said = check("EuroSAT", SHARED / "data")
    assert status == 0
    assert "640 train, 160 val, 2,000 test" in said
    assert "2,800 of 2,800" in said


@pytest.mark.parametrize("name", [name for name, source in SOURCES.items() if not source.drawn])
def test_missing_dataset(tmp_path: Path, check: Any, name: str) -> None:
    """For every dataset: where each part comes from, without loading anything."""
    status, said = check(name, tmp_path)
    source = SOURCES[name]
    assert status == 1
    assert source.homepage in said
    assert source.licence in said
    assert f"{tmp_path / source.folder} (missing)" in said
    for part in source.parts:
        assert f"[missing] {part.path}" in said
    for file in source.files:
        assert (file.drive or file.url) in said
        assert file.checksum in said
    assert "is not ready for training" in said
    assert list(tmp_path.iterdir()) == []


def test_a_missing_image(data_root: Path, check: Any) -> None:
    next((data_root / "eurosat" / "2750" / "Forest").iterdir()).unlink()
    status, said = check("eurosat", data_root)
    assert status == 1
    assert "1 of 140 images" in said
    assert "Forest" in said


def test_all_missing_images_and_then_the_unreadable_ones(data_root: Path, check: Any) -> None:
    images = data_root / "eurosat" / "2750"
    gone = sorted((images / "Forest").iterdir())[:12]
    for path in gone:
        path.unlink()
    shutil.rmtree(images / "HighwayorRoad")
    broken = sorted((images / "River").iterdir())[0]
    broken.write_bytes(b"not an image")
    status, said = check("eurosat", data_root)
    assert status == 1
    assert "26 of 140 images are missing" in said
    assert all(f"  {path}\n" in said for path in gone)
    assert f"{images / 'HighwayorRoad'}/: the folder is missing, with 14 images" in said
    assert "HighwayorRoad_1" not in said
    assert "113 of 114 files can be read" in said
    assert f"{broken}: it is not an image" in said
    assert "remove" not in said.lower(), "a file that the split lists would be missing then"
    assert "Extract the archive again, or train with DATASET.BAD_IMAGES skip" in said
    assert check("eurosat", data_root, "--fast")[0] == 1
    status, said = check("eurosat", data_root, "DATASET.BAD_IMAGES", "skip")
    assert status == 0
    assert "26 of 140 images are missing" in said
    assert "is ready for training" in said


def test_missing_images_of_a_table(tmp_path: Path, check: Any) -> None:
    classes(tmp_path, "cat", "dog", count=4)
    rows = [f"{name}/{number}.png,{name}" for name in ("cat", "dog") for number in range(6)]
    (tmp_path / "list.csv").write_text("\n".join(["path,classname", *rows]))
    status, said = check("csv", tmp_path)
    assert status == 1
    assert "4 of 12 images are missing" in said
    assert str(tmp_path / "dog" / "5.png") in said
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
    from tests.datasets.test_base import eurosat

    layouts.eurosat(tmp_path)
    eurosat(tmp_path)  # a run draws the split and saves it
    _, said = check("eurosat", tmp_path, "--fast")
    assert "[found] split_zhou_EuroSAT.json: NOT the split that CoOp publishes" in said
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
def test_alternative_well_known_folder_name(
    tmp_path: Path, check: Any, name: str, there: list[str], command: str
) -> None:
    for path in there:
        (tmp_path / path).mkdir(parents=True)
    status, said = check(name, tmp_path)
    assert status == 1
    assert f"      {command.format(root=tmp_path)}\n" in said
    for path in there:
        shutil.rmtree(tmp_path / path)
    assert "another name" not in check(name, tmp_path)[1]


def test_a_check_never_creates_a_missing_split(data_root: Path, check: Any) -> None:
    """A loader may split the images itself; a check must leave the folder unchanged, and say what it means."""
    (data_root / "eurosat" / "split_zhou_EuroSAT.json").unlink()
    before = files_below(data_root)
    _, said = check("eurosat", data_root)
    assert "1Ip7yaCWFi0eaOFUGga0lUdVi_DDQth1o" in said
    assert "not comparable with published ones" in said
    assert files_below(data_root) == before


def test_a_check_writes_nothing(tmp_path: Path, check: Any) -> None:
    """Neither a split, nor a draw, nor ImageNet's list of images."""
    layouts.eurosat(tmp_path)
    layouts.imagenet(tmp_path)
    before = files_below(tmp_path)
    for name, options in (("EuroSAT", ()), ("EuroSAT", ("DATASET.NUM_SHOTS", "1", "SEED", "1")), ("ImageNet", ())):
        status, said = check(name, tmp_path, "--fast", *options)
        assert status == 0
        assert "Sav" not in said
        assert files_below(tmp_path) == before
    assert "is ready for training" in said


@pytest.mark.parametrize("folder", ["cifar-100-python", "cifar100/cifar-100-python"])
def test_both_locations_of_cifar100(tmp_path: Path, check: Any, folder: str, capsys: Any) -> None:
    layouts.cifar100(tmp_path / folder)
    for name in ("CIFAR100", "cocoamix.CIFAR100", str(ROOT / "configs" / "datasets" / "cifar100.yaml")):
        status, said = check(name, tmp_path)
        assert status == 0, said
        assert str(tmp_path / folder) in said
        assert "\nCIFAR100 is ready for training." in said
    assert main(["list", "--root", str(tmp_path)]) == 0
    assert re.search(r"CIFAR100 .* found\n", capsys.readouterr().out)
    assert main(["download", "CIFAR100", "--root", str(tmp_path)]) == 0
    (tmp_path / folder / "meta").unlink()
    status, said = check("CIFAR100", tmp_path)
    assert status == 1
    assert "[missing] meta" in said


def test_unreadable_images(data_root: Path, check: Any) -> None:
    images = sorted((data_root / "eurosat" / "2750" / "River").iterdir())
    images[0].write_bytes(b"not a picture")
    images[1].write_bytes(images[1].read_bytes()[:-500])
    images[2].write_bytes(b"")
    status, said = check("eurosat", data_root)
    assert status == 1
    assert "137 of 140 files can be read" in said
    assert all(str(image) in said for image in images[:3])
    assert check("eurosat", data_root, "--fast")[0] == 0
    status, said = check("eurosat", data_root, "DATASET.BAD_IMAGES", "skip")
    assert status == 0
    assert str(images[0]) in said


def test_truncated_jpeg(tmp_path: Path) -> None:
    """PIL's `verify` finds nothing wrong with it, but training would."""
    from PIL import Image

    Image.effect_noise((200, 200), 80).convert("RGB").save(tmp_path / "a.jpg")
    assert why_unreadable(str(tmp_path / "a.jpg")) == ""
    content = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "a.jpg").write_bytes(content[: len(content) // 2])
    assert "truncated" in why_unreadable(str(tmp_path / "a.jpg"))


def test_user_folder(tmp_path: Path, check: Any) -> None:
    classes(tmp_path, "AnnualCrop", "n01440764", "7", "猫", "tabby_cat")
    write_image(tmp_path / "tabby_cat" / "more.png")
    status, said = check("folder", tmp_path)
    assert status == 0
    assert "a photo of a tabby cat." in said
    assert "4 class names may mean little" in said
    assert "'AnnualCrop' (looks like joined words)" in said
    (tmp_path / "names.txt").write_text("AnnualCrop,field\nn01440764,tench\n7,seven\n猫,cat\ntabby_cat,tabby\n")
    status, said = check("ImageFolderDataset", tmp_path, "DATASET.CLASSNAMES", "names.txt")
    assert status == 0
    assert "a photo of a tench." in said
    assert "may mean little" not in said
    (tmp_path / "empty").mkdir()
    status, said = check("folder", tmp_path)
    assert status == 1
    assert "empty has no images" in said


def test_user_configuration_file(tmp_path: Path, check: Any) -> None:
    classes(tmp_path / "birds", "ani", "emu")
    (tmp_path / "birds.yaml").write_text("DATASET:\n  NAME: ImageFolderDataset\n  FOLDER: birds\n")
    assert check(str(tmp_path / "birds.yaml"), tmp_path)[0] == 0
    status, said = check(str(ROOT / "configs" / "datasets" / "eurosat.yaml"), tmp_path)
    assert status == 1
    assert "[missing] 2750" in said
    status, said = check(str(tmp_path / "absent.yaml"), tmp_path)
    assert status == 2
    assert "absent.yaml" in said


def test_generated_dataset(tmp_path: Path, check: Any) -> None:
    status, said = check("shapes", tmp_path)
    assert status == 0
    assert "120 classes" in said
    assert "100 more" in said
    assert len(check("shapes", tmp_path, "--all")[1].splitlines()) > 120


def test_usage_errors(tmp_path: Path, check: Any) -> None:
    classes(tmp_path, "a", "b")
    for name, extra, words in (
        ("eurosatt", [], "Did you mean EuroSAT?"),
        ("folder", ["DATASET.CLASNAMES", "x"], "Did you mean DATASET.CLASSNAMES?"),
        ("folder", ["DATASET.CLASSNAMES"], "has no value"),
    ):
        status, said = check(name, tmp_path, *extra)
        assert status == 2
        assert words in said
    for arguments in (["check", "folder"], ["check", "folder", "--root", ".", "--slow"], ["list", "x"], []):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2


def test_a_dataset_without_a_loader(tmp_path: Path, check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    shutil.move(write_dataset(tmp_path / "made") / "eurosat", tmp_path / "eurosat")
    monkeypatch.setitem(DATASETS, "Unknown", replace(DATASETS["EuroSAT"], name="Unknown", config="unknown"))
    monkeypatch.setitem(SOURCES, "Unknown", replace(SOURCES["EuroSAT"], name="Unknown", config="unknown"))
    status, said = check("unknown", tmp_path)
    assert status == 1
    assert "no loader for the dataset Unknown" in said


def test_list(data_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data_root / "dtd").mkdir()
    assert main(["list", "--root", str(data_root)]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert set(SOURCES) < set(lines)
    assert lines["EuroSAT"].endswith("found")
    assert lines["DescribableTextures"].endswith("incomplete: no images")
    assert lines["Food101"].endswith("-")
    assert main(["list"]) == 0


def test_state(data_root: Path) -> None:
    (data_root / "eurosat" / "split_zhou_EuroSAT.json").unlink()
    assert state(SOURCES["EuroSAT"], data_root) == "found, without split_zhou_EuroSAT.json"
    assert [part.path for part in missing_parts(SOURCES["EuroSAT"], data_root)] == ["split_zhou_EuroSAT.json"]
