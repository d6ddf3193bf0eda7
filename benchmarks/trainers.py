"""Cost of a step of CoCoA-Mix relative to CoOp, measured with the trainers themselves."""

from __future__ import annotations

import statistics

from benchmarks.measure import BATCH
from benchmarks.methods import step_costs


def compare_steps(repetitions: int, quick: bool) -> tuple[float, dict[str, float]]:
    """Return the ratio of a step of CoCoA-Mix to one of CoOp, and the CPU seconds of both."""
    mix, coop = step_costs("CoCoAMix", BATCH, 2 if quick else 5 * repetitions, quick)
    ratio = statistics.median(one / other for one, other in zip(mix, coop, strict=True))
    print(f"\nA step of CoCoA-Mix (60 classes, as many out-classes, batch {BATCH}) costs {ratio:.2f} steps of CoOp")
    seconds = {"CoOp": statistics.median(coop), "CoCoAMix": statistics.median(mix)}
    return round(ratio, 2), {name: round(value, 4) for name, value in seconds.items()}
