"""What the worker processes of a loader do if they fail."""

from __future__ import annotations

import os
from multiprocessing.queues import Queue

from torch.utils.data import get_worker_info

_STATUS = 28  # ENOSPC on Linux


def exit_if_batch_is_lost() -> None:
    """Make a loader process exit if it cannot send a batch, for example for lack of shared memory.

    By default, Python prints a traceback and drops the batch, and the main process waits for it forever.
    """
    if get_worker_info() is not None:
        Queue._on_queue_feeder_error = staticmethod(_end)  # type: ignore[attr-defined]


def _end(error: BaseException, batch: object) -> None:
    os._exit(_STATUS)
