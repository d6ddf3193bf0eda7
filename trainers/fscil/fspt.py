"""FSPT-FSCIL (Ran et al.): a slow and a fast context, meta-learned on episodes drawn from a session's images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor
from torch.utils.data import DataLoader
from yacs.config import CfgNode

from cocoamix.errors import UserError
from cocoamix.features.images import UNREADABLE, ImageItems
from cocoamix.fscil.episodes import EpisodeSampler, EpisodeSize
from cocoamix.io import checkpoints
from cocoamix.prompts.fast_slow import FastSlowPromptLearner
from cocoamix.registry import register
from cocoamix.seeding import derive_seed

from ..coop import CoOp
from .loop import SessionTrainer


@register(TRAINER_REGISTRY)
class FSPTFSCIL(SessionTrainer, CoOp):
    """Meta-learns two contexts.

    An outer step first takes one gradient step of the fast context per support image (the inner loop), then one step of
    both contexts on the query. A block of outer steps counts as an epoch.
    """

    section = "FSPT"
    ensembles = ()
    chooses_classes = True
    prompt_learner: FastSlowPromptLearner
    episodes: EpisodeSampler

    def title(self) -> str:
        return "FSPT-FSCIL"

    def check_cfg(self, cfg: CfgNode) -> None:
        super().check_cfg(cfg)
        if cfg.FSCIL.BASE_BATCH_SIZE:
            raise UserError(
                f"FSCIL.BASE_BATCH_SIZE is {cfg.FSCIL.BASE_BATCH_SIZE}, but FSPT-FSCIL trains on episodes, not on "
                "batches: leave it at 0 and set TRAINER.FSPT.OUTER_BATCH."
            )

    # ------------------------------------------------------------------ the episodes of a session

    def training_loader(self) -> DataLoader[Any]:
        """Return a loader whose batches are episodes."""
        loader, settings = super().training_loader(), self.settings
        items = cast(ImageItems, loader.dataset)
        shots, steps = settings.K_SHOTS, settings.OUTER_STEPS
        if self.session:
            shots, steps = settings.LATER_SHOTS, settings.LATER_STEPS
        size = EpisodeSize(settings.N_WAYS, shots, settings.QUERY_SHOTS, settings.OUTER_BATCH)
        labels = [item.label for item in items.items]
        self.episodes = EpisodeSampler(labels, size, self.session, steps, settings.BLOCK_STEPS)
        return DataLoader(
            items, batch_sampler=self.episodes, num_workers=loader.num_workers, collate_fn=loader.collate_fn
        )

    def encoding_batch_size(self) -> int:
        """Return the batch size of other methods, so that they can share stored features."""
        return self.default_batch_size()

    def epoch_limit(self) -> int:
        settings = self.settings
        return -(-max(settings.OUTER_STEPS, settings.LATER_STEPS) // settings.BLOCK_STEPS)

    # ------------------------------------------------------------------ both contexts

    def build_prompts(self) -> None:
        self.max_epoch = self.episodes.blocks
        super().build_prompts()
        self.start_from_previous_session()

    def optim_settings(self) -> CfgNode:
        """Return OPTIM with a schedule as long as the session."""
        optim = self.cfg.OPTIM.clone()
        optim.defrost()
        optim.MAX_EPOCH = self.max_epoch
        return optim

    def make_learner(self, names: Sequence[str] = ()) -> FastSlowPromptLearner:
        settings = self.settings
        return FastSlowPromptLearner(
            self.clip,
            list(names) or self.classnames,
            settings.N_CTX,
            settings.F_N_CTX,
            settings.CLASS_TOKEN_POSITION,
            derive_seed(self.seed, "context"),
        )

    def classifier(self, session: int, names: Sequence[str] = ()) -> Tensor:
        learner = self.make_learner(list(names) or self.seen_classes(session))
        checkpoints.load_into(learner, self.session_models[session][self.main_model], f"session {session}")
        return self.clip.encode_prompts(learner())

    # ------------------------------------------------------------------ an outer step

    def before_epoch(self) -> None:
        super().before_epoch()
        self.episodes.seed, self.episodes.block = self.seed, self.epoch

    def forward_backward(self, batch: dict[str, Any]) -> dict[str, float] | None:
        inputs, labels = self.parse_batch_train(batch)
        summary = None
        if len(labels):
            features, support = self.encode(inputs), self._count_support(batch)
            self.adapt(features[:support], labels[:support])
            if not torch.isfinite(self.prompt_learner.fast_ctx).all():
                raise self.cause_in_clip(inputs) or self._inner_diverged()
            if support < len(labels):
                summary = self.take_step(features[support:], labels[support:])
        if self.batch_idx + 1 == self.num_batches:
            self.update_lr()
        return summary

    def _count_support(self, batch: Mapping[str, Any]) -> int:
        """Return the number of readable support images, which come first in a batch."""
        items = cast(ImageItems, self.train_loader_x.dataset).items
        unreadable = {path for path, _ in batch[UNREADABLE]}
        support = self.episodes.draw(self.episodes.numbers[self.batch_idx]).support
        return sum(items[index].impath not in unreadable for index in support)

    def adapt(self, features: Tensor, labels: Tensor) -> None:
        """Take one gradient step of the fast context per image. The steps are not undone after the query."""
        fast, rate = self.prompt_learner.fast_ctx, self.settings.INNER_LR
        scale = 1.0 if self.scaler is None else float(self.scaler.get_scale())
        for feature, label in zip(features.split(1), labels.split(1), strict=True):
            loss = F.cross_entropy(self.logits(feature, self.text_features()), label)
            (gradient,) = torch.autograd.grad(scale * loss, fast)
            if self.scaler is None or bool(torch.isfinite(gradient).all()):
                with torch.no_grad():
                    fast.sub_(rate / scale * gradient)

    def _inner_diverged(self) -> UserError:
        return UserError(
            f"The fast context is not finite after the inner loop of outer step "
            f"{self.episodes.numbers[self.batch_idx] + 1} in session {self.session}. Nothing was saved after the last "
            f"complete block of steps. Try a smaller TRAINER.FSPT.INNER_LR (now {self.settings.INNER_LR})."
        )
