"""Running averages for the training log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import torch


class AverageMeter:
    """The newest value and the average so far."""

    val = avg = sum = 0.0
    count = 0

    def update(self, val: float | torch.Tensor, n: int = 1) -> None:
        """Add a value with the weight `n`."""
        self.val = float(val)
        self.count += n
        self.sum += self.val * n
        self.avg = self.sum / self.count


class MetricMeter:
    """One `AverageMeter` per name."""

    def __init__(self) -> None:
        self.meters: dict[str, AverageMeter] = defaultdict(AverageMeter)

    def update(self, input_dict: Mapping[str, float | torch.Tensor] | None) -> None:
        """Add a value per name; None is a batch with nothing to record."""
        if not isinstance(input_dict, Mapping | None):
            raise TypeError(f"expected a dictionary of metrics, got {type(input_dict).__name__}")
        for name, value in (input_dict or {}).items():
            self.meters[name].update(value)

    def __str__(self) -> str:
        return " ".join(f"{name} {m.val:.4f} ({m.avg:.4f})" for name, m in self.meters.items())
