"""The prompt that another run has trained, frozen, for a method that builds on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cocoamix import checkpoints
from cocoamix.clip import FrozenCLIP
from cocoamix.conditional import ConditionalPromptLearner
from cocoamix.errors import UserError
from cocoamix.prompts import PromptLearner

from .saving import checkpoint_path


def read_prompt(
    clip: FrozenCLIP, classnames: Sequence[str], folder: str, weights_hash: str, number: int | None = None
) -> PromptLearner:
    """Return the learner of a run of CoOp, CoCoOp or one of their kind, for other class names.

    folder: of the run. weights_hash: of the CLIP that the prompt must have been trained on.
    number: which of its prompts, for a run on several models.
    """
    path = checkpoint_path(Path(folder, "prompt_learner"), None)
    content = checkpoints.load(path)
    state = checkpoints.weights_of(content, path)
    if number is not None:
        state = {key.split(".", 1)[1]: value for key, value in state.items() if key.startswith(f"{number}.")}
    context, origin = state.get("ctx"), content.get("cocoamix") or {}
    if context is None or context.dim() != 2 or origin.get("weights_sha256", weights_hash) != weights_hash:
        raise UserError(
            f"{path} holds no context for all classes of {clip.name} with the weights of this run. "
            "Name a run of CoOp, CoCoOp, KgCoOp, ProGrad or CoCoAMix for each of the models, in their order."
        )
    learner: PromptLearner
    # KgCoOp's own checkpoints carry a network that its code never uses, and these vectors.
    if "meta_net.linear1.weight" in state and "bias_vectors" not in state:
        learner = ConditionalPromptLearner(clip, classnames, n_ctx=len(context))
    else:
        position = _setting(origin, "CLASS_TOKEN_POSITION", "end")
        learner = PromptLearner(clip, classnames, n_ctx=len(context), position=position)
    for note in checkpoints.load_into(learner, state, str(path)):
        print(f"Note: {note}")
    print(f'Prompt of {clip.name} from "{path}"')
    return learner.requires_grad_(False)


def _setting(origin: Mapping[str, Any], key: str, default: str) -> str:
    """Return a setting of the trainer that a checkpoint comes from."""
    settings = origin.get("settings") or {}
    return next((str(value) for name, value in settings.items() if name.endswith(f".{key}")), default)
