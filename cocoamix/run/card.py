"""The model card of a finished run: README.md in its folder."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cocoamix.config.settings import flatten
from cocoamix.dataset_table import OWN, of_kind
from cocoamix.io.files import write_text

from .recorded import SESSIONS, model_folders
from .results import Results

CARD = "README.md"
_MARK = "<!-- Written by cocoamix; it is replaced when the run is evaluated again. -->"
_SHOWN_CLASSES = 20
_OPENAI = ("RN50", "RN101", "RN50x4", "RN50x16", "RN50x64", "ViT-B/32", "ViT-B/16", "ViT-L/14", "ViT-L/14@336px")


def write_card(folder: str | os.PathLike[str], results: Results) -> Path | None:
    """Write the model card of a run, unless the folder has a README.md that is not ours.

    Args:
        folder: Output folder of the run.
        results: Results of the run; without metrics if it was not evaluated.

    Returns:
        The file, or None if nothing was written.
    """
    path = Path(folder) / CARD
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(_MARK):
        return None
    write_text(path, make_card(results, _has_model(Path(folder), results)))
    return path


def _has_model(folder: Path, results: Results) -> bool:
    """Return whether the output folder of the run has everything that a prediction needs."""
    return not results.trained_parameters or bool(model_folders(folder)) or (folder / SESSIONS).is_dir()


def make_card(results: Results, has_model: bool) -> str:
    """Return the text of the card. `has_model` is whether the folder has everything that a prediction needs."""
    settings = flatten(results.config)
    method, data = results.method or results.trainer, _data(results, settings)
    backbone = str(results.protocol.get("backbone", settings.get("MODEL.BACKBONE.NAME", "")))
    rows = [
        ("method", method),
        ("backbone", backbone),
        ("data", f"{data}, {results.subset} classes{_halves(results)}" if results.subset else data),
        ("training images", _shots(results)),
        *([] if results.method else [("epochs", str(results.epoch))]),  # differs between sessions
        ("seed", str(results.seed)),
        ("trained parameters", f"{results.trained_parameters or 0:,}"),
        ("calibration", _calibration(results)),
    ]
    if results.unreadable_images:
        rows.append(("unreadable images, left out", f"{results.unreadable_images:,}"))
    parts = [_MARK, f"# {method} on {data}", "", *_table(("", ""), rows), "", *_figures(results), ""]
    parts += ["## Classes", "", _classes(results.classnames or ()), "", "## Use", "", *_use(results, has_model)]
    return "\n".join([*parts, "", "## Licence of the weights", "", _licence(backbone, settings), ""])


def _use(results: Results, has_model: bool) -> list[str]:
    if not has_model:
        return ["The checkpoints are in the output folder of the training run, which this evaluation loaded."]
    if results.method and not results.metrics:
        return [
            "Evaluate the sessions first: `--eval-only --model-dir THIS_FOLDER`, with the arguments of the training "
            "run."
        ]
    return [
        "```bash",
        "cocoamix predict THIS_FOLDER IMAGES           # labels for images",
        'cocoamix predict THIS_FOLDER IMAGES --add "a new class"',
        "cocoamix export THIS_FOLDER --to model.onnx   # or .safetensors",
        "```",
        "",
        "If a method cannot add classes or be exported, the command says so.",
    ]


def _data(results: Results, settings: Mapping[str, Any]) -> str:
    """Return the name of the dataset; for own images, their location."""
    if results.dataset not in [own.name for own in of_kind(OWN)]:
        return results.dataset
    root, folder, table = (str(settings.get(f"DATASET.{key}") or "") for key in ("ROOT", "FOLDER", "CSV"))
    if not root and not folder:
        return "images passed in Python"
    listed = f", listed in {table}" if table else ""
    return f"own images in {os.path.join(root, folder) if folder else root}{listed}"


def _table(head: tuple[str, str], rows: Sequence[tuple[str, str]]) -> list[str]:
    return [f"| {head[0]} | {head[1]} |", "|---|---|", *(f"| {name} | {_cell(value)} |" for name, value in rows)]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _halves(results: Results) -> str:
    partition = results.protocol.get("partition")  # shown if it is not CoOp's
    return f" of the partition {partition}" if partition else ""


def _shots(results: Results) -> str:
    if results.method and results.train_images is not None:
        return f"{results.train_images:,} over all sessions"
    most = "at most " if flatten(results.config).get("DATASET.FEWER_SHOTS") else ""
    shots = "all" if (results.shots or -1) < 1 else f"{most}{results.shots} of each class"
    return f"{results.train_images:,} ({shots})" if results.train_images is not None else shots


def _figures(results: Results) -> list[str]:
    if not results.metrics:
        return ["## Results", "", "The run was not evaluated."]
    rows = []
    for name, value in results.metrics.items():
        if name == "nll":
            rows.append((name, f"{value:.4f}"))
        elif name == "accuracy" and results.evaluated_images:
            low, high = wilson(value / 100, results.evaluated_images)
            rows.append((name, f"{value:.2f} % ({100 * low:.2f} to {100 * high:.2f})"))
        else:
            rows.append((name, f"{value:.2f} %"))
    return [
        f"## Results on {results.evaluated_images or 0:,} {results.split} images",
        "",
        *_table(("metric", "value"), rows),
        "",
        "The range after the accuracy is a 95 % confidence interval (Wilson) for the number of images. It does not "
        "include the variation between seeds.",
    ]


def _calibration(results: Results) -> str:
    fitted = results.heldout
    if fitted is None or fitted.temperature is None:
        return "not calibrated"
    return f"temperature {fitted.temperature:.5f}, fitted to {fitted.images or 0:,} held-out images"


def wilson(share: float, count: int, z: float = 1.959964) -> tuple[float, float]:
    """Return Wilson's confidence interval for a proportion of `count` images, by default at 95 %."""
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, centre - half), min(1.0, centre + half)


def _classes(names: Sequence[str]) -> str:
    shown = ", ".join(_cell(name) for name in names[:_SHOWN_CLASSES])
    return shown + (f" and {len(names) - _SHOWN_CLASSES} more" if len(names) > _SHOWN_CLASSES else "")


def _licence(backbone: str, settings: Mapping[str, Any]) -> str:
    given = settings.get("MODEL.BACKBONE.WEIGHTS")
    if backbone == "tiny" and not given:
        return "The backbone `tiny` comes with cocoamix, under the same MIT licence."
    if backbone in _OPENAI and not given:
        return f"{backbone} is OpenAI's CLIP, whose repository is under the MIT licence. See its model card as well."
    return f"Unknown: the weights of {backbone} come from the user's own file."
