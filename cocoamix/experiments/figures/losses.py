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

_PARTS = {
    "losses": "Base accuracy by loss",
    "settings": "Base accuracy by loss and setting",
    "sensitivity": "Sensitivity to w and d",
}
# Two of the synthetic datasets, and two seeds if there are many settings. --datasets and --seeds can choose more.
_SYNTHETIC, _TWO = ("colour_shape", "warm_cool"), (1, 2)
_PLANS = {
    "losses": [Plans(Choice("quick_losses", tuple(LOSSES.values()), _SYNTHETIC), Choice("losses"))],
    "settings": [Plans(Choice("quick_losses", (), _SYNTHETIC, _TWO), Choice("losses_sweep"))],
    "sensitivity": [
        Plans(Choice("quick_sensitivity", (), _SYNTHETIC, _TWO), Choice("sweep_w")),
        Plans(Choice("quick_sensitivity", (), _SYNTHETIC, _TWO), Choice("sweep_d")),
    ],
}
_NEED_LOSSES = (
    "base-to-new runs of CoCoAMix with TRAINER.COCOAMIX.ENSEMBLE none are needed, with several values of LOSS"
)
_NEED_SWEEPS = (
    "base-to-new runs of CoCoAMix with TRAINER.COCOAMIX.ENSEMBLE coa are needed, with several values of W or of MARGIN"
)
_PAPER = {"w": 5.0, "d": 0.2}  # the values of the paper
_SWEPT = tuple(SECTION + key for key in ("LOSS", "W", "MARGIN", "OUT_CLASSES"))


def make(args: argparse.Namespace) -> Iterator[Drawing]:
    """Yield the figures whose runs exist or can be run."""
    named = source.find_source(args, _PLANS["losses"][0]).frame().runs if args.runs else None
    drawn = False
    for part in (part for part in _PARTS if part in args.parts):
        runs = named if named is not None else _run_plans(args, part)
        try:
            yield _sensitivity(runs) if part == "sensitivity" else _comparison(runs, part)
            drawn = True
        except UserError as error:  # other parts can still be drawn
            _note_not_drawn(_PARTS[part], error)
    if not drawn:
        advice = "Give the folders of such runs, or leave out --runs." if args.runs else "Choose other --parts."
        raise UserError(f"There is nothing to draw, for the reasons above. {advice}")


def _run_plans(args: argparse.Namespace, part: str) -> pd.DataFrame:
    """Run the plans of a part and return their runs. On synthetic datasets, both sweeps are in one plan."""
    plans = _PLANS[part] if args.root else _PLANS[part][:1]
    return pd.concat([source.find_source(args, choice).frame().runs for choice in plans], ignore_index=True)


def _note_not_drawn(title: str, reason: UserError) -> None:
    print(f"{title} is not drawn: {str(reason).removesuffix('.')}.", file=sys.stderr)


# ---------------------------------------------------------------------------------------- losses


def _comparison(runs: pd.DataFrame, part: str) -> Drawing:
    """Return the figure of losses, each under one setting or under all of its settings."""
    own = _last_epochs(own_runs(runs, "none"))
    own = one_kind(name_losses(own[own["subset"] == "base"]), LOSS_KEYS, ["loss", "setting"], _NEED_LOSSES)
    values = [float(setting.split()[1]) if setting else 0.0 for setting in own["setting"]]
    defaults = [SETTINGS[loss][2] if loss in SETTINGS else 0.0 for loss in own["loss"]]
    own = own.assign(value=values, gap=[abs(a - b) for a, b in zip(values, defaults, strict=True)])
    order = {loss: place for place, loss in enumerate(LOSSES)}
    own = own.sort_values(["loss", "value"], key=lambda column: column.map(order) if column.name == "loss" else column)
    if part == "losses":  # the default setting, or the available one nearest to it
        nearest = own.sort_values(["gap", "value"], kind="stable").drop_duplicates("loss")
        own = own[(own["loss"] + own["setting"]).isin(nearest["loss"] + nearest["setting"])]
    elif not own.drop_duplicates(["loss", "setting"])["loss"].duplicated().any():
        raise UserError("there is no loss with several settings")
    own = own.assign(loss=own["loss"].map(LOSSES))
    own["point"] = [f"{loss} ({setting})" if setting else loss for loss, setting in own[["loss", "setting"]].to_numpy()]
    if own["point"].nunique() < 2:
        raise UserError(f"there is only one loss, {own['loss'].iloc[0]}")
    shown = common(own, "on base classes")
    means = by_seed(shown).groupby(level="point", sort=False).mean()
    listed = ", ".join(f"{point} {mean:.2f}" for point, mean in means.items())
    sentence = f"Base accuracy in % by loss: {listed}. Highest: {means.idxmax()} ({scope(shown)})."
    stem = "losses" if part == "losses" else f"losses-{part}"
    data = shown[["loss", "setting", "dataset", "seed", "accuracy"]].rename(columns={"accuracy": "base_accuracy"})
    return Drawing(stem, _PARTS[part], sentence, partial(draw_losses, shown, title=_PARTS[part]), data)


def _last_epochs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that evaluate the model of the last epoch."""
    last = [pd.isna(run.epoch) or run.epoch >= run.settings.get("OPTIM.MAX_EPOCH", 0) for run in runs.itertuples()]
    accuracy = [metrics["accuracy"] for metrics in runs["metrics"]]
    return runs.assign(accuracy=accuracy).loc[last]


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


def by_seed(runs: pd.DataFrame) -> pd.Series:
    """Return the mean over datasets by point and seed."""
    return runs.assign(seed=runs["seed"].fillna(-1)).groupby(["point", "seed"], sort=False)["accuracy"].mean()


def scope(runs: pd.DataFrame) -> str:
    """Describe the datasets and seeds that averages are over."""
    datasets, seeds = list(runs["dataset"].unique()), runs["seed"].astype(object).unique()
    where = datasets[0] if len(datasets) == 1 else f"average over {', '.join(datasets)}"
    return f"{where}; {seeds_in_words(seeds)}"


def draw_losses(runs: pd.DataFrame, style: Style, title: str = "") -> Figure:
    """Draw a row for each loss and setting: a mark for the mean, a dot for each seed.

    Args:
        runs: A row for each run, with `loss`, `point` (the loss with its setting), `dataset`, `seed` and `accuracy`.
        style: Width and title.
        title: The title.
    """
    values, points = by_seed(runs), list(runs["point"].unique())
    losses = list(runs["loss"].unique())
    figure, (axes,) = style.panels(1, 0.6 + 0.24 * len(points), title)
    for place, point in enumerate(points):
        colour = look(losses.index(runs.loc[runs["point"] == point, "loss"].iloc[0])).colour
        seeds = values[point]
        axes.plot(seeds, [place] * len(seeds), ".-", color=colour, linewidth=0.9, markersize=4, alpha=0.7)
        axes.plot(seeds.mean(), place, "D", color=colour)
        where = {"x": 1.01, "transform": axes.get_yaxis_transform()}
        axes.text(y=place, s=f"{seeds.mean():.2f}", **where, va="center", fontsize=7, color=INK)
    axes.set_yticks(range(len(points)), points)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_ylim(len(points) - 0.5, -0.5)
    axes.set_xlabel("base accuracy (%), a dot for each seed")
    return figure


# ---------------------------------------------------------------------------------------- sensitivity


def _sensitivity(runs: pd.DataFrame) -> Drawing:
    """Return the figure of base accuracy over w and of new accuracy over d, as far as there are runs."""
    own = _last_epochs(own_runs(runs, "coa"))
    facts = [{key.removeprefix(SECTION): value for key, value in settings.items()} for settings in own["settings"]]
    losses = pd.Series([fact.get("LOSS", "ce+coa") for fact in facts], own.index)
    own = own.assign(
        w=[0.0 if fact.get("LOSS") == "ce" else float(fact.get("W", _PAPER["w"])) for fact in facts],
        d=[float(fact.get("MARGIN", _PAPER["d"])) for fact in facts],
        out_classes=[str(fact.get("OUT_CLASSES", "word")) for fact in facts],
    )[losses.isin(["ce", "ce+coa"]) & own["subset"].isin(["base", "new"])]
    own = one_kind(own, _SWEPT, ["w", "d", "out_classes"], _NEED_SWEEPS)
    panels, reasons = [], []
    for symbol in ("w", "d"):
        try:
            panels.append(_sweep(own, symbol))
        except UserError as error:
            reasons.append((symbol, error))
    panels = [panel for panel in panels if len(panel)]
    if not panels:
        raise UserError(" ".join(str(reason) for _, reason in reasons) or _NEED_SWEEPS)
    for symbol, reason in reasons:
        _note_not_drawn(f"Sensitivity to {symbol}", reason)
    shown = pd.concat(panels, ignore_index=True)
    columns = ["panel", "w", "d", "out_classes", "baseline", "subset", "dataset", "seed", "accuracy"]
    title = _PARTS["sensitivity"]
    sentence = " ".join(map(_describe_sweep, panels))
    return Drawing("losses-sensitivity", title, sentence, partial(draw_sweeps, shown, title=title), shown[columns])


def _sweep(runs: pd.DataFrame, symbol: str) -> pd.DataFrame:
    """Return the runs over w (on base classes, with w = 0 as the baseline) or over d (on new ones, without pi^out)."""
    fixed, subset = ("d", "base") if symbol == "w" else ("w", "new")
    points = runs.drop_duplicates(["w", "d", "out_classes"])["out_classes"]
    usual = points[points != "none"].sort_values().value_counts(sort=False)
    there = runs[runs["subset"] == subset]
    own = there[there["out_classes"] == (usual.idxmax() if len(usual) else "")]
    counts = own.groupby(fixed)[symbol].nunique()
    if counts.empty:
        return own
    value = max(counts.index, key=lambda value: (counts[value], -abs(value - _PAPER[fixed])))
    line = own[own[fixed] == value].sort_values(symbol)
    dashed = line[line["w"] == 0] if symbol == "w" else there[there["out_classes"].eq("none") & there["w"].eq(value)]
    line = line[line["w"] > 0] if symbol == "w" else line
    dashed = dashed[dashed["d"] == dashed["d"].min()]
    both = pd.concat([line.assign(baseline=0), dashed.assign(baseline=1)]).assign(panel=symbol)
    if line.empty or len(both.drop_duplicates(["w", "d", "out_classes"])) < 2:
        return both.iloc[:0]
    words = both[["w", "d", "out_classes"]].to_numpy()
    return common(
        both.assign(point=[f"w {w:g} with d {d:g} and out-classes {out}" for w, d, out in words]),
        f"on {subset} classes",
    )


def _describe_sweep(runs: pd.DataFrame) -> str:
    """Describe the accuracies of a panel."""
    symbol, subset = runs["panel"].iloc[0], runs["subset"].iloc[0]
    line, dashed = runs[runs["baseline"] == 0], runs[runs["baseline"] == 1]
    means = line.groupby(symbol)["accuracy"].mean()
    listed = ", ".join(f"{mean:.2f} at {symbol} {value:g}" for value, mean in means.items())
    what = "with CE alone" if symbol == "w" else "without pi^out"
    last = f"; {dashed['accuracy'].mean():.2f} {what}" if len(dashed) else ""
    return f"{subset.capitalize()} accuracy in %: {listed}{last} ({scope(runs)})."


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
    line, dashed, shown = runs[runs["baseline"] == 0], runs[runs["baseline"] == 1], look(place)
    seeds = line.assign(seed=line["seed"].fillna(-1)).groupby([symbol, "seed"])["accuracy"].mean()
    axes.plot(seeds.index.get_level_values(symbol), seeds, ".", color=shown.colour, markersize=3.5, alpha=0.7)
    means = seeds.groupby(level=symbol).mean()
    axes.plot(means.index, means, marker=shown.marker, color=shown.colour)
    if len(dashed):
        level = dashed["accuracy"].mean()
        axes.axhline(level, color=MUTED, linestyle="--", linewidth=1)
        shift = {"xytext": (0, 3), "textcoords": "offset points"}
        where = {"xy": (1, level), "xycoords": axes.get_yaxis_transform()}
        name = "CE (w = 0)" if symbol == "w" else "without πᵒᵘᵗ"
        axes.annotate(name, **where, **shift, ha="right", fontsize=7, color=MUTED)
    axes.set_xticks(means.index, [f"{value:g}" for value in means.index])
    axes.margins(x=0.06, y=0.12)
    axes.set_xlabel("weight w of the CoA-loss" if symbol == "w" else "margin d")
    axes.set_ylabel(f"accuracy on {runs['subset'].iloc[0]} classes (%)")
