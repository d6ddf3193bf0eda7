"""The keys of stored features."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import torch
from PIL import Image

from cocoamix.clip import FrozenCLIP, load_clip
from cocoamix.features.extract import FrozenFeatures, Source, describe, describe_transform, encode_batch
from cocoamix.features.images import ImageItems
from cocoamix.features.store import FeatureStore


def to_tensor(image: Image.Image) -> torch.Tensor:
    return torch.full((3, 32, 32), float(image.getpixel((0, 0))[0]) / 255)  # type: ignore[index]


def source(tmp_path: Path, is_train: bool) -> Source:
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for number, path in enumerate(paths):
        Image.new("RGB", (4, 4), (40 * number, 0, 0)).save(path)
    data = [SimpleNamespace(impath=str(path), label=0, domain=0) for path in paths]
    return Source(ImageItems(None, data, transform=to_tensor, is_train=is_train), "Set/split", 2, 0)


def test_keys_distinguish_views_and_seeds_of_augmented_images(tmp_path: Path) -> None:
    random = source(tmp_path, is_train=True)
    first = random.keys(0)
    assert len({*first, *random.keys(1)}) == 6
    random.items.seed = 7
    assert not {*first} & {*random.keys(0)}
    assert random.part(1) != random.part(0)
    fixed = source(tmp_path, is_train=False)
    assert fixed.keys(0) == fixed.keys(1)
    assert fixed.part(0) == fixed.part(1)


def test_store_depends_on_weights_code_precision_and_transform(tiny_clip: FrozenCLIP) -> None:
    about = describe(tiny_clip, describe_transform(to_tensor))
    assert "to_tensor" in about["transform"]
    assert " at 0x" not in about["transform"], "a memory address differs in each process"
    assert about["weights"] == tiny_clip.weights_hash
    assert tiny_clip.source in about["runs"]
    assert "fp32" in about["runs"]
    assert "cpu" in about["runs"]


def test_models_with_different_features_have_separate_stores(tmp_path: Path) -> None:
    """The weights are the same; the activation, the package, the precision or the length differs."""
    kinds = [("clip", "fp32", "quick_gelu"), ("open_clip", "fp32", "quick_gelu")]
    kinds += [("open_clip", "fp32", "gelu"), ("open_clip", "bf16", "quick_gelu")]
    clips = [load_clip("tiny", "", source, precision, activation=activation) for source, precision, activation in kinds]
    assert len({clip.weights_hash for clip in clips}) == 1
    about = [describe(clip, "crop", raw) for clip in clips for raw in (False, True)]
    assert len({FeatureStore(tmp_path, one).folder for one in about}) == len(about)


class Blur:
    """An augmentation whose repr does not include its parameters."""

    def __init__(self, radius: int) -> None:
        self.radius = radius


def test_transform_parameters_matter_even_if_not_in_its_repr() -> None:
    chains = [SimpleNamespace(transforms=[to_tensor, Blur(radius)]) for radius in (1, 2)]
    assert describe_transform(chains[0]) != describe_transform(chains[1])
    assert describe_transform(chains[0]) == describe_transform(SimpleNamespace(transforms=[to_tensor, Blur(1)]))


def test_features_match_the_encoder(tmp_path: Path, tiny_clip: FrozenCLIP) -> None:
    wanted = source(tmp_path, is_train=False)
    FrozenFeatures([tiny_clip], tmp_path / "store").load(wanted, 0, 0)
    images = torch.stack([wanted.items.load_image(index, 0)["img"] for index in range(3)])
    assert wanted.items.features is not None
    torch.testing.assert_close(wanted.items.features, tiny_clip.encode_image(images), atol=1e-6, rtol=0)
    assert torch.equal(wanted.items[2]["img"], wanted.items.features[2])
    alone = encode_batch(tiny_clip, images[:1], 2)
    assert torch.equal(alone[0], wanted.items.features[0]), "a batch of another size is rounded differently"
