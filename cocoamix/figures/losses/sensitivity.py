"""The sensitivity of CoCoA-Mix: base accuracy over the weight w of the CoA-loss, and new accuracy over the margin d."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from cocoamix.errors import UserError

from ..kinds import SECTION, Gathered, gather, number, own_runs
from .averages import Average, average, describe_scope

if TYPE_CHECKING:
    from cocoamix.report.readers.runs import Inventory, Run

COLUMNS = ("panel", "w", "d", "out_classes", "baseline", "subset", "dataset", "seed", "accuracy")
NEEDED = (
    "base-to-new runs of CoCoAMix with TRAINER.COCOAMIX.ENSEMBLE coa are needed, with several values of W or of MARGIN"
)
NO_OUT = "none"
_W, _D = 5.0, 0.2  # the values of the paper
_VARIED = tuple(SECTION + key for key in ("LOSS", "W", "MARGIN", "OUT_CLASSES"))


class Setting(NamedTuple):
    """The settings of a run: w is 0 for cross-entropy alone, out is the kind of out-classes."""

    w: float
    d: float
    out: str

    @property
    def full_title(self) -> str:
        """The setting in words."""
        return f"w {self.w:g} with d {self.d:g} and out-classes {self.out}"


@dataclass(frozen=True)
class Panel:
    """Accuracies over one setting.

    Attributes:
        symbol: The symbol of the varied setting: w or d.
        subset: The evaluated classes: base or new.
        points: The averages by setting, in the order of their values.
        baseline: The settings and accuracies of the dashed line; None if there is no such run.
    """

    symbol: str
    subset: str
    points: dict[Setting, Average]
    baseline: tuple[Setting, Average] | None

    def value(self, setting: Setting) -> float:
        """Return the value of the varied setting."""
        return setting.w if self.symbol == "w" else setting.d

    @property
    def baseline_name(self) -> str:
        """The name of the dashed line."""
        return "CE (w = 0)" if self.symbol == "w" else "without πᵒᵘᵗ"


def gather_settings(inventory: Inventory) -> Gathered[Setting]:
    """Return the runs of CoCoA-Mix by their settings, with models of the last epoch."""
    return gather(own_runs(inventory, "coa"), _point, _VARIED, NEEDED)


def _point(run: Run) -> Setting | None:
    loss = run.settings.get(f"{SECTION}LOSS", "ce+coa")
    if loss not in ("ce", "ce+coa") or run.subset not in ("base", "new") or run.earlier_epoch is not None:
        return None
    w = 0.0 if loss == "ce" else number(run.settings, "W", _W)
    return Setting(w, number(run.settings, "MARGIN", _D), str(run.settings.get(f"{SECTION}OUT_CLASSES", "word")))


def find_panels(found: Gathered[Setting]) -> tuple[list[Panel], dict[str, str]]:
    """Return a panel for each setting with several values, and the reasons why others cannot be drawn."""
    outs = [setting.out for setting in found.cells if setting.out != NO_OUT]
    if not outs:
        return [], {}
    out = max(sorted(set(outs)), key=outs.count)
    panels: list[Panel] = []
    refused: dict[str, str] = {}
    for symbol, subset, pick in (("w", "base", _over_w), ("d", "new", _over_d)):
        there = [setting for setting in found.cells if any(part == subset for _, part in found.cells[setting])]
        chosen, baseline = pick(there, out)
        if len(chosen) + (baseline is not None) < 2 or not chosen:
            continue
        # Averaged together, so that the line and the points are over the same datasets and seeds.
        try:
            averages = average(found, [*chosen, *([baseline] if baseline else [])], subset)
        except UserError as error:
            refused[symbol] = str(error)
            continue
        dashed = (baseline, averages[baseline]) if baseline else None
        panels.append(Panel(symbol, subset, {one: averages[one] for one in chosen}, dashed))
    return panels, refused


def _over_w(settings: Sequence[Setting], out: str) -> tuple[list[Setting], Setting | None]:
    """Return the settings with the margin that has the most values of w, and its setting with w = 0."""
    own = [setting for setting in settings if setting.out == out]
    d = _most({setting.d for setting in own}, lambda d: len({one.w for one in own if one.d == d}), _D)
    chosen = sorted(setting for setting in own if setting.d == d and setting.w)
    return chosen, next((setting for setting in own if setting.d == d and not setting.w), None)


def _over_d(settings: Sequence[Setting], out: str) -> tuple[list[Setting], Setting | None]:
    """Return the settings with the w that has the most margins, and its setting without out-classes."""
    own = [setting for setting in settings if setting.out == out]
    w = _most({setting.w for setting in own}, lambda w: len({one.d for one in own if one.w == w}), _W)
    chosen = sorted((setting for setting in own if setting.w == w), key=lambda setting: setting.d)
    return chosen, next((setting for setting in sorted(settings) if setting.out == NO_OUT and setting.w == w), None)


def _most(values: Iterable[float], count: Callable[[float], int], default: float) -> float | None:
    """Return the value with the highest count; of several, the one nearest to the default."""
    return max(values, key=lambda value: (count(value), -abs(value - default)), default=None)


def table(panels: Iterable[Panel]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of the data: the accuracy on each dataset for each seed."""
    for panel in panels:
        rows = [(setting, one, False) for setting, one in panel.points.items()]
        rows += [(*panel.baseline, True)] if panel.baseline else []
        for setting, one, dashed in rows:
            for dataset, seeds in one.accuracy.items():
                for seed, accuracy in seeds.items():
                    seed_text = "" if seed is None else seed
                    yield panel.symbol, *setting, int(dashed), panel.subset, dataset, seed_text, accuracy


def describe(panels: Iterable[Panel]) -> str:
    """Describe the accuracies by setting."""
    sentences = []
    for panel in panels:
        means = [f"{one.mean:.2f} at {panel.symbol} {panel.value(setting):g}" for setting, one in panel.points.items()]
        dashed = f"; {panel.baseline[1].mean:.2f} {_baseline_text(panel)}" if panel.baseline else ""
        first = next(iter(panel.points.values()))
        sentences.append(
            f"{panel.subset.capitalize()} accuracy in %: {', '.join(means)}{dashed} ({describe_scope(first)})."
        )
    return " ".join(sentences)


def _baseline_text(panel: Panel) -> str:
    return "with CE alone" if panel.symbol == "w" else "without pi^out"
