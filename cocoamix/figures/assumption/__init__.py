"""`assumption`: is a learned prompt better on the classes it was trained on, and the hand-crafted one on all others?"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from .. import sources
from ..drawn import Drawn
from ..sources import Choice, Plans

if TYPE_CHECKING:
    from .halves import Group, Halves

ABOUT = (
    "Accuracy of a learned prompt against the hand-crafted prompt, on trained classes and on all others, over several "
    "halves of the classes, with one-sided paired t-tests."
)
TIME = "about two minutes on two cores, or one minute after the quick start"
STEM = "assumption"
COLUMNS = (
    *("group", "dataset", "partition", "seed"),
    *("in_learned", "in_hand_crafted", "out_learned", "out_hand_crafted", "in_difference", "out_difference"),
)
_TITLE = "The learned and the hand-crafted prompt on in-classes and on out-classes"
# Random halves as in the paper; without real data, those of the first synthetic dataset.
_PLANS = Plans(Choice("quick_assumption", (), ("colour_shape",), (1,)), Choice("assumption"))
# The halves of a synthetic dataset by label have different themes; its random halves do not.
_THEMED = Plans(Choice("quick", ("CLIP", "CoOp")), Choice("assumption"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose the runs and the two methods."""
    sources.add_arguments(parser, _PLANS)
    parser.add_argument(
        "--partitions", nargs="+", default=[], type=int, metavar="K", help="only these random halves of the classes"
    )
    parser.add_argument("--learned", default="", metavar="NAME", help="the trained method, if --runs has more than one")
    parser.add_argument("--hand-crafted", default="", metavar="NAME", help="the zero-shot method (default: CLIP)")


def make(args: argparse.Namespace) -> Iterable[Drawn]:
    """Collect the pairs, test them, and return the figure."""
    found = [sources.find_source(args, _PLANS)]
    if not args.runs and not args.root:
        found.append(sources.find_source(argparse.Namespace(**{**vars(args), "partitions": []}), _THEMED))
    from .drawing import draw
    from .halves import make_groups, read_halves

    halves = [read_halves(source, args.learned, args.hand_crafted) for source in found]
    groups, single = make_groups(pair for one in halves for pair in one.pairs)
    rows = [
        (group.name, *(getattr(pair, column) for column in COLUMNS[1:])) for group in groups for pair in group.pairs
    ]
    sentence = _sentence(groups, single, halves[0])
    return [Drawn(STEM, _TITLE, sentence, partial(draw, groups, halves[0]), COLUMNS, rows)]


def _sentence(groups: Sequence[Group], single: Sequence[str], halves: Halves) -> str:
    lines = [_describe(group, halves) for group in groups]
    lines += [f"There is only one pair for {name}, which is left out: a paired test needs two." for name in single]
    return "\n".join(lines)


def _describe(group: Group, halves: Halves) -> str:
    """Describe the tests of a group."""
    from .halves import LEVEL

    inside, outside = group.inside, group.outside
    first, second = inside.p < LEVEL, outside.p < LEVEL
    if first == second:
        words = "Both inequalities of the assumption hold" if first else "Neither inequality of the assumption holds"
        verdict = f"{words} at {LEVEL}."
    else:
        held, failed = ("in", "out") if first else ("out", "in")
        verdict = f"The inequality on {held}-classes holds at {LEVEL}; the one on {failed}-classes does not."
    name = group.name[0].upper() + group.name[1:]
    return (
        f"{name}, {inside.pairs} pairs: on in-classes {halves.learned} minus {halves.hand_crafted} is "
        f"{inside.difference:+.2f} points on average (one-sided paired t-test, p = {inside.p:.2g}), on out-classes "
        f"{halves.hand_crafted} minus {halves.learned} is {outside.difference:+.2f} (p = {outside.p:.2g}). {verdict}"
        f"{_describe_means(group)}"
    )


def _describe_means(group: Group) -> str:
    """Describe the tests over means of seeds, if there are several seeds. Seeds of one half are not independent."""
    means = group.means
    if not 1 < len(means.pairs) < len(group.pairs):
        return ""
    inside, outside = means.inside, means.outside
    return f" Over the means of seeds, {inside.pairs} pairs: p = {inside.p:.2g} and {outside.p:.2g}."
