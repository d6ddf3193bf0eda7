"""The training loop, in hooks that a method overrides.

A method derives from `TrainerX` and provides `build_model`, which ends with `register_model`, and
`forward_backward`, which takes a batch through one step and returns what to log.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
from dassl.data import DataManager
from dassl.evaluation import build_evaluator
from dassl.utils import (
    AverageMeter,
    MetricMeter,
    MissingFileError,
    NonFiniteLossError,
    check_availability,
    load_checkpoint,
    resume_from_checkpoint,
    save_checkpoint,
    tolist_if_not,
)
from yacs.config import CfgNode

from cocoamix.errors import UserError
from cocoamix.io.progress import progress

from .writer import open_writer

BEST_MODEL = "model-best.pth.tar"


class TrainerBase:
    """Named models with their optimizers and schedulers, and the skeleton of the loop."""

    def __init__(self) -> None:
        self._models: OrderedDict[str, Any] = OrderedDict()
        self._optims: OrderedDict[str, Any] = OrderedDict()
        self._scheds: OrderedDict[str, Any] = OrderedDict()
        self._writer: Any = None
        self._writer_tried = False
        self.start_epoch = self.epoch = self.max_epoch = 0
        self.batch_idx = self.num_batches = 0

    # Models

    def register_model(self, name: str = "model", model: Any = None, optim: Any = None, sched: Any = None) -> None:
        """Have `model` trained, saved and loaded under `name`, which is also its folder's name."""
        if "_models" not in self.__dict__:
            raise AttributeError("call super().__init__() before register_model()")
        if name in self._models:
            raise ValueError(f"a model named {name!r} is already registered")
        self._models[name] = model
        self._optims[name] = optim
        self._scheds[name] = sched

    def get_model_names(self, names: str | list[str] | None = None) -> list[str]:
        """Return all registered names, or `names` once it is sure that they are registered."""
        registered = list(self._models)
        if names is None:
            return registered
        wanted = tolist_if_not(names)
        for name in wanted:
            check_availability(name, registered)
        return wanted

    def save_model(
        self, epoch: int, directory: str, is_best: bool = False, val_result: float | None = None, model_name: str = ""
    ) -> None:
        """Save every model after `epoch` (counted from 0; files count from 1)."""
        for name in self.get_model_names():
            optim, sched = self._optims[name], self._scheds[name]
            state = {
                "state_dict": self._models[name].state_dict(),
                "epoch": epoch + 1,
                "optimizer": None if optim is None else optim.state_dict(),
                "scheduler": None if sched is None else sched.state_dict(),
                "val_result": val_result,
            }
            save_checkpoint(state, os.path.join(directory, name), is_best=is_best, model_name=model_name)

    def resume_model_if_exist(self, directory: str) -> int:
        """Restore every model from `directory` if all are there. Return the epoch to start with."""
        folders = {name: os.path.join(directory, name) for name in self.get_model_names()}
        if not folders or not all(os.path.isfile(os.path.join(folder, "checkpoint")) for folder in folders.values()):
            print("No checkpoint to resume from: training starts from scratch")
            return 0
        epochs = {
            name: resume_from_checkpoint(folder, self._models[name], self._optims[name], self._scheds[name])
            for name, folder in folders.items()
        }
        if len(set(epochs.values())) > 1:
            raise UserError(f"The models in {directory} were saved after different epochs: {epochs}. Start afresh.")
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

    def set_model_mode(self, mode: str = "train", names: str | list[str] | None = None) -> None:
        """Put models in train mode, or in eval mode (also called test)."""
        if mode not in ("train", "test", "eval"):
            raise KeyError(f"mode must be train, test or eval, not {mode!r}")
        for name in self.get_model_names(names):
            self._models[name].train(mode == "train")

    # Steps

    def model_zero_grad(self, names: str | list[str] | None = None) -> None:
        for name in self.get_model_names(names):
            if self._optims[name] is not None:
                self._optims[name].zero_grad()

    def model_backward(self, loss: torch.Tensor) -> None:
        self.detect_anomaly(loss)
        loss.backward()

    def model_update(self, names: str | list[str] | None = None) -> None:
        for name in self.get_model_names(names):
            if self._optims[name] is not None:
                self._optims[name].step()

    def model_backward_and_update(self, loss: torch.Tensor, names: str | list[str] | None = None) -> None:
        self.model_zero_grad(names)
        self.model_backward(loss)
        self.model_update(names)

    def update_lr(self, names: str | list[str] | None = None) -> None:
        """Step the schedulers; methods call it after an epoch's last batch."""
        for name in self.get_model_names(names):
            if self._scheds[name] is not None:
                self._scheds[name].step()

    def detect_anomaly(self, loss: torch.Tensor) -> None:
        if not torch.isfinite(loss).all():
            raise NonFiniteLossError(
                f"The loss is infinite or not a number in epoch {self.epoch + 1}, batch {self.batch_idx + 1}. "
                "Try a smaller OPTIM.LR, or fp32 instead of half precision."
            )

    # Scalars

    def init_writer(self, log_dir: str) -> None:
        if self._writer is None and not self._writer_tried:
            self._writer = open_writer(log_dir)
            self._writer_tried = self._writer is None

    def close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def write_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
        if self._writer is not None:
            self._writer.add_scalar(tag, scalar_value, global_step)

    # The loop

    def train(self, start_epoch: int, max_epoch: int) -> None:
        """Run the epochs. `before_train` may change `start_epoch` when it resumes."""
        self.start_epoch, self.max_epoch = start_epoch, max_epoch
        self.before_train()
        for epoch in range(self.start_epoch, self.max_epoch):
            self.epoch = epoch
            self.before_epoch()
            self.run_epoch()
            self.after_epoch()
        self.after_train()

    def before_train(self) -> None:
        """For subclasses."""

    def after_train(self) -> None:
        """For subclasses."""

    def before_epoch(self) -> None:
        """For subclasses."""

    def after_epoch(self) -> None:
        """For subclasses."""

    def run_epoch(self) -> None:
        raise NotImplementedError

    def test(self, split: str | None = None) -> float:
        raise NotImplementedError

    def parse_batch_train(self, batch: Any) -> Any:
        raise NotImplementedError

    def parse_batch_test(self, batch: Any) -> Any:
        raise NotImplementedError

    def forward_backward(self, batch: Any) -> Mapping[str, Any] | None:
        raise NotImplementedError

    def model_inference(self, input: Any) -> torch.Tensor:
        raise NotImplementedError


class SimpleTrainer(TrainerBase):
    """A trainer with a dataset, an evaluator, checkpoints and a final test."""

    model: Any  # set by build_model

    def __init__(self, cfg: CfgNode) -> None:
        super().__init__()
        self.check_cfg(cfg)
        check_availability(cfg.TEST.FINAL_MODEL, ["last_step", "best_val"], "TEST.FINAL_MODEL")
        self.device = torch.device("cuda" if torch.cuda.is_available() and cfg.USE_CUDA else "cpu")
        self.cfg = cfg
        self.max_epoch = cfg.OPTIM.MAX_EPOCH
        self.output_dir = cfg.OUTPUT_DIR
        self.time_start = time.time()
        self.build_data_loader()
        self.build_model()
        self.evaluator = build_evaluator(cfg, lab2cname=self.lab2cname)
        self.best_result = float("-inf")

    def check_cfg(self, cfg: CfgNode) -> None:
        """Refuse a config that this method cannot run. Nothing is built yet."""

    def build_data_loader(self) -> None:
        """Set the loaders and what is known of the classes. An override sets the same attributes."""
        self.dm = DataManager(self.cfg)
        self.train_loader_x = self.dm.train_loader_x
        self.train_loader_u = self.dm.train_loader_u
        self.val_loader = self.dm.val_loader
        self.test_loader = self.dm.test_loader
        self.num_classes = self.dm.num_classes
        self.num_source_domains = self.dm.num_source_domains
        self.lab2cname = self.dm.lab2cname

    def build_model(self) -> None:
        raise NotImplementedError(
            f"{type(self).__name__} has no build_model(). There are no backbones here: a trainer builds its own "
            "model, sets self.model and calls self.register_model(name, model, optim, sched)."
        )

    def train(self) -> None:  # type: ignore[override]
        super().train(self.start_epoch, self.max_epoch)

    def before_train(self) -> None:
        self.start_epoch = self.resume_model_if_exist(self.cfg.RESUME or self.output_dir)
        if self.start_epoch > 0 and self.cfg.TEST.FINAL_MODEL == "best_val":
            self.best_result = self._best_so_far()
        self.init_writer(os.path.join(self.output_dir, "tensorboard"))
        self.time_start = time.time()

    def _best_so_far(self) -> float:
        """The validation result of the best model in OUTPUT_DIR, lest a worse one replace it after resuming."""
        path = os.path.join(self.output_dir, self.get_model_names()[0], BEST_MODEL)
        result = load_checkpoint(path).get("val_result") if os.path.isfile(path) else None
        return float("-inf") if result is None else result

    def after_train(self) -> None:
        print("Finish training")
        if not self.cfg.TEST.NO_TEST:
            if self.cfg.TEST.FINAL_MODEL == "best_val":
                print("Testing the model with the best validation result")
                self.load_model(self.output_dir)
            else:
                print("Testing the model of the last epoch")
            self.test()
        print(f"Elapsed: {timedelta(seconds=round(time.time() - self.time_start))}")
        self.close_writer()

    def after_epoch(self) -> None:
        """Validate if the best model is wanted; save a checkpoint when one is due."""
        done, every = self.epoch + 1, self.cfg.TRAIN.CHECKPOINT_FREQ
        if self.cfg.TEST.FINAL_MODEL == "best_val" and not self.cfg.TEST.NO_TEST:
            result = self.test(split="val")
            if result > self.best_result:
                self.best_result = result
                self.save_model(self.epoch, self.output_dir, val_result=result, model_name=BEST_MODEL)
        if done == self.max_epoch or (every > 0 and done % every == 0):
            self.save_model(self.epoch, self.output_dir)

    @torch.no_grad()
    def test(self, split: str | None = None) -> float:
        """Evaluate on `split` (TEST.SPLIT unless given) and return the first result, the accuracy."""
        split = split or self.cfg.TEST.SPLIT
        check_availability(split, ["test", "val"], "TEST.SPLIT")
        loader = self.val_loader if split == "val" else self.test_loader
        if loader is None:
            print("There is no validation set: the test set stands in for it")
            split, loader = "test", self.test_loader
        self.set_model_mode("eval")
        self.evaluator.reset()
        print(f"Evaluating on the {split} set")
        for batch in progress(loader, len(loader), "evaluating"):
            input, label = self.parse_batch_test(batch)
            self.evaluator.process(self.model_inference(input), label)
        results = self.evaluator.evaluate()
        for name, value in results.items():
            self.write_scalar(f"{split}/{name}", value, self.epoch)
        return next(iter(results.values()))

    def model_inference(self, input: Any) -> torch.Tensor:
        return self.model(input)

    def parse_batch_test(self, batch: Mapping[str, Any]) -> Any:
        return batch["img"].to(self.device), batch["label"].to(self.device)

    def get_current_lr(self, names: str | list[str] | None = None) -> float:
        """Return the learning rate of the first model's first parameter group."""
        return self._optims[self.get_model_names(names)[0]].param_groups[0]["lr"]


class TrainerX(SimpleTrainer):
    """Training on labelled images."""

    def run_epoch(self) -> None:
        self.set_model_mode("train")
        losses, batch_time, data_time = MetricMeter(), AverageMeter(), AverageMeter()
        self.num_batches = len(self.train_loader_x)
        every = self.cfg.TRAIN.PRINT_FREQ
        end = time.time()
        for batch_idx, batch in enumerate(self.train_loader_x):
            self.batch_idx = batch_idx
            data_time.update(time.time() - end)
            losses.update(self.forward_backward(batch))
            batch_time.update(time.time() - end)
            if self.num_batches < every or (every > 0 and (self.batch_idx + 1) % every == 0):
                self._print_line(losses, batch_time, data_time)
            step = self.epoch * self.num_batches + self.batch_idx
            for name, meter in losses.meters.items():
                self.write_scalar(f"train/{name}", meter.avg, step)
            self.write_scalar("train/lr", self.get_current_lr(), step)
            end = time.time()

    def _print_line(self, losses: MetricMeter, batch_time: AverageMeter, data_time: AverageMeter) -> None:
        """Print the line that log parsers read."""
        left = (self.max_epoch - self.epoch) * self.num_batches - self.batch_idx - 1
        parts = [
            f"epoch [{self.epoch + 1}/{self.max_epoch}]",
            f"batch [{self.batch_idx + 1}/{self.num_batches}]",
            f"time {batch_time.val:.3f} ({batch_time.avg:.3f})",
            f"data {data_time.val:.3f} ({data_time.avg:.3f})",
            str(losses),
            f"lr {self.get_current_lr():.4e}",
            f"eta {timedelta(seconds=int(batch_time.avg * left))}",
        ]
        print(" ".join(part for part in parts if part))

    def parse_batch_train(self, batch: Mapping[str, Any]) -> Any:
        """Return images, labels and domains on the trainer's device; methods often override it without domains."""
        return tuple(batch[key].to(self.device) for key in ("img", "label", "domain"))
