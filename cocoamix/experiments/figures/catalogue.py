"""The catalogue of figures, with their arguments. It imports nothing slow, so that help and usage errors are quick."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from cocoamix.choices import LOSSES
from cocoamix.errors import UserError

_WIDTHS = {"column": 3.25, "page": 6.75}  # inches
_PARTS = ["losses", "settings", "sensitivity"]


class Argument:
    """An argument: its flags, its help, and other options of `ArgumentParser.add_argument`."""

    def __init__(self, flags: str, text: str, **options: Any) -> None:
        self.flags, self.options = flags.split(), {**options, "help": text}


class Figure(NamedTuple):
    """An entry of the catalogue.

    Attributes:
        about: What the figure shows, in a sentence.
        time: How long it takes on the synthetic datasets.
        arguments: Its own arguments.
        runs: Whether it is drawn from runs.
        module: Its module, if that has another name.
    """

    about: str
    time: str
    arguments: tuple[Argument, ...] = ()
    runs: bool = True
    module: str = ""


def parse_width(text: str) -> float:
    """Return a width in inches."""
    try:
        width = _WIDTHS.get(text) or float(text)
    except ValueError:
        width = 0.0
    if not 2 <= width <= 40:
        raise UserError(f"--width is {text}; it is column, page, or a number of inches from 2 to 40.")
    return width


_OF_RUNS = (
    Argument("--runs", "output folders of finished runs, or folders above", nargs="+", metavar="DIR"),
    Argument("--root", "folder of real datasets; missing runs are trained on them first"),
    Argument("--datasets", "only these datasets of the plan", nargs="+", default=[], metavar="NAME"),
    Argument("--seeds", "only these seeds of the plan", nargs="+", default=[], type=int, metavar="SEED"),
    Argument("--run-output", "folder for the runs (default: the plan's)", metavar="FOLDER"),
    Argument("--set", "override a key in all runs", nargs=2, action="append", default=[], metavar=("KEY", "VALUE")),
    Argument("-j --jobs", "parallel runs (default: one per GPU, or core)", type=int, metavar="N"),
)
_OF_ALL = (
    Argument("--width", "column (3.25 in), page (6.75 in), or a number of inches", type=parse_width, metavar="WIDTH"),
    Argument("--no-title", "leave out the title, which a caption replaces", action="store_true"),
    Argument("--output", "folder for the files (default: %(default)s)", default="output/figures", metavar="FOLDER"),
)
_PAPER = Argument("--paper", "also show published numbers", action="store_true")

# By name, in the order of the paper.
FIGURES = {
    "gradient": Figure(
        "Gradient of CE + w CoA-loss with respect to the similarities, over the probability, for several w.",
        "seconds",
        (
            Argument(
                "--w", "weights of the CoA-loss (default: 0 1 3 5 7)", nargs="+", type=float, default=[0, 1, 3, 5, 7]
            ),
        ),
        runs=False,
    ),
    "assumption": Figure(
        "Accuracy of a learned prompt against the hand-crafted prompt, on trained classes and on all others, over "
        "several halves of the classes, with one-sided paired t-tests.",
        "about two minutes on two cores, or one minute after the quick start",
        (
            Argument("--partitions", "only these halves of the classes", nargs="+", default=[], type=int, metavar="K"),
            Argument("--learned", "the trained method, if --runs has more than one", default="", metavar="NAME"),
            Argument("--hand-crafted", "the zero-shot method (default: CLIP)", default="", metavar="NAME"),
        ),
    ),
    "confusing": Figure(
        "Easy, confusing and hard test images under zero-shot CLIP: their proportions, the accuracy on each over "
        "epochs for several losses, and what CE + CoA adds to CE on confusing images of every dataset.",
        "about two minutes on two cores",
        (
            Argument("--losses", "losses, the reference first", nargs="+", choices=LOSSES, default=["ce", "ce+coa"]),
            Argument("--curves", "dataset of the curves (default: eurosat, or texture_colour)", metavar="NAME"),
            Argument("--gap", "for the curves: confusing images are wrong by less than this", type=float, default=0.2),
            Argument("--datasets-gap", "the same for the gains on all datasets", type=float, default=0.5),
        ),
    ),
    "losses": Figure(
        "Base accuracy for each loss of the learned prompt, for each setting of the losses, and over the weight w of "
        "the CoA-loss; new accuracy over the margin d.",
        "about four minutes on two cores",
        (Argument("--parts", "only these of the figures", nargs="+", choices=_PARTS, default=_PARTS),),
    ),
    "scorecam": Figure(
        "Class activation maps (ScoreCAM) of several methods, with the labels that they predict.",
        "about a minute on two cores",
        (
            Argument("--names", "names for --runs, in the same order", nargs="+", default=[], metavar="NAME"),
            Argument("--images", "images, or folders and tables of images", nargs="+", metavar="PATH"),
            Argument("--labels", "classes of --images, in the same order", nargs="+", metavar="NAME"),
            Argument("--count", "number of images per half (default: 3)", type=int, default=3, metavar="N"),
            Argument("--target", "class to explain", choices=("predicted", "label"), default="predicted"),
        ),
    ),
    "tradeoff": Figure(
        "Accuracy on new classes against accuracy on base classes, with lines of equal H.",
        "about three minutes on two cores",
        (_PAPER,),
    ),
    "parameters": Figure("H against the number of trained parameters.", "about two minutes on two cores"),
    "datasets": Figure(
        "H of each method on each dataset, with a dot for each seed.", "about three minutes on two cores"
    ),
    "sessions": Figure(
        "Accuracy after each session of class-incremental learning: on all classes so far, on base, on novel classes.",
        "about two minutes on two cores",
        (_PAPER,),
        module="curves",
    ),
    "weights": Figure(
        "Accuracy, cross-entropy and calibration error of the mixture over the weight pi of the learned prompt, on "
        "training images and on test images of the trained classes.",
        "about a minute on two cores",
    ),
}


def declare(parser: argparse.ArgumentParser, figure: Figure) -> None:
    """Add the arguments of a figure."""
    for argument in (*(_OF_RUNS if figure.runs else ()), *figure.arguments, *_OF_ALL):
        parser.add_argument(*argument.flags, **argument.options)
