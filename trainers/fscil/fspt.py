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

from cocoamix.clip import FrozenCLIP
from cocoamix.errors import UserError
from cocoamix.features.images import UNREADABLE, ImageItems
from cocoamix.fscil.episodes import EpisodeSampler, EpisodeSize
from cocoamix.fscil.model import SessionModel, SessionTask
from cocoamix.io import checkpoints
from cocoamix.model import Phase
from cocoamix.prompts.fast_slow import FastSlowPromptLearner
from cocoamix.registry import register
from cocoamix.seeding import derive_seed

from ..coop import CoOpModel
from .loop import SessionTrainer


class FSPTModel(SessionModel, CoOpModel):
    """Meta-learns two contexts.

    An outer step first takes one gradient step of the fast context per support image (the inner loop), then one step of
    both contexts on the query. A block of outer steps counts as an epoch.
    """

    section = "FSPT"
    ensembles = ()
    chooses_classes = continues = True
    title = "FSPT-FSCIL"

    def __init__(self, clip: FrozenCLIP, task: SessionTask, settings: CfgNode, seed: int) -> None:
        super().__init__(clip, task, settings, seed)
        shots, steps = settings.K_SHOTS, settings.OUTER_STEPS
        if task.session:
            shots, steps = settings.LATER_SHOTS, settings.LATER_STEPS
        size = EpisodeSize(settings.N_WAYS, shots, settings.QUERY_SHOTS, settings.OUTER_BATCH)
        self.episodes = EpisodeSampler(task.labels, size, task.session, steps, settings.BLOCK_STEPS)
        self.start_from_previous_session()

    @classmethod
    def check(cls, cfg: CfgNode) -> None:
        if cfg.FSCIL.BASE_BATCH_SIZE:
            raise UserError(
                f"FSCIL.BASE_BATCH_SIZE is {cfg.FSCIL.BASE_BATCH_SIZE}, but FSPT-FSCIL trains on episodes, not on "
                "batches: leave it at 0 and set TRAINER.FSPT.OUTER_BATCH."
            )

    @classmethod
    def most_epochs(cls, cfg: CfgNode) -> int:
        settings = cfg.TRAINER.FSPT
        return int(-(-max(settings.OUTER_STEPS, settings.LATER_STEPS) // settings.BLOCK_STEPS))

    def make_learner(self, classnames: Sequence[str]) -> FastSlowPromptLearner:
        settings = self.settings
        return FastSlowPromptLearner(
            self.clip,
            classnames,
            settings.N_CTX,
            settings.F_N_CTX,
            settings.CLASS_TOKEN_POSITION,
            derive_seed(self.seed, "context"),
        )

    def phases(self, optim: CfgNode, steps: int) -> list[Phase]:
        own = optim.clone()  # with a schedule as long as the session
        own.defrost()
        own.MAX_EPOCH = self.episodes.blocks
        return [Phase("train", own.MAX_EPOCH, {self.folder: own})]

    def adapt(self, features: Tensor, labels: Tensor, scaler: Any | None = None) -> None:
        """Take one gradient step of the fast context per image. The steps are not undone after the query.

        Args:
            features: Features of the support images.
            labels: Their labels.
            scaler: The loss scaler of mixed precision.
        """
        fast, rate = self.learner.fast_ctx, self.settings.INNER_LR
        scale = 1.0 if scaler is None else float(scaler.get_scale())
        for feature, label in zip(features.split(1), labels.split(1), strict=True):
            loss = F.cross_entropy(self.logits(feature, self.text()), label)
            (gradient,) = torch.autograd.grad(scale * loss, fast)
            if scaler is None or bool(torch.isfinite(gradient).all()):
                with torch.no_grad():
                    fast.sub_(rate / scale * gradient)

    def vectors(self, session: int, names: Sequence[str]) -> Tensor:
        learner = self.make_learner(list(names) or self.seen(session))
        checkpoints.load_into(learner, self.task.learned[session][self.main_part], f"session {session}")
        return self.clip.encode_prompts(learner())


@register(TRAINER_REGISTRY)
class FSPTFSCIL(SessionTrainer):
    """Trains `FSPTModel`: each batch is an episode, the support first, then the query."""

    Model = FSPTModel
    model: FSPTModel

    def begin_phase(self) -> None:
        super().begin_phase()
        loader, self.model.episodes.seed = self.train_loader_x, self.seed
        self.train_loader_x = DataLoader(
            loader.dataset,
            batch_sampler=self.model.episodes,
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn,
        )
        self.images.use(self.train_loader_x)

    def before_epoch(self) -> None:
        self.model.episodes.block = self.epoch
        super().before_epoch()

    def forward_backward(self, batch: dict[str, Any]) -> dict[str, float] | None:
        inputs, labels = self.parse_batch_train(batch)
        summary = None
        if len(labels):
            features, support = self.read(inputs), self._count_support(batch)
            self.model.adapt(features[:support], labels[:support], self.optimisation.scaler)
            if not torch.isfinite(self.model.learner.fast_ctx).all():
                raise self.images.fault(inputs, self.classnames) or self._inner_diverged()
            if support < len(labels):
                summary = self.take_step(features[support:], labels[support:])
        if self.batch_idx + 1 == self.num_batches:
            self.update_lr()
        return summary

    def _count_support(self, batch: Mapping[str, Any]) -> int:
        """Return the number of readable support images, which come first in a batch."""
        items = cast(ImageItems, self.train_loader_x.dataset).items
        unreadable = {path for path, _ in batch[UNREADABLE]}
        support = self.model.episodes.draw(self.model.episodes.numbers[self.batch_idx]).support
        return sum(items[index].impath not in unreadable for index in support)

    def _inner_diverged(self) -> UserError:
        return UserError(
            f"The fast context is not finite after the inner loop of outer step "
            f"{self.model.episodes.numbers[self.batch_idx] + 1} in session {self.session}. Nothing was saved after the "
            f"last complete block of steps. Try a smaller TRAINER.FSPT.INNER_LR (now {self.model.settings.INNER_LR})."
        )
