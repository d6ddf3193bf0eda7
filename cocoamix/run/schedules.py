"""Learning-rate schedules of the CoOp family. All step once per epoch, and their state is plain numbers.

They replace real Dassl's, whose warm-up fails on torch 2.7 and later and cannot be resumed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, MultiStepLR, StepLR

from cocoamix.choices import SCHEDULES, WARMUPS
from cocoamix.errors import UserError, check_choice


class _PlainMultiStepLR(MultiStepLR):
    """Keeps the milestones out of its state: they are a Counter, which some versions of torch do not load."""

    def state_dict(self) -> dict[str, Any]:
        return {key: value for key, value in super().state_dict().items() if key != "milestones"}


class WarmupScheduler:
    """`warmup_epoch` epochs at the rates of `warmup_lr(epoch, base rate)`, then the schedule `successor`.

    `last_epoch` counts the epochs of the warm-up only; the successor has its own count.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        successor: LRScheduler,
        warmup_epoch: int,
        warmup_lr: Callable[[int, float], float],
    ) -> None:
        self.optimizer = optimizer
        self.successor = successor
        self.warmup_epoch = warmup_epoch
        self.base_lrs = [float(lr) for lr in successor.base_lrs]
        self.last_epoch = 0
        self._warmup_lr = warmup_lr
        self._start_lrs = [float(lr) for lr in successor.get_last_lr()]  # of the epoch after the warm-up
        self._apply([warmup_lr(0, lr) for lr in self.base_lrs])

    def step(self) -> None:
        """Advance by one epoch."""
        if self.last_epoch >= self.warmup_epoch:
            self.successor.step()
            self._last_lr = [float(lr) for lr in self.successor.get_last_lr()]
            return
        self.last_epoch += 1
        if self.last_epoch >= self.warmup_epoch:
            self._apply(self._start_lrs)
        else:
            self._apply([self._warmup_lr(self.last_epoch, lr) for lr in self.base_lrs])

    def get_last_lr(self) -> list[float]:
        """Return the learning rates of the groups."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """Return the positions of the two schedules. Their parameters come from the configuration."""
        inner = self.successor.state_dict()
        position = {key: inner[key] for key in ("last_epoch", "_step_count", "_last_lr")}
        return {"last_epoch": self.last_epoch, "last_lr": list(self._last_lr), "successor": position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the positions, whether or not the optimizer's state is also restored."""
        self.last_epoch = state["last_epoch"]
        self.successor.load_state_dict(dict(state["successor"]))
        self._apply(state["last_lr"])

    def _apply(self, lrs: list[float]) -> None:
        self._last_lr = [float(lr) for lr in lrs]
        for group, lr in zip(self.optimizer.param_groups, self._last_lr, strict=True):
            group["lr"] = lr


def build_schedule(optimizer: Optimizer, optim_cfg: Any) -> LRScheduler | WarmupScheduler:
    """Build the schedule LR_SCHEDULER, after a warm-up if WARMUP_EPOCH is above 0."""
    check_choice("OPTIM.LR_SCHEDULER", optim_cfg.LR_SCHEDULER, SCHEDULES)
    steps, length = optim_cfg.STEPSIZE, optim_cfg.WARMUP_EPOCH
    schedule: LRScheduler
    if optim_cfg.LR_SCHEDULER == "cosine":
        schedule = CosineAnnealingLR(optimizer, float(optim_cfg.MAX_EPOCH))  # type: ignore[arg-type]
    elif optim_cfg.LR_SCHEDULER == "multi_step":
        if not isinstance(steps, (list, tuple)) or not all(isinstance(step, int) for step in steps):
            raise UserError(f"OPTIM.STEPSIZE must be a list of epochs for multi_step, not {steps!r}")
        schedule = _PlainMultiStepLR(optimizer, milestones=steps, gamma=optim_cfg.GAMMA)
    else:
        step = steps[-1] if isinstance(steps, (list, tuple)) else steps
        if not isinstance(step, int):
            raise UserError(f"OPTIM.STEPSIZE must be a whole number of epochs for single_step, not {step!r}")
        schedule = StepLR(optimizer, step_size=step if step > 0 else optim_cfg.MAX_EPOCH, gamma=optim_cfg.GAMMA)
    if length <= 0:
        return schedule

    check_choice("OPTIM.WARMUP_TYPE", optim_cfg.WARMUP_TYPE, WARMUPS)
    if not optim_cfg.WARMUP_RECOUNT:
        schedule.last_epoch = length
    constant, lowest = optim_cfg.WARMUP_CONS_LR, optim_cfg.WARMUP_MIN_LR

    def warmup_lr(epoch: int, base: float) -> float:
        if optim_cfg.WARMUP_TYPE == "constant":
            return constant
        return lowest if epoch == 0 else base * epoch / length

    return WarmupScheduler(optimizer, schedule, length, warmup_lr)
