"""`weights`: accuracy, cross-entropy and calibration error of CoCoA-Mix over the weight pi of the learned prompt."""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from cocoamix.errors import UserError
from cocoamix.registry import plain_name

from . import source
from .source import Choice
from .style import INK, PAGE, Drawing, Style, look, name_series, wrap

_TITLE = "CoCoA-Mix over the weight of the learned prompt"
_PLANS = source.Plans(
    [Choice("quick_weights", ("one stage", "two stages", "held-out"), ("round_angular",), (1,))],
    [Choice("weights", ("pi^in and pi^out", "pi^in and pi^out, two stages"), ("eurosat",), (1,))],
)
GRID = tuple(number / 50 for number in range(51))
_VIEWS = 10  # augmentations of each training image: enough for an average, even if training used more
_METRICS = {"accuracy": "accuracy in %", "nll": "cross-entropy in nats", "ece": "calibration error in %"}


def make(args: argparse.Namespace) -> Iterator[Drawing]:
    """Yield the figure of the curves."""
    frame, folders = source.find_trained(args, _PLANS)
    data = pd.concat([_compute(_open(folder, args.root), folder) for folder in folders], ignore_index=True)
    shown = frame.only(frame.runs.index[frame.runs["folder"].isin(map(str, folders))])
    yield source.captioned(Drawing("weights", _TITLE, _describe(data), partial(_draw, data), data), shown)


def _open(folder: Path, root: str | None) -> Any:
    """Return the trainer of a run with its data and checkpoint; `root` is where the datasets are now."""
    import cocoamix.datasets  # noqa: F401
    from cocoamix.datasets.common.writing import write_nothing
    from cocoamix.loading import configuration, find_trainer, read_record

    record = read_record(folder)
    cfg = configuration(record)
    if record.trainer != "CoCoAMix" or record.trained is None or cfg.TRAINER.COCOAMIX.ENSEMBLE != "coa":
        raise UserError(f"{folder} has no learned weights: give runs of CoCoAMix with TRAINER.COCOAMIX.ENSEMBLE coa.")
    cfg.DATASET.ROOT = root or cfg.DATASET.ROOT
    cfg.freeze()
    with contextlib.redirect_stdout(io.StringIO()), write_nothing():  # hides the log of the trainer
        trainer = find_trainer(record.trainer)(cfg)
        trainer.load_model(str(record.trained))
        trainer.set_model_mode("eval")
    then, now = record.origin["protocol"]["splits"], trainer.protocol["splits"]
    if any(then[split] != now[split] for split in ("train", "test")):  # the weights were fitted to other images
        raise UserError(f"The images of {cfg.DATASET.NAME} are not those of {folder}: restore them, or give --root.")
    return trainer


def _compute(trainer: Any, folder: Path) -> pd.DataFrame:
    """Return the mixture over pi on training, evaluated and held-out images, in the columns of the figure."""
    import torch

    cfg, split, model, images = trainer.cfg.DATASET, trainer.cfg.TEST.SPLIT, trainer.model, trainer.images
    with torch.no_grad():
        batches = images.batches(images.loader(split), split)
        encoded = [(images.encode(inputs), labels) for inputs, labels, _ in batches]
        evaluated = [torch.cat(side) for side in zip(*encoded, strict=True)]
        names = trainer.classnames
        prompts = [model.hand_crafted.of(names).t(), model.encode_learners(model.learners_of(names)).t()]
        sets = (("training", images.view_features(_VIEWS, trainer.course)), (split, evaluated))
        curves = [
            _curve([features @ prompt for prompt in prompts], labels, trainer.clip.logit_scale).assign(images=name)
            for name, (features, labels) in sets
        ]
    pi_in, heldout = model.learned_pi()[0], (model.heldout.fitted or {}).get("curve")
    if heldout:
        curve = pd.DataFrame(heldout, columns=["pi", "nll"], dtype=float)
        curves.append(curve.assign(images="held-out", lowest_pi=pi_in))
    kind = "one stage" if model.settings.STAGE == "one" else "held-out" if heldout else "two stages"
    run = {"dataset": plain_name(cfg.NAME), "shots": int(cfg.NUM_SHOTS), "seed": int(trainer.seed), "pi_in": pi_in}
    return pd.concat(curves, ignore_index=True).assign(run=str(folder), kind=kind, **run)


def _curve(similarities: list[Any], labels: Any, logit_scale: float) -> pd.DataFrame:
    """Return the mixture of the (N, C) similarities of both prompts over GRID, at CLIP's and at the one-stage scale."""
    from cocoamix.coa.calibration import curve_over_pi
    from cocoamix.coa.heldout import fit_weight

    hand_crafted, learned = (side.double().cpu() for side in similarities)
    sides = hand_crafted, learned, labels.cpu(), logit_scale
    points = pd.DataFrame(curve_over_pi(*sides, GRID))
    scaled = pd.DataFrame(curve_over_pi(*sides, GRID[:-1], one_stage=True))[["nll", "ece"]]  # infinite at pi = 1
    best = {"lowest_pi": fit_weight(*sides), "one_stage_lowest_pi": fit_weight(*sides, one_stage=True)}
    best["most_accurate_pi"] = points.pi[points.accuracy.idxmax()]
    return points.join(scaled.add_prefix("one_stage_")).assign(**best)


def _describe(data: pd.DataFrame) -> str:
    """Describe each curve in a line."""
    curves = data.dropna(subset="accuracy").drop_duplicates(["run", "images"])
    return "\n".join(
        f"{c.run} ({c.dataset}, {c.kind}, seed {c.seed}): pi^in is {c.pi_in:.2f}; on {c.images} images cross-entropy "
        f"is lowest at pi {c.lowest_pi:.2f} ({c.one_stage_lowest_pi:.2f} at the one-stage scale), and accuracy is "
        f"highest at {c.most_accurate_pi:.2f}."
        for c in curves.itertuples()
    )


def _draw(data: pd.DataFrame, style: Style) -> Figure:
    """Return a column for each run: accuracy, cross-entropy and calibration error over pi."""
    figure = style.figure(style.width or PAGE, 0.9 + 1.45 * len(_METRICS), _TITLE)
    # Values of different datasets are not compared, and a shared axis would hide the shapes of the curves.
    share: Any = "row" if data.dataset.nunique() == 1 else False
    grid = figure.subplots(len(_METRICS), data.run.nunique(), squeeze=False, sharex=True, sharey=share)
    for panels, (_, own) in zip(grid.T, data.groupby("run", sort=False), strict=True):
        for axes, metric in zip(panels, _METRICS, strict=True):
            _draw_panel(axes, own, metric)
        run = own.iloc[0]
        lines = f"{run.kind}\n{run.shots} shots, seed {run.seed}\nπⁱⁿ {run.pi_in:.2f}"
        panels[0].set_title(f"{wrap(run.dataset)}\n{lines}", fontsize=8)
        panels[-1].set(xlabel="π of the learned prompt", xlim=(-0.03, 1.03), xticks=[0, 0.5, 1])
    for axes, label in zip(grid[:, 0], _METRICS.values(), strict=True):
        axes.set_ylabel(label)
    name_series(figure, list(grid.flat))
    return figure


def _draw_panel(axes: Any, data: pd.DataFrame, metric: str) -> None:
    """Draw a metric of a run on each set of images, with a dot at its best, and the learned weight."""
    for place, (images, curve) in enumerate(data.dropna(subset=[metric]).groupby("images", sort=False)):
        first, colour = curve.iloc[0], look(place).colour
        # The lowest cross-entropy is known more exactly than the grid.
        exact = {"accuracy": first.most_accurate_pi, "nll": first.lowest_pi}
        lines = [(curve, metric, exact.get(metric, curve.pi[curve[metric].idxmin()]), "-", f"{images} images")]
        # Up to where it rises above its start, because it diverges towards pi = 1.
        scaled = curve[curve.one_stage_nll <= 1.02 * first.one_stage_nll]
        if metric == "nll" and len(scaled):
            lines.append((scaled, "one_stage_nll", first.one_stage_lowest_pi, "--", f"{images}, one-stage scale"))
        for line, column, best, dashes, name in lines:
            axes.plot(line.pi, line[column], dashes, color=colour, label=name)
            axes.plot(best, np.interp(best, line.pi, line[column]), "o", color=colour, clip_on=False, zorder=4)
    axes.axvline(data.pi_in.iloc[0], color=INK, linewidth=1, zorder=1.5, label="πⁱⁿ of the run (dots: best of a curve)")
