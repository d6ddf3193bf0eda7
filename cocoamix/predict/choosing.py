"""The command-line arguments that choose a classifier, and the classifier that they name."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cocoamix.errors import UserError
from cocoamix.io.paths import expand_home
from cocoamix.io.texts import read_text

if TYPE_CHECKING:
    from .classifier import Classifier


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("run", help="output folder of a finished run")
    parser.add_argument("--add", nargs="+", default=[], metavar="NAME", help="classes to add to those of the run")
    parser.add_argument("--classes", metavar="FILE", help="classes to use instead of those of the run, one per line")
    parser.add_argument(
        "--weights", default="", metavar="FILE", help="CLIP weights, if their file has moved since training"
    )
    parser.add_argument(
        "--trainer", help="for checkpoints of CoOp's own code: the trainer; also give --classes and --config-file"
    )
    parser.add_argument("--config-file", metavar="FILE", help="with --trainer: its configuration")
    parser.add_argument("--dataset-config-file", metavar="FILE", help="with --trainer: configuration of the dataset")


def choose(args: argparse.Namespace, store: bool = True) -> Classifier:
    """Return the classifier that the arguments name."""
    from cocoamix.clip.class_names import tidy_class

    from .classifier import load
    from .foreign import open_foreign

    names = read_class_names(expand_home(args.classes)) if args.classes else []
    if not args.trainer and (args.config_file or args.dataset_config_file):
        raise UserError("--config-file is for checkpoints of CoOp's original code: add --trainer, or leave it out.")
    if args.trainer:
        files = [file for file in (args.dataset_config_file, args.config_file) if file]
        found = open_foreign(expand_home(args.run), args.trainer, files, names, args.weights, store)
    else:
        found = load(args.run, args.weights, store)
        if names:
            found = found.with_classes(names, keep=False)
    return found.with_classes([tidy_class(name) for name in args.add]) if args.add else found


def read_class_names(path: Path) -> list[str]:
    """Read class names from a file with one name per line."""
    from cocoamix.clip.class_names import tidy_class  # here, because it imports torch

    names = [tidy_class(line) for line in read_text(path).splitlines() if line.strip()]
    if not names:
        raise UserError(f"{path} contains no class names. Write one class name per line.")
    return names
