"""Runs on a Slurm cluster, through submitit: an array of jobs, requeued when they are preempted or time out.

A job executes a training run and then the evaluations of its model. So no job waits for another, and a requeued job
resumes with the first unfinished run.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from tqdm import tqdm

from cocoamix.bench.comparison import Settings
from cocoamix.bench.ledger import FINISHED, Ledger
from cocoamix.bench.runs import Run
from cocoamix.bench.view import View
from cocoamix.errors import UserError

from .process import DONE, FAILED, LEFT_OUT, Outcome, Process, begin, finished_outcome
from .signals import interrupted_by_signals
from .slurm_files import plain, read_answer, read_runs, write_error, write_outcomes, write_runs
from .slurm_queue import UNKNOWN, Watch, ask, cancel

# Options that submitit knows on every kind of cluster, and those that it adds to sbatch's.
_GENERAL = ("timeout_min", "mem_gb", "gpus_per_node", "cpus_per_task", "nodes", "tasks_per_node", "name")
_ADDED = ("array_parallelism", "signal_delay_s", "setup", "teardown", "srun_args", "use_srun", "stderr_to_stdout")
_DEFAULTS = {"timeout_min": 240, "cpus_per_task": 4, "name": "cocoamix"}
_POLL = {"slurm": 5.0, "local": 0.2}  # seconds between checks for results
_ASK = 15.0  # seconds between calls of squeue
_SETTLE = 1.0  # seconds within which a signal that ended a run also reaches the job
_GRACE = 3.0  # seconds within which an ending job may be asked to requeue itself
_PATIENCE = 60.0  # seconds that cancelled jobs have to end
_RUNS = "_runs.json"  # suffix after a job's number: the description of the job


class Chain:
    """The runs of a job. submitit pickles it, calls it on a node, and calls `checkpoint` before a requeue.

    Args:
        runs: The runs, each after the runs that it needs.
        command: The command of a run, without its arguments.
        ledger: Decides which runs are finished.
        threads: The number of threads of a run.
        answer: The file in which the job reports the outcomes to the runner; None if they are not needed.
    """

    def __init__(
        self, runs: Sequence[Run], command: Sequence[str], ledger: Ledger, threads: int, answer: Path | None = None
    ) -> None:
        self.runs, self.command, self.threads = list(runs), list(command), threads
        self.ledger, self.answer = ledger, answer
        self._process: Process | None = None
        self._ending = False

    def __call__(self) -> list[Outcome]:
        """Execute the unfinished runs and return the outcome of each."""
        before = signal.signal(signal.SIGTERM, self._on_end)
        try:
            outcomes = self._do_all()
            if self.answer is not None:
                write_outcomes(self.answer, outcomes)
            return outcomes
        except Exception as error:
            if self.answer is not None:
                write_error(self.answer, error)
            raise
        finally:
            signal.signal(signal.SIGTERM, before)

    def _do_all(self) -> list[Outcome]:
        outcomes: list[Outcome] = []
        lost: dict[Path, str] = {}
        for run in self.runs:
            outcome = self.done_before(run) or self._do(run, lost)
            outcomes.append(outcome)
            if outcome.status != DONE:
                lost[run.folder] = run.name
        return outcomes

    def done_before(self, run: Run) -> Outcome | None:
        """Return the outcome of a run that this job finished before it was requeued."""
        return finished_outcome(run) if self.ledger.state(run).kind == FINISHED else None

    def _do(self, run: Run, lost: dict[Path, str]) -> Outcome:
        needed = [lost[folder] for folder in run.needs if folder in lost]
        if needed:
            return Outcome(run, LEFT_OUT, f"it needs {needed[0]}")
        if self._ending:
            self._leave()
        print(f"{run.name}: {run.folder}", flush=True)
        try:
            begun = begin(run, self.command, self.ledger, {"OMP_NUM_THREADS": str(self.threads)})
            if isinstance(begun, Outcome):
                return begun
            self._process = begun
            outcome = begun.wait()
            if outcome.status != DONE:
                time.sleep(_SETTLE)
                if self._ending:
                    self._leave()
            return outcome
        except UserError as error:
            return Outcome(run, FAILED, str(error))
        except BaseException:
            self._stop()
            raise
        finally:
            self._process = None

    def _on_end(self, number: int, frame: FrameType | None) -> None:
        """Note that Slurm is ending the job, to requeue or cancel it, and stop the current run."""
        print(f"This job was asked to end ({signal.Signals(number).name}).", flush=True)
        self._ending = True
        if self._process is not None:
            self._process.stop()

    def _leave(self) -> None:
        """Exit without a result, because a result would tell the runner that the job is over.

        A requeued job resumes; a cancelled one is reported by Slurm.
        """
        time.sleep(_GRACE)  # submitit's signal may arrive here, requeue the job and exit
        sys.exit(128 + signal.SIGTERM)

    def _stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process.end()

    def checkpoint(self) -> Any:
        """Stop the current run; the requeued job resumes it from the last complete epoch."""
        import submitit

        self._stop()
        again = Chain(self.runs, self.command, self.ledger, self.threads, self.answer)
        return submitit.helpers.DelayedSubmission(again)


def chains(runs: Sequence[Run]) -> list[list[Run]]:
    """Group the runs that need each other, in the order of the runs."""
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
    """Parse the KEY=VALUE options of the Slurm jobs, and add the defaults."""
    options: dict[str, Any] = dict(_DEFAULTS)
    for text in given:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise UserError(f"--slurm {text}: write KEY=VALUE, such as partition=gpu or gpus_per_node=1.")
        options[key.replace("-", "_")] = int(value) if value.isdigit() else value
    return options


def run_slurm(
    runs: Sequence[Run], command: Sequence[str], ledger: Ledger, options: dict[str, Any], folder: Path, view: View
) -> list[Outcome]:
    """Submit the runs to the cluster, wait for them, and return the outcome of each.

    Args:
        runs: The runs to execute, each after the runs that it needs.
        command: The command of a run, without its arguments.
        ledger: Decides which runs are finished.
        options: Options of submitit and sbatch. `cluster` is slurm, or local to try it without a cluster;
            `array_parallelism` limits the number of jobs at a time.
        folder: The folder for the scripts and logs of the jobs, next to those of earlier starts.
        view: Shows the progress.
    """
    cluster = options.get("cluster", "slurm")
    executor = _executor(options, folder)
    bare = Ledger(ledger.disposable, _compared_before, ledger.fresh)
    threads = int(options["cpus_per_task"])
    work = _still_queued(runs, folder.parent, command, bare, threads) if cluster == "slurm" else []
    taken = {run.folder for _, chain in work for run in chain.runs}
    left = [run for run in runs if run.folder not in taken]
    if work:
        numbers = ", ".join(job.job_id for job, _ in work)
        print(f"Waiting for jobs of an earlier start that are still in the queue: {numbers}")
    answers = folder.resolve()  # a job may start in another working directory
    new = [
        Chain(group, command, bare, threads, answers / f"outcomes-{number}.json")
        for number, group in enumerate(chains(left))
    ]
    with interrupted_by_signals():
        if new:
            jobs = _submit(executor, new)
            for job, chain in zip(jobs, new, strict=True):
                assert chain.answer is not None
                write_runs(folder / f"{job.job_id}{_RUNS}", chain.runs, chain.answer.name)
            print(f"Submitted {len(jobs)} jobs ({jobs[0].job_id} to {jobs[-1].job_id}); their logs are in {folder}")
            work += list(zip(jobs, new, strict=True))
        sys.stdout.flush()
        return _watch(work, {run.folder for run in runs}, view, cluster)


def _compared_before(run: Run) -> Settings:
    """Return no settings, so that jobs do not compare them: the runner already has."""
    return {}


def _submit(executor: Any, work: Sequence[Chain]) -> list[Any]:
    _extend_python_path()
    try:
        with executor.batch():
            return [executor.submit(chain) for chain in work]
    except Exception as error:  # submitit's own errors, and those of sbatch
        raise UserError(f"The jobs could not be submitted: {error}") from error


def _executor(options: dict[str, Any], folder: Path) -> Any:
    try:
        import submitit
    except ImportError:
        raise UserError("--engine slurm needs submitit: pip install 'cocoamix[slurm]' or submitit itself.") from None
    cluster = options.get("cluster", "slurm")
    if cluster not in _POLL:
        raise UserError(f"--slurm cluster={cluster} is unknown; use slurm or local.")
    # No other user may write to this folder, because jobs unpickle files from it.
    folder.mkdir(mode=0o755, parents=True)
    try:
        executor = submitit.AutoExecutor(folder=str(folder), cluster=cluster, slurm_max_num_timeout=100)
        executor.update_parameters(**_parameters(options))
    except (AssertionError, NameError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"Slurm refuses the options of --slurm: {error}") from error
    return executor


def _parameters(options: dict[str, Any]) -> dict[str, Any]:
    """Return options under submitit's names. Options that it does not know go to sbatch unchanged."""
    given = {key: value for key, value in options.items() if key != "cluster"}
    found = {key: given.pop(key) for key in _GENERAL if key in given}
    own = {key: given.pop(key) for key in _ADDED if key in given}
    own["srun_args"] = shlex.split(str(own.get("srun_args", "")))
    # Since Slurm 22.05, srun does not inherit this from sbatch: with tasks bound to cores, all threads would share one.
    own["srun_args"].insert(0, f"--cpus-per-task={options['cpus_per_task']}")
    for key in ("setup", "teardown"):  # lines of the script
        if key in own:
            own[key] = [str(own[key])]
    # A cluster that does not requeue by default would not requeue a job that times out.
    own["additional_parameters"] = {"requeue": True, **given}
    return {**found, **{f"slurm_{key}": value for key, value in own.items()}}


def _extend_python_path() -> None:
    """Put this package on the Python path of the jobs, which inherit the environment."""
    place = str(Path(__file__).resolve().parents[3])
    paths = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one and one != place]
    os.environ["PYTHONPATH"] = os.pathsep.join([place, *paths])


# ---------------------------------------------------------------------- an earlier start


def _still_queued(
    runs: Sequence[Run], folder: Path, command: Sequence[str], ledger: Ledger, threads: int
) -> list[tuple[Any, Chain]]:
    """Return the running or queued jobs of earlier starts that execute some of the runs.

    The runner of an earlier start may have been killed, or may still be waiting for its jobs.

    Args:
        runs: The runs to execute.
        folder: The folder that holds a folder for each earlier start.
        command: The command of a run, without its arguments.
        ledger: Decides which runs are finished.
        threads: The number of threads of a run.
    """
    import submitit

    ending = "_submitted.pkl"
    paths = {path.name.removesuffix(ending): path for path in folder.glob(f"*/*{ending}")}
    paths = {number: path for number, path in paths.items() if not list(path.parent.glob(f"{number}_0_result.pkl"))}
    entries = ask(paths)
    if entries is None:
        raise UserError("squeue does not respond, and jobs of an earlier start may still be in the queue. Try again.")
    wanted = {run.folder: run for run in runs}
    found: list[tuple[Any, Chain]] = []
    taken: dict[Path, str] = {}  # folders, and the jobs that write to them
    for number, path in paths.items():
        entry = entries.get(number)
        # Slurm reuses job numbers after years; the path of the script shows whether the job is ours.
        if entry is None or entry.is_over or entry.script.parent != path.parent.resolve():
            continue
        task = read_runs(path.with_name(f"{number}{_RUNS}"))
        if task is None or any(at in wanted and plain(wanted[at]) != run for at, run in task.runs.items()):
            raise UserError(
                f"The job {number} of an earlier start is still in the queue and may write results of other settings "
                f"to the same folders. Wait for it, or cancel it: scancel {number}"
            )
        ours = [wanted[at] for at in task.runs if at in wanted]
        if ours:
            taken.update(dict.fromkeys(task.runs, number))
            chain = Chain(ours, command, ledger, threads, path.parent.resolve() / task.answer)
            found.append((submitit.SlurmJob(path.parent, number), chain))
    for run in runs:
        waits = [taken[one] for one in run.needs if one in taken and run.folder not in taken]
        if waits:
            raise UserError(
                f"{run.name} needs a run that the job {waits[0]} of an earlier start is executing. Wait for it, or "
                f"cancel it: scancel {waits[0]}"
            )
    return found


# ---------------------------------------------------------------------- waiting


def _watch(work: Sequence[tuple[Any, Chain]], wanted: set[Path], view: View, cluster: str) -> list[Outcome]:
    """Wait for the jobs and return the outcomes of the wanted runs. If interrupted, cancel the remaining jobs."""
    left = list(work)
    outcomes: list[Outcome] = []
    queue = Watch([job.job_id for job, _ in work], _ASK, _say) if cluster == "slurm" else None
    try:
        while left:
            if queue is not None:
                queue.look()
            for job, chain in list(left):
                found = _look(job, chain, queue)
                if found is None:
                    continue
                left.remove((job, chain))
                for outcome in found:
                    if outcome.run.folder in wanted:
                        outcomes.append(outcome)
                        view.ended(outcome, [])
            view.tick([])
            time.sleep(_POLL[cluster] if left else 0)
    except BaseException:
        _cancel([job for job, _ in left], cluster)
        raise
    return outcomes


def _say(text: str) -> None:
    tqdm.write(text, file=sys.stderr)  # above the bar, if there is one


def _cancel(jobs: Sequence[Any], cluster: str) -> None:
    if cluster == "slurm":
        _say(f"Cancelling {len(jobs)} jobs.")
        cancel([job.job_id for job in jobs], _PATIENCE)
    else:
        for job in jobs:
            job.cancel(check=False)


def _look(job: Any, chain: Chain, queue: Watch | None) -> list[Outcome] | None:
    """Return the outcomes of the runs of a job, or None while the job is running."""
    if queue is None and not job.done():
        return None
    if queue is None or _shows_result(job):
        answer = read_answer(chain.answer, chain.runs) if chain.answer is not None else None
        if isinstance(answer, list):
            return answer
        return _lost(job, chain, answer or _last_line(job.stderr() or "") or "it reported no outcomes")
    if not queue.is_over(job.job_id):
        return None
    state = queue.state(job.job_id)
    # Other states explain themselves.
    words = _last_line(job.stderr() or "") if state in ("COMPLETED", "FAILED", UNKNOWN) else ""
    return _lost(job, chain, f"{state}, {words}" if words else state)


def _shows_result(job: Any) -> bool:
    """Return whether the result file of a job is visible on this machine."""
    folder: Path = job.paths.folder
    with contextlib.suppress(OSError):
        folder.chmod(folder.stat().st_mode)  # makes a network file system refresh the folder
    return bool(job.paths.result_pickle.exists())


def _lost(job: Any, chain: Chain, why: str) -> list[Outcome]:
    """Return the outcomes of the runs of a job that ended without reporting them."""
    reason = f"job {job.job_id} ended: {why} (log: {job.paths.stderr})"
    return [chain.done_before(run) or Outcome(run, FAILED, reason) for run in chain.runs]


def _last_line(text: str) -> str:
    """Return the last meaningful line of a log: if submitit printed a traceback between two rules, its last line."""
    lines = [line.strip() for line in text.splitlines()]
    rules = [place for place, line in enumerate(lines) if line and not line.strip("-")]
    found = [line for line in (lines[: rules[-1]] if len(rules) > 1 else lines) if line]
    return found[-1] if found else ""
