"""`scorecam`: the parts of an image on which methods base their predictions.

ScoreCAM masks an image by each channel of the activations in turn, and weights the channels by the scores of the masked
images. Methods that share a frozen image tower share its passes, which take nearly all of the time.
"""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from cocoamix.compat import import_grad_cam
from cocoamix.errors import UserError

from ..frame import Frame
from ..names import method_name
from . import source
from .source import Choice
from .style import INK, PAGE, Drawing, Style, look, wrap

if TYPE_CHECKING:
    from torch import Tensor

    from cocoamix.loading import Record

_PLANS = source.Plans(
    [Choice("quick", ("CLIP", "CoOp", "CoA-loss (uniform)", "CoCoA-Mix"), ("warm_cool",), (1,))],
    [Choice("base2new", ("CLIP", "CoOp", "CoA-loss", "CoCoA-Mix"), ("oxford_flowers",), (1,))],
)
_COUNT = 3  # images per half of the classes
_BATCH = 32  # masked images
_SIZE = 6.5  # of letters
_HEAT = "inferno"  # brighter means higher, also in print without colours
_LUMINANCE = np.asarray((0.299, 0.587, 0.114), np.float32)
_COLUMNS = ["image", "part", "label", "method", "run", "predicted", "probability", "right", "row", "column", "value"]


class Shown(NamedTuple):
    """An image to explain: the item of its dataset, its name, its class, and the candidate classes and their subset."""

    item: Any
    name: str
    label: str  # empty if unknown
    classes: tuple[str, ...]
    part: str  # base, new or all; empty for images that the user names


def make(args: argparse.Namespace) -> Iterator[Drawing]:
    """Yield the figure of the maps."""
    try:
        import_grad_cam()
    except ImportError as error:  # before long runs start
        raise UserError(
            f"grad-cam cannot be imported ({error}). Install it with: pip install --no-deps -r requirements-cam.txt."
        ) from error
    from cocoamix.loading import read_record

    frame, folders = source.find_trained(args, _PLANS)
    runs = _named([read_record(folder) for folder in folders], frame)
    first = next(iter(runs.values()))
    data, pixels = _compute(runs, _named_images(args.images, first) if args.images else _dataset_images(args, first))
    known = data.dropna(subset="right").drop_duplicates(["image", "method"])
    rights = [f"{name} {own.sum()}" for name, own in known.groupby("method", sort=False)["right"]]
    sentence = (
        f"ScoreCAM of the predicted class on {data['image'].nunique()} images. Correct labels, of "
        f"{known['image'].nunique()}: {', '.join(rights) or 'none is known'}."
    )
    shown = frame.only(frame.runs.index[frame.runs["folder"].isin([str(run.folder) for run in runs.values()])])
    yield source.captioned(Drawing("scorecam", "ScoreCAM", sentence, partial(_draw, data, pixels), data), shown)


# ---------------------------------------------------------------------------------------- runs and images


def _named(runs: Sequence[Record], frame: Frame) -> dict[str, Record]:
    """Return the runs by the names of their methods, those of one name with what differs in their folders."""
    labels = dict(zip(frame.runs["folder"], frame.runs["method"], strict=True))
    names = [labels.get(str(run.folder), method_name(run.trainer)) for run in runs]
    named = {}
    for name, run in zip(names, runs, strict=True):
        same = [set(other.folder.parts) for other, own in zip(runs, names, strict=True) if own == name]
        parts = "/".join(part for part in run.folder.parts if part not in set.intersection(*same))
        named[f"{name} ({parts})" if len(same) > 1 else name] = run
    return named


def _named_images(paths: Sequence[str], run: Record) -> list[Shown]:
    """Return the images that the user names, to classify among the classes of the first run."""
    from cocoamix.features.memory import Item
    from cocoamix.inputs import Labels, find_images

    upright, classes = "images" in run.protocol, tuple(run.classnames)
    images = find_images(paths, Labels(run.classnames, run.categories))
    labels = [image.label if image.label in classes else "" for image in images]
    return [
        Shown(Item(image.path, upright=upright), image.path, label, classes, "")
        for image, label in zip(images, labels, strict=True)
    ]


def _dataset_images(args: argparse.Namespace, run: Record) -> list[Shown]:
    """Return test images of evenly spaced classes, so that the choice is objective; of both halves for a run on one."""
    import cocoamix.datasets  # noqa: F401
    from cocoamix.data.building import build
    from cocoamix.features.images import image_name
    from cocoamix.loading import configuration

    cfg, images = configuration(run), []
    cfg.DATASET.ROOT = args.root or cfg.DATASET.ROOT
    subset = cfg.DATASET.SUBSAMPLE_CLASSES
    for part in ("base", "new") if subset in ("base", "new") else (subset,):
        cfg.DATASET.SUBSAMPLE_CLASSES = part
        dataset, _ = build(cfg)
        first = {item.label: item for item in reversed(dataset.test)}
        labels, count = sorted(first), min(_COUNT, len(first))
        for place in range(count):
            item = first[labels[(2 * place + 1) * len(labels) // (2 * count)]]
            images.append(Shown(item, image_name(item.impath), item.classname, tuple(dataset.classnames), part))
    return images


# ---------------------------------------------------------------------------------------- the maps


class _Method:
    """A run with its model, which explains predictions over some classes. Methods on a frozen tower share `kept`."""

    def __init__(self, run: Record, classes: Sequence[str], kept: dict[Any, Tensor]) -> None:
        from cocoamix.trained import TrainedModel

        trained = TrainedModel(run, store=False)
        if list(classes) != list(run.classnames):
            trained = trained.with_classes(classes, keep=False)
        self.classes, self.classifier, self.kept = trained.classes, trained.classifier, kept
        self.transform, self.reads = trained.transform, trained.model.reads
        self.prompts = list(self.classifier.vision_prompts)
        self.clip, *others = trained.model.clip.each()
        if others:
            raise UserError(f"The run in {run.folder} has several CLIP models; a map needs one. Leave it out.")
        frozen = self.clip.weights_hash, self.clip.precision, self.clip.source, self.clip.activation
        self.tower = str(run.folder) if self.prompts else frozen

    def read(self, image: Shown) -> tuple[Any, Tensor]:
        """Return the (H, W, 3) image as the model sees it, and the (1, 3, H, W) tensor that it reads."""
        from cocoamix.features.images import UNREADABLE, ImageItems

        loaded = ImageItems(None, [image.item]).load_image(0, 0)
        if UNREADABLE in loaded:
            raise UserError(f"{image.name} cannot be read: {loaded[UNREADABLE][1]}.")
        seen = tensor = loaded["img"]
        for step in self.transform.transforms:
            tensor = step(tensor)
            seen = seen if hasattr(step, "mean") else tensor  # before it is normalised
        return seen.permute(1, 2, 0).numpy(), tensor[None]

    def probabilities(self, images: Tensor) -> Tensor:
        """Return the (B, C) probabilities of images; a tower sees the same pixels only once."""
        key = self.tower, hash(images.cpu().numpy().tobytes())
        if key not in self.kept:
            self.kept[key] = self.clip.encode_image_watched(images, self.prompts)[0].cpu()
        return self._classify(self.kept[key].to(self.clip.device))

    def _classify(self, features: Tensor) -> Tensor:
        from cocoamix.model import RAW_FEATURES

        features = features if self.reads == RAW_FEATURES else features / features.norm(dim=-1, keepdim=True)
        return self.classifier.logits(features).double().softmax(dim=1)

    def explain(self, tensor: Tensor, label: str) -> dict[str, Any]:
        """Return the prediction and, as `map`, ScoreCAM's map, scaled to 1; 0 if no channel supports the class."""
        features, activations = self.clip.encode_image_watched(tensor, self.prompts)
        chances = self._classify(features)[0]
        predicted = int(chances.argmax())
        package = import_grad_cam()
        cam = package.ScoreCAM(self.clip, [])  # no layers to hook, because the activations are known
        cam.model, cam.batch_size = self.probabilities, _BATCH
        targets = [package.utils.model_targets.ClassifierOutputTarget(predicted)]
        with contextlib.redirect_stderr(io.StringIO()):  # hides a progress bar for every image
            pixels = tensor.to(self.clip.device)
            weighted = cam.get_cam_image(pixels, None, targets, activations.cpu().numpy(), None)
        return {
            "predicted": self.classes[predicted],
            "probability": float(chances[predicted]),
            "right": int(self.classes[predicted] == label) if label else pd.NA,
            "map": package.utils.image.scale_cam_image(np.maximum(weighted, 0))[0],
        }


def _compute(runs: Mapping[str, Record], images: Sequence[Shown]) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the maps, and the pixels of each image as the first model sees them. One model is in memory at a time."""
    import torch

    kept = dict[Any, "Tensor"]()
    maps: dict[tuple[str, str], pd.DataFrame] = {}
    pixels: dict[str, Any] = {}
    for name, run in runs.items():
        for classes in dict.fromkeys(image.classes for image in images):
            method = _Method(run, classes, kept)
            for image in (image for image in images if image.classes == classes):
                seen, tensor = method.read(image)
                pixels.setdefault(image.name, seen)
                with torch.no_grad():
                    about = method.explain(tensor, image.label)
                rows, columns = np.indices(about["map"].shape) + 1
                values = about.pop("map").ravel().astype(float)
                cells = pd.DataFrame({"row": rows.ravel(), "column": columns.ravel(), "value": values})
                about |= {"image": image.name, "part": image.part, "label": image.label}
                maps[image.name, name] = cells.assign(method=name, run=str(run.folder), **about)
    data = pd.concat([maps[image.name, name] for image in images for name in runs], ignore_index=True)
    return data.astype({"right": "Int64"})[_COLUMNS], pixels


# ---------------------------------------------------------------------------------------- the figure


def _draw(data: pd.DataFrame, pixels: Mapping[str, Any], style: Style) -> Figure:
    """Return a row for each image and a column for each method, with the predicted label below each map."""
    images, methods = data["image"].unique(), data["method"].unique()
    width = style.width or PAGE
    cell = width / (len(methods) + 1) - 0.12  # inches
    letters = int(cell * 17)
    figure = style.figure(width, len(images) * (cell + 0.6) + 0.45, "ScoreCAM: brighter is higher")
    grid = figure.subplots(len(images), len(methods) + 1, squeeze=False)
    for axes, title in zip(grid[0], ["image", *methods], strict=True):
        axes.set_title(wrap(title, letters), loc="center", fontsize=_SIZE)
    for name, (first, *row) in zip(images, grid, strict=True):
        own = data[data["image"] == name]
        label, part = own[["label", "part"]].iloc[0]
        first.imshow(pixels[name], interpolation="none")
        first.set_xlabel(wrap(label or Path(name).name, letters), color=INK, fontsize=_SIZE)
        first.set_ylabel(part)
        for axes, (_, cells) in zip(row, own.groupby("method", sort=False), strict=True):
            _draw_map(axes, cells, pixels[name], letters)
        for axes in (first, *row):
            axes.set(xticks=[], yticks=[])
            axes.grid(visible=False)
    return figure


def _draw_map(axes: Any, cells: pd.DataFrame, pixels: Any, letters: int) -> None:
    """Draw the image in grey with a map over it; the frame and the mark say whether the prediction is right."""
    values, extent = cells.pivot(index="row", columns="column", values="value"), (0, 1, 0, 1)
    axes.imshow(pixels @ _LUMINANCE, cmap="gray", vmin=0, vmax=1, extent=extent)
    axes.imshow(values, cmap=_HEAT, vmin=0, vmax=1, alpha=0.6, interpolation="bilinear", extent=extent)
    first, colour, mark = cells.iloc[0], INK, ""
    axes.spines[:].set_visible(first["right"] is not pd.NA)
    if first["right"] is not pd.NA:
        mark, colour = ("\u2713 ", look(2).colour) if first["right"] else ("\u2717 ", look(4).colour)  # green or red
        axes.spines[:].set(color=colour, linewidth=1.8, linestyle="-" if first["right"] else (0, (3, 1.5)))
    text = f"{wrap(mark + first['predicted'], letters)}\n{100 * first['probability']:.0f} %"
    axes.set_xlabel(text, color=colour, fontsize=_SIZE)
