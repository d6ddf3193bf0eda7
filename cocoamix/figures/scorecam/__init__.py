"""`scorecam`: the parts of an image on which methods base their predictions."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from cocoamix.errors import UserError

from .. import sources
from ..drawn import Drawn
from ..sources import Choice, Plans

if TYPE_CHECKING:
    from cocoamix.run.recorded import RecordedRun

ABOUT = "Class activation maps (ScoreCAM) of several methods, with the labels that they predict."
TIME = "about a minute on two cores"
STEM = "scorecam"
TARGETS = ("predicted", "label")
_TITLE = "ScoreCAM"
_PLANS = Plans(
    Choice("quick", ("CLIP", "CoOp", "CoA-loss (uniform)", "CoCoA-Mix"), ("warm_cool",), (1,)),
    Choice("base2new", ("CLIP", "CoOp", "CoA-loss", "CoCoA-Mix"), ("oxford_flowers", "fgvc_aircraft"), (1,)),
)
_COUNT, _BATCH = 3, 32
_PER_FIGURE = 8  # images, one per row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose the runs, the images and the class to explain."""
    sources.add_arguments(parser, _PLANS, "folders of finished training runs, or of their evaluations")
    parser.add_argument(
        "--names", nargs="+", default=[], metavar="NAME", help="names for --runs in the figure, in the same order"
    )
    parser.add_argument(
        "--images", nargs="+", metavar="PATH", help="images, folders of images, or CSV files with a column `path`"
    )
    parser.add_argument(
        "--labels", nargs="+", default=[], metavar="NAME", help="classes of --images, in the same order"
    )
    parser.add_argument("--classes", metavar="FILE", help="file of candidate classes, one per line")
    parser.add_argument(
        "--count",
        type=int,
        default=_COUNT,
        metavar="N",
        help=f"number of images each of base and new classes (default: {_COUNT})",
    )
    parser.add_argument(
        "--target", choices=TARGETS, default=TARGETS[0], help="class that a map explains (default: predicted)"
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        default=_BATCH,
        metavar="N",
        help=f"number of masked images per batch (default: {_BATCH})",
    )


def make(args: argparse.Namespace) -> Iterator[Drawn]:
    """Yield figures of the maps, each with at most eight images of one dataset."""
    for flag in ("count", "batch_size"):
        if getattr(args, flag) < 1:
            raise UserError(f"--{flag.replace('_', '-')} is {getattr(args, flag)}; it must be at least 1.")
    from .explained import check_package, refuse_several_towers

    check_package()  # before long runs start
    from .class_maps import COLUMNS, compute, describe, table
    from .drawing import draw
    from .shown_images import check_arguments, choose_images

    check_arguments(args)
    groups = _find_methods(args)
    for methods in groups.values():
        refuse_several_towers(methods.values())
    chosen = {name: choose_images(args, list(methods.values())) for name, methods in groups.items()}
    for name, methods in groups.items():
        stem = STEM if len(groups) == 1 else f"{STEM}-{name}"
        found = compute(methods, chosen[name], args.target, args.batch_size)
        for number, start in enumerate(range(0, len(found.images), _PER_FIGURE), 1):
            part = found.part(start, start + _PER_FIGURE)
            file = stem if number == 1 else f"{stem}-{number}"
            yield Drawn(file, _TITLE, describe(part), partial(draw, part), COLUMNS, table(part))


def _find_methods(args: argparse.Namespace) -> dict[str, dict[str, RecordedRun]]:
    """Return the runs by dataset and method. Runs that the user names are one group."""
    from cocoamix.run.recorded import find_run

    if args.names and not args.runs:
        raise UserError("--names is for the runs that --runs names.")
    if args.runs:
        own = argparse.Namespace(**{**vars(args), "root": None})  # --root is where the dataset is now
        found = [find_run(folder) for folder in sources.find_source(own, _PLANS).folders]
        return {"": _name(found, args.names)}
    runs = [run for run in sources.find_source(args, _PLANS).runs if run.subset == "base"]
    several = len({run.seed for run in runs}) > 1
    groups: dict[str, dict[str, RecordedRun]] = {}
    for run in runs:
        name = f"{run.method}, seed {run.seed}" if several and run.trains else run.method
        groups.setdefault(run.dataset, {})[name] = find_run(run.folder)
    return groups


def _name(runs: list[RecordedRun], names: list[str]) -> dict[str, RecordedRun]:
    """Return runs by the given names, or named by trainer and, if needed, by the differing parts of their folders."""
    from cocoamix.report.names import method_name

    if names and (len(names) != len(runs) or len(set(names)) < len(names)):
        raise UserError(f"--names gives {len(set(names))} different names to {len(runs)} runs. Give one to each.")
    if names:
        return dict(zip(names, runs, strict=True))
    by_trainer: dict[str, list[RecordedRun]] = {}
    for run in runs:
        by_trainer.setdefault(method_name(run.trainer), []).append(run)
    found: dict[str, RecordedRun] = {}
    for run in runs:
        name = method_name(run.trainer)
        if len(by_trainer[name]) > 1:
            shared = set.intersection(*(set(one.folder.parts) for one in by_trainer[name]))
            name += f" ({'/'.join(part for part in run.folder.parts if part not in shared)})"
        if name in found:
            raise UserError(f"The run in {run.folder} is given twice. Give it once.")
        found[name] = run
    return found
