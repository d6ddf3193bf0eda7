"""The synthetic images: the same everywhere, with the classes that the datasets declare."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from PIL import Image

from cocoamix import shapes
from cocoamix.clip.tokens import encode
from cocoamix.shapes import captions, drawing, sheets
from cocoamix.shapes.command import save_sheets

DIGEST = (
    "import hashlib; from cocoamix import shapes\n"
    "one = shapes.DATASETS['{name}']\n"
    "pixels = b''.join(one.draw(label, 3).tobytes() for label in {labels})\n"
    "print(hashlib.sha256(pixels).hexdigest())"
)


@pytest.mark.parametrize("name", list(shapes.DATASETS))
def test_same_images_in_another_process_and_order(name: str) -> None:
    one = shapes.DATASETS[name]
    labels = list(range(0, len(one.classes), 7))
    shapes.draw(one.classes[0], "clean", 1, 1)  # what was drawn before must not matter
    drawn = {label: one.draw(label, 3).tobytes() for label in reversed(labels)}
    here = hashlib.sha256(b"".join(drawn[label] for label in labels)).hexdigest()
    code = DIGEST.format(name=name, labels=labels)
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == here


def test_every_argument_changes_the_image() -> None:
    one, other = shapes.compositions()[0], shapes.compositions()[-1]
    plain = shapes.draw(one, "clean", seed=1, item=1)
    assert plain.shape == (32, 32, 3)
    assert plain.dtype == np.uint8
    assert np.array_equal(plain, shapes.draw(one, "clean", seed=1, item=1))
    for changed in (
        shapes.draw(other, "clean", 1, 1),
        shapes.draw(one, "dark", 1, 1),
        shapes.draw(one, "clean", 2, 1),
        shapes.draw(one, "clean", 1, 2),
        shapes.draw(one, "clean", 1, 1, severity=0.5),
    ):
        assert not np.array_equal(plain, changed)


def test_world_is_large_enough() -> None:
    assert len(shapes.SHAPES) >= 12
    assert len(shapes.COLOURS) >= 10
    assert len(shapes.TEXTURES) >= 4
    assert len(shapes.compositions()) == len(shapes.SHAPES) * len(shapes.COLOURS) * len(shapes.TEXTURES)
    assert {"clean", "cluttered", "noisy", "blurry", "tinted", "tilted", "sketch", "dark"} <= set(shapes.DOMAINS)


@pytest.mark.parametrize("domain", sorted(set(shapes.DOMAINS) - set(shapes.PRETRAINED)))
def test_domains_absent_from_pretraining_are_shifted(domain: str) -> None:
    """All their images are shifted in one way, by the given severity."""
    style = shapes.DOMAINS[domain]
    grey = np.full((32, 32, 3), 100.0, np.float32)
    assert np.array_equal(drawing._shift(grey, style, 0.0), grey)
    full, half = (drawing._shift(grey, replace(style, haze=0.0), severity).mean(axis=(0, 1)) for severity in (1.0, 0.5))
    assert full == pytest.approx([100 * part for part in style.tint], rel=1e-5)
    assert half == pytest.approx([100 * (1 + part) / 2 for part in style.tint], rel=1e-5)


@pytest.mark.parametrize("name", list(shapes.DATASETS))
def test_halves_share_no_composition(name: str) -> None:
    one = shapes.DATASETS[name]
    assert len(one.classes) == len(set(one.classes)) == one.base + one.new >= 60
    assert one.base == -(-len(one.classes) // 2)  # CoOp's rule splits where the dataset intends it


def values(dataset: shapes.SyntheticDataset, part: str) -> tuple[set[str], set[str]]:
    """The colours, textures or shapes of the base and of the new classes."""
    base, new = dataset.classes[: dataset.base], dataset.classes[dataset.base :]
    return {getattr(one, part) for one in base}, {getattr(one, part) for one in new}


@pytest.mark.parametrize("dataset", shapes.FAMILY, ids=lambda one: one.name)
def test_halves_of_the_family_differ_in_kind(dataset: shapes.SyntheticDataset) -> None:
    """They have no colour, no texture or no shape in common."""
    found = {part: values(dataset, part) for part in ("colour", "texture", "shape")}
    assert any(not base & new for base, new in found.values())
    # Within a half, too, several parts of the name vary.
    assert all(sum(len(halves[half]) > 1 for halves in found.values()) >= 2 for half in (0, 1))


def test_halves_of_shapes_are_similar() -> None:
    for part in ("colour", "texture", "shape"):
        base, new = values(shapes.DATASETS["Shapes"], part)
        assert base == new


def test_family_is_drawn_in_several_domains() -> None:
    assert len(shapes.FAMILY) >= 5
    assert len({one.domain for one in shapes.FAMILY}) >= 4
    assert len({one.seed for one in shapes.DATASETS.values()}) == len(shapes.DATASETS)


def test_some_classes_are_held_out_of_pretraining() -> None:
    everything = shapes.compositions()
    held_out = [one for one in everything if one.held_out]
    assert 0.1 < len(held_out) / len(everything) < 0.3
    one = shapes.DATASETS["Shapes"]
    assert any(c.held_out for c in one.classes[: one.base])
    assert any(c.held_out for c in one.classes[one.base :])
    seen = [one for one in everything if not one.held_out]
    for pair in (("colour", "shape"), ("colour", "texture"), ("texture", "shape")):  # only the combination is new
        assert {tuple(getattr(c, part) for part in pair) for c in seen} == {
            tuple(getattr(c, part) for part in pair) for c in everything
        }


def test_splits_share_no_image() -> None:
    one = shapes.DATASETS["Shapes"]
    parts = [set(one.items(split)) for split in ("train", "val", "test")]
    assert [len(part) for part in parts] == [120 * one.train, 120 * one.val, 120 * one.test]
    assert len(set.union(*parts)) == sum(len(part) for part in parts)


def test_written_files_match_the_drawn_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(shapes.DATASETS["WarmCool"], base=2, new=2, train=2, val=1, test=1)
    monkeypatch.setitem(shapes.DATASETS, "WarmCool", small)
    shapes.write(tmp_path, ["WarmCool"])
    split = json.loads((tmp_path / "warm_cool" / "split_zhou_WarmCool.json").read_text())
    assert [len(split[part]) for part in ("train", "val", "test")] == [8, 4, 4]
    path, label, name = split["val"][1]
    assert name == small.classes[label].name
    assert np.array_equal(np.asarray(Image.open(tmp_path / "warm_cool" / "images" / path)), small.draw(label, 2))


def test_captions_vary_and_stay_inside_the_vocabulary() -> None:
    random = Random(0)
    star = shapes.Composition("red", "striped", "star")
    texts = [captions.caption(star, domain, random) for domain in shapes.PRETRAINED for _ in range(300)]
    known = {token for word in captions.vocabulary() for token in encode(word)}
    assert {token for text in texts for token in encode(text)} <= known
    assert len(set(texts)) > len(texts) / 4
    assert any("sketch" in text for text in texts)
    assert any("dark" in text for text in texts)


def test_default_template_is_equally_frequent_in_every_domain() -> None:
    """A photo without a style is equally frequent in each domain, and styles are rarely named."""
    star = shapes.Composition("red", "striped", "star")
    for domain in shapes.PRETRAINED:
        random = Random(1)
        styles = [word for words in captions._STYLE_WORDS.values() for word in words] + ["drawn", "drawing", "sketch"]
        texts = [captions.caption(star, domain, random) for _ in range(1000)]
        bare = [text for text in texts if not any(style in text for style in styles)]
        photos = [text for text in bare if re.search(r"\ba photo of (a|an|the)\b", text)]
        assert 0.25 < len(photos) / len(texts) < 0.4
        assert len(bare) / len(texts) > 0.75


def test_sheet_has_a_row_for_every_domain() -> None:
    assert sheets.domain_sheet(columns=2, zoom=1).height == (32 + 4) * len(shapes.DOMAINS)


def test_sheets_for_light_and_dark_pages_have_the_same_images(tmp_path: Path) -> None:
    save_sheets(tmp_path / "one.png", "WarmCool")
    light, dark = (np.asarray(Image.open(tmp_path / name)) for name in ("one.png", "one-dark.png"))
    first = np.kron(shapes.DATASETS["WarmCool"].draw(0, 32), np.ones((3, 3, 1), np.uint8))
    assert np.array_equal(light[:96, :96], first)
    assert np.array_equal(dark[:96, :96, :3], first)
    below = slice(96, 168), slice(0, 116)
    ink = light[below].min(axis=2) < 128
    assert ink.any()
    assert dark[below][ink][:, :3].min() > 200  # the letters are light,
    assert np.array_equal(dark[below][..., 3] > 128, ink)  # and nothing else is drawn


def test_a_dark_sheet_without_transparency_is_dark(tmp_path: Path) -> None:
    save_sheets(tmp_path / "one.jpg", "WarmCool")
    assert np.asarray(Image.open(tmp_path / "one-dark.jpg"))[-1, -1].max() < 80
