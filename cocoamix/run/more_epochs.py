"""Train a finished run for more epochs (`--more-epochs`).

The later epochs use the learning rates of a run of the new length. The earlier ones used those of the old length, so
the result is not that of a run of the new length, and its protocol states `continued_after`.
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
from cocoamix.io.files import write_json
from cocoamix.io.texts import read_json

from .checkpointer import RESUME, read_state
from .origin import check_settings
from .results import RESULTS
from .schedules import build_schedule

KEY, FACT = "OPTIM.MAX_EPOCH", "continued_after"
_FILE = "more_epochs.json"
_STAGES = ("session", "second_stage", "heldout")  # what else the states of methods with stages hold


def continue_run(trainer: Any, more: bool) -> None:
    """Let a trainer state that its run was continued; first extend the run if `more` epochs are asked for.

    Args:
        trainer: The trainer, before it resumes. Its output folder holds the run.
        more: Whether to train a finished run on, to the trainer's OPTIM.MAX_EPOCH.
    """
    folder = Path(trainer.output_dir)
    if not (folder / RESUME).is_file():
        (folder / _FILE).unlink(missing_ok=True)  # of an earlier run that was deleted
    if more:
        _extend(trainer, folder)
    before = continued_after(folder)
    if before:
        trainer.protocol[FACT] = before


def _extend(trainer: Any, folder: Path) -> None:
    """Prepare a finished run for a larger OPTIM.MAX_EPOCH, and rename its results to results-<epochs>.json."""
    path, optim = folder / RESUME, trainer.cfg.OPTIM
    if not path.is_file():
        raise UserError(f"--more-epochs continues a finished run; {folder} has no {RESUME}. Train without it first.")
    state = read_state(path)
    before, wanted, done = state["settings"].get(KEY), optim.MAX_EPOCH, state["epoch"]
    if before == wanted:  # extended before, or never
        print(f"--more-epochs: the run in {folder} has an {KEY} of {wanted} already; {done} epochs are done.")
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
    earlier = [one for one in continued_after(folder) if one < before]  # not this one, if it was interrupted here
    state["protocol"][FACT] = [*earlier, before]
    print(
        f"Continuing a finished run of {before} epochs to {wanted}. Its first {before} epochs used the learning rates "
        f"of a run of {before} epochs, so the result differs from that of a run of {wanted}. Its protocol has {FACT}."
    )
    if (folder / RESULTS).is_file():
        os.replace(folder / RESULTS, folder / f"results-{before}.json")
    write_json(folder / _FILE, {FACT: state["protocol"][FACT]})
    checkpoints.save(path, state)


def _continue_schedule(state: Mapping[str, Any], name: str, optim: CfgNode, done: int) -> None:
    """Replace the state of a schedule by that of the longer one after the epochs that are done."""
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


def continued_after(folder: str | os.PathLike[str]) -> list[int]:
    """Return the numbers of epochs after which the run in a folder was continued."""
    path = Path(folder, _FILE)
    if not path.is_file() or not Path(folder, RESUME).is_file():
        return []
    content = read_json(path)
    found = content.get(FACT) if isinstance(content, dict) else None
    if not isinstance(found, list) or not all(type(one) is int for one in found):
        raise UserError(f"{path} is damaged. Restore it, or delete the folder.")
    return found
