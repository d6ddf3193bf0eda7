"""CIFAR-100 in sessions: the published lists, an archive in another order, and all nine sessions on stored features."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cocoamix.errors import UserError
from cocoamix.fscil.split import SessionSplit, split_into_sessions
from tests.conftest import ROOT, own_stdout
from tests.datasets import layouts

PUBLISHED = SessionSplit(60, 5, 5)
TEST_LABELS = [number % 100 for number in range(10_000)]
COARSE = [
    "aquatic_mammals",
    "fish",
    "flowers",
    "food_containers",
    "fruit_and_vegetables",
    "household_electrical_devices",
    "household_furniture",
    "insects",
    "large_carnivores",
    "large_man-made_outdoor_things",
    "large_natural_outdoor_scenes",
    "large_omnivores_and_herbivores",
    "medium_mammals",
    "non-insect_invertebrates",
    "people",
    "reptiles",
    "small_mammals",
    "trees",
    "vehicles_1",
    "vehicles_2",
]


def make_labels() -> list[int]:
    """Return 500 of each of a hundred labels in an order that fits the published lists, and is otherwise random."""
    from cocoamix.datasets.cifar100_fscil import read_lists

    labels = np.full(50_000, -1)
    for session, positions in enumerate(read_lists()):
        labels[positions] = [60 + 5 * session + number // 5 for number in range(25)]
    left = Counter(dict.fromkeys(range(100), 500))
    left.subtract(Counter(label for label in labels.tolist() if label >= 0))
    rest = np.random.default_rng(0).permutation([label for label, count in left.items() for _ in range(count)])
    labels[labels < 0] = rest
    return [int(label) for label in labels]


def official_meta() -> bytes:
    """Return the archive's meta as Python 2's cPickle wrote it, from the names stored here."""
    memo = itertools.count(1)

    def text(value: str) -> bytes:
        return b"U" + bytes([len(value)]) + value.encode() + b"q" + bytes([next(memo)])

    def listed(names: list[str]) -> bytes:
        return b"]q" + bytes([next(memo)]) + b"(" + b"".join(map(text, names)) + b"e"

    fine = json.loads((ROOT / "datasets" / "cifar100_fscil.json").read_text())["classes"]
    start = b"\x80\x02}q" + bytes([next(memo)]) + b"("
    return start + text("fine_label_names") + listed(fine) + text("coarse_label_names") + listed(COARSE) + b"u."


def test_class_names_are_official() -> None:
    """With them the archive's meta file can be reproduced byte for byte."""
    assert hashlib.md5(official_meta()).hexdigest() == "7973b15100ade9c7d40fb424638fde48"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An archive in CIFAR-100's format and size, with noise as images."""
    folder = tmp_path_factory.mktemp("cifar100") / "cifar-100-python"
    folder.mkdir()
    (folder / "meta").write_bytes(official_meta())
    generator = np.random.default_rng(0)
    for split, labels in (("train", make_labels()), ("test", TEST_LABELS)):
        pixels = generator.integers(0, 256, (len(labels), 3072), dtype=np.uint8)
        (folder / split).write_bytes(layouts.python2_pickle({"fine_labels": labels, "data": pixels}))
    yield folder.parent
    shutil.rmtree(folder)


def test_recommended_check_command_works(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from cocoamix.data.command import main

    assert main(["check", "CIFAR100FSCIL", "--root", str(root)]) == 0
    printed = capsys.readouterr().out
    assert "100 classes; images: 50,000 train, 0 val, 10,000 test" in printed
    assert "CIFAR100FSCIL is ready for training." in printed


@pytest.fixture(scope="module")
def data(root: Path) -> Any:
    return load(root)


def load(root: Path) -> Any:
    from dassl.config import get_cfg_default

    from cocoamix.config.keys import extend_cfg
    from cocoamix.datasets.cifar100_fscil import CIFAR100FSCIL

    cfg = get_cfg_default()
    extend_cfg(cfg)
    cfg.DATASET.ROOT, cfg.DATASET.NUM_SHOTS = str(root), -1
    return CIFAR100FSCIL(cfg)


def test_sessions_match_the_published_ones(data: Any) -> None:
    sessions = split_into_sessions(data, data.test, PUBLISHED)
    assert [len(one.train) for one in sessions] == [30_000, *[25] * 8]
    assert [len(one.test) for one in sessions] == [6000, *[500] * 8]
    assert [one.seen for one in sessions] == [60, 65, 70, 75, 80, 85, 90, 95, 100]
    assert sessions[0].classnames[:2] == ["apple", "aquarium fish"]
    assert sessions[0].classnames[-1] == "pine tree"
    assert sessions[1].classnames == ["plain", "plate", "poppy", "porcupine", "possum"]
    assert sessions[8].classnames == ["whale", "willow tree", "wolf", "woman", "worm"]
    assert Counter(item.label for item in sessions[0].train) == dict.fromkeys(range(60), 500)
    for one in sessions[1:]:
        assert Counter(item.label for item in one.train) == dict.fromkeys(one.labels, 5)
    # Positions in the original array, in the published order.
    assert [item.impath for item in sessions[1].train[:3]] == [
        f"cifar-100-python/train/{number}" for number in ("29774", "33344", "04815")
    ]
    assert sessions[8].train[-1].impath == "cifar-100-python/train/47507"
    assert len({item.impath for one in sessions for item in one.train}) == 30_200


def test_random_draw_depends_on_the_seed(data: Any) -> None:
    drawn = [split_into_sessions(data, data.test, SessionSplit(60, 5, 5, "random", seed)) for seed in (1, 1, 2)]
    names = [[item.impath for item in sessions[1].train] for sessions in drawn]
    assert names[0] == names[1] != names[2]
    assert Counter(item.label for item in drawn[0][3].train) == dict.fromkeys(range(70, 75), 5)
    assert len(split_into_sessions(data, data.test, SessionSplit(50, 10, 1, "random"))) == 6


def test_refuses_unpublished_session_sizes_and_class_orders(data: Any, tmp_path: Path) -> None:
    from cocoamix.datasets.cifar100_fscil import LISTS, check_labels, read_lists

    with pytest.raises(UserError, match=r"for FSCIL.BASE 60, WAY 5 and SHOTS 5, not for 60, 5 and 4"):
        split_into_sessions(data, data.test, SessionSplit(60, 5, 4, "cec"))
    labels, lists = make_labels(), read_lists()
    with pytest.raises(UserError, match="session 1 should have 5 images of each label 60 to 64"):
        check_labels(labels[1:] + labels[:1], lists)
    exchanged = [{7: 61, 61: 7}.get(label, label) for label in labels]
    with pytest.raises(UserError, match="session 1 should have 5 images of each label 60 to 64"):
        check_labels(exchanged, lists)
    content = json.loads(LISTS.read_text())
    (tmp_path / "altered.json").write_text(json.dumps({**content, "sessions": content["sessions"][:7]}))
    with pytest.raises(UserError, match="it has 7 lists instead of 8"):
        read_lists(tmp_path / "altered.json")
    content["sessions"][3]["positions"][7] += 1
    (tmp_path / "altered.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="the list of session 4 has a different hash"):
        read_lists(tmp_path / "altered.json")
    (tmp_path / "altered.json").write_text("{}")
    with pytest.raises(UserError, match="does not hold the published lists"):
        read_lists(tmp_path / "altered.json")


def test_refuses_unofficial_archives(root: Path, tmp_path: Path) -> None:
    from cocoamix.datasets.cifar100_fscil import check_counts, check_names, official_names

    names, train = official_names(), make_labels()
    check_names(names)
    check_counts("train", train)
    check_counts("test", TEST_LABELS)
    with pytest.raises(UserError, match="calls class 0 'worm', but CIFAR-100's class 0 is 'apple'"):
        check_names(names[::-1])
    with pytest.raises(UserError, match="names 99 classes"):
        check_names(names[1:])
    for split, labels, message in (
        ("train", [61 if label == 7 else label for label in train], r"has 0 images of class 7 \(beetle\)"),
        ("train", train[:-1], "has 499 images of class"),
        ("test", [0] * 10_000, r"has 10000 images of class 0 \(apple\), not CIFAR-100's 100"),
        ("test", TEST_LABELS[:5000], "has 50 images of class 0"),
        ("test", [label for label in TEST_LABELS if label < 95], r"has 0 images of class 95 \(whale\)"),
    ):
        with pytest.raises(UserError, match=message):
            check_counts(split, labels)


def test_an_archive_is_checked_when_it_is_read(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name in ("train", "test"):
        (folder / name).symlink_to(root / "cifar-100-python" / name)
    (folder / "meta").write_bytes(official_meta().replace(b"apple", b"apply"))
    with pytest.raises(UserError, match="calls class 0 'apply'"):
        load(tmp_path)
    (folder / "meta").write_bytes(official_meta())
    (folder / "test").unlink()
    labels = TEST_LABELS[:-1]
    pixels = np.zeros((len(labels), 3072), dtype=np.uint8)
    (folder / "test").write_bytes(layouts.python2_pickle({"fine_labels": labels, "data": pixels}))
    capsys.readouterr()
    with pytest.raises(UserError, match=r"The archive's test has 99 images of class 99 \(worm\)"):
        load(tmp_path)
    # Counts do not show swapped labels, so an archive that was changed in any way is reported.
    assert "train is not byte for byte the official file" in capsys.readouterr().out


def test_run_over_all_nine_sessions(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the paper's configuration, a text tower of ViT-L/14's width with random weights, and stored features."""
    from cocoamix.clip import backbones
    from cocoamix.features.extract import FrozenFeatures

    # Fewer layers, and a minimal image tower: stored features do not need one.
    sizes = backbones.Sizes(768, 224, 1, 64, 56, 768, 1)
    monkeypatch.setitem(backbones.BACKBONES, "ViT-L/14", backbones.Backbone(sizes, "none"))
    loaded: list[tuple[str, int]] = []

    def load(self: Any, source: Any, *rest: object) -> None:
        draw = torch.Generator().manual_seed(len(source.items))
        source.items.features = F.normalize(torch.randn(len(source.items), 768, generator=draw), dim=-1)
        loaded.append((source.bucket, len(source.items)))

    monkeypatch.setattr(FrozenFeatures, "load", load)
    sys.path.insert(0, str(ROOT))
    import train

    configs = ROOT / "configs"
    arguments = ["--root", str(root), "--output-dir", str(tmp_path / "run"), "--seed", "1"]
    arguments += ["--trainer", "CoCoAMixFSCIL"]
    arguments += ["--dataset-config-file", str(configs / "datasets" / "cifar100_fscil.yaml")]
    arguments += ["--config-file", str(configs / "trainers" / "CoCoAMixFSCIL" / "vit_l14.yaml")]
    arguments += ["MODEL.BACKBONE.WEIGHTS", "random", "OPTIM.MAX_EPOCH", "1", "FSCIL.WEIGHT_EPOCHS", "1"]
    arguments += [
        "FSCIL.BASE_WEIGHT_EPOCHS",
        "1",
        "DATALOADER.NUM_WORKERS",
        "0",
        "DATALOADER.TRAIN_X.BATCH_SIZE",
        "10000",
    ]
    with own_stdout():
        status = train.main(arguments)
    output = capfd.readouterr()
    assert status == 0, (output.out + output.err)[-800:]
    assert "60 base classes with 30,000 images, then 8 x 5 classes with 5 images each (the published" in output.out
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert [one["classes"] for one in results["sessions"]] == [60, 65, 70, 75, 80, 85, 90, 95, 100]
    assert [one["images"] for one in results["sessions"]] == [6000, 6500, 7000, 7500, 8000, 8500, 9000, 9500, 10_000]
    assert results["protocol"]["fscil"]["split"] == "cec"
    assert results["finished"]
    sizes_kept = [path.stat().st_size for path in (tmp_path / "run" / "sessions").iterdir()]
    assert len(sizes_kept) == 9
    assert 6_000 < min(sizes_kept) <= max(sizes_kept) < 20_000
    sizes_seen = {bucket: count for bucket, count in loaded if "/train" in bucket}
    assert list(sizes_seen.values()) == [30_000, *[25] * 8]
    assert results["trained_parameters"] == 2 * 768 + 2
