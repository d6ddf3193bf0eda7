"""System errors: one sentence, status 2 (or 130), and what was complete before stays complete."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cocoamix.clip.backbones import cache_folder
from cocoamix.errors import UserError, run_command
from cocoamix.features import workers
from cocoamix.features.command import main as features
from cocoamix.io import files
from cocoamix.io.files import check_writable, write_text
from cocoamix.io.log import Logger
from cocoamix.io.paths import expand_home
from cocoamix.refusals import explain, shorten
from cocoamix.run.arguments import STOPPED
from cocoamix.run.checkpointer import Checkpointer
from tests.conftest import ROOT, Runner

FULL = OSError(errno.ENOSPC, "No space left on device")
needs_dev_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (FULL, "The disk or the shared memory is full (No space left on device). Free some space and start again."),
        (
            OSError(errno.ENAMETOOLONG, "File name too long", "x" * 5000),
            f"File name too long: {100 * 'x'}...{50 * 'x'}.",
        ),
        (OSError(errno.ENOENT, "No such file or directory", b"/a/b"), "No such file or directory: /a/b."),
        (OSError("Caught OSError in DataLoader worker process 0.\nTraceback:\n  line 1\nOSError: why"), "OSError: why"),
        (ValueError("a bug"), None),
        (RuntimeError("a bug"), None),
    ],
)
def test_system_errors_are_explained(error: Exception, sentence: str | None) -> None:
    assert explain(error) == sentence


@pytest.mark.parametrize(
    "words",
    [
        "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers are out of "
        "shared memory. Please try to raise your shared memory limit.",
        "Caught RuntimeError in DataLoader worker process 0.\nRuntimeError: unable to write to file </torch_7_1_2>: No "
        "space left on device (28)",
        "DataLoader worker (pid(s) 7) exited unexpectedly",
        "DataLoader worker (pid 7) is killed by signal: Killed. ",
    ],
)
def test_full_shared_memory_is_explained(words: str) -> None:
    sentence = explain(RuntimeError(words))
    assert sentence is not None
    assert "/dev/shm" in sentence
    assert "DATALOADER.NUM_WORKERS" in sentence


def test_a_batch_that_cannot_be_sent_terminates_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the training waits for it forever."""
    import multiprocessing.queues as queues

    monkeypatch.setattr(queues.Queue, "_on_queue_feeder_error", queues.Queue._on_queue_feeder_error)
    before = queues.Queue._on_queue_feeder_error
    workers.exit_if_batch_is_lost()
    assert queues.Queue._on_queue_feeder_error is before  # nothing waits in the main process
    monkeypatch.setattr(workers, "get_worker_info", lambda: "one")
    workers.exit_if_batch_is_lost()
    ended: list[int] = []
    monkeypatch.setattr(workers.os, "_exit", ended.append)
    queues.Queue._on_queue_feeder_error(FULL, None)
    assert len(ended) == 1
    assert ended[0] != 0


def test_a_full_disk_is_reported_and_the_run_resumes(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []

    def fsync(descriptor: int) -> None:
        writes.append(descriptor)
        if len(writes) > 4:  # resume.pth, then metrics.csv and resume.pth after each epoch
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", fsync)
        done = run("CACHE.MODE", "off", "OPTIM.MAX_EPOCH", "3")
    assert done.status == 2
    assert "Traceback" not in done.output
    sentence = done.output.splitlines()[-1]
    assert sentence.startswith(f"error: {done.folder / 'resume.pth'} cannot be written: the disk is full")
    assert sentence in (done.folder / "log.txt").read_text()
    assert not list(done.folder.rglob("*.part"))
    again = run("CACHE.MODE", "off", "OPTIM.MAX_EPOCH", "3")
    assert again.status == 0
    assert "Resuming from" in again.output


@needs_dev_full
def test_a_log_on_a_full_disk_is_reported(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Logger("/dev/full"))
    assert run_command(lambda: print("much"), "Stopped.") == 2
    sys.stdout.file.close()  # type: ignore[attr-defined]  # nothing is left in it
    printed = capsys.readouterr().err
    assert printed.startswith("error: /dev/full cannot be written: the disk is full")
    assert printed.count("\n") == 1


def test_an_error_in_a_thread_prints_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """Such as TensorBoard's writer thread."""

    def refuse() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "events")

    def command() -> None:
        thread = threading.Thread(target=refuse)
        thread.start()
        thread.join()

    assert run_command(command, "Stopped.") == 2
    printed = capsys.readouterr().err
    assert [line.split(" cannot")[0] for line in printed.splitlines()] == ["warning: events", "error: events"]


def test_a_deleted_output_folder_is_reported(run: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def delete(self: Checkpointer, epochs: int, rate: float) -> None:
        if epochs == 2:
            shutil.rmtree(tmp_path / "run")

    monkeypatch.setattr(Checkpointer, "refuse_non_finite", delete)
    done = run()
    assert done.status == 2
    assert "Traceback" not in done.output
    assert f"error: The output folder {done.folder} was deleted during its run" in done.output
    assert not done.folder.exists()  # a new one would lack the log and earlier files


@pytest.fixture
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(user: int) -> None:
        raise KeyError(user)

    for name in ("HOME", "USERPROFILE", "COCOAMIX_CACHE", "XDG_CACHE_HOME", "COCOAMIX_CLIP_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)


@pytest.mark.usefixtures("no_home")
def test_an_unknown_home_folder_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert features(["info"]) == 2
    assert capsys.readouterr().err == (
        "error: ~/.cache cannot be found, because the home folder is unknown: HOME is not set. "
        "Set HOME, COCOAMIX_CACHE or CACHE.DIR.\n"
    )
    with pytest.raises(UserError, match="COCOAMIX_CLIP_CACHE"):
        cache_folder()
    assert expand_home("data") == Path("data")


def test_an_unknown_user_is_reported(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"~nobodyhere/x cannot be found, because there is no user 'nobodyhere'"):
        expand_home("~nobodyhere/x")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="~nobodyhere/out begins with ~"):
        check_writable("~nobodyhere/out")
    assert list(tmp_path.glob("~*")) == []


def test_names_that_are_not_utf8_are_refused(run: Runner) -> None:
    done = run(name="caf\udce9")
    assert done.status == 2
    assert "Traceback" not in done.output
    assert "caf\\udce9' is not UTF-8. Rename the file or folder." in done.output
    assert not done.folder.exists()
    done = run(data=Path("caf\udce9/data"))
    assert done.status == 2
    assert "error: The name 'caf\\udce9/data' is not UTF-8" in done.output


def test_a_name_that_is_too_long_is_abbreviated(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="File name too long") as caught:
        check_writable(str(tmp_path / ("x" * 5000)))
    assert len(str(caught.value)) < 250
    with pytest.raises(OSError, match="File name too long") as refused:
        write_text(tmp_path / ("x" * 250), "")
    assert refused.value.filename.endswith("x")  # not the name of a temporary file
    assert shorten("short") == "short"


def python(code: str, folder: Path, **streams: int) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run([sys.executable, "-c", code], env=environment, text=True, **options)  # type: ignore[call-overload,no-any-return]


SWALLOWS = """
import os, signal, time
for _ in range(2):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
    except BaseException:
        pass
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_ctrl_c_while_importing_stops_the_command(tmp_path: Path) -> None:
    """Even if the package swallows it."""
    (tmp_path / "swallows.py").write_text(SWALLOWS)
    code = "import sys; from cocoamix.errors import run_command\n"
    done = python(code + "sys.exit(run_command(lambda: __import__('swallows') and 0, 'Stopped.'))", tmp_path)
    assert (done.returncode, done.stderr) == (130, "Stopped.\n")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(SWALLOWS)
    script = str(ROOT / "train.py")
    done = python(f"import runpy, sys; sys.argv = ['x']; runpy.run_path({script!r}, run_name='__main__')", tmp_path)
    assert (done.returncode, done.stderr) == (130, f"{STOPPED}\n")


COMMAND = "import sys; from cocoamix.cli import main; sys.exit(main({arguments}))"


@pytest.mark.skipif(sys.platform == "win32", reason="closes pipes")
def test_closed_streams_cause_no_traceback(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    help_of_all, mistake = (COMMAND.format(arguments=one) for one in (["--help"], ["nothing"]))
    assert python(mistake, tmp_path, stderr=writer).returncode == 2
    done = python(help_of_all, tmp_path, stdout=writer)
    assert (done.returncode, done.stderr) == (0, "")
    work = "import sys; from cocoamix.errors import run_command\n"
    work += "sys.exit(run_command(lambda: print('epoch 1', flush=True), 'Stopped.', work=True))"
    done = python(work, tmp_path, stdout=writer)
    assert (done.returncode, done.stderr) == (141, "")  # an interrupted training did not succeed
    os.close(writer)
    done = python("import sys; sys.stdout = None\n" + help_of_all, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@needs_dev_full
def test_output_to_a_full_disk_is_reported(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    done = python(COMMAND.format(arguments=["--help"]), tmp_path, stdout=full)
    os.close(full)
    assert done.returncode == 2
    assert done.stderr.startswith("error: The disk or the shared memory is full")
    assert done.stderr.count("\n") == 1
