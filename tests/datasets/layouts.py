"""Small data folders in the layouts of the official archives, and one hash of what a loader returns for them.

Imports neither cocoamix nor dassl: `benchmarks/parity_data.py` runs the same cases through CoOp's own loaders.
The images are empty files, since loaders do not open them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

FOLDERS = {
    "Caltech101": ("caltech-101", "101_ObjectCategories"),
    "DescribableTextures": ("dtd", "images"),
    "EuroSAT": ("eurosat", "2750"),
    "FGVCAircraft": ("fgvc_aircraft", "images"),
    "Food101": ("food-101", "images"),
    "ImageNet": ("imagenet", "images"),
    "ImageNetA": ("imagenet-adversarial", "imagenet-a"),
    "ImageNetR": ("imagenet-rendition", "imagenet-r"),
    "ImageNetSketch": ("imagenet-sketch", "images"),
    "ImageNetV2": ("imagenetv2", "imagenetv2-matched-frequency-format-val"),
    "OxfordFlowers": ("oxford_flowers", "jpg"),
    "OxfordPets": ("oxford_pets", "images"),
    "StanfordCars": ("stanford_cars", ""),
    "SUN397": ("sun397", "SUN397"),
    "UCF101": ("ucf101", "UCF-101-midframes"),
}
PUBLISHED = ("Caltech101", "DescribableTextures", "EuroSAT", "OxfordFlowers", "OxfordPets", "StanfordCars", "UCF101")
OWN_SPLIT = (*PUBLISHED, "Food101", "SUN397")
VARIANTS = ("ImageNetA", "ImageNetR", "ImageNetSketch", "ImageNetV2")
HAS_SCIPY = importlib.util.find_spec("scipy") is not None
SEEDS, SHOTS, SUBSETS = (1, 2, 3), (1, 4, 16), ("all", "base", "new")

Build = Callable[..., Any]  # (name, root, seed=, shots=, subset=) -> a dataset


# ---------------------------------------------------------------------- hashes


def digest(dataset: Any, root: Path) -> str:
    """Hash the items of train, val and test in their order, with paths below the root, and the class names."""

    start = os.path.join(root, "")

    def rows(items: Iterable[Any] | None) -> list[Any]:
        assert all(i.impath.startswith(start) for i in items or ())
        return [[i.impath[len(start) :], i.label, i.domain, i.classname] for i in items or ()]

    content = [rows(dataset.train_x), rows(dataset.val), rows(dataset.test), dataset.classnames]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


# ---------------------------------------------------------------------- cases: one name and one hash for each


def published_cases(name: str, build: Build, splits: Path, root: Path) -> Iterator[tuple[str, str]]:
    """Every draw and every half, on a split file that CoOp publishes."""
    stand_in(name, splits / f"split_zhou_{name}.json", root)
    for subset in SUBSETS:
        yield f"{name}/published/full/{subset}", digest(build(name, root, seed=1, shots=-1, subset=subset), root)
        for seed in SEEDS:
            for shots in SHOTS:
                dataset = build(name, root, seed=seed, shots=shots, subset=subset)
                yield f"{name}/published/shots_{shots}/seed{seed}/{subset}", digest(dataset, root)


def own_split_cases(name: str, build: Build, scratch: Path) -> Iterator[tuple[str, str]]:
    """No split file: the first start creates one and draws, the second reads it."""
    for seed in (1, 2):
        root = scratch / f"{name}-{seed}"
        LAYOUTS[name](root)
        first = build(name, root, seed=seed, shots=2, subset="all")
        yield f"{name}/own/seed{seed}/first", digest(first, root)
        written = (root / FOLDERS[name][0] / f"split_zhou_{name}.json").read_bytes()
        yield f"{name}/own/seed{seed}/file", hashlib.sha256(written).hexdigest()
        for subset in SUBSETS:
            again = build(name, root, seed=seed, shots=1, subset=subset)
            yield f"{name}/own/seed{seed}/second/{subset}", digest(again, root)


def listed_cases(name: str, build: Build, scratch: Path) -> Iterator[tuple[str, str]]:
    """FGVCAircraft, ImageNet and its variants: no split file at all."""
    root = scratch / name
    LAYOUTS[name](root)
    subsets = ("all",) if name in VARIANTS else SUBSETS
    for subset in subsets:
        yield f"{name}/listed/full/{subset}", digest(build(name, root, seed=1, shots=-1, subset=subset), root)
        for seed in SEEDS:
            dataset = build(name, root, seed=seed, shots=2, subset=subset)
            yield f"{name}/listed/shots_2/seed{seed}/{subset}", digest(dataset, root)


# ---------------------------------------------------------------------- folders


def touch(*paths: str | os.PathLike[str]) -> None:
    """Create empty files and their parent folders."""
    made: set[str] = set()
    for path in map(os.fspath, paths):
        folder = os.path.dirname(path)
        if folder not in made:
            os.makedirs(folder, exist_ok=True)
            made.add(folder)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))


def write(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def stand_in(name: str, split_file: Path, root: Path) -> None:
    """Create the dataset of a split file, with empty files as images."""
    folder, images = FOLDERS[name]
    content = json.loads(split_file.read_text())
    touch(*(os.path.join(root, folder, images, row[0]) for rows in content.values() for row in rows))
    (root / folder / split_file.name).write_bytes(split_file.read_bytes())


def _classes(root: Path, name: str, classes: dict[str, int]) -> None:
    folder, images = FOLDERS[name]
    for category, count in classes.items():
        # Numbers without leading zeros: the names are not in numerical order.
        touch(*(root / folder / images / category / f"image {number}.jpg" for number in range(1, count + 1)))
    touch(root / folder / images / ".hidden")


def caltech101(root: Path) -> None:
    names = ["BACKGROUND_Google", "Faces", "Faces_easy", "Leopards", "Motorbikes", "airplanes", "water_lilly"]
    _classes(root, "Caltech101", {name: 9 + number for number, name in enumerate(names)})


def dtd(root: Path) -> None:
    _classes(root, "DescribableTextures", {"banded": 10, "dotted": 11, "été crème": 13, "zigzagged": 12, "斑点": 14})


def eurosat(root: Path) -> None:
    names = ["AnnualCrop", "Forest", "HerbaceousVegetation", "Highway", "Industrial", "Pasture", "PermanentCrop"]
    names += ["Residential", "River", "SeaLake"]
    _classes(root, "EuroSAT", {name: 8 + number for number, name in enumerate(names)})


def food101(root: Path) -> None:
    _classes(root, "Food101", {"apple_pie": 12, "baby back ribs": 15, "суп": 10})


def oxford_pets(root: Path) -> None:
    folder, images = FOLDERS["OxfordPets"]
    breeds = ["Abyssinian", "american_bulldog", "Egyptian_Mau"]
    lists: dict[str, list[str]] = {"trainval": [], "test": []}
    for number in range(1, 22):
        for label, breed in enumerate(breeds, start=1):
            lists["trainval" if number % 3 else "test"].append(f"{breed}_{number} {label} 1 {label}")
            touch(root / folder / images / f"{breed}_{number}.jpg")
    for name, lines in lists.items():
        write(root / folder / "annotations" / f"{name}.txt", *lines)


def sun397(root: Path) -> None:
    folder, images = FOLDERS["SUN397"]
    scenes = ["/a/abbey", "/a/apartment_building/outdoor", "/z/zen_garden"]
    write(root / folder / "ClassName.txt", *scenes)
    for name, count in (("Training_01.txt", 11), ("Testing_01.txt", 4)):
        lines = [f"{scene}/sun_{name[:2]}{number}.jpg" for scene in scenes for number in range(count)]
        write(root / folder / name, *lines)
        touch(*(f"{root / folder / images}{line}" for line in lines))


def ucf101(root: Path) -> None:
    folder, images = FOLDERS["UCF101"]
    actions = {"ApplyEyeMakeup": "Apply_Eye_Makeup", "BMXRide": "B_M_X_Ride", "HandstandPushups": "Handstand_Pushups"}
    lists = root / folder / "ucfTrainTestlist"
    write(lists / "classInd.txt", *(f"{label} {action}" for label, action in enumerate(actions, start=1)))
    for name, count in (("trainlist01.txt", 13), ("testlist01.txt", 5)):
        lines = []
        for label, (action, words) in enumerate(actions.items(), start=1):
            for number in range(count):
                video = f"v_{action}_{name[:2]}{number}"
                lines.append(f"{action}/{video}.avi" + (f" {label}" if name.startswith("train") else ""))
                touch(root / folder / images / words / f"{video}.jpg")
        write(lists / name, *lines)


def fgvc_aircraft(root: Path) -> None:
    folder, images = FOLDERS["FGVCAircraft"]
    variants = ["707-320", "Boeing 717", "Cessna 172", "DH-82", "Yak-42"]
    write(root / folder / "variants.txt", *variants)
    number = 1000000
    for split, count in (("train", 6), ("val", 5), ("test", 3)):
        lines = []
        for turn in range(count):
            for variant in variants[turn % 2 :] + variants[: turn % 2]:
                number += 7
                lines.append(f"{number} {variant}")
                touch(root / folder / images / f"{number}.jpg")
        write(root / folder / f"images_variant_{split}.txt", *lines)


SYNSETS = {
    "n01440764": "tench",
    "n01443537": "goldfish",
    "n02012849": "crane bird",
    "n03126707": "construction crane",
    "n04008634": "missile",
    "n03773504": "missile",
}


def imagenet(root: Path) -> None:
    folder, images = FOLDERS["ImageNet"]
    write(root / folder / "classnames.txt", *(f"{synset} {name}" for synset, name in SYNSETS.items()))
    for count, synset in enumerate(SYNSETS, start=5):
        touch(*(root / folder / images / "train" / synset / f"{synset}_{n}.JPEG" for n in range(count)))
        touch(*(root / folder / images / "val" / synset / f"ILSVRC2012_val_{count}{n}.JPEG" for n in range(3)))


def _variant(name: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        folder, images = FOLDERS[name]
        write(root / folder / "classnames.txt", *(f"{synset} {label}" for synset, label in SYNSETS.items()))
        for synset in list(SYNSETS)[::2]:
            touch(*(root / folder / images / synset / f"{n}.jpg" for n in range(4)))
        if name != "ImageNetSketch":  # CoOp treats it as a class there
            touch(root / folder / images / "README.txt")

    return make


def imagenetv2(root: Path) -> None:
    folder, images = FOLDERS["ImageNetV2"]
    # CoOp requires a thousand.
    write(root / folder / "classnames.txt", *(f"n{8 * label:08d} class {label}" for label in range(1000, 0, -1)))
    touch(*(root / folder / images / str(label) / f"{n}.jpeg" for label in range(1000) for n in range(2)))


# ---------------------------------------------------------------------- Matlab's files


def write_matlab(path: Path, key: str, values: list[Any]) -> None:
    """Write a .mat file; without scipy, a stand-in that `matlab_arrays` reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not HAS_SCIPY:
        path.write_text(json.dumps({key: values}))
        return
    from scipy.io import savemat

    savemat(str(path), {key: _array(values, nested=False)})


def matlab_arrays(path: str) -> dict[str, Any]:
    """Return what scipy's `loadmat` returns for a file of `write_matlab`."""
    return {key: _array(values, nested=True) for key, values in json.loads(Path(path).read_text()).items()}


def _array(values: list[Any], nested: bool) -> Any:
    """Return a row of numbers, of texts, or of records of file name and class; scipy nests what it reads."""
    if isinstance(values[0], int):
        return np.array([values], dtype=np.uint8)
    if isinstance(values[0], str):
        texts = np.empty((1, len(values)), dtype=object)
        for index, value in enumerate(values):
            texts[0, index] = np.array([value]) if nested else value
        return texts
    records = np.empty((1, len(values)), dtype=[("fname", object), ("class", object)])
    for index, (name, label) in enumerate(values):
        records[0, index] = (np.array([name]), np.array([[label]])) if nested else (name, label)
    return records


def stanford_cars(root: Path) -> None:
    folder = root / FOLDERS["StanfordCars"][0]
    models = ["AM General Hummer SUV 2000", "Acura RL Sedan 2012", "smart fortwo Convertible 2012"]
    write_matlab(folder / "devkit" / "cars_meta.mat", "class_names", models)
    lists = (("cars_train", "devkit/cars_train_annos.mat", 33), ("cars_test", "cars_test_annos_withlabels.mat", 12))
    for images, name, count in lists:
        rows = [(f"{number:05d}.jpg", number % 3 + 1) for number in range(1, count + 1)]
        write_matlab(folder / name, "annotations", rows)
        touch(*(folder / images / row[0] for row in rows))


def oxford_flowers(root: Path) -> None:
    folder, images = FOLDERS["OxfordFlowers"]
    labels = [3] * 13 + [1] * 12 + [2] * 14 + [4] * 10
    write_matlab(root / folder / "imagelabels.mat", "labels", labels)
    names = {"1": "pink primrose", "2": "hard-leaved pocket orchid", "3": "canterbury bells", "4": "sweet pea"}
    (root / folder / "cat_to_name.json").write_text(json.dumps(names))
    touch(*(root / folder / images / f"image_{number:05d}.jpg" for number in range(1, len(labels) + 1)))


# ---------------------------------------------------------------------- CIFAR-100


def cifar100(folder: Path, classes: int = 4, train: int = 60, test: int = 3) -> dict[str, Any]:
    """Write an archive as Python 2 wrote the official one, and return its pixels and labels by split."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    names = ["apple", "aquarium_fish", "baby", "bear"][:classes]
    (folder / "meta").write_bytes(python2_pickle({"fine_label_names": names, "coarse_label_names": ["a", "b"]}))
    made: dict[str, Any] = {}
    for split, count in (("train", train), ("test", test)):
        labels = [int(label) for label in generator.permutation(list(range(classes)) * count)]
        pixels = generator.integers(0, 256, size=(len(labels), 3072), dtype=np.uint8)
        content = {"filenames": [f"x_{n}.png" for n in range(len(labels))], "fine_labels": labels, "data": pixels}
        (folder / split).write_bytes(python2_pickle(content))
        made[split] = pixels, labels
    return made


def python2_pickle(value: Any) -> bytes:
    """Pickle by hand, with the opcodes of Python 2: byte strings, and numpy's old module names."""
    return b"\x80\x02" + _pickled(value) + b"."


def _pickled(value: Any) -> bytes:
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return b"T" + len(value).to_bytes(4, "little") + value  # BINSTRING
    if isinstance(value, dict):
        return b"}(" + b"".join(_pickled(part) for pair in value.items() for part in pair) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(_pickled, value)) + b"e"
    if isinstance(value, np.ndarray):
        dtype = b"cnumpy\ndtype\n(" + _pickled("u1") + b"K\x00K\x01tR(K\x03" + _pickled("|") + b"NNNJ\xff\xff\xff\xff"
        dtype += b"J\xff\xff\xff\xffK\x00tb"
        shape = b"(" + b"".join(map(_pickled, value.shape)) + b"t"
        start = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + _pickled("b") + b"tR"
        return start + b"(K\x01" + shape + dtype + b"\x89" + _pickled(value.tobytes()) + b"tb"
    return pickle.dumps(value, protocol=2)[2:-1]  # a number


LAYOUTS: dict[str, Callable[[Path], None]] = {
    "Caltech101": caltech101,
    "DescribableTextures": dtd,
    "EuroSAT": eurosat,
    "FGVCAircraft": fgvc_aircraft,
    "Food101": food101,
    "ImageNet": imagenet,
    **{name: _variant(name) for name in ("ImageNetA", "ImageNetR", "ImageNetSketch")},
    "ImageNetV2": imagenetv2,
    "OxfordFlowers": oxford_flowers,
    "OxfordPets": oxford_pets,
    "StanfordCars": stanford_cars,
    "SUN397": sun397,
    "UCF101": ucf101,
}
