"""Runs to be disturbed, one of each kind, forked so that they start immediately; and the files they must produce."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # the first optimizer imports it, which would take two seconds in each forked run

from cocoamix.io import checkpoints
from tests.conftest import command, epochs

_FEW = ("DATASET.NUM_SHOTS", "4")
_BASE = (*_FEW, "DATASET.SUBSAMPLE_CLASSES", "base")
_MIX = ("TRAINER.COCOAMIX.N_CTX", "2", "TRAINER.COCOAMIX.WEIGHT_EPOCHS", "2")
_SESSIONS = ("FSCIL.BASE", "4", "FSCIL.WAY", "2", "FSCIL.SHOTS", "2", "OPTIM.NAME", "adam", "OPTIM.MAX_EPOCH", "2")
_SESSIONS += ("FSCIL.WEIGHT_EPOCHS", "2", "FSCIL.BASE_WEIGHT_EPOCHS", "2")
_EPISODES = ("TRAINER.FSPT.N_CTX", "2", "TRAINER.FSPT.F_N_CTX", "2", "TRAINER.FSPT.N_WAYS", "2")
_EPISODES += ("TRAINER.FSPT.K_SHOTS", "2", "TRAINER.FSPT.OUTER_BATCH", "6", "TRAINER.FSPT.QUERY_SHOTS", "2")
_EPISODES += ("TRAINER.FSPT.OUTER_STEPS", "5", "TRAINER.FSPT.LATER_STEPS", "3", "TRAINER.FSPT.BLOCK_STEPS", "2")
_POOL = ("TRAINER.L2P.POOL_SIZE", "4", "TRAINER.L2P.TOP_K", "2", "TRAINER.L2P.LENGTH", "2")
_EVERY = ("TRAIN.CHECKPOINT_FREQ", "1")

# Trainer and settings of each kind of run.
KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "CoOp": ("CoOp", (*_BASE, *_EVERY)),
    "CoOp, best on val": ("CoOp", (*_BASE, "TEST.FINAL_MODEL", "best_val", "OPTIM.NAME", "adam")),
    "CoOp, images encoded anew": ("CoOp", (*_BASE, "CACHE.MODE", "off", "OPTIM.MAX_EPOCH", "2")),
    "CoCoOp": ("CoCoOp", (*_BASE, "TRAINER.COCOOP.N_CTX", "2", "OPTIM.MAX_EPOCH", "2")),
    "KgCoOp": ("KgCoOp", _BASE),
    "ProGrad": ("ProGrad", _BASE),
    "DePT": ("DePT", _BASE),
    "MaPLe": ("MaPLe", (*_BASE, "TRAINER.MAPLE.PROMPT_DEPTH", "2", "OPTIM.MAX_EPOCH", "2")),
    "TuneEn": (
        "TuneEn",
        (*_BASE, "TRAINER.ENLEARN.BACKBONES", "['tiny', 'tiny']", "TRAINER.ENLEARN.BACKBONE_WEIGHTS", "['', 'random']"),
    ),
    "CoCoAMix": ("CoCoAMix", (*_BASE, *_MIX, *_EVERY)),
    "CoCoAMix, two stages": ("CoCoAMix", (*_BASE, *_MIX, "TRAINER.COCOAMIX.STAGE", "two")),
    "CoCoAMix, folds": (
        "CoCoAMix",
        (*_BASE, *_MIX, "TRAINER.COCOAMIX.STAGE", "two", "TRAINER.COCOAMIX.WEIGHT_FIT", "heldout")
        + ("OPTIM.MAX_EPOCH", "2"),
    ),
    "CoOp, sessions": ("CoOpFSCIL", _SESSIONS),
    "CoOp, sessions, names of all": ("CoOpFSCIL", (*_SESSIONS, "FSCIL.TUNED_CLASSES", "all")),
    "FSPT, sessions": ("FSPTFSCIL", (*_SESSIONS, *_EPISODES)),
    "FACT, sessions": ("FACTFSCIL", _SESSIONS),
    "L2P, sessions": ("L2PFSCIL", (*_SESSIONS, *_POOL)),
    "L2P, sessions, visual": ("L2PFSCIL", (*_SESSIONS, *_POOL, "TRAINER.L2P.POOL", "visual")),
    "CoCoAMix, sessions": ("CoCoAMixFSCIL", (*_SESSIONS, *_MIX[:2], "TRAINER.COCOAMIX.STAGE", "two")),
}


@dataclass(frozen=True)
class Place:
    """Where runs find their data and leave their results."""

    folder: Path
    data: Path
    config: Path

    def arguments(self, kind: str, folder: Path, *settings: str, flags: Sequence[str] = ()) -> list[str]:
        """Return the arguments of train.py for a kind of run."""
        trainer, own = KINDS[kind]
        return command(self.data, folder, self.config, *flags, *own, *settings, trainer=trainer)

    def fresh(self, name: str) -> Path:
        """Return an empty folder below this one."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder


class Child:
    """train.py in a forked process, which saves the seconds that importing torch takes."""

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        prepare: Callable[[], None] = lambda: None,
        main: Callable[[Sequence[str]], int] | None = None,
    ) -> None:
        """Start a run.

        Args:
            arguments: The arguments of train.py.
            log: The file for its output.
            prepare: Called first in the new process.
            main: The function to run; by default that of train.py.
        """
        import cocoamix.train

        self.log = log
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._be(arguments, prepare, main or cocoamix.train.main)

    def _be(self, arguments: Sequence[str], prepare: Callable[[], None], main: Callable[[Sequence[str]], int]) -> None:
        status = 70
        try:
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            stream = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            for number in (1, 2):
                os.dup2(stream, number)
            sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
            sys.stderr = sys.__stderr__ = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
            prepare()
            status = main(arguments)
        except KeyboardInterrupt:
            status = 130  # the signal came right after the end
        except BaseException:
            traceback.print_exc()
        finally:
            # No exception may propagate into the tests of the process that this one was forked from.
            try:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                sys.stdout.flush()
            finally:
                os._exit(status)

    def wait(self, timeout: float = 300) -> int:
        """Return the exit status, negative for a signal; the child is killed after `timeout` seconds."""
        end = time.monotonic() + timeout
        while True:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > end:
                self.kill(signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError(f"still running after {timeout} s:\n{self.output()[-1500:]}")
            time.sleep(0.005)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the process."""
        os.kill(self.pid, how)

    def output(self) -> str:
        """Return its output so far."""
        return self.log.read_text(errors="replace")


def finish(arguments: Sequence[str], log: Path) -> Child:
    """Run to the end, and check that it succeeds."""
    child = Child(arguments, log)
    status = child.wait()
    assert status == 0, child.output()[-2500:]
    return child


def outcome(folder: Path) -> dict[str, Any]:
    """Return what a run must reproduce bit for bit: digests of its checkpoints and its results."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and (path.name.startswith("model") or path.parent.name == "sessions"):
            found[str(path.relative_to(folder))] = _digest(checkpoints.load(path))
    results = json.loads((folder / "results.json").read_text())
    for key in ("metrics", "sessions", "fingerprint", "finished"):
        found[key] = results.get(key)
    found["metrics.csv"] = epochs(folder)
    assert any(key.startswith(("sessions/", "prompt", "coa", "learn")) or "/model" in key for key in found), found
    return found


def _digest(content: Any) -> str:
    """Return a digest of tensors and plain values, whatever contains them."""
    digest = hashlib.sha256()

    def add(value: Any) -> None:
        digest.update(type(value).__name__.encode())
        if isinstance(value, torch.Tensor):
            digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
            digest.update(value.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b"")
        elif isinstance(value, Mapping):
            for key in value:
                if key != "seconds":  # how long something took
                    digest.update(repr(key).encode())
                    add(value[key])
        elif isinstance(value, (list, tuple)):
            for one in value:
                add(one)
        else:
            digest.update(repr(value).encode())

    add(content)
    return digest.hexdigest()
