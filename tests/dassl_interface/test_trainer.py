from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from dassl.engine import TRAINER_REGISTRY, TrainerX, build_trainer
from dassl.utils import save_checkpoint, set_random_seed
from torch import nn
from yacs.config import CfgNode

from cocoamix.errors import UserError

from .engine import REFERENCE, REFUSALS, only_ours

RATES = next(
    case["lr"][:10]
    for case in REFERENCE["learning_rates"]
    if case["keys"] == {"LR_SCHEDULER": "cosine", "WARMUP_TYPE": "constant", "WARMUP_EPOCH": 1, "WARMUP_RECOUNT": True}
)


def trained(cfg: CfgNode, **changes: Any) -> Any:
    for key, value in changes.items():
        cfg.merge_from_list([key.replace("__", "."), value])
    set_random_seed(1)
    trainer = build_trainer(cfg)
    trainer.train()
    return trainer


# Construction


def test_attributes_available_when_the_model_is_built(cfg: CfgNode) -> None:
    trainer = build_trainer(cfg)
    assert type(trainer) is TRAINER_REGISTRY.get("ToyTrainer")
    assert trainer.built_with == (3, 2)
    assert (trainer.start_epoch, trainer.epoch, trainer.max_epoch) == (0, 0, 10)
    assert (trainer.output_dir, trainer.cfg, trainer.best_result) == (cfg.OUTPUT_DIR, cfg, float("-inf"))
    assert trainer.device.type in ("cpu", "cuda")
    assert trainer.lab2cname == trainer.dm.lab2cname
    assert trainer.num_classes == 3
    assert len(trainer.val_loader) == 1
    assert len(trainer.test_loader) == 2
    assert list(trainer._models) == list(trainer._optims) == list(trainer._scheds) == ["prompt_learner"]
    assert trainer.get_model_names() == ["prompt_learner"]
    assert trainer.get_current_lr() == 1e-5


def test_order_of_construction(cfg: CfgNode) -> None:
    calls: list[str] = []

    class Ordered(TrainerX):
        def check_cfg(self, cfg: CfgNode) -> None:
            calls.append("check")
            assert not hasattr(self, "device")

        def build_data_loader(self) -> None:
            assert hasattr(self, "device")
            assert hasattr(self, "cfg")
            calls.append("data")
            self.lab2cname: dict[int, str] = {}

        def build_model(self) -> None:
            assert not hasattr(self, "evaluator")
            calls.append("model")

    trainer = Ordered(cfg)
    assert calls == ["check", "data", "model"]
    assert hasattr(trainer, "evaluator")


def test_unknown_trainer_suggests_the_nearest(cfg: CfgNode) -> None:
    cfg.TRAINER.NAME = "ToyTrainr"
    with pytest.raises(ValueError, match="ToyTrainer"):
        build_trainer(cfg)


@only_ours
def test_a_trainer_without_a_model_is_refused(cfg: CfgNode) -> None:
    class Empty(TrainerX):
        pass

    with pytest.raises(NotImplementedError, match="Empty has no build_model"):
        Empty(cfg)


# Models


class Two(TrainerX):
    """Two models and a frozen one."""

    def build_model(self) -> None:
        for name in ("a", "b"):
            model = nn.Linear(1, 1)
            self.register_model(name, model, torch.optim.SGD(model.parameters(), 0.1), None)
        self.register_model("frozen", nn.Linear(1, 1))


def test_models_are_named(cfg: CfgNode) -> None:
    trainer = Two(cfg)
    assert trainer.get_model_names() == ["a", "b", "frozen"]
    assert trainer.get_model_names("b") == ["b"]
    with pytest.raises(REFUSALS):
        trainer.get_model_names(["c"])
    with pytest.raises(REFUSALS):
        trainer.register_model("a", nn.Linear(1, 1))


def test_register_model_needs_the_constructor() -> None:
    class Hasty(TrainerX):
        def __init__(self) -> None:
            self.register_model("a")

    with pytest.raises(AttributeError):
        Hasty()


def test_mode_is_set_for_all_or_named_models(cfg: CfgNode) -> None:
    trainer = Two(cfg)
    for mode, expected in (("eval", False), ("train", True), ("test", False)):
        trainer.set_model_mode(mode)
        assert [model.training for model in trainer._models.values()] == [expected] * 3
    trainer.set_model_mode("train", names="a")
    assert [model.training for model in trainer._models.values()] == [True, False, False]
    with pytest.raises(KeyError):
        trainer.set_model_mode("tain")


def test_steps_update_only_the_named_models(cfg: CfgNode) -> None:
    trainer = Two(cfg)
    before = {name: model.weight.item() for name, model in trainer._models.items()}
    loss = sum(model(torch.ones(1, 1)).sum() for model in trainer._models.values())
    trainer.model_backward_and_update(loss, names=["a"])
    after = {name: model.weight.item() for name, model in trainer._models.items()}
    assert after["a"] == pytest.approx(before["a"] - 0.1)
    assert (after["b"], after["frozen"]) == (before["b"], before["frozen"])
    assert trainer._models["b"].weight.grad is not None
    trainer.model_zero_grad()
    assert not trainer._models["b"].weight.grad  # None or zero
    trainer.update_lr()  # none of them has a scheduler


def test_nan_loss_stops_training(cfg: CfgNode) -> None:
    trainer = Two(cfg)
    trainer.epoch, trainer.batch_idx = 2, 4
    for value in (float("nan"), float("inf")):
        with pytest.raises(FloatingPointError):
            trainer.model_backward_and_update(torch.tensor(value, requires_grad=True))
    trainer.detect_anomaly(torch.tensor(1.0))


@only_ours
def test_nan_loss_error_names_epoch_and_batch(cfg: CfgNode) -> None:
    trainer = Two(cfg)
    trainer.epoch, trainer.batch_idx = 2, 4
    with pytest.raises(UserError, match=r"epoch 3, batch 5.*OPTIM\.LR"):
        trainer.detect_anomaly(torch.tensor(float("nan")))


def test_missing_methods_raise_not_implemented_error(cfg: CfgNode) -> None:
    with pytest.raises(NotImplementedError):
        Two(cfg).forward_backward({})


# A run


def test_a_run_writes_its_files_and_log_lines(cfg: CfgNode, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = trained(cfg)
    run = Path(cfg.OUTPUT_DIR)
    assert {path.name for path in (run / "prompt_learner").iterdir()} == {"checkpoint", "model.pth.tar-10"}
    assert (run / "prompt_learner" / "checkpoint").read_text() == "model.pth.tar-10\n"
    assert list((run / "tensorboard").iterdir())
    saved = torch.load(run / "prompt_learner" / "model.pth.tar-10", weights_only=False)
    assert set(saved) == {"state_dict", "epoch", "optimizer", "scheduler", "val_result"}
    assert saved["epoch"] == 10
    assert torch.equal(saved["state_dict"]["weight"], trainer.model.weight)

    printed = capsys.readouterr().out
    number = r"[\d.]+"
    line = re.compile(
        rf"^epoch \[(\d+)/10\] batch \[2/2\] time {number} \({number}\) data {number} \({number}\) "
        rf"loss {number} \({number}\) acc {number} \({number}\) lr (\d\.\d{{4}}e-\d\d) eta \d+:\d\d:\d\d$",
        re.MULTILINE,
    )
    lines = line.findall(printed)
    assert [int(epoch) for epoch, _ in lines] == list(range(1, 11))
    # The last batch has already advanced the rate.
    assert [float(rate) for _, rate in lines[:9]] == pytest.approx(RATES[1:], rel=1e-3)
    assert re.search(r"^Finish training$.*^=> result$.*^\* accuracy: [\.\d]+%$.*^Elapsed: ", printed, re.S | re.M)
    assert printed.count("=> result") == 1


def test_learning_rates_of_a_run(cfg: CfgNode) -> None:
    assert trained(cfg).rates == pytest.approx(RATES)


def test_training_learns_and_test_returns_the_accuracy(cfg: CfgNode, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = trained(cfg, OPTIM__LR=5.0, OPTIM__WEIGHT_DECAY=0.0, OPTIM__MAX_EPOCH=20)
    capsys.readouterr()
    assert trainer.test() == 100.0
    assert trainer.test(split="val") == 100.0
    assert not trainer.model.training
    printed = capsys.readouterr().out
    assert re.findall(r"total: (\d+)", printed) == ["6", "3"]
    trainer.cfg.TEST.SPLIT = "val"
    trainer.test()
    assert "total: 3" in capsys.readouterr().out
    trainer.val_loader = None
    trainer.test()
    assert "total: 6" in capsys.readouterr().out


def test_intermediate_checkpoints_are_saved(cfg: CfgNode) -> None:
    trained(cfg, OPTIM__MAX_EPOCH=5, TRAIN__CHECKPOINT_FREQ=2, TEST__NO_TEST=True)
    names = {path.name for path in (Path(cfg.OUTPUT_DIR) / "prompt_learner").iterdir()}
    assert names == {"checkpoint", "model.pth.tar-2", "model.pth.tar-4", "model.pth.tar-5"}


def test_no_test_skips_the_evaluation(cfg: CfgNode, capsys: pytest.CaptureFixture[str]) -> None:
    trained(cfg, OPTIM__MAX_EPOCH=1, TEST__NO_TEST=True)
    printed = capsys.readouterr().out
    assert "Finish training" in printed
    assert "=> result" not in printed


def test_hooks_are_called_in_order(cfg: CfgNode) -> None:
    calls: list[str] = []

    class Hooked(Two):
        def before_train(self) -> None:
            calls.append("before_train")
            self.start_epoch = 1  # as after resuming

        def before_epoch(self) -> None:
            calls.append(f"before {self.epoch}")

        def run_epoch(self) -> None:
            calls.append(f"run {self.epoch}")

        def after_epoch(self) -> None:
            calls.append(f"after {self.epoch}")

        def after_train(self) -> None:
            calls.append("after_train")

    cfg.OPTIM.MAX_EPOCH = 3
    Hooked(cfg).train()
    epochs = [f"{hook} {epoch}" for epoch in (1, 2) for hook in ("before", "run", "after")]
    assert calls == ["before_train", *epochs, "after_train"]


def test_a_batch_may_have_nothing_to_record(cfg: CfgNode, capsys: pytest.CaptureFixture[str]) -> None:
    class Quiet(TRAINER_REGISTRY.get("ToyTrainer")):  # type: ignore[misc]
        def forward_backward(self, batch: Any) -> Any:
            super().forward_backward(batch)

    cfg.OPTIM.MAX_EPOCH = 1
    Quiet(cfg).train()
    assert re.search(r"^epoch \[1/1\] batch \[2/2\] time .* lr 2\.0000e-03 eta 0:00:00$", capsys.readouterr().out, re.M)


def test_every_batch_is_printed_where_there_are_few(cfg: CfgNode, capsys: pytest.CaptureFixture[str]) -> None:
    trained(cfg, OPTIM__MAX_EPOCH=1, TRAIN__PRINT_FREQ=10)
    assert re.findall(r"batch \[(\d)/2\] time", capsys.readouterr().out) == ["1", "2"]


def test_training_batches_come_with_domains(cfg: CfgNode) -> None:
    trainer = build_trainer(cfg)
    batch = {"img": torch.zeros(2, 3, 8, 8), "label": torch.tensor([0, 1]), "domain": torch.tensor([1, 0])}
    image, label, domain = TrainerX.parse_batch_train(trainer, batch)
    assert (image.shape, label.tolist(), domain.tolist()) == ((2, 3, 8, 8), [0, 1], [1, 0])
    image, label = TrainerX.parse_batch_test(trainer, batch)
    assert (image.shape, label.tolist()) == ((2, 3, 8, 8), [0, 1])
    assert torch.equal(trainer.model_inference(torch.ones(1, 3)), trainer.model(torch.ones(1, 3)))


# Loading


def plain(trainer: Any, run: Path, epoch: int, **more: Any) -> None:
    """Save weights without a scheduler's state, which both engines can load safely."""
    state = {"state_dict": trainer.model.state_dict(), "epoch": epoch, "val_result": 12.5}
    name = "model-best.pth.tar" if more.get("best") else ""
    save_checkpoint({**state, **more}, str(run / "prompt_learner"), model_name=name)


def test_load_model_loads_an_epoch_or_the_best(cfg: CfgNode, tmp_path: Path) -> None:
    trainer = build_trainer(cfg)
    before = trainer.model.weight.detach().clone()
    plain(trainer, tmp_path, 2)
    with torch.no_grad():
        trainer.model.weight.zero_()
    plain(trainer, tmp_path, 4, best=True)
    trainer.load_model(str(tmp_path), epoch=2)
    assert torch.equal(trainer.model.weight, before)
    trainer.load_model("")
    assert torch.equal(trainer.model.weight, before)
    trainer.load_model(str(tmp_path))
    assert trainer.model.weight.abs().sum() == 0
    with pytest.raises(FileNotFoundError, match=r"model\.pth\.tar-3"):
        trainer.load_model(str(tmp_path), epoch=3)


def test_training_starts_from_scratch_without_checkpoints(cfg: CfgNode, tmp_path: Path) -> None:
    assert build_trainer(cfg).resume_model_if_exist(str(tmp_path)) == 0


@only_ours
def test_model_of_the_last_epoch_loads(cfg: CfgNode) -> None:
    """It has no validation result."""
    first = trained(cfg, OPTIM__MAX_EPOCH=1)
    second = build_trainer(cfg)
    second.load_model(cfg.OUTPUT_DIR, epoch=1)
    assert torch.equal(second.model.weight, first.model.weight)


@only_ours
def test_best_model_is_kept_and_tested(cfg: CfgNode, capsys: pytest.CaptureFixture[str]) -> None:
    results = iter([30.0, 50.0, 40.0])

    class Scripted(TRAINER_REGISTRY.get("ToyTrainer")):  # type: ignore[misc]
        def test(self, split: str | None = None) -> float:
            return next(results) if split == "val" else super().test(split)

    cfg.merge_from_list(["TEST.FINAL_MODEL", "best_val", "OPTIM.MAX_EPOCH", 3])
    trainer = Scripted(cfg)
    trainer.train()
    folder = Path(cfg.OUTPUT_DIR) / "prompt_learner"
    best = torch.load(folder / "model-best.pth.tar", weights_only=True)
    assert (best["epoch"], best["val_result"], trainer.best_result) == (2, 50.0, 50.0)
    assert torch.equal(trainer.model.weight, best["state_dict"]["weight"])
    assert (folder / "checkpoint").read_text() == "model.pth.tar-3\n"
    later = Scripted(cfg)
    later.before_train()
    assert (later.start_epoch, later.best_result) == (3, 50.0)  # a worse model will not replace it


@only_ours
@pytest.mark.parametrize("stop", [1, 2, 4, 9])
def test_a_resumed_run_ends_where_an_uninterrupted_one_does(cfg: CfgNode, stop: int) -> None:
    class Interrupted(TRAINER_REGISTRY.get("ToyTrainer")):  # type: ignore[misc]
        def run_epoch(self) -> None:
            if self.epoch == stop:
                raise KeyboardInterrupt
            torch.manual_seed(self.epoch)  # the same batches, resumed or not
            super().run_epoch()

    class Whole(TRAINER_REGISTRY.get("ToyTrainer")):  # type: ignore[misc]
        def run_epoch(self) -> None:
            torch.manual_seed(self.epoch)
            super().run_epoch()

    cfg.TRAIN.CHECKPOINT_FREQ = 1
    set_random_seed(1)
    first = Interrupted(cfg)
    with pytest.raises(KeyboardInterrupt):
        first.train()
    first.close_writer()
    resumed = Whole(cfg)
    resumed.train()
    assert resumed.start_epoch == stop
    assert resumed.rates == pytest.approx(RATES[stop:])

    cfg.OUTPUT_DIR += "-whole"
    set_random_seed(1)
    whole = Whole(cfg)
    whole.train()
    assert torch.equal(resumed.model.weight, whole.model.weight)


@only_ours
def test_resume_from_another_directory(cfg: CfgNode, tmp_path: Path) -> None:
    trained(cfg, OPTIM__MAX_EPOCH=2)
    cfg.RESUME, cfg.OUTPUT_DIR = cfg.OUTPUT_DIR, str(tmp_path / "next")
    assert trained(cfg, OPTIM__MAX_EPOCH=3).start_epoch == 2
    assert (tmp_path / "next" / "prompt_learner" / "model.pth.tar-3").is_file()


@only_ours
def test_contradictory_test_settings_are_refused(cfg: CfgNode) -> None:
    cfg.TEST.FINAL_MODEL = "best-val"
    with pytest.raises(UserError, match=r"TEST\.FINAL_MODEL is 'best-val'.*best_val"):
        build_trainer(cfg)
    cfg.TEST.FINAL_MODEL = "last_step"
    with pytest.raises(UserError, match=r"TEST\.SPLIT is 'tset'.*test"):
        build_trainer(cfg).test(split="tset")


# Scalars


def test_scalars_without_a_writer_are_dropped(cfg: CfgNode) -> None:
    Two(cfg).write_scalar("train/loss", 1.0, 0)


def test_scalars_are_written(cfg: CfgNode, tmp_path: Path) -> None:
    trainer = Two(cfg)
    trainer.init_writer(str(tmp_path / "tensorboard"))
    trainer.write_scalar("train/loss", 1.0, 0)
    trainer.close_writer()
    (file,) = (tmp_path / "tensorboard").iterdir()
    assert b"train/loss" in file.read_bytes()


@only_ours
def test_training_continues_without_tensorboard(
    cfg: CfgNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    trainer = trained(cfg, OPTIM__MAX_EPOCH=2)
    trainer.init_writer("again")
    assert capsys.readouterr().out.count("TensorBoard is not installed") == 1
