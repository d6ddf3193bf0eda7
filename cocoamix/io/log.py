"""The log of a run: a copy of everything that is printed, and what is known of the machine."""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib import metadata
from itertools import count
from typing import Any

import torch

from cocoamix.errors import discard


class Logger:
    """Replaces `sys.stdout`: prints, and writes the same to the file `fpath`."""

    def __init__(self, fpath: str) -> None:
        self.console = sys.stdout
        self.file = open(fpath, "w", encoding="utf-8")  # noqa: SIM115 (open as long as the run)

    def write(self, msg: str) -> int:
        """Write to the file and the console."""
        if not self.file.closed:
            try:
                self.file.write(msg)
                self.file.flush()  # a killed process must leave its log behind
            except OSError as error:
                discard(self.file)
                error.filename = self.file.name
                raise
        return self.console.write(msg)

    def close(self) -> None:
        """Close only the file, because others still use the console."""
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        # flush, isatty, encoding, fileno, ...
        if name == "console":
            raise AttributeError(name)
        return getattr(self.console, name)


def setup_logger(output: str | None = None) -> None:
    """Copy what is printed from now on to `output`: a .txt or .log file, or a folder that gets a log.txt."""
    if output is None:
        return
    if isinstance(sys.stdout, Logger):  # a second run in this process gets its own log
        sys.stdout.close()
        sys.stdout = sys.stdout.console
    path = output if output.endswith((".txt", ".log")) else os.path.join(output, "log.txt")
    sys.stdout = Logger(_claim(path))


def _claim(path: str) -> str:
    """Create `path`, or a new name with the time if it exists, so that no log is overwritten. Return the name."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    stamped = path + time.strftime("-%Y-%m-%d-%H-%M-%S")
    for number in count():
        name = path if number == 0 else stamped if number == 1 else f"{stamped}-{number}"
        try:
            with open(name, "x"):
                return name
        except FileExistsError:
            continue
    raise AssertionError("unreachable")


def collect_env_info() -> str:
    """Describe the machine and the main packages, one line each."""
    lines = [f"Python: {platform.python_version()}", f"Platform: {platform.platform()}", f"CPUs: {os.cpu_count()}"]
    for package in ("torch", "torchvision", "numpy", "pillow"):
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            version = "not installed"
        lines.append(f"{package}: {version}")
    try:
        lines.append(f"CUDA: {torch.version.cuda if torch.cuda.is_available() else 'not available'}")
        lines += [f"GPU {i}: {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    except (RuntimeError, AssertionError) as error:  # report a broken driver, but do not stop
        lines.append(f"CUDA: {error}")
    return "\n".join(lines)
