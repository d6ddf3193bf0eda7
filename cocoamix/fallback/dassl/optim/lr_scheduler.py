"""Learning-rate schedules by config."""

from __future__ import annotations

from cocoamix.choices import SCHEDULES
from cocoamix.run.schedules import build_schedule as build_lr_scheduler

AVAI_SCHEDS = list(SCHEDULES)

__all__ = ["AVAI_SCHEDS", "build_lr_scheduler"]
