"""Small datasets in the layouts of miniImageNet and CUB-200-2011, with session lists in the published format.

Six classes: two base ones, then two sessions of two classes with two images each. Hashes are computed here from the
texts of the lists, independently of the code that checks them.
"""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

BASE, WAY, SHOTS = 2, 2, 2
TRAIN, TEST = 4, 3  # images of each class
WORDNET = {f"n0000000{number}": name for number, name in enumerate(["river", "lake", "sea", "forest", "road", "house"])}
BIRDS = [
    *("001.Black_footed_Albatross", "002.Ani", "003.Red_winged_Blackbird"),
    *("004.Bobolink", "005.Painted_Bunting", "006.Gray_Catbird"),
]


def _md5(lines: list[str]) -> str:
    return hashlib.md5("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def _image(path: Path, label: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(label)
    Image.fromarray((draw.integers(0, 256, 3) + np.zeros((20, 24, 3))).astype(np.uint8)).save(path)


def _facts(classes: list[Any], lines: dict[str, list[str]], sessions: list[tuple[list[str], list[list[Any]]]]) -> Any:
    whole = {name: {"images": len(listed), "md5": _md5(sorted(listed))} for name, listed in lines.items()}
    found = [{"md5": _md5(listed), "images": images} for listed, images in sessions]
    return {"base": BASE, "way": WAY, "shots": SHOTS, "classes": classes, "whole": whole, "sessions": found}


def mini_imagenet(root: Path) -> tuple[Path, dict[str, list[str]]]:
    """Write miniimagenet/ and its reference file; return the latter, and the lines of each published session."""
    folder = root / "miniimagenet"
    (folder / "split").mkdir(parents=True)
    named: dict[str, list[tuple[str, str]]] = {"train": [], "test": []}
    for label, category in enumerate(WORDNET):
        for number in range(TRAIN + TEST):
            name = f"{category}{10 * label + number:08d}.jpg"
            _image(folder / "images" / name, label)
            named["train" if number < TRAIN else "test"].append((category, name))
    lines = {split: [f"MINI-ImageNet/{split}/{one}/{name}" for one, name in rows] for split, rows in named.items()}
    for split, rows in named.items():
        text = "filename,label\n" + "".join(f"{name},{category}\n" for category, name in rows)
        (folder / "split" / f"{split}.csv").write_text(text)
    base = [line for line in lines["train"] if line.split("/")[2] in list(WORDNET)[:BASE]]
    sessions = {"session_1": random.Random(0).sample(base, len(base))}  # published lists are unordered, too
    facts = []
    for session in range(2):
        labels = [BASE + WAY * session + place for place in range(WAY)]
        images = [[10 * label + 3, 10 * label + 1] for label in labels]
        listed = [
            f"MINI-ImageNet/train/n0000000{label}/n0000000{label}{number:08d}.jpg"
            for label, numbers in zip(labels, images, strict=True)
            for number in numbers
        ]
        sessions[f"session_{session + 2}"] = listed
        facts.append((listed, images))
    path = root / "mini_facts.json"
    path.write_text(json.dumps(_facts([list(pair) for pair in WORDNET.items()], {**lines, "base": base}, facts)))
    return path, sessions


def cub200(root: Path) -> tuple[Path, dict[str, list[str]]]:
    """Write CUB_200_2011/ and its reference file; return the latter, and the lines of each published session."""
    folder = root / "CUB_200_2011"
    rows: list[tuple[str, str, bool]] = []
    for label, category in enumerate(BIRDS):
        words = category[4:].replace("_", " ").title().replace(" ", "_")
        for number in range(TRAIN + TEST):
            name = f"{words}_{number:04d}_{700 + label}.jpg"
            _image(folder / "images" / category / name, label)
            rows.append((category, name, number % 7 in (0, 2, 3, 6)))  # training and test images are interleaved
    tables: dict[str, list[str]] = {"images": [], "image_class_labels": [], "train_test_split": []}
    for number, (category, name, training) in enumerate(rows, 1):
        tables["images"].append(f"{number} {category}/{name}")
        tables["image_class_labels"].append(f"{number} {BIRDS.index(category) + 1}")
        tables["train_test_split"].append(f"{number} {int(training)}")
    for table, listed in tables.items():
        (folder / f"{table}.txt").write_text("".join(f"{line}\n" for line in listed))

    def line(category: str, name: str) -> str:
        return f"CUB_200_2011/images/{category}/{name}"

    lines = {
        "train": [line(*row[:2]) for row in rows if row[2]],
        "test": [line(*row[:2]) for row in rows if not row[2]],
    }
    base = [one for one in lines["train"] if one.split("/")[2] in BIRDS[:BASE]]
    sessions, facts = {"session_1": random.Random(0).sample(base, len(base))}, []
    for session in range(2):
        own = BIRDS[BASE + WAY * session :][:WAY]
        images = [[f"000{number}_{700 + BIRDS.index(one)}" for number in (6, 2)] for one in own]
        listed = [
            next(full for full in lines["train"] if one in full and f"_{end}.jpg" in full)
            for one, ends in zip(own, images, strict=True)
            for end in ends
        ]
        sessions[f"session_{session + 2}"] = listed
        facts.append((listed, images))
    path = root / "cub_facts.json"
    path.write_text(json.dumps(_facts(list(BIRDS), {**lines, "base": base}, facts)))
    return path, sessions
