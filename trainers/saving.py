"""Saving, loading and resuming, once for all trainers and the same on every engine.

In a run's folder: `<model>/model.pth.tar-<epoch>` and `<model>/model-best.pth.tar` as CoOp's, and `resume.pth`, one
file with all that a run needs to go on, replaced after every epoch. One file, so that a run with several models that
is killed at any moment never leaves them at different epochs.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, cast

import torch
from dassl.engine import TrainerX
from torch import Tensor, nn
from yacs.config import CfgNode

from cocoamix import checkpoints
from cocoamix.clip import FrozenCLIP
from cocoamix.errors import UserError
from cocoamix.images import ImageItems

from . import protocol

RESUME = "resume.pth"


class SavingTrainer(TrainerX):
    """Overrides Dassl's saving, loading and resuming. What it saves is built by `trainers.base`."""

    cfg: CfgNode
    clip: FrozenCLIP
    scaler: Any | None
    protocol: dict[str, Any]
    seed: int
    trained_epochs = 0  # what the current weights have seen

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
        for name in self.get_model_names():
            schedule = self._scheds[name]
            state = checkpoints.plain_schedule(schedule) if schedule is not None else None
            content = {
                "state_dict": _without_module(self._models[name].state_dict()),
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

    def provenance(self) -> dict[str, Any]:
        """Return what a checkpoint must tell about itself to be used rightly."""
        return {
            "trainer": type(self).__name__,
            "backbone": self.clip.name,
            "weights_sha256": self.clip.weights_hash,
            "classnames": self.classnames,
            "seed": self.seed,
            "protocol": self.protocol,
        }

    def after_epoch(self) -> None:
        self.trained_epochs = self.epoch + 1
        super().after_epoch()
        self._save_resume()

    def _save_resume(self) -> None:
        content = {
            "epoch": self.epoch + 1,
            "models": {name: _trained(model) for name, model in self._models.items()},
            "optimizers": {name: o.state_dict() for name, o in self._optims.items() if o is not None},
            "schedules": {name: checkpoints.plain_schedule(s) for name, s in self._scheds.items() if s is not None},
            "scaler": self.scaler.state_dict() if self.scaler is not None else None,
            # Every epoch seeds all generators from this number, so it restores them.
            "seed": self.seed,
            "best_result": float(self.best_result),
            "settings": protocol.training_settings(self.cfg),
            "protocol": self.protocol,
        }
        checkpoints.save(Path(self.output_dir, RESUME), content)

    # ------------------------------------------------------------------ resuming

    def resume_model_if_exist(self, directory: str) -> int:
        """Go on from `directory` if it holds a run; return the number of epochs already done."""
        path = Path(directory, RESUME)
        if path.is_file():
            return self._resume(path)
        names = self.get_model_names()
        if names and all(Path(directory, name, checkpoints.POINTER).is_file() for name in names):
            return self._resume_from_checkpoints(Path(directory))
        if self.cfg.RESUME:
            raise UserError(f"--resume names {directory}, which holds neither {RESUME} nor checkpoints to go on from.")
        print("No checkpoint found, train from scratch")
        return 0

    def _resume(self, path: Path) -> int:
        state = checkpoints.load(path)
        self._check_settings(path, state)
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
        self.trained_epochs = state["epoch"]
        print(f"Resuming from {path}: {state['epoch']} of {self.max_epoch} epochs are done")
        return int(state["epoch"])

    def _check_settings(self, path: Path, state: dict[str, Any]) -> None:
        """Refuse to go on from a run of other settings: the result would be of neither."""
        now = protocol.training_settings(self.cfg)
        then = state["settings"]
        differing = [key for key in sorted({*now, *then}) if now.get(key) != then.get(key)]
        shown = "; ".join(f"{key} was {then.get(key)!r} and is {now.get(key)!r}" for key in differing[:5])
        if not differing and state["protocol"] != self.protocol:
            shown = "the pictures, their split or the CLIP weights have changed"
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
        paths = [directory / name / (directory / name / checkpoints.POINTER).read_text().strip() for name in names]
        contents = [checkpoints.load(path) for path in paths]
        epochs = {int(content["epoch"]) for content in contents}
        if len(epochs) > 1:
            raise UserError(f"The models in {directory} were saved at different epochs ({sorted(epochs)}).")
        done = epochs.pop()
        for name, content, path in zip(names, contents, paths, strict=True):
            self._load_weights(name, content, path)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # torch expects optimizer steps in between
                for _ in range(done if self._scheds[name] is not None else 0):
                    self._scheds[name].step()
            if content.get("optimizer") and self._optims[name] is not None:
                self._optims[name].load_state_dict(content["optimizer"])
        self.trained_epochs = done
        print(f"Resuming from the checkpoints in {directory}: {done} of {self.max_epoch} epochs are done")
        return done

    # ------------------------------------------------------------------ loading

    def load_model(self, directory: str, epoch: int | None = None) -> None:
        """Load trained weights for evaluation.

        epoch: that checkpoint; -1 the newest; None the best on validation, or the newest where none was chosen.
        """
        if not directory:
            print("No --model-dir is given, so nothing is loaded")
            return
        for name in self.get_model_names():
            path = self._checkpoint_path(Path(directory, name), epoch)
            content = checkpoints.load(path)
            self._load_weights(name, content, path)
            self.trained_epochs = int(content.get("epoch", 0))
            print(f'Loading weights to {name} from "{path}" (epoch = {self.trained_epochs})')

    def _checkpoint_path(self, folder: Path, epoch: int | None) -> Path:
        if not folder.is_dir():
            there = sorted(p.name for p in folder.parent.iterdir()) if folder.parent.is_dir() else []
            raise UserError(
                f"There are no checkpoints in {folder}"
                + (f": {folder.parent} holds {', '.join(there)}." if there else ": the folder does not exist.")
                + " --model-dir is the output folder of a training run of the same trainer."
            )
        best, pointer = folder / checkpoints.BEST, folder / checkpoints.POINTER
        if epoch is not None and epoch >= 0:
            path = folder / checkpoints.epoch_file(epoch)
        elif epoch is None and best.is_file():
            path = best
        elif pointer.is_file():
            path = folder / pointer.read_text().strip()
        else:
            path = best
        if not path.is_file():
            there = sorted(p.name for p in folder.glob("model*"))
            raise UserError(f"There is no {path.name} in {folder}. It holds: {', '.join(there) or 'nothing'}.")
        return path

    def _load_weights(self, name: str, content: dict[str, Any], path: Path) -> None:
        state = content.get("state_dict")
        if not state:
            raise UserError(f"{path} is not a checkpoint of a CoOp-style trainer: it has no state_dict.")
        self._check_origin(name, state, content.get("cocoamix") or {}, path)
        for note in checkpoints.load_into(self._models[name], _without_module(state), str(path)):
            print(f"Note: {note}")

    def _check_origin(self, name: str, state: dict[str, Tensor], origin: dict[str, Any], path: Path) -> None:
        """Refuse a checkpoint of other CLIP weights, or a class-specific context of other classes."""
        told = origin.get("weights_sha256")
        if told and told != self.clip.weights_hash:
            raise UserError(
                f"{path} was trained on {origin['backbone']} with weights {told[:16]}, "
                f"but this run uses {self.clip.name} with weights {self.clip.weights_hash[:16]}."
            )
        model = self._models[name]
        own = dict(model.named_buffers())
        # CoOp's checkpoints name no backbone, but they carry its embedding of the start token ...
        prefix = state.get("token_prefix")
        if not told and prefix is not None and "token_prefix" in own and not _alike(prefix[0], own["token_prefix"][0]):
            raise UserError(f"{path} was trained on other CLIP weights than {self.clip.name} has in this run.")
        # ... and those of the class names.
        if state.get("ctx") is not None and state["ctx"].dim() == 3:
            names = origin.get("classnames")
            suffix = state.get("token_suffix")
            same = names == self.classnames if names else suffix is None or _alike(suffix, own["token_suffix"])
            if not same:
                raise UserError(
                    f"{path} holds class-specific contexts (CSC) of other classes than this run's. "
                    "They belong to their classes and cannot be moved: train on these classes, or with CSC False."
                )


def _alike(one: Tensor, other: Tensor) -> bool:
    """Compare embeddings up to half precision."""
    return one.shape == other.shape and torch.allclose(one.float().cpu(), other.float().cpu(), atol=1e-3, rtol=1e-2)


def _without_module(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix("module."): value for key, value in state.items()}


def _trained(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters alone: buffers are made anew from the class names."""
    return {name: parameter.detach().cpu() for name, parameter in model.named_parameters()}


def output_is_writable(directory: str) -> None:
    """Refuse an output folder that cannot be written before any work is done."""
    try:
        os.makedirs(directory, exist_ok=True)
        probe = Path(directory, ".write-test")
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise UserError(f"The output folder {directory} cannot be written: {error.strerror}.") from error
