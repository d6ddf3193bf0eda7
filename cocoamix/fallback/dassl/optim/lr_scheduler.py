"""Learning-rate schedules by config."""

from __future__ import annotations

from cocoamix.schedules import SCHEDULES as AVAI_SCHEDS
from cocoamix.schedules import build_schedule as build_lr_scheduler

__all__ = ["AVAI_SCHEDS", "build_lr_scheduler"]
