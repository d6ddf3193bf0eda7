"""Trains a finished run for more epochs (`--more-epochs`).

The additional epochs use the learning rates of a run of the new length, but the earlier ones used those of the old
length. The result therefore differs from that of a run of the new length, and its protocol states `continued_after`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from yacs.config import CfgNode

from cocoamix.errors import UserError
from cocoamix.io import checkpoints

from .checkpointer import RESUME, damaged, epochs_in, read_state
from .origin import check_settings
from .results import RESULTS
from .schedules import build_schedule

KEY, FACT = "OPTIM.MAX_EPOCH", "continued_after"
_STAGES = ("session", "second_stage", "heldout")  # keys in the resume states of methods with stages or sessions


def continue_run(trainer: Any, more: bool) -> None:
    """Record in a trainer's protocol whether its run was continued; first extend the run if `more` is set.

    Args:
        trainer: The trainer, before it resumes. Its output folder holds the run.
        more: Whether to continue a finished run up to the trainer's OPTIM.MAX_EPOCH.
    """
    if more:
        _extend(trainer, Path(trainer.output_dir))
    for folder in filter(None, (trainer.output_dir, trainer.cfg.RESUME)):
        path = Path(folder, RESUME)
        if epochs_in(path):
            trainer.protocol.update(continuation(read_state(path)["protocol"], path))
            return


def _extend(trainer: Any, folder: Path) -> None:
    """Prepare a finished run for a larger OPTIM.MAX_EPOCH, and rename its results to results-<epochs>.json."""
    path, optim = folder / RESUME, trainer.cfg.OPTIM
    if not path.is_file():
        raise UserError(f"--more-epochs continues a finished run; {folder} has no {RESUME}. Train without it first.")
    state = read_state(path)
    before, wanted, done = state["settings"].get(KEY), optim.MAX_EPOCH, state["epoch"]
    if before == wanted:  # extended before, or never
        print(f"--more-epochs: the run in {folder} already has an {KEY} of {wanted}; {done} epochs are done.")
        return
    if any(key in state for key in _STAGES):
        raise UserError("--more-epochs is not for methods that train in stages or sessions. Use another --output-dir.")
    if not isinstance(before, int) or done != before:
        raise UserError(
            f"--more-epochs continues a finished run, but {folder} has {done} of {before} epochs. Resume it first."
        )
    if wanted < before:
        raise UserError(f"--more-epochs needs an {KEY} above {before}, where the run in {folder} ended, not {wanted}.")
    state["settings"][KEY] = wanted
    check_settings(path, state["settings"], trainer.training_settings(), state["protocol"], trainer.protocol)
    for name in state["schedules"]:
        _continue_schedule(state, name, optim, done)
    state["protocol"][FACT] = [*continuation(state["protocol"], path).get(FACT, ()), before]
    print(
        f"Continuing a finished run of {before} epochs to {wanted}. Its first {before} epochs used the learning rates "
        f"of a run of {before} epochs, so the result differs from a run of {wanted}. Its protocol has {FACT}."
    )
    if (folder / RESULTS).is_file():
        os.replace(folder / RESULTS, folder / f"results-{before}.json")
    checkpoints.save(path, state)


def _continue_schedule(state: Mapping[str, Any], name: str, optim: CfgNode, done: int) -> None:
    """Replace the state of a schedule by that of the longer schedule after the epochs already done."""
    groups = state["optimizers"][name]["param_groups"]
    rates = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": group["initial_lr"]} for group in groups]
    stand_in = torch.optim.SGD(rates, lr=optim.LR)
    schedule = build_schedule(stand_in, optim)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch expects optimizer steps in between
        for _ in range(done):
            schedule.step()
    state["schedules"][name] = checkpoints.plain_schedule(schedule)
    for group, moved in zip(groups, stand_in.param_groups, strict=True):
        group["lr"] = moved["lr"]


def continuation(protocol: Mapping[str, Any], path: Path) -> dict[str, list[int]]:
    """Return the entry of a protocol that says after how many epochs its run was continued; empty if it was not.

    Args:
        protocol: The protocol.
        path: The file that holds it, for messages.
    """
    found = protocol.get(FACT, [])
    if not isinstance(found, list) or not all(type(one) is int for one in found):
        raise damaged(path, f"its {FACT} is not a list of numbers")
    return {FACT: found} if found else {}
