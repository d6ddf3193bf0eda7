"""Base accuracy by loss (`losses`) and by its setting (`settings`), and the `sensitivity` of CoCoA-Mix to w and d."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial

import pandas as pd

from cocoamix.config import roles
from cocoamix.errors import UserError
from cocoamix.registry import plain_name

from ..names import simplify, sort_datasets
from . import source
from .charts import draw_lines, draw_rows, over_seeds
from .source import Choice, Plans
from .style import Drawing

SECTION = "TRAINER.COCOAMIX."
# The losses of the learned prompt with their names in figures, in the paper's order.
LOSSES = {"focal": "focal", "gce": "GCE", "ce": "CE", "ce+mae": "CE + MAE", "coa": "CoA", "ce+coa": "CE + CoA"}
LOSS_KEYS = tuple(SECTION + key for key in ("LOSS", "W", "GAMMA", "Q"))
# The key of a loss's hyperparameter, and its symbol.
_SETTINGS = {"focal": ("GAMMA", "\u03b3"), "gce": ("Q", "q"), "ce+mae": ("W", "w"), "ce+coa": ("W", "w")}
_READ = ("ENSEMBLE", "LOSS", "W", "GAMMA", "Q", "MARGIN", "OUT_CLASSES")

# Two of the synthetic datasets, and two seeds if there are many settings. --datasets and --seeds can choose more.
_TWO = ("colour_shape", "warm_cool")
_PLANS = {
    "losses": Plans([Choice("quick_losses", tuple(LOSSES.values()), _TWO)], [Choice("losses")]),
    "settings": Plans([Choice("quick_losses", (), _TWO, (1, 2))], [Choice("losses_sweep")]),
    "sensitivity": Plans([Choice("quick_sensitivity", (), _TWO, (1, 2))], [Choice("sweep_w"), Choice("sweep_d")]),
}
_TITLES = {
    "losses": "Base accuracy by loss",
    "settings": "Base accuracy by loss and setting",
    "sensitivity": "Sensitivity to w and d",
}


def make(args: argparse.Namespace) -> Iterator[Drawing]:
    """Yield the figure that the arguments name."""
    frame = source.find_frame(args, _PLANS[args.figure])
    runs = prompts(frame.runs, "coa" if args.figure == "sensitivity" else "none")
    last = [pd.isna(run.epoch) or run.epoch >= run.settings.get("OPTIM.MAX_EPOCH", 0) for run in runs.itertuples()]
    draw = _sensitivity if args.figure == "sensitivity" else _comparison
    yield source.captioned(draw(runs[last], args.figure), frame, runs[last])


def prompts(runs: pd.DataFrame, ensemble: str) -> pd.DataFrame:
    """Return the base-to-new runs of CoCoA-Mix with one kind of ensemble: coa, uniform or none.

    They have their `accuracy`, the settings of the method under the ends of their keys, the `value` of the loss's
    hyperparameter and, in words, its `setting`.
    """
    own = runs[runs["task"].eq("base2new") & runs["subset"].isin(["base", "new"])]
    own = own[[simplify(plain_name(trainer)) == "cocoamix" for trainer in own["trainer"]]]
    for key in _READ:
        default = roles.find(SECTION + key).default
        own = own.assign(**{key: [settings.get(SECTION + key, default) for settings in own["settings"]]})
    own = own[own["ENSEMBLE"].eq(ensemble) & own["LOSS"].isin(list(LOSSES))]
    if own.empty:
        raise UserError(f"Base-to-new runs of CoCoAMix with {SECTION}ENSEMBLE {ensemble} are needed. There are none.")
    pairs = [_SETTINGS.get(run.LOSS, ("", "")) for run in own.itertuples()]
    values = [getattr(run, key) if key else 0.0 for run, (key, _) in zip(own.itertuples(), pairs, strict=True)]
    words = [f"{symbol} {value:g}" if symbol else "" for value, (_, symbol) in zip(values, pairs, strict=True)]
    accuracies = [metrics["accuracy"] for metrics in own["metrics"]]
    return own.assign(value=values, setting=words, accuracy=accuracies)


def common(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the newest runs on the datasets and seeds that all points have, in the order of the points."""
    newest = runs.sort_values(["written", "folder"]).drop_duplicates(["point", "dataset", "seed"], keep="last")
    shared = source.complete(newest, ["dataset", "seed"], ["point"])
    shared = source.complete(shared, ["seed"], ["point", "dataset"])
    orders = {"point": list(runs["point"].unique()), "dataset": sort_datasets(runs["dataset"])}
    return shared.sort_values(
        ["point", "dataset", "seed"], key=lambda own: own.map(orders[own.name].index) if own.name in orders else own
    )


def _by_seed(runs: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Return the means over datasets, as `value`, by columns and seed."""
    return runs.groupby([*columns, "seed"], sort=False)["accuracy"].mean().rename("value").reset_index()


def _scope(runs: pd.DataFrame) -> str:
    """Describe the datasets and seeds that averages are over."""
    return f"average over {', '.join(runs['dataset'].unique())}; seeds {', '.join(map(str, runs['seed'].unique()))}"


def _comparison(runs: pd.DataFrame, name: str) -> Drawing:
    """Return the figure of losses, each under its default setting or under all of its settings."""
    own = runs[runs["subset"] == "base"]
    source.check_alike(own, LOSS_KEYS)
    if name == "losses":
        defaults = {loss: roles.find(SECTION + key).default for loss, (key, _) in _SETTINGS.items()}
        own = own[own["value"] == own["LOSS"].map(defaults).fillna(0.0)]
    own = own.assign(loss=own["LOSS"].map(LOSSES), order=own["LOSS"].map(list(LOSSES).index))
    own = own.sort_values(["order", "value"])
    own["point"] = own["loss"] + [f" ({setting})" if setting else "" for setting in own["setting"]]
    if own["point"].nunique() < 2:
        raise UserError(f"The figure compares {SECTION}LOSS; the runs have only {', '.join(own['point'].unique())}.")
    shown = common(own)
    means = shown.groupby("point", sort=False)["accuracy"].mean()
    listed = ", ".join(f"{point} {mean:.2f}" for point, mean in means.items())
    sentence = f"Base accuracy in % by loss: {listed}. Highest: {means.idxmax()} ({_scope(shown)})."
    rows = _by_seed(shown, "point", "loss").rename(columns={"point": "row", "loss": "series"})
    words = "base accuracy (%), a dot for each seed"
    drawn = partial(draw_rows, rows, title=_TITLES[name], x_label=words, note=lambda own: f"{own.mean():.2f}")
    data = shown[["loss", "setting", "dataset", "seed", "accuracy"]].rename(columns={"accuracy": "base_accuracy"})
    return Drawing(name, _TITLES[name], sentence, drawn, data)


def _sensitivity(runs: pd.DataFrame, name: str) -> Drawing:
    """Return the figure of base accuracy over w and of new accuracy over d, as far as there are runs."""
    own = runs[runs["LOSS"].isin(["ce", "ce+coa"])]
    own = own.assign(w=own["W"].where(own["LOSS"] != "ce", 0.0), d=own["MARGIN"], out_classes=own["OUT_CLASSES"])
    source.check_alike(own, [SECTION + key for key in ("LOSS", "W", "MARGIN", "OUT_CLASSES")])
    panels = [panel for panel in (_sweep(own, "w"), _sweep(own, "d")) if panel["point"].nunique() > 1]
    if not panels:
        raise UserError(f"The figure needs runs with several values of {SECTION}W or of {SECTION}MARGIN.")
    shown = pd.concat(panels, ignore_index=True)
    columns = ["panel", "w", "d", "out_classes", "baseline", "subset", "dataset", "seed", "accuracy"]
    sentences, lines = [], {}
    for panel in panels:
        symbol, subset = panel["panel"].iloc[0], panel["subset"].iloc[0]
        baseline = "CE alone" if symbol == "w" else "without πᵒᵘᵗ"
        method = panel["baseline"].map({0: "CoCoA-Mix", 1: baseline})
        curves = over_seeds(_by_seed(panel.assign(method=method), "method", symbol).rename(columns={symbol: "x"}))
        listed = [f"{row.mean:.2f} {row.method} at {symbol} {row.x:g}" for row in curves.itertuples()]
        sentences.append(f"{subset.capitalize()} accuracy in %: {', '.join(listed)} ({_scope(panel)}).")
        lines[f"{subset} classes, over {symbol}"] = curves.assign(x=curves["x"].where(curves["method"] != baseline))
    drawn = partial(draw_lines, lines, title=_TITLES[name], shared=False)
    return Drawing(name, _TITLES[name], " ".join(sentences), drawn, shown[columns])


def _sweep(runs: pd.DataFrame, symbol: str) -> pd.DataFrame:
    """Return the runs over w (on base classes, with w = 0 as the baseline) or over d (on new ones, without pi^out)."""
    fixed, subset = ("d", "base") if symbol == "w" else ("w", "new")
    own = runs[runs["subset"] == subset]
    own = own[own[fixed].isin(own.groupby(fixed)[symbol].nunique().nlargest(1).index)]
    named = own["out_classes"] != "none"
    usual = own["out_classes"].isin(own.loc[named, "out_classes"].mode()[:1])
    baseline = usual & own["w"].eq(0) if symbol == "w" else ~named
    points = own[["w", "d", "out_classes"]].astype(str).agg(" ".join, axis=1)
    own = own.assign(panel=symbol, baseline=baseline.astype(int), point=points)
    line = own[usual & ~baseline].sort_values(symbol)
    return common(pd.concat([line, own[baseline]])) if len(line) else line
