"""Tells the process that started a run what the run is doing, as lines of JSON.

Nothing is sent unless the environment names a file descriptor. What cannot be sent is dropped: a run never waits for
its reader.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress

VARIABLE = "COCOAMIX_STEPS"  # the file descriptor to write to


def send_step(**facts: object) -> None:
    """Send a line, such as {"epoch": 3, "epochs": 50} or {"evaluates": "test"}."""
    descriptor = os.environ.get(VARIABLE, "")
    if descriptor.isdigit():
        with suppress(OSError):  # the reader has ended, or is slow
            os.write(int(descriptor), f"{json.dumps(facts)}\n".encode())
