"""The figures by name. Their modules import neither torch nor matplotlib before they draw."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterable
from typing import Protocol

from .drawn import Drawn

# Modules by the name of the figure, in the order of the paper.
MODULES = {
    "gradient": "gradient",
    "assumption": "assumption",
    "confusing": "confusing",
    "losses": "losses",
    "scorecam": "scorecam",
    "tradeoff": "tradeoff",
    "parameters": "parameters",
    "sessions": "sessions",
    "weights": "weights",
}


class FigureModule(Protocol):
    """The interface of a figure's module.

    Attributes:
        ABOUT: What the figure shows, in a sentence.
        TIME: How long it takes on the synthetic datasets, for the help.
    """

    ABOUT: str
    TIME: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the figure other than `--output`."""

    def make(self, args: argparse.Namespace) -> Iterable[Drawn]:
        """Return the figures, computed and ready to draw."""


def load(name: str) -> FigureModule:
    """Return the module of a figure."""
    module: FigureModule = importlib.import_module(f".{MODULES[name]}", __package__)
    return module
