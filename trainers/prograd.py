"""ProGrad, prompt-aligned gradient (Zhu et al., ICCV 2023): CoOp with gradients that keep zero-shot knowledge."""

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
    """Subtract from `task` its component that opposes `general`, scaled by `strength`.

    Both are gradients of one parameter. If they do not conflict, or `general` is zero, the result is `task`. If either
    is not finite, neither is the result, so that a loss scaler skips the step.
    """
    # Divide by the largest entry first, because the squares of small gradients would underflow.
    peak = general.abs().max().clamp_min(torch.finfo(general.dtype).tiny)
    direction = F.normalize((general / peak).flatten(), dim=0).view_as(general)
    along = (task * direction).sum()
    return torch.where(along >= 0, task, task - strength * along * direction)


@register(TRAINER_REGISTRY)
class ProGrad(CoOp):
    """CoOp whose gradient is projected if it conflicts with the gradient of the KL divergence to zero-shot CLIP."""

    templates_of = "ProGrad"
    trains_with_template = True

    def check_cfg(self, cfg: CfgNode) -> None:
        super().check_cfg(cfg)
        keys.check_prograd(cfg.LOSS)

    def context(self) -> tuple[str, int]:
        """Return the initial words and N_CTX. CTX_INIT True or `template` takes the words of the template."""
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
        teacher = (self.logits(image_features, self.hand_crafted_features()) / temperature).softmax(dim=1)
        # Cross-entropy with the teacher has the same gradient as the KL divergence.
        divergence = temperature**2 * F.cross_entropy(logits / temperature, teacher)
        return {"loss": F.cross_entropy(logits, labels), "kl": divergence}, logits

    def backward(self, terms: dict[str, Tensor]) -> None:
        parameters = [parameter for parameter in self.prompt_learner.parameters() if parameter.requires_grad]
        task = torch.autograd.grad(self.scaled(terms["loss"]), parameters, retain_graph=True)
        general = torch.autograd.grad(self.scaled(terms["kl"]), parameters)
        for parameter, task_grad, general_grad in zip(parameters, task, general, strict=True):
            parameter.grad = project(task_grad, general_grad, self.cfg.LOSS.LAMBDA)
