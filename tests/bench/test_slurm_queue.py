"""How squeue's answers are interpreted, with a fake squeue."""

from __future__ import annotations

from pathlib import Path

import pytest

from cocoamix.bench.engines import slurm_queue
from cocoamix.bench.engines.slurm_queue import UNKNOWN, Entry, Watch, ask


class Squeue:
    """A fake squeue that records its arguments."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        script = folder / "squeue"
        script.write_text(
            f'#!/bin/sh\necho "$@" >> {folder}/calls\ncat {folder}/out\ncat {folder}/err >&2\nexit $(cat {folder}/rc)\n'
        )
        script.chmod(0o755)
        self.answer()

    def answer(self, *lines: str, error: str = "", status: int = 0) -> None:
        (self._folder / "out").write_text("".join(f"{line}\n" for line in lines))
        (self._folder / "err").write_text(error)
        (self._folder / "rc").write_text(str(status))

    @property
    def calls(self) -> list[str]:
        path = self._folder / "calls"
        return path.read_text().splitlines() if path.is_file() else []


@pytest.fixture
def squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Squeue:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(slurm_queue, "_LATE", 0.0)
    return Squeue(tmp_path)


def test_states_of_jobs_are_parsed(squeue: Squeue) -> None:
    squeue.answer("7_0|RUNNING|None|/a/x.sh", "7_1|PENDING|Priority|/a/x.sh", "9|CANCELLED|None|/b|c.sh")
    assert ask(["7_0", "7_1", "9"]) == {
        "7_0": Entry("RUNNING", "None", Path("/a/x.sh")),
        "7_1": Entry("PENDING", "Priority", Path("/a/x.sh")),
        "9": Entry("CANCELLED", "None", Path("/b|c.sh")),
    }
    assert squeue.calls[0].endswith("-j 7,9")  # once for an array
    assert ask([]) == {}
    assert len(squeue.calls) == 1


def test_forgotten_jobs_and_no_answer_differ(squeue: Squeue) -> None:
    squeue.answer(error="slurm_load_jobs error: Invalid job id specified", status=1)
    assert ask(["7"]) == {}
    squeue.answer(error="slurm_load_jobs error: Unable to contact slurm controller", status=1)
    assert ask(["7"]) is None


def test_watch_follows_the_states_of_jobs(squeue: Squeue) -> None:
    messages: list[str] = []
    watch = Watch(["7_0", "7_1", "7_2"], 0.0, messages.append)
    assert not watch.is_over("7_0")
    wants = "7_1|PENDING|PartitionConfig|x"
    squeue.answer("7_0|COMPLETING|None|x", wants, "7_2|PENDING|Priority|x")
    watch.look()
    assert not any(watch.is_over(number) for number in ("7_0", "7_1", "7_2"))
    assert messages == ["1 of the jobs are waiting; Slurm gives the reason PartitionConfig"]
    squeue.answer("7_0|CANCELLED|None|x", wants)
    watch.look()
    assert [watch.is_over(number) for number in ("7_0", "7_1", "7_2")] == [True, False, True]
    assert (watch.state("7_0"), watch.state("7_2")) == ("CANCELLED", UNKNOWN)
    assert len(messages) == 1
    squeue.answer(status=1)
    watch.look()
    assert [watch.is_over(number) for number in ("7_0", "7_1", "7_2")] == [True, False, True]
    squeue.answer("7_0|PENDING|BeginTime|x", wants, "7_2|RUNNING|None|x")  # requeued
    watch.look()
    assert not any(watch.is_over(number) for number in ("7_0", "7_1", "7_2"))


def test_a_result_may_arrive_late(squeue: Squeue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_queue, "_LATE", 60.0)
    watch = Watch(["7"], 0.0, print)
    squeue.answer("7|COMPLETED|None|x")
    watch.look()
    assert not watch.is_over("7")


def test_slurm_is_not_polled_constantly(squeue: Squeue) -> None:
    watch = Watch(["7"], 60.0, print)
    watch.look()
    watch.look()
    assert len(squeue.calls) == 1
