"""DATASET.PARTITION: the halves of the classes by label or at random."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from dassl.data.datasets import Datum

from cocoamix.datasets.common.base import FewShotDataset
from cocoamix.datasets.common.partition import divide
from cocoamix.errors import UserError
from tests.conftest import CLASSES
from tests.datasets import layouts, own
from tests.datasets.test_base import config, eurosat, rows


def test_halves_by_label_match_coop() -> None:
    for count in range(8):
        labels = list(range(count))
        assert divide(labels) == divide(labels, "label") == (labels[: -(-count // 2)], labels[-(-count // 2) :])


@pytest.mark.parametrize("count", [0, 1, 2, 7, 100])
def test_random_halves_are_a_partition(count: int) -> None:
    for number in range(20):
        base, new = divide(range(count), f"random:{number}")
        assert sorted(base + new) == list(range(count))
        assert len(base) - len(new) in (0, 1)
        assert base == sorted(base)
        assert new == sorted(new)


def test_every_class_is_base_in_about_half_of_the_partitions() -> None:
    counts = [0] * 20
    for number in range(400):
        for label in divide(range(20), f"random:{number}")[0]:
            counts[label] += 1
    assert min(counts) > 160  # 4 deviations of a fair coin
    assert max(counts) < 240


def test_halves_are_the_same_on_every_machine() -> None:
    """As `random.Random(K).shuffle` of Python 3.11 gives it; labels need not start at 0."""
    assert divide(range(10), "random:1")[0] == [5, 6, 7, 8, 9]
    assert divide(range(10), "random:2")[0] == [3, 4, 5, 6, 9]
    assert divide(range(5, 15), "random:2")[0] == [8, 9, 10, 11, 14]


def test_only_the_partition_number_matters(data_root: Path) -> None:
    """Not the order of items, the run's seed or earlier draws; and no global generator is advanced."""
    items = [Datum(impath=__file__, label=label, classname=str(label)) for label in range(9)]
    found = set()
    for seed in range(3):
        random.seed(seed)
        state = random.getstate()
        random.Random(seed).shuffle(items)
        (kept,) = FewShotDataset.subsample_classes(items, subsample="base", partition="random:3")
        found.add(frozenset(item.classname for item in kept))
        assert {item.classname: item.label for item in kept} == {
            name: label for label, name in enumerate(sorted({item.classname for item in kept}))
        }
        assert random.getstate() == state
    assert len(found) == 1
    names = [
        eurosat(data_root, partition="random:3", subsample_classes="base", seed=seed, num_shots=2).classnames
        for seed in (-1, 1, 2)
    ]
    assert names[0] == names[1] == names[2]


def test_halves_of_a_dataset_are_parts_of_one_draw(data_root: Path) -> None:
    chosen = {"partition": "random:2", "num_shots": 2}
    whole = eurosat(data_root, **chosen)
    assert whole.classnames == CLASSES
    base, new = (eurosat(data_root, subsample_classes=half, **chosen) for half in ("base", "new"))
    assert base.classnames == [CLASSES[label] for label in (3, 4, 5, 6, 9)]
    assert new.classnames == [CLASSES[label] for label in (0, 1, 2, 7, 8)]
    for half in (base, new):  # from the draw of all classes, in its order
        for split in ("train_x", "val", "test"):
            ours = [(path, name) for path, _, name in rows(getattr(half, split), data_root)]
            everything = [(path, name) for path, _, name in rows(getattr(whole, split), data_root)]
            assert ours == [one for one in everything if one[1] in half.classnames]


def of_cifar(tmp_path: Path, **settings: Any) -> Any:
    from cocoamix.datasets.cifar100 import CIFAR100

    if not list(tmp_path.iterdir()):
        layouts.cifar100(tmp_path / "cifar-100-python")
    return CIFAR100(config(tmp_path, **settings))


def of_aircraft(tmp_path: Path, **settings: Any) -> Any:
    from cocoamix.datasets.fgvc_aircraft import FGVCAircraft

    layouts.fgvc_aircraft(tmp_path)
    return FGVCAircraft(config(tmp_path, **settings))


def of_drawn(tmp_path: Path, **settings: Any) -> Any:
    from dassl.data.datasets import DATASET_REGISTRY

    import cocoamix.datasets  # noqa: F401

    cfg = config(tmp_path, **settings)
    cfg.DATASET.ROOT = ""
    return DATASET_REGISTRY.get("WarmCool")(cfg)


def of_folder(tmp_path: Path, **settings: Any) -> Any:
    own.classes(tmp_path, *"abcdefg", count=4)
    return own.folder(tmp_path, **settings)


@pytest.mark.parametrize("make", [of_drawn, of_cifar, of_aircraft, of_folder])
def test_other_datasets_are_partitioned(make: Any, tmp_path: Path) -> None:
    base, new = (make(tmp_path, subsample_classes=half, partition="random:4") for half in ("base", "new"))
    whole = make(tmp_path).classnames
    wanted = divide(range(len(whole)), "random:4")
    assert [base.classnames, new.classnames] == [[whole[label] for label in half] for half in wanted]


@pytest.mark.parametrize(
    "value", ["labels", "random", "random:", "random:-1", "random:1.5", "random:01", "random:x", "random:1 ", "", 3]
)
def test_invalid_partitions_are_refused(value: Any, data_root: Path) -> None:
    with pytest.raises(UserError) as refused:
        eurosat(data_root, partition=value, subsample_classes="base")
    assert f"DATASET.PARTITION is {value!r}; it must be label or random:K" in str(refused.value)


@pytest.mark.parametrize("partition", ["label", "random:1"])
def test_one_class_has_no_new_half(partition: str) -> None:
    items = [Datum(impath=__file__, label=0, classname="x")]
    with pytest.raises(UserError, match=r"SUBSAMPLE_CLASSES new leaves no class of 1: halves need two classes"):
        FewShotDataset.subsample_classes(items, subsample="new", partition=partition)
