"""Reading checkpoints safely, and loading them into a model with messages about what does not fit."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cocoamix.errors import UserError
from cocoamix.io import checkpoints, safe_pickle


class Evil:
    """Unpickling this carelessly runs a command."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.witness,))


def live_scheduler() -> Any:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1, momentum=0.9)
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)


def test_tensors_are_read_from_files_with_live_objects(tmp_path: Path) -> None:
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
def test_truncated_file_is_refused(tmp_path: Path, length: float) -> None:
    path = tmp_path / "model.pth.tar-3"
    checkpoints.save(path, {"state_dict": {"ctx": torch.zeros(100)}, "epoch": 3})
    whole = path.read_bytes()
    path.write_bytes(whole[: int(length if length >= 1 else length * len(whole))])
    with pytest.raises(UserError, match=r"model\.pth\.tar-3 cannot be read"):
        checkpoints.load(path)


def test_other_files_are_not_checkpoints(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "model")
    with pytest.raises(UserError, match="holds list"):
        checkpoints.load(tmp_path / "model")
    for content in ({"state_dict": 3}, {"state_dict": {}}, {"epoch": 1}, {"state_dict": {"ctx": 1}}):
        with pytest.raises(UserError, match="FILE is not a checkpoint"):
            checkpoints.weights_of(content, "FILE")


class Writer(nn.Module):
    """A TorchScript module whose loading by torch writes a file."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.register_buffer("weight", torch.arange(4.0))

    @torch.jit.export
    def __getstate__(self):  # type: ignore[no-untyped-def]
        return (self.path, self.weight, self.training)

    @torch.jit.export
    def __setstate__(self, state: tuple[str, torch.Tensor, bool]):  # type: ignore[no-untyped-def]
        self.path = state[0]
        self.weight = torch.from_file(state[0], True, 4)
        self.training = state[2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_code_is_not_run(tmp_path: Path) -> None:
    witness, archive = tmp_path / "witness", tmp_path / "model.pt"
    torch.jit.save(torch.jit.script(Writer(str(witness))), str(archive))
    assert safe_pickle.is_torchscript(archive)
    with pytest.raises(UserError, match="cannot be read as a checkpoint"):
        checkpoints.load(archive)
    assert isinstance(safe_pickle.read_torchscript(archive), dict)
    assert not witness.exists()
    torch.jit.load(str(archive))
    assert witness.exists()  # torch itself runs the code


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_archives_are_read_as_torch_reads_them(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4), nn.Sequential(nn.Linear(4, 2).half()))
    module[0].weight = nn.Parameter(module[0].weight.transpose(2, 3))  # a strided tensor
    torch.jit.save(torch.jit.script(module), str(tmp_path / "model.pt"))
    ours, theirs = (
        safe_pickle.read_torchscript(tmp_path / "model.pt"),
        torch.jit.load(str(tmp_path / "model.pt")).state_dict(),
    )
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        assert ours[key].dtype == value.dtype
        assert torch.equal(ours[key], value), key


def test_loading_errors_name_mismatched_parameters() -> None:
    model = nn.Linear(3, 2)
    fitting = {key: torch.ones_like(value) for key, value in model.state_dict().items()}
    more = {**fitting, "token_prefix": torch.ones(1), "meta_net.w": torch.ones(1)}
    assert checkpoints.load_into(model, more, "FILE", ["meta_net."]) == ["FILE also holds meta_net.w, not used here"]
    assert torch.equal(model.weight, torch.ones(2, 3))
    for dead in ((), ["image_encoder."]):
        with pytest.raises(UserError, match=r"FILE also holds meta_net\.w, which the model of this run does not have"):
            checkpoints.load_into(model, {**more, "weight": torch.zeros(2, 3)}, "FILE", dead)
    with pytest.raises(UserError, match="FILE lacks bias"):
        checkpoints.load_into(model, {"weight": torch.zeros(2, 3)}, "FILE")
    with pytest.raises(UserError, match="weight is 2 x 4 there and 2 x 3 here"):
        checkpoints.load_into(model, {**fitting, "weight": torch.zeros(2, 4)}, "FILE")
    assert torch.equal(model.weight, torch.ones(2, 3))  # a refusal changes nothing


@pytest.mark.parametrize("tensor", [torch.ones(2, 2, dtype=torch.int8), torch.ones(2, 2).to_sparse()])
def test_tensors_that_are_not_real_numbers_are_refused(tensor: torch.Tensor) -> None:
    """Integers would be mistaken for the weights that they were truncated from."""
    with pytest.raises(UserError, match="weight is not plain real numbers"):
        checkpoints.load_into(torch.nn.Linear(2, 2, bias=False), {"weight": tensor}, "file")


def test_parameters_unused_by_kgcoop_are_used_by_cocoop() -> None:
    network = {"meta_net.linear1.weight": torch.ones(1)}
    assert checkpoints.dead_in_kgcoop({"ctx": torch.ones(1), **network}) == ()
    assert checkpoints.dead_in_kgcoop({"bias_vectors": torch.ones(1), **network}) == ("bias_vectors", "meta_net.")
