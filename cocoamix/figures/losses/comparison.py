"""The base accuracy of prompts by the loss that they were tuned with, and by the setting of that loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..kinds import Gathered, gather, own_runs
from ..loss_names import NAMES, SETTINGS, VARIED, Loss, loss_of
from .averages import Average, average, describe_scope

if TYPE_CHECKING:
    from cocoamix.report.readers.runs import Inventory, Run

COLUMNS = ("loss", "setting", "value", "dataset", "seed", "base_accuracy")
NEEDED = "base-to-new runs of CoCoAMix with TRAINER.COCOAMIX.ENSEMBLE none are needed, with several values of LOSS"


def gather_losses(inventory: Inventory) -> Gathered[Loss]:
    """Return the runs without an ensemble by their loss, with models of the last epoch."""
    return gather(own_runs(inventory, "none"), _point, VARIED, NEEDED)


def _point(run: Run) -> Loss | None:
    return loss_of(run.settings) if run.subset == "base" and run.earlier_epoch is None else None


def compare(found: Gathered[Loss]) -> dict[Loss, Average]:
    """Return the accuracies of each loss under one setting: the default, or the available one nearest to it."""
    chosen = []
    for name in NAMES:
        own = [loss for loss in found.cells if loss.name == name]
        default = SETTINGS[name][2] if name in SETTINGS else 0.0
        if own:
            chosen.append(min(own, key=lambda loss: (abs((loss.setting or 0.0) - default), loss.setting or 0.0)))
    return average(found, chosen, "base")


def compare_settings(found: Gathered[Loss]) -> dict[Loss, Average]:
    """Return the accuracies of each loss under each of its settings."""
    order = list(NAMES)
    chosen = sorted(found.cells, key=lambda loss: (order.index(loss.name), loss.setting or 0.0))
    return average(found, chosen, "base")


def has_settings(found: Gathered[Loss]) -> bool:
    """Return whether there is a loss with several settings."""
    names = [loss.name for loss in found.cells]
    return len(set(names)) < len(names)


def table(averages: Mapping[Loss, Average]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of the data: the accuracy on each dataset for each seed."""
    for loss, one in averages.items():
        symbol = SETTINGS[loss.name][1] if loss.setting is not None else ""
        for dataset, seeds in one.accuracy.items():
            for seed, accuracy in seeds.items():
                value = "" if loss.setting is None else loss.setting
                yield loss.title, symbol, value, dataset, "" if seed is None else seed, accuracy


def describe(averages: Mapping[Loss, Average]) -> str:
    """Describe the accuracy of each loss."""
    means = [f"{loss.full_title} {one.mean:.2f}" for loss, one in averages.items()]
    best = max(averages, key=lambda loss: averages[loss].mean)
    name = f"{best.title}{f' with {best.setting_text}' if best.setting_text else ''}"
    first = next(iter(averages.values()))
    return f"Base accuracy in % by loss: {', '.join(means)}. Highest: {name} ({describe_scope(first)})."
