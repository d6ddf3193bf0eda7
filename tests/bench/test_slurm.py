"""The same runs through submitit, with its local executor."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from cocoamix.bench.command import main
from cocoamix.bench.engines.slurm import Chain, _last_line, _parameters, chains, read_options
from cocoamix.bench.ledger import Ledger
from cocoamix.bench.plan import load_plan
from cocoamix.bench.runs import expand, train_command
from cocoamix.errors import UserError

from .conftest import Writer, paused
from .test_engine import BASE, NEW, Diary, wait_until

METHODS = [
    {"name": "good", "trainer": "CoOp", "config": "two.yaml"},
    {"name": "bad", "trainer": "CoOp", "config": "one.yaml", "set": {"FAKE.FAIL": "1"}},
]


def test_chains_keep_dependent_runs_together(write_plan: Writer) -> None:
    several = {"name": "both", "trainer": "CoOp", "config": "two.yaml", "tag": "b"}
    several = {**several, "set": {"T.P": ["{run:good}", "{run:bad}"]}}  # type: ignore[dict-item]
    apart = expand(load_plan(str(write_plan(seeds=[1, 2], methods=METHODS))))
    assert [[run.subset for run in chain] for chain in chains(apart)] == [["base", "new"]] * 4
    together = expand(load_plan(str(write_plan(seeds=[1, 2], methods=[*METHODS, several]))))
    found = chains(together)
    assert [len(chain) for chain in found] == [6, 6]
    assert [run for chain in found for run in chain] == together  # in their order, each once


def test_options_override_the_defaults() -> None:
    assert read_options(["partition=gpu", "timeout_min=30"]) == {
        "timeout_min": 30,
        "cpus_per_task": 4,
        "name": "cocoamix",
        "partition": "gpu",
    }
    with pytest.raises(UserError, match="KEY=VALUE"):
        read_options(["gpu"])


def test_plan_runs_through_submitit(
    write_plan: Writer, fake: str, diary: Diary, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("submitit")
    plan = write_plan(methods=METHODS, seeds=[1])
    arguments = ["run", str(plan), "--train", fake, "--no-report", "--engine", "slurm", "--slurm", "cluster=local"]
    assert main(arguments) == 1
    shown = capsys.readouterr()
    assert "Submitted 2 jobs" in shown.out
    assert sorted(diary("end")) == sorted([BASE, NEW])
    assert "bad shapes seed 1 base (failed): the images of seed 1 are missing." in shown.err
    assert "bad shapes seed 1 new (left out)" in shown.err
    assert list(Path("output/slurm").glob("my-*/*_log.out"))
    assert main([*arguments, "--methods", "good"]) == 0
    assert len(diary("end")) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize(("preempted", "starts"), [(BASE, [BASE, BASE, NEW]), (NEW, [BASE, NEW, NEW])])
def test_requeued_job_resumes(write_plan: Writer, fake: str, diary: Diary, preempted: str, starts: list[str]) -> None:
    """Preempted in the middle of a run, the job resumes it and does not repeat finished runs."""
    submitit = pytest.importorskip("submitit")
    from cocoamix.bench.engines.slurm import _extend_python_path

    _extend_python_path()
    path = write_plan(methods=METHODS[:1], seeds=[1], set={"FAKE.EPOCHS": 3})
    runs = expand(load_plan(str(path)))
    executor = submitit.LocalExecutor("jobs")
    executor.update_parameters(timeout_min=60)
    with paused(preempted) as epoch:
        job = executor.submit(Chain(runs, train_command(fake.split()), Ledger(), 1))
        wait_until(lambda: epoch.is_file() and epoch.read_text() == "2")
        (worker,) = Path(f"/proc/{job.job_id}/task/{job.job_id}/children").read_text().split()
        os.kill(int(worker), signal.SIGUSR2)  # as Slurm does; the local executor restarts the worker
        wait_until(lambda: len(diary("start")) == starts.index(preempted) + 2)
    outcomes = job.result()
    assert [outcome.status for outcome in outcomes] == ["done", "done"]
    assert json.loads(Path(preempted, "results.json").read_text())["begun"] == 2
    assert diary("start") == starts


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_terminated_job_leaves_no_result(write_plan: Writer, fake: str, diary: Diary) -> None:
    """Slurm sends SIGTERM before it requeues a job: a result would tell the runner that the job is over."""
    submitit = pytest.importorskip("submitit")
    from cocoamix.bench.engines.slurm import _extend_python_path

    _extend_python_path()
    runs = expand(load_plan(str(write_plan(methods=METHODS[:1], seeds=[1], set={"FAKE.EPOCHS": 3}))))
    chain = Chain(runs, train_command(fake.split()), Ledger(), 1)
    executor = submitit.LocalExecutor("jobs")
    executor.update_parameters(timeout_min=60)
    with paused(BASE) as epoch:
        job = executor.submit(chain)
        wait_until(lambda: epoch.is_file() and epoch.read_text() == "2")
        (worker,) = Path(f"/proc/{job.job_id}/task/{job.job_id}/children").read_text().split()
        (run,) = Path(f"/proc/{worker}/task/{worker}/children").read_text().split()
        os.kill(int(run), signal.SIGTERM)  # Slurm sends it to all processes, in any order
        os.kill(int(worker), signal.SIGTERM)
        wait_until(job.done)
    assert not job.paths.result_pickle.exists()
    assert [outcome.status for outcome in chain()] == ["done", "done"]
    assert json.loads(Path(BASE, "results.json").read_text())["begun"] == 2
    assert diary("start") == [BASE, BASE, NEW]


def test_options_for_submitit_and_sbatch() -> None:
    found = _parameters(read_options(["reservation=mine", "mail-type=END", "setup=module load cuda", "mem_gb=8"]))
    assert found["mem_gb"] == 8
    assert found["slurm_setup"] == ["module load cuda"]
    assert found["slurm_srun_args"] == ["--cpus-per-task=4"]
    assert found["slurm_additional_parameters"] == {"requeue": True, "reservation": "mine", "mail_type": "END"}


def test_last_line_of_a_failure_is_its_error() -> None:
    rule = "-" * 22
    trace = "Traceback (most recent call last):\n  File x\nValueError: no"
    assert (
        _last_line(f"Job failed with trace:\n{rule}\n{trace}\n\n{rule}\nYou can check\n  - a.err") == "ValueError: no"
    )
    assert _last_line("one\ntwo\n\n") == "two"
    assert _last_line("") == ""


def test_missing_submitit_error_says_how_to_install_it(
    write_plan: Writer, fake: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert main(["run", str(write_plan()), "--train", fake, "--engine", "slurm"]) == 2
    assert "pip install" in capsys.readouterr().err


def test_options_of_the_wrong_type_are_refused(
    write_plan: Writer, fake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("submitit")
    options = ["--engine", "slurm", "--slurm", "cluster=local", "cpus_per_task=abc"]
    assert main(["run", str(write_plan()), "--train", fake, *options]) == 2
    assert "Slurm refuses the options of --slurm" in capsys.readouterr().err
