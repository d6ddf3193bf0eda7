"""Plans on a cluster: what a job executes, its options, and jobs of submitit's local executor, requeued or not."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from cocoamix.errors import UserError
from cocoamix.experiments import slurm
from cocoamix.experiments.local import CONSOLE, Task
from cocoamix.experiments.runner import PlanRunner, RunOptions, run_plan
from cocoamix.experiments.slurm import Chain, chains

from .plans import CLIP, COOP, MIX, plan_of, runs_of

LOCAL = RunOptions(engine="slurm", slurm=("cluster=local", "cpus_per_task=1"))
TWICE = {**MIX, "set": {"MODEL.INIT_WEIGHTS": "{run:CoOp}"}}


def wait_until(ready: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_job_has_all_runs_that_need_each_other(tmp_path: Path) -> None:
    runs = list(runs_of(tmp_path, methods=[CLIP, COOP, TWICE], seeds=[1, 2]).values())
    groups = [[task.run for task in group] for group in chains([Task(run, "") for run in runs])]
    assert sorted(run.name for group in groups for run in group) == sorted(run.name for run in runs)
    assert [len(group) for group in groups] == [1, 1, 4, 4]
    for group in groups:
        places = [run.folder for run in group]
        assert all(places.index(folder) < place for place, run in enumerate(group) for folder in run.needs)


def test_options_of_submitit_and_sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("submitit.SlurmExecutor.affinity", lambda executor: 2)
    words = ["reservation=mine", "mail-type=END", "mem_gb=8"]
    parameters = slurm.make_executor(words, 3, tmp_path / "jobs")._executor.parameters
    assert (parameters["mem"], parameters["array_parallelism"]) == ("8GB", 3)
    assert parameters["srun_args"] == ["--cpus-per-task=4"]
    assert parameters["additional_parameters"] == {"requeue": True, "reservation": "mine", "mail_type": "END"}
    for wrong, named in (("partition", "partition"), ("cpus_per_task=4c", "cpus_per_task"), ("cluster=x", "x")):
        with pytest.raises(UserError, match=named):
            run_plan(plan_of(tmp_path), replace(LOCAL, slurm=(*LOCAL.slurm, wrong)))


def test_the_queue_is_asked_without_accounting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    squeue = tmp_path / "squeue"
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    squeue.write_text("#!/bin/sh\necho 12_0; echo 13\n")
    squeue.chmod(0o755)
    job = SimpleNamespace(job_id="5")
    assert slurm.waiting_jobs("slurm", [job]) == {"12_0", "13"}
    squeue.write_text("#!/bin/sh\nexit 1\n")
    assert slurm.waiting_jobs("slurm", [job]) == {"5"}  # it is busy; nobody has left the queue


@pytest.mark.slow
def test_jobs_report_results_and_failures(tmp_path: Path) -> None:
    bad = {**COOP, "tag": "bad", "name": "bad", "set": {"MODEL.INIT_WEIGHTS": "nowhere.pth"}}
    plan = plan_of(tmp_path, seeds=[1], set={"OPTIM.MAX_EPOCH": 1}, datasets=["warm_cool"], methods=[CLIP, COOP, bad])
    outcome = PlanRunner(plan, LOCAL).execute()
    assert sorted({run.method.name for run in outcome.runs}) == ["CLIP", "CoOp"]
    assert ["nowhere.pth" in line for line in outcome.missing] == [True, False]
    assert len(run_plan(replace(plan, methods=plan.methods[:2]), LOCAL).finished) == 4


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_a_requeued_job_resumes(tmp_path: Path) -> None:
    """Preempted in the middle of a run, the job resumes it and does not repeat finished runs."""
    changes = {"seeds": [1], "set": {"OPTIM.MAX_EPOCH": 30}, "datasets": ["warm_cool"], "methods": [COOP]}
    plan = plan_of(tmp_path, **changes)
    whole = run_plan(replace(plan, output=tmp_path / "whole"), RunOptions(jobs=1, gpus=()))
    runs = list(runs_of(tmp_path, **changes).values())
    executor = slurm.make_executor(["cluster=local"], None, tmp_path / "jobs")
    job = executor.submit(Chain([Task(run, "start", repeat=True) for run in runs]))
    wait_until((runs[0].folder / "resume.pth").is_file)
    time.sleep(0.5)
    (worker,) = Path(f"/proc/{job.job_id}/task/{job.job_id}/children").read_text().split()
    os.kill(int(worker), signal.SIGUSR2)  # as Slurm does; the local executor starts the job again
    wait_until(job.done)
    for run, other in zip(runs, whole.runs, strict=True):
        now, then = (json.loads((folder / "results.json").read_text()) for folder in (run.folder, other.folder))
        assert now["metrics"] == then["metrics"]
    starts = [(run.folder / CONSOLE).read_text().count("train.py") for run in runs]
    assert (starts, "Resuming from" in (runs[0].folder / CONSOLE).read_text()) == ([2, 1], True)
