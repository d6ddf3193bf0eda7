"""Trainers."""

from .build import TRAINER_REGISTRY, build_trainer
from .trainer import SimpleTrainer, TrainerBase, TrainerX

__all__ = ["TRAINER_REGISTRY", "SimpleTrainer", "TrainerBase", "TrainerX", "build_trainer"]
