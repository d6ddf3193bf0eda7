"""The scripts start train.py with each paper's own settings. A stand-in for the interpreter prints its arguments."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT


def started(tmp_path: Path, script: str, *arguments: str, **environment: str) -> list[str]:
    """Return the arguments of the first train.py that a script starts."""
    stand_in = tmp_path / "python"
    stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stand_in.chmod(0o755)
    clean = {key: value for key, value in os.environ.items() if key not in ("CFG", "SHOTS", "TRAINER", "SOURCE")}
    done = subprocess.run(
        ["bash", str(ROOT / "scripts" / script), *arguments],
        env={**clean, "PYTHON": str(stand_in), "SEEDS": "1", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def config(arguments: list[str]) -> str:
    path = arguments[arguments.index("--config-file") + 1]
    assert (ROOT / path).is_file(), path
    return path.removeprefix("configs/trainers/").removesuffix(".yaml")


def model_dir(arguments: list[str]) -> str:
    return arguments[arguments.index("--model-dir") + 1]


@pytest.mark.parametrize(
    ("method", "elsewhere", "on_imagenet"),
    [
        ("coop", "CoOp/vit_b16_ctxv1", "CoOp/vit_b16_ep50_ctxv1"),
        ("kgcoop", "KgCoOp/vit_b16_ep100_ctxv1", "KgCoOp/vit_b16_ep50_ctxv1"),
        ("prograd", "ProGrad/rn50_ep100", "ProGrad/rn50_ep50"),
        ("cocoop", "CoCoOp/vit_b16_c4_ep10_batch1_ctxv1", "CoCoOp/vit_b16_c4_ep10_batch1_ctxv1"),
        ("dept", "DePT/vit_b16_ep10_batch4", "DePT/vit_b16_ep10_batch4"),
    ],
)
def test_configurations_by_dataset(tmp_path: Path, method: str, elsewhere: str, on_imagenet: str) -> None:
    assert config(started(tmp_path, f"{method}/base2new_train.sh", "dtd", "1")) == elsewhere
    assert config(started(tmp_path, f"{method}/base2new_train.sh", "imagenet", "1")) == on_imagenet
    assert config(started(tmp_path, f"{method}/base2new_test.sh", "imagenet", "1")) == on_imagenet
    # What is evaluated on another dataset was trained on ImageNet, unless SOURCE says otherwise.
    trained = started(tmp_path, f"{method}/xd_train.sh", "1")
    tested = started(tmp_path, f"{method}/xd_test.sh", "dtd", "1")
    assert config(trained) == config(tested) == on_imagenet
    assert trained[trained.index("--output-dir") + 1] == model_dir(tested)
    assert config(started(tmp_path, f"{method}/xd_train.sh", "1", SOURCE="dtd")) == elsewhere
    given = started(tmp_path, f"{method}/base2new_train.sh", "imagenet", "1", CFG="tiny")
    assert config(given) == f"{on_imagenet.split('/')[0]}/tiny"


def test_maple_by_script(tmp_path: Path) -> None:
    folder = tmp_path / "xd_trees"  # a name that must not matter
    (folder / "scripts").mkdir(parents=True)
    for name in ("maple", "cocoamix"):
        (folder / "scripts" / name).symlink_to(ROOT / "scripts" / name)
    path = os.path.relpath(folder / "scripts" / "maple", ROOT / "scripts")
    own = "MaPLe/vit_b16_c2_ep5_batch4_2ctx"
    assert config(started(tmp_path, f"{path}/base2new_train.sh", "dtd", "1")) == own
    assert config(started(tmp_path, f"{path}/xd_train.sh", "imagenet", "1")) == f"{own}_cross_datasets"


@pytest.mark.parametrize(
    ("dataset", "shots", "strength"),
    [
        ("dtd", "16", "0.8"),
        ("oxford_flowers", "8", "0.8"),
        ("eurosat", "16", "0.8"),
        ("dtd", "4", ""),
        ("ucf101", "16", ""),
    ],
)
def test_strength_of_prograd(tmp_path: Path, dataset: str, shots: str, strength: str) -> None:
    few = [dataset, "rn50", "end", "16", shots, "False"]
    for arguments in (
        started(tmp_path, "prograd/base2new_train.sh", dataset, "1", SHOTS=shots),
        started(tmp_path, "prograd/xd_train.sh", "1", SOURCE=dataset, SHOTS=shots),
        started(tmp_path, "prograd/main.sh", *few),
    ):
        assert ("LOSS.LAMBDA" in arguments) == bool(strength)
        assert not strength or arguments[arguments.index("LOSS.LAMBDA") + 1] == strength
        assert arguments[arguments.index("DATASET.NUM_SHOTS") + 1] == shots
    given = started(tmp_path, "prograd/main.sh", *few, "LOSS.LAMBDA", "0.5")
    assert given[-2:] == ["LOSS.LAMBDA", "0.5"]


@pytest.mark.parametrize("script", ["base2new_train.sh", "xd_train.sh", "main.sh"])
def test_usage(script: str) -> None:
    done = subprocess.run(["bash", str(ROOT / "scripts" / "prograd" / script)], capture_output=True, text=True)
    assert (done.returncode, f"usage: {script}" in done.stderr) == (2, True)
