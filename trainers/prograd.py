"""ProGrad, prompt-aligned gradient (Zhu et al., ICCV 2023): CoOp without the steps that unlearn zero-shot knowledge."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor
from yacs.config import CfgNode

from cocoamix.config import keys
from cocoamix.errors import UserError
from cocoamix.registry import register

from .coop import CoOp


def project(task: Tensor, general: Tensor, strength: float) -> Tensor:
    """Take the part of `task` that goes against `general` out of it, times `strength`.

    Both are gradients of one parameter. Where they agree, or `general` is zero, `task` is returned as it is. Where
    either is not finite, neither is the result, so that a scaler skips the step.
    """
    # Divided by its largest entry first: the squares of small gradients would vanish.
    peak = general.abs().max().clamp_min(torch.finfo(general.dtype).tiny)
    direction = F.normalize((general / peak).flatten(), dim=0).view_as(general)
    along = (task * direction).sum()
    return torch.where(along >= 0, task, task - strength * along * direction)


@register(TRAINER_REGISTRY)
class ProGrad(CoOp):
    """The cross-entropy's gradient, projected where it conflicts with that of the distance to zero-shot CLIP."""

    templates_of = "ProGrad"
    trains_with_template = True

    def check_cfg(self, cfg: CfgNode) -> None:
        super().check_cfg(cfg)
        keys.check_prograd(cfg.LOSS)

    def context(self) -> tuple[str, int]:
        """CTX_INIT True, or `template`, is the template's words; zeros stand before words that are fewer than N_CTX."""
        if self.settings.CTX_INIT not in (True, "template"):
            return str(self.settings.CTX_INIT or ""), self.settings.N_CTX
        template = self.templates()[0]
        words = template.split("{}")[0].strip()
        if not words:
            raise UserError(
                f"TRAINER.COOP.CTX_INIT asks for the words of the template, but {template!r} has no words before the "
                "class name. Give words as CTX_INIT, or another TRAINER.COOP.TEMPLATE."
            )
        return words, self.settings.N_CTX

    def compute_loss(self, image_features: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        logits = self.logits(image_features, self.text_features())
        temperature = self.cfg.LOSS.T
        teacher = (self.logits(image_features, self.general_features()) / temperature).softmax(dim=1)
        # The cross-entropy with the teacher: its gradient is that of the KL divergence.
        apart = temperature**2 * F.cross_entropy(logits / temperature, teacher)
        return {"loss": F.cross_entropy(logits, labels), "kl": apart}, logits

    def backward(self, terms: dict[str, Tensor]) -> None:
        parameters = [parameter for parameter in self.prompt_learner.parameters() if parameter.requires_grad]
        task = torch.autograd.grad(self.scaled(terms["loss"]), parameters, retain_graph=True)
        general = torch.autograd.grad(self.scaled(terms["kl"]), parameters)
        for parameter, one, other in zip(parameters, task, general, strict=True):
            parameter.grad = project(one, other, self.cfg.LOSS.LAMBDA)
