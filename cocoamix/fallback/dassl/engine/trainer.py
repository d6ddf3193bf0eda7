"""The training loop, with hooks that a method overrides.

A method derives from `TrainerX` and defines `build_model`, which ends with `register_model`, and `forward_backward`,
which takes one step on a batch and returns what to log.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
from dassl.config import refuse_unsupported
from dassl.data import DataManager
from dassl.evaluation import build_evaluator
from dassl.utils import AverageMeter, MetricMeter, check_availability, load_checkpoint
from yacs.config import CfgNode

from cocoamix.io.progress import progress

from .models import BEST_MODEL, Models
from .writer import open_writer


class TrainerX(Models):
    """A run on labelled images: a dataset, an evaluator, epochs of steps, checkpoints and a final test."""

    model: Any  # set by build_model
    start_epoch = num_batches = 0

    def __init__(self, cfg: CfgNode) -> None:
        super().__init__()
        self._writer: Any = None
        self._writer_tried = False
        self.check_cfg(cfg)
        refuse_unsupported(cfg)  # before anything is read or built
        check_availability(cfg.TEST.FINAL_MODEL, ["last_step", "best_val"], "TEST.FINAL_MODEL")
        self.cfg, self.output_dir = cfg, cfg.OUTPUT_DIR
        self.device = torch.device("cuda" if torch.cuda.is_available() and cfg.USE_CUDA else "cpu")
        self.max_epoch = cfg.OPTIM.MAX_EPOCH
        self.time_start = time.time()
        self.build_data_loader()
        self.build_model()
        self.evaluator = build_evaluator(cfg, lab2cname=self.lab2cname)
        self.best_result = float("-inf")

    # Hooks for methods

    def check_cfg(self, cfg: CfgNode) -> None:
        """Check the configuration before anything is built."""

    def build_data_loader(self) -> None:
        """Set the loaders and the attributes of the dataset. An override must set the same attributes."""
        manager = DataManager(self.cfg)
        self.dm, self.lab2cname = manager, manager.lab2cname
        self.num_classes, self.num_source_domains = manager.num_classes, manager.num_source_domains
        self.train_loader_x, self.train_loader_u = manager.train_loader_x, manager.train_loader_u
        self.val_loader, self.test_loader = manager.val_loader, manager.test_loader

    def build_model(self) -> None:
        """Build and register the models of the method."""
        raise NotImplementedError(
            f"{type(self).__name__} has no build_model(). There are no backbones here: a trainer builds its own "
            "model, sets self.model and calls self.register_model(name, model, optim, sched)."
        )

    def forward_backward(self, batch: Any) -> Mapping[str, Any] | None:
        """Take one training step and return the values to log."""
        raise NotImplementedError(f"{type(self).__name__} has no forward_backward(), which takes one training step.")

    def model_inference(self, input: Any) -> torch.Tensor:
        """Return the logits of a batch."""
        return self.model(input)

    def parse_batch_train(self, batch: Mapping[str, Any]) -> Any:
        """Return images, labels and domains on the trainer's device; methods often override it without domains."""
        return tuple(batch[key].to(self.device) for key in ("img", "label", "domain"))

    def parse_batch_test(self, batch: Mapping[str, Any]) -> Any:
        """Return images and labels on the trainer's device."""
        return batch["img"].to(self.device), batch["label"].to(self.device)

    def before_epoch(self) -> None:
        """Prepare an epoch."""

    # The loop

    def train(self) -> None:
        """Run the epochs. `before_train` may change `start_epoch` when it resumes."""
        self.before_train()
        for epoch in range(self.start_epoch, self.max_epoch):
            self.epoch = epoch
            for part in (self.before_epoch, self.run_epoch, self.after_epoch):
                part()
        self.after_train()

    def before_train(self) -> None:
        """Resume if there is something to resume, and open the TensorBoard writer."""
        self.start_epoch = self.resume_model_if_exist(self.cfg.RESUME or self.output_dir)
        if self.start_epoch > 0 and self.cfg.TEST.FINAL_MODEL == "best_val":
            self.best_result = self._best_so_far()
        self.init_writer(os.path.join(self.output_dir, "tensorboard"))
        self.time_start = time.time()

    def _best_so_far(self) -> float:
        """Return the validation result of the best model in OUTPUT_DIR, so that only a better one replaces it."""
        path = os.path.join(self.output_dir, self.get_model_names()[0], BEST_MODEL)
        result = load_checkpoint(path).get("val_result") if os.path.isfile(path) else None
        return float("-inf") if result is None else result

    def run_epoch(self) -> None:
        """Train on every batch once, and log as often as TRAIN.PRINT_FREQ says."""
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

    def after_epoch(self) -> None:
        """Validate for best_val, and save a checkpoint if one is due."""
        done, every = self.epoch + 1, self.cfg.TRAIN.CHECKPOINT_FREQ
        if self.cfg.TEST.FINAL_MODEL == "best_val" and not self.cfg.TEST.NO_TEST:
            result = self.test(split="val")
            if result > self.best_result:
                self.best_result = result
                self.save_model(self.epoch, self.output_dir, val_result=result, model_name=BEST_MODEL)
        if done == self.max_epoch or (every > 0 and done % every == 0):
            self.save_model(self.epoch, self.output_dir)

    def after_train(self) -> None:
        """Evaluate the final model and close the writer."""
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

    @torch.no_grad()
    def test(self, split: str | None = None) -> float:
        """Evaluate on `split`, by default TEST.SPLIT, and return the first result, the accuracy."""
        split = split or self.cfg.TEST.SPLIT
        check_availability(split, ["test", "val"], "TEST.SPLIT")
        loader = self.val_loader if split == "val" else self.test_loader
        if loader is None:
            print("There is no validation set: the test set is used instead")
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

    # Scalars

    def init_writer(self, log_dir: str) -> None:
        """Open the TensorBoard writer, once."""
        if self._writer is None and not self._writer_tried:
            self._writer = open_writer(log_dir)
            self._writer_tried = self._writer is None

    def close_writer(self) -> None:
        """Close the TensorBoard writer, if it is open."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def write_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
        """Write a value to TensorBoard, if the writer is open."""
        if self._writer is not None:
            self._writer.add_scalar(tag, scalar_value, global_step)
