"""One thread for small models, torch's default for the others, and the user's setting before both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from yacs.config import CfgNode

from cocoamix.errors import UserError
from cocoamix.run import threads
from cocoamix.run.results import RANDOM_WEIGHTS, THREADS_DIFFER
from cocoamix.trainer import CLIPTrainer
from tests.config.test_shipped import ROOT, load
from tests.conftest import Runner

from .test_data_record import SESSIONS


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Like a machine with two cores, without a number in the environment."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def used(cfg: CfgNode, section: str = "COCOAMIX") -> int:
    with threads.threads_for(cfg, section):
        found = torch.get_num_threads()
    assert torch.get_num_threads() == 2
    return found


def config(name: str, trainer: str = "CoCoAMix") -> CfgNode:
    return load(Path(ROOT, "configs", "trainers", trainer, f"{name}.yaml"))


def test_model_size_sets_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny, large = config("tiny"), config("vit_b16_ep50")
    assert (used(tiny), used(large)) == (1, 2)
    tiny.defrost()
    tiny.TRAINER.COCOAMIX.BACKBONES = ["tiny", "ViT-B/16"]
    assert used(tiny) == 2
    assert used(tiny, "COOP") == 1  # whose section does not name models
    assert used(tiny, "ANOTHER") == 1
    tiny.TRAINER.COCOAMIX.BACKBONES, tiny.MODEL.BACKBONE.NAME = [], "misspelt"
    assert used(tiny) == 2
    assert used(large) == 2


def test_user_setting_takes_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert used(config("tiny")) == 2


def test_number_of_threads_is_restored_even_after_an_error() -> None:
    with pytest.raises(KeyError), threads.threads_for(config("tiny"), "COCOAMIX"):
        raise KeyError
    assert torch.get_num_threads() == 2


# ---------------------------------------------------------------------- resumed runs

EPOCHS = ["OPTIM.MAX_EPOCH", "3"]
KINDS = [("CoOp", ["DATASET.NUM_SHOTS", "2", *EPOCHS]), ("CoOpFSCIL", [*SESSIONS, *EPOCHS])]


def stop_after(epoch: int, monkeypatch: pytest.MonkeyPatch, run: Runner, trainer: str, *arguments: str) -> None:
    """Start a run that ends as if it was killed after an epoch."""

    def die(self: CLIPTrainer) -> None:
        save(self)
        if self.epoch + 1 == epoch:
            raise UserError("killed")

    save = CLIPTrainer.after_epoch
    with monkeypatch.context() as patch:
        patch.setattr(CLIPTrainer, "after_epoch", die)
        assert "killed" in run(*arguments, trainer=trainer).output


@pytest.mark.parametrize(("trainer", "arguments"), KINDS)
def test_a_resume_uses_the_number_of_the_start(
    trainer: str, arguments: list[str], run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "2")
        stop_after(2, monkeypatch, run, trainer, *arguments)
    done = run(*arguments, trainer=trainer)
    assert done.status == 0, done.output
    assert (done.results["threads"], done.results["caveats"]) == (2, [RANDOM_WEIGHTS])
    assert torch.get_num_threads() == 2  # as before the run
    assert run(*arguments, trainer=trainer, name="other").results["threads"] == 1


@pytest.mark.parametrize(("trainer", "arguments"), KINDS)
def test_another_number_is_a_caveat_for_good(
    trainer: str, arguments: list[str], run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(1, monkeypatch, run, trainer, *arguments)
    with monkeypatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "2")
        torch.set_num_threads(2)
        stop_after(2, monkeypatch, run, trainer, *arguments)
    done = run(*arguments, trainer=trainer)
    assert done.status == 0, done.output
    assert "OMP_NUM_THREADS=1" in done.output
    assert (done.results["threads"], done.results["caveats"]) == (1, [RANDOM_WEIGHTS, THREADS_DIFFER])


def test_numbers_in_a_file_are_checked() -> None:
    assert threads.recorded({}, Path("resume.pth")) == ()
    for altered in (["2"], [0], 2, [True]):
        with pytest.raises(UserError, match=r"resume\.pth"):
            threads.recorded({"threads": altered}, Path("resume.pth"))
