"""The models of a trainer: their optimizers, schedules, files and steps."""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Any

import torch
from dassl.utils import (
    MissingFileError,
    NonFiniteLossError,
    check_availability,
    load_checkpoint,
    resume_from_checkpoint,
    save_checkpoint,
)

from cocoamix.errors import UserError

BEST_MODEL = "model-best.pth.tar"
Names = str | list[str] | None  # None: all models


class Models:
    """The part of a trainer that manages its models. A model's name is also the name of its folder."""

    _models: OrderedDict[str, Any]
    _optims: OrderedDict[str, Any]
    _scheds: OrderedDict[str, Any]
    epoch = batch_idx = 0

    def __init__(self) -> None:
        self._models, self._optims, self._scheds = OrderedDict(), OrderedDict(), OrderedDict()

    def register_model(self, name: str = "model", model: Any = None, optim: Any = None, sched: Any = None) -> None:
        """Register `model` to be trained, saved and loaded under `name`."""
        if "_models" not in self.__dict__:
            raise AttributeError("call super().__init__() before register_model()")
        if name in self._models:
            raise ValueError(f"a model named {name!r} is already registered")
        for table, part in ((self._models, model), (self._optims, optim), (self._scheds, sched)):
            table[name] = part

    def get_model_names(self, names: Names = None) -> list[str]:
        """Return all registered names, or check `names` and return them."""
        wanted = list(self._models) if names is None else [names] if isinstance(names, str) else names
        for name in wanted:
            check_availability(name, list(self._models))
        return wanted

    def set_model_mode(self, mode: str = "train", names: Names = None) -> None:
        """Put models in train mode, or in eval mode (also called test)."""
        if mode not in ("train", "test", "eval"):
            raise KeyError(f"mode must be train, test or eval, not {mode!r}")
        for name in self.get_model_names(names):
            self._models[name].train(mode == "train")

    # Files

    def save_model(self, epoch: int, directory: str, *, val_result: float | None = None, model_name: str = "") -> None:
        """Save every model after `epoch`, which is counted from 0; file names count from 1."""
        for name in self.get_model_names():
            optim, sched = self._optims[name], self._scheds[name]
            state = {
                "state_dict": self._models[name].state_dict(),
                "epoch": epoch + 1,
                "optimizer": None if optim is None else optim.state_dict(),
                "scheduler": None if sched is None else sched.state_dict(),
                "val_result": val_result,
            }
            save_checkpoint(state, os.path.join(directory, name), model_name=model_name)

    def resume_model_if_exist(self, directory: str) -> int:
        """Restore every model from `directory` if all are present. Return the first epoch to train."""
        folders = {name: os.path.join(directory, name) for name in self.get_model_names()}
        if not folders or not all(os.path.isfile(os.path.join(folder, "checkpoint")) for folder in folders.values()):
            print("No checkpoint to resume from: training starts from scratch")
            return 0
        epochs = {
            name: resume_from_checkpoint(folder, self._models[name], self._optims[name], self._scheds[name])
            for name, folder in folders.items()
        }
        if len(set(epochs.values())) > 1:
            raise UserError(f"The models in {directory} were saved after different epochs: {epochs}. Start again.")
        return next(iter(epochs.values()))

    def load_model(self, directory: str, epoch: int | None = None) -> None:
        """Load every model's weights: the best ones, or those saved after `epoch`."""
        if not directory:
            print("No model directory was given: no weights are loaded")
            return
        file = BEST_MODEL if epoch is None else f"model.pth.tar-{epoch}"
        for name in self.get_model_names():
            path = os.path.join(directory, name, file)
            if not os.path.exists(path):
                raise MissingFileError(f"There is no model {path}. Check the directory and the epoch.")
            checkpoint = load_checkpoint(path)
            self._models[name].load_state_dict(checkpoint["state_dict"])
            print(f"Loaded {name} from {path} (epoch {checkpoint['epoch']}, val {checkpoint.get('val_result')})")

    # Steps

    def model_zero_grad(self, names: Names = None) -> None:
        """Clear the gradients of the named models."""
        for optimizer in self._present(self._optims, names):
            optimizer.zero_grad()

    def model_backward_and_update(self, loss: torch.Tensor, names: Names = None) -> None:
        """Take one step of the named models' optimizers."""
        self.model_zero_grad(names)
        self.detect_anomaly(loss)
        loss.backward()
        for optimizer in self._present(self._optims, names):
            optimizer.step()

    def update_lr(self, names: Names = None) -> None:
        """Step the schedules; methods call it after an epoch's last batch."""
        for schedule in self._present(self._scheds, names):
            schedule.step()

    def get_current_lr(self, names: Names = None) -> float:
        """Return the learning rate of the first model's first parameter group."""
        return self._optims[self.get_model_names(names)[0]].param_groups[0]["lr"]

    def detect_anomaly(self, loss: torch.Tensor) -> None:
        """Raise NonFiniteLossError if the loss is infinite or not a number."""
        if not torch.isfinite(loss).all():
            raise NonFiniteLossError(
                f"The loss is infinite or not a number in epoch {self.epoch + 1}, batch {self.batch_idx + 1}. "
                "Try a smaller OPTIM.LR, or fp32 instead of half precision."
            )

    def _present(self, table: dict[str, Any], names: Names) -> list[Any]:
        """Return the entries of the named models in a table; a frozen model has none."""
        return [table[name] for name in self.get_model_names(names) if table[name] is not None]
