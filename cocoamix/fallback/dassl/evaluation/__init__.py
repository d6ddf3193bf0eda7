"""Evaluators: from logits and labels to the results of a run."""

from .build import build_evaluator
from .evaluator import Classification

__all__ = ["Classification", "build_evaluator"]
