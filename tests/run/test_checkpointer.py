"""The files of a run's models: what is written is read back, completely or not at all."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cocoamix.errors import UserError
from cocoamix.io import checkpoints
from cocoamix.run.checkpointer import Checkpointer, checkpoint_path, newest, read_state
from cocoamix.run.optimisation import Optimisation


def make(seed: int) -> Checkpointer:
    """Two parts, one of which is trained by Adam on a schedule."""
    torch.manual_seed(seed)
    parts = nn.ModuleDict({"one": nn.Linear(2, 2), "two": nn.Linear(2, 1)})
    optimisation = Optimisation(parts)
    optimizer = torch.optim.Adam(parts["one"].parameters(), lr=0.1)
    optimisation.optimizers["one"] = optimizer
    optimisation.schedules["one"] = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
    return Checkpointer(parts, optimisation)


def step(kept: Checkpointer) -> None:
    kept.optimizers["one"].zero_grad()
    kept.models["one"](torch.ones(1, 2)).square().sum().backward()
    kept.optimizers["one"].step()
    kept.schedules["one"].step()


def parameters(kept: Checkpointer) -> list[torch.Tensor]:
    return [parameter for model in kept.models.values() for parameter in model.parameters()]


def test_a_restored_run_takes_the_same_steps() -> None:
    whole, resumed = make(1), make(2)
    for _ in range(3):
        step(whole)
    resumed.restore(copy.deepcopy(whole.state()), Path("resume.pth"))
    for kept in (whole, resumed):
        step(kept)
    for mine, theirs in zip(parameters(resumed), parameters(whole), strict=True):
        assert torch.equal(mine, theirs)
    assert resumed.schedules["one"].get_last_lr() == whole.schedules["one"].get_last_lr()


def test_a_state_of_other_models_is_refused() -> None:
    state = make(1).state()
    state["models"]["three"] = state["models"].pop("two")
    with pytest.raises(UserError, match="holds the models one, three, not one, two"):
        make(2).restore(state, Path("resume.pth"))


def resume_state() -> dict[str, Any]:
    """Return the content of a resume file."""
    rest: dict[str, Any] = {"settings": {}, "protocol": {}, "unreadable": {}, "scaler": None, "course": [0, 0, False]}
    return {**make(1).state(), **rest, "epoch": 1, "seed": 1, "best_result": 0.5}


@pytest.mark.parametrize("key", ["epoch", "schedules", "protocol"])
def test_a_state_that_lacks_a_part_is_refused(tmp_path: Path, key: str) -> None:
    state = resume_state()
    checkpoints.save(tmp_path / "resume.pth", state)
    assert set(read_state(tmp_path / "resume.pth")) == set(state)
    del state[key]
    checkpoints.save(tmp_path / "resume.pth", state)
    with pytest.raises(UserError, match=f"it has no {key}"):
        read_state(tmp_path / "resume.pth")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("epoch", torch.ones(1)),
        ("epoch", -1),
        ("seed", "1"),
        ("settings", [1]),
        ("models", {"one": 3}),
        ("best_result", None),
    ],
)
def test_a_state_with_foreign_objects_is_refused(tmp_path: Path, key: str, value: object) -> None:
    """As re-saved by other code."""
    checkpoints.save(tmp_path / "resume.pth", {**resume_state(), key: value})
    with pytest.raises(UserError, match=r"not a resume file: its .* Restore it"):
        read_state(tmp_path / "resume.pth")


@pytest.mark.parametrize("part", ["optimizers", "schedules"])
@pytest.mark.parametrize(
    "content", ["x", {"param_groups": [], "own": "x"}, {"param_groups": [{"lr": math.nan}], "own": 3}]
)
def test_the_state_of_another_optimizer_or_schedule_is_refused(part: str, content: Any) -> None:
    """If loaded, it would fail in the first step, or make nonsensical steps."""
    state = make(1).state()
    state[part] = {"one": content}
    with pytest.raises(UserError, match=f"its {part} do not match this run"):
        make(1).restore(state, Path("resume.pth"))


@pytest.mark.parametrize("content", [b"", b"\xff\n", b"../../x\n", b"x" * 300, b"a\x1b[2J"])
def test_a_pointer_that_names_no_checkpoint_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "checkpoint").write_bytes(content)
    with pytest.raises(UserError, match="should name a checkpoint in its folder"):
        newest(tmp_path)


def test_files_have_coops_layout(tmp_path: Path) -> None:
    kept = make(1)
    kept.save(str(tmp_path), ["one", "two"], 5, {"trainer": "X"}, val_result=71.5, is_best=True)
    assert newest(tmp_path / "one").name == "model.pth.tar-5"
    content = checkpoints.load(tmp_path / "one" / "model.pth.tar-5")
    assert (content["epoch"], content["val_result"], content["cocoamix"]) == (5, 71.5, {"trainer": "X"})
    assert torch.equal(content["state_dict"]["weight"], kept.models["one"].weight)  # type: ignore[arg-type]
    assert kept.best_result(tmp_path) == 71.5
    assert kept.can_resume(tmp_path)
    assert checkpoint_path(tmp_path / "one", None).name == "model-best.pth.tar"
    assert checkpoint_path(tmp_path / "one", -1).name == "model.pth.tar-5"
    with pytest.raises(UserError, match=r"no model.pth.tar-4 .* It holds: model-best.pth.tar, model.pth.tar-5"):
        checkpoint_path(tmp_path / "one", 4)


def test_models_of_different_epochs_are_refused(tmp_path: Path) -> None:
    kept = make(1)
    kept.save(str(tmp_path), ["one"], 5, {})
    kept.save(str(tmp_path), ["two"], 4, {})
    with pytest.raises(UserError, match=r"different epochs \(\[4, 5\]\)"):
        kept.newest_files(tmp_path)


def test_non_finite_parameters_are_named() -> None:
    kept = make(1)
    kept.refuse_non_finite(3, 0.1)
    with torch.no_grad():
        kept.models["two"].bias[0] = float("nan")  # type: ignore[index, operator]
    with pytest.raises(UserError, match=r"two\.bias is not finite after epoch 3.*now 0\.1"):
        kept.refuse_non_finite(3, 0.1)
