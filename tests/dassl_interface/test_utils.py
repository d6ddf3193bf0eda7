from __future__ import annotations

import json
import os
import random
import re
import stat
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dassl.utils import (
    AverageMeter,
    Logger,
    MetricMeter,
    Registry,
    check_availability,
    check_isfile,
    collect_env_info,
    listdir_nohidden,
    load_checkpoint,
    load_pretrained_weights,
    mkdir_if_missing,
    read_image,
    read_json,
    resume_from_checkpoint,
    save_checkpoint,
    set_random_seed,
    setup_logger,
    write_json,
)
from PIL import Image
from torch import nn

from cocoamix.errors import UserError

from .engine import only_ours

# Files, images, seeds, names


def test_file_helpers_write_read_and_list(tmp_path: Path) -> None:
    folder = str(tmp_path / "a" / "b")
    mkdir_if_missing(folder)
    mkdir_if_missing(folder)
    path = os.path.join(folder, "c", "x.json")
    value = {"train": [["a.jpg", 0, "été"]], "n": None}
    write_json(value, path)
    assert read_json(path) == value
    assert json.loads(Path(path).read_text(encoding="utf-8")) == value
    assert check_isfile(path)
    with pytest.warns(UserWarning, match="nothing"):
        assert not check_isfile(str(tmp_path / "nothing"))
    (tmp_path / ".hidden").touch()
    (tmp_path / "B").touch()
    assert listdir_nohidden(str(tmp_path), sort=True) == ["B", "a"]
    assert sorted(listdir_nohidden(str(tmp_path))) == ["B", "a"]


@only_ours
def test_a_json_file_next_to_the_program_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_json([1], "x.json")
    assert read_json("x.json") == [1]
    assert os.listdir() == ["x.json"]


def test_images_are_rgb(tmp_path: Path) -> None:
    Image.new("L", (3, 2), 7).save(tmp_path / "grey.png")
    image = read_image(str(tmp_path / "grey.png"))
    assert (image.mode, image.size, image.getpixel((0, 0))) == ("RGB", (3, 2), (7, 7, 7))


def test_unreadable_images_are_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.jpg"
    path.write_bytes(b"not an image")
    with pytest.raises((UserError, OSError), match=re.escape("broken.jpg")):
        read_image(str(path))


@only_ours
def test_truncated_images_are_named(tmp_path: Path) -> None:
    path = tmp_path / "cut.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError, match=r"cut\.png"):
        read_image(str(path))


def test_seed_sets_every_generator() -> None:
    def draw() -> tuple[float, ...]:
        set_random_seed(5)
        return random.random(), float(np.random.rand()), torch.rand(1).item()

    assert draw() == draw()


def test_environment_contains_the_torch_version() -> None:
    assert torch.__version__.split("+")[0] in collect_env_info()


@only_ours
def test_environment_is_quick_and_reveals_no_paths() -> None:
    start = time.monotonic()
    report = collect_env_info()
    assert time.monotonic() - start < 1
    for name in ("Python", "torch", "torchvision", "numpy", "pillow", "Platform", "CPU", "CUDA"):
        assert re.search(rf"^{name}s?: \S", report, re.MULTILINE), name
    assert os.path.dirname(sys.executable) not in report


@only_ours
def test_environment_survives_a_broken_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> bool:
        raise RuntimeError("no driver")

    monkeypatch.setattr(torch.cuda, "is_available", broken)
    assert "no driver" in collect_env_info()


def test_unavailable_names_are_refused() -> None:
    check_availability("CoOp", ["CoOp"])
    with pytest.raises(ValueError, match=r"CoOP.*CoOp"):
        check_availability("CoOP", ["ZeroshotCLIP", "CoOp"])


@only_ours
def test_an_unknown_name_raises_a_user_error() -> None:
    with pytest.raises(UserError, match=r"TRAINER\.NAME is 'CoOP'.*Did you mean CoOp\?.*Available: A, CoOp\."):
        check_availability("CoOP", ["A", "CoOp"], "TRAINER.NAME")


def test_registry_refuses_duplicates_unless_forced() -> None:
    registry = Registry("THING")

    @registry.register()
    class One:
        pass

    def two() -> None:
        pass

    registry.register(two)
    assert (registry.get("One"), registry.get("two")) == (One, two)
    assert registry.registered_names() == ["One", "two"]
    with pytest.raises(KeyError, match="One"):
        registry.register(One)
    registry.register(One, force=True)
    with pytest.raises(KeyError, match="Three"):
        registry.get("Three")


# Meters


def test_meters_average_their_updates() -> None:
    meter = AverageMeter()
    meter.update(1.0)
    meter.update(torch.tensor(4.0), n=2)
    assert (meter.val, meter.sum, meter.count, meter.avg) == (4.0, 9.0, 3, 3.0)
    assert (AverageMeter().count, AverageMeter().avg) == (0, 0)

    metrics = MetricMeter()
    metrics.update({"loss": 1.0, "acc": torch.tensor(50.0)})
    metrics.update({"loss": 2.0})
    metrics.update(None)
    assert str(metrics) == "loss 2.0000 (1.5000) acc 50.0000 (50.0000)"
    assert str(MetricMeter()) == ""
    with pytest.raises(TypeError):
        metrics.update(3.0)  # type: ignore[arg-type]


# Logs


def logs(folder: Path) -> list[str]:
    return sorted(path.read_text(encoding="utf-8") for path in folder.iterdir())


def test_log_gets_a_copy_of_what_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setup_logger(None)
    setup_logger(str(tmp_path / "run"))
    print("été", 1)
    sys.stdout.flush()
    assert (tmp_path / "run" / "log.txt").read_text() == "été 1\n"
    assert capsys.readouterr().out == "été 1\n"


def test_log_file_may_be_named(tmp_path: Path) -> None:
    setup_logger(str(tmp_path / "mine.log"))
    print("x")
    sys.stdout.flush()
    assert (tmp_path / "mine.log").read_text() == "x\n"


def test_an_old_log_is_kept(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("old")
    setup_logger(str(tmp_path))
    print("new")
    sys.stdout.flush()
    assert logs(tmp_path) == ["new\n", "old"]
    names = sorted(path.name for path in tmp_path.iterdir())
    assert re.fullmatch(r"log\.txt-\d{4}(-\d\d){5}", names[1])


@only_ours
def test_starts_within_one_second_get_separate_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(5):
        setup_logger(str(tmp_path))
        print("run", number)
    assert logs(tmp_path) == [f"run {number}\n" for number in range(5)]
    assert capsys.readouterr().out == "".join(f"run {number}\n" for number in range(5))


@only_ours
def test_a_killed_process_leaves_its_log(tmp_path: Path) -> None:
    setup_logger(str(tmp_path))
    print("half a line", end="")
    assert logs(tmp_path) == ["half a line"]  # though nothing was flushed or closed


@only_ours
def test_closing_the_log_leaves_stdout_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    console = sys.stdout
    logger = Logger(str(tmp_path / "a.txt"))
    sys.stdout = logger  # type: ignore[assignment]
    assert sys.stdout.isatty() == console.isatty()
    logger.close()
    print("after")  # still goes through the logger, whose file is closed
    del logger
    sys.stdout = console
    print("later")
    assert capsys.readouterr().out == "after\nlater\n"
    assert logs(tmp_path) == [""]


# Checkpoints


def state(epoch: int = 3, **more: Any) -> dict[str, Any]:
    weights = {"module.weight": torch.ones(2, 2), "bias": torch.zeros(2)}
    return {"state_dict": weights, "epoch": epoch, "optimizer": None, "scheduler": None, "val_result": None, **more}


def test_checkpoints_are_saved_and_loaded(tmp_path: Path) -> None:
    save_checkpoint(state(), str(tmp_path / "m"))
    save_checkpoint(state(4), str(tmp_path / "m"), model_name="model-best.pth.tar")
    names = {path.name for path in (tmp_path / "m").iterdir()}
    assert names == {"checkpoint", "model.pth.tar-3", "model-best.pth.tar"}
    assert (tmp_path / "m" / "checkpoint").read_text().strip() == "model-best.pth.tar"
    loaded = load_checkpoint(str(tmp_path / "m" / "model.pth.tar-3"))
    assert list(loaded["state_dict"]) == ["weight", "bias"]
    assert set(loaded) == {"state_dict", "epoch", "optimizer", "scheduler", "val_result"}
    assert load_checkpoint(str(tmp_path / "m" / "model-best.pth.tar"))["epoch"] == 4


def test_missing_checkpoints_raise_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        load_checkpoint(str(tmp_path / "absent"))
    with pytest.raises(ValueError, match=r"(?i)file"):
        load_checkpoint(None)  # type: ignore[arg-type]


@only_ours
def test_a_failed_save_keeps_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = state()
    save_checkpoint(given, str(tmp_path))
    assert "module.weight" in given["state_dict"]  # the caller's dictionary is left alone
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fails(value: Any, file: Any) -> None:
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", fails)
    with pytest.raises(OSError, match="disk full"):
        save_checkpoint(state(), str(tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@only_ours
def test_checkpoints_have_ordinary_permissions(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    save_checkpoint(state(), str(tmp_path / "m"))
    expected = stat.S_IMODE(plain.stat().st_mode)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "m").iterdir()} == {expected}


@only_ours
def test_live_objects_are_omitted_and_damaged_files_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pth.tar-1"
    torch.save(state(scheduler=torch.optim.lr_scheduler.StepLR(torch.optim.SGD([torch.zeros(1)], 0.1), 1)), path)
    loaded = load_checkpoint(str(path))
    assert not hasattr(loaded["scheduler"], "step")
    torch.testing.assert_close(loaded["state_dict"], state()["state_dict"])
    torch.save(state(), path)
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"model\.pth\.tar-1"):
            load_checkpoint(str(path))


def test_resume_restores_everything(tmp_path: Path) -> None:
    def parts() -> tuple[nn.Module, torch.optim.Optimizer, Any]:
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1)

    model, optimizer, scheduler = parts()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    scheduler.step()
    saved = {"state_dict": model.state_dict(), "epoch": 7, "val_result": 1.0}
    save_checkpoint({**saved, "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, str(tmp_path))
    other, other_optimizer, other_scheduler = parts()
    assert resume_from_checkpoint(str(tmp_path), other, other_optimizer, other_scheduler) == 7
    assert torch.equal(other.weight, model.weight)  # type: ignore[arg-type]
    assert other_optimizer.param_groups[0]["lr"] == pytest.approx(0.05)
    assert other_optimizer.state_dict()["state"][0]["momentum_buffer"] is not None
    assert other_scheduler.last_epoch == 1
    assert resume_from_checkpoint(str(tmp_path), parts()[0]) == 7


def test_matching_pretrained_weights_are_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Linear(2, 2)
    path = str(tmp_path / "weights")
    torch.save({"module.weight": torch.full((2, 2), 3.0), "bias": torch.zeros(5), "more": torch.zeros(1)}, path)
    load_pretrained_weights(model, path)
    assert model.weight.unique().tolist() == [3.0]
    printed = capsys.readouterr().out
    assert "bias" in printed
    assert "more" in printed
    torch.save({"state_dict": {"weight": torch.full((2, 2), 4.0)}}, path)
    load_pretrained_weights(model, path)
    assert model.weight.unique().tolist() == [4.0]
    torch.save({"other": torch.zeros(1)}, path)
    with pytest.warns(UserWarning, match="weights"):
        load_pretrained_weights(model, path)
