"""One run at a time in a folder: a second run names the first, and no lock outlives its holder."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cocoamix.errors import UserError
from cocoamix.run import lock
from cocoamix.run.lock import LOCK, FolderLock
from tests.conftest import ROOT, Runner

fcntl = pytest.importorskip("fcntl")

SHORT = ["DATASET.NUM_SHOTS", "2", "DATASET.SUBSAMPLE_CLASSES", "base", "OPTIM.MAX_EPOCH", "1"]

# A holder that forks a worker, as a loader does, and is then killed.
HOLDER = """
import os, sys, time
from cocoamix.run.lock import FolderLock
with FolderLock(sys.argv[1]):
    worker = os.fork()
    if worker == 0:
        os.close(1)
        time.sleep(60)
        os._exit(0)
    print(worker, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_PATIENCE", 0.0)


def test_second_run_names_the_first(tmp_path: Path) -> None:
    with FolderLock(tmp_path), pytest.raises(UserError) as refusal, FolderLock(tmp_path):
        pass
    message = str(refusal.value)
    for word in (str(tmp_path), f"process {os.getpid()}", os.uname().nodename, "since", "--output-dir"):
        assert word in message
    assert len(message.splitlines()) == 1


def test_lock_is_released_after_the_run(tmp_path: Path) -> None:
    for _ in range(2):
        with FolderLock(tmp_path):
            assert (tmp_path / LOCK).is_file()
    with pytest.raises(ZeroDivisionError), FolderLock(tmp_path):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_lock_of_a_killed_run_does_not_block(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("process 1 on nowhere, since long ago: a much longer text than the next holder's" * 9)
    with FolderLock(tmp_path):
        assert "nowhere" not in (tmp_path / LOCK).read_text()


def test_only_printable_text_of_the_holder_is_shown(tmp_path: Path) -> None:
    with (tmp_path / LOCK).open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write(b"\x1b[2J\xff\n" + b"x" * 10_000)
        held.flush()
        with pytest.raises(UserError) as refusal, FolderLock(tmp_path):
            pass
    message = str(refusal.value)
    assert message.isprintable()
    assert len(message) < 600 + len(str(tmp_path))


def test_lock_removed_while_waiting_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock on a file that its last holder has removed protects nothing: a new one is taken."""
    flock, calls = fcntl.flock, []

    def flock_late(descriptor: int, operation: int) -> None:
        if not calls:
            (tmp_path / LOCK).unlink()
        calls.append(operation)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock_late)
    with FolderLock(tmp_path):
        assert len(calls) == 2
        with pytest.raises(UserError), FolderLock(tmp_path):
            pass


def test_lock_of_a_killed_holder_is_taken_despite_its_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_PATIENCE", 20.0)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert holder.stdout is not None
    worker = int(holder.stdout.readline())
    try:
        assert f"process {holder.pid} " in (tmp_path / LOCK).read_text()
        holder.kill()
        holder.wait()
        os.kill(worker, 0)  # it is alive
        with FolderLock(tmp_path):
            pass
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
        os.kill(worker, signal.SIGKILL)


def test_waits_briefly_for_a_lock_about_to_be_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that a killed run has only just forked still has to close its copy."""
    monkeypatch.setattr(lock, "_PATIENCE", 20.0)
    held = (tmp_path / LOCK).open("wb")
    fcntl.flock(held, fcntl.LOCK_EX)
    threading.Timer(0.2, held.close).start()
    with FolderLock(tmp_path):
        pass
    assert held.closed


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_file_system_without_locks_is_noted(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with FolderLock(tmp_path):
        pass
    assert capsys.readouterr().out == (
        f"Note: {tmp_path} cannot be locked ({os.strerror(number)}). Start no other run in it before this one ends.\n"
    )


class TestTraining:
    @pytest.mark.parametrize("trainer", ["CoOp", "ZeroshotCLIP"])
    def test_second_run_writes_nothing(self, run: Runner, tmp_path: Path, trainer: str) -> None:
        folder = tmp_path / "run"
        folder.mkdir()
        extra = ["--eval-only"] if trainer == "ZeroshotCLIP" else []
        with FolderLock(folder):
            done = run(*extra, *SHORT, trainer=trainer)
            assert [path.name for path in folder.iterdir()] == [LOCK]
        assert done.status == 2
        assert f"process {os.getpid()}" in done.output
        assert "Traceback" not in done.output

    def test_leaves_no_lock_file(self, run: Runner) -> None:
        done = run("--eval-only", *SHORT, trainer="ZeroshotCLIP")
        assert done.status == 0, done.output[-500:]
        assert not (done.folder / LOCK).exists()

    def test_lock_is_held_to_the_end(self, run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """No other run may start while the results are written."""
        from cocoamix.run.results import Results

        write, refused = Results.write, []

        def write_while_another_comes(self: Results, folder: str) -> Path:
            with pytest.raises(UserError) as refusal, FolderLock(folder):
                pass
            refused.append(refusal.value)
            return write(self, folder)

        monkeypatch.setattr(Results, "write", write_while_another_comes)
        assert run("--eval-only", *SHORT, trainer="ZeroshotCLIP").status == 0
        assert len(refused) == 1
