from __future__ import annotations

import base64
import pickle
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dassl.data import DataManager, DatasetWrapper
from dassl.data.data_manager import build_data_loader
from dassl.data.datasets import DATASET_REGISTRY, DatasetBase, Datum, build_dataset
from dassl.data.samplers import build_sampler
from dassl.data.transforms import INTERPOLATION_MODES, build_transform
from dassl.utils import set_random_seed
from PIL import Image
from yacs.config import CfgNode

from .engine import REFERENCE, REFUSALS, only_ours

Items = Callable[[list[int]], list[Datum]]


# Items and datasets


def test_pickled_items_are_the_same_in_both_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = base64.b64decode(REFERENCE["pickled_items"])
    first, second = pickle.loads(blob)  # the image need not exist to load a cache
    assert (first.impath, first.label, first.domain, first.classname) == ("a.jpg", 7, 1, "sea lion")
    assert (second.impath, second.label, second.domain, second.classname) == ("a.jpg", 2, 0, "")
    monkeypatch.chdir(tmp_path)
    Path("a.jpg").touch()
    path, name = "a.jpg", ""
    assert pickle.dumps([Datum(path, 7, 1, "sea lion"), Datum(path, 2, 0, name)], protocol=4) == blob


@pytest.mark.filterwarnings("ignore:No file")
def test_an_item_needs_its_image(tmp_path: Path) -> None:
    with pytest.raises((*REFUSALS, FileNotFoundError)):
        Datum(str(tmp_path / "absent.jpg"))


class Bare(DatasetBase):
    def __init__(self) -> None:
        pass


@pytest.mark.parametrize("case", REFERENCE["draws"])
def test_few_shot_draw_matches_dassl(case: dict[str, Any], items: Items) -> None:
    pool = items(REFERENCE["labels"])
    place = {id(item): index for index, item in enumerate(pool)}
    random.seed(case["seed"])
    train = Bare().generate_fewshot_dataset(pool, num_shots=case["shots"], repeat=case["repeat"])
    val = Bare().generate_fewshot_dataset(pool, num_shots=min(case["shots"], 4), repeat=case["repeat"])
    assert [place[id(item)] for item in train] == case["train"]
    assert [place[id(item)] for item in val] == case["val"]


def test_without_shots_all_items_are_used(items: Items) -> None:
    pool = items([0, 1, 0, 1])
    assert Bare().generate_fewshot_dataset(pool) is pool
    assert [item.label for item in Bare().generate_fewshot_dataset(pool, num_shots=1)] == [0, 1]


def test_classes_come_from_the_training_items(items: Items) -> None:
    data = DatasetBase(train_x=items([2, 0, 2]), test=items([0]))
    assert data.num_classes == 3
    assert data.lab2cname == {0: "class 0", 2: "class 2"}
    assert data.classnames == ["class 0", "class 2"]
    assert data.val is None
    assert data.train_u is None
    assert len(data.train_x) == 3


def test_empty_training_set_is_refused() -> None:
    with pytest.raises(REFUSALS):
        DatasetBase(train_x=[], test=[])


@only_ours
def test_two_names_for_one_label_are_refused(images: Path) -> None:
    path = str(images / "train-red-0.png")
    with pytest.raises(REFUSALS, match=r"Label 1 .*'cat' and 'dog'"):
        DatasetBase(train_x=[Datum(path, 1, 0, "cat"), Datum(path, 1, 0, "dog")])


def test_unknown_dataset_suggests_the_nearest(cfg: CfgNode) -> None:
    assert type(build_dataset(cfg)) is DATASET_REGISTRY.get("ToyColours")
    cfg.DATASET.NAME = "ToyColors"
    with pytest.raises(ValueError, match="ToyColours"):
        build_dataset(cfg)


# Loaders


def test_data_manager_builds_loaders_and_class_names(cfg: CfgNode) -> None:
    dm = DataManager(cfg)
    assert (dm.num_classes, dm.num_source_domains) == (3, 0)
    assert dm.lab2cname == {0: "red", 1: "green", 2: "deep blue"}
    assert dm.dataset.classnames == ["red", "green", "deep blue"]
    assert dm.train_loader_u is None
    assert [len(loader) for loader in (dm.train_loader_x, dm.val_loader, dm.test_loader)] == [2, 1, 2]
    batch = next(iter(dm.test_loader))
    assert batch["img"].shape == (4, 3, 8, 8)
    assert batch["label"].tolist() == [0, 0, 1, 1]
    assert batch["domain"].tolist() == [0, 1, 0, 1]
    assert batch["index"].tolist() == [0, 1, 2, 3]
    assert batch["impath"][0].endswith("test-red-0.png")
    assert batch["img"][0, :, 0, 0].tolist() == pytest.approx([200 / 255, 30 / 255, 30 / 255], abs=1e-6)


@only_ours
def test_unlabelled_items_are_refused(cfg: CfgNode, items: Items) -> None:
    class WithUnlabelled(DatasetBase):
        def __init__(self, cfg: CfgNode) -> None:
            super().__init__(train_x=items([0, 1] * 3), train_u=items([0] * 9), test=items([0, 1]))

    DATASET_REGISTRY.register(WithUnlabelled, force=True)
    cfg.DATASET.NAME = "WithUnlabelled"
    with pytest.raises(REFUSALS, match=r"WithUnlabelled has unlabelled.*install"):
        DataManager(cfg)


def test_validation_items_are_optional(cfg: CfgNode, items: Items) -> None:
    class WithoutVal(DatasetBase):
        def __init__(self, cfg: CfgNode) -> None:
            super().__init__(train_x=items([0, 1] * 3), test=items([0, 1]))

    DATASET_REGISTRY.register(WithoutVal, force=True)
    cfg.DATASET.NAME = "WithoutVal"
    assert DataManager(cfg).val_loader is None


@pytest.mark.parametrize(
    ("number", "is_train", "batches"), [(4, True, [4]), (5, True, [5]), (7, True, [5]), (7, False, [5, 2])]
)
def test_last_batch_is_dropped_in_training_unless_it_is_the_only_one(
    cfg: CfgNode, items: Items, number: int, is_train: bool, batches: list[int]
) -> None:
    transform = build_transform(cfg, is_train=False)
    loader = build_data_loader(cfg, data_source=items([0] * number), batch_size=5, tfm=transform, is_train=is_train)
    assert [len(batch["label"]) for batch in loader] == batches


def test_empty_set_is_refused(cfg: CfgNode) -> None:
    with pytest.raises(REFUSALS):
        build_data_loader(cfg, data_source=[], is_train=False)


def test_random_batches_follow_the_seed(cfg: CfgNode) -> None:
    def order(seed: int) -> list[int]:
        set_random_seed(seed)
        return [index for batch in DataManager(cfg).train_loader_x for index in batch["index"].tolist()]

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert len(set(order(1))) == 10


def test_custom_transforms_and_wrapper(cfg: CfgNode) -> None:
    class Marked(DatasetWrapper):
        def __getitem__(self, idx: int) -> dict[str, Any]:
            return {**super().__getitem__(idx), "mark": int(self.is_train)}

    dm = DataManager(
        cfg,
        custom_tfm_train=lambda image: torch.ones(1),
        custom_tfm_test=lambda image: torch.zeros(2),
        dataset_wrapper=Marked,
    )
    train, test = next(iter(dm.train_loader_x)), next(iter(dm.test_loader))
    assert train["img"].tolist() == [[1.0]] * 5
    assert test["img"].tolist() == [[0.0, 0.0]] * 4
    assert (train["mark"][0].item(), test["mark"][0].item()) == (1, 0)


@only_ours
def test_the_wrapper_refuses_unsupported_settings(cfg: CfgNode, items: Items) -> None:
    """CoOp's scripts use it without a trainer."""
    cfg.DATALOADER.RETURN_IMG0 = True
    with pytest.raises(REFUSALS, match=r"DATALOADER\.RETURN_IMG0"):
        DatasetWrapper(cfg, items([1]))


def test_without_a_transform_items_contain_images(cfg: CfgNode, items: Items) -> None:
    assert isinstance(DatasetWrapper(cfg, items([1]), transform=None, is_train=True)[0]["img"], Image.Image)


# Samplers


def test_plain_samplers_return_every_item_once(items: Items) -> None:
    source = items([0] * 6)
    assert list(build_sampler("SequentialSampler", data_source=source)) == list(range(6))
    assert sorted(build_sampler("RandomSampler", data_source=source)) == list(range(6))
    with pytest.raises(REFUSALS):
        build_sampler("RandomSamplr", data_source=source)


def test_class_sampler_fills_batches_class_by_class(items: Items) -> None:
    labels = [0] * 4 + [1] * 5 + [2] * 1 + [3] * 4
    set_random_seed(1)
    sampler = build_sampler("RandomClassSampler", data_source=items(labels), batch_size=4, n_ins=2)
    drawn = list(sampler)
    assert len(drawn) % 4 == 0
    assert len(drawn) >= 8
    for start in range(0, len(drawn), 4):
        counts = Counter(labels[index] for index in drawn[start : start + 4])
        assert list(counts.values()) == [2, 2]
    uses = Counter(drawn)
    assert all(number == 1 or labels[index] == 2 for index, number in uses.items())
    for wrong in ({"batch_size": 2, "n_ins": 3}, {"batch_size": 10, "n_ins": 2}):
        with pytest.raises(REFUSALS):
            build_sampler("RandomClassSampler", data_source=items(labels), **wrong)


@only_ours
def test_sampling_by_domain_is_refused(items: Items) -> None:
    with pytest.raises(REFUSALS, match=r"RandomDomainSampler.*RandomClassSampler"):
        build_sampler("RandomDomainSampler", data_source=items([0, 1]), batch_size=2)


@only_ours
def test_class_sampler_knows_the_length_of_its_next_draw(items: Items) -> None:
    sampler = build_sampler("RandomClassSampler", data_source=items([0] * 8 + [1] * 2 + [2] * 2), batch_size=4, n_ins=2)
    lengths = set()
    for seed in range(20):
        random.seed(seed)
        expected = len(sampler)
        assert len(list(sampler)) == expected
        lengths.add(expected)
    assert len(lengths) > 1


# Transforms


@pytest.fixture
def image() -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, size=(12, 20, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def named(transform: Any) -> list[str]:
    return [type(step).__name__ for step in transform.transforms]


def test_test_images_are_resized_and_cropped(cfg: CfgNode, image: Image.Image) -> None:
    cfg.INPUT.TRANSFORMS = ("random_resized_crop", "random_flip", "normalize", "center_crop")
    transform = build_transform(cfg, is_train=False)
    assert named(transform) == ["Resize", "CenterCrop", "ToTensor", "Normalize"]
    assert transform.transforms[0].size == 8
    assert transform.transforms[0].interpolation is INTERPOLATION_MODES["bicubic"]
    output = transform(image)
    left = (13 - 8) // 2
    small = np.asarray(image.resize((13, 8), Image.Resampling.BICUBIC))[:, left : left + 8]
    expected = (small / 255.0 - cfg.INPUT.PIXEL_MEAN) / cfg.INPUT.PIXEL_STD
    assert output.shape == (3, 8, 8)
    assert output.permute(1, 2, 0).numpy() == pytest.approx(expected, abs=1e-5)


def test_training_steps_come_in_a_fixed_order(cfg: CfgNode, image: Image.Image) -> None:
    cfg.INPUT.GB_K = 3
    cfg.INPUT.TRANSFORMS = (
        "normalize",
        "gaussian_blur",
        "randomgrayscale",
        "colorjitter",
        "center_crop",
        "random_flip",
        "random_resized_crop",
    )
    transform = build_transform(cfg, is_train=True)
    assert named(transform) == [
        "RandomResizedCrop",
        "RandomHorizontalFlip",
        "ColorJitter",
        "RandomGrayscale",
        "RandomApply",
        "ToTensor",
        "Normalize",
    ]
    crop = transform.transforms[0]
    assert (tuple(crop.size), tuple(crop.scale)) == ((8, 8), (0.08, 1.0))
    assert crop.interpolation is INTERPOLATION_MODES["bicubic"]
    jitter, grey, blur = transform.transforms[2:5]
    assert [tuple(jitter.brightness), tuple(jitter.hue)] == [(0.6, 1.4), (-0.1, 0.1)]
    assert (grey.p, blur.p, tuple(blur.transforms[0].kernel_size)) == (0.2, 0.5, (3, 3))
    assert transform(image).shape == (3, 8, 8)


def test_training_without_a_crop_resizes(cfg: CfgNode, image: Image.Image) -> None:
    assert named(build_transform(cfg, is_train=True)) == ["Resize", "ToTensor"]
    assert build_transform(cfg, is_train=True)(image).shape == (3, 8, 8)
    crop = build_transform(cfg, is_train=True, choices=["random_crop"])
    assert named(crop) == ["RandomCrop", "ToTensor"]
    assert crop(image).shape == (3, 8, 8)


def test_unknown_transform_is_refused(cfg: CfgNode) -> None:
    with pytest.raises(REFUSALS):
        build_transform(cfg, choices=["random_flop"])
    cfg.INPUT.INTERPOLATION = "lanczos"
    with pytest.raises(REFUSALS):
        build_transform(cfg)


@only_ours
@pytest.mark.parametrize("choice", ["randaugment", "cutout", "gaussian_noise", "instance_norm", "random_translation"])
def test_unsupported_transforms_are_refused_with_the_supported_ones(cfg: CfgNode, choice: str) -> None:
    with pytest.raises(REFUSALS, match=rf"INPUT.TRANSFORMS is '{choice}'.*random_resized_crop.*normalize"):
        build_transform(cfg, choices=[choice])
