"""Whether the output folder of a run holds its results: finished, due, or blocked by other results.

The runner of plans and the shell scripts ask here. A run is finished if its results are of the same configuration and
of the same data; the mere presence of a folder says nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yacs.config import CfgNode

from cocoamix import __version__
from cocoamix.config import roles
from cocoamix.config.key import FromCheckpoint
from cocoamix.config.settings import flatten
from cocoamix.errors import UserError
from cocoamix.io.texts import UnreadableError, read_json

from .data_record import Scan, run_difference
from .results import RESULTS, NewerResultsError, Results, ResultsError

FINISHED, DUE, BLOCKED = "finished", "due", "blocked"
STAMP = "bench.json"  # the runner's record of a start: its code, the models that it used, how long it took
_SHOWN = 3  # number of differing keys in a message
_LONGEST = 60  # characters of a value in a message

Settings = Mapping[str, Any]  # dotted keys of a configuration


@dataclass(frozen=True)
class State:
    """The state of a run.

    Attributes:
        kind: FINISHED, DUE or BLOCKED.
        reason: Why it is blocked, or why a run with results is due.
        repeat: Whether a due run starts anew: what its folder holds is of other code or of another model.
        note: What differs without effect on the state, such as the version of this package.
    """

    kind: str
    reason: str = ""
    repeat: bool = False
    note: str = ""


@dataclass(frozen=True)
class Request:
    """A run to look for: its configuration, and the runs whose models it uses.

    Attributes:
        cfg: The configuration; None if settings and data are not compared.
        trains: Whether it trains.
        model: The folder of the model that it evaluates, as --model-dir.
        needs: The folders of all runs whose models it uses.
        code: The digest of the code that results must be of; empty if any will do.
    """

    cfg: CfgNode | None
    trains: bool
    model: Path | None = None
    needs: tuple[Path, ...] = ()
    code: str = ""


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
        retrained = _retrained(request, stamp)
        other_code = bool(request.code and stamp and stamp.get("code") != request.code)
        repeat = State(DUE, retrained or "made by other code", repeat=True) if retrained or other_code else None
        try:
            results = read_results(folder)
        except NewerResultsError as error:  # unreadable here, but results that must not be overwritten
            return State(BLOCKED, str(error))
        except ResultsError as error:
            return repeat or State(DUE, str(error) if (folder / RESULTS).exists() else "")
        # Other code may draw other images; a plan whose results are disposable repeats its runs then.
        blocked = self._why_blocked(folder, results, request, not other_code) if request.cfg is not None else ""
        if blocked:
            return State(BLOCKED, blocked)
        if not results.complete:
            return repeat or State(DUE)
        return repeat or State(FINISHED, note=_version_note(results))

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

    def _why_blocked(self, folder: Path, results: Results, request: Request, with_data: bool) -> str:
        """Return why the results in a folder are not those of a run; empty if they are."""
        from .protocol import settings_of  # imports torch, which the configuration needs anyway

        assert request.cfg is not None
        holds = f"{folder} holds results of other"
        other = differing(settings_of(request.cfg), results, request)
        if other:
            return f"{holds} settings ({other})"
        if with_data and results.data is not None:
            problem = self.problem(request.cfg)
            if problem:
                return f"its results cannot be compared with its data. {problem.rstrip('.')}"
            dataset = self._dataset(request.cfg)
            other = run_difference(results.data, request.cfg, dataset, trains=request.trains, scan=self._scan)
        if other:
            return f"{holds} data ({other})"
        other = differing_model(results, request.model) if request.model is not None else ""
        return f"{holds} settings than the model in {request.model} ({other})" if other else ""


def read_results(folder: Path) -> Results:
    """Return the results of a run.

    Raises:
        ResultsError: There are no usable results, or they have no accuracy.
    """
    results = Results.read(folder / RESULTS)
    if results.accuracy is None:
        raise ResultsError(folder / RESULTS, "it has no accuracy")
    return results


def _version_note(results: Results) -> str:
    then = results.versions.get("cocoamix", __version__)
    return "" if then == __version__ else f"made by cocoamix {then}; this is {__version__}"


# ---------------------------------------------------------------------- settings


def differing(now: Settings, results: Results, request: Request) -> str:
    """Describe which settings of results differ from those of a run; empty if all agree.

    An evaluation takes its training settings from the checkpoint, so they are not compared. What only training reads
    is not compared for a method without training.
    """
    then = flatten(results.config)
    if request.model is not None:
        keys = [key for key in now if not _is_from_model(key)]
    else:
        keys = [key for key in now if request.trains or not _is_training_only(key)]
    return _describe(keys, then, now)


def differing_model(evaluation: Results, folder: Path) -> str:
    """Describe which training settings of an evaluation differ from those of the run in a folder."""
    try:
        now = flatten(Results.read(folder / RESULTS).config)
    except ResultsError:
        return ""  # the training settings are unknown
    keys = [key for key in now if roles.of_training(key) and not _may_differ(key)]
    return _describe(keys, flatten(evaluation.config), now)


def _describe(keys: Sequence[str], then: Settings, now: Settings) -> str:
    """Describe which keys differ. A key that only one side has was added later, so it is not compared."""
    changed = [key for key in keys if key in then and then[key] != now[key]]
    shown = [f"{key} was {_short(then[key])} and is {_short(now[key])}" for key in changed[:_SHOWN]]
    return "; ".join(shown + ["..."] * (len(changed) > _SHOWN))


def _is_from_model(key: str) -> bool:
    """Return whether an evaluation takes a key from the training run or its checkpoint."""
    declared = roles.find(key)
    return declared.role.of_training or declared.from_checkpoint is not FromCheckpoint.NEVER


def _is_training_only(key: str) -> bool:
    """Return whether only training reads a key. Keys of prompts and sessions also affect evaluations."""
    return key.startswith(("OPTIM.", "TRAIN.", "LOSS.", "DATALOADER.TRAIN_X.")) and roles.of_training(key)


def _may_differ(key: str) -> bool:
    """Return whether an evaluation may have its own value of a training key."""
    return key in ("TEST.FINAL_MODEL", "TRAINER.ENLEARN.PROMPTS") or key.endswith(".TEMPLATE")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


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


# Parts of the package that do not affect results.
_NOT_HASHED = (
    *("experiments", "cli.py", "__main__.py", "finished.py"),
    *("parser.py", "plugin.py", "train_command.py"),
)


def _hash_files(files: Sequence[Path], below: Path) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(below)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _retrained(request: Request, stamp: Mapping[str, Any]) -> str:
    """Return that a model which a run used has changed since; empty if none has, or if its hash was not recorded."""
    then = stamp.get("models")
    if not isinstance(then, list) or len(then) != len(request.needs):
        return ""
    changed = [folder for folder, before in zip(request.needs, then, strict=True) if before != hash_model(folder)]
    return f"the model in {changed[0]} was trained again" if changed else ""
