"""Write the model of a run to a file that works without this package.

cocoamix export RUN --to classes.safetensors    class vectors, for open_clip or OpenAI's clip
cocoamix export RUN --to classifier.onnx        the whole classifier: image in, probabilities out
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from cocoamix.errors import run_command
from cocoamix.io.paths import expand_home
from cocoamix.parser import Parser

from . import choosing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    choosing.add_arguments(parser)
    parser.add_argument("--to", required=True, metavar="FILE", help="file to write, .safetensors or .onnx")


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    from .export import check_ending, export

    path = expand_home(args.to)
    check_ending(path)
    classifier = choosing.choose(args, store=False)
    export(classifier, path)
    print(f"{len(classifier.classes)} classes of {classifier.run.trainer} written to {path}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = Parser(prog="cocoamix export", description=__doc__)
    add_arguments(parser)
    return run_command(partial(run, parser.parse_args(argv)), "Stopped. Nothing was written.")
