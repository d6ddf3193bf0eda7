"""What is read from the start of a log, as CoOp's train.py writes it."""

from __future__ import annotations

from pathlib import Path

from yacs.config import CfgNode

from cocoamix.report.readers.logs import read_log
from tests.experiments.trees import head, result, write_log


def test_arguments_and_configuration_are_read_between_star_lines(tmp_path: Path) -> None:
    text = head(
        "CoOp", "EuroSAT", "new", seed=3, epochs=200, backbone="RN50", model_dir="output/x/seed3", load_epoch=50
    )
    log = read_log(write_log(tmp_path, text, result(700)))
    assert log.evaluates_only
    assert {key: log.arguments[key] for key in ("backbone", "load_epoch", "model_dir", "seed", "trainer")} == {
        "backbone": "",
        "load_epoch": "50",
        "model_dir": "output/x/seed3",
        "seed": "3",
        "trainer": "CoOp",
    }
    assert "PyTorch version" not in log.arguments
    assert log.config["MODEL.BACKBONE.NAME"] == "RN50"
    assert log.config["OPTIM.MAX_EPOCH"] == 200
    assert log.config["DATASET.SUBSAMPLE_CLASSES"] == "new"
    assert log.config["OPTIM.STEPSIZE"] == (-1,)
    assert log.config["DATASET.CIFAR_C_TYPE"] == ""
    assert log.config["VERSION"] == 1
    # What follows is not configuration.
    assert not [key for key in log.config if "OS" in key or "Python" in key]


def test_configuration_is_read_as_yacs_prints_it(tmp_path: Path) -> None:
    cfg = CfgNode({"OPTIM": {"MAX_EPOCH": 50, "LR": 0.002}, "INPUT": {"SIZE": (224, 224), "NOTE": ""}, "SEED": 1})
    parts = ["Arguments", "Config"]
    frames = ["\n".join(("*" * (len(part) + 6), f"** {part} **", "*" * (len(part) + 6))) for part in parts]
    text = f"{frames[0]}\nseed: 1\ntrainer: CoOp\n{frames[1]}\n{cfg}\nCollecting env info ...\n"
    for end in ("\n", "\r\n"):
        path = tmp_path / "log.txt"
        path.write_bytes((text + result(700)).replace("\n", end).encode())
        log = read_log(path)
        assert log.arguments == {"seed": "1", "trainer": "CoOp"}
        assert log.config == {
            "INPUT.NOTE": "",
            "INPUT.SIZE": (224.0, 224.0),
            "OPTIM.LR": 0.002,
            "OPTIM.MAX_EPOCH": 50.0,
            "SEED": 1.0,
        }


def test_headings_without_star_lines_are_read(tmp_path: Path) -> None:
    text = "** Arguments **\nseed: 1\n** Config **\nSEED: 1\n"
    log = read_log(write_log(tmp_path, text, result(700)))
    assert (log.arguments, log.config) == ({"seed": "1"}, {"SEED": 1.0})
