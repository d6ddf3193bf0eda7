"""The number of threads of a run: one if the model is too small to gain from more, else torch's default."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from yacs.config import CfgNode

from cocoamix.clip.backbones import BACKBONES

# Width of the text encoder below which one thread is faster, or as fast on an idle machine and far faster on a busy
# one, as `python benchmarks/threads.py` measures. Of the models here only `tiny` (128) is below; OpenAI's start at 512.
ONE_THREAD_BELOW = 256
_CHOSEN_BY_USER = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


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
def threads_for(cfg: CfgNode, section: str) -> Iterator[None]:
    """Use one thread in this context if that suits the models. A number in the environment takes precedence."""
    before = torch.get_num_threads()
    if suits_one_thread(cfg, section) and not any(name in os.environ for name in _CHOSEN_BY_USER):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
