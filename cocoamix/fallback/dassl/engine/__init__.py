"""Trainers."""

from .build import TRAINER_REGISTRY, build_trainer
from .trainer import TrainerX

__all__ = ["TRAINER_REGISTRY", "TrainerX", "build_trainer"]
