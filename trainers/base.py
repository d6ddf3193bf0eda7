"""What every trainer of this project shares: the frozen CLIP, the order of the data, steps, evaluation, results.

A method overrides `build_prompts`, `text_features` and `compute_loss`. Everything here works on Dassl's public
interface, and so on real Dassl, on its forks, and on the fallback alike.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from dassl.data import DataManager
from dassl.data.transforms import build_transform
from dassl.optim import build_optimizer
from dassl.utils import set_random_seed
from torch import Tensor, nn
from yacs.config import CfgNode

from cocoamix import calibration, images
from cocoamix.calibration import Predictions
from cocoamix.clip import FrozenCLIP, load_clip
from cocoamix.clip.precision import make_scaler
from cocoamix.clip.several import SeveralCLIPs
from cocoamix.errors import UserError
from cocoamix.files import write_json
from cocoamix.mixture import find_owners
from cocoamix.registry import plain_name
from cocoamix.schedules import build_schedule

from . import config, protocol
from .frozen import FrozenTrainer
from .saving import seed_of_run

RESULTS = "results.json"


class CLIPTrainer(FrozenTrainer):
    """A trainer on a frozen CLIP."""

    section = "COOP"  # the trainer's node under cfg.TRAINER
    backbones: list[FrozenCLIP]  # where there are several

    def __init__(self, cfg: CfgNode) -> None:
        super().__init__(config.complete(cfg))

    # ------------------------------------------------------------------ what a method defines

    def build_prompts(self) -> None:
        """Build what is trained and register it. A zero-shot method registers nothing."""

    def text_features(self) -> Tensor:
        """Return the (C, embedding) unit vectors of the current classes, with gradients if there are any."""
        raise NotImplementedError(f"{type(self).__name__} defines no text_features")

    def compute_loss(self, image_features: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Return the terms of the loss, the total under "loss", and the (B, C) logits."""
        raise UserError(f"The trainer {type(self).__name__} has nothing to train. Add --eval-only.")

    def templates(self) -> Sequence[str]:
        """Return the hand-crafted templates that the result depends on."""
        return []

    # ------------------------------------------------------------------ building

    @property
    def settings(self) -> CfgNode:
        """The trainer's own node of the configuration."""
        return self.cfg.TRAINER[self.section]

    def check_cfg(self, cfg: CfgNode) -> None:
        config.check_common(cfg)
        config.check_prompt(self.section, cfg.TRAINER[self.section])

    def build_data_loader(self) -> None:
        """Build the loaders, with our reading of pictures: see `cocoamix.images`."""
        self.unreadable = {}
        seed = self._choose_seed()
        try:
            train, test = (build_transform(self.cfg, is_train=is_train) for is_train in (True, False))
        except UserError:
            raise
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"The transforms cannot be built from INPUT.*: {error}.") from error
        self.declare_views()
        fixed = self.cfg.CACHE.VIEWS == 1
        manager = DataManager(self.cfg, test if fixed else train, test, dataset_wrapper=images.ImageItems)
        if len(manager.dataset.classnames) != manager.num_classes:
            raise UserError(
                f"The labels of {self.cfg.DATASET.NAME} run to {manager.num_classes - 1}, but only "
                f"{len(manager.dataset.classnames)} classes have training images. Every class needs at least one."
            )
        self.dm = manager
        self.train_loader_x = manager.train_loader_x
        self.train_loader_u = manager.train_loader_u
        self.val_loader = manager.val_loader
        self.test_loader = manager.test_loader
        self.num_classes = manager.num_classes
        self.num_source_domains = manager.num_source_domains
        self.lab2cname = manager.lab2cname
        for loader in (self.train_loader_x, self.val_loader, self.test_loader):
            if loader is not None:
                loader.collate_fn = images.collate
        cast(images.ImageItems, self.train_loader_x.dataset).is_random = not fixed
        self._take_seed(seed)
        if self.cfg.TEST.FINAL_MODEL == "best_val" and self.val_loader is None:
            raise UserError(
                "TEST.FINAL_MODEL is best_val, but the dataset has no validation images, "
                "and choosing a model on test images would spoil the result. Use last_step."
            )

    def _choose_seed(self) -> int:
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

    def build_model(self) -> None:
        clip = self.clip = self.load_backbone()
        self.scaler = make_scaler(clip.precision, self.device)
        self.trained_classes = self.classnames
        self.protocol = self.describe_protocol()
        self.open_store()
        self.build_prompts()
        print(f"Trained parameters: {self.trained_parameters():,}")
        print(f"Protocol fingerprint: {protocol.fingerprint(self.protocol)}")

    def describe_protocol(self) -> dict[str, Any]:
        """Return what has to agree before two results may be compared."""
        return protocol.describe_protocol(self.cfg, self.clip, self.dm.dataset, self.templates())

    def load_backbone(self) -> FrozenCLIP:
        """Load what MODEL.BACKBONE names. A method with several models overrides this."""
        return self.load_clip(self.cfg.MODEL.BACKBONE.NAME, self.cfg.MODEL.BACKBONE.WEIGHTS)

    def load_several(self) -> FrozenCLIP:
        """Load what BACKBONES of the trainer's node lists, or the one that MODEL.BACKBONE names, as one."""
        names = list(self.settings.BACKBONES) or [self.cfg.MODEL.BACKBONE.NAME]
        files = list(self.settings.BACKBONE_WEIGHTS)
        if not files:
            files = [self.cfg.MODEL.BACKBONE.WEIGHTS] if len(names) == 1 else [""] * len(names)
        self.backbones = [self.load_clip(name, file) for name, file in zip(names, files, strict=True)]
        # It has the face of one model wherever a trainer looks.
        return cast(FrozenCLIP, SeveralCLIPs(self.backbones))

    def load_clip(self, name: str, weights: str) -> FrozenCLIP:
        """Load one CLIP and say how it runs."""
        print(f"Loading CLIP (backbone: {name})")
        backbone = self.cfg.MODEL.BACKBONE
        clip = load_clip(name, weights, backbone.SOURCE, self.settings.PREC, self.device, backbone.ACTIVATION)
        clip.text.at_once = 0 if backbone.TEXT_CHUNK == "auto" else backbone.TEXT_CHUNK
        print(
            f"CLIP runs through {clip.source} in {clip.precision} on {self.device}, weights {clip.weights_hash[:16]}"
            + (" (RANDOM: the results mean nothing)" if weights == "random" else "")
        )
        if tuple(self.cfg.INPUT.SIZE) != (clip.sizes.resolution,) * 2:
            raise UserError(
                f"INPUT.SIZE is {tuple(self.cfg.INPUT.SIZE)}, but {clip.name} reads "
                f"{clip.sizes.resolution} x {clip.sizes.resolution} pictures."
            )
        return clip

    def register(self, name: str, model: nn.Module, optim: CfgNode) -> None:
        """Register a module to train, with an optimizer and a schedule of its own."""
        try:
            optimizer = build_optimizer(model, optim)
        except UserError:
            raise
        except (TypeError, ValueError) as error:
            raise UserError(f"The optimizer {optim.NAME} cannot be built from OPTIM.*: {error}.") from error
        self.register_model(name, model, optimizer, build_schedule(optimizer, optim))

    def trained_parameters(self) -> int:
        return sum(p.numel() for model in self._models.values() for p in model.parameters() if p.requires_grad)

    # ------------------------------------------------------------------ training

    def train(self) -> None:  # type: ignore[override]
        """Go through the epochs by Dassl's hooks. Unlike in Dassl's own loop, a hook may change `max_epoch`."""
        self.before_train()
        epoch = self.start_epoch
        while epoch < self.max_epoch:
            self.epoch = epoch
            self.before_epoch()
            self.run_epoch()
            self.after_epoch()
            epoch += 1
        self.after_train()

    def before_epoch(self) -> None:
        """Seed the epoch, so that it is the same whatever came before: a resume, a test, another run."""
        super().before_epoch()
        set_random_seed(images.derive_seed(self.seed, "epoch", self.epoch))
        self.show_epoch()
        redraw = getattr(self.train_loader_x.sampler, "redraw", None)
        if redraw is not None:  # a sampler that draws ahead did so before the seed
            redraw()

    def forward_backward(self, batch: dict[str, Any]) -> dict[str, float] | None:
        """Do one step and return its numbers for the log."""
        inputs, labels = self.parse_batch_train(batch)
        summary = self._step(inputs, labels) if len(labels) else None
        if self.batch_idx + 1 == self.num_batches:
            self.update_lr()
        return summary

    def _step(self, inputs: Tensor, labels: Tensor) -> dict[str, float]:
        terms, logits = self.compute_loss(self.encode(inputs), labels)
        self.model_zero_grad()
        self.backward(terms)
        optimizers = [optimizer for optimizer in self._optims.values() if optimizer is not None]
        if self.scaler is None:
            for optimizer in optimizers:
                optimizer.step()
        else:
            for optimizer in optimizers:
                if any(p.grad is not None for group in optimizer.param_groups for p in group["params"]):
                    self.scaler.step(optimizer)  # which refuses an optimizer without gradients
            self.scaler.update()
        accuracy = (logits.detach().argmax(dim=1) == labels).float().mean() * 100
        values = torch.stack([value.detach().float() for value in (*terms.values(), accuracy)]).tolist()
        summary = dict(zip((*terms, "acc"), values, strict=True))
        self._check_finite(summary)
        return summary

    def backward(self, terms: dict[str, Tensor]) -> None:
        """Leave the gradients of a step in the parameters. A method that edits gradients overrides this."""
        self.scaled(terms["loss"]).backward()

    def scaled(self, loss: Tensor) -> Tensor:
        """Return a loss as it goes into the backward pass."""
        return loss if self.scaler is None else self.scaler.scale(loss)

    def _check_finite(self, summary: dict[str, float]) -> None:
        bad = [name for name, value in summary.items() if not math.isfinite(value)]
        if bad:
            # The total is infinite whenever a term is: name the term.
            term = next((name for name in bad if name != "loss"), "loss")
            raise UserError(
                f"The loss is not finite: {term} is {summary[term]} at epoch {self.epoch + 1}, "
                f"batch {self.batch_idx + 1} of {self.num_batches} (learning rate {self.get_current_lr():.2e}). "
                f"Nothing was saved since the last whole epoch. Try a smaller OPTIM.LR, or "
                f"TRAINER.{self.section}.PREC fp32 (now {self.clip.precision})."
            )

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
        parts: list[Predictions] = []
        for inputs, labels in self.test_batches(name):
            logits = self.model_inference(inputs)
            if not torch.isfinite(logits).all():
                raise UserError(f"The logits of the {name} set are not finite: the model has diverged.")
            self.evaluator.process(logits, labels)
            parts.append(calibration.predict(logits, labels))
        if self.unreadable:
            print(f"{len(self.unreadable)} unreadable image(s) were left out so far")
        results: dict[str, float] = self.evaluator.evaluate()
        predictions = calibration.join(parts)
        results.update(self.tell(calibration.confidence_metrics(predictions)))
        results.update(self._inside_all(predictions))
        for key, value in results.items():
            self.write_scalar(f"{name}/{key}", value, self.epoch)
        if split is None:
            self._write_results(name, results, time.monotonic() - start)
        return next(iter(results.values()))

    def tell(self, metrics: dict[str, float]) -> dict[str, float]:
        """Print measures of confidence as CoOp's evaluator prints its own, and return them."""
        for key, value in metrics.items():
            print(f"* {key}: {value:.4f}" if key == "nll" else f"* {key}: {value:.2f}%")
        return metrics

    def _inside_all(self, predictions: Predictions) -> dict[str, float]:
        """Where trained and other classes share a label space, return how they fare in it.

        That is the accuracy on each, their harmonic mean, and the AUROC of telling them apart by confidence: the
        percentage of pairs in which the image of a trained class has the higher one.
        """
        owned = find_owners(self.classnames, [self.trained_classes]) > 0
        trained = owned[predictions.labels]
        sides = [predictions.correct[side] for side in (trained, ~trained)]
        if not all(map(len, sides)):
            return {}
        base, new = (100 * int(side.sum()) / len(side) for side in sides)
        mean = 2 * base * new / (base + new) if base + new else 0.0
        print(f"* inside all classes: base {base:.2f}%, new {new:.2f}%, H {mean:.2f}%")
        told = {"base_accuracy": base, "new_accuracy": new, "harmonic_mean": mean}
        confidence = predictions.confidence
        return told | self.tell({"auroc": 100 * calibration.auroc(confidence[trained], confidence[~trained])})

    def before_test(self) -> None:
        """Compute what an evaluation uses for every batch."""
        self._evaluated_features = self.text_features()

    def model_inference(self, inputs: Tensor) -> Tensor:
        """Return the (B, C) logits of pictures or their features, by the text features of the running evaluation."""
        return self.class_logits(self.encode(inputs))

    def class_logits(self, image_features: Tensor) -> Tensor:
        """Return the (B, C) logits of the learned prompt in the running evaluation."""
        return self.logits(image_features, self._evaluated_features)

    def logits(self, image_features: Tensor, text_features: Tensor) -> Tensor:
        """Return exp(logit_scale) x cosine similarity, in fp32."""
        return self.clip.logit_scale * image_features @ text_features.t()

    def evaluated_protocol(self) -> dict[str, Any]:
        """Return the protocol of the running evaluation. For methods that add to it what holds there alone."""
        return self.protocol

    def _write_results(self, split: str, metrics: dict[str, float], seconds: float) -> None:
        items = self.evaluated_items(split)
        path = Path(self.output_dir) / RESULTS
        self._keep_other_results(path, split)
        write_json(
            path,
            {
                "trainer": self.cfg.TRAINER.NAME,
                "dataset": plain_name(self.cfg.DATASET.NAME),
                "subset": self.cfg.DATASET.SUBSAMPLE_CLASSES,
                "split": split,
                "seed": self.seed,
                "shots": self.cfg.DATASET.NUM_SHOTS,
                "metrics": {key: float(value) for key, value in metrics.items()},
                "classes": self.num_classes,
                "train_images": self.count_training_images(),
                "evaluated_images": len(items) - len(self.unreadable.keys() & {item.impath for item in items}),
                "unreadable_images": len(self.unreadable),
                "trained_parameters": self.trained_parameters(),
                "epoch": self.trained_epochs,
                "evaluation_seconds": round(seconds, 3),
                "fingerprint": protocol.fingerprint(self.evaluated_protocol()),
                "protocol": self.evaluated_protocol(),
                "config": protocol.plain(self.cfg),
                "versions": protocol.versions(self.clip.source),
                **self.more_results(),
            },
        )
        print(f"Results written to {path}")

    def evaluated_items(self, split: str) -> Sequence[Any]:
        """Return the items that an evaluation goes through."""
        return self.dm.dataset.val if split == "val" else self.dm.dataset.test

    def count_training_images(self) -> int:
        """Return how many images the method was given to train on."""
        return len(self.dm.dataset.train_x)

    def more_results(self) -> dict[str, Any]:
        """Return what a method adds to results.json. For subclasses."""
        return {}

    def _keep_other_results(self, path: Path, split: str) -> None:
        """Move results of another evaluation in the same folder aside, as the log of an earlier run is kept."""
        if not path.is_file():
            return
        try:
            old = json.loads(path.read_text(encoding="utf-8"))
            same = (old["trainer"], old["seed"], old["fingerprint"], old["split"]) == (
                self.cfg.TRAINER.NAME,
                self.seed,
                protocol.fingerprint(self.evaluated_protocol()),
                split,
            )
        except (ValueError, KeyError, TypeError):
            same = False
        if not same:
            stamp, number = time.strftime("%Y-%m-%d-%H-%M-%S"), 1
            kept = path.with_name(f"{RESULTS}-{stamp}")
            while kept.exists():
                number += 1
                kept = path.with_name(f"{RESULTS}-{stamp}-{number}")
            path.rename(kept)
            print(f"Results of another evaluation are kept as {kept.name}")
