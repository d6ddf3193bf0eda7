"""The number of threads of a run: one if the model is too small to gain from more, else torch's default.

Another number may change the last bits of a sum, so a resumed run uses the number of its start, and a result states it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from yacs.config import CfgNode

from cocoamix.clip.backbones import BACKBONES
from cocoamix.io import checkpoints

from .checkpointer import RESUME, damaged, epochs_in

# Width of the text encoder below which one thread is faster, or as fast on an idle machine and far faster on a busy
# one, as `python benchmarks/threads.py` measures. Of the models here only `tiny` (128) is below; OpenAI's start at 512.
ONE_THREAD_BELOW = 256
_CHOSEN_BY_USER = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
KEY = "threads"  # in a resume file and the origin of a checkpoint: the numbers that the run has used so far


def suits_one_thread(cfg: CfgNode, section: str) -> bool:
    """Return whether every model that a configuration names is small.

    The answer depends on the configuration alone, never on the load of the machine: another number of threads may
    change the last bits of a sum, and a resumed run must compute as before.

    Args:
        cfg: The configuration.
        section: The trainer's node below TRAINER.
    """
    names = cfg.TRAINER.get(section, {}).get("BACKBONES") or [cfg.MODEL.BACKBONE.NAME]
    return all(name in BACKBONES and BACKBONES[name].sizes.text_width < ONE_THREAD_BELOW for name in names)


@contextmanager
def threads_for(cfg: CfgNode, section: str, resumes: bool = True) -> Iterator[None]:
    """Use the number of threads that suits a run in this context.

    A number in the environment comes first, then that of the run to resume, then one thread for small models.

    Args:
        cfg: The configuration.
        section: The trainer's node below TRAINER.
        resumes: Whether the run resumes if its output folder holds an unfinished one.
    """
    before = torch.get_num_threads()
    if not any(name in os.environ for name in _CHOSEN_BY_USER):
        earlier = _used_by_run(cfg) if resumes else ()
        torch.set_num_threads(earlier[0] if earlier else 1 if suits_one_thread(cfg, section) else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _used_by_run(cfg: CfgNode) -> tuple[int, ...]:
    """Return the numbers of threads of the run that would be resumed; empty if there is none, or it lacks them."""
    for path in (Path(folder, RESUME) for folder in (cfg.OUTPUT_DIR, cfg.RESUME) if folder):
        if epochs_in(path):
            return recorded(checkpoints.load(path), path)
    return ()


def recorded(content: Mapping[str, Any], path: Path) -> tuple[int, ...]:
    """Return the numbers of threads in a resume file or in the origin of a checkpoint, whose file is `path`."""
    numbers = content.get(KEY) or []
    if not isinstance(numbers, list) or not all(type(number) is int and 0 < number < 10_000 for number in numbers):
        raise damaged(path, "its numbers of threads are no such numbers")
    return tuple(numbers)


def used_on(device: torch.device) -> tuple[int, ...]:
    """Return the number of threads as the first that a run has used; empty on a GPU, which it does not affect."""
    return (torch.get_num_threads(),) if device.type == "cpu" else ()


def continued(then: Sequence[int], now: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers of threads of a resumed run, each once.

    Args:
        then: The numbers that it had used.
        now: Those that this start has used; empty on a GPU.
    """
    used = tuple(dict.fromkeys([*then, *now]))
    if len(used) > 1 and used != tuple(now):
        print(
            f"Note: this run started with {used[0]} thread{'s' * (used[0] > 1)} and continues with {now[-1]}, which "
            f"may change the last bits of its result. OMP_NUM_THREADS={used[0]} avoids that."
        )
    return used
