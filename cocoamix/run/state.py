"""Whether the output folder of a run holds its results: finished, due, or blocked by other results.

The runner of plans and the shell scripts ask here. A run is finished if its results are of the same configuration and
of the same data; the mere presence of a folder says nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yacs.config import CfgNode

from cocoamix import __version__
from cocoamix.config import roles
from cocoamix.config.key import FromCheckpoint
from cocoamix.config.settings import flatten
from cocoamix.errors import UserError, brief, some_of
from cocoamix.io.texts import UnreadableError, read_json

from .data_record import Scan, run_difference
from .results import RESULTS, NewerResultsError, Results, ResultsError

FINISHED, DUE, BLOCKED = "finished", "due", "blocked"
STAMP = "bench.json"  # the runner's record of a start: its code, the models that it used, how long it took
# Keys that only training reads. Those of prompts and sessions also affect evaluations.
_OF_TRAINING = ("OPTIM.", "TRAIN.", "LOSS.", "DATALOADER.TRAIN_X.")
# Parts of the package that do not affect results.
_NOT_HASHED = ("experiments", "cli.py", "__main__.py", "finished.py", "parser.py", "plugin.py", "train_command.py")


@dataclass(frozen=True)
class State:
    """The state of a run."""

    kind: str  # FINISHED, DUE or BLOCKED
    reason: str = ""  # why it is blocked, or why a run with results is due
    repeat: bool = False  # a due run starts anew: what its folder holds is of other code or of another model
    note: str = ""  # what differs without effect on the state, such as the version of this package


@dataclass(frozen=True)
class Request:
    """A run to look for: its configuration, and the runs whose models it uses."""

    cfg: CfgNode | None  # None if settings and data are not compared
    trains: bool
    model: Path | None = None  # the folder of the model that it evaluates, as --model-dir
    needs: tuple[Path, ...] = ()  # the folders of all runs whose models it uses
    code: str = ""  # the digest of the code that results must be of; empty if any will do
    fresh: bool = False  # any results are repeated


class Folders:
    """Finds the states of runs. Each dataset is read once, and its files are looked at once, for all runs.

    Args:
        read_dataset: Returns the dataset of a configuration, and writes nothing; `cocoamix.train.read_dataset`.
    """

    def __init__(self, read_dataset: Callable[[CfgNode], Any]) -> None:
        self._read_dataset, self._scan = read_dataset, Scan()
        self._datasets: dict[str, Any] = {}  # datasets, or the UserErrors that say why they cannot be read

    def state(self, folder: Path, request: Request) -> State:
        """Return the state of the run in a folder, regardless of the states of the runs that it needs."""
        stamp = read_stamp(folder)
        other_code = bool(request.code and stamp and stamp.get("code") != request.code)
        again = _retrained(folder, request) or ("made by other code" if other_code else "")
        if request.fresh:
            again = "--fresh"
        try:
            results = read_results(folder)
        except ResultsError as error:
            problem = f"its results cannot be used: {error.reason}" if (folder / RESULTS).exists() else ""
            if isinstance(error, NewerResultsError):  # they must not be overwritten
                return State(BLOCKED, problem)
            return State(DUE, again or problem, bool(again))
        # Other code may draw other images; a plan whose results are disposable repeats its runs then.
        is_compared = request.cfg is not None and not request.fresh
        blocked = self._why_blocked(results, request, not other_code) if is_compared else ""
        if blocked:
            return State(BLOCKED, blocked)
        if again or not results.complete:
            return State(DUE, again, bool(again))
        then = results.versions.get("cocoamix", __version__)
        return State(FINISHED, note="" if then == __version__ else f"made by cocoamix {then}; this is {__version__}")

    def problem(self, cfg: CfgNode) -> str:
        """Return why the dataset of a configuration cannot be read; empty if it can."""
        dataset = self._dataset(cfg)
        return " ".join(str(dataset).split()) if isinstance(dataset, UserError) else ""

    def _dataset(self, cfg: CfgNode) -> Any:
        key = json.dumps([cfg.DATASET, cfg.SEED], default=str, sort_keys=True)
        if key not in self._datasets:
            try:
                self._datasets[key] = self._read_dataset(cfg)
            except UserError as error:
                self._datasets[key] = error
        return self._datasets[key]

    def _why_blocked(self, results: Results, request: Request, with_data: bool) -> str:
        """Return why results are not those of a run; empty if they are."""
        from .protocol import settings_of  # imports torch, which the configuration needs anyway

        assert request.cfg is not None
        other = differing(settings_of(request.cfg), results, request)
        if other:
            return f"its folder holds results of other settings ({other})"
        if with_data and results.data is not None:
            problem = self.problem(request.cfg)
            if problem:
                return f"its results cannot be compared with its data. {problem.rstrip('.')}"
            dataset = self._dataset(request.cfg)
            other = run_difference(results.data, request.cfg, dataset, trains=request.trains, scan=self._scan)
        if other:
            return f"its folder holds results of other data ({other})"
        other = differing_model(results, request.model) if request.model is not None else ""
        return (
            f"its folder holds results of other settings than the model in {request.model} ({other})" if other else ""
        )


def read_results(folder: Path) -> Results:
    """Return the results of a run.

    Raises:
        ResultsError: There are no usable results, or they have no accuracy.
    """
    results = Results.read(folder / RESULTS)
    if results.accuracy is None:
        raise ResultsError(folder / RESULTS, "it has no accuracy")
    return results


# ---------------------------------------------------------------------- settings


def differing(now: Mapping[str, Any], results: Results, request: Request) -> str:
    """Describe which settings of results differ from those of a run; empty if all agree.

    An evaluation takes its training settings from the checkpoint, so they are not compared. What only training reads
    is not compared for a method without training.
    """

    def is_compared(key: str) -> bool:
        declared = roles.find(key)
        if request.model is not None:
            return not declared.role.of_training and declared.from_checkpoint is FromCheckpoint.NEVER
        return request.trains or not (key.startswith(_OF_TRAINING) and declared.role.of_training)

    return _describe(filter(is_compared, now), flatten(results.config), now)


def differing_model(evaluation: Results, folder: Path) -> str:
    """Describe which training settings of an evaluation differ from those of the run in a folder."""
    try:
        now = flatten(Results.read(folder / RESULTS).config)
    except ResultsError:
        return ""  # the training settings are unknown
    own = ("TEST.FINAL_MODEL", "TRAINER.ENLEARN.PROMPTS")  # an evaluation may have its own, also of the template
    keys = (key for key in now if roles.of_training(key) and key not in own and not key.endswith(".TEMPLATE"))
    return _describe(keys, flatten(evaluation.config), now)


def _describe(keys: Iterable[str], then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Describe which keys differ. A key that only one side has was added later, so it is not compared."""
    changed = (key for key in keys if key in then and then[key] != now[key])
    return some_of(f"{key} was {brief(then[key])} and is {brief(now[key])}" for key in changed)


# ---------------------------------------------------------------------- models and code


def read_stamp(folder: Path) -> dict[str, Any]:
    """Return the runner's record of a start; empty if the run was not started by the runner."""
    try:
        content = read_json(folder / STAMP)
    except UnreadableError:
        return {}
    return content if isinstance(content, dict) else {}


def hash_model(folder: Path) -> str:
    """Hash the checkpoints of a training run, so that an evaluation knows which model it saw; empty without any."""
    files = sorted([*folder.glob("*/model*.pth.tar*"), *folder.glob("sessions/*.pth")])
    return _hash_files(files, folder) if files else ""


def hash_code() -> str:
    """Hash the code that results depend on: trainers, datasets and the library, without the lab around them."""
    from cocoamix.config import shipped

    package = Path(__file__).resolve().parents[1]
    tree = shipped.folder().parent  # the root of the source tree, or the package itself
    files = {path for folder in ("trainers", "datasets") for path in (tree / folder).rglob("*.py")}
    files |= {path for path in package.rglob("*.py") if path.relative_to(package).parts[0] not in _NOT_HASHED}
    files |= {package / "assets" / "tiny.safetensors"}
    return _hash_files(sorted(path for path in files if path.is_file()), tree)


def _hash_files(files: Sequence[Path], below: Path) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(below)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def read_models(folder: Path) -> dict[str, Any]:
    """Return the hashes of the models that the run in a folder used, by their absolute folders, as recorded."""
    models = read_stamp(folder).get("models")
    return {os.path.abspath(folder / model): then for model, then in models.items()} if isinstance(models, dict) else {}


def _retrained(folder: Path, request: Request) -> str:
    """Return that a model which a run used has changed since; empty if none has, or if none was recorded."""
    then = read_models(folder)
    changed = [model for model in request.needs if then and then.get(os.path.abspath(model)) != hash_model(model)]
    return f"the model in {changed[0]} was trained again" if changed else ""
