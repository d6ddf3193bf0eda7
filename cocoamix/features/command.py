"""Inspect or clear the store of image features.

cocoamix features info [DIR]             show what is stored, and for which model
cocoamix features clear [DIR] [--yes]    delete it
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from cocoamix.errors import UserError, run_command
from cocoamix.io.paths import expand_home
from cocoamix.parser import Parser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("action", choices=("info", "clear"), help="what to do")
    parser.add_argument("folder", nargs="?", help="the store (default: that of runs without CACHE.DIR)")
    parser.add_argument("--yes", action="store_true", help="clear without asking")


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    from .store import default_folder  # here, because it imports torch
    from .stored import clear, info

    folder = expand_home(args.folder) if args.folder else default_folder()
    if args.folder and not folder.is_dir():
        raise UserError(f"The folder {folder} does not exist.")
    if args.action == "info":
        info(folder)
    else:
        clear(folder, args.yes)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = Parser(prog="cocoamix features", description=__doc__)
    add_arguments(parser)
    return run_command(partial(run, parser.parse_args(argv)), "Stopped.")
