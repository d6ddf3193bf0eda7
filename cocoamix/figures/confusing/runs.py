"""The runs of `confusing`: prompts of several losses at several epochs, and zero-shot CLIP."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cocoamix.errors import UserError

from ..kinds import Gathered, gather, own_runs
from ..loss_names import VARIED, Loss, loss_of
from .difficulty import Difficulty, split_images

if TYPE_CHECKING:
    from cocoamix.report.readers.runs import Inventory, Run

BASE, NEW = "base", "new"
_ZERO_SHOT = "zeroshotclip"


class Trained(NamedTuple):
    """A loss and the epochs of a model; None if it was selected on validation images."""

    loss: Loss
    epoch: int | None


def gather_losses(inventory: Inventory, losses: Sequence[str]) -> Gathered[Trained]:
    """Return the runs of some losses; refuse a loss with several settings."""

    def point(run: Run) -> Trained | None:
        loss = loss_of(run.settings)
        return Trained(loss, run.epoch) if loss and loss.name in losses and run.subset in (BASE, NEW) else None

    needed = "runs of CoCoAMix from base to new with TRAINER.COCOAMIX.ENSEMBLE none are needed"
    found = gather(own_runs(inventory, "none"), point, VARIED, f"{needed}, with {' or '.join(losses)} for LOSS")
    by_name: dict[str, Loss] = {}
    for loss, _ in found.cells:
        other = by_name.setdefault(loss.name, loss)
        if other != loss:
            raise UserError(
                f"There are runs of {loss.title} with {other.setting_text} and with {loss.setting_text}. Give the "
                "folders of one setting."
            )
    return found


def find_zero_shot(inventory: Inventory, trained: Gathered[Trained], dataset: str, subset: str) -> Run | None:
    """Return the run of zero-shot CLIP on a part of a dataset; None if there is no such run, or no learned prompt.

    Its protocol must be that of the learned prompts.
    """
    from cocoamix.registry import plain_name
    from cocoamix.report.model.rows import not_comparable, show
    from cocoamix.report.names import simplify
    from cocoamix.run.predictions import FILE

    prompts = [run for cells in trained.cells.values() for run in cells.get((dataset, subset), {}).values()]
    found = [
        run
        for run in inventory.runs
        if simplify(plain_name(run.trainer)) == _ZERO_SHOT and (run.dataset, run.subset) == (dataset, subset)
    ]
    if not found or not prompts:
        return None
    comparable = [run for run in found if not any(not_comparable(run, prompt) for prompt in prompts)]
    if not comparable:
        prompt, ((key, one, two), *_) = next(
            (prompt, facts) for prompt in prompts if (facts := not_comparable(found[0], prompt))
        )
        raise UserError(
            f"No run of ZeroshotCLIP on the {subset} classes of {dataset} can be compared with the learned prompts: "
            f"{key} is {show(one)} in {found[0].folder} and {show(two)} in {prompt.folder}. Give the output folder "
            "of a run of ZeroshotCLIP with the same protocol."
        )
    # Prefer runs that have predictions, then the newest.
    return max(comparable, key=lambda run: (Path(run.folder, FILE).is_file(), run.written, run.folder))


def split_dataset(inventory: Inventory, trained: Gathered[Trained], dataset: str, gap: float) -> Difficulty:
    """Divide the base test images of a dataset into their parts."""
    run = find_zero_shot(inventory, trained, dataset, BASE)
    if run is None:
        raise UserError(
            f"There is no run of ZeroshotCLIP on the base classes of {dataset}, which decides what is easy, confusing "
            "and hard. Run it with TEST.SAVE_PREDICTIONS True, and add its folder."
        )
    return split_images(dataset, Path(run.folder), gap)
