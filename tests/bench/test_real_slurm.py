"""The same runs on a real single-node Slurm. one_node_slurm.sh starts one; without it these tests are skipped."""

from __future__ import annotations

import functools
import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Writer, paused
from .test_engine import BASE, NEW, Diary, start, wait_until
from .test_slurm import METHODS

HOST = socket.gethostname().split(".")[0]
ENGINE = ("--engine", "slurm", "--slurm", "cpus_per_task=1", "timeout_min=10")


def ask(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout


@functools.cache  # if Slurm is down, the query hangs for many seconds
def is_ours_alone() -> bool:
    """Return whether Slurm has only this machine: other nodes would not see the folders of the tests."""
    return bool(shutil.which("sinfo")) and set(ask("sinfo", "-h", "-N", "-o", "%N").split()) == {HOST}


@pytest.fixture(autouse=True)
def slurm(place: Path) -> Iterator[None]:
    """Skip if no Slurm is usable, and leave no job behind."""
    if not is_ours_alone():
        pytest.skip("needs a Slurm of this machine alone (tests/bench/one_node_slurm.sh)")
    pytest.importorskip("submitit")
    yield
    for job in jobs_of(place):
        ask("scancel", job)


def jobs_of(place: Path) -> list[str]:
    """Return the jobs that were started below a folder and have not ended."""
    rows = [line.split("|") for line in ask("squeue", "-h", "-r", "-o", "%i|%o").splitlines()]
    return [number for number, script in rows if script.startswith(str(place))]


def reached(epoch: Path) -> bool:
    return epoch.is_file() and epoch.read_text() == "2"


def test_jobs_of_an_array_run_and_report_failures(write_plan: Writer, fake: str, diary: Diary) -> None:
    process = start(write_plan(methods=METHODS, seeds=[1, 2]), fake, *ENGINE)
    shown = process.communicate()[0]
    assert process.returncode == 1
    assert "Submitted 4 jobs" in shown
    assert "bad shapes seed 1 base (failed): the images of seed 1 are missing." in shown
    assert "bad shapes seed 1 new (left out)" in shown
    assert "6 runs done" in shown
    assert "sacct" not in shown
    assert len(diary("end")) == 6
    assert len(list(Path("output/slurm").glob("my-*/*_log.out"))) == 4


@pytest.mark.parametrize("by", ["scontrol", "signal"])
def test_requeued_job_resumes(write_plan: Writer, fake: str, diary: Diary, place: Path, by: str) -> None:
    """By scontrol, as on preemption, or by the job itself, at the signal before its time limit."""
    plan = write_plan(methods=METHODS[:1], seeds=[1], set={"FAKE.EPOCHS": 3})
    with paused(BASE) as epoch:
        process = start(plan, fake, *ENGINE)
        wait_until(lambda: reached(epoch))
        (job,) = jobs_of(place)
        ask("scontrol", "requeue", job) if by == "scontrol" else ask("scancel", "--signal=USR2", job)
        wait_until(lambda: "PENDING" in ask("squeue", "-h", "-o", "%T", "-j", job))
        ask("scontrol", "update", f"JobId={job}", "StartTime=now")  # Slurm delays it for two minutes
        wait_until(lambda: len(diary("start")) == 2)
    shown = process.communicate()[0]
    assert process.returncode == 0, shown
    assert json.loads(Path(BASE, "results.json").read_text())["begun"] == 2
    assert diary("start") == [BASE, BASE, NEW]


def test_cancelled_job_is_reported(write_plan: Writer, fake: str, place: Path) -> None:
    plan = write_plan(methods=METHODS[:1], seeds=[1, 2], set={"FAKE.EPOCHS": 3})
    with paused(BASE) as epoch:
        process = start(plan, fake, *ENGINE)
        wait_until(lambda: reached(epoch) and len(jobs_of(place)) == 1)
        (job,) = jobs_of(place)
        ask("scancel", job)
        shown = process.communicate(timeout=120)[0]
    assert process.returncode == 1
    assert f"good shapes seed 1 base (failed): job {job} ended: CANCELLED" in shown
    assert "2 runs done" in shown


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_stopping_cancels_the_jobs(
    write_plan: Writer, fake: str, diary: Diary, place: Path, how: signal.Signals
) -> None:
    plan = write_plan(methods=METHODS[:1], seeds=[1], set={"FAKE.EPOCHS": 3})
    with paused(BASE) as epoch:
        process = start(plan, fake, *ENGINE)
        wait_until(lambda: reached(epoch))
        process.send_signal(how)
        shown = process.communicate(timeout=120)[0]
        assert process.returncode == 130, shown
        assert not jobs_of(place)
    again = start(plan, fake, *ENGINE)
    assert again.wait(timeout=120) == 0
    assert json.loads(Path(BASE, "results.json").read_text())["begun"] == 2
    assert diary("start") == [BASE, BASE, NEW]


def test_second_start_waits_for_the_jobs_of_the_first(write_plan: Writer, fake: str, diary: Diary, place: Path) -> None:
    plan = write_plan(methods=METHODS[:1], seeds=[1, 2], set={"FAKE.EPOCHS": 3})
    with paused(BASE) as epoch:
        first = start(plan, fake, *ENGINE, "--seeds", "1")
        wait_until(lambda: reached(epoch))
        first.kill()
        first.communicate()
        (job,) = jobs_of(place)
        other = start(plan, fake, *ENGINE, "--set", "FAKE.EPOCHS", "9")
        assert f"scancel {job}" in other.communicate(timeout=120)[0]
        assert other.returncode == 2
        second = start(plan, fake, *ENGINE)
        wait_until(lambda: len(jobs_of(place)) == 2 or len(diary("start")) > 1)
    shown = second.communicate(timeout=120)[0]
    assert second.returncode == 0, shown
    assert f"still in the queue: {job}" in shown
    assert "4 runs done" in shown
    assert diary("start").count(BASE) == diary("start").count(NEW) == 1


def test_more_cores_than_a_node_has(write_plan: Writer, fake: str, place: Path) -> None:
    process = start(write_plan(methods=METHODS[:1], seeds=[1]), fake, *ENGINE, "--slurm", "cpus_per_task=1000")
    assert process.stdout is not None
    printed: list[str] = []
    for line in process.stdout:
        printed.append(line)
        if "Slurm gives the reason" in line:
            process.send_signal(signal.SIGINT)
    assert process.wait() in (2, 130)  # clusters may refuse it at once
    assert (
        "PartitionConfig" in printed[-4] if process.returncode == 130 else "could not be submitted" in "".join(printed)
    )
    assert not jobs_of(place)
