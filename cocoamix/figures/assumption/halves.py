"""Pairs of accuracies on the two halves of the classes: those that a prompt was trained on, and all others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cocoamix.config.partition import LABEL, number_of
from cocoamix.errors import UserError, nearest, some_of
from cocoamix.report.model.differences import find_baselines
from cocoamix.report.model.facts import known
from cocoamix.report.model.rows import Row, make_rows, not_comparable, show
from cocoamix.report.model.t_test import OneSided, paired_t_test
from cocoamix.report.names import is_clip, is_zero_shot, sort_datasets
from cocoamix.report.readers.runs import Inventory, Run, find_runs

from ..sources import Source

LEVEL = 0.05  # of the tests
_SEPARATOR = " / "  # between dataset and partition in their combined name


@dataclass(frozen=True)
class Pair:
    """Accuracies in percent of the learned and of the hand-crafted prompt on both halves.

    Attributes:
        dataset: The name of the dataset.
        partition: The partition of its classes into halves.
        seed: The seed of the learned prompt; None for a mean over seeds.
        in_learned: The learned prompt on the in-classes, on which it was trained.
        in_hand_crafted: The hand-crafted prompt on the in-classes.
        out_learned: The learned prompt on the out-classes, all others.
        out_hand_crafted: The hand-crafted prompt on the out-classes.
    """

    dataset: str
    partition: str
    seed: int | None
    in_learned: float
    in_hand_crafted: float
    out_learned: float
    out_hand_crafted: float

    @property
    def in_difference(self) -> float:
        """By how much the learned prompt is better on the in-classes."""
        return self.in_learned - self.in_hand_crafted

    @property
    def out_difference(self) -> float:
        """By how much the hand-crafted prompt is better on the out-classes."""
        return self.out_hand_crafted - self.out_learned


@dataclass(frozen=True)
class Group:
    """Pairs that are tested together: the random halves of one dataset, or the halves by label of all of them."""

    name: str
    pairs: tuple[Pair, ...]

    @property
    def inside(self) -> OneSided:
        """The test of the first inequality: the learned prompt is better on its training classes."""
        return paired_t_test([pair.in_difference for pair in self.pairs])

    @property
    def outside(self) -> OneSided:
        """The test of the second inequality: the hand-crafted prompt is better on all other classes."""
        return paired_t_test([pair.out_difference for pair in self.pairs])

    @property
    def means(self) -> Group:
        """The group with one pair for each partition of a dataset: its seeds share classes and test images."""
        halves: dict[tuple[str, str], list[Pair]] = {}
        for pair in self.pairs:
            halves.setdefault((pair.dataset, pair.partition), []).append(pair)
        return Group(self.name, tuple(map(_mean, halves.values())))


@dataclass(frozen=True)
class Halves:
    """The pairs of some runs.

    Attributes:
        learned: The report's name of the trained method.
        hand_crafted: The report's name of zero-shot CLIP.
    """

    learned: str
    hand_crafted: str
    pairs: tuple[Pair, ...]


def read_halves(source: Source, learned: str = "", hand_crafted: str = "") -> Halves:
    """Return the pairs of the runs of a source.

    Args:
        source: The runs.
        learned: The name of the trained method; "" for the only one.
        hand_crafted: The name of the zero-shot method; "" for CLIP.

    Raises:
        UserError: A run is missing, or it is unclear which methods to compare.
    """
    inventory = find_runs(source.folders)
    # Each partition counts as a separate dataset here: the runs of a row must agree within and among partitions.
    runs = [_name_halves(run) for run in inventory.runs if run.subset in ("base", "new")]
    if not runs:
        raise UserError(
            f"There is no run on base or new classes below {_listed(source)}. The figure needs CLIP and a trained "
            f"method on both halves, DATASET.SUBSAMPLE_CLASSES base and new.{_first_problem(inventory)}"
        )
    ours = _choose(_rows(runs, source, zero_shot=False), learned, "--learned", "trained")
    fixed = _rows(runs, source, zero_shot=True)
    if not hand_crafted:  # CLIP with one template, which others extend
        fixed = [row for row in fixed if is_clip(row.trainer)] or fixed
    theirs = _choose(fixed, hand_crafted, "--hand-crafted", "zero-shot")
    shots = {run.shots for run in runs if run.trainer == ours.trainer}  # a row would keep only the newest
    if len(shots) > 1:
        raise UserError(
            f"The runs of {ours.label} are of {' and '.join(sorted(map(show, shots)))} shots, which are not tested "
            "together. Name folders with one number of shots."
        )
    places = dict.fromkeys([*ours.datasets, *theirs.datasets])
    pairs = [pair for place in places for pair in _pairs(ours, theirs, place, inventory)]
    return Halves(ours.label, theirs.label, tuple(pairs))


def _mean(pairs: Sequence[Pair]) -> Pair:
    """Return the mean over the seeds of one partition."""
    sides = ("in_learned", "in_hand_crafted", "out_learned", "out_hand_crafted")
    values = [sum(getattr(pair, side) for pair in pairs) / len(pairs) for side in sides]
    return Pair(pairs[0].dataset, pairs[0].partition, None, *values)


def make_groups(pairs: Iterable[Pair]) -> tuple[list[Group], list[str]]:
    """Group the pairs for the tests. Also return the names of groups with a single pair, which cannot be tested."""
    named: dict[str, list[Pair]] = {}
    for pair in _ordered(pairs):
        name = "halves by label" if pair.partition == LABEL else f"random halves of {pair.dataset}"
        named.setdefault(name, []).append(pair)
    groups = [Group(name, tuple(members)) for name, members in named.items() if len(members) > 1]
    single = [name for name, members in named.items() if len(members) == 1]
    if not groups:
        (pair, *_) = (members[0] for members in named.values())
        raise UserError(
            f"There is only one pair for {' and for '.join(single)} ({_place(pair.dataset, pair.partition)}, seed "
            f"{pair.seed}), and a paired test needs two. Add runs of other partitions, DATASET.PARTITION random:K, or "
            "of other seeds."
        )
    return groups, single


def _ordered(pairs: Iterable[Pair]) -> list[Pair]:
    """Return pairs in an order that does not depend on folders: random halves first, then by dataset and number."""
    found = list(pairs)
    places = {dataset: place for place, dataset in enumerate(sort_datasets(pair.dataset for pair in found))}

    def key(pair: Pair) -> tuple[bool, int, int, int]:
        number = number_of(pair.partition)
        seed = -1 if pair.seed is None else pair.seed
        return number is None, places[pair.dataset], -1 if number is None else number, seed

    return sorted(found, key=key)


def _name_halves(run: Run) -> Run:
    """Move the partition of a run from its protocol to the name of its dataset."""
    partition = known(run.protocol)["partition"]
    protocol = {key: value for key, value in run.protocol.items() if key != "partition"}
    return replace(run, dataset=f"{run.dataset}{_SEPARATOR}{partition}", protocol=protocol)


def _rows(runs: Sequence[Run], source: Source, zero_shot: bool) -> list[Row]:
    return make_rows([run for run in runs if is_zero_shot(run.trainer) is zero_shot], source.names, Inventory())


def _choose(rows: Sequence[Row], name: str, flag: str, what: str) -> Row:
    """Return the row with a name, or the only row if no name is given."""
    if not rows:
        raise UserError(f"There is no {what} run. The figure compares a trained method with zero-shot CLIP.")
    found = find_baselines(rows, name) if name else rows
    if not found:
        labels = [row.label for row in rows]
        meant = nearest(name, labels)
        raise UserError(f"{flag} {name}: no {what} method has that name.{meant} There are: {some_of(labels)}.")
    if len(found) > 1:
        several = some_of(row.label for row in found)
        raise UserError(f"There are several {what} methods: {several}. Choose one with {flag}, or name fewer folders.")
    return found[0]


def _pairs(ours: Row, theirs: Row, place: str, inventory: Inventory) -> Iterable[Pair]:
    """Yield the pairs of a dataset and partition; refuse runs without a counterpart."""
    dataset, _, partition = place.rpartition(_SEPARATOR)
    learned, fixed = ([row.by_seed(place, half) for half in ("base", "new")] for row in (ours, theirs))
    for row, halves in ((ours, learned), (theirs, fixed)):
        for half, seeds in zip(("base", "new"), halves, strict=True):
            if not seeds:
                raise UserError(
                    f"{row.label} has no result on the {half} classes of {_place(dataset, partition)}. "
                    f"Run it, or name folders without these halves.{_first_problem(inventory)}"
                )
    for seed in learned[0].keys() | learned[1].keys():
        if seed not in learned[0] or seed not in learned[1]:
            half = "new" if seed in learned[0] else "base"
            raise UserError(
                f"{ours.label} has no result on the {half} classes of {_place(dataset, partition)} with seed {seed}, "
                f"only on the other half. Run it, or leave out that seed.{_first_problem(inventory)}"
            )
    for seed in learned[0]:
        values = []
        for one, other in zip(learned, fixed, strict=True):
            reference = other[seed] if seed in other else next(iter(other.values()))  # it does not depend on the seed
            _refuse_other_protocol(one[seed], reference)
            values += [one[seed].accuracy, reference.accuracy]
        yield Pair(dataset, partition, seed, *values)


def _refuse_other_protocol(one: Run, other: Run) -> None:
    for key, first, second in not_comparable(one, other):
        raise UserError(
            f"{one.folder} and {other.folder} cannot be compared: {key} is {show(first)} in the first and "
            f"{show(second)} in the second. Give the folders of one protocol."
        )


def _place(dataset: str, partition: str) -> str:
    return dataset if partition == LABEL else f"{dataset} under {partition}"


def _first_problem(inventory: Inventory) -> str:
    """Return the first problem of the inventory, for the end of a message."""
    return "".join(f" {one.folder}: {one.reason}." for one in inventory.problems[:1])


def _listed(source: Source) -> str:
    return some_of(str(folder) for folder in source.folders)
