"""`cocoamix train`: one run, with CoOp's flags. A source tree's train.py is the same."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from .errors import run_command
from .run.arguments import STOPPED, add_arguments, parse_arguments

__all__ = ["add_arguments", "main"]


def main(argv: Sequence[str] | None = None, prog: str = "cocoamix train") -> int:
    """Run the command and return its exit status. `prog` is its name, for its help."""
    return run_command(partial(_run, parse_arguments(argv, prog)), STOPPED, work=True)


def _run(args: argparse.Namespace) -> None:
    from .train import run  # here, because it imports torch

    run(args)
