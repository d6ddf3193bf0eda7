"""Processes that load images."""

from __future__ import annotations

import os
from multiprocessing.queues import Queue

from torch.utils.data import get_worker_info

_STATUS = 28  # the number that Linux has for a full device


def end_if_unheard() -> None:
    """In a loader process, let a batch that cannot be sent, as for lack of shared memory, end the process.

    Python would print a traceback and drop the batch, and the training would wait for it for ever.
    """
    if get_worker_info() is not None:
        Queue._on_queue_feeder_error = staticmethod(_end)  # type: ignore[attr-defined]


def _end(error: BaseException, batch: object) -> None:
    os._exit(_STATUS)
