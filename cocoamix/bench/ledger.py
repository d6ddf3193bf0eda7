"""Which runs are finished: by their results.json and the settings it was made with, never by a folder being there."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cocoamix.config import shipped
from cocoamix.config.settings import flatten
from cocoamix.errors import UserError
from cocoamix.io.files import write_json
from cocoamix.io.texts import UnreadableError, read_json
from cocoamix.run.results import RESULTS, NewerResultsError, Results, ResultsError

from .runs import Run

STAMP = "bench.json"  # beside it: what the runner started, and how long it took
FINISHED, DUE, IN_THE_WAY = "finished", "due", "in the way"

Settings = Mapping[str, Any]  # dotted keys of a configuration


@dataclass(frozen=True)
class State:
    """How far a run is, and what is in its way."""

    kind: str
    reason: str = ""


def load_results(folder: Path) -> Results:
    """Return the results of a run, which have an accuracy. Raises ResultsError if there are none that can be used."""
    results = Results.read(folder / RESULTS)
    if results.accuracy is None:
        raise ResultsError(folder / RESULTS, "it has no accuracy")
    return results


def read_results(folder: Path) -> Results | None:
    """Return the results of a run, or None if there are none that can be used."""
    try:
        return load_results(folder)
    except ResultsError:
        return None


def read_stamp(folder: Path) -> dict[str, Any]:
    """Return what the runner noted beside a run's results; nothing if it did not make them."""
    try:
        content = read_json(folder / STAMP)
    except UnreadableError:
        return {}
    return content if isinstance(content, dict) else {}


def write_stamp(run: Run, inputs: str, seconds: float | None = None) -> None:
    """Note what a run is started with and, once it has ended well, how long it took."""
    write_json(run.folder / STAMP, {"inputs": inputs, "arguments": list(run.arguments), "seconds": seconds})


class Ledger:
    """Judges the runs of a plan.

    disposable: results count only if they were made with the same arguments, configurations and code.
    settings: gives the configuration that train.py will use for a run; None where that cannot be known, which is for
    the train.py of another tree: then the arguments are compared.
    """

    def __init__(self, disposable: bool = False, settings: Callable[[Run], Settings] | None = None) -> None:
        self.disposable = disposable
        self.settings = settings
        self._code = hash_code() if disposable else ""

    def inputs(self, run: Run) -> str:
        """Hash what a run depends on: arguments, configurations and, for disposable results, the code."""
        digest = hashlib.sha256("\0".join([*run.arguments, self._code]).encode())
        for file in run.files:
            digest.update(file.read_bytes())
        return digest.hexdigest()

    def judge(self, runs: Sequence[Run]) -> dict[Path, State]:
        """Return the state of each run by its folder. runs: each after those that it needs."""
        states: dict[Path, State] = {}
        for run in runs:
            state = self._judge(run)
            needed = [states[folder] for folder in run.needs]
            if any(one.kind == IN_THE_WAY for one in needed):
                state = State(IN_THE_WAY, "a run that it needs cannot be made")
            elif state.kind == FINISHED and any(one.kind == DUE for one in needed):
                state = State(DUE)  # it would be of a model that is trained again
            states[run.folder] = state
        return states

    def _judge(self, run: Run) -> State:
        try:
            results = load_results(run.folder)
        except NewerResultsError as error:  # somebody's work, though we cannot read it
            return State(IN_THE_WAY, str(error))
        except ResultsError:
            return State(DUE)
        if self.disposable:
            return State(FINISHED if self.is_stamped(run) else DUE)
        differing = self._differing(run, results)
        if not differing:
            return State(DUE if _stopped_early(run, results) else FINISHED)
        return State(
            IN_THE_WAY,
            f"{run.folder} holds results of other settings ({differing}). Move that folder away, or choose "
            "another --output.",
        )

    def is_stamped(self, run: Run) -> bool:
        """Say whether the runner began what is in the folder of a run, with the same inputs."""
        return read_stamp(run.folder).get("inputs") == self.inputs(run)

    def _differing(self, run: Run, results: Results) -> str:
        if self.settings is None:
            stamp = read_stamp(run.folder)
            return "" if not stamp or self.is_stamped(run) else "its arguments or configurations have changed"
        now, then = self.settings(run), flatten(results.config)
        # A key that one of them lacks is newer than the other's code: it says nothing.
        pairs = [(key, then[key], value) for key, value in now.items() if key in then and then[key] != value]
        shown = [f"{key} was {old!r} and is {new!r}" for key, old, new in pairs[:3]]
        return "; ".join(shown + ["..."] * (len(pairs) > 3))

    def prepare(self, run: Run) -> None:
        """Take results out of a folder whose run is to be made again, so that they are not taken for the new ones."""
        path = run.folder / RESULTS
        if path.exists() and self.disposable:
            path.unlink()
        elif path.exists():
            path.rename(path.with_name(f"{RESULTS}-{time.strftime('%Y-%m-%d-%H-%M-%S')}-before"))


def plan_settings() -> Callable[[Run], Settings]:
    """Return the function that tells the configuration of a run. Imports the trainers, which takes seconds."""
    from cocoamix.run.protocol import settings_of
    from cocoamix.train import parse_arguments, setup_cfg

    def tell(run: Run) -> Settings:
        try:
            return settings_of(setup_cfg(parse_arguments(run.arguments)))
        except UserError as error:
            raise UserError(f"The run {run.name} of the plan cannot be made: {error}") from error

    return tell


def _stopped_early(run: Run, results: Results) -> bool:
    """Say whether results in sessions end before those that the run is to reach."""
    wanted = dict(zip(run.arguments, run.arguments[1:], strict=False)).get("FSCIL.LAST_SESSION")
    reached = flatten(results.config).get("FSCIL.LAST_SESSION")
    return not results.complete and str(wanted) != str(reached)


# Parts of the package that no result depends on.
_ASIDE = ("bench", "figures", "report", "cli.py", "__main__.py", "parser.py", "plugin.py", "train_command.py")


def hash_code() -> str:
    """Hash the code that results depend on."""
    package = Path(__file__).resolve().parents[1]
    tree = shipped.folder().parent  # of the source tree, or the package itself
    files = [path for folder in ("trainers", "datasets") for path in (tree / folder).rglob("*.py")]
    files += [path for path in package.rglob("*.py") if path.relative_to(package).parts[0] not in _ASIDE]
    files += [package / "assets" / "tiny.safetensors", tree / "train.py", tree / "requirements.txt"]
    digest = hashlib.sha256()
    for path in sorted(set(files)):
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()
