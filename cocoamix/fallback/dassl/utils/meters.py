"""Running averages for the training log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import torch


class AverageMeter:
    """The newest value and the average so far; with `ema`, an exponential moving average."""

    def __init__(self, ema: bool = False) -> None:
        self.ema = ema
        self.reset()

    def reset(self) -> None:
        self.val = self.avg = self.sum = 0.0
        self.count = 0

    def update(self, val: float | torch.Tensor, n: int = 1) -> None:
        self.val = float(val)
        self.sum += self.val * n
        self.count += n
        self.avg = 0.9 * self.avg + 0.1 * self.val if self.ema else self.sum / self.count


class MetricMeter:
    """One `AverageMeter` for each name it is given."""

    def __init__(self, delimiter: str = " ") -> None:
        self.meters: dict[str, AverageMeter] = defaultdict(AverageMeter)
        self.delimiter = delimiter

    def update(self, input_dict: Mapping[str, float | torch.Tensor] | None) -> None:
        if input_dict is None:  # a batch with nothing to record
            return
        if not isinstance(input_dict, Mapping):
            raise TypeError(f"expected a dictionary of metrics, got {type(input_dict).__name__}")
        for name, value in input_dict.items():
            self.meters[name].update(value)

    def __str__(self) -> str:
        return self.delimiter.join(f"{name} {m.val:.4f} ({m.avg:.4f})" for name, m in self.meters.items())
