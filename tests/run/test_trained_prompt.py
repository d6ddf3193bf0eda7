"""What turns the checkpoint of another run back into the prompt that was trained."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from cocoamix.clip import FrozenCLIP
from cocoamix.errors import UserError
from cocoamix.io import checkpoints
from cocoamix.prompts.conditional import ConditionalPromptLearner
from cocoamix.prompts.context import PromptLearner
from cocoamix.run.trained_prompt import read_prompt

NAMES = ["river", "sea or lake"]


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(shape[0]))


def write(tmp_path: Path, origin: dict[str, object], **state: Tensor) -> str:
    path = tmp_path / "run" / "prompt_learner" / "model.pth.tar-1"
    content = {"state_dict": {"ctx": draw(4, 128), **state}, "epoch": 1, "cocoamix": origin}
    checkpoints.save(path, content)
    checkpoints.point_to(path)
    return str(tmp_path / "run")


def read(clip: FrozenCLIP, folder: str, number: int | None = None) -> PromptLearner:
    return read_prompt(clip, folder, clip.weights_hash, number).learner(clip, NAMES)


def test_unused_network_is_ignored(tmp_path: Path, tiny_clip: FrozenCLIP) -> None:
    """KgCoOp's files contain CoCoOp's network but never use it."""
    network = ConditionalPromptLearner(tiny_clip, ["river"], n_ctx=4).state_dict()
    network = {key: value for key, value in network.items() if key.startswith("meta_net")}
    alive = read(tiny_clip, write(tmp_path, {}, **network))
    dead = read(tiny_clip, write(tmp_path, {}, **network, bias_vectors=draw(1, 128)))
    assert isinstance(alive, ConditionalPromptLearner)
    assert not isinstance(dead, ConditionalPromptLearner)
    assert torch.equal(dead.ctx, draw(4, 128))


@pytest.mark.parametrize("position", ["end", "middle", "front"])
def test_position_of_the_class_name_is_read(tmp_path: Path, tiny_clip: FrozenCLIP, position: str) -> None:
    prompt = read(tiny_clip, write(tmp_path, {"settings": {"TRAINER.COOP.CLASS_TOKEN_POSITION": position}}))
    wanted = PromptLearner(tiny_clip, NAMES, n_ctx=4, position=position)
    wanted.ctx.data = draw(4, 128)
    assert torch.equal(tiny_clip.encode_prompts(prompt()), tiny_clip.encode_prompts(wanted()))
    assert not any(parameter.requires_grad for parameter in prompt.parameters())


def test_one_of_several_contexts_is_read(tmp_path: Path, tiny_clip: FrozenCLIP) -> None:
    folder = write(tmp_path, {}, **{"0.ctx": draw(2, 128), "1.ctx": draw(3, 128)})
    assert torch.equal(read(tiny_clip, folder, 1).ctx, draw(3, 128))
    with pytest.raises(UserError, match="number 3, for tiny"):
        read(tiny_clip, folder, 2)


def test_unusable_prompts_are_refused(tmp_path: Path, tiny_clip: FrozenCLIP) -> None:
    with pytest.raises(UserError, match="CSC"):
        read(tiny_clip, write(tmp_path, {}, ctx=draw(2, 4, 128)))
    with pytest.raises(UserError, match="RN50"):
        read(tiny_clip, write(tmp_path, {"weights_sha256": "0" * 64, "backbone": "RN50"}))
