"""The base of all registered trainers: a loop over the phases of a `PromptModel`.

A trainer names its `Model` and knows nothing else of the method. It has the public methods of Dassl's trainers, with
their lines in the log and their files, so the train.py of CoOp's family drives it. Of Dassl itself it needs only the
registries.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor
from yacs.config import CfgNode

from cocoamix import checkpoint
from cocoamix.clip.class_names import synsets_of
from cocoamix.clip.interface import AnyCLIP
from cocoamix.clip.precision import make_scaler
from cocoamix.coa.mixture import find_owners
from cocoamix.compat import uses_fallback
from cocoamix.config import keys
from cocoamix.errors import UserError
from cocoamix.features.images import image_name
from cocoamix.io.checkpoints import BEST
from cocoamix.io.files import check_still_there
from cocoamix.io.screen import detail
from cocoamix.io.steps import send_step
from cocoamix.model import IMAGES, Classifier, PromptModel, Task
from cocoamix.run import protocol, recording, threads
from cocoamix.run.backbone import load_clips
from cocoamix.run.checkpointer import Checkpointer
from cocoamix.run.course import Course
from cocoamix.run.data_record import RunData
from cocoamix.run.evaluation import Evaluation, joint_metrics
from cocoamix.run.images import RunImages
from cocoamix.run.loaders import DataManager
from cocoamix.run.metrics import EpochMetrics
from cocoamix.run.optimisation import Optimisation, diverged
from cocoamix.run.predictions import predictions_for
from cocoamix.run.recording import Evaluated, Loaded
from cocoamix.run.training_log import EpochLines, Scalars
from cocoamix.seeding import derive_seed, set_random_seed


class CLIPTrainer:
    """Trains and evaluates a `PromptModel`.

    Args:
        cfg: The configuration.
        dataset: The dataset; by default the one that DATASET.NAME names.
    """

    Model: ClassVar[type[PromptModel]]
    reads_section: ClassVar[bool] = True  # False for zero-shot methods, which CoOp runs with any method's configuration

    cfg: CfgNode
    clip: AnyCLIP
    model: PromptModel
    saved_parts: tuple[str, ...]  # the parts of the model, without those that only some phases have
    course: Course  # the phases of the training
    images: RunImages
    checkpointer: Checkpointer
    optimisation: Optimisation
    seed: int
    protocol: dict[str, Any]
    resumed_from: Path | str = ""  # the folder that the run resumed from
    data: RunData | None = None  # the images of the run, once it trains or is evaluated
    threads_used: tuple[int, ...] = ()  # numbers of threads, from the start of the run on; empty on a GPU
    tested: Mapping[str, float] = MappingProxyType({})  # the metrics of the last evaluation that wrote results
    trained_epochs = 0  # epochs that the current weights were trained for
    loaded = Loaded()  # what an evaluation has taken from the training run of its model
    evaluation_facts: Mapping[str, Any] = MappingProxyType({})  # entries of the protocol, from the classifier
    session: int | None = None  # number of the session; None without sessions
    sessions: Sequence[Any] = ()
    _classifier: Classifier | None = None  # of the last evaluation
    start_epoch = epoch = batch_idx = num_batches = 0
    best_result = float("-inf")

    def __init__(self, cfg: CfgNode, dataset: Any = None) -> None:
        self.cfg = cfg = keys.complete(cfg)
        self.check_cfg(cfg)
        self.output_dir: str = cfg.OUTPUT_DIR
        self.device = torch.device("cuda" if torch.cuda.is_available() and cfg.USE_CUDA else "cpu")
        self.is_training = False  # whether optimizers exist
        self.metrics, self.scalars, self._dataset = EpochMetrics(), Scalars(), dataset
        self.time_start = time.time()
        self.build_data_loader()
        self.build_model()

    # ------------------------------------------------------------------ building

    @classmethod
    def check_cfg(cls, cfg: CfgNode) -> None:
        """Raise a UserError for a configuration that cannot be run, before anything is built."""
        keys.check_common(cfg)
        keys.check_method(cls.Model.section, cfg, cls.Model.ensembles)
        cls.Model.check(cfg)

    def build_data_loader(self) -> None:
        """Build the data manager and its loaders, and choose the seed."""
        seed = checkpoint.choose_seed(self.cfg)
        self.dm = manager = DataManager(self.cfg, self._dataset)
        self.num_classes, self.lab2cname = manager.num_classes, manager.lab2cname
        loaders = manager.train_loader_x, manager.val_loader, manager.test_loader
        self.train_loader_x, self.val_loader, self.test_loader = loaders
        self.images = RunImages(self.cfg, self.device, loaders, self.Model.most_epochs(self.cfg))
        self.set_seed(seed)

    def set_seed(self, seed: int) -> None:
        """Set the seed of the run and of its augmentations."""
        self.seed = self.images.seed = seed

    def build_model(self) -> None:
        """Load the frozen CLIP, and build the model on it."""
        cfg, settings = self.cfg, self.Model.settings_of(self.cfg)
        self.clip = load_clips(cfg, settings, self.device, self.Model.several)
        self.threads_used = threads.used_on(self.device)
        self.use_model(self.make_model(self.make_task(), settings))
        while self.model.notes:
            detail(self.model.notes.pop(0))
        if self.model.parts and cfg.MODEL.INIT_WEIGHTS:
            checkpoint.load_initial_weights(self, cfg.MODEL.INIT_WEIGHTS)
        self.images.attach(self.clip, self.model.reads)
        detail(f"Trained parameters: {self.model.trained_parameters():,}")
        detail(f"Protocol fingerprint: {protocol.fingerprint(self.protocol)}")

    def make_task(self) -> Task:
        """Return what the model is trained for."""
        items = self.images.train_items
        return Task(
            tuple(self.classnames),
            self.cfg.DATASET.NAME,
            tuple(image_name(item.impath) for item in items),
            tuple(int(item.label) for item in items),
            tuple(self.synsets()),
        )

    def make_model(self, task: Task, settings: CfgNode) -> PromptModel:
        """Return an untrained model."""
        task = self.Model.complete(task, self.clip, settings, self.cfg.DATASET)
        return self.Model(self.clip, task, settings, self.seed)

    def use_model(self, model: PromptModel) -> None:
        """Train or evaluate this model from now on."""
        self.model, self.saved_parts, self._classifier = model, tuple(model.parts), None
        self.use_optimisation(None)
        self.course = Course(model.phases(self.cfg.OPTIM, len(self.train_loader_x)))
        self.max_epoch = self.course.total or self.cfg.OPTIM.MAX_EPOCH
        self.protocol = self.describe_protocol()

    def use_optimisation(self, scaler: Any | None) -> None:
        """Begin without optimizers. `scaler` is the loss scaler of mixed precision, if training needs one."""
        self.optimisation = Optimisation(self.model.parts, scaler)
        self.checkpointer = Checkpointer(self.model.parts, self.optimisation)

    def describe_protocol(self) -> dict[str, Any]:
        """Return the protocol: the facts that must match for two results to be comparable."""
        facts = protocol.describe_protocol(self.cfg, self.clip, self.dm.dataset, self.model.templates)
        own = dict(self.model.protocol())
        facts["splits"].update(own.pop("splits", {}))
        facts.update(own)
        if self.model.parts and self.cfg.OPTIM.STAGED_LR:
            facts["staged_lr"] = protocol.staged_rates(self.cfg.OPTIM)
        return facts

    @property
    def classnames(self) -> list[str]:
        """The classes of the run."""
        return list(self.dm.dataset.classnames)

    def synsets(self) -> list[str]:
        """Return ImageNet's identifiers of the classes of the run; empty for other datasets."""
        return synsets_of(self.dm.dataset.train_x, self.num_classes)

    # ------------------------------------------------------------------ training

    def train(self) -> None:
        """Run the epochs with Dassl's hooks. Unlike in Dassl's loop, a phase may end early."""
        recording.record_data(self, trains=True)
        self.begin_training()
        self.before_train()
        epoch = self.start_epoch
        while epoch < self.max_epoch:
            self.epoch = epoch
            self.before_epoch()
            self.run_epoch()
            self.after_epoch()
            epoch += 1
        self.after_train()

    def begin_training(self) -> None:
        """Build what only training needs: the optimizers, the loss scaler, and what the first phase needs."""
        self.is_training = True
        self.use_optimisation(make_scaler(self.clip.precision, self.device))
        if not self.course.phases:
            raise UserError(f"The trainer {type(self).__name__} has nothing to train. Add --eval-only.")
        for phase in self.course.phases:
            self.optimisation.add(phase.optim)
        self.begin_phase()

    def begin_phase(self) -> None:
        """Begin the phase of the current epoch, also within it: build what only this phase has."""
        phase = self.course.phase
        self.model.begin(phase)
        self.optimisation.add(phase.optim)
        self.train_loader_x = self.images.loader_of(phase.images)
        self._print_notes()

    def end_phase(self) -> None:
        """End the current phase after its last epoch."""
        self.model.end(self.course.phase, self.images.plain_features)
        self.optimisation.drop_missing()
        self.course.advance(self.epoch + 1)
        self.max_epoch = self.course.total
        self._print_notes()

    def _print_notes(self) -> None:
        while self.model.notes:
            print(self.model.notes.pop(0))

    def before_train(self) -> None:
        """Resume if there is something to resume, and open the files of the run."""
        self.start_epoch = self.resume_model_if_exist(self.cfg.RESUME or self.output_dir)
        self.scalars.open(str(Path(self.output_dir, "tensorboard")))
        self.time_start = time.time()
        folders = [folder for folder in (self.resumed_from, self.cfg.RESUME) if folder]
        self.metrics.begin(self.cfg, folders, self.start_epoch, self.max_epoch, self.session)
        # Before the first epoch: checkpoints without a resume file hold only half of the state.
        checkpoint.save_resume(self, self.trained_epochs)

    def before_epoch(self) -> None:
        """Seed the epoch, so that it does not depend on what ran before it, such as an evaluation or another run."""
        if self.epoch == self.course.start and self.epoch:
            self.begin_phase()
        self.metrics.begin_epoch(self.epoch, self.max_epoch, len(self.train_loader_x), self.course.phase.name)
        set_random_seed(derive_seed(self.seed, "epoch", self.epoch))
        if self.course.phase.parts:
            self.images.set_view(self.course.phase.view(self.epoch - self.course.start), self.course)

    def run_epoch(self) -> None:
        """Take a step on every batch, if the phase trains anything."""
        if not self.course.phase.parts:
            return
        self.set_model_mode("train")
        self.num_batches = len(self.train_loader_x)
        lines = EpochLines(self.epoch, self.max_epoch, self.num_batches, self.cfg.TRAIN.PRINT_FREQ)
        for batch_idx, batch in enumerate(self.train_loader_x):
            self.batch_idx = batch_idx
            lines.read()
            values = self.forward_backward(batch)
            rate, step = self.get_current_lr(), self.epoch * self.num_batches + self.batch_idx
            lines.end(self.batch_idx, values, rate)
            for name, meter in lines.values.items():
                self.write_scalar(f"train/{name}", meter.average, step)
            self.write_scalar("train/lr", rate, step)

    def after_epoch(self) -> None:
        """End the epoch: check it, validate it for best_val, and save it."""
        self.trained_epochs = self.epoch + 1
        self.checkpointer.refuse_non_finite(self.trained_epochs, self.cfg.OPTIM.LR)  # before anything is reported
        if self.start_epoch == 0:  # late in a resumed run, steps may be too small to move a parameter
            self.optimisation.check_progress(self.trained_epochs)
        check_still_there(self.output_dir)
        if self.model.ends(self.course.phase, self.epoch - self.course.start, len(self.train_loader_x)):
            self.end_phase()
            self.checkpointer.refuse_non_finite(self.trained_epochs, self.cfg.OPTIM.LR)
        self.metrics.end_epoch(self.max_epoch)  # before a checkpoint, so that a resumed run finds the row
        if self.cfg.TEST.FINAL_MODEL == "best_val" and not self.cfg.TEST.NO_TEST:
            result = self.test(split="val")
            if result > self.best_result:
                self.best_result = result
                self.save_model(self.epoch, self.output_dir, val_result=result, model_name=BEST)
        every = self.cfg.TRAIN.CHECKPOINT_FREQ
        if self.trained_epochs == self.max_epoch or (every > 0 and self.trained_epochs % every == 0):
            self.save_model(self.epoch, self.output_dir)
        checkpoint.save_resume(self, self.trained_epochs)

    def after_train(self) -> None:
        """Evaluate the final model."""
        print("Finish training")
        if not uses_fallback():
            print("Finished training")  # of older versions of Dassl, which the parsers of most trees look for
        if not self.cfg.TEST.NO_TEST:
            if self.cfg.TEST.FINAL_MODEL == "best_val":
                print("Testing the model with the best validation result")
                self.load_model(self.output_dir)
            else:
                print("Testing the model of the last epoch")
            self.test()
        print(f"Elapsed: {timedelta(seconds=round(time.time() - self.time_start))}")
        self.scalars.close()
        self.metrics.end(self.tested)

    def forward_backward(self, batch: dict[str, Any]) -> dict[str, float] | None:
        """Take one step and return its values for the log; None if no image of the batch can be read."""
        inputs, labels = self.parse_batch_train(batch)
        summary = self.take_step(inputs, labels) if len(labels) else None
        if self.batch_idx + 1 == self.num_batches:
            self.update_lr()
        return summary

    def take_step(self, inputs: Tensor, labels: Tensor) -> dict[str, float]:
        """Take one step on images, or on their features, and return its values for the log."""
        losses = self.model.loss(self.read(inputs), labels, self.course.phase.parts)
        self.optimisation.step(losses)
        summary = losses.values(labels)
        if not all(map(math.isfinite, summary.values())):
            raise self.images.fault(inputs, self.classnames) or diverged(summary, self)
        self.metrics.add(summary, self.get_current_lr)
        return summary

    def read(self, inputs: Tensor, classifier: Classifier | None = None) -> Tensor:
        """Return what the model reads, or the features for a classifier, for images or stored features."""
        if self.model.reads != IMAGES:
            return self.images.encode(inputs)
        return inputs if classifier is None else classifier.encode(inputs)

    def update_lr(self, names: Sequence[str] | None = None) -> None:
        """Step the schedules of some parts; by default of those that the current phase trains."""
        for name in names or self.course.phase.parts:
            self.optimisation.schedules[name].step()

    def get_current_lr(self, names: Sequence[str] | None = None) -> float:
        """Return the learning rate of the first of some parts; by default of those that the current phase trains."""
        first = next(iter(names or self.course.phase.parts))
        return float(self.optimisation.optimizers[first].param_groups[0]["lr"])

    def get_model_names(self, names: Sequence[str] | None = None) -> list[str]:
        """Return the names of the parts of the model."""
        return list(self.model.parts if names is None else names)

    def set_model_mode(self, mode: str = "train", names: Sequence[str] | None = None) -> None:
        """Put parts of the model into the mode `train` or `eval`."""
        for name in self.get_model_names(names):
            self.model.parts[name].train(mode == "train")

    def parse_batch_train(self, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Return the images or stored features of a batch, and the labels of the loss."""
        return self.images.read(batch, train=True)

    def parse_batch_test(self, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Return the images or stored features of a batch, and the labels."""
        return self.images.read(batch)

    def write_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
        """Write a value to TensorBoard."""
        self.scalars.add(tag, scalar_value, global_step or 0)

    # ------------------------------------------------------------------ evaluation

    @torch.no_grad()
    def test(self, split: str | None = None) -> float:
        """Evaluate and return the accuracy. Without `split`, evaluate on TEST.SPLIT and write results.json."""
        if split is None:
            recording.record_data(self, trains=False)
        self.set_model_mode("eval")
        name = split or self.cfg.TEST.SPLIT
        print(f"Evaluate on the *{name}* set")
        send_step(evaluates=name)
        self._classifier = classifier = self.model.classifier(self.classnames, self.synsets())
        self.evaluation_facts = classifier.facts
        for note in classifier.notes:
            print(note)
        start = time.monotonic()
        evaluation = Evaluation(self.cfg, self.lab2cname, f"of the {name} set")
        with predictions_for(self.cfg, self.classnames, split is None) as predictions:
            evaluation.add_all(self.images, name, self.model_inference, self.classnames, predictions)
        results = {**evaluation.accuracies(), **evaluation.confidence()}
        owned = find_owners(self.classnames, [self.model.classnames]) > 0
        results.update(joint_metrics(evaluation.predictions, owned))
        for key, value in results.items():
            self.write_scalar(f"{name}/{key}", value, self.epoch)
        if split is None:
            recording.write_results(self, name, results, time.monotonic() - start)
        return next(iter(results.values()))

    @torch.no_grad()
    def model_inference(self, inputs: Tensor) -> Tensor:
        """Return the (B, C) logits of images, or of their features, for the classes of the run."""
        if self._classifier is None:
            self._classifier = self.model.classifier(self.classnames, self.synsets())
        return self._classifier.logits(self.read(inputs, self._classifier))

    def evaluated_protocol(self) -> dict[str, Any]:
        """Return the protocol of the current evaluation."""
        return {**self.protocol, **self.loaded.facts, **self.evaluation_facts}

    def evaluated(self, split: str) -> Evaluated:
        """Return what an evaluation on `val` or `test` covers."""
        data, loaded = self.dm.dataset, self.loaded.origin
        images = loaded.get("train_images") if loaded else len(data.train_x)
        items = data.val if split == "val" else data.test
        return Evaluated(self.classnames, items, images if isinstance(images, int) else None, self.model.results())

    # ------------------------------------------------------------------ saving, resuming, loading

    def save_model(
        self, epoch: int, directory: str, is_best: bool = False, val_result: float | None = None, model_name: str = ""
    ) -> None:
        """Write every part of the model in CoOp's layout."""
        origin = checkpoint.describe_origin(self)
        self.checkpointer.save(directory, self.saved_parts, epoch + 1, origin, val_result, is_best, model_name)

    def resume_model_if_exist(self, directory: str) -> int:
        """Resume the run in the output folder, or the one that --resume names; return the number of epochs done."""
        return checkpoint.resume(self, directory)

    def load_model(self, directory: str, epoch: int | None = None) -> None:
        """Load a trained model from the output folder of its run.

        `epoch` is that of the checkpoint, -1 for the newest, or None for the best on validation (or else the newest).
        """
        checkpoint.load(self, directory, epoch)
