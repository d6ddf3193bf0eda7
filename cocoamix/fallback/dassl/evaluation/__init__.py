"""Evaluators: from logits and labels to the results of a run."""

from .build import EVALUATOR_REGISTRY, build_evaluator
from .evaluator import Classification, EvaluatorBase

__all__ = ["EVALUATOR_REGISTRY", "Classification", "EvaluatorBase", "build_evaluator"]
