"""ProGrad, prompt-aligned gradient (Zhu et al., ICCV 2023): CoOp with gradients that keep zero-shot knowledge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor, nn
from yacs.config import CfgNode

from cocoamix.config import keys
from cocoamix.errors import UserError
from cocoamix.model import Losses
from cocoamix.registry import register
from cocoamix.trainer import CLIPTrainer

from .coop import CoOpModel


def project(task: Tensor, general: Tensor, strength: float) -> Tensor:
    """Subtract from `task` its component that opposes `general`, scaled by `strength`.

    Both are gradients of one parameter. If they do not conflict, or `general` is zero, the result is `task`. If either
    is not finite, neither is the result, so that a loss scaler skips the step.
    """
    # Divide by the largest entry first, because the squares of small gradients would underflow.
    peak = general.abs().max().clamp_min(torch.finfo(general.dtype).tiny)
    direction = F.normalize((general / peak).flatten(), dim=0).view_as(general)
    along = (task * direction).sum()
    return torch.where(along >= 0, task, task - strength * along * direction)


@dataclass
class ProjectedLosses(Losses):
    """Cross-entropy, whose gradient is projected by that of the term `kl`."""

    strength: float = 1.0
    parameters: list[nn.Parameter] = field(default_factory=list)

    def backward(self, scaled: Callable[[Tensor], Tensor] | None = None) -> None:
        total, divergence = (loss if scaled is None else scaled(loss) for loss in (self.total, self.terms["kl"]))
        task = torch.autograd.grad(total, self.parameters, retain_graph=True)
        general = torch.autograd.grad(divergence, self.parameters)
        for parameter, task_grad, general_grad in zip(self.parameters, task, general, strict=True):
            parameter.grad = project(task_grad, general_grad, self.strength)


class ProGradModel(CoOpModel):
    """CoOp whose gradient is projected if it conflicts with the gradient of the KL divergence to zero-shot CLIP."""

    templates_of = "ProGrad"
    trains_with_template = True

    @classmethod
    def settings_of(cls, cfg: CfgNode) -> CfgNode:
        settings = super().settings_of(cfg).clone()
        settings.defrost()
        settings.T, settings.LAMBDA = cfg.LOSS.T, cfg.LOSS.LAMBDA
        return settings

    @classmethod
    def check(cls, cfg: CfgNode) -> None:
        keys.check_below("LOSS", cfg.LOSS)

    def context(self) -> tuple[str, int]:
        """Return the initial words and N_CTX. CTX_INIT True or `template` takes the words of the template."""
        if self.settings.CTX_INIT not in (True, "template"):
            return str(self.settings.CTX_INIT or ""), self.settings.N_CTX
        template = self.templates[0]
        words = template.split("{}")[0].strip()
        if not words:
            raise UserError(
                f"TRAINER.COOP.CTX_INIT asks for the words of the template, but {template!r} has no words before the "
                "class name. Give words as CTX_INIT, or another TRAINER.COOP.TEMPLATE."
            )
        return words, self.settings.N_CTX

    def text_loss(self, features: Tensor, text: Tensor, labels: Tensor) -> Losses:
        logits = self.logits(features, text)
        temperature = self.settings.T
        teacher = (self.logits(features, self.hand_crafted_features(self.classnames)) / temperature).softmax(dim=1)
        # Cross-entropy with the teacher has the same gradient as the KL divergence.
        divergence = temperature**2 * F.cross_entropy(logits / temperature, teacher)
        trained = [parameter for parameter in self.parts.parameters() if parameter.requires_grad]
        fit = F.cross_entropy(logits, labels)
        return ProjectedLosses(fit, logits, {"kl": divergence}, self.settings.LAMBDA, trained)


@register(TRAINER_REGISTRY)
class ProGrad(CLIPTrainer):
    """Trains `ProGradModel`."""

    Model = ProGradModel
