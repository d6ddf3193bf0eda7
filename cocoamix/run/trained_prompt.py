"""Loads the trained prompt of another run, frozen, for a method that builds on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor
from yacs.config import CfgNode

from cocoamix.clip import FrozenCLIP
from cocoamix.errors import UserError
from cocoamix.io import checkpoints
from cocoamix.prompts.conditional import ConditionalPromptLearner
from cocoamix.prompts.context import PromptLearner

from .checkpointer import checkpoint_path
from .origin import check_partition

_ADVICE = (
    "TRAINER.ENLEARN.PROMPTS names output folders of CoOp, KgCoOp, ProGrad, CoCoOp or CoCoAMix, one for each of "
    "BACKBONES in their order, or one run of CoCoAMix on all of them."
)


@dataclass(frozen=True)
class TrainedPrompt:
    """The trained prompt of another run.

    Attributes:
        state: Its parameters.
        position: Position of the class name.
        is_conditional: Whether each image shifts it, as in CoCoOp.
        path: Its checkpoint.
    """

    state: Mapping[str, Tensor]
    position: str
    is_conditional: bool
    path: Path

    def learner(self, clip: FrozenCLIP, classnames: Sequence[str]) -> PromptLearner:
        """Return the prompt for some classes, frozen."""
        length = len(self.state["ctx"])
        learner: PromptLearner
        if self.is_conditional:
            learner = ConditionalPromptLearner(clip, classnames, n_ctx=length)
        else:
            learner = PromptLearner(clip, classnames, n_ctx=length, position=self.position)
        checkpoints.load_into(learner, self.state, str(self.path), checkpoints.dead_in_kgcoop(self.state))
        return learner.requires_grad_(False)


def read_prompt(
    clip: FrozenCLIP, folder: str, weights_hash: str, number: int | None = None, dataset: CfgNode | None = None
) -> TrainedPrompt:
    """Return the prompt of a run of CoOp, CoCoOp or a similar method.

    Args:
        clip: The model to use the prompt with.
        folder: Output folder of the run that trained the prompt.
        weights_hash: Hash of the CLIP weights that the prompt must have been trained on.
        number: Index of the prompt, for a run on several models.
        dataset: The node DATASET of the run that uses the prompt.
    """
    path = checkpoint_path(Path(folder, "prompt_learner"), None, _ADVICE)
    content = checkpoints.load(path)
    state = checkpoints.weights_of(content, path)
    if number is not None:
        state = {key.split(".", 1)[1]: value for key, value in state.items() if key.startswith(f"{number}.")}
    context, origin = state.get("ctx"), content.get("cocoamix") or {}
    if context is None:
        which = "" if number is None else f" number {number + 1}, for {clip.name}"
        raise UserError(f"{path} holds no context{which}. {_ADVICE}")
    if context.dim() != 2:
        raise UserError(
            f"{path} holds class-specific contexts (CSC), which belong to their classes. Train with CSC False."
        )
    if origin.get("weights_sha256", weights_hash) != weights_hash:
        raise UserError(
            f"{path} was trained on {origin.get('backbone')} with weights {str(origin['weights_sha256'])[:16]}, which "
            f"are not those of {clip.name} in this run ({weights_hash[:16]}). {_ADVICE}"
        )
    if dataset is not None:
        check_partition(origin, dataset, path)
    is_conditional = "meta_net.linear1.weight" in state and not checkpoints.dead_in_kgcoop(state)
    prompt = TrainedPrompt(state, _setting(origin, "CLASS_TOKEN_POSITION", "end"), is_conditional, path)
    prompt.learner(clip, ["class"])  # refuses parameters that do not fit
    print(f'Prompt of {clip.name} from "{path}"')
    return prompt


def _setting(origin: Mapping[str, Any], key: str, default: str) -> str:
    """Return a setting of the checkpoint's trainer."""
    settings = origin.get("settings") or {}
    return next((str(value) for name, value in settings.items() if name.endswith(f".{key}")), default)
