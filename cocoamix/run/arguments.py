"""CoOp's flags: the command line of one run. This module does not import torch, so that --help is fast."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from cocoamix.parser import Parser

ABOUT = "One run: train and evaluate, or evaluate only, with CoOp's flags."
STOPPED = "Stopped. The same command resumes from the last complete epoch."  # printed on Ctrl-C


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add CoOp's flags."""
    parser.add_argument("--root", default="", help="folder that contains the datasets")
    parser.add_argument("--output-dir", default="", help="folder of the run: logs, checkpoints, results")
    parser.add_argument("--resume", default="", help="folder of a run to resume from (default: the output folder)")
    parser.add_argument("--seed", type=int, help="random seed; -1 draws one")
    parser.add_argument("--source-domains", nargs="+", help="source domains, for datasets that have domains")
    parser.add_argument("--target-domains", nargs="+", help="target domains, for datasets that have domains")
    parser.add_argument("--transforms", nargs="+", help="augmentations of training images")
    parser.add_argument("--config-file", default="", help="configuration of the trainer")
    parser.add_argument("--dataset-config-file", default="", help="configuration of the dataset")
    parser.add_argument("--trainer", default="", help="name of the trainer, such as CoOp")
    parser.add_argument("--backbone", default="", help="name of the CLIP model, such as ViT-B/16")
    parser.add_argument("--head", default="", help="unused; accepted for CoOp's scripts")
    parser.add_argument("--eval-only", action="store_true", help="evaluate without training")
    parser.add_argument("--model-dir", default="", help="with --eval-only: output folder of the training run")
    parser.add_argument("--load-epoch", type=int, help="with --eval-only: epoch to load (default: best or newest)")
    parser.add_argument(
        "--more-epochs", action="store_true", help="continue a finished run up to a larger OPTIM.MAX_EPOCH"
    )
    parser.add_argument("--no-train", action="store_true", help="build everything and stop")
    parser.add_argument("--verbose", action="store_true", help="print everything that goes to log.txt")
    parser.add_argument("opts", nargs=argparse.REMAINDER, help="KEY VALUE pairs that change the configuration")


def parse_arguments(argv: Sequence[str] | None = None, prog: str | None = None) -> argparse.Namespace:
    """Read CoOp's flags. prog: the command, for its help."""
    parser = Parser(prog=prog, description=ABOUT)
    add_arguments(parser)
    return parser.parse_args(argv)
