"""Saving, loading and resuming, once for all trainers and the same on every engine.

In a run's folder: `<model>/model.pth.tar-<epoch>` and `<model>/model-best.pth.tar` as CoOp's, and `resume.pth`, one
file with all that a run needs to go on, replaced after every epoch. One file, so that a run with several models that
is killed at any moment never leaves them at different epochs.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, cast

import torch
from dassl.engine import TrainerX
from torch import Tensor, nn
from yacs.config import CfgNode

from cocoamix import checkpoints
from cocoamix.clip import FrozenCLIP
from cocoamix.errors import UserError
from cocoamix.files import write_atomically
from cocoamix.images import ImageItems
from cocoamix.registry import plain_name

from . import protocol

RESUME = "resume.pth"
RESUME_KEYS = (
    *("epoch", "models", "optimizers", "schedules", "scaler"),
    *("seed", "best_result", "settings", "protocol", "unreadable"),
)
MODEL_DIR = "--model-dir is the output folder of a training run of the same trainer."


class SavingTrainer(TrainerX):
    """Overrides Dassl's saving, loading and resuming. What it saves is built by `trainers.base`."""

    cfg: CfgNode
    clip: FrozenCLIP
    scaler: Any | None
    protocol: dict[str, Any]
    seed: int
    section: str
    unreadable: dict[str, str]
    trained_epochs = 0  # what the current weights have seen
    trained_classes: list[str]  # and the classes they were trained on
    loaded_from: Mapping[str, Any] = MappingProxyType({})  # what a loaded checkpoint tells of its origin

    @property
    def classnames(self) -> list[str]:
        return list(self.dm.dataset.classnames)

    # ------------------------------------------------------------------ saving

    def save_model(
        self,
        epoch: int,
        directory: str,
        is_best: bool = False,
        val_result: float | None = None,
        model_name: str = "",
    ) -> None:
        """Write every registered model in CoOp's layout."""
        for name in self.saved_models():
            schedule = self._scheds[name]
            state = checkpoints.plain_schedule(schedule) if schedule is not None else None
            content = {
                "state_dict": self._models[name].state_dict(),
                "epoch": epoch + 1,
                "optimizer": self._optims[name].state_dict() if self._optims[name] is not None else None,
                "scheduler": state["own"] if state else None,
                "val_result": None if val_result is None else float(val_result),
                # Beyond CoOp's keys: what a live successor would hold, and what the weights belong to.
                "successor": state["successor"] if state else None,
                "cocoamix": self.provenance(),
            }
            for file in [model_name or checkpoints.epoch_file(epoch + 1)] + ([checkpoints.BEST] if is_best else []):
                path = Path(directory, name, file)
                checkpoints.save(path, content)
                print(f"Checkpoint saved to {path}")
                if file != checkpoints.BEST:
                    checkpoints.point_to(path)

    def saved_models(self) -> list[str]:
        """Return the models that have checkpoints. For methods that train others on the way."""
        return list(self.get_model_names())

    def provenance(self) -> dict[str, Any]:
        """Return what a checkpoint must tell about itself to be used rightly."""
        return {
            "trainer": type(self).__name__,
            "backbone": self.clip.name,
            "weights_sha256": self.clip.weights_hash,
            "classnames": self.classnames,
            "activation": self.clip.activation,
            "seed": self.seed,
            "settings": self.training_settings(),
            "protocol": self.protocol,
        }

    def training_settings(self) -> dict[str, Any]:
        """Return what a resumed run must share with the run that it goes on from."""
        return protocol.training_settings(self.cfg, self.section)

    def after_epoch(self) -> None:
        self.trained_epochs = self.epoch + 1
        self._refuse_non_finite()  # before anything is saved or reported
        super().after_epoch()
        self._save_resume(self.trained_epochs)

    def before_train(self) -> None:
        super().before_train()
        # From the first moment on, so that a run is never taken up from checkpoints that tell only half of its state.
        if self._models:
            self._save_resume(self.trained_epochs)

    def _refuse_non_finite(self) -> None:
        for name, model in self._models.items():
            for key, parameter in model.named_parameters():
                if not torch.isfinite(parameter).all():
                    raise UserError(
                        f"{name}.{key} is not finite after epoch {self.epoch + 1}: training has diverged. Nothing was "
                        f"saved of this epoch. Try a smaller OPTIM.LR (now {self.cfg.OPTIM.LR})."
                    )

    def _save_resume(self, epochs: int) -> None:
        checkpoints.save(Path(self.output_dir, RESUME), self.resume_state(epochs))

    def resume_state(self, epochs: int) -> dict[str, Any]:
        """Return all that a run needs to go on."""
        return {
            "epoch": epochs,
            "models": {name: trained(model) for name, model in self._models.items()},
            "optimizers": {name: o.state_dict() for name, o in self._optims.items() if o is not None},
            "schedules": {name: checkpoints.plain_schedule(s) for name, s in self._scheds.items() if s is not None},
            "scaler": self.scaler.state_dict() if self.scaler is not None else None,
            # Every epoch seeds all generators from this number, so it restores them.
            "seed": self.seed,
            "best_result": float(self.best_result),
            "settings": self.training_settings(),
            "protocol": self.protocol,
            "unreadable": self.unreadable,
        }

    # ------------------------------------------------------------------ resuming

    def resume_model_if_exist(self, directory: str) -> int:
        """Go on from the output folder if it holds a run, else from the folder that --resume names.

        In this order, so that a run that was resumed from elsewhere and is started again goes on from its own state.
        Returns the number of epochs already done.
        """
        folders = dict.fromkeys((Path(self.output_dir), Path(directory)))
        for folder in folders:
            if epochs_in(folder / RESUME) == 0:
                continue  # a run that has done nothing yet: it may start again with any settings
            done = self._resume_from(folder)
            if done is not None:
                self.trained_epochs = done
                print(f"Resuming from {folder}: {done} of {self.max_epoch} epochs are done")
                if folder != Path(self.output_dir):
                    self._take_over(folder, done)
                elif len(folders) > 1:
                    print(f"--resume {directory} is not used: the output folder holds a later state of this run")
                return done
        if self.cfg.RESUME:
            raise UserError(f"--resume names {directory}, which holds neither {RESUME} nor checkpoints to go on from.")
        print("No checkpoint found, train from scratch")
        return 0

    def _resume_from(self, folder: Path) -> int | None:
        if (folder / RESUME).is_file():
            return self._resume(folder / RESUME)
        names = self.get_model_names()
        if names and all((folder / name / checkpoints.POINTER).is_file() for name in names):
            return self._resume_from_checkpoints(folder)
        return None

    def _take_over(self, folder: Path, done: int) -> None:
        """Bring what the rest of the run may need from the folder that it goes on from."""
        for name in self.get_model_names():
            best = folder / name / checkpoints.BEST
            if best.is_file():
                write_atomically(Path(self.output_dir, name, checkpoints.BEST), copier(best))
        if done >= self.max_epoch:
            self.save_model(done - 1, self.output_dir)

    def _best_so_far(self) -> float:
        """The fallback asks for this after a resume; the resume file has already told."""
        return float(self.best_result)

    def _resume(self, path: Path) -> int:
        state = checkpoints.load(path)
        missing = [key for key in RESUME_KEYS if key not in state]
        if missing:
            raise UserError(f"{path} is not a state to resume from: it has no {', '.join(missing)}. Delete it.")
        self._check_settings(path, state["settings"], state["protocol"])
        self.prepare_for(state)
        if set(state["models"]) != set(self._models):
            raise UserError(f"{path} holds the models {', '.join(state['models'])}, not {', '.join(self._models)}.")
        for name, tensors in state["models"].items():
            checkpoints.load_into(self._models[name], tensors, str(path))
        for name, optimizer_state in state["optimizers"].items():
            self._optims[name].load_state_dict(optimizer_state)
        for name, schedule_state in state["schedules"].items():
            checkpoints.restore_schedule(self._scheds[name], schedule_state)
        if self.scaler is not None and state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        self._take_seed(state["seed"])
        self.best_result = state["best_result"]
        self.unreadable.update(state["unreadable"])
        self.take_up(state)
        return int(state["epoch"])

    def prepare_for(self, state: Mapping[str, Any]) -> None:
        """Build what a state has that is not there from the start. For subclasses."""

    def take_up(self, state: Mapping[str, Any]) -> None:
        """Take what a subclass added to `resume_state`."""

    def _check_settings(self, path: Path, then: Mapping[str, Any], told: Mapping[str, Any]) -> None:
        """Refuse to go on from a run of other settings: the result would be of neither."""
        now = self.training_settings()
        then = protocol.brought_up(protocol.that_matter(then), now)
        differing = [key for key in sorted({*now, *then}) if now.get(key) != then.get(key)]
        shown = "; ".join(
            f"{key} was {then[key]!r} and is {now.get(key)!r}"
            if key in then
            else f"{key} is {now[key]!r}, and that run began before there was this key"
            for key in differing[:5]
        )
        if not differing:
            shown = ", ".join(f"{key} has changed" for key in self.protocol if self.protocol[key] != told.get(key))
        if shown:
            raise UserError(
                f"{path} belongs to a run with other settings ({shown}). "
                "Choose another --output-dir, or delete that folder to start anew."
            )

    def _take_seed(self, seed: int) -> None:
        """Let the run and its pictures draw from this seed."""
        self.seed = seed
        for loader in (self.train_loader_x, self.val_loader, self.test_loader):
            if loader is not None:
                cast(ImageItems, loader.dataset).seed = seed

    def _resume_from_checkpoints(self, directory: Path) -> int:
        """Go on from checkpoints of CoOp's layout alone, such as Dassl's own: their schedules are stepped anew."""
        names = self.get_model_names()
        paths = [newest(directory / name) for name in names]
        contents = [checkpoints.load(path) for path in paths]
        epochs = {checkpoints.epochs_of(content) for content in contents}
        if len(epochs) > 1:
            raise UserError(f"The models in {directory} were saved at different epochs ({sorted(epochs)}).")
        done = epochs.pop()
        for name, content, path in zip(names, contents, paths, strict=True):
            origin = self._load_weights(name, content, path)
            if origin:
                self._check_settings(path, origin.get("settings", {}), origin.get("protocol", {}))
                self._take_seed(int(origin.get("seed", self.seed)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # torch expects optimizer steps in between
                for _ in range(self.epochs_of(name, done) if self._scheds[name] is not None else 0):
                    self._scheds[name].step()
            if content.get("optimizer") and self._optims[name] is not None:
                self._optims[name].load_state_dict(content["optimizer"])
            self.take_up_origin(origin, done)
        best = directory / names[0] / checkpoints.BEST
        if best.is_file():
            result = checkpoints.load(best).get("val_result")
            self.best_result = result if isinstance(result, float) else self.best_result
        return done

    def epochs_of(self, name: str, done: int) -> int:
        """Return how many of the epochs that are done trained a model. For methods with stages."""
        return done

    def take_up_origin(self, origin: Mapping[str, Any], done: int) -> None:
        """Take what a subclass added to `provenance`, of a checkpoint that training goes on from."""

    # ------------------------------------------------------------------ loading

    def load_model(self, directory: str, epoch: int | None = None) -> None:
        """Load trained weights for evaluation.

        epoch: that checkpoint; -1 the newest; None the best on validation, or the newest where none was chosen.
        """
        if not directory:
            print("No --model-dir is given, so nothing is loaded")
            return
        for name in self.get_model_names():
            path = checkpoint_path(Path(directory, name), epoch)
            content = checkpoints.load(path)
            self._check_trainer(content, path)
            self.loaded_from = origin = self._load_weights(name, content, path)
            self.trained_classes = list(origin.get("classnames") or self.trained_classes)
            self.follow(origin.get("settings") or {})
            self.trained_epochs = checkpoints.epochs_of(content)
            print(f'Loading weights to {name} from "{path}" (epoch = {self.trained_epochs})')

    def follow(self, settings: Mapping[str, Any]) -> None:
        """Take over settings of the training run that an evaluation must share. For subclasses."""

    def make_room(self, name: str, state: Mapping[str, Tensor]) -> None:
        """Change a model to the sizes of a checkpoint that is about to be loaded. For subclasses."""

    def load_initial(self, name: str, path: str) -> None:
        """Start a model from the checkpoint that MODEL.INIT_WEIGHTS names."""
        self._load_weights(name, checkpoints.load(path), Path(path))
        print(f'Starting {name} from "{path}"')

    def _load_weights(self, name: str, content: dict[str, Any], path: Path) -> dict[str, Any]:
        """Load a checkpoint into a model; return what the checkpoint tells of its origin, if it is ours."""
        state = checkpoints.weights_of(content, path)
        origin = _origin(content)
        self._check_origin(name, state, origin, path)
        self.make_room(name, state)
        for note in checkpoints.load_into(self._models[name], state, str(path), self.dead_keys(state)):
            print(f"Note: {note}")
        return origin

    def dead_keys(self, state: Mapping[str, Tensor]) -> tuple[str, ...]:
        """Return the beginnings of keys that peers' checkpoints hold and nothing here uses."""
        return checkpoints.dead_in_kgcoop(state)

    def _check_trainer(self, content: dict[str, Any], path: Path) -> None:
        """Refuse to file the result of a checkpoint under another trainer's name."""
        now = plain_name(type(self).__name__)
        trainer = plain_name(str(_origin(content).get("trainer", now)))
        if trainer != now:
            raise UserError(
                f"{path} was trained by {trainer}, but this run's trainer is {now}. Use --trainer {trainer}."
            )

    def _check_origin(self, name: str, state: dict[str, Tensor], origin: dict[str, Any], path: Path) -> None:
        """Refuse a checkpoint of other CLIP weights, or a class-specific context of other classes."""
        now = self.provenance()
        for key in ("weights_sha256", "activation"):
            if origin.get(key, now[key]) != now[key]:
                raise UserError(
                    f"{path} was trained on {origin.get('backbone')} with {key} {str(origin[key])[:16]}, "
                    f"but this run uses {self.clip.name} with {now[key][:16]}."
                )
        own = dict(self._models[name].named_buffers())
        # CoOp's checkpoints name no backbone, but they carry its embedding of the start token ...
        prefix, mine = _find(state, "token_prefix"), _find(own, "token_prefix")
        if not origin and prefix is not None and mine is not None and not _alike(prefix[0], mine[0]):
            raise UserError(f"{path} was trained on other CLIP weights than {self.clip.name} has in this run.")
        # ... and those of the class names.
        context, mine = state.get("ctx"), _find(dict(self._models[name].named_parameters()), "ctx")
        if context is not None and mine is not None and context.dim() == 3 and context.shape[1:] == mine.shape[-2:]:
            names, suffix = origin.get("classnames"), state.get("token_suffix")
            same = names == self.classnames if names else suffix is None or _alike(suffix, own["token_suffix"])
            if not same:
                raise UserError(
                    f"{path} holds class-specific contexts (CSC) of other classes than this run's. "
                    "They belong to their classes and cannot be moved: train on these classes, or with CSC False."
                )


def _origin(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint tells of its origin; nothing if it is not ours."""
    told = content.get("cocoamix")
    return told if isinstance(told, dict) else {}


def newest(folder: Path) -> Path:
    """Return the checkpoint that a folder's pointer names."""
    pointer = folder / checkpoints.POINTER
    try:
        name = pointer.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        name = ""
    if not name:
        raise UserError(f"{pointer} should name a checkpoint of its folder, but it does not.")
    return folder / name


def checkpoint_path(folder: Path, epoch: int | None, way_out: str = MODEL_DIR) -> Path:
    """Return the file to load from a model's folder: see `SavingTrainer.load_model`.

    way_out: what is said where there is no such folder.
    """
    if not folder.is_dir():
        there = sorted(p.name for p in folder.parent.iterdir()) if folder.parent.is_dir() else []
        raise UserError(
            f"There are no checkpoints in {folder}"
            + (f": {folder.parent} holds {', '.join(there)}." if there else ": the folder does not exist.")
            + f" {way_out}"
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


def seed_of_run(folder: str) -> int | None:
    """Return the seed that an unfinished run in `folder` drew, if there is one."""
    path = Path(folder, RESUME)
    seed = checkpoints.load(path).get("seed") if epochs_in(path) else None
    return seed if isinstance(seed, int) else None


def epochs_in(path: Path) -> int | None:
    """Return how many epochs a resume file has seen; None if there is no such file."""
    return checkpoints.epochs_of(checkpoints.load(path)) if path.is_file() else None


def copier(source: Path) -> Callable[[IO[bytes]], object]:
    """Return what writes a copy of a file, for `write_atomically`."""
    return lambda file: file.write(source.read_bytes())


def _find(tensors: Mapping[str, Tensor], name: str) -> Tensor | None:
    """Return the tensor of a name, wherever in the model a peer registered it."""
    return next((tensor for key, tensor in tensors.items() if key.rsplit(".", 1)[-1] == name), None)


def _alike(one: Tensor, other: Tensor) -> bool:
    """Compare embeddings up to half precision."""
    return one.shape == other.shape and torch.allclose(one.float().cpu(), other.float().cpu(), atol=1e-3, rtol=1e-2)


def trained(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters alone: buffers are made anew from the class names."""
    return {name: parameter.detach().cpu() for name, parameter in model.named_parameters()}


def output_is_writable(directory: str) -> None:
    """Refuse an output folder that cannot be written before any work is done."""
    try:
        os.makedirs(directory, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise UserError(f"The output folder {directory} cannot be written: {error.strerror}.") from error
