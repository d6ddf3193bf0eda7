"""Check, before the first run, that training keeps checkpoints of the epochs that a plan evaluates."""

from __future__ import annotations

from collections.abc import Sequence

from cocoamix.errors import UserError

from .runs import Run


def check_epochs(runs: Sequence[Run]) -> None:
    """Refuse evaluations of epochs without a checkpoint. Only configurations are read."""
    from cocoamix.train import parse_arguments, setup_cfg

    trainings = {run.folder: run for run in runs if run.trains}
    kept: dict[object, tuple[int, int, bool]] = {}  # by folder: last epoch, checkpoint frequency, open end
    for run in runs:
        training = trainings.get(run.needs[0]) if run.needs else None
        if run.epoch is None or training is None:
            continue
        if training.folder not in kept:
            cfg = setup_cfg(parse_arguments(training.arguments))
            # A second stage adds epochs, and their number is known only when it ends.
            open_end = cfg.TRAINER.NAME.endswith("CoCoAMix") and cfg.TRAINER.COCOAMIX.STAGE == "two"
            kept[training.folder] = cfg.OPTIM.MAX_EPOCH, cfg.TRAIN.CHECKPOINT_FREQ, open_end
        last, every, open_end = kept[training.folder]
        between = every > 0 and run.epoch % every == 0 and (run.epoch < last or open_end)
        if run.epoch != last and not between:
            raise UserError(
                f"The run {run.name} of the plan evaluates epoch {run.epoch}, of which {training.method} keeps no "
                f"checkpoint: its OPTIM.MAX_EPOCH is {last} and its TRAIN.CHECKPOINT_FREQ {every}. Choose other "
                "epochs, or change these keys in its `set` or with --set."
            )
