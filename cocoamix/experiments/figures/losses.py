"""`losses`: base accuracy by the loss of the learned prompt and its setting; the sensitivity to w and d."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from cocoamix.errors import UserError
from cocoamix.experiments.names import sort_datasets

from . import source
from .kinds import LOSS_KEYS, LOSSES, SECTION, SETTINGS, name_losses, one_kind, own_runs, seeds_in_words, shared
from .source import Choice, Plans
from .style import INK, MUTED, Drawing, Style, look

# Two of the synthetic datasets, and two seeds if there are many settings. --datasets and --seeds can choose more.
_TWO = (("colour_shape", "warm_cool"), (1, 2))
_USUAL = Choice("quick_losses", tuple(LOSSES.values()), _TWO[0])
_ALL, _SWEEPS = Choice("quick_losses", (), *_TWO), Choice("quick_sensitivity", (), *_TWO)
# By part of the figure: its title, and its plans. Both sweeps of the synthetic datasets are in one plan.
_PARTS = {
    "losses": ("Base accuracy by loss", [Plans(_USUAL, Choice("losses"))]),
    "settings": ("Base accuracy by loss and setting", [Plans(_ALL, Choice("losses_sweep"))]),
    "sensitivity": ("Sensitivity to w and d", [Plans(_SWEEPS, Choice(f"sweep_{name}")) for name in "wd"]),
}
_NEED = "base-to-new runs of CoCoAMix with TRAINER.COCOAMIX.ENSEMBLE {} are needed, with several values of {}"
_PAPER = {"w": 5.0, "d": 0.2}  # the values of the paper
_SWEPT = tuple(SECTION + key for key in ("LOSS", "W", "MARGIN", "OUT_CLASSES"))
_POINT = ["w", "d", "out_classes"]


def make(args: argparse.Namespace) -> Iterator[Drawing]:
    """Yield the figures whose runs exist or can be run; print why others are not drawn."""
    drawn = False
    for part in (part for part in _PARTS if part in args.parts):
        title, plans = _PARTS[part]
        frames = [source.find_source(args, choice).frame() for choice in (plans if args.root else plans[:1])]
        runs = pd.concat([frame.runs for frame in frames], ignore_index=True)
        try:
            yield _sensitivity(runs, title) if part == "sensitivity" else _comparison(runs, part, title)
            drawn = True
        except UserError as error:
            print(f"{title} is not drawn: {error}", file=sys.stderr)
    if not drawn:
        raise UserError("There is nothing to draw, for the reasons above. Choose other --runs or other --parts.")


def _last_epochs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that evaluate the model of the last epoch."""
    last = [pd.isna(run.epoch) or run.epoch >= run.settings.get("OPTIM.MAX_EPOCH", 0) for run in runs.itertuples()]
    return runs.assign(accuracy=[metrics["accuracy"] for metrics in runs["metrics"]]).loc[last]


def _comparison(runs: pd.DataFrame, part: str, title: str) -> Drawing:
    """Return the figure of losses, each under one setting or under all of its settings."""
    own = _last_epochs(own_runs(runs, "none"))
    own = name_losses(own[own["subset"] == "base"])
    own = one_kind(own, LOSS_KEYS, ["loss", "setting"], _NEED.format("none", "LOSS"))
    own["value"] = [float(setting.split()[1]) if setting else 0.0 for setting in own["setting"]]
    own["order"] = own["loss"].map(list(LOSSES).index)
    own = own.sort_values(["order", "value"])
    if part == "losses":  # under its default setting
        own = own[own["value"] == own["loss"].map({loss: SETTINGS.get(loss, (0.0,))[-1] for loss in LOSSES})]
    own["loss"] = own["loss"].map(LOSSES)
    own["point"] = [f"{loss} ({setting})" if setting else loss for loss, setting in own[["loss", "setting"]].to_numpy()]
    if own["point"].nunique() == (own["loss"].nunique() if part == "settings" else 1):
        raise UserError(f"the runs have only {', '.join(own['point'].unique())}.")
    shown = common(own, "on base classes")
    means = by_seed(shown).groupby(level="point", sort=False).mean()
    listed = ", ".join(f"{point} {mean:.2f}" for point, mean in means.items())
    sentence = f"Base accuracy in % by loss: {listed}. Highest: {means.idxmax()} ({scope(shown)})."
    data = shown[["loss", "setting", "dataset", "seed", "accuracy"]].rename(columns={"accuracy": "base_accuracy"})
    stem = "losses" if part == "losses" else f"losses-{part}"
    return Drawing(stem, title, sentence, partial(draw_losses, shown, title=title), data)


def common(runs: pd.DataFrame, where: str) -> pd.DataFrame:
    """Return the runs on the datasets and seeds that all points have, in the order of the points."""
    datasets = shared("dataset", dict(iter(runs.groupby("point", sort=False))), where)
    runs = runs[runs["dataset"].isin(datasets)]
    cells = {f"{point} on {dataset}": own for (point, dataset), own in runs.groupby(["point", "dataset"], sort=False)}
    runs = runs[runs["seed"].astype(object).isin(shared("seed", cells, where))]
    orders = {"point": list(runs["point"].unique()), "dataset": sort_datasets(datasets)}
    return runs.sort_values(
        ["point", "dataset", "seed"],
        key=lambda column: column.map(orders[column.name].index) if column.name in orders else column,
    )


def by_seed(runs: pd.DataFrame, column: str = "point") -> pd.Series:
    """Return the mean over datasets by point, or by another column, and seed."""
    return runs.assign(seed=runs["seed"].fillna(-1)).groupby([column, "seed"], sort=False)["accuracy"].mean()


def scope(runs: pd.DataFrame) -> str:
    """Describe the datasets and seeds that averages are over."""
    where = f"average over {', '.join(runs['dataset'].unique())}"
    return f"{where}; {seeds_in_words(runs['seed'].astype(object).unique())}"


def draw_losses(runs: pd.DataFrame, style: Style, title: str = "") -> Figure:
    """Draw a row for each loss and setting: a mark for the mean, a dot for each seed.

    Args:
        runs: A row for each run, with `loss`, `point` (the loss with its setting), `dataset`, `seed` and `accuracy`.
        style: Width and title.
        title: The title.
    """
    losses, points = list(runs["loss"].unique()), runs.drop_duplicates("point").set_index("point")["loss"]
    figure, (axes,) = style.panels(1, 0.6 + 0.24 * len(points), title)
    for place, (point, loss) in enumerate(points.items()):
        colour, seeds = look(losses.index(loss)).colour, by_seed(runs)[point]
        axes.plot(seeds, [place] * len(seeds), ".-", color=colour, linewidth=0.9, markersize=4, alpha=0.7)
        axes.plot(seeds.mean(), place, "D", color=colour)
        beside = axes.get_yaxis_transform()
        axes.text(1.01, place, f"{seeds.mean():.2f}", transform=beside, va="center", fontsize=7)
    axes.set_yticks(range(len(points)), points.index)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_ylim(len(points) - 0.5, -0.5)
    axes.set_xlabel("base accuracy (%), a dot for each seed")
    return figure


def _sensitivity(runs: pd.DataFrame, title: str) -> Drawing:
    """Return the figure of base accuracy over w and of new accuracy over d, as far as there are runs."""
    own = _last_epochs(own_runs(runs, "coa"))
    facts = [{key.removeprefix(SECTION): value for key, value in settings.items()} for settings in own["settings"]]
    losses = pd.Series([fact.get("LOSS", "ce+coa") for fact in facts], own.index)
    own["w"] = [0.0 if fact.get("LOSS") == "ce" else float(fact.get("W", _PAPER["w"])) for fact in facts]
    own["d"] = [float(fact.get("MARGIN", _PAPER["d"])) for fact in facts]
    own["out_classes"] = [str(fact.get("OUT_CLASSES", "word")) for fact in facts]
    own = own[losses.isin(["ce", "ce+coa"]) & own["subset"].isin(["base", "new"])]
    need = _NEED.format("coa", "W or of MARGIN")
    own = one_kind(own, _SWEPT, _POINT, need)
    panels = [panel for panel in (_sweep(own, symbol) for symbol in ("w", "d")) if panel["point"].nunique() > 1]
    if not panels:
        raise UserError(f"{need}.")
    shown = pd.concat(panels, ignore_index=True)
    data = shown[["panel", *_POINT, "baseline", "subset", "dataset", "seed", "accuracy"]]
    sentence = " ".join(map(_describe_sweep, panels))
    return Drawing("losses-sensitivity", title, sentence, partial(draw_sweeps, shown, title=title), data)


def _sweep(runs: pd.DataFrame, symbol: str) -> pd.DataFrame:
    """Return the runs over w (on base classes, with w = 0 as the baseline) or over d (on new ones, without pi^out)."""
    fixed, subset = ("d", "base") if symbol == "w" else ("w", "new")
    own = runs[runs["subset"] == subset]
    own = own[own[fixed].isin(own.groupby(fixed)[symbol].nunique().nlargest(1).index)]
    named = own["out_classes"].ne("none")
    usual = own["out_classes"].isin(own.loc[named, "out_classes"].mode()[:1])
    baseline = usual & own["w"].eq(0) if symbol == "w" else ~named
    points = own[_POINT].astype(str).agg(" ".join, axis=1)
    own = own.assign(panel=symbol, baseline=baseline.astype(int), point=points)
    line = own[usual & ~baseline].sort_values(symbol)
    both = pd.concat([line, own[baseline]])
    return common(both, f"on {subset} classes") if len(line) else line


def _describe_sweep(runs: pd.DataFrame) -> str:
    """Describe the accuracies of a panel."""
    symbol, subset = runs["panel"].iloc[0], runs["subset"].iloc[0]
    means = runs.groupby(["baseline", symbol])["accuracy"].mean()
    names = {0: f"at {symbol} {{:g}}", 1: "with CE alone" if symbol == "w" else "without pi^out"}
    listed = [f"{mean:.2f} {names[baseline].format(value)}" for (baseline, value), mean in means.items()]
    return f"{subset.capitalize()} accuracy in %: {', '.join(listed)} ({scope(runs)})."


def draw_sweeps(runs: pd.DataFrame, style: Style, title: str = "") -> Figure:
    """Draw a panel for w and one for d: a line of means, a dot for each seed, a dashed line for the baseline.

    Args:
        runs: A row for each run, with `panel` (w or d), `w`, `d`, `baseline` (0 or 1), `subset`, `dataset`, `seed`,
            `accuracy` and `point` (its settings).
        style: Width and title.
        title: The title.
    """
    groups = list(runs.groupby("panel", sort=False))
    figure, panels = style.panels(len(groups), 2.2, title)
    for place, (axes, (symbol, own)) in enumerate(zip(panels, groups, strict=True)):
        _draw_sweep(axes, str(symbol), own, place)
    return figure


def _draw_sweep(axes: Any, symbol: str, runs: pd.DataFrame, place: int) -> None:
    shown, seeds = look(place), by_seed(runs[runs["baseline"] == 0], symbol)
    axes.plot(seeds.index.get_level_values(symbol), seeds, ".", color=shown.colour, markersize=3.5, alpha=0.7)
    means = seeds.groupby(level=symbol).mean()
    axes.plot(means.index, means, marker=shown.marker, color=shown.colour)
    for level in runs.loc[runs["baseline"] == 1].groupby("panel")["accuracy"].mean():
        axes.axhline(level, color=MUTED, linestyle="--", linewidth=1)
        where = {"transform": axes.get_yaxis_transform(), "ha": "right", "va": "bottom", "fontsize": 7}
        axes.text(1, level, "CE (w = 0)" if symbol == "w" else "without πᵒᵘᵗ", **where, color=MUTED)
    axes.set_xticks(means.index, [f"{value:g}" for value in means.index])
    axes.margins(x=0.06, y=0.12)
    axes.set_xlabel("weight w of the CoA-loss" if symbol == "w" else "margin d")
    axes.set_ylabel(f"accuracy on {runs['subset'].iloc[0]} classes (%)")
