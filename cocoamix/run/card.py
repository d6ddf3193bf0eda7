"""The model card that a finished run leaves in its folder: README.md, for whoever finds the folder later."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from cocoamix.config.settings import flatten
from cocoamix.io.files import write_text

from .results import Results

CARD = "README.md"
_MARK = "<!-- Written by cocoamix; it is replaced when the run is evaluated again. -->"
_SHOWN_CLASSES = 20
_OPENAI = ("RN50", "RN101", "RN50x4", "RN50x16", "RN50x64", "ViT-B/32", "ViT-B/16", "ViT-L/14", "ViT-L/14@336px")


def write_card(folder: str | os.PathLike[str], results: Results, trained_here: bool) -> Path | None:
    """Write the card, unless somebody else has written a README.md there.

    Args:
        folder: Of the run.
        results: What it measured.
        trained_here: Whether its checkpoints are in the folder.

    Returns:
        The file, or None where it was left alone.
    """
    path = Path(folder) / CARD
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(_MARK):
        return None
    write_text(path, make_card(results, trained_here))
    return path


def make_card(results: Results, trained_here: bool) -> str:
    """Return the text of the card."""
    settings = flatten(results.config)
    method = results.method or results.trainer
    rows = [
        ("method", method),
        ("backbone", str(results.protocol.get("backbone", settings.get("MODEL.BACKBONE.NAME", "")))),
        ("data", f"{results.dataset}, {results.subset} classes" if results.subset else results.dataset),
        ("training images", _shots(results)),
        ("epochs", str(results.epoch)),
        ("seed", str(results.seed)),
        ("trained parameters", f"{results.trained_parameters or 0:,}"),
    ]
    parts = [_MARK, f"# {method} on {results.dataset}", "", *_table(("", ""), rows)]
    parts += ["", f"## Results on {results.evaluated_images:,} {results.split} images", ""]
    parts += _table(("measure", "value"), _figures(results))
    parts += ["", "The interval holds 95 % by the number of images alone. Other seeds vary beside it.", ""]
    parts += ["## Classes", "", _classes(results.classnames or ()), "", "## Use", ""]
    if trained_here:
        parts += [
            "```bash",
            "cocoamix predict THIS_FOLDER IMAGES           # labels for images",
            'cocoamix predict THIS_FOLDER IMAGES --add "a new class"',
            "cocoamix export THIS_FOLDER --to model.onnx   # or .safetensors",
            "```",
        ]
    else:
        parts += ["The checkpoints are in the folder of the training run, which this evaluation loaded."]
    return "\n".join([*parts, "", "## Licence of the weights", "", _licence(rows[1][1], settings), ""])


def _table(head: tuple[str, str], rows: Sequence[tuple[str, str]]) -> list[str]:
    return [f"| {head[0]} | {head[1]} |", "|---|---|", *(f"| {name} | {_cell(value)} |" for name, value in rows)]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _shots(results: Results) -> str:
    shots = "all" if (results.shots or -1) < 1 else f"{results.shots} of each class"
    return f"{results.train_images:,} ({shots})" if results.train_images is not None else shots


def _figures(results: Results) -> list[tuple[str, str]]:
    rows = []
    for name, value in results.metrics.items():
        if name == "nll":
            rows.append((name, f"{value:.4f}"))
        elif name == "accuracy" and results.evaluated_images:
            low, high = wilson(value / 100, results.evaluated_images)
            rows.append((name, f"{value:.2f} % ({100 * low:.2f} to {100 * high:.2f})"))
        else:
            rows.append((name, f"{value:.2f} %"))
    fitted = results.heldout
    if fitted is not None and fitted.temperature is not None:
        rows.append(
            ("calibration", f"temperature {fitted.temperature:.5f}, fitted to {fitted.images:,} held-out images")
        )
    else:
        rows.append(("calibration", "none was fitted"))
    return rows


def wilson(share: float, count: int, z: float = 1.959964) -> tuple[float, float]:
    """Return Wilson's interval of a share of `count` images; by default it holds 95 %."""
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, centre - half), min(1.0, centre + half)


def _classes(names: Sequence[str]) -> str:
    shown = ", ".join(_cell(name) for name in names[:_SHOWN_CLASSES])
    return shown + (f" and {len(names) - _SHOWN_CLASSES} more" if len(names) > _SHOWN_CLASSES else "")


def _licence(backbone: str, settings: dict[str, object]) -> str:
    given = settings.get("MODEL.BACKBONE.WEIGHTS")
    if backbone == "tiny" and not given:
        return "The embedded backbone `tiny` comes with cocoamix, under its MIT licence."
    if backbone in _OPENAI and not given:
        return f"{backbone} is OpenAI's CLIP, whose repository is under the MIT licence. See its model card, too."
    return f"Not known: the weights of {backbone} are of a file of the user's."
