"""Decides which runs are finished, by results.json and its settings, never by the mere presence of a folder."""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cocoamix.config import shipped
from cocoamix.config.settings import flatten
from cocoamix.errors import UserError
from cocoamix.report.readers.logs import list_logs
from cocoamix.run.results import RESULTS, NewerResultsError, Results, ResultsError

from .comparison import Settings, differing, settings_of_arguments
from .runs import Run
from .stamp import LOCKED, read_stamp, time_of, write_stamp

FINISHED, DUE, BLOCKED = "finished", "due", "blocked"


@dataclass(frozen=True)
class State:
    """The state of a run and, if it is blocked, the reason."""

    kind: str
    reason: str = ""


def load_results(folder: Path) -> Results:
    """Return the results of a run.

    Raises:
        ResultsError: There are no usable results, or they have no accuracy.
    """
    results = Results.read(folder / RESULTS)
    if results.accuracy is None:
        raise ResultsError(folder / RESULTS, "it has no accuracy")
    return results


def read_results(folder: Path) -> Results | None:
    """Return the results of a run, or None if there are no usable ones."""
    try:
        return load_results(folder)
    except ResultsError:
        return None


class Ledger:
    """Decides which runs of a plan are finished, and records each start.

    Args:
        disposable: Whether only results of the same code count.
        settings: Returns the configuration that train.py will use for a run. None for the train.py of another tree,
            whose configuration is unknown; the arguments are compared instead.
        fresh: Only results newer than this time (seconds since 1970) count; if None, all do.
    """

    def __init__(
        self,
        disposable: bool = False,
        settings: Callable[[Run], Settings] | None = None,
        fresh: float | None = None,
    ) -> None:
        self.disposable = disposable
        self.settings = settings
        self.fresh = fresh
        self._code = hash_code() if disposable else ""

    # ------------------------------------------------------------------ states

    def classify(self, runs: Sequence[Run]) -> dict[Path, State]:
        """Return the state of each run by its folder. Each run must come after the runs that it needs."""
        states: dict[Path, State] = {}
        for run in runs:
            state = self.state(run)
            needed = [states[folder] for folder in run.needs]
            if any(one.kind == BLOCKED for one in needed):
                state = State(BLOCKED, "a run that it needs is blocked")
            elif state.kind == FINISHED and any(one.kind == DUE for one in needed):
                state = State(DUE)  # its model will be retrained
            states[run.folder] = state
        return states

    def state(self, run: Run) -> State:
        """Return the state of one run, regardless of the runs that it needs."""
        stamp = read_stamp(run.folder)
        if self._is_too_old(stamp):
            return State(DUE)
        try:
            results = load_results(run.folder)
        except NewerResultsError as error:  # unreadable here, but results that must not be overwritten
            return State(BLOCKED, str(error))
        except ResultsError:
            return State(DUE)
        other = self._differing(run, results, stamp)
        if other:
            return State(
                BLOCKED,
                f"{run.folder} holds results of other settings ({other}). Choose another --output, move that folder "
                "elsewhere, or repeat the run with --fresh, which deletes the folder.",
            )
        due = _stopped_early(run, results) or self._is_of_other_code(run, stamp) or _is_of_other_models(run, stamp)
        return State(DUE if due else FINISHED)

    def why_deleted(self, run: Run) -> str:
        """Return why the contents of a run's output folder are deleted when the run starts; empty if they are kept.

        Unfinished work is kept: train.py resumes from it, or refuses it and names the settings that differ.
        """
        if not files_to_delete(run.folder):
            return ""
        stamp = read_stamp(run.folder)
        if self._is_too_old(stamp):
            return "--fresh"
        finished = read_results(run.folder) is not None
        if self._is_of_other_code(run, stamp) and (finished or self._has_inputs(run, stamp)):
            return "made by other code"
        return ""

    def rename_results(self, run: Run) -> None:
        """Rename the old results of a run that starts again, so that they are not mistaken for the new ones."""
        if not (run.folder / RESULTS).exists():
            return
        # Without results.json, the report would fall back to the log of an evaluation.
        logs = [] if run.trains else list_logs(run.folder, os.listdir(run.folder))
        for path in (run.folder / RESULTS, *logs):
            path.rename(path.with_name(f"{path.name}-{time.strftime('%Y-%m-%d-%H-%M-%S')}-before"))

    def rename_orphans(self, runs: Sequence[Run]) -> list[Run]:
        """Rename the results of runs that could not start after their model was deleted or retrained.

        Args:
            runs: The runs that are missing, each after the runs that it needs.

        Returns:
            The runs whose results were renamed.
        """
        orphans: dict[Path, Run] = {}
        for run in runs:
            gone = _models(run) != _models_before(run, read_stamp(run.folder))
            if (gone or any(folder in orphans for folder in run.needs)) and (run.folder / RESULTS).exists():
                with suppress(OSError):  # a folder that cannot be written is the reason why the run is missing
                    self.rename_results(run)
                    orphans[run.folder] = run
        return list(orphans.values())

    def _is_too_old(self, stamp: Mapping[str, Any]) -> bool:
        return self.fresh is not None and time_of(stamp) < self.fresh

    def _differing(self, run: Run, results: Results, stamp: Mapping[str, Any]) -> str:
        if self.settings is not None:
            return differing(self.settings(run), results, run.arguments, run.trains)
        return "" if not stamp or self._has_inputs(run, stamp) else "its arguments or configurations have changed"

    # ------------------------------------------------------------------ stamps

    def stamp_begin(self, run: Run) -> None:
        """Record the settings that a run is started with."""
        content = {
            "inputs": self.inputs(run, self._code),
            "code": self._code,
            "arguments": list(run.arguments),
            "id": uuid.uuid4().hex[:12],  # of this start; an evaluation records the id of its training run
            "models": _models(run),
            "time": time.time(),
            "seconds": None,
        }
        write_stamp(run.folder, content)

    def stamp_end(self, run: Run, seconds: float) -> None:
        """Record how long a successful run took."""
        write_stamp(run.folder, {**read_stamp(run.folder), "time": time.time(), "seconds": seconds})

    def inputs(self, run: Run, code: str) -> str:
        """Hash what a run depends on: arguments, configurations and, for disposable results, the code."""
        digest = hashlib.sha256("\0".join([*run.arguments, code]).encode())
        for file in run.files:
            digest.update(file.read_bytes())
        return digest.hexdigest()

    def _has_inputs(self, run: Run, stamp: Mapping[str, Any]) -> bool:
        """Return whether the run in a folder was started with the same arguments and configurations."""
        if stamp.get("inputs") == self.inputs(run, str(stamp.get("code", self._code))):
            return True
        # Some stamps do not record the code hash separately.
        return self.disposable and "code" not in stamp and stamp.get("arguments") == list(run.arguments)

    def _is_of_other_code(self, run: Run, stamp: Mapping[str, Any]) -> bool:
        if not self.disposable or not stamp:
            return False
        if "code" in stamp:
            return bool(stamp["code"] != self._code)
        return bool(stamp.get("inputs") != self.inputs(run, self._code))


def _models(run: Run) -> list[str | None]:
    """Return the current ids of the runs that a run needs."""
    return [read_stamp(folder).get("id") for folder in run.needs]


def _is_of_other_models(run: Run, stamp: Mapping[str, Any]) -> bool:
    """Return whether a run that this one needs was started again after it. Some stamps have no ids."""
    pairs = zip(_models(run), _models_before(run, stamp), strict=True)
    return any(now is not None and now != before for now, before in pairs)


def _models_before(run: Run, stamp: Mapping[str, Any]) -> list[str | None]:
    """Return the ids that the runs a run needs had when it started."""
    then = stamp.get("models")
    return then if isinstance(then, list) and len(then) == len(run.needs) else [None] * len(run.needs)


def files_to_delete(folder: Path) -> list[Path]:
    """Return the files and folders that a repeated run deletes in its folder: all but the locked files."""
    return [path for path in folder.iterdir() if path.name not in LOCKED] if folder.is_dir() else []


def plan_settings() -> Callable[[Run], Settings]:
    """Return a function that returns the configuration of a run. It imports the trainers, which takes seconds."""
    found: dict[Path, Settings] = {}

    def settings_of(run: Run) -> Settings:
        if run.folder not in found:
            try:
                found[run.folder] = settings_of_arguments(run.arguments, dict(run.origins))
            except UserError as error:
                raise UserError(f"The run {run.name} of the plan cannot be started: {error}") from error
        return found[run.folder]

    return settings_of


def _stopped_early(run: Run, results: Results) -> bool:
    """Return whether results end before the last session of the run."""
    wanted = dict(zip(run.arguments, run.arguments[1:], strict=False)).get("FSCIL.LAST_SESSION")
    reached = flatten(results.config).get("FSCIL.LAST_SESSION")
    return not results.complete and str(wanted) != str(reached)


# Parts of the package that do not affect results.
_NOT_HASHED = (
    "bench",
    "drawing",
    "figures",
    "report",
    "cli.py",
    "__main__.py",
    "parser.py",
    "plugin.py",
    "train_command.py",
)


def hash_code() -> str:
    """Hash the code that results depend on."""
    package = Path(__file__).resolve().parents[1]
    tree = shipped.folder().parent  # the root of the source tree, or the package itself
    files = [path for folder in ("trainers", "datasets") for path in (tree / folder).rglob("*.py")]
    files += [path for path in package.rglob("*.py") if path.relative_to(package).parts[0] not in _NOT_HASHED]
    files += [package / "assets" / "tiny.safetensors", tree / "train.py", tree / "requirements.txt"]
    digest = hashlib.sha256()
    for path in sorted(set(files)):
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()
