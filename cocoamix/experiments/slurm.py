"""Runs on a Slurm cluster, through submitit: an array of jobs, requeued when they are preempted or time out.

A job executes a training run and then the evaluations of its model, so no job waits for another, and a requeued job
goes on with the first unfinished run. The runner reads results.json, and never unpickles what a job has returned.
"""

from __future__ import annotations

import getpass
import multiprocessing
import os
import shlex
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cocoamix.errors import UserError
from cocoamix.run.state import read_stamp

from .local import DONE, FAILED, LEFT_OUT, End, LocalEngine, Slots, end_of
from .progress import Pace, Progress
from .worker import CONSOLE, Task, last_error

# Options that submitit knows on every kind of cluster, and those that it adds to sbatch's.
_GENERAL = ("timeout_min", "mem_gb", "gpus_per_node", "cpus_per_task", "nodes", "tasks_per_node", "name")
_ADDED = ("array_parallelism", "signal_delay_s", "setup", "teardown", "srun_args", "use_srun", "stderr_to_stdout")
_DEFAULTS = {"timeout_min": 240, "cpus_per_task": 4, "name": "cocoamix"}
_POLL = {"slurm": 5.0, "local": 0.2}  # seconds between two looks at the jobs
_LATE = 15.0  # seconds until a shared file system shows the results of an ended job


class Chain:
    """The tasks of a job. submitit pickles it, calls it on a node, and calls `checkpoint` before a requeue."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks = list(tasks)

    def __call__(self) -> None:
        """Execute the tasks that are not done. Their results are the outcome."""
        tasks = [task for task in self.tasks if not is_done(task)]
        gpus = tuple(filter(None, os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")))
        progress = Progress([task.run for task in tasks], Pace(), 1)
        LocalEngine(tasks, Slots(1, tasks[0].threads if tasks else 1, gpus), progress).execute()

    def checkpoint(self) -> Any:
        """Stop the current run; the requeued job resumes it from the last complete epoch."""
        from submitit.helpers import DelayedSubmission

        for process in multiprocessing.active_children():
            process.kill()
            process.join()
        return DelayedSubmission(self)


def is_done(task: Task) -> bool:
    """Return whether a task was done since the plan was started."""
    return read_stamp(task.run.folder).get("start") == task.start and end_of(task.run, 0.0).status == DONE


def chains(tasks: Sequence[Task]) -> list[list[Task]]:
    """Group the tasks that need each other, in the order of the tasks."""
    groups: dict[Path, list[Task]] = {}
    for task in tasks:
        together = [task]
        for folder in task.run.needs:
            other = groups.get(folder, [])
            together = [*(earlier for earlier in other if earlier not in together), *together]
        groups.update((member.run.folder, together) for member in together)
    return list({id(group): group for group in groups.values()}.values())


def read_options(words: Sequence[str]) -> dict[str, Any]:
    """Parse the KEY=VALUE options of the Slurm jobs, and add the defaults."""
    options: dict[str, Any] = dict(_DEFAULTS)
    for word in words:
        key, equals, value = word.partition("=")
        if not (key and equals):
            raise UserError(f"--slurm {word}: write KEY=VALUE, such as partition=gpu or gpus_per_node=1.")
        options[key.replace("-", "_")] = int(value) if value.isdigit() else value
    if options.get("cluster", "slurm") not in _POLL:
        raise UserError(f"--slurm cluster={options['cluster']} is unknown; use slurm or local.")
    return options


def run_on_cluster(tasks: Sequence[Task], settings: dict[str, Any], folder: Path, progress: Progress) -> list[End]:
    """Submit the tasks, wait for the jobs, and return how the runs ended. If interrupted, cancel the jobs.

    Args:
        tasks: The tasks, each after those that it needs.
        settings: What `read_options` returned.
        folder: The folder for the scripts and logs of the jobs.
        progress: Shows the progress.
    """
    executor = make_executor(settings, folder)
    groups = [[replace(task, threads=int(settings["cpus_per_task"])) for task in group] for group in chains(tasks)]
    _extend_python_path()
    try:
        with executor.batch():
            jobs = [executor.submit(Chain(group)) for group in groups]
    except Exception as error:  # submitit's own errors, and those of sbatch
        raise UserError(f"The jobs could not be submitted: {error}") from error
    print(f"Submitted {len(jobs)} jobs ({jobs[0].job_id} to {jobs[-1].job_id}); their logs are in {folder}", flush=True)
    waiting = dict(zip(jobs, groups, strict=True))
    try:
        return _watch(waiting, settings.get("cluster", "slurm"), progress)
    finally:
        for job in waiting:
            job.cancel(check=False)


def make_executor(options: dict[str, Any], folder: Path) -> Any:
    """Return submitit's executor for the options. `cluster=local` is one of processes, to try it without a cluster."""
    try:
        import submitit
    except ImportError:
        raise UserError("--engine slurm needs submitit: pip install 'cocoamix[experiments]'.") from None
    # No other user may write to this folder, because jobs unpickle files from it.
    folder.mkdir(mode=0o755, parents=True)
    try:
        cluster = options.get("cluster", "slurm")
        executor = submitit.AutoExecutor(folder=str(folder), cluster=cluster, slurm_max_num_timeout=100)
        executor.update_parameters(**parameters(options))
    except (AssertionError, NameError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"Slurm refuses the options of --slurm: {error}") from error
    return executor


def parameters(options: dict[str, Any]) -> dict[str, Any]:
    """Return options under submitit's names. Options that it does not know go to sbatch unchanged."""
    rest = {key: value for key, value in options.items() if key != "cluster"}
    general = {key: rest.pop(key) for key in _GENERAL if key in rest}
    own = {key: rest.pop(key) for key in _ADDED if key in rest}
    # Since Slurm 22.05, srun does not inherit this from sbatch: with tasks bound to cores, all threads would share one.
    own["srun_args"] = [f"--cpus-per-task={options['cpus_per_task']}", *shlex.split(str(own.get("srun_args", "")))]
    for key in ("setup", "teardown"):  # lines of the script
        if key in own:
            own[key] = [str(own[key])]
    # A cluster that does not requeue by default would not requeue a job that times out.
    own["additional_parameters"] = {"requeue": True, **rest}
    return {**general, **{f"slurm_{key}": value for key, value in own.items()}}


def _extend_python_path() -> None:
    """Put this package on the Python path of the jobs, which inherit the environment."""
    place = str(Path(__file__).resolve().parents[2])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != place]
    os.environ["PYTHONPATH"] = os.pathsep.join([place, *paths])


# ---------------------------------------------------------------------- waiting


def _watch(waiting: dict[Any, list[Task]], cluster: str, progress: Progress) -> list[End]:
    """Return how the runs of the jobs ended. A job that has ended is removed from `waiting`."""
    ends: list[End] = []
    gone: dict[Any, float] = {}  # jobs that have left the queue, and when that was noticed
    while waiting:
        queue = _queue() if cluster == "slurm" else None
        for job in list(waiting):
            if cluster == "local":
                over = job.done()
            else:
                left = queue is not None and job.job_id not in queue
                over = left and time.monotonic() - gone.setdefault(job, time.monotonic()) > _LATE
                over |= left and all(is_done(task) for task in waiting[job])
            if over:
                ends += _ends(job, waiting.pop(job), progress)
        progress.tick([])
        time.sleep(_POLL[cluster] if waiting else 0)
    return ends


def _queue() -> set[str] | None:
    """Return the numbers of this user's jobs that wait or run; None if Slurm does not answer.

    Unlike sacct, squeue works on clusters without a database of accounts.
    """
    command = ["squeue", "--noheader", "--array", "--format", "%i", "--user", getpass.getuser()]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if answer.returncode else set(answer.stdout.split())


def _ends(job: Any, tasks: Sequence[Task], progress: Progress) -> list[End]:
    """Return how the runs of an ended job ended, and show it."""
    ends: list[End] = []
    lost: dict[Path, str] = {}
    for task in tasks:
        run, stamp = task.run, read_stamp(task.run.folder)
        needed = [lost[folder] for folder in run.needs if folder in lost]
        if is_done(task):
            seconds = stamp.get("seconds")
            end = end_of(run, seconds if isinstance(seconds, (int, float)) else 0.0)
        elif needed:
            end = End(run, LEFT_OUT, f"it needs {needed[0]}")
        else:
            end = End(run, FAILED, f"job {job.job_id} ended: {_reason(job, task)} (log: {job.paths.stderr})")
        if end.status == DONE:
            progress.done(run, end.seconds, end.accuracy, [])
        else:
            lost[run.folder] = run.name
            progress.failed(run, end.status, end.reason, [])
        ends.append(end)
    return ends


def _reason(job: Any, task: Task) -> str:
    """Return why a run of a job has no result: what ended the job, else the run's last error."""
    lines = [line.strip() for line in (job.stderr() or "").splitlines() if line.strip("- ")]
    last = lines[-1] if lines else "it wrote no results"
    started = read_stamp(task.run.folder).get("start") == task.start and (task.run.folder / CONSOLE).is_file()
    return (last_error(task.run.folder) if started and not last.startswith("slurmstepd") else "") or last
