"""What every trainer of this project is: a method on a frozen CLIP, holding the parts of a run.

A method overrides `build_prompts`, `text_features` and `compute_loss`. The parts (checkpointer, source of image
features, hand-crafted prompt) are small classes of `cocoamix.run`, `cocoamix.features` and `cocoamix.prompts`.
Everything here works on Dassl's public interface, and so on real Dassl, on its forks, and on the fallback alike.
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
from cocoamix.errors import UserError
from cocoamix.features.images import ImageItems
from cocoamix.features.source import ImageSource, StoreSettings
from cocoamix.features.unreadable import Unreadable
from cocoamix.io import checkpoints
from cocoamix.io.files import check_still_there
from cocoamix.prompts.hand_crafted import HandCraftedPrompt
from cocoamix.registry import plain_name
from cocoamix.run import origin, protocol
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
from cocoamix.run.evaluation import Evaluation, NotFiniteError, among_all
from cocoamix.run.loaders import build_manager, loader_over
from cocoamix.run.movement import FirstMoves
from cocoamix.run.optimisation import diverged, make_optimizer, step
from cocoamix.run.parameter_groups import refuse_left_out
from cocoamix.run.predictions import PredictionsFile, paths_at
from cocoamix.run.results import RESULTS, Results
from cocoamix.seeding import derive_seed


class CLIPTrainer(TrainerX):
    """A trainer on a frozen CLIP."""

    section = "COOP"  # the trainer's node under cfg.TRAINER
    reads_section = True  # False for zero-shot methods, which CoOp runs with the configuration of any method
    ensembles: tuple[str, ...] = ()  # values of ENSEMBLE that a method offers; none where it has no such key
    templates_of = ""  # the method whose templates for the datasets it takes; by default CoOp's
    trains_with_template = False  # True where the loss needs the hand-crafted prompt, not the evaluation alone
    frozen_images = True  # False for a method that tunes the image side: it encodes images in every step
    raw_images = False  # True for a method that needs the length of image features, not unit vectors

    cfg: CfgNode
    clip: AnyCLIP
    checkpointer: Checkpointer
    images: ImageSource
    hand_crafted: HandCraftedPrompt | None = None
    unreadable: Unreadable
    scaler: Any | None = None
    protocol: dict[str, Any]
    seed: int
    trained_epochs = 0  # what the current weights have seen
    trained_classes: list[str]  # and the classes they were trained on
    loaded_from: Mapping[str, Any] = MappingProxyType({})  # what a loaded checkpoint tells of its origin
    followed: CfgNode | None = None  # the settings of the run that a loaded checkpoint comes from
    recorded: CfgNode | None = None  # the configuration that results state, if not `cfg`
    overridden: Mapping[str, Any] = MappingProxyType({})  # what `cfg` says of training where a checkpoint differs
    training_facts: Mapping[str, Any] = MappingProxyType({})  # of the protocol, as a loaded checkpoint tells them

    def __init__(self, cfg: CfgNode) -> None:
        self._optim_cfgs: dict[str, CfgNode] = {}
        self.is_training = False  # whether optimizers are there
        super().__init__(keys.complete(cfg))

    # ------------------------------------------------------------------ what a method defines

    def build_prompts(self) -> None:
        """Build what is trained and register it. A zero-shot method registers nothing."""

    def text_features(self) -> Tensor:
        """Return the (C, embedding) unit vectors of the current classes, with gradients if there are any."""
        raise NotImplementedError(f"{type(self).__name__} defines no text_features")

    def compute_loss(self, image_features: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Return the terms of the loss, the total under "loss", and the (B, C) logits."""
        raise UserError(f"The trainer {type(self).__name__} has nothing to train. Add --eval-only.")

    def load_backbone(self) -> AnyCLIP:
        """Load what MODEL.BACKBONE names. A method with several models overrides this."""
        return load_one(self.cfg, self.settings.PREC, self.device)

    def make_hand_crafted(self) -> HandCraftedPrompt | None:
        """Return the hand-crafted prompt, if the method or its ensemble uses one."""
        if not self.ensembles or (not self.trains_with_template and self.settings.ENSEMBLE == "none"):
            return None
        return HandCraftedPrompt(self.clip, self.settings.TEMPLATE, self.cfg.DATASET.NAME, self.templates_of)

    def prepare_training(self) -> None:
        """Build what only training needs, beside optimizers."""

    # ------------------------------------------------------------------ building

    @property
    def settings(self) -> CfgNode:
        """The trainer's own node of the configuration, with what a loaded checkpoint was trained with."""
        return self.followed or self.cfg.TRAINER[self.section]

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
        """Build the loaders."""
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
        self.take_seed(seed)

    def choose_seed(self) -> int:
        """Return the config's seed. A run without one draws one and keeps it, so that it can be resumed."""
        if self.cfg.SEED >= 0:
            return int(self.cfg.SEED)
        seed = seed_of_run(self.output_dir)
        if seed is None and self.cfg.RESUME:
            seed = seed_of_run(self.cfg.RESUME)
        if seed is None:
            seed = random.SystemRandom().randrange(2**31)
        print(f"No seed is given; this run draws from {seed}")
        set_random_seed(seed)  # the few-shot draw comes next
        return seed

    def take_seed(self, seed: int) -> None:
        """Let the run and its images draw from this seed."""
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
        self.images = ImageSource(self.clip, self._store_settings(), self.unreadable, self.raw_images)
        self.build_prompts()
        if self._models and self.cfg.OPTIM.STAGED_LR:
            self.protocol["staged_lr"] = protocol.staged_rates(self.cfg.OPTIM)
        print(f"Trained parameters: {self.trained_parameters():,}")
        print(f"Protocol fingerprint: {protocol.fingerprint(self.protocol)}")

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
        """Return the hand-crafted templates that the result depends on."""
        return self.hand_crafted.templates if self.hand_crafted else []

    def describe_protocol(self) -> dict[str, Any]:
        """Return what has to agree before two results may be compared."""
        return protocol.describe_protocol(self.cfg, self.clip, self.dm.dataset, self.templates())

    def register(self, name: str, model: nn.Module, optim: CfgNode) -> None:
        """Register a module to train, with an optimizer and a schedule of its own, which are built for training."""
        self.register_model(name, model, None, None)
        self._optim_cfgs[name] = optim
        if self.is_training:
            self._build_optimizer(name)

    def forget(self, *names: str) -> None:
        """Take back what was registered; without names, everything."""
        for name in names or tuple(self._models):
            for registered in (self._models, self._optims, self._scheds, self._optim_cfgs):
                registered.pop(name, None)

    def _build_optimizer(self, name: str) -> None:
        self._optims[name], self._scheds[name] = make_optimizer(name, self._models[name], self._optim_cfgs[name])
        refuse_left_out(name, self._models[name], self._optims[name])

    def trained_parameters(self) -> int:
        return sum(p.numel() for model in self._models.values() for p in model.parameters() if p.requires_grad)

    def general_features(self) -> Tensor:
        """Return the (C, embedding) text features of the current classes under the hand-crafted prompt."""
        assert self.hand_crafted is not None, f"{type(self).__name__} has no hand-crafted prompt in this run"
        return self.hand_crafted.of(self.classnames)

    # ------------------------------------------------------------------ training

    def train(self) -> None:
        """Go through the epochs by Dassl's hooks. Unlike in Dassl's own loop, a hook may change `max_epoch`."""
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
        """Build what an evaluation does without: optimizers, the loss scaler, and what the method adds."""
        self.is_training = True
        self.scaler = make_scaler(self.clip.precision, self.device)
        self.prepare_training()
        if self.trains_with_template:
            self.general_features()  # now, so that the first step takes as long as the others
        for name in self._optim_cfgs:  # a method may have registered models with optimizers of its own
            self._build_optimizer(name)
        for name, model in self._models.items():
            refuse_left_out(name, model, self._optims[name])
        self._moves = FirstMoves()

    def before_train(self) -> None:
        super().before_train()
        # From the first moment on, so that a run is never resumed from checkpoints that tell only half of its state.
        if self._models:
            self._save_resume(self.trained_epochs)

    def before_epoch(self) -> None:
        """Seed the epoch, so that it is the same whatever came before: a resume, a test, another run."""
        super().before_epoch()
        set_random_seed(derive_seed(self.seed, "epoch", self.epoch))
        self._show_epoch()
        redraw = getattr(self.train_loader_x.sampler, "redraw", None)
        if redraw is not None:  # a sampler that draws ahead did so before the seed
            redraw()

    def after_epoch(self) -> None:
        self.trained_epochs = self.epoch + 1
        self.checkpointer.refuse_non_finite(self.trained_epochs, self.cfg.OPTIM.LR)  # before anything is reported
        if self.start_epoch == 0:  # at the end of a resumed run steps may be too small to move anything
            self._moves.refuse_stuck(self.trained_epochs)
        check_still_there(self.output_dir)
        super().after_epoch()
        self._save_resume(self.trained_epochs)

    def after_train(self) -> None:
        super().after_train()
        # Else the evaluation has written it, now or earlier.
        if self.cfg.TEST.NO_TEST and not Path(self.output_dir, RESULTS).exists():
            write_card(self.output_dir, self.describe_run())

    def forward_backward(self, batch: dict[str, Any]) -> dict[str, float] | None:
        """Do one step and return its numbers for the log."""
        inputs, labels = self.parse_batch_train(batch)
        summary = self.take_step(inputs, labels) if len(labels) else None
        if self.batch_idx + 1 == self.num_batches:
            self.update_lr()
        return summary

    def take_step(self, inputs: Tensor, labels: Tensor) -> dict[str, float]:
        terms, logits = self.compute_loss(self.encode(inputs), labels)
        self.model_zero_grad()
        self.backward(terms)
        self._moves.before_step(self._models, self._optims)
        step([optimizer for optimizer in self._optims.values() if optimizer is not None], self.scaler)
        self._moves.after_step(self._models, self._optims)
        accuracy = (logits.detach().argmax(dim=1) == labels).float().mean() * 100
        values = torch.stack([value.detach().float() for value in (*terms.values(), accuracy)]).tolist()
        summary = dict(zip((*terms, "acc"), values, strict=True))
        if not all(map(math.isfinite, summary.values())):
            raise self.cause_in_clip(inputs) or self._diverged(summary)
        return summary

    def cause_in_clip(self, inputs: Tensor) -> UserError | None:
        """Return what is wrong with the frozen model's own features, where a loss or logits are not finite."""
        for clip in self.clip.each():
            # Stored features are finite: see `cocoamix.features`.
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
        """Leave the gradients of a step in the parameters. A method that edits gradients overrides this."""
        self.scaled(terms["loss"]).backward()

    def scaled(self, loss: Tensor) -> Tensor:
        """Return a loss as it goes into the backward pass."""
        return loss if self.scaler is None else self.scaler.scale(loss)

    # ------------------------------------------------------------------ images

    def encode(self, inputs: Tensor) -> Tensor:
        """Return (B, embedding) features of a batch of images, or of features as they are."""
        return self.images.encode(inputs)

    def parse_batch_train(self, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        return self.images.read(batch, self.device)

    def parse_batch_test(self, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        return self.images.read(batch, self.device)

    def longest(self) -> int:
        """Return how many epochs a training has at most; 0 for OPTIM.MAX_EPOCH."""
        return 0

    def view_of(self, epoch: int) -> int:
        """Return which augmentation of its images an epoch shows."""
        views = protocol.views(self.cfg, self.longest())
        return epoch % views if views else epoch

    def count_views(self) -> int:
        """Return how many augmentations of its images a training shows."""
        return min(protocol.views(self.cfg, self.longest()) or self.max_epoch, self.max_epoch)

    def _declare_views(self) -> None:
        """Say where CACHE.VIEWS makes this another protocol than CoOp's."""
        views = protocol.views(self.cfg, self.longest())
        if views == 1:
            print("CACHE.VIEWS is 1, a CHANGE OF PROTOCOL: training images are one fixed centre crop, not augmented")
        elif views:
            print(f"CACHE.VIEWS is {views}, a CHANGE OF PROTOCOL: the epochs go through {views} augmentations in turn")

    def store_part(self, split: str) -> str:
        """Return the part of the feature store that the images of `train`, `val` or `test` are in."""
        if split != "train":
            return split
        random_views = cast(ImageItems, self.train_loader_x.dataset).is_random
        return f"train-seed{self.seed}" if random_views else "train"

    def encoded_together(self) -> int:
        """Return how many training images are encoded together for the store; 0 for a batch of the loader."""
        return 0

    def _show_epoch(self) -> None:
        """Give the training loader the images, or the features, of the present epoch."""
        view, last = self.view_of(self.epoch), self.count_views() - 1
        self.images.show(self.train_loader_x, view, last, self.store_part("train"), self.encoded_together())

    def batches_of(self, loader: DataLoader[Any], split: str) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the inputs and labels of the readable images of a loader over (a part of) `split`."""
        for inputs, labels, _ in self.images.batches(loader, split, self.device):
            yield inputs, labels

    def test_batches(self, split: str) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the inputs and labels of the readable images of `val` or `test`."""
        yield from self.batches_of(self._loader(split), split)

    @torch.no_grad()
    def training_features(self, most_views: int) -> tuple[Tensor, Tensor]:
        """Return features and labels of the training images in the last views that a training shows of them."""
        whole = cast(ImageItems, self.train_loader_x.dataset)
        loader = loader_over(self.cfg, self.train_loader_x, whole.items, train=False, seed=self.seed)
        items = cast(ImageItems, loader.dataset)
        items.is_random = whole.is_random
        end = self.count_views()
        parts: list[tuple[Tensor, Tensor]] = []
        for view in range(max(0, end - most_views), end):
            items.view, items.features = view, None
            batches = self.images.batches(loader, self.store_part("train"), self.device, self.encoded_together())
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
        """Evaluate, with the text features computed once. Without `split`, results.json is written."""
        self.set_model_mode("eval")
        self.evaluator.reset()
        name = split or self.cfg.TEST.SPLIT
        print(f"Evaluate on the *{name}* set")
        self.before_test()
        start = time.monotonic()
        evaluation = Evaluation(self.evaluator, f"of the {name} set")
        loader = self._loader(name)
        with self.predictions_file(split) as kept:
            for inputs, labels, indices in self.images.batches(loader, name, self.device):
                logits = self.model_inference(inputs)
                try:
                    evaluation.add(logits, labels)
                except NotFiniteError as error:
                    raise self.cause_in_clip(inputs) or error from None
                if kept is not None:
                    kept.add(logits, labels, paths_at(loader, indices))
            if kept is not None:
                kept.add_unreadable(loader, self.unreadable)
        if self.unreadable:
            print(f"{len(self.unreadable)} unreadable image(s) were left out so far")
        results = {**evaluation.accuracies(), **evaluation.confidence()}
        owned = find_owners(self.classnames, [self.trained_classes]) > 0
        results.update(among_all(evaluation.predictions, owned))
        for key, value in results.items():
            self.write_scalar(f"{name}/{key}", value, self.epoch)
        if split is None:
            self._write_results(name, results, time.monotonic() - start)
        return next(iter(results.values()))

    def predictions_file(self, split: str | None) -> AbstractContextManager[PredictionsFile | None]:
        """Return what keeps the predictions of an evaluation, where TEST.SAVE_PREDICTIONS asks for it.

        split: as `test` was given it; only an evaluation that writes results keeps its predictions.
        """
        if split is not None or not self.cfg.TEST.SAVE_PREDICTIONS:
            return nullcontext()
        return PredictionsFile(self.output_dir, self.evaluated_classes())

    def before_test(self) -> None:
        """Compute what an evaluation uses for every batch."""
        self._evaluated_features = self.text_features()
        if self.ensembles and self.settings.ENSEMBLE != "none":
            self.general_features()

    def model_inference(self, inputs: Tensor) -> Tensor:
        """Return the (B, C) logits of images or their features, by the text features of the running evaluation."""
        return self.feature_logits(self.encode(inputs))

    def feature_logits(self, features: Tensor) -> Tensor:
        """Return the (B, C) logits of image features in the running evaluation."""
        logits = self.class_logits(features)
        if self.ensembles and self.settings.ENSEMBLE == "uniform":
            return self.mix_uniformly(features, logits)
        return logits

    def vision_prompts(self) -> Sequence[Tensor]:
        """Return the learned tokens beside the patches, where the image side is tuned."""
        return ()

    def begin_inference(self) -> list[str]:
        """Prepare `infer`; return the classes of its label space."""
        self.set_model_mode("eval")
        self.before_test()
        return self.classnames

    def infer(self, features: Tensor) -> Tensor:
        """Return the (B, C) logits of image features, as an evaluation has them."""
        return self.feature_logits(features)

    def why_not_exported(self) -> str:
        """Return why `infer` cannot be written as matrices, as the end of a sentence; nothing where it can."""
        return ""

    def class_logits(self, image_features: Tensor) -> Tensor:
        """Return the (B, C) logits of the learned prompt in the running evaluation."""
        return self.logits(image_features, self._evaluated_features)

    def logits(self, image_features: Tensor, text_features: Tensor) -> Tensor:
        """Return exp(logit_scale) x cosine similarity, in fp32."""
        return self.clip.logit_scale * image_features @ text_features.t()

    def mix_uniformly(self, image_features: Tensor, logits: Tensor) -> Tensor:
        """Return the (B, C) logits of the mean of the learned and the hand-crafted prompt's similarities."""
        return mix_equally(logits, self.logits(image_features, self.general_features()))

    # ------------------------------------------------------------------ results

    def evaluated_protocol(self) -> dict[str, Any]:
        """Return the protocol of the running evaluation. For methods that add to it what holds there alone."""
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
        path = results.write(self.output_dir)
        write_card(self.output_dir, results)
        print(f"Results written to {path}")

    def describe_run(self) -> Results:
        """Return all of the results but what was measured."""
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
            train_images=self.count_training_images(),
            unreadable_images=len(self.unreadable),
            trained_parameters=self.trained_parameters(),
            epoch=self.trained_epochs,
            fingerprint=protocol.fingerprint(self.evaluated_protocol()),
            protocol=self.evaluated_protocol(),
            config=protocol.plain(cfg),
            versions=protocol.versions(self.clip.source),
            overridden=dict(self.overridden) or None,
        )
        return results.with_more(self.more_results())

    def evaluated_classes(self) -> list[str]:
        """Return the classes that an evaluation tells apart."""
        return self.classnames

    def evaluated_items(self, split: str) -> Sequence[Any]:
        """Return the items that an evaluation goes through."""
        return self.dm.dataset.val if split == "val" else self.dm.dataset.test

    def count_training_images(self) -> int | None:
        """Return how many images the method was given to train on; None where a loaded checkpoint does not tell."""
        if self.loaded_from:
            told = self.loaded_from.get("train_images")
            return told if isinstance(told, int) else None
        return len(self.dm.dataset.train_x)

    def more_results(self) -> dict[str, Any]:
        """Return the keys that a method adds to results.json (`cocoamix.run.results`), plain."""
        return {}

    # ------------------------------------------------------------------ saving and resuming

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
            "finished": self.trained_epochs >= self.max_epoch,
            "weights_file": self.cfg.MODEL.BACKBONE.WEIGHTS,
            "train_images": self.count_training_images(),
        }

    def training_settings(self) -> dict[str, Any]:
        """Return what a resumed run must share with the run that it resumes."""
        return protocol.training_settings(self.cfg, self.section)

    def saved_models(self) -> list[str]:
        """Return the models that have checkpoints. For methods that train others on the way."""
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
            directory, self.saved_models(), epoch + 1, self.provenance(), val_result, is_best, model_name
        )

    def resume_state(self, epochs: int) -> dict[str, Any]:
        """Return all that a run needs to resume. A method adds what it needs beside its models."""
        return {
            "epoch": epochs,
            **self.checkpointer.state(),
            "scaler": self.scaler.state_dict() if self.scaler is not None else None,
            # Every epoch seeds all generators from this number, so it restores them.
            "seed": self.seed,
            "best_result": float(self.best_result),
            "settings": self.training_settings(),
            "protocol": self.protocol,
            "unreadable": dict(self.unreadable),
        }

    def prepare_for(self, state: Mapping[str, Any]) -> None:
        """Build what a state to resume from has that is not there from the start."""

    def take_up(self, state: Mapping[str, Any]) -> None:
        """Take what a method added to `resume_state`."""

    def _save_resume(self, epochs: int) -> None:
        checkpoints.save(Path(self.output_dir, RESUME), self.resume_state(epochs))

    def resume_model_if_exist(self, directory: str) -> int:
        """Resume from the output folder if it holds a run, else from the folder that --resume names.

        In this order, so that a run that was resumed from elsewhere and is started again resumes from its own state.
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
                    self.checkpointer.copy_best(folder, Path(self.output_dir))
                    if done >= self.max_epoch:
                        self.save_model(done - 1, self.output_dir)
                elif len(folders) > 1:
                    print(f"--resume {directory} is not used: the output folder holds a later state of this run")
                return done
        if self.cfg.RESUME:
            raise UserError(f"--resume names {directory}, which holds neither {RESUME} nor checkpoints to go on from.")
        print("No checkpoint found, train from scratch")
        return 0

    def _resume_from(self, folder: Path) -> int | None:
        if (folder / RESUME).is_file():
            return self.resume_file(folder / RESUME)
        return self._resume_checkpoints(folder) if self.checkpointer.can_resume(folder) else None

    def _best_so_far(self) -> float:
        """The fallback asks for this after a resume; the resume file has already told."""
        return float(self.best_result)

    def resume_file(self, path: Path) -> int:
        """Resume from a resume file; return the number of epochs already done."""
        state = read_state(path)
        self.check_settings(path, state["settings"], state["protocol"])
        try:
            self.prepare_for(state)
            self.checkpointer.restore(state, path)
            if self.scaler is not None and state["scaler"]:
                self.scaler.load_state_dict(state["scaler"])
            self.take_seed(state["seed"])
            self.best_result = state["best_result"]
            self.unreadable.update(state["unreadable"])
            self.take_up(state)
        # Whatever an altered file makes of those who take their parts of it, it is the file that is wrong.
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise damaged(path, f"a part of it does not fit ({type(error).__name__})") from error
        return int(state["epoch"])

    def check_settings(self, path: Path, then: Mapping[str, Any], protocol_then: Mapping[str, Any]) -> None:
        """Refuse to resume a run of other settings."""
        origin.check_settings(path, then, self.training_settings(), protocol_then, self.protocol)

    def _resume_checkpoints(self, directory: Path) -> int:
        """Resume from checkpoints of CoOp's layout alone, such as Dassl's own: their schedules are stepped anew."""
        done, found = self.checkpointer.newest_files(directory)
        for name, (path, content) in found.items():
            told = self._load_weights(name, content, path)
            if told:
                self.check_settings(path, told.get("settings", {}), told.get("protocol", {}))
                self.take_seed(int(told.get("seed", self.seed)))
            self.checkpointer.step_schedule(name, self.epochs_of(name, done))
            if content.get("optimizer") and self._optims[name] is not None:
                self._optims[name].load_state_dict(content["optimizer"])
            self.take_up_origin(told, done)
        best = self.checkpointer.best_result(directory)
        self.best_result = self.best_result if best is None else best
        return done

    def epochs_of(self, name: str, done: int) -> int:
        """Return how many of the epochs that are done trained a model. For methods with stages."""
        return done

    def take_up_origin(self, told: Mapping[str, Any], done: int) -> None:
        """Take what a method added to `provenance`, of a checkpoint that training resumes from."""

    # ------------------------------------------------------------------ loading

    def load_model(self, directory: str, epoch: int | None = None) -> None:
        """Load trained weights for evaluation.

        epoch: that checkpoint; -1 the newest; None the best on validation, or the newest where none was chosen.
        """
        if self._models and not directory:
            raise UserError(
                f"--eval-only of {type(self).__name__} needs --model-dir, the output folder of a training run: "
                "untrained, it has no result."
            )
        is_best = True
        for name in self.get_model_names():
            path = checkpoint_path(Path(directory, name), epoch)
            content = checkpoints.load(path)
            origin.check_trainer(origin.origin_of(content, path), type(self).__name__, path)
            origin.check_partition(origin.origin_of(content, path), self.cfg.DATASET, path)
            self.loaded_from = told = self._load_weights(name, content, path)
            self.trained_classes = list(told.get("classnames") or self.trained_classes)
            self.follow(told.get("settings") or {})
            protocol.take_rates(self.protocol, told.get("protocol") or {})
            self.trained_epochs = checkpoints.epochs_of(content)
            is_best &= path.name == checkpoints.BEST
            print(f'Loading weights to {name} from "{path}" (epoch = {self.trained_epochs})')
            if not told.get("settings") and not self.is_training:
                print(
                    f"Note: {path} does not tell how it was trained: the results state the training settings of this "
                    "configuration."
                )
        if self.loaded_from:
            self._state_training(is_best)

    def _state_training(self, is_best: bool) -> None:
        """Let results state the settings that the loaded checkpoint was trained with, not those of this run.

        is_best: whether it is the best on validation.
        """
        told = self.loaded_from
        settings = dict(told.get("settings") or {})
        if not is_best:
            settings["TEST.FINAL_MODEL"] = "last_step"
        self.recorded, self.overridden = origin.follow_training(
            self.cfg, settings, self.section, self.chosen_in_evaluation()
        )
        if self.overridden:
            then = protocol.settings_of(self.recorded)
            shown = ", ".join(f"{key} {then[key]} (not {now})" for key, now in self.overridden.items())
            print(f"The results state the checkpoint's training settings, not this configuration's: {shown}")
        self.take_seed(told.get("seed", self.seed))
        self.training_facts = {
            **origin.training_facts(told.get("protocol") or {}, self.protocol),
            "model_selection": self.recorded.TEST.FINAL_MODEL,
        }

    def chosen_in_evaluation(self) -> set[str]:
        """Return the keys of training whose own value an evaluation uses."""
        # A template that took no part in training: that of the uniform ensemble.
        chosen = self.hand_crafted is not None and not self.trains_with_template
        return {f"TRAINER.{self.section}.TEMPLATE"} if chosen else set()

    def follow(self, settings: Mapping[str, Any]) -> None:
        """Evaluate with the settings that the checkpoint was trained with, where they matter."""
        node = self.settings.clone()
        node.defrost()
        for key in taken_from_checkpoint(self.section, self.trains_with_template):
            told = settings.get(f"TRAINER.{self.section}.{key}", node[key])
            if told != node[key]:
                print(f"{key} is {told!r} as in training; the configuration's {node[key]!r} is not used")
                node[key] = told
        if node != self.settings:
            self.followed = node
            self.hand_crafted = self.make_hand_crafted()
            self.protocol["templates"] = list(self.templates())

    def make_room(self, name: str, state: Mapping[str, Tensor]) -> None:
        """Change a model to the sizes of a checkpoint that is about to be loaded."""

    def dead_keys(self, state: Mapping[str, Tensor]) -> tuple[str, ...]:
        """Return the beginnings of keys that peers' checkpoints hold and nothing here uses."""
        return checkpoints.dead_in_kgcoop(state)

    def load_initial(self, name: str, path: str) -> None:
        """Start a model from the checkpoint that MODEL.INIT_WEIGHTS names."""
        told = self._load_weights(name, checkpoints.load(path), Path(path))
        origin.check_partition(told, self.cfg.DATASET, Path(path))
        print(f'Starting {name} from "{path}"')

    def _load_weights(self, name: str, content: dict[str, Any], path: Path) -> dict[str, Any]:
        """Load a checkpoint into a model; return what the checkpoint tells of its origin, if it is ours."""
        state, told = checkpoints.weights_of(content, path), origin.origin_of(content, path)
        origin.refuse_untrained(told, path)
        origin.check_weights(told, self.provenance(), state, self._models[name], self.classnames, path)
        self.make_room(name, state)
        for note in checkpoints.load_into(self._models[name], state, str(path), self.dead_keys(state)):
            print(f"Note: {note}")
        return told
