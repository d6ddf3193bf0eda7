"""Runs on a Slurm cluster, through submitit: an array of jobs, requeued when they are preempted or time out.

A job does the runs that hang together, a training and the evaluations of its model, one after the other. So no job
waits for another, and one that is requeued goes on with the first run that is not finished.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cocoamix.errors import UserError

from .ledger import Ledger, read_results, read_stamp
from .process import DONE, FAILED, LEFT_OUT, Outcome, Process
from .runs import Run
from .view import View

# What submitit calls by the same name on every cluster; any other option is Slurm's own.
_GENERAL = ("timeout_min", "mem_gb", "gpus_per_node", "cpus_per_task", "nodes", "tasks_per_node", "name")
_DEFAULTS = {"timeout_min": 240, "cpus_per_task": 4, "name": "cocoamix"}
_POLL = {"slurm": 5.0, "local": 0.2}  # seconds


class Chain:
    """What a job does. submitit pickles it, calls it on a node, and calls `checkpoint` before a requeue."""

    def __init__(self, runs: Sequence[Run], command: Sequence[str], ledger: Ledger, threads: int) -> None:
        self.runs, self.command, self.threads = list(runs), list(command), threads
        self.ledger = ledger
        self._process: Process | None = None

    def __call__(self) -> list[Outcome]:
        """Do the runs that are not finished; return how each ended."""
        outcomes: list[Outcome] = []
        lost: dict[Path, str] = {}
        for run in self.runs:
            outcome = self._done_before(run) or self._do(run, lost)
            outcomes.append(outcome)
            if outcome.status != DONE:
                lost[run.folder] = run.name
        return outcomes

    def _done_before(self, run: Run) -> Outcome | None:
        """Return the outcome of a run that this job finished before it was requeued."""
        results, seconds = read_results(run.folder), read_stamp(run.folder).get("seconds")
        if results is None or not isinstance(seconds, (int, float)) or not self.ledger.is_stamped(run):
            return None
        return Outcome(run, DONE, seconds=seconds, accuracy=float(results["metrics"]["accuracy"]))

    def _do(self, run: Run, lost: dict[Path, str]) -> Outcome:
        needed = [lost[folder] for folder in run.needs if folder in lost]
        if needed:
            return Outcome(run, LEFT_OUT, f"it needs {needed[0]}")
        print(f"{run.name}: {run.folder}", flush=True)
        try:
            self._process = Process(run, self.command, self.ledger, {"OMP_NUM_THREADS": str(self.threads)})
            return self._process.wait()
        except UserError as error:
            return Outcome(run, FAILED, str(error))
        except BaseException:
            self._stop()
            raise
        finally:
            self._process = None

    def _stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process.end()

    def checkpoint(self) -> Any:
        """Stop the current run, which goes on from its last whole epoch in the requeued job."""
        import submitit

        self._stop()
        return submitit.helpers.DelayedSubmission(Chain(self.runs, self.command, self.ledger, self.threads))


def chains(runs: Sequence[Run]) -> list[list[Run]]:
    """Return the runs grouped by what they need of each other, in their order."""
    group: dict[Path, list[Run]] = {}
    for run in runs:
        together = [run]
        for folder in run.needs:
            if folder in group and group[folder] is not together:
                together = group[folder] + [one for one in together if one not in group[folder]]
        order = {one.folder: place for place, one in enumerate(runs)}
        together.sort(key=lambda one: order[one.folder])
        for one in together:
            group[one.folder] = together
    return list({id(one): one for one in group.values()}.values())


def read_options(given: Sequence[str]) -> dict[str, Any]:
    """Return the options of a cluster from KEY=VALUE texts."""
    options: dict[str, Any] = dict(_DEFAULTS)
    for text in given:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise UserError(f"--slurm {text}: write KEY=VALUE, such as partition=gpu or gpus_per_node=1.")
        options[key] = int(value) if value.isdigit() else value
    return options


def run_slurm(
    runs: Sequence[Run], command: Sequence[str], ledger: Ledger, options: dict[str, Any], folder: Path, view: View
) -> list[Outcome]:
    """Hand the runs to the cluster, wait for them, and return how each ended.

    options: `cluster` is slurm, or local to try things without one; `array_parallelism` bounds the jobs at a time.
    folder: where the scripts and logs of the jobs are kept.
    """
    executor, cluster = _executor(options, folder)
    bare = Ledger(ledger.disposable)  # a node need not compare settings, and functions do not travel
    work = [Chain(group, command, bare, int(options["cpus_per_task"])) for group in chains(runs)]
    _let_nodes_find_us()
    try:
        with executor.batch():
            jobs = [executor.submit(chain) for chain in work]
    except Exception as error:  # submitit's own errors, and those of sbatch
        raise UserError(f"The jobs could not be submitted: {error}") from error
    print(f"{len(jobs)} jobs are submitted ({jobs[0].job_id} to {jobs[-1].job_id}); their logs are in {folder}")
    try:
        return _watch(list(zip(jobs, work, strict=True)), view, _POLL[cluster])
    except BaseException:
        for job in jobs:
            job.cancel(check=False)
        raise


def _executor(options: dict[str, Any], folder: Path) -> tuple[Any, str]:
    try:
        import submitit
    except ImportError:
        raise UserError("--engine slurm needs submitit: pip install 'cocoamix[slurm]' or submitit itself.") from None
    options = dict(options)
    cluster = options.pop("cluster", "slurm")
    if cluster not in _POLL:
        raise UserError(f"--slurm cluster={cluster} is not known; it is slurm or local.")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        executor = submitit.AutoExecutor(folder=str(folder), cluster=cluster, slurm_max_num_timeout=100)
        executor.update_parameters(**{k if k in _GENERAL else f"slurm_{k}": v for k, v in options.items()})
    except (NameError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"The cluster does not take the options of --slurm: {error}") from error
    return executor, cluster


def _let_nodes_find_us() -> None:
    """Put this package on the path of the jobs, which inherit the environment."""
    place = str(Path(__file__).resolve().parents[2])
    paths = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one and one != place]
    os.environ["PYTHONPATH"] = os.pathsep.join([place, *paths])


def _watch(work: Sequence[tuple[Any, Chain]], view: View, poll: float) -> list[Outcome]:
    outcomes: list[Outcome] = []
    left = list(work)
    while left:
        for job, chain in list(left):
            if job.done():
                left.remove((job, chain))
                for outcome in _result(job, chain):
                    outcomes.append(outcome)
                    view.ended(outcome, [])
        view.tick([])
        time.sleep(poll if left else 0)
    return outcomes


def _result(job: Any, chain: Chain) -> list[Outcome]:
    """Return what a job tells of its runs; where it died, what is known of it."""
    try:
        found: list[Outcome] = job.result()
        return found
    except Exception as error:  # whatever ended the job
        lines = [line for line in str(error).splitlines() if line.strip()]
        reason = f"job {job.job_id} ended: {lines[-1].strip() if lines else job.state} (log: {job.paths.stderr})"
        finder: Callable[[Run], Outcome | None] = chain._done_before
        return [finder(run) or Outcome(run, FAILED, reason) for run in chain.runs]
