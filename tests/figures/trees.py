"""Hand-written trees of runs, and the data of a figure drawn from them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cocoamix.figures.catalogue import load
from cocoamix.figures.drawn import Drawn, to_csv
from cocoamix.parser import Parser

MAX_EPOCH = 30
TRAINERS = {"ZeroshotCLIP": "ZEROSHOTCLIP", "CoCoAMix": "COCOAMIX"}
Prediction = tuple[str, str, str, float, float]  # image, label, predicted, confidence, probability of the label


def write_run(
    root: Path,
    config: str,
    dataset: str,
    subset: str = "base",
    seed: int = 1,
    accuracy: float = 50.0,
    trainer: str = "CoCoAMix",
    epoch: int = MAX_EPOCH,
    predictions: Sequence[Prediction] | None = None,
    protocol: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Path:
    """Write a base-to-new run in CoOp's layout, and return its folder. `settings` are those of the trainer."""
    folder = root / "base2new" / f"test_{subset}" / dataset / "shots_4" / trainer / config / f"seed{seed}"
    folder.mkdir(parents=True)
    results = {
        "trainer": trainer,
        "dataset": dataset,
        "subset": subset,
        "seed": seed,
        "shots": 4,
        "epoch": epoch if trainer == "CoCoAMix" else 0,
        "metrics": {"accuracy": accuracy},
        "evaluated_images": 7,
        "protocol": {"backbone": "tiny", **(protocol or {})},
        "config": {"TRAINER": {TRAINERS[trainer]: settings}, "OPTIM": {"MAX_EPOCH": MAX_EPOCH}},
    }
    (folder / "results.json").write_text(json.dumps(results))
    if predictions is not None:
        write_predictions(folder, predictions)
    return folder


def write_predictions(folder: Path, predictions: Sequence[Prediction]) -> None:
    """Write the table that an evaluation saves, with a column unknown to readers."""
    with (folder / "predictions.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "label", "predicted", "confidence", "label_probability", "further"])
        writer.writerows([*one[:3], f"{one[3]:.6f}", f"{one[4]:.6f}", "x"] for one in predictions)


def make(name: str, *arguments: object) -> list[Drawn]:
    """Return what a figure yields for the given arguments."""
    module, parser = load(name), Parser()
    module.add_arguments(parser)
    return list(module.make(parser.parse_args([str(one) for one in arguments])))


def rows_of(drawn: Drawn) -> list[dict[str, str]]:
    """Return the data of a figure as its CSV file has them."""
    return list(csv.DictReader(io.StringIO(to_csv(drawn.columns, drawn.rows))))


def lines_of(axes: Any, marker: str | None = None) -> list[list[float]]:
    """Return the heights of the lines of a panel, or only of those with a marker."""
    chosen = [line for line in axes.lines if marker is None or line.get_marker() == marker]
    return [[float(y) for y in line.get_ydata()] for line in chosen]
