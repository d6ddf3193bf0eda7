"""Zero-shot rows: one row regardless of training settings, and more if a result depends on a setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cocoamix.report.build import build
from tests.experiments.trees import write_pair, write_results

STATED = {
    "splits": {"train": "t", "test": "the test images"},
    "evaluated_on": "test",
    "model_selection": "last_step",
    "views": 0,
    "transforms": {"SIZE": [224, 224], "TRANSFORMS": ["random_flip", "normalize"], "RRCROP_SCALE": [0.08, 1.0]},
}


def write(root: Path, name: str, accuracy: float = 70.0, **changes: Any) -> None:
    """Write base and new of a zero-shot run, in the layout of a training configuration `name`."""
    changes["protocol"] = {**STATED, **changes.get("protocol", {})}
    write_pair(root, accuracy, accuracy, **{"trainer": "ZeroshotCLIP", "config_name": name, **changes})


def labels(*roots: Path) -> list[str]:
    tables = build(list(roots)).sections[0].tables
    return [line.label for line in tables[0].lines]


TRAINING = [
    {"config": {"OPTIM": {"MAX_EPOCH": 100, "LR": 0.1}}},
    {"config": {"DATALOADER": {"TRAIN_X": {"BATCH_SIZE": 4}}, "DATASET": {"FEWER_SHOTS": True}}},
    {"shots": 16, "protocol": {"shots": 16}, "fingerprint": "g"},
    {"protocol": {"views": 8, "model_selection": "best_val", "splits": {"train": "u", "test": "the test images"}}},
    {"protocol": {"transforms": {**STATED["transforms"], "TRANSFORMS": ["normalize"], "RRCROP_SCALE": [0.5, 1.0]}}},
]
DECISIVE = [
    {"protocol": {"backbone": "RN50"}},
    {"protocol": {"weights_sha256": "1" * 64}},
    {"protocol": {"precision": "fp16"}},
    {"protocol": {"templates": ["a drawing of a {}."]}},
    {"protocol": {"splits": {"train": "t", "test": "other images"}}},
    {"protocol": {"evaluated_on": "val"}},
    {"protocol": {"transforms": {**STATED["transforms"], "SIZE": [336, 336]}}},
    {"protocol": {"transforms": {**STATED["transforms"], "TRANSFORMS": ["random_flip"]}}},
    {"config": {"TRAINER": {"NAME": "ZeroshotCLIP", "ZEROSHOT": {"ENSEMBLE": 80}}}},
    {"protocol": {"something_new": 1}, "fingerprint": "g"},
]


@pytest.mark.parametrize("changes", TRAINING)
@pytest.mark.parametrize("name", ["vit_b16", "vit_b16_ep100"])
def test_training_settings_do_not_split_rows(tmp_path: Path, name: str, changes: dict[str, Any]) -> None:
    write(tmp_path / "a", "vit_b16", config={"TRAINER": {"NAME": "ZeroshotCLIP", "ZEROSHOT": {"ENSEMBLE": 7}}})
    config = {"TRAINER": {"NAME": "ZeroshotCLIP", "ZEROSHOT": {"ENSEMBLE": 7}}, **changes.get("config", {})}
    write(tmp_path / "b", name, **{**changes, "config": config})
    for roots in ([tmp_path], [tmp_path / "a", tmp_path / "b"]):
        assert labels(*roots) == ["CLIP"]
    report = build([tmp_path])
    assert report.notes == []
    assert report.problems == []


@pytest.mark.parametrize("changes", DECISIVE)
@pytest.mark.parametrize("name", ["vit_b16", "vit_b16_ep100"])
def test_settings_that_affect_results_split_rows(tmp_path: Path, name: str, changes: dict[str, Any]) -> None:
    write(tmp_path, "vit_b16", config={"TRAINER": {"NAME": "ZeroshotCLIP", "ZEROSHOT": {"ENSEMBLE": 7}}})
    write(tmp_path, name, seed=2, **changes)
    assert len(labels(tmp_path)) == 2


def test_differing_results_split_rows(tmp_path: Path) -> None:
    """Unexplained differences are not hidden: results of the same method would be equal."""
    write(tmp_path, "vit_b16")
    write(tmp_path, "vit_b16_ep100", accuracy=71.0)
    assert labels(tmp_path) == ["CLIP (vit_b16)", "CLIP (vit_b16_ep100)"]


def test_a_run_that_does_not_state_its_protocol_keeps_its_row(tmp_path: Path) -> None:
    write(tmp_path, "vit_b16")
    write_pair(tmp_path, 70.0, 70.0, trainer="ZeroshotCLIP", config_name="other")  # lacks evaluated_on
    assert labels(tmp_path) == ["CLIP (other)", "CLIP (vit_b16)"]


def test_trained_methods_are_still_separate_rows(tmp_path: Path) -> None:
    for seed, epochs in ((1, 50), (2, 100)):
        write_pair(tmp_path, 80.0, 70.0, seed=seed, config={"OPTIM": {"MAX_EPOCH": epochs}})
    assert len(labels(tmp_path)) == 2


def test_training_settings_do_not_split_rows_of_sessions(tmp_path: Path) -> None:
    for name, epochs in (("vit_l14_ep5", 5), ("vit_l14_ep50", 50)):
        write_results(
            tmp_path / f"fscil/cifar100/ZeroshotCLIPFSCIL/{name}/seed1",
            70.0,
            trainer="ZeroshotCLIPFSCIL",
            dataset="CIFAR100FSCIL",
            subset="all",
            sessions=[80.0, 70.0],
            protocol=STATED,
            config={"OPTIM": {"MAX_EPOCH": epochs}},
        )
    assert labels(tmp_path) == ["CLIP-ZSL"]
