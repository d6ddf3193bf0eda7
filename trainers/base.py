"""Base class of all trainers: a prompt-tuning method on a frozen CLIP.

A method overrides `build_prompts`, `text_features` and `compute_loss`. The parts of a run (checkpointer, image source,
hand-crafted prompt) are small classes of `cocoamix.run`, `cocoamix.features` and `cocoamix.prompts`. Only Dassl's
public interface is used, so trainers run on real Dassl, on its forks and on the fallback.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import torch
from dassl.engine import TrainerX
from dassl.utils import set_random_seed
from torch import Tensor, nn
from torch.utils.data import DataLoader
from yacs.config import CfgNode

from cocoamix.clip import not_finite
from cocoamix.clip.interface import AnyCLIP
from cocoamix.clip.precision import make_scaler
from cocoamix.coa.mixture import find_owners, mix_equally
from cocoamix.config import keys
from cocoamix.config.roles import taken_from_checkpoint
from cocoamix.errors import UserError, encodable
from cocoamix.features.images import ImageItems
from cocoamix.features.source import ImageSource, StoreSettings
from cocoamix.features.unreadable import Unreadable
from cocoamix.io import checkpoints
from cocoamix.io.files import check_still_there
from cocoamix.io.plain import to_plain
from cocoamix.io.screen import detail
from cocoamix.io.steps import send_step
from cocoamix.prompts.hand_crafted import HandCraftedPrompt
from cocoamix.registry import plain_name
from cocoamix.run import data_record, origin, overview, protocol, threads
from cocoamix.run.backbone import load_one
from cocoamix.run.card import write_card
from cocoamix.run.checkpointer import (
    RESUME,
    Checkpointer,
    checkpoint_path,
    damaged,
    epochs_in,
    read_state,
    seed_of_run,
)
from cocoamix.run.data_record import RunData
from cocoamix.run.evaluation import Evaluation, NotFiniteError, joint_metrics
from cocoamix.run.loaders import build_manager, loader_over
from cocoamix.run.metrics import EpochMetrics
from cocoamix.run.more_epochs import continuation
from cocoamix.run.movement import ProgressCheck
from cocoamix.run.optimisation import diverged, make_optimizer, step
from cocoamix.run.parameter_groups import refuse_left_out
from cocoamix.run.predictions import PredictionsFile, paths_at
from cocoamix.run.results import RESULTS, Results, ResultsError
from cocoamix.seeding import derive_seed


class CLIPTrainer(TrainerX):
    """A trainer on a frozen CLIP."""

    section = "COOP"  # the trainer's node under cfg.TRAINER
    reads_section = True  # False for zero-shot methods, which CoOp runs with any method's configuration
    ensembles: tuple[str, ...] = ()  # allowed values of ENSEMBLE; empty if the method has no such key
    templates_of = ""  # the method whose dataset templates to use; CoOp's by default
    trains_with_template = False  # True if the loss, and not only the evaluation, needs the hand-crafted prompt
    frozen_images = True  # False if the method tunes the image encoder, so that every step encodes its images
    raw_images = False  # True if the method needs image features that are not normalised

    cfg: CfgNode
    clip: AnyCLIP
    checkpointer: Checkpointer
    images: ImageSource
    hand_crafted: HandCraftedPrompt | None = None
    unreadable: Unreadable
    scaler: Any | None = None
    protocol: dict[str, Any]
    seed: int
    resumed_from: Path | str = ""  # the folder that the run resumed from
    data: RunData | None = None  # the images of the run, once it trains or is evaluated
    threads_used: tuple[int, ...] = ()  # numbers of threads, from the start of the run on; empty on a GPU
    tested: Mapping[str, float] = MappingProxyType({})  # the metrics of the last evaluation that wrote results
    trained_epochs = 0  # epochs that the current weights were trained for
    trained_classes: list[str]  # classes that they were trained on
    loaded_from: Mapping[str, Any] = MappingProxyType({})  # origin of a loaded checkpoint
    trained_settings: CfgNode | None = None  # settings of the run that wrote a loaded checkpoint
    recorded: CfgNode | None = None  # the configuration to record in the results, if not `cfg`
    overridden: Mapping[str, Any] = MappingProxyType({})  # values of `cfg` that a checkpoint's settings replace
    training_facts: Mapping[str, Any] = MappingProxyType({})  # entries of the protocol, from a loaded checkpoint

    def __init__(self, cfg: CfgNode) -> None:
        self._optim_cfgs: dict[str, CfgNode] = {}
        self.is_training = False  # whether optimizers exist
        self.metrics = EpochMetrics()
        super().__init__(keys.complete(cfg))

    # ------------------------------------------------------------------ hooks for methods

    def build_prompts(self) -> None:
        """Build and register the modules to train. A zero-shot method registers nothing."""

    def text_features(self) -> Tensor:
        """Return the (C, embedding) unit text features of the current classes, with gradients if they are trained."""
        raise NotImplementedError(f"{type(self).__name__} defines no text_features")

    def compute_loss(self, image_features: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Return the terms of the loss by name, with the total under "loss", and the (B, C) logits."""
        raise UserError(f"The trainer {type(self).__name__} has nothing to train. Add --eval-only.")

    def load_backbone(self) -> AnyCLIP:
        """Load the model that MODEL.BACKBONE names. A method with several models overrides this."""
        return load_one(self.cfg, self.settings.PREC, self.device)

    def make_hand_crafted(self) -> HandCraftedPrompt | None:
        """Return the hand-crafted prompt if the method or its ensemble uses one, else None."""
        if not self.ensembles or (not self.trains_with_template and self.settings.ENSEMBLE == "none"):
            return None
        return HandCraftedPrompt(self.clip, self.settings.TEMPLATE, self.cfg.DATASET.NAME, self.templates_of)

    def prepare_training(self) -> None:
        """Build what only training needs, other than the optimizers."""

    # ------------------------------------------------------------------ building

    @property
    def settings(self) -> CfgNode:
        """The trainer's node of the configuration, with the training settings of a loaded checkpoint."""
        return self.trained_settings or self.cfg.TRAINER[self.section]

    @property
    def classnames(self) -> list[str]:
        """The classes of the run."""
        return list(self.dm.dataset.classnames)

    def check_cfg(self, cfg: CfgNode) -> None:
        keys.check_common(cfg)
        keys.check_prompt(self.section, cfg.TRAINER[self.section])
        if self.ensembles:
            keys.check_ensemble(self.section, cfg.TRAINER[self.section], self.ensembles)

    def build_data_loader(self) -> None:
        """Build the data manager and its loaders, and choose the seed."""
        self.unreadable = Unreadable(self.cfg.DATASET.BAD_IMAGES)
        seed = self.choose_seed()
        self._declare_views()
        self.dm = manager = build_manager(self.cfg)
        self.train_loader_x = manager.train_loader_x
        self.train_loader_u = manager.train_loader_u
        self.val_loader = manager.val_loader
        self.test_loader = manager.test_loader
        self.num_classes = manager.num_classes
        self.num_source_domains = manager.num_source_domains
        self.lab2cname = manager.lab2cname
        self.set_seed(seed)

    def choose_seed(self) -> int:
        """Return the configured seed. Without one, reuse the seed of the run to resume, or draw a new seed."""
        if self.cfg.SEED >= 0:
            return int(self.cfg.SEED)
        seed = seed_of_run(self.output_dir)
        if seed is None and self.cfg.RESUME:
            seed = seed_of_run(self.cfg.RESUME)
        if seed is None:
            seed = random.SystemRandom().randrange(2**31)
        print(f"No seed was given; this run uses {seed}")
        set_random_seed(seed)  # before the few-shot draw
        return seed

    def set_seed(self, seed: int) -> None:
        """Set the seed of the run and of its augmentations."""
        self.seed = seed
        for loader in (self.train_loader_x, self.val_loader, self.test_loader):
            if loader is not None:
                cast(ImageItems, loader.dataset).seed = seed

    def build_model(self) -> None:
        self.clip = self.load_backbone()
        self.checkpointer = Checkpointer(self._models, self._optims, self._scheds)
        self.trained_classes = self.classnames
        self.hand_crafted = self.make_hand_crafted()
        self.protocol = self.describe_protocol()
        self.threads_used = threads.used_on(self.device)
        self.images = ImageSource(self.clip, self._store_settings(), self.unreadable, self.raw_images)
        self.build_prompts()
        if self._models and self.cfg.OPTIM.STAGED_LR:
            self.protocol["staged_lr"] = protocol.staged_rates(self.cfg.OPTIM)
        detail(f"Trained parameters: {self.trained_parameters():,}")
        detail(f"Protocol fingerprint: {protocol.fingerprint(self.protocol)}")

    def overview(self, trains: bool = True) -> dict[str, str]:
        """Return the lines of the run's overview by name.

        Args:
            trains: Whether the run trains rather than only evaluates.
        """
        cfg = self.cfg
        images = self.count_training_images() if self._models else None
        return {
            "trainer": cfg.TRAINER.NAME,
            "dataset": self.describe_dataset(),
            "images": overview.describe_images(cfg, images, len(self.evaluated_items(cfg.TEST.SPLIT) or ())),
            "backbone": overview.describe_backbone(self.clip, self.device, cfg.MODEL.BACKBONE.WEIGHTS),
            "training": self.describe_epochs() if trains and self._models else "none (evaluation only)",
            "trained": overview.describe_models(self._models),
            "features": overview.describe_features(self.images, self.frozen_images),
            "seed": str(self.seed),
            "protocol": protocol.fingerprint(self.evaluated_protocol()),
            "output": f"{self.output_dir} (the full configuration is in its log.txt)",
        }

    def describe_dataset(self) -> str:
        """Return the dataset and its number of classes, for the overview."""
        return overview.describe_dataset(self.cfg, len(self.classnames))

    def describe_epochs(self) -> str:
        """Return the length of the training, for the overview."""
        return f"{self.max_epoch} epoch{'s' * (self.max_epoch > 1)}, batches of {self.train_loader_x.batch_size}"

    def _store_settings(self) -> StoreSettings:
        cache = self.cfg.CACHE
        return StoreSettings(
            mode=cache.MODE if self.frozen_images else "off",
            folder=cache.DIR,
            dataset=plain_name(self.cfg.DATASET.NAME),
            workers=self.cfg.DATALOADER.NUM_WORKERS,
            transform=json.dumps(protocol.plain(self.cfg.INPUT), sort_keys=True),
        )

    def templates(self) -> Sequence[str]:
        """Return the hand-crafted templates that results depend on."""
        return self.hand_crafted.templates if self.hand_crafted else []

    def describe_protocol(self) -> dict[str, Any]:
        """Return the protocol: the facts that must match for two results to be comparable."""
        return protocol.describe_protocol(self.cfg, self.clip, self.dm.dataset, self.templates())

    def register(self, name: str, model: nn.Module, optim: CfgNode) -> None:
        """Register a module to train. Its optimizer and schedule are built from `optim` when training begins.

        Args:
            name: Name of the module and of its checkpoint folder.
            model: The module.
            optim: A node like `cfg.OPTIM`.
        """
        self.register_model(name, model, None, None)
        self._optim_cfgs[name] = optim
        if self.is_training:
            self._build_optimizer(name)

    def unregister(self, *names: str) -> None:
        """Unregister the named modules; without names, all of them."""
        for name in names or tuple(self._models):
            for registered in (self._models, self._optims, self._scheds, self._optim_cfgs):
                registered.pop(name, None)

    def _build_optimizer(self, name: str) -> None:
        self._optims[name], self._scheds[name] = make_optimizer(name, self._models[name], self._optim_cfgs[name])
        refuse_left_out(name, self._models[name], self._optims[name])

    @property
    def phase(self) -> str:
        """What the current epoch trains; always `train` for a method without phases."""
        return "train"

    def session_number(self) -> int | None:
        """Return the number of the current session; None for a method without sessions."""
        return None

    def trained_parameters(self) -> int:
        return sum(p.numel() for model in self._models.values() for p in model.parameters() if p.requires_grad)

    def hand_crafted_features(self) -> Tensor:
        """Return the (C, embedding) text features of the hand-crafted prompt for the current classes."""
        assert self.hand_crafted is not None, f"{type(self).__name__} has no hand-crafted prompt in this run"
        return self.hand_crafted.of(self.classnames)

    # ------------------------------------------------------------------ training

    def train(self) -> None:
        """Run the epochs with Dassl's hooks. Unlike in Dassl's loop, a hook may change `max_epoch`."""
        self.record_data(trains=True)
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
        """Build what only training needs: optimizers, the loss scaler, and the additions of the method."""
        self.is_training = True
        self.scaler = make_scaler(self.clip.precision, self.device)
        self.prepare_training()
        if self.trains_with_template:
            self.hand_crafted_features()  # computed now, so that the first step is as fast as the others
        for name in self._optim_cfgs:  # models registered by `register_model` bring their own optimizer
            self._build_optimizer(name)
        for name, model in self._models.items():
            refuse_left_out(name, model, self._optims[name])
        self._progress_check = ProgressCheck()

    def before_train(self) -> None:
        super().before_train()
        self.begin_metrics(self.start_epoch, self.max_epoch, self.session_number())
        # Before the first epoch, because checkpoints without a resume file hold only half of the state.
        if self._models:
            self._save_resume(self.trained_epochs)

    def begin_metrics(self, done: int, epochs: int, session: int | None) -> None:
        """Begin the table of epochs, or continue that of the run to resume.

        Args:
            done: Number of epochs already done.
            epochs: Total number of epochs.
            session: Number of the session; None for a method without sessions.
        """
        folders = [folder for folder in (self.resumed_from, self.cfg.RESUME) if folder]
        self.metrics.begin(self.cfg, folders, done, epochs, session)

    def before_epoch(self) -> None:
        """Seed the epoch, so that it does not depend on what ran before it, such as an evaluation or another run."""
        super().before_epoch()
        self.metrics.begin_epoch(self.epoch, self.max_epoch, len(self.train_loader_x), self.phase)
        set_random_seed(derive_seed(self.seed, "epoch", self.epoch))
        self._set_epoch_view()
        redraw = getattr(self.train_loader_x.sampler, "redraw", None)
        if redraw is not None:  # a sampler that draws ahead did so before the seed was set
            redraw()

    def after_epoch(self) -> None:
        self.trained_epochs = self.epoch + 1
        self.checkpointer.refuse_non_finite(self.trained_epochs, self.cfg.OPTIM.LR)  # before anything is reported
        if self.start_epoch == 0:  # late in a resumed run, steps may be too small to move a parameter
            self._progress_check.refuse_stuck(self.trained_epochs)
        check_still_there(self.output_dir)
        self.metrics.end_epoch(self.max_epoch)  # before a checkpoint, so that a resumed run finds the row
        super().after_epoch()
        self._save_resume(self.trained_epochs)

    def after_train(self) -> None:
        super().after_train()
        self.metrics.end(self.tested)
        # With an evaluation, the card is written together with the results.
        if self.cfg.TEST.NO_TEST and not Path(self.output_dir, RESULTS).exists():
            write_card(self.output_dir, self.describe_run())

    def forward_backward(self, batch: dict[str, Any]) -> dict[str, float] | None:
        """Take one step and return its values for the log; None if no image of the batch can be read."""
        inputs, labels = self.parse_batch_train(batch)
        summary = self.take_step(inputs, labels) if len(labels) else None
        if self.batch_idx + 1 == self.num_batches:
            self.update_lr()
        return summary

    def take_step(self, inputs: Tensor, labels: Tensor) -> dict[str, float]:
        terms, logits = self.compute_loss(self.encode(inputs), labels)
        self.model_zero_grad()
        self.backward(terms)
        self._progress_check.before_step(self._models, self._optims)
        step([optimizer for optimizer in self._optims.values() if optimizer is not None], self.scaler)
        self._progress_check.after_step(self._models, self._optims)
        accuracy = (logits.detach().argmax(dim=1) == labels).float().mean() * 100
        values = torch.stack([value.detach().float() for value in (*terms.values(), accuracy)]).tolist()
        summary = dict(zip((*terms, "acc"), values, strict=True))
        if not all(map(math.isfinite, summary.values())):
            raise self.cause_in_clip(inputs) or self._diverged(summary)
        self.metrics.add(summary, self.get_current_lr)
        return summary

    def cause_in_clip(self, inputs: Tensor) -> UserError | None:
        """Return the error of the frozen model that explains a non-finite loss or logit, if there is one."""
        for clip in self.clip.each():
            # Stored features are known to be finite: see `cocoamix.features`.
            images = clip.encode_image_raw(inputs) if inputs.dim() == 4 else None
            fault = None if images is None else not_finite.in_images(clip, images, self.images.files)
            fault = fault or not_finite.in_text(clip, list(self.dm.dataset.classnames))
            if fault is not None:
                return fault
        return None

    def _diverged(self, summary: dict[str, float]) -> UserError:
        return diverged(
            summary,
            f"epoch {self.epoch + 1}, batch {self.batch_idx + 1} of {self.num_batches} "
            f"(learning rate {self.get_current_lr():.2e})",
            f"a smaller OPTIM.LR, or TRAINER.{self.section}.PREC fp32 (now {self.clip.precision})",
        )

    def backward(self, terms: dict[str, Tensor]) -> None:
        """Compute the gradients of a step. A method that edits gradients overrides this."""
        self.scaled(terms["loss"]).backward()

    def scaled(self, loss: Tensor) -> Tensor:
        """Return a loss scaled for the backward pass, if there is a loss scaler."""
        return loss if self.scaler is None else self.scaler.scale(loss)

    # ------------------------------------------------------------------ images

    def encode(self, inputs: Tensor) -> Tensor:
        """Return the (B, embedding) features of a batch of images; a batch of features is returned unchanged."""
        return self.images.encode(inputs)

    def parse_batch_train(self, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        return self.images.read(batch, self.device)

    def parse_batch_test(self, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        return self.images.read(batch, self.device)

    def epoch_limit(self) -> int:
        """Return the largest number of epochs that the method may train for; 0 for OPTIM.MAX_EPOCH."""
        return 0

    def view_of(self, epoch: int) -> int:
        """Return the index of the augmentation (view) that an epoch uses."""
        views = protocol.views(self.cfg, self.epoch_limit())
        return epoch % views if views else epoch

    def count_views(self) -> int:
        """Return the number of augmentations (views) of each image over the whole training."""
        return min(protocol.views(self.cfg, self.epoch_limit()) or self.max_epoch, self.max_epoch)

    def _declare_views(self) -> None:
        """Print a note if CACHE.VIEWS makes the protocol differ from CoOp's."""
        views = protocol.views(self.cfg, self.epoch_limit())
        if views == 1:
            print(
                "Note: CACHE.VIEWS 1 departs from CoOp's protocol: training images are one fixed centre crop, "
                "not augmented"
            )
        elif views:
            print(
                f"Note: CACHE.VIEWS {views} departs from CoOp's protocol: the epochs cycle through {views} "
                "augmentations"
            )

    def store_part(self, split: str) -> str:
        """Return the part of the feature store that holds the images of `train`, `val` or `test`."""
        if split != "train":
            return split
        random_views = cast(ImageItems, self.train_loader_x.dataset).is_random
        return f"train-seed{self.seed}" if random_views else "train"

    def encoding_batch_size(self) -> int:
        """Return the number of training images encoded at once for the store; 0 for the loader's batch size."""
        return 0

    def _set_epoch_view(self) -> None:
        """Give the training loader the images or features of the current epoch."""
        view, last = self.view_of(self.epoch), self.count_views() - 1
        self.images.set_view(self.train_loader_x, view, last, self.store_part("train"), self.encoding_batch_size())

    def batches_of(self, loader: DataLoader[Any], split: str) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the inputs and labels of a loader's readable images. The loader covers `split` or a part of it."""
        for inputs, labels, _ in self.images.batches(loader, split, self.device):
            yield inputs, labels

    def test_batches(self, split: str) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the inputs and labels of the readable images of `val` or `test`."""
        yield from self.batches_of(self._loader(split), split)

    @torch.no_grad()
    def training_features(self, max_views: int) -> tuple[Tensor, Tensor]:
        """Return the features and labels of the training images in the last `max_views` views."""
        whole = cast(ImageItems, self.train_loader_x.dataset)
        loader = loader_over(self.cfg, self.train_loader_x, whole.items, train=False, seed=self.seed)
        items = cast(ImageItems, loader.dataset)
        items.is_random = whole.is_random
        end = self.count_views()
        parts: list[tuple[Tensor, Tensor]] = []
        for view in range(max(0, end - max_views), end):
            items.view, items.features = view, None
            batches = self.images.batches(loader, self.store_part("train"), self.device, self.encoding_batch_size())
            parts += [(self.encode(inputs), labels) for inputs, labels, _ in batches]
        features, labels = (torch.cat(side) for side in zip(*parts, strict=True))
        return features, labels

    def _loader(self, split: str) -> DataLoader[Any]:
        loader = self.val_loader if split == "val" else self.test_loader
        if loader is None:
            raise UserError(f"The dataset {self.cfg.DATASET.NAME} has no {split} images.")
        return loader

    # ------------------------------------------------------------------ evaluation

    @torch.no_grad()
    def test(self, split: str | None = None) -> float:
        """Evaluate and return the accuracy. Without `split`, evaluate on TEST.SPLIT and write results.json."""
        if split is None:
            self.record_data(trains=False)
        self.set_model_mode("eval")
        self.evaluator.reset()
        name = split or self.cfg.TEST.SPLIT
        print(f"Evaluate on the *{name}* set")
        send_step(evaluates=name)
        self.before_test()
        start = time.monotonic()
        evaluation = Evaluation(self.evaluator, f"of the {name} set")
        loader = self._loader(name)
        with self.predictions_file(split) as predictions:
            for inputs, labels, indices in self.images.batches(loader, name, self.device):
                logits = self.model_inference(inputs)
                try:
                    evaluation.add(logits, labels)
                except NotFiniteError as error:
                    raise self.cause_in_clip(inputs) or error from None
                if predictions is not None:
                    predictions.add(logits, labels, paths_at(loader, indices))
            if predictions is not None:
                predictions.add_unreadable(loader, self.unreadable)
        if self.unreadable:
            print(f"{len(self.unreadable)} unreadable image{'s' * (len(self.unreadable) > 1)} skipped so far")
        results = {**evaluation.accuracies(), **evaluation.confidence()}
        owned = find_owners(self.classnames, [self.trained_classes]) > 0
        results.update(joint_metrics(evaluation.predictions, owned))
        for key, value in results.items():
            self.write_scalar(f"{name}/{key}", value, self.epoch)
        if split is None:
            self._write_results(name, results, time.monotonic() - start)
        return next(iter(results.values()))

    def predictions_file(self, split: str | None) -> AbstractContextManager[PredictionsFile | None]:
        """Return the file for the predictions of an evaluation, or None without TEST.SAVE_PREDICTIONS.

        Only an evaluation that writes results, one without `split`, saves its predictions.
        """
        if split is not None or not self.cfg.TEST.SAVE_PREDICTIONS:
            return nullcontext()
        return PredictionsFile(self.output_dir, self.evaluated_classes())

    def before_test(self) -> None:
        """Compute what all batches of an evaluation share."""
        self._evaluated_features = self.text_features()
        if self.ensembles and self.settings.ENSEMBLE != "none":
            self.hand_crafted_features()

    def model_inference(self, inputs: Tensor) -> Tensor:
        """Return the (B, C) logits of images, or of their features, in the current evaluation."""
        return self.feature_logits(self.encode(inputs))

    def feature_logits(self, features: Tensor) -> Tensor:
        """Return the (B, C) logits of image features in the current evaluation."""
        logits = self.class_logits(features)
        if self.ensembles and self.settings.ENSEMBLE == "uniform":
            return self.mix_uniformly(features, logits)
        return logits

    def vision_prompts(self) -> Sequence[Tensor]:
        """Return the learned tokens of the image encoder; empty if the method does not tune it."""
        return ()

    def begin_inference(self) -> list[str]:
        """Prepare `infer`, and return the classes of its label space."""
        self.set_model_mode("eval")
        self.before_test()
        return self.classnames

    def infer(self, features: Tensor) -> Tensor:
        """Return the (B, C) logits of image features, as an evaluation computes them."""
        return self.feature_logits(features)

    def why_not_exported(self) -> str:
        """Return why `infer` cannot be exported as matrices, as the end of a sentence; empty if it can."""
        return ""

    def class_logits(self, image_features: Tensor) -> Tensor:
        """Return the (B, C) logits of the learned prompt in the current evaluation."""
        return self.logits(image_features, self._evaluated_features)

    def logits(self, image_features: Tensor, text_features: Tensor) -> Tensor:
        """Return cosine similarity times CLIP's logit scale 1/tau, in fp32."""
        return self.clip.logit_scale * image_features @ text_features.t()

    def mix_uniformly(self, image_features: Tensor, logits: Tensor) -> Tensor:
        """Return the (B, C) logits of the uniform ensemble of the learned and the hand-crafted prompt."""
        return mix_equally(logits, self.logits(image_features, self.hand_crafted_features()))

    # ------------------------------------------------------------------ data

    def record_data(self, trains: bool) -> None:
        """Record the images of the run once; refuse an output folder with results of this run on other images.

        Args:
            trains: Whether the run trains, rather than only evaluates.
        """
        if self.data is None:
            self.data = data_record.record_run(self.cfg, self.dm.dataset, trains)
            loaded = data_record.parse(self.loaded_origin().get("data"), "The checkpoint")
            if not trains and loaded is not None:
                self.data = replace(self.data, training=loaded.training)
            data_record.check_same(self._data_of_results(), self.data, self.output_dir)

    def loaded_origin(self) -> Mapping[str, Any]:
        """Return the origin of the model that is evaluated; empty if none was loaded."""
        return self.loaded_from

    def _data_of_results(self) -> RunData | None:
        """Return the images of the results in the output folder, if all but the images is as in this run."""
        try:
            results = Results.read(Path(self.output_dir, RESULTS))
        except ResultsError:
            return None
        then, now = dict(results.protocol), self.evaluated_protocol()
        shared = (then.keys() & now.keys()) - {"splits"}  # an evaluation adds facts of its own
        own = (self.cfg.TRAINER.NAME, self.seed, self.cfg.TEST.SPLIT, [now[key] for key in sorted(shared)])
        theirs = (results.trainer, results.seed, results.split, [then[key] for key in sorted(shared)])
        return results.data if protocol.digest(own) == protocol.digest(theirs) else None

    def check_origin(self, content: Mapping[str, Any], path: Path) -> None:
        """Refuse to resume a run on other images, and continue its record of threads.

        Args:
            content: A resume file, or the origin of a checkpoint.
            path: The file.
        """
        then = data_record.parse(content.get("data"), path)
        # With `skip`, images may be repaired or lost while a run is stopped, and the results count those left out.
        if self.data is not None and self.unreadable.policy == "stop":
            data_record.check_same(then, self.data, str(path.parent))
        self.threads_used = threads.continued(threads.recorded(content, path), self.threads_used)

    def _facts_to_resume(self) -> dict[str, Any]:
        data = {"data": to_plain(self.data)} if self.data is not None else {}
        return {**data, threads.KEY: list(self.threads_used)}

    # ------------------------------------------------------------------ results

    def evaluated_protocol(self) -> dict[str, Any]:
        """Return the protocol of the current evaluation. A method may add facts that apply only to it."""
        return {**self.protocol, **self.training_facts}

    def _write_results(self, split: str, metrics: dict[str, float], seconds: float) -> None:
        items = self.evaluated_items(split)
        results = replace(
            self.describe_run(),
            split=split,
            metrics={key: float(value) for key, value in metrics.items()},
            evaluated_images=len(items) - len(self.unreadable.keys() & {item.impath for item in items}),
            evaluation_seconds=round(seconds, 3),
        )
        self.tested = results.metrics
        path = results.write(self.output_dir)
        write_card(self.output_dir, results)
        print(f"Results written to {path}")

    def describe_run(self) -> Results:
        """Return the results without the measured values."""
        cfg = self.recorded or self.cfg
        results = Results(
            trainer=self.cfg.TRAINER.NAME,
            dataset=plain_name(self.cfg.DATASET.NAME),
            subset=self.cfg.DATASET.SUBSAMPLE_CLASSES,
            seed=self.seed,
            shots=cfg.DATASET.NUM_SHOTS,
            metrics={},
            classes=self.num_classes,
            classnames=tuple(self.evaluated_classes()),
            categories=self.categories() or None,
            train_images=self.count_training_images(),
            unreadable_images=len(self.unreadable),
            trained_parameters=self.trained_parameters(),
            epoch=self.trained_epochs,
            fingerprint=protocol.fingerprint(self.evaluated_protocol()),
            protocol=self.evaluated_protocol(),
            config=protocol.plain(cfg),
            versions=protocol.versions(self.clip.source),
            caveats=overview.caveats(self.cfg, self.clip, self.evaluated_classes(), self.threads_used),
            threads=self.threads_used[0] if self.threads_used else None,
            data=self.data,
            overridden=dict(self.overridden) or None,
        )
        return results.with_more(self.more_results())

    def evaluated_classes(self) -> list[str]:
        """Return the label space of an evaluation."""
        return self.classnames

    def categories(self) -> dict[str, str]:
        """Return the class name of each folder or class of own images; empty for other datasets."""
        found = getattr(self.dm.dataset, "categories", {})
        return {encodable(category): name for category, name in found.items()}

    def evaluated_items(self, split: str) -> Sequence[Any]:
        """Return the items of an evaluation."""
        return self.dm.dataset.val if split == "val" else self.dm.dataset.test

    def count_training_images(self) -> int | None:
        """Return the number of training images; None if a loaded checkpoint does not record it."""
        if self.loaded_from:
            count = self.loaded_from.get("train_images")
            return count if isinstance(count, int) else None
        return len(self.dm.dataset.train_x)

    def more_results(self) -> dict[str, Any]:
        """Return what a method adds to results.json (`cocoamix.run.results`), as plain values."""
        return {}

    # ------------------------------------------------------------------ saving and resuming

    def describe_origin(self) -> dict[str, Any]:
        """Return what a checkpoint records about its training run."""
        return {
            "trainer": type(self).__name__,
            "backbone": self.clip.name,
            "weights_sha256": self.clip.weights_hash,
            "classnames": self.classnames,
            "activation": self.clip.activation,
            "seed": self.seed,
            "settings": self.training_settings(),
            "protocol": self.protocol,
            "finished": self.trained_epochs >= self.max_epoch,
            "weights_file": self.cfg.MODEL.BACKBONE.WEIGHTS,
            "train_images": self.count_training_images(),
            **self._facts_to_resume(),
            **({"categories": self.categories()} if self.categories() else {}),
        }

    def training_settings(self) -> dict[str, Any]:
        """Return the settings that must match to resume a run."""
        return protocol.training_settings(self.cfg, self.section)

    def saved_models(self) -> list[str]:
        """Return the models to write as checkpoints. A method with temporary models overrides this."""
        return list(self.get_model_names())

    def save_model(
        self,
        epoch: int,
        directory: str,
        is_best: bool = False,
        val_result: float | None = None,
        model_name: str = "",
    ) -> None:
        """Write every registered model in CoOp's layout."""
        self.checkpointer.save(
            directory, self.saved_models(), epoch + 1, self.describe_origin(), val_result, is_best, model_name
        )

    def resume_state(self, epochs: int) -> dict[str, Any]:
        """Return the state that a resume needs. A method adds what it needs in addition to its models."""
        return {
            "epoch": epochs,
            **self.checkpointer.state(),
            "scaler": self.scaler.state_dict() if self.scaler is not None else None,
            # Every epoch seeds all generators from this number, so no generator state is needed.
            "seed": self.seed,
            "best_result": float(self.best_result),
            "settings": self.training_settings(),
            "protocol": self.protocol,
            "unreadable": dict(self.unreadable),
            **self._facts_to_resume(),
        }

    def prepare_resume(self, state: Mapping[str, Any]) -> None:
        """Build the modules of a resume state that do not exist from the start."""

    def restore_state(self, state: Mapping[str, Any]) -> None:
        """Restore what a method added to `resume_state`."""

    def _save_resume(self, epochs: int) -> None:
        checkpoints.save(Path(self.output_dir, RESUME), self.resume_state(epochs))

    def resume_model_if_exist(self, directory: str) -> int:
        """Resume from the output folder if it holds a run, otherwise from the folder that --resume names.

        In this order, because a run that --resume started from another folder has its own, later state from then on.

        Returns:
            The number of epochs already done.
        """
        folders = dict.fromkeys((Path(self.output_dir), Path(directory)))
        for folder in folders:
            if epochs_in(folder / RESUME) == 0:
                continue  # no epoch is done yet, so the run may start with any settings
            done = self._resume_from(folder)
            if done is not None:
                self.trained_epochs, self.resumed_from = done, folder
                print(f"Resuming from {folder}: {done} of {self.max_epoch} epochs are done")
                if folder != Path(self.output_dir):
                    self.checkpointer.copy_best(folder, Path(self.output_dir))
                    if done >= self.max_epoch:
                        self.save_model(done - 1, self.output_dir)
                elif len(folders) > 1:
                    print(f"--resume {directory} is not used: the output folder holds a later state of this run")
                return done
        if self.cfg.RESUME:
            raise UserError(f"--resume names {directory}, which holds neither {RESUME} nor checkpoints to resume from.")
        detail("No checkpoint found, train from scratch")
        return 0

    def _resume_from(self, folder: Path) -> int | None:
        if (folder / RESUME).is_file():
            return self.resume_file(folder / RESUME)
        return self._resume_checkpoints(folder) if self.checkpointer.can_resume(folder) else None

    def _best_so_far(self) -> float:
        """Return the best validation result, which the resume has restored. The fallback of Dassl calls this."""
        return float(self.best_result)

    def resume_file(self, path: Path) -> int:
        """Resume from a resume file; return the number of epochs already done."""
        state = read_state(path)
        self.check_settings(path, state["settings"], state["protocol"])
        self.check_origin(state, path)
        self.protocol.update(continuation(state["protocol"], path))
        try:
            self.prepare_resume(state)
            self.checkpointer.restore(state, path)
            if self.scaler is not None and state["scaler"]:
                self.scaler.load_state_dict(state["scaler"])
            self.set_seed(state["seed"])
            self.best_result = state["best_result"]
            self.unreadable.update(state["unreadable"])
            self.restore_state(state)
        # Whichever part cannot be restored, the cause is an altered file.
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise damaged(path, f"a part of it does not fit ({type(error).__name__})") from error
        return int(state["epoch"])

    def check_settings(self, path: Path, then: Mapping[str, Any], protocol_then: Mapping[str, Any]) -> None:
        """Raise a UserError if the settings or the protocol of a run to resume differ from this run's."""
        origin.check_settings(path, then, self.training_settings(), protocol_then, self.protocol)

    def _resume_checkpoints(self, directory: Path) -> int:
        """Resume from checkpoints in CoOp's layout without a resume file, such as Dassl's; replay the schedules."""
        done, found = self.checkpointer.newest_files(directory)
        for name, (path, content) in found.items():
            checkpoint_origin = self._load_weights(name, content, path)
            if checkpoint_origin:
                self.check_settings(path, checkpoint_origin.get("settings", {}), checkpoint_origin.get("protocol", {}))
                self.check_origin(checkpoint_origin, path)
                self.protocol.update(continuation(checkpoint_origin.get("protocol", {}), path))
                self.set_seed(int(checkpoint_origin.get("seed", self.seed)))
            self.checkpointer.step_schedule(name, self.epochs_of(name, done))
            if content.get("optimizer") and self._optims[name] is not None:
                self._optims[name].load_state_dict(content["optimizer"])
            self.restore_from_origin(checkpoint_origin, done)
        best = self.checkpointer.best_result(directory)
        self.best_result = self.best_result if best is None else best
        return done

    def epochs_of(self, name: str, done: int) -> int:
        """Return how many of `done` epochs trained a model. A method with stages overrides this."""
        return done

    def restore_from_origin(self, origin: Mapping[str, Any], done: int) -> None:
        """Restore what a method added to `describe_origin`, when training resumes from checkpoints alone."""

    # ------------------------------------------------------------------ loading

    def load_model(self, directory: str, epoch: int | None = None) -> None:
        """Load trained weights for evaluation.

        Args:
            directory: Output folder of the training run.
            epoch: The checkpoint to load: its epoch, -1 for the newest, or None for the best on validation (the newest
                if none was selected).
        """
        if self._models and not directory:
            raise UserError(
                f"--eval-only with {type(self).__name__} needs --model-dir, the output folder of a training run."
            )
        is_best = True
        for name in self.get_model_names():
            path = checkpoint_path(Path(directory, name), epoch)
            content = checkpoints.load(path)
            origin.check_trainer(origin.origin_of(content, path), type(self).__name__, path)
            origin.check_partition(origin.origin_of(content, path), self.cfg.DATASET, path)
            self.loaded_from = checkpoint_origin = self._load_weights(name, content, path)
            self.trained_classes = list(checkpoint_origin.get("classnames") or self.trained_classes)
            self.adopt_settings(checkpoint_origin.get("settings") or {})
            protocol.copy_staged_rates(self.protocol, checkpoint_origin.get("protocol") or {})
            self.trained_epochs = checkpoints.epochs_of(content)
            is_best &= path.name == checkpoints.BEST
            print(f'Loading weights to {name} from "{path}" (epoch = {self.trained_epochs})')
            if not checkpoint_origin.get("settings") and not self.is_training:
                print(
                    f"Note: {path} does not record how it was trained: the results state the training settings of this "
                    "configuration."
                )
        if self.loaded_from:
            self._record_training_settings(is_best)

    def _record_training_settings(self, is_best: bool) -> None:
        """Record the training settings of the loaded checkpoint in the results, not those of this run.

        Args:
            is_best: Whether the checkpoint was selected on validation.
        """
        checkpoint_origin = self.loaded_from
        settings = dict(checkpoint_origin.get("settings") or {})
        if not is_best:
            settings["TEST.FINAL_MODEL"] = "last_step"
        self.recorded, self.overridden = origin.follow_training(
            self.cfg, settings, self.section, self.chosen_in_evaluation()
        )
        if self.overridden:
            then = protocol.settings_of(self.recorded)
            shown = ", ".join(f"{key} {then[key]} (not {now})" for key, now in self.overridden.items())
            print(f"The results state the checkpoint's training settings, not this configuration's: {shown}")
        self.set_seed(checkpoint_origin.get("seed", self.seed))
        self.training_facts = {
            **origin.training_facts(checkpoint_origin.get("protocol") or {}, self.protocol),
            "model_selection": self.recorded.TEST.FINAL_MODEL,
        }

    def chosen_in_evaluation(self) -> set[str]:
        """Return the training keys for which an evaluation uses its own values."""
        # The template of the uniform ensemble takes no part in training.
        chosen = self.hand_crafted is not None and not self.trains_with_template
        return {f"TRAINER.{self.section}.TEMPLATE"} if chosen else set()

    def adopt_settings(self, settings: Mapping[str, Any]) -> None:
        """Adopt the training settings of a checkpoint that an evaluation depends on."""
        node = self.settings.clone()
        node.defrost()
        for key in taken_from_checkpoint(self.section, self.trains_with_template):
            trained_with = settings.get(f"TRAINER.{self.section}.{key}", node[key])
            if trained_with != node[key]:
                print(f"{key} is {trained_with!r} as in training; the configuration's {node[key]!r} is not used")
                node[key] = trained_with
        if node != self.settings:
            self.trained_settings = node
            self.hand_crafted = self.make_hand_crafted()
            self.protocol["templates"] = list(self.templates())

    def resize_model(self, name: str, state: Mapping[str, Tensor]) -> None:
        """Resize a model to fit a checkpoint, before it is loaded."""

    def unused_keys(self, state: Mapping[str, Tensor]) -> tuple[str, ...]:
        """Return the prefixes of keys in other projects' checkpoints that this trainer ignores."""
        return checkpoints.dead_in_kgcoop(state)

    def load_initial_weights(self, name: str, path: str) -> None:
        """Start a model from the checkpoint that MODEL.INIT_WEIGHTS names."""
        checkpoint_origin = self._load_weights(name, checkpoints.load(path), Path(path))
        origin.check_partition(checkpoint_origin, self.cfg.DATASET, Path(path))
        print(f'Starting {name} from "{path}"')

    def _load_weights(self, name: str, content: dict[str, Any], path: Path) -> dict[str, Any]:
        """Load a checkpoint into a model; return the origin of the checkpoint, empty if it has none."""
        state, checkpoint_origin = checkpoints.weights_of(content, path), origin.origin_of(content, path)
        origin.refuse_untrained(checkpoint_origin, path)
        origin.check_weights(
            checkpoint_origin, self.describe_origin(), state, self._models[name], self.classnames, path
        )
        self.resize_model(name, state)
        for note in checkpoints.load_into(self._models[name], state, str(path), self.unused_keys(state)):
            print(f"Note: {note}")
        return checkpoint_origin
