"""Split files, few-shot draws and the base/new halves match CoOp's loaders."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from dassl.config import get_cfg_default
from dassl.data.datasets import DatasetBase, Datum
from yacs.config import CfgNode

from cocoamix.errors import UserError
from tests.conftest import CLASSES, SHARED, needs, write_dataset
from tests.datasets import layouts


def config(root: Path, **dataset: Any) -> CfgNode:
    from cocoamix.trainers import extend_cfg

    cfg = get_cfg_default()
    extend_cfg(cfg)
    cfg.DATASET.ROOT = str(root)
    cfg.SEED = dataset.pop("seed", 1)
    for key, value in dataset.items():
        cfg.DATASET[key.upper()] = value
    return cfg


def eurosat(root: Path, **dataset: Any) -> Any:
    from cocoamix.datasets.eurosat import EuroSAT

    return EuroSAT(config(root, **dataset))


def rows(items: Any, root: Path) -> list[tuple[str, int, str]]:
    return [(os.path.relpath(item.impath, root), item.label, item.classname) for item in items]


def test_draw_matches_dassl(data_root: Path) -> None:
    """Dassl's own sampling, right after seeding: train first, then at most four for validation."""
    full = eurosat(data_root)
    random.seed(3)
    dassl = DatasetBase.generate_fewshot_dataset
    train = dassl(full, full.train_x, num_shots=5)
    val = dassl(full, full.val, num_shots=4)
    random.seed(99)  # the draw must not depend on what was drawn before
    state = random.getstate()
    drawn = eurosat(data_root, num_shots=5, seed=3)
    assert random.getstate() == state
    assert rows(drawn.train_x, data_root) == rows(train, data_root)
    assert rows(drawn.val, data_root) == rows(val, data_root)
    assert rows(drawn.train_x, data_root) != rows(eurosat(data_root, num_shots=5, seed=4).train_x, data_root)


def test_cache_has_coops_format_and_moves_with_the_data(data_root: Path, tmp_path: Path) -> None:
    first = eurosat(data_root, num_shots=2)
    cache = data_root / "eurosat" / "split_fewshot" / "shot_2-seed_1.pkl"
    content = pickle.loads(cache.read_bytes())
    assert sorted(content) == ["train", "val"]
    assert type(content["train"][0]).__module__ == "dassl.data.datasets.base_dataset"
    moved = tmp_path / "elsewhere"
    shutil.move(data_root, moved)
    again = eurosat(moved, num_shots=2)
    assert rows(again.train_x, moved) == rows(first.train_x, data_root)
    assert all(Path(item.impath).is_file() for item in [*again.train_x, *again.val])


def test_cached_draw_takes_precedence(data_root: Path) -> None:
    """Users share these files, so their content takes precedence."""
    eurosat(data_root, num_shots=2, seed=1)
    folder = data_root / "eurosat" / "split_fewshot"
    shutil.copy(folder / "shot_2-seed_1.pkl", folder / "shot_2-seed_5.pkl")
    one, five = eurosat(data_root, num_shots=2, seed=1), eurosat(data_root, num_shots=2, seed=5)
    assert rows(one.train_x, data_root) == rows(five.train_x, data_root)


def test_a_copy_uses_its_own_images(data_root: Path, tmp_path: Path) -> None:
    """Even if the folder that it was copied from still exists."""
    first = eurosat(data_root, num_shots=2)
    copy = shutil.copytree(data_root, tmp_path / "copy")
    again = eurosat(copy, num_shots=2)
    assert all(item.impath.startswith(f"{copy}/") for item in [*again.train_x, *again.val])
    assert rows(again.train_x, copy) == rows(first.train_x, data_root)


def edit_split(root: Path, change: Any) -> None:
    path = root / "eurosat" / "split_zhou_EuroSAT.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_a_draw_of_test_images_is_refused(data_root: Path) -> None:
    """The split file was replaced: former training images are now test images."""

    def swap(content: Any) -> None:
        content["train"], content["test"] = content["test"], content["train"]

    eurosat(data_root, num_shots=2)
    edit_split(data_root, swap)
    with pytest.raises(UserError, match=r"shot_2-seed_1\.pkl does not fit .* 20 of its 20 train images .*Delete that"):
        eurosat(data_root, num_shots=2)


def test_a_draw_of_other_validation_images_is_refused(data_root: Path) -> None:
    def swap(content: Any) -> None:
        content["val"], content["test"] = content["test"], content["val"]

    eurosat(data_root, num_shots=2)
    edit_split(data_root, swap)
    with pytest.raises(UserError, match=r"shot_2-seed_1\.pkl does not fit .* 20 of its 20 val images"):
        eurosat(data_root, num_shots=2)


def test_a_draw_under_other_class_names_is_refused(data_root: Path) -> None:
    """Nobody chooses the class names of CoOp's datasets, so that other names mean another dataset."""

    def rename(content: Any) -> None:
        for rows_of in content.values():
            rows_of[:] = [(path, label, "Woods" if name == "Forest" else name) for path, label, name in rows_of]

    eurosat(data_root, num_shots=2)
    edit_split(data_root, rename)
    with pytest.raises(UserError, match=r"shot_2-seed_1\.pkl does not fit .* 2 of its 20 train images .* class name"):
        eurosat(data_root, num_shots=2)


@pytest.mark.parametrize(
    ("kept", "asked", "words"),
    [(3, 2, "3 train images of the class 0 .*, more than 2"), (6, 6, "5 val images of the class 0 .*, more than 4")],
)
def test_a_draw_of_too_many_shots_is_refused(tmp_path: Path, kept: int, asked: int, words: str) -> None:
    root = write_dataset(tmp_path / "data", val=5)
    whole = eurosat(root, num_shots=kept)
    folder = root / "eurosat" / "split_fewshot"
    content = {"train": list(whole.train_x), "val": list(eurosat(root).val)}
    (folder / f"shot_{asked}-seed_1.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(UserError, match=words):
        eurosat(root, num_shots=asked)


def test_a_draw_without_a_class_is_refused(data_root: Path) -> None:
    eurosat(data_root, num_shots=2)
    cache = data_root / "eurosat" / "split_fewshot" / "shot_2-seed_1.pkl"
    content = pickle.loads(cache.read_bytes())
    content["train"] = [item for item in content["train"] if item.label != 4]
    cache.write_bytes(pickle.dumps(content))
    with pytest.raises(UserError, match="no train image of the class 4"):
        eurosat(data_root, num_shots=2)


class Evil:
    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.witness,))


@pytest.mark.parametrize("kind", ["code", "rubbish", "empty", "other"])
def test_bad_caches_are_refused(data_root: Path, tmp_path: Path, kind: str) -> None:
    witness = tmp_path / "witness"
    content = {
        "code": pickle.dumps({"train": Evil(witness), "val": []}),
        "rubbish": b"rubbish",
        "empty": b"",
        "other": pickle.dumps([1, 2]),
    }[kind]
    cache = data_root / "eurosat" / "split_fewshot" / "shot_2-seed_1.pkl"
    cache.parent.mkdir()
    cache.write_bytes(content)
    with pytest.raises(UserError, match=r"shot_2-seed_1\.pkl is not a few-shot draw"):
        eurosat(data_root, num_shots=2)
    assert not witness.exists()


def test_read_only_data_folder_does_not_change_the_draw(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The draw is still made, and is the same."""

    def refuse(*args: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("cocoamix.datasets.common.pickles.write_atomically", refuse)
    one = eurosat(data_root, num_shots=2)
    assert not (data_root / "eurosat" / "split_fewshot").exists()
    assert rows(one.train_x, data_root) == rows(eurosat(data_root, num_shots=2).train_x, data_root)


def test_halves_have_separate_classes_labelled_from_zero(data_root: Path) -> None:
    base, new = (eurosat(data_root, subsample_classes=half) for half in ("base", "new"))
    assert (base.classnames, new.classnames) == (CLASSES[:5], CLASSES[5:])
    assert {item.label for item in new.test} == set(range(5))
    assert {item.classname for item in new.test if item.label == 0} == {"Pasture Land"}


def test_few_shots_are_drawn_before_the_halves(data_root: Path) -> None:
    """CoOp draws from all classes and then takes a half, so base has the same images as in `all`."""
    everything, base = (eurosat(data_root, num_shots=2, subsample_classes=part) for part in ("all", "base"))
    assert rows(base.train_x, data_root) == rows(everything.train_x, data_root)[: len(base.train_x)]


def test_odd_number_of_classes_puts_one_more_in_base() -> None:
    from cocoamix.datasets.common.base import SplitDataset

    items = [Datum(impath=__file__, label=label, classname="x") for label in (0, 2, 5, 7, 9)]
    (base,) = SplitDataset.subsample_classes(items, subsample="base")
    (new,) = SplitDataset.subsample_classes(items, subsample="new")
    assert ([i.label for i in base], [i.label for i in new]) == ([0, 1, 2], [0, 1])


def test_an_unknown_half_suggests_the_nearest(data_root: Path) -> None:
    with pytest.raises(UserError, match=r"SUBSAMPLE_CLASSES is 'bse'.*Did you mean base"):
        eurosat(data_root, subsample_classes="bse")


@pytest.mark.parametrize("key", ["folder", "classnames", "csv"])
def test_keys_for_user_images_are_refused(data_root: Path, key: str) -> None:
    with pytest.raises(UserError, match=f"DATASET.{key.upper()} is 'x', but EuroSAT does not read it"):
        eurosat(data_root, **{key: "x"})


def test_fewer_shots_are_drawn_on_request(tmp_path: Path) -> None:
    root = write_dataset(tmp_path / "few", train=2)
    with pytest.raises(UserError, match="fewer training images"):
        eurosat(root, num_shots=3)
    assert len(eurosat(root, num_shots=3, fewer_shots=True).train_x) == 20


@needs("data/eurosat")
@pytest.mark.parametrize(("seed", "shots"), [(1, 1), (1, 4), (2, 16), (3, 16)])
def test_draws_of_real_eurosat_follow_the_rule(tmp_path: Path, seed: int, shots: int) -> None:
    """The real images and split rows."""
    root = tmp_path / "data"
    (root / "eurosat").mkdir(parents=True)
    source = SHARED / "data" / "eurosat"
    (root / "eurosat" / "2750").symlink_to(source / "2750", target_is_directory=True)
    shutil.copy(source / "split_zhou_EuroSAT.json", root / "eurosat")
    assert_drawn(root, seed, shots, (10 * shots, 10 * min(shots, 4), 2000))


@pytest.mark.parametrize(("seed", "shots"), [(1, 1), (1, 4), (2, 16), (3, 16)])
def test_draws_of_a_shuffled_split_follow_the_rule(tmp_path: Path, seed: int, shots: int) -> None:
    """Rows ordered as in a published file: classes and images are mixed, and labels are not in order."""
    root = tmp_path / "data"
    listed = [[f"{label}/{label}_{number}.jpg", label, f"class {label}"] for label in range(10) for number in range(50)]
    layouts.touch(*(root / "eurosat" / "2750" / str(row[0]) for row in listed))
    random.Random(7).shuffle(listed)
    split = {"train": listed[:350], "val": listed[350:420], "test": listed[420:]}
    (root / "eurosat" / "split_zhou_EuroSAT.json").write_text(json.dumps(split))
    validation = sum(min(shots, 4, count) for count in Counter(row[1] for row in split["val"]).values())
    assert_drawn(root, seed, shots, (10 * shots, validation, 80))


def assert_drawn(root: Path, seed: int, shots: int, sizes: tuple[int, ...]) -> None:
    """Compare the draw with the plain rule applied to the rows."""
    drawn = eurosat(root, num_shots=shots, seed=seed)
    assert (len(drawn.train_x), len(drawn.val), len(drawn.test)) == sizes
    split = json.loads((root / "eurosat" / "split_zhou_EuroSAT.json").read_text())
    random.seed(seed)
    wanted = []
    for label in dict.fromkeys(row[1] for row in split["train"]):
        wanted += random.sample([row[0] for row in split["train"] if row[1] == label], shots)
    assert [f"{Path(i.impath).parent.name}/{Path(i.impath).name}" for i in drawn.train_x] == wanted
    names = dict(row[1:] for row in split["train"])
    assert drawn.classnames == [names[label] for label in range(10)]
