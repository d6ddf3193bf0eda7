"""Runs on a Slurm cluster, through submitit: an array of jobs, requeued when they are preempted or time out.

A job executes a training run and then the evaluations of its model, so no job waits for another, and a requeued job
continues with the first unfinished run. The runner reads results.json, and never unpickles what a job has returned.
"""

from __future__ import annotations

import getpass
import multiprocessing
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cocoamix.errors import UserError
from cocoamix.run.state import read_stamp

from .local import DONE, FAILED, End, Task, end_of, execute, last_error
from .progress import Progress

_DEFAULTS = {"timeout_min": 240, "cpus_per_task": 4, "name": "cocoamix", "cluster": "slurm"}
_KNOWN = ("timeout_min", "cpus_per_task", "name", "mem_gb", "gpus_per_node")  # by submitit; sbatch takes any other
_LATE = 15.0  # seconds until a shared file system shows the results of an ended job


class Chain:
    """The tasks of a job. submitit pickles it, calls it on a node, and calls `checkpoint` before a requeue."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks = list(tasks)

    def __call__(self) -> None:
        """Execute the tasks that are not done. Their results are the outcome."""
        threads = int(os.environ.get("SLURM_CPUS_PER_TASK", "1"))
        tasks = [replace(task, threads=threads) for task in self.tasks if not is_done(task)]
        gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or None
        execute(tasks, [gpu], Progress([task.run for task in tasks], 1))

    def checkpoint(self) -> Any:
        """Stop the current run; the requeued job resumes it from the last complete epoch."""
        from submitit.helpers import DelayedSubmission

        for process in multiprocessing.active_children():
            process.kill()
            process.join()
        return DelayedSubmission(self)


def is_done(task: Task) -> bool:
    """Return whether a task was done since the plan was started."""
    return read_stamp(task.run.folder).get("start") == task.start and end_of(task.run).status == DONE


def chains(tasks: Sequence[Task]) -> list[list[Task]]:
    """Group the tasks that need each other, in the order of the tasks."""
    groups: list[list[Task]] = []
    for task in tasks:
        joined = [group for group in groups if any(other.run.folder in task.run.needs for other in group)]
        groups = [group for group in groups if group not in joined]
        groups.append([*(other for group in joined for other in group), task])
    return groups


def make_executor(words: Sequence[str], jobs: int | None, folder: Path) -> Any:
    """Return submitit's executor of at most `jobs` jobs at a time, with KEY=VALUE options for it and for sbatch."""
    import submitit

    options: dict[str, Any] = dict(_DEFAULTS)
    for word in words:
        key, equals, value = word.partition("=")
        if not (key and equals):
            raise UserError(f"--slurm {word}: write KEY=VALUE, such as partition=gpu or gpus_per_node=1.")
        options[key.replace("-", "_")] = int(value) if value.isdigit() else value
    folder.mkdir(mode=0o755, parents=True)  # no other user may write to it, because jobs unpickle files from it
    # The jobs inherit the environment: put this package on their path.
    paths = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    executor = submitit.AutoExecutor(folder=str(folder), cluster=options.pop("cluster"), slurm_max_num_timeout=100)
    executor.update_parameters(
        # Since Slurm 22.05, srun does not inherit this from sbatch: with bound tasks, all threads would share a core.
        slurm_srun_args=[f"--cpus-per-task={options['cpus_per_task']}"],
        slurm_array_parallelism=jobs or 256,
        **{key: options.pop(key) for key in _KNOWN if key in options},
        # A cluster that does not requeue by default would not requeue a job that times out.
        slurm_additional_parameters={"requeue": True, **options},
    )
    return executor


def run_on_cluster(
    tasks: Sequence[Task], words: Sequence[str], at_once: int | None, folder: Path, progress: Progress
) -> list[End]:
    """Submit the tasks, wait for the jobs, and return how the runs ended. If interrupted, cancel the jobs.

    `folder` takes the scripts and logs of the jobs; the other arguments are as in `make_executor`.
    """
    groups, ends = chains(tasks), list[End]()
    try:
        executor = make_executor(words, at_once, folder)
        with executor.batch():
            jobs = [executor.submit(Chain(group)) for group in groups]
    except Exception as error:  # submitit's own errors, and those of sbatch
        raise UserError(f"The jobs cannot be submitted: {error}") from error
    print(f"Submitted {len(jobs)} jobs ({jobs[0].job_id} to {jobs[-1].job_id}); their logs are in {folder}", flush=True)
    waiting = dict(zip(jobs, groups, strict=True))
    try:
        while waiting:
            queue = waiting_jobs(executor.cluster, list(waiting))
            ended = [job for job in waiting if job.job_id not in queue]
            if executor.cluster == "slurm" and not all(is_done(task) for job in ended for task in waiting[job]):
                time.sleep(_LATE)
            for job in ended:
                for task in waiting.pop(job):
                    ends.append(end_in(job, task))
                    progress.ended(ends[-1], [])
            progress.tick([])
            time.sleep(5.0 if executor.cluster == "slurm" else 0.2)
    finally:
        for job in waiting:
            job.cancel(check=False)
    return ends


def waiting_jobs(cluster: str, jobs: Sequence[Any]) -> set[str]:
    """Return the numbers of the jobs that wait or run. If Slurm does not answer, these are all.

    Unlike sacct, squeue works on clusters without a database of accounts.
    """
    if cluster != "slurm":
        return {job.job_id for job in jobs if not job.done()}
    command = ["squeue", "--noheader", "--array", "--format", "%i", "--user", getpass.getuser()]
    try:
        return set(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split())
    except (OSError, subprocess.SubprocessError):
        return {job.job_id for job in jobs}


def end_in(job: Any, task: Task) -> End:
    """Return how a run ended whose job has ended."""
    stamp = read_stamp(task.run.folder)
    if is_done(task):
        return replace(end_of(task.run), seconds=stamp.get("seconds"))
    reason = last_error(task.run.folder) if stamp.get("start") == task.start else "it did not start"
    return End(task.run, FAILED, f"job {job.job_id} ended: {reason} (log: {job.paths.stderr})")
