"""The images of the figure `scorecam`: those that the user names, or some from the runs' dataset."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cocoamix.clip.class_names import plain_class, tidy_class
from cocoamix.errors import UserError, brief, printable
from cocoamix.features.images import UNREADABLE, ImageItems, image_name
from cocoamix.io.paths import expand_home
from cocoamix.predict.choosing import read_class_names
from cocoamix.predict.classifier import refuse_same
from cocoamix.predict.inputs import find_images, labels_of
from cocoamix.registry import plain_name
from cocoamix.run.given import Item
from cocoamix.run.recorded import RecordedRun, configuration

_MOST = 64  # images; each needs a pass through the tower for every channel


@dataclass(frozen=True)
class Shown:
    """An image to explain.

    Attributes:
        item: The item of the dataset.
        name: The name of the image in the CSV file.
        label: The name of its class; empty if unknown.
        classes: The candidate classes.
        part: The subset of the candidate classes: `base`, `new` or `all`; empty for images that the user names.
    """

    item: Any
    name: str
    label: str
    classes: tuple[str, ...]
    part: str = ""


def check_arguments(args: argparse.Namespace) -> None:
    """Check the images that the user names, before long runs start."""
    if not args.images:
        for flag in ("labels", "classes"):
            if getattr(args, flag):
                raise UserError(f"--{flag} is for the images that --images names.")
    for path in args.images or ():
        if not expand_home(path).exists():
            raise UserError(f"There is no image, folder or table {path}.")


def choose_images(args: argparse.Namespace, runs: Sequence[RecordedRun]) -> list[Shown]:
    """Return the images that the arguments choose, after checking that they can be used."""
    found = _named_images(args, runs) if args.images else _dataset_images(args.count, args.root, runs)
    if len(found) > _MOST:
        raise UserError(f"{len(found):,} images are too many for maps; name at most {_MOST}.")
    for image in found:
        if len(image.classes) == 1:
            raise UserError("A map shows what distinguishes a class from others, but there is only one class.")
        if args.target == "label" and not image.label:
            raise UserError(f"--target label needs the class of {image.name}: give --labels, or leave --target out.")
    _refuse_unreadable(found)
    return found


# ---------------------------------------------------------------------- images that the user names


def _named_images(args: argparse.Namespace, runs: Sequence[RecordedRun]) -> list[Shown]:
    if args.classes:
        classes = tuple(read_class_names(expand_home(args.classes)))
        refuse_same(classes)
    else:
        classes = _common_classes(runs)
    found = labels_of(runs[0], classes)
    inputs = find_images(args.images, found)
    print("".join(f"{printable(note)}\n" for note in found.notes), end="")
    labels = [tidy_class(label) for label in args.labels or (one.label for one in inputs)]
    if len(labels) != len(inputs):
        raise UserError(f"--labels names {len(labels)} classes for {len(inputs)} images. Name one for each, in order.")
    known = {plain_class(name): name for name in classes}
    for label, one in zip(labels, inputs, strict=True):
        if label and plain_class(label) not in known:
            raise UserError(
                f"{one.path} is of the class {brief(label)}, which is not one of the {len(classes)} candidate "
                "classes. List all of them in --classes FILE, one on each line."
            )
    named = [known.get(plain_class(label), "") for label in labels]
    return [Shown(Item(one.path), one.path, name, classes) for one, name in zip(inputs, named, strict=True)]


def _common_classes(runs: Sequence[RecordedRun]) -> tuple[str, ...]:
    """Return the classes of all runs; refuse runs with different classes."""
    first = runs[0]
    for run in runs[1:]:
        if set(map(plain_class, run.classnames)) != set(map(plain_class, first.classnames)):
            raise UserError(
                f"The runs in {first.folder} and {run.folder} have different classes. List the candidates in "
                "--classes FILE, one on each line."
            )
    return tuple(first.classnames)


# ---------------------------------------------------------------------- images of the dataset


def _dataset_images(count: int, root: str | None, runs: Sequence[RecordedRun]) -> list[Shown]:
    """Return test images of evenly spaced classes, so that the choice is objective; of both halves for a run on one."""
    import cocoamix.datasets
    import cocoamix.trainers  # noqa: F401  (before dassl is used)

    # isort: split
    from dassl.config import get_cfg_default

    from cocoamix.data.building import build

    configs = [configuration(run, get_cfg_default()) for run in runs]
    datasets = [plain_name(cfg.DATASET.NAME) for cfg in configs]
    if len(set(datasets)) > 1:
        raise UserError(f"The runs are of different datasets ({', '.join(dict.fromkeys(datasets))}). Give --images.")
    if not datasets[0]:
        raise UserError(f"The run in {runs[0].folder} names no dataset to take images from. Give --images.")
    cfg = configs[0]
    if root:
        cfg.DATASET.ROOT = root
    subset = cfg.DATASET.SUBSAMPLE_CLASSES
    found = []
    for part in ("base", "new") if subset in ("base", "new") else (subset,):
        cfg.DATASET.SUBSAMPLE_CLASSES = part
        dataset, _ = build(cfg)
        classes = tuple(dataset.classnames)
        found += [
            Shown(item, image_name(item.impath), item.classname, classes, part) for item in _spaced(dataset, count)
        ]
    return found


def _spaced(dataset: Any, count: int) -> list[Any]:
    """Return the first test image of some evenly spaced classes."""
    first: dict[int, Any] = {}
    for item in dataset.test:
        first.setdefault(item.label, item)
    labels = sorted(first)
    count = min(count, len(labels))
    return [first[labels[(2 * place + 1) * len(labels) // (2 * count)]] for place in range(count)]


# ---------------------------------------------------------------------- reading


def _refuse_unreadable(images: Sequence[Shown]) -> None:
    read = ImageItems(None, [image.item for image in images])
    for number, image in enumerate(images):
        found = read.load_image(number, 0)
        if UNREADABLE in found:
            raise UserError(f"{image.name} cannot be read: {found[UNREADABLE][1]}.")


def prepare(images: Sequence[Shown], transform: Any, upright: bool) -> list[Any]:
    """Return the (1, 3, H, W) tensors of images.

    Args:
        images: The images.
        transform: Turns an image into a tensor.
        upright: Whether files that the user names are rotated by their EXIF orientation.
    """
    items = [replace(one.item, upright=upright) if isinstance(one.item, Item) else one.item for one in images]
    read = ImageItems(None, items, transform)
    return [read.load_image(number, 0)["img"][None] for number in range(len(items))]
