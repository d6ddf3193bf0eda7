"""Where a run is among the phases of its training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cocoamix.model import Phase


class Course:
    """The phases of a run and the current one.

    Attributes:
        phases: All phases.
        start: The epoch of the run with which the current phase begins.
    """

    def __init__(self, phases: Sequence[Phase]) -> None:
        self.phases = list(phases)
        self._index = self.start = 0
        self._done = False

    @property
    def phase(self) -> Phase:
        """The current phase; after the training the last one."""
        return self.phases[self._index]

    @property
    def total(self) -> int:
        """Number of epochs of the run: the largest possible one while phases may end early."""
        return self.start + sum(phase.epochs for phase in self.phases[self._index :] if not self._done)

    def advance(self, epoch: int) -> None:
        """End the current phase before an epoch of the run."""
        self.start = epoch
        self._done = self._index + 1 == len(self.phases)
        self._index = min(self._index + 1, len(self.phases) - 1)

    def advance_to(self, epoch: int) -> None:
        """End all phases that have their whole length before an epoch of the run."""
        while not self._done and epoch >= self.start + self.phase.epochs:
            self.advance(self.start + self.phase.epochs)

    def finish(self, epoch: int) -> None:
        """End the last phase before an epoch of the run."""
        self._index, self.start, self._done = len(self.phases) - 1, epoch, True

    def state(self) -> list[Any]:
        """Return the state that a resume needs."""
        return [self._index, self.start, self._done]

    def restore(self, state: Sequence[Any], epoch: int) -> None:
        """Resume from `state` before an epoch of the run; raise ValueError if it does not fit the phases."""
        index, start, done = state
        sound = type(index) is int and type(start) is int and type(done) is bool
        if not sound or not 0 <= index < len(self.phases) or not 0 <= start <= epoch:
            raise ValueError(f"phase {index} from epoch {start} does not exist")
        length = self.phases[index].epochs
        if (done and (start != epoch or index + 1 < len(self.phases))) or (not done and epoch >= start + length):
            raise ValueError(f"epoch {epoch} is not in phase {index} from epoch {start}")
        self._index, self.start, self._done = index, start, done

    def epochs_of(self, name: str, done: int) -> int:
        """Return how many of `done` epochs of a run without early ends trained a part."""
        trained = before = 0
        for phase in self.phases:
            trained += max(0, min(done - before, phase.epochs)) if name in phase.parts else 0
            before += phase.epochs
        return trained

    def views(self) -> int:
        """Return the number of augmentations of an image over all phases."""
        return max(phase.first_view + (min(phase.views, phase.epochs) or phase.epochs) for phase in self.phases)


def describe_epochs(phases: Sequence[Phase]) -> str:
    """Return the lengths of the phases, for the overview."""
    counts: dict[tuple[str, int], int] = {}
    for phase in phases:
        counts[phase.name, phase.epochs] = counts.get((phase.name, phase.epochs), 0) + 1
    if len(counts) == 1:
        epochs = phases[0].epochs
        return f"{epochs} epoch{'s' * (epochs > 1)}"
    texts = [
        f"{f'{count} x ' if count > 1 else ''}{epochs} epochs ({name})" for (name, epochs), count in counts.items()
    ]
    return ", ".join(texts)


__all__ = ["Course", "describe_epochs"]
