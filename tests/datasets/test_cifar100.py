"""CIFAR-100 from its archive: the images, the split, the draw, and invalid files."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dassl.data.datasets import Datum

from cocoamix.errors import UserError
from tests.datasets import layouts
from tests.datasets.test_base import Evil
from tests.datasets.test_coop_hashes import build

FOLDER = "cifar100/cifar-100-python"


def cifar(root: Path, shots: int = -1, subset: str = "all", seed: int = 1) -> Any:
    from cocoamix.datasets.cifar100 import CIFAR100
    from tests.datasets.test_base import config

    settings = {"num_shots": shots, "subsample_classes": subset, "fewer_shots": True}
    return CIFAR100(config(root, seed=seed, **settings))


def keys(items: Any) -> list[tuple[str, int, str]]:
    return [(item.impath, item.label, item.classname) for item in items]


def test_images_and_labels_match_the_archive(tmp_path: Path) -> None:
    made = layouts.cifar100(tmp_path / FOLDER)
    # An independent reading of what was written.
    with (tmp_path / FOLDER / "train").open("rb") as file:
        plain = pickle.load(file, encoding="bytes")
    assert np.array_equal(plain[b"data"], made["train"][0])
    whole = cifar(tmp_path)
    assert whole.classnames == ["apple", "aquarium fish", "baby", "bear"]
    for split, items in (("train", [*whole.train_x, *whole.val]), ("test", whole.test)):
        pixels, labels = made[split]
        assert len(items) == len(labels)
        for item in items:
            number = int(item.impath.rsplit("/", 1)[1])
            assert item.impath == f"cifar-100-python/{split}/{number:05d}"
            assert item.label == labels[number]
            image = item.draw()
            assert (image.size, image.mode) == ((32, 32), "RGB")
            assert np.array_equal(np.asarray(image)[:, :, 1].ravel(), pixels[number][1024:2048])


@pytest.mark.parametrize("protocol", range(6))
def test_repickled_archive_loads(tmp_path: Path, protocol: int) -> None:
    """Python 3 pickles bytes and arrays differently from Python 2, and differently for each protocol."""
    made = layouts.cifar100(tmp_path / FOLDER)
    for name in ("meta", "train", "test"):
        with (tmp_path / FOLDER / name).open("rb") as file:
            content = pickle.load(file, encoding="bytes")
        (tmp_path / FOLDER / name).write_bytes(pickle.dumps(content, protocol=protocol))
    test = cifar(tmp_path).test
    pixels, labels = made["test"]
    assert [item.label for item in test] == labels
    for number, item in enumerate(pickle.loads(pickle.dumps(test))):  # as a worker of a loader receives them
        assert np.array_equal(np.asarray(item.draw())[:, :, 1].ravel(), pixels[number][1024:2048])


def test_the_last_fifty_of_a_class_are_for_validation(tmp_path: Path) -> None:
    _, labels = layouts.cifar100(tmp_path / FOLDER)["train"]
    whole = cifar(tmp_path, seed=5)
    wanted = {f"cifar-100-python/train/{n:05d}" for c in range(4) for n in np.flatnonzero(np.equal(labels, c))[-50:]}
    assert {item.impath for item in whole.val} == wanted
    assert len(whole.train_x) == 4 * 10


def test_draws_are_saved_and_move_with_the_data(tmp_path: Path) -> None:
    layouts.cifar100(tmp_path / FOLDER)
    base, new = (cifar(tmp_path, shots=3, subset=half) for half in ("base", "new"))
    assert (base.classnames, new.classnames) == (["apple", "aquarium fish"], ["baby", "bear"])
    assert (len(new.train_x), len(new.val), len(new.test)) == (6, 6, 6)
    kept = tmp_path / "cifar100" / "split_fewshot" / "shot_3-seed_1.pkl"
    content = pickle.loads(kept.read_bytes())
    assert {type(item) for split in content.values() for item in split} == {Datum}
    shutil.move(tmp_path / "cifar100", tmp_path / "moved" / "cifar100")
    again = cifar(tmp_path / "moved", shots=3, subset="new")
    assert keys(again.train_x) == keys(new.train_x)
    assert [item.draw().tobytes() for item in again.train_x] == [
        item.draw().tobytes() for item in cifar(tmp_path / "moved", shots=3, subset="new").train_x
    ]
    (tmp_path / "moved" / "cifar100" / "split_fewshot" / kept.name).unlink()
    assert keys(cifar(tmp_path / "moved", shots=3, subset="new").train_x) == keys(new.train_x)


def test_archive_directly_below_the_root_is_found(tmp_path: Path) -> None:
    layouts.cifar100(tmp_path / "cifar-100-python")
    cifar(tmp_path, shots=1)
    assert (tmp_path / "cifar-100-python" / "split_fewshot" / "shot_1-seed_1.pkl").is_file()


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("encoding", ["bytes", "latin1"])
def test_repickled_archive_gives_the_same_dataset(tmp_path: Path, protocol: int, encoding: str) -> None:
    """By Python 3, which pickles bytes and arrays differently: in old protocols not as one block."""
    layouts.cifar100(tmp_path / FOLDER)
    before = cifar(tmp_path)
    drawn = [item.draw().tobytes() for item in before.test]
    for name in ("meta", "train", "test"):
        path = tmp_path / FOLDER / name
        content = pickle.loads(path.read_bytes(), encoding=encoding)
        content["batch_label"] = b""  # which old protocols write in a special way
        path.write_bytes(pickle.dumps(content, protocol=protocol))
    again = cifar(tmp_path)
    assert again.classnames == before.classnames
    assert keys(again.train_x) == keys(before.train_x)
    assert [item.draw().tobytes() for item in again.test] == drawn
    sent = pickle.dumps(again.test)
    assert len(sent) < 200 * len(again.test)
    assert [item.draw().tobytes() for item in pickle.loads(sent)] == drawn


@pytest.mark.parametrize("asked", [("_codecs", "decode"), ("builtins", "bytearray"), ("codecs", "encode")])
def test_pickle_may_call_no_other_function(tmp_path: Path, asked: tuple[str, str]) -> None:
    layouts.cifar100(tmp_path / FOLDER)
    module, name = asked
    (tmp_path / FOLDER / "meta").write_bytes(f"c{module}\n{name}\n(tR.".encode())
    with pytest.raises(UserError, match=f"it asks for {module}.{name}"):
        cifar(tmp_path)


def test_custom_encoding_is_refused(tmp_path: Path) -> None:
    layouts.cifar100(tmp_path / FOLDER)
    (tmp_path / FOLDER / "meta").write_bytes(b"c_codecs\nencode\n(Va\nVrot13\ntR.")
    with pytest.raises(UserError, match="it asks for the encoding rot13"):
        cifar(tmp_path)


def test_items_are_sent_to_workers_without_pixels(tmp_path: Path) -> None:
    layouts.cifar100(tmp_path / FOLDER)
    items = cifar(tmp_path).test
    drawn = [item.draw().tobytes() for item in items]  # the pixels are memory-mapped by now
    sent = pickle.dumps(items)
    assert len(sent) < 200 * len(items)  # an image has 3,072 bytes
    assert [item.draw().tobytes() for item in pickle.loads(sent)] == drawn
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.map(_draw, items) == drawn


def _draw(item: Any) -> bytes:
    return item.draw().tobytes()  # type: ignore[no-any-return]


def test_registered_under_its_name(tmp_path: Path) -> None:
    from dassl.data.datasets import DATASET_REGISTRY

    layouts.cifar100(tmp_path / FOLDER)
    theirs = "cocoamix.CIFAR100" in DATASET_REGISTRY.registered_names()  # real Dassl has one, too
    found = build("cocoamix.CIFAR100" if theirs else "CIFAR100", tmp_path, seed=1, shots=1, subset="all")
    assert len(found.train_x) == 4


@pytest.mark.parametrize("name", ["meta", "train", "test"])
@pytest.mark.parametrize("kind", ["code", "rubbish", "empty", "other", "numpy function"])
def test_files_that_are_not_from_the_archive_are_refused(tmp_path: Path, name: str, kind: str) -> None:
    layouts.cifar100(tmp_path / FOLDER)
    path = tmp_path / FOLDER / name
    witness = tmp_path / "witness"
    path.write_bytes(
        {
            "code": pickle.dumps({"fine_label_names": Evil(witness), "fine_labels": [], "data": []}, protocol=2),
            "rubbish": path.read_bytes()[:-20],
            "empty": b"",
            "other": pickle.dumps([1, 2]),
            "numpy function": f"\x80\x02cnumpy\nsave\n(X{chr(len(str(witness)))}\0\0\0{witness}K\x01tR.".encode(
                "latin-1"
            ),
        }[kind]
    )
    with pytest.raises(UserError, match=f"{name} is not a file of CIFAR-100's python archive"):
        cifar(tmp_path)
    assert list(tmp_path.glob("witness*")) == []


@pytest.mark.parametrize(
    "content",
    [
        {"fine_labels": [0, 1, 2, 9], "data": np.zeros((4, 3072), np.uint8)},
        {"fine_labels": [0, 1, 2], "data": np.zeros((4, 3072), np.uint8)},
        {"fine_labels": [0, 1, 2, 3], "data": np.zeros((4, 3071), np.uint8)},
        {"fine_labels": [0, 1, 2, 3], "data": "pixels"},
        {"fine_labels": [], "data": np.zeros((0, 3072), np.uint8)},
        {"data": np.zeros((4, 3072), np.uint8)},
    ],
)
def test_arrays_of_the_wrong_shape_are_refused(tmp_path: Path, content: dict[str, Any]) -> None:
    layouts.cifar100(tmp_path / FOLDER)
    (tmp_path / FOLDER / "test").write_bytes(layouts.python2_pickle(content))
    with pytest.raises(UserError, match="test is not a file of CIFAR-100's python archive"):
        cifar(tmp_path)


def test_missing_archive_is_reported(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"neither .*cifar100/cifar-100-python nor .*/cifar-100-python.*data check CIFAR100 --root"
    ):
        cifar(tmp_path)
    layouts.cifar100(tmp_path / FOLDER)
    (tmp_path / FOLDER / "meta").unlink()
    with pytest.raises(UserError, match=r"meta is missing.*data check CIFAR100 --root"):
        cifar(tmp_path)


def test_a_draw_of_other_images_is_refused(tmp_path: Path) -> None:
    layouts.cifar100(tmp_path / FOLDER)
    cifar(tmp_path, shots=1)
    kept = tmp_path / "cifar100" / "split_fewshot" / "shot_1-seed_1.pkl"
    content = pickle.loads(kept.read_bytes())
    content["train"][0]._impath = "cifar-100-python/train/00999"
    kept.write_bytes(pickle.dumps(content))
    with pytest.raises(UserError, match="00999"):
        cifar(tmp_path, shots=1)


@pytest.mark.parametrize("change", ["label", "validation"])
def test_a_draw_of_another_archive_is_refused(tmp_path: Path, change: str) -> None:
    layouts.cifar100(tmp_path / FOLDER)
    whole = cifar(tmp_path, shots=1)
    kept = tmp_path / "cifar100" / "split_fewshot" / "shot_1-seed_1.pkl"
    content = pickle.loads(kept.read_bytes())
    if change == "label":
        content["train"][0]._label = 1
    else:
        content["train"][0]._impath = next(item.impath for item in whole.val if item.label == 0)
    kept.write_bytes(pickle.dumps(content))
    with pytest.raises(UserError, match=r"shot_1-seed_1\.pkl does not fit .* 1 of its 4 train"):
        cifar(tmp_path, shots=1)


def test_stored_features_belong_to_one_image_of_one_archive(tmp_path: Path) -> None:
    layouts.cifar100(tmp_path / FOLDER)
    before = [item.identity for item in cifar(tmp_path).test]
    assert len(set(before)) == len(before)
    os.utime(tmp_path / FOLDER / "test", ns=(1, 1))
    assert not set(before) & {item.identity for item in cifar(tmp_path).test}
