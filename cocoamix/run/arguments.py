"""CoOp's flags: the command line of one run. This module does not import torch, so that --help is fast."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from cocoamix.errors import UserError
from cocoamix.parser import Parser

ABOUT = "Train and evaluate one model, or only evaluate it, with CoOp's flags."
STOPPED = "Stopped. The same command resumes from the last complete epoch."  # printed on Ctrl-C


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add CoOp's flags."""
    parser.add_argument("--root", default="", help="folder that contains the datasets' folders")
    parser.add_argument("--output-dir", default="", help="folder for logs, checkpoints and results")
    parser.add_argument("--resume", default="", help="output folder of a run to resume from (default: --output-dir)")
    parser.add_argument("--seed", type=int, help="random seed; -1 picks one at random")
    parser.add_argument("--source-domains", nargs="+", help="source domains, for datasets that have domains")
    parser.add_argument("--target-domains", nargs="+", help="target domains, for datasets that have domains")
    parser.add_argument("--transforms", nargs="+", help="augmentations of training images")
    parser.add_argument("--config-file", default="", help="YAML file with the trainer's settings")
    parser.add_argument("--dataset-config-file", default="", help="YAML file with the dataset's settings")
    parser.add_argument("--trainer", default="", help="name of the trainer, such as CoOp")
    parser.add_argument("--backbone", default="", help="name of the CLIP model, such as ViT-B/16")
    parser.add_argument("--head", default="", help="has no effect; accepted because CoOp has it")
    parser.add_argument("--eval-only", action="store_true", help="evaluate without training")
    parser.add_argument("--model-dir", default="", help="with --eval-only: output folder of the training run")
    parser.add_argument("--load-epoch", type=int, help="with --eval-only: epoch to load (default: best, else newest)")
    parser.add_argument("--no-train", action="store_true", help="build everything for training, then stop")
    add_imports(parser)
    parser.add_argument("--verbose", action="store_true", help="print everything that is logged to log.txt")
    parser.add_argument(
        "opts", nargs=argparse.REMAINDER, help="KEY VALUE pairs that override the configuration (docs/KEYS.md)"
    )


def add_imports(parser: argparse.ArgumentParser) -> None:
    """Add the flag that names modules outside this project, which register their trainers or datasets."""
    about = "module to import first, such as one that registers a trainer; may be repeated"
    parser.add_argument("--import", dest="imports", action="append", default=[], metavar="MODULE", help=about)


def import_modules(names: Sequence[str]) -> None:
    """Import modules, also from the current folder."""
    if names and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name.split(".")[0] and error.name != name:
                raise
            advice = "Give one of the current folder, or set PYTHONPATH."
            raise UserError(f"--import names {name}, but there is no such module. {advice}") from error


def parse_arguments(argv: Sequence[str] | None = None, prog: str | None = None) -> argparse.Namespace:
    """Parse CoOp's flags. `prog` is the name of the command, for its help."""
    parser = Parser(prog=prog, description=ABOUT)
    add_arguments(parser)
    return parser.parse_args(argv)
