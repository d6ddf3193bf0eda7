"""Label images with the model of a run. Only the output folder of the run is needed.

cocoamix predict RUN photo.jpg                       one image
cocoamix predict RUN FOLDER --csv labels.csv         all images of a folder
cocoamix predict RUN FOLDER --add zebra okapi        with two more classes, no training
cocoamix predict RUN FOLDER --html page.html         a page to browse
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from cocoamix.errors import UserError, run_command
from cocoamix.parser import Parser

from . import choosing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    choosing.add_arguments(parser)
    parser.add_argument("images", nargs="+", help="images, folders of images, or CSV files with a column `path`")
    parser.add_argument(
        "--top", type=int, default=5, metavar="K", help="number of classes to show, most probable first (default: 5)"
    )
    parser.add_argument("--csv", metavar="FILE", help="write a table with one row per image")
    parser.add_argument("--json", metavar="FILE", help="write one object per image")
    parser.add_argument("--html", metavar="FILE", help="write a page with thumbnails, filters and mistakes")
    parser.add_argument(
        "--unknown", type=float, metavar="RATE", help="flag images of no known class, at this false-alarm rate"
    )
    parser.add_argument(
        "--held-out",
        nargs="+",
        default=[],
        metavar="PATH",
        help="with --unknown: images of known classes, to set the threshold",
    )
    parser.add_argument("--no-store", action="store_true", help="neither read nor write the feature store")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from .inputs import find_images
    from .outputs import Files
    from .predicting import Wanted, predict_all

    if args.top < 1:
        raise UserError(f"--top is {args.top}; it must be at least 1.")
    classifier = choosing.choose(args, not args.no_store)
    wanted = Wanted(min(args.top, len(classifier.classes)), args.unknown, tuple(args.held_out))
    labels = classifier.labels
    images = find_images(args.images, labels)
    summary = predict_all(classifier, images, wanted, Files(args.csv, args.json, args.html), labels.notes)
    return 1 if summary.unreadable else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = Parser(prog="cocoamix predict", description=__doc__)
    add_arguments(parser)
    return run_command(
        partial(run, parser.parse_args(argv)),
        "Stopped. The image features computed so far are stored.",
    )
