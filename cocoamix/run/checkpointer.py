"""Saves, resumes and loads the models of a run.

A run's output folder has `<model>/model.pth.tar-<epoch>` and `<model>/model-best.pth.tar`, as in CoOp, and
`resume.pth`, which holds everything that a resume needs and is replaced after every epoch. It is a single file, so that
a killed run with several models never leaves them at different epochs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, nn

from cocoamix.errors import UserError, brief, printable
from cocoamix.io import checkpoints
from cocoamix.io.files import write_atomically
from cocoamix.io.screen import detail
from cocoamix.io.texts import read_bytes

from .optimisation import Optimisation

RESUME = "resume.pth"
_KEYS = (
    *("epoch", "models", "optimizers", "schedules", "scaler"),
    *("seed", "best_result", "settings", "protocol", "unreadable", "course"),
)
_KINDS: dict[str, tuple[type, ...]] = {
    "epoch": (int,),
    "seed": (int,),
    "best_result": (int, float),
    **dict.fromkeys(("models", "optimizers", "schedules", "settings", "protocol", "unreadable"), (dict,)),
}
MODEL_DIR = "--model-dir is the output folder of a training run of the same trainer."


class Checkpointer:
    """Reads and writes the files of the parts of a trainer's model.

    Args:
        models: The parts of the model.
        optimisation: Their optimizers and schedules.
    """

    def __init__(self, models: nn.ModuleDict, optimisation: Optimisation) -> None:
        self.models = models
        self.optimizers, self.schedules = optimisation.optimizers, optimisation.schedules

    # ------------------------------------------------------------------ saving

    def save(
        self,
        directory: str,
        names: Iterable[str],
        epochs: int,
        origin: Mapping[str, Any],
        val_result: float | None = None,
        is_best: bool = False,
        file: str = "",
    ) -> None:
        """Write the named models in CoOp's layout.

        Args:
            directory: Output folder of the run.
            names: Names of the models.
            epochs: Number of epochs done.
            origin: Metadata of the checkpoints.
            val_result: Validation result, if there is one.
            is_best: Whether to write the models as the best ones as well.
            file: Name of the files; by default that of the epoch.
        """
        for name in names:
            schedule, optimizer = self.schedules.get(name), self.optimizers.get(name)
            state = checkpoints.plain_schedule(schedule) if schedule is not None else None
            content = {
                "state_dict": self.models[name].state_dict(),
                "epoch": epochs,
                "optimizer": optimizer.state_dict() if optimizer is not None else None,
                "scheduler": state["own"] if state else None,
                "val_result": None if val_result is None else float(val_result),
                # Not in CoOp: the state of the schedule after a warm-up, and the origin of the weights.
                "successor": state["successor"] if state else None,
                "cocoamix": dict(origin),
            }
            for one in [file or checkpoints.epoch_file(epochs)] + ([checkpoints.BEST] if is_best else []):
                path = Path(directory, name, one)
                checkpoints.save(path, content)
                detail(f"Checkpoint saved to {path}")
                if one != checkpoints.BEST:
                    checkpoints.point_to(path)

    def refuse_non_finite(self, epochs: int, rate: float) -> None:
        """Raise a UserError if a parameter is not finite."""
        for name, model in self.models.items():
            for key, parameter in model.named_parameters():
                if not torch.isfinite(parameter).all():
                    raise UserError(
                        f"{name}.{key} is not finite after epoch {epochs}: training has diverged. Nothing of "
                        f"this epoch was saved. Try a smaller OPTIM.LR (now {rate})."
                    )

    def state(self) -> dict[str, Any]:
        """Return the parameters, optimizers and schedules of all models."""
        return {
            "models": {name: parameters_of(model) for name, model in self.models.items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "schedules": {name: checkpoints.plain_schedule(schedule) for name, schedule in self.schedules.items()},
        }

    # ------------------------------------------------------------------ resuming

    def restore(self, state: Mapping[str, Any], path: Path) -> None:
        """Restore what `state` returned. `path` is the file that it was read from, for messages."""
        for key in ("optimizers", "schedules"):
            if not same_kinds(state[key], self.state()[key]):
                raise damaged(path, f"its {key} do not match this run")
        if set(state["models"]) != set(self.models):
            raise UserError(f"{path} holds the models {', '.join(state['models'])}, not {', '.join(self.models)}.")
        for name, tensors in state["models"].items():
            checkpoints.load_into(self.models[name], tensors, str(path))
        for name, optimizer_state in state["optimizers"].items():
            self.optimizers[name].load_state_dict(optimizer_state)
        for name, schedule_state in state["schedules"].items():
            checkpoints.restore_schedule(self.schedules[name], schedule_state)

    def can_resume(self, folder: Path) -> bool:
        """Return whether a folder without a resume file has checkpoints of every model to resume from."""
        return bool(self.models) and all((folder / name / checkpoints.POINTER).is_file() for name in self.models)

    def newest_files(self, folder: Path) -> tuple[int, dict[str, tuple[Path, dict[str, Any]]]]:
        """Return the epoch of the newest checkpoints in a folder, and the path and content of each."""
        paths = {name: newest(folder / name) for name in self.models}
        found = {name: (path, checkpoints.load(path)) for name, path in paths.items()}
        epochs = {checkpoints.epochs_of(content) for _, content in found.values()}
        if len(epochs) > 1:
            raise UserError(f"The models in {folder} were saved at different epochs ({sorted(epochs)}).")
        return epochs.pop(), found

    def step_schedule(self, name: str, epochs: int) -> None:
        """Advance a schedule by some epochs, for checkpoints such as Dassl's that do not have its state."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch expects optimizer steps in between
            for _ in range(epochs if name in self.schedules else 0):
                self.schedules[name].step()

    def copy_best(self, source: Path, target: Path) -> None:
        """Copy the best checkpoints from the folder that a run resumes from."""
        for name in self.models:
            best = source / name / checkpoints.BEST
            if best.is_file():
                write_atomically(target / name / checkpoints.BEST, copier(best))

    def best_result(self, folder: Path) -> float | None:
        """Return the validation result of the best checkpoint in a folder, if there is one."""
        best = folder / next(iter(self.models)) / checkpoints.BEST
        result = checkpoints.load(best).get("val_result") if best.is_file() else None
        return result if isinstance(result, float) else None


def read_state(path: Path) -> dict[str, Any]:
    """Read a resume file and check that it is complete."""
    state = checkpoints.load(path)
    missing = [key for key in _KEYS if key not in state]
    if missing:
        raise UserError(f"{path} is not a resume file: it has no {', '.join(missing)}. Delete it.")
    for key, kinds in _KINDS.items():
        if type(state[key]) not in kinds:
            raise damaged(path, f"its {key} is {brief(state[key])}")
    if state["epoch"] < 0 or not all(map(is_state, state["models"].values())):
        raise damaged(path, "its epoch or its models are invalid")
    return state


def damaged(path: Path, why: str) -> UserError:
    """Return the error for a damaged resume file."""
    return UserError(f"{path} is not a resume file: {why}. Restore it, or delete it to start again.")


def is_state(value: object) -> bool:
    """Return whether a value is a mapping of names to tensors."""
    if not isinstance(value, Mapping) or not value:
        return False
    return all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in value.items())


def same_kinds(one: Any, other: Any) -> bool:
    """Return whether the values under the keys that two states share are of the same kinds."""
    if isinstance(other, Mapping):
        return isinstance(one, Mapping) and all(same_kinds(one[key], other[key]) for key in other if key in one)
    if isinstance(other, (list, tuple)):
        fits = isinstance(one, (list, tuple)) and len(one) == len(other)
        return fits and all(map(same_kinds, one, other))
    if isinstance(other, (int, float)) and not isinstance(other, bool):
        return isinstance(one, (int, float)) and not isinstance(one, bool) and -1e300 < one < 1e300
    return other is None or one is None or isinstance(one, type(other))


def parameters_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters of a model by name, without its buffers, which derive from the class names."""
    return {name: parameter.detach().cpu() for name, parameter in model.named_parameters()}


def newest(folder: Path) -> Path:
    """Return the checkpoint that the pointer file of a folder names."""
    pointer = folder / checkpoints.POINTER
    name = read_bytes(pointer).decode("utf-8", "surrogateescape").strip()
    if not name or printable(name) != name or len(name) > 255 or name != Path(name).name:
        raise UserError(f"{pointer} should name a checkpoint in its folder, but does not.")
    return folder / name


def checkpoint_path(folder: Path, epoch: int | None, advice: str = MODEL_DIR) -> Path:
    """Return the file to load from a model's folder.

    Args:
        folder: Folder of the model.
        epoch: The checkpoint's epoch; -1 for the newest; None for the best on validation, else the newest.
        advice: Last sentence of the message if the folder does not exist.
    """
    if not folder.is_dir():
        there = sorted(p.name for p in folder.parent.iterdir()) if folder.parent.is_dir() else []
        raise UserError(
            f"There are no checkpoints in {folder}"
            + (f": {folder.parent} holds {', '.join(there)}." if there else ": the folder does not exist.")
            + f" {advice}"
        )
    path = folder / checkpoints.BEST
    if epoch is not None and epoch >= 0:
        path = folder / checkpoints.epoch_file(epoch)
    elif (epoch is not None or not path.is_file()) and (folder / checkpoints.POINTER).is_file():
        path = newest(folder)
    if not path.is_file():
        there = sorted(p.name for p in folder.glob("model*"))
        raise UserError(f"There is no {path.name} in {folder}. It holds: {', '.join(there) or 'nothing'}.")
    return path


def epochs_in(path: Path) -> int | None:
    """Return how many epochs are done according to a resume file; None if there is no file."""
    return checkpoints.epochs_of(checkpoints.load(path)) if path.is_file() else None


def copier(source: Path) -> Callable[[IO[bytes]], object]:
    """Return a function that writes a copy of a file, for `write_atomically`."""
    return lambda file: file.write(source.read_bytes())
