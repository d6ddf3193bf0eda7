"""Reading checkpoints safely, and putting them into a model with words about what does not fit."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cocoamix import checkpoints
from cocoamix.errors import UserError


class Evil:
    """A pickle of this runs a command when it is read carelessly."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.witness,))


def live_scheduler() -> Any:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1, momentum=0.9)
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)


def test_tensors_are_read_from_beside_live_objects(tmp_path: Path) -> None:
    """Dassl's checkpoints: a scheduler that holds an optimizer that holds parameters."""
    state = OrderedDict(ctx=torch.arange(6.0).view(2, 3), half=torch.ones(2, dtype=torch.float16))
    optimizer = {"state": {0: {"momentum_buffer": torch.ones(2)}}, "param_groups": [{"lr": 0.1, "params": [0]}]}
    content = {"state_dict": state, "epoch": 7, "optimizer": optimizer, "scheduler": {"successor": live_scheduler()}}
    torch.save(content, tmp_path / "model")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "model", weights_only=True)
    loaded = checkpoints.load(tmp_path / "model")
    assert torch.equal(loaded["state_dict"]["ctx"], state["ctx"])
    assert torch.equal(loaded["state_dict"]["half"], state["half"])
    assert loaded["epoch"] == 7
    assert torch.equal(loaded["optimizer"]["state"][0]["momentum_buffer"], torch.ones(2))
    assert not hasattr(loaded["scheduler"]["successor"], "optimizer")


@pytest.mark.parametrize("legacy", [False, True])
def test_nothing_in_a_file_is_executed(tmp_path: Path, legacy: bool) -> None:
    witness = tmp_path / "witness"
    content = {"state_dict": {"ctx": torch.ones(1)}, "val_result": Evil(witness)}
    torch.save(content, tmp_path / "model", _use_new_zipfile_serialization=not legacy)
    assert torch.equal(checkpoints.load(tmp_path / "model")["state_dict"]["ctx"], torch.ones(1))
    assert not witness.exists()


@pytest.mark.parametrize("length", [0, 10, 0.5, 0.99])
def test_cut_short(tmp_path: Path, length: float) -> None:
    path = tmp_path / "model.pth.tar-3"
    checkpoints.save(path, {"state_dict": {"ctx": torch.zeros(100)}, "epoch": 3})
    whole = path.read_bytes()
    path.write_bytes(whole[: int(length if length >= 1 else length * len(whole))])
    with pytest.raises(UserError, match=r"model\.pth\.tar-3 cannot be read"):
        checkpoints.load(path)


@pytest.mark.parametrize("content", [[1, 2], {"state_dict": 3}])
def test_not_a_checkpoint(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "model")
    with pytest.raises(UserError, match="no state_dict"):
        checkpoints.load(tmp_path / "model")


def test_loading_says_what_does_not_fit() -> None:
    model = nn.Linear(3, 2)
    fitting = {key: torch.ones_like(value) for key, value in model.state_dict().items()}
    notes = checkpoints.load_into(
        model, {**fitting, "token_prefix": torch.ones(1), "meta_net.w": torch.ones(1)}, "FILE"
    )
    assert notes == ["FILE also holds meta_net.w, not used here"]
    assert torch.equal(model.weight, torch.ones(2, 3))
    with pytest.raises(UserError, match="FILE lacks bias"):
        checkpoints.load_into(model, {"weight": torch.zeros(2, 3)}, "FILE")
    with pytest.raises(UserError, match="weight is 2 x 4 there and 2 x 3 here"):
        checkpoints.load_into(model, {**fitting, "weight": torch.zeros(2, 4)}, "FILE")
    assert torch.equal(model.weight, torch.ones(2, 3))  # a refusal changes nothing
