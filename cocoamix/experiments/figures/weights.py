"""`weights`: accuracy, cross-entropy and calibration error of CoCoA-Mix over the weight pi of the learned prompt."""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cocoamix.errors import UserError

from . import source
from .source import Choice, Plans
from .style import INK, MUTED, PAGE, Drawing, Style, add_legend, look, wrap

if TYPE_CHECKING:
    from torch import Tensor

    from cocoamix.run.recorded import RecordedRun

ABOUT = (
    "Accuracy, cross-entropy and calibration error of the mixture over the weight pi of the learned prompt, on "
    "training images and on test images of the trained classes."
)
TIME = "about a minute on two cores"
_TITLE = "CoCoA-Mix over the weight of the learned prompt"
_PLANS = Plans(
    Choice("quick_weights", ("one stage", "two stages", "held-out"), ("round_angular",), (1,)),
    Choice("weights", ("pi^in and pi^out", "pi^in and pi^out, two stages"), ("eurosat",), (1,)),
)
GRID = tuple(number / 50 for number in range(51))
_VIEWS = 10  # augmentations of each training image: enough for an average, even if training used more
_TRAINING, _HELDOUT = "training", "held-out"
_METRICS = {"accuracy": "accuracy in %", "nll": "cross-entropy in nats", "ece": "calibration error in %"}
_BEST = {"accuracy": "most_accurate_pi", "nll": "lowest_pi"}
_DASHES = (0, (4, 2))
_HEIGHT, _NARROWEST = 1.45, 1.6  # inches: of a panel
_RUN = ["run", "dataset", "kind", "shots", "seed", "pi_in"]
_CURVE = ["images", "lowest_pi", "one_stage_lowest_pi", "most_accurate_pi"]
COLUMNS = [*_RUN, *_CURVE, "pi", "accuracy", "nll", "ece", "one_stage_nll", "one_stage_ece"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose the runs."""
    source.add_arguments(parser, _PLANS)


def make(args: argparse.Namespace) -> Iterator[Drawing]:
    """Yield figures of the curves, each with as many runs as fit side by side."""
    folders = dict.fromkeys(source.find_trained(args, _PLANS).folders)
    runs = [_find_run(folder) for folder in folders]  # all are checked before the first computation
    curves = [_compute(_open(run, args.root or ""), str(run.folder)) for run in runs]
    across = int((getattr(args, "width", None) or PAGE) / _NARROWEST)
    for start, stem in zip(range(0, len(curves), across), source.stems("weights-over-pi"), strict=False):
        data = pd.concat(curves[start : start + across], ignore_index=True)
        yield Drawing(stem, _TITLE, _describe(data), partial(_draw, data), data)


# ---------------------------------------------------------------------------------------- the numbers


def _find_run(folder: Path) -> RecordedRun:
    """Return the run in a folder; refuse a run without learned weights."""
    from cocoamix.config.settings import flatten
    from cocoamix.run import recorded

    run = recorded.find_run(folder, needs_results=True)
    ensemble = flatten(run.config).get("TRAINER.COCOAMIX.ENSEMBLE", "coa")
    if run.trainer != "CoCoAMix" or ensemble != "coa":
        what = f"with ENSEMBLE {ensemble}" if run.trainer == "CoCoAMix" else "without a mixture"
        raise UserError(
            f"The run in {folder} is a {run.trainer} run {what}, which has no learned weights. Give the output folder "
            "of a CoCoAMix run with TRAINER.COCOAMIX.ENSEMBLE coa."
        )
    if run.trained is None:
        raise UserError(recorded.no_checkpoint(folder))
    return run


def _open(run: RecordedRun, root: str) -> Any:
    """Return the trainer of a run with its data and checkpoint; `root` is where the datasets are now."""
    # The trainers register themselves before dassl is used.
    import cocoamix.datasets
    import cocoamix.trainers  # noqa: F401

    # isort: split
    from dassl.config import get_cfg_default
    from dassl.engine import build_trainer
    from dassl.utils import set_random_seed

    from cocoamix.config import keys
    from cocoamix.datasets.common.writing import write_nothing
    from cocoamix.run.recorded import configuration

    try:
        cfg = configuration(run, get_cfg_default())
        cfg.DATASET.ROOT = root or cfg.DATASET.ROOT
        keys.check_common(cfg)
        cfg.freeze()
        if cfg.SEED >= 0:
            set_random_seed(cfg.SEED)
        with contextlib.redirect_stdout(io.StringIO()), write_nothing():  # hides the log of the trainer
            trainer = build_trainer(cfg)
            trainer.load_model(str(run.trained), epoch=run.epoch)
            trainer.set_model_mode("eval")
        _check_images(run.origin, trainer)
    except UserError as error:
        raise UserError(f"The run in {run.folder} cannot be drawn. {error}") from error
    return trainer


def _check_images(origin: Mapping[str, Any], trainer: Any) -> None:
    """Refuse a dataset that has changed since the run: the weights were fitted to other images."""
    then, now = (origin.get("protocol") or {}).get("splits", {}), trainer.protocol["splits"]
    for split in ("train", "test"):
        if split in then and then[split] != now[split]:
            raise UserError(
                f"The {split} images of {trainer.cfg.DATASET.NAME} are not those of the run: files, labels or the "
                "few-shot draw differ. Restore them, or give their folder with --root."
            )


def _compute(trainer: Any, folder: str) -> pd.DataFrame:
    """Return the mixture over pi on training, evaluated and held-out images, in the columns of the figure."""
    import torch

    from cocoamix.registry import plain_name

    split = trainer.cfg.TEST.SPLIT
    with torch.no_grad():
        encoded = [(trainer.encode(inputs), labels) for inputs, labels in trainer.test_batches(split)]
        evaluated = [torch.cat(side) for side in zip(*encoded, strict=True)]
        hand_crafted, learned = (side.t() for side in (trainer.hand_crafted_features(), trainer.text_features()))
        curves = [
            _curve(name, features @ hand_crafted, features @ learned, labels, trainer.clip.logit_scale)
            for name, (features, labels) in ((_TRAINING, trainer.training_features(_VIEWS)), (split, evaluated))
        ]
    fitted, pi_in = trainer.fitted(), trainer.learned_pi()[0]
    if heldout := fitted.get("curve"):
        curve = pd.DataFrame(heldout, columns=["pi", "nll"], dtype=float)
        curves.append(curve.assign(images=_HELDOUT, lowest_pi=pi_in))
    kind = "one stage" if trainer.settings.STAGE == "one" else "held-out" if heldout else "two stages"
    cfg = trainer.cfg.DATASET
    run = [folder, plain_name(cfg.NAME), kind, int(cfg.NUM_SHOTS), int(trainer.seed), pi_in]
    return pd.concat(curves, ignore_index=True).assign(**dict(zip(_RUN, run, strict=True)))[COLUMNS]


def _curve(images: str, hand_crafted: Tensor, learned: Tensor, labels: Tensor, logit_scale: float) -> pd.DataFrame:
    """Return the mixture over GRID at CLIP's temperature, and at the scale of the one-stage form, which ends before 1.

    Args:
        images: The name of the images.
        hand_crafted: (N, C) similarities of the hand-crafted prompt.
        learned: (N, C) similarities of the learned prompt.
        labels: (N,) labels.
        logit_scale: CLIP's 1/tau.
    """
    from cocoamix.coa.calibration import curve_over_pi
    from cocoamix.coa.heldout import fit_weight

    if not hand_crafted.isfinite().all() or not learned.isfinite().all():
        raise UserError(f"The similarities of the {images} images are not finite: the model has diverged.")
    sides = hand_crafted.double().cpu(), learned.double().cpu(), labels.cpu(), logit_scale
    points = pd.DataFrame(curve_over_pi(*sides, GRID))
    one_stage = pd.DataFrame(curve_over_pi(*sides, GRID[:-1], one_stage=True))[["nll", "ece"]]
    lowest, scaled = fit_weight(*sides), fit_weight(*sides, one_stage=True)
    best = [images, lowest, scaled, points.pi[points.accuracy.idxmax()]]
    return points.join(one_stage.add_prefix("one_stage_")).assign(**dict(zip(_CURVE, best, strict=True)))


def _describe(data: pd.DataFrame) -> str:
    """Describe the curves of each run in a line."""
    lines = []
    for (run, dataset, kind, _, seed, pi_in), curves in data.groupby(_RUN, sort=False):
        first = curves[curves.images != _HELDOUT].groupby("images", sort=False).first()
        lowest = " and ".join(f"{row.lowest_pi:.2f} on {row.Index} images" for row in first.itertuples())
        scaled, accurate = (
            " and ".join(f"{pi:.2f}" for pi in first[column]) for column in ("one_stage_lowest_pi", "most_accurate_pi")
        )
        name = "held-out" if kind == _HELDOUT else "learned"
        lines.append(
            f"{run} ({dataset}, {kind}, seed {seed}): the {name} pi^in is {pi_in:.2f}; the cross-entropy is lowest at "
            f"pi {lowest} at CLIP's temperature, and at {scaled} with the scale of the one-stage form. The accuracy "
            f"is highest at {accurate}."
        )
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------- the figure


def _draw(data: pd.DataFrame, style: Style) -> Figure:
    """Return a column for each run: accuracy, cross-entropy and calibration error over pi."""
    runs = data.drop_duplicates("run")
    # Values of different datasets are not compared, and a shared axis would hide the shapes of the curves.
    share: Any = "row" if runs.dataset.nunique() == 1 else False
    figure = style.figure(style.width or PAGE, 0.9 + len(_METRICS) * _HEIGHT, _TITLE)
    grid = figure.subplots(len(_METRICS), len(runs), squeeze=False, sharex=True, sharey=share)
    for panels, run in zip(grid.T, runs.itertuples(), strict=True):
        same = (runs.dataset == run.dataset) & (runs.shots == run.shots) & (runs.seed == run.seed)
        others = runs[same & (runs.kind == _HELDOUT) & (runs.run != run.run)]
        for axes, metric in zip(panels, _METRICS, strict=True):
            _draw_panel(axes, data[data.run == run.run], metric)
            axes.axvline(run.pi_in, color=INK, linewidth=1, zorder=1.5)
            for pi in others.pi_in:
                axes.axvline(pi, color=look(2).colour, linestyle=":", linewidth=1.3, zorder=1.4)
        _name_run(panels[0], run)
        panels[-1].set_xlabel("π of the learned prompt")
    for axes, label in zip(grid[:, 0], _METRICS.values(), strict=True):
        axes.set_ylabel(label)
    figure.align_ylabels(list(grid[:, 0]))
    _add_legend(figure, data)
    return figure


def _draw_panel(axes: Any, data: pd.DataFrame, metric: str) -> None:
    """Draw a metric of a run on each set of images, with a mark at its best."""
    for place, (_, curve) in enumerate(data.dropna(subset=[metric]).groupby("images", sort=False)):
        colour, first = look(place).colour, curve.iloc[0]
        axes.plot(curve.pi, curve[metric], color=colour)
        # The lowest cross-entropy is known more exactly than the grid.
        best = curve.pi[curve.ece.idxmin()] if metric == "ece" else first[_BEST[metric]]
        _mark(axes, best, curve, metric, colour)
        scaled = curve.dropna(subset=["one_stage_nll"])
        if metric == "nll" and len(scaled):
            # Up to where it rises above its start, because it diverges towards pi = 1.
            shown = scaled[scaled.one_stage_nll <= 1.02 * scaled.one_stage_nll.iloc[0]]
            axes.plot(shown.pi, shown.one_stage_nll, color=colour, linestyle=_DASHES, linewidth=1.1)
            if first.one_stage_lowest_pi <= scaled.pi.max():
                _mark(axes, first.one_stage_lowest_pi, scaled, "one_stage_nll", colour)
    axes.set_xlim(-0.03, 1.03)
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])


def _mark(axes: Any, pi: float, curve: pd.DataFrame, metric: str, colour: str) -> None:
    height = np.interp(pi, curve.pi, curve[metric])
    axes.plot(pi, height, "o", color=colour, clip_on=False, zorder=4)


def _name_run(axes: Any, run: Any) -> None:
    """Write the name of the run above its column, and its weight above the line that marks it."""
    shots = f"{run.shots} shots" if run.shots > 0 else "all images"
    axes.set_title(f"{wrap(run.dataset)}\n{run.kind}\n{shots}, seed {run.seed}", pad=16, fontsize=8)
    side = "left" if run.pi_in < 0.2 else "right" if run.pi_in > 0.8 else "center"
    place = {"xy": (run.pi_in, 1), "xycoords": axes.get_xaxis_transform()}
    shift = {"xytext": (0, 3), "textcoords": "offset points"}
    axes.annotate(f"πⁱⁿ {run.pi_in:.2f}", **place, **shift, ha=side, va="bottom", fontsize=7.5)


def _add_legend(figure: Figure, data: pd.DataFrame) -> None:
    """Name the curves, the marks and the lines."""
    evaluated = data.images[~data.images.isin([_TRAINING, _HELDOUT])].unique()  # test, or val
    heldout = (data.kind == _HELDOUT).any()
    names = ["training, augmented", " or ".join(evaluated), *(["training, held out"] if heldout else [])]
    handles = [Line2D([], [], color=look(place).colour) for place in range(len(names))]
    names += ["at the one-stage scale", "best of a curve", "πⁱⁿ of the run"]
    handles.append(Line2D([], [], color=MUTED, linestyle=_DASHES, linewidth=1.1))
    handles.append(Line2D([], [], color=MUTED, marker="o", linestyle=""))
    handles.append(Line2D([], [], color=INK, linewidth=1))
    if heldout and (data.kind != _HELDOUT).any():
        names.append("πⁱⁿ held out")
        handles.append(Line2D([], [], color=look(2).colour, linestyle=":", linewidth=1.3))
    add_legend(figure, handles, names)
