"""Reading plans: what a file means, which part of it is selected, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cocoamix.errors import UserError
from cocoamix.experiments.plan import load_plan, shipped
from cocoamix.experiments.runs import expand

from .plans import CLIP, COOP, MIX, plan_of, write_plan

SWEEP = {**COOP, "sweep": {"OPTIM.LR": [0.1, 0.2], "OPTIM.MAX_EPOCH": [3]}}
EPOCHS = {**COOP, "epochs": [1, 2]}


def test_values_may_stand_without_a_list_and_twice(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, seeds=3, shots=[4, 4], datasets="shapes")
    assert (plan.seeds, plan.shots, [dataset.stem for dataset in plan.datasets]) == ((3,), (4,), ["shapes"])


def test_sweeps_and_epochs_make_methods(tmp_path: Path) -> None:
    methods = plan_of(tmp_path, methods=[{**SWEEP, "tag": "x"}]).methods
    assert [method.name for method in methods] == ["CoOp, LR 0.1, MAX_EPOCH 3", "CoOp, LR 0.2, MAX_EPOCH 3"]
    assert [method.label for method in methods] == ["tiny_x_lr0.1_max_epoch3", "tiny_x_lr0.2_max_epoch3"]
    assert methods[1].set == {"OPTIM.LR": 0.2, "OPTIM.MAX_EPOCH": 3}
    methods = plan_of(tmp_path, methods=[EPOCHS, {**MIX, "model_of": "CoOp", "epochs": [2]}]).methods
    assert [(method.name, method.label, method.model_of, method.epochs) for method in methods] == [
        ("CoOp", "tiny", "", ()),
        ("CoOp, epoch 1", "tiny_epoch1", "CoOp", (1,)),
        ("CoOp, epoch 2", "tiny_epoch2", "CoOp", (2,)),
        ("Mix, epoch 2", "tiny_epoch2", "CoOp", (2,)),
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sedes": [1]}, ["my.yaml", "sedes", "Did you mean seeds"]),
        ({"seeds": None}, ["seeds"]),
        ({"task": "base3new"}, ["task", "base2new"]),
        ({"shots": [1, 2]}, ["shots", "[1, 2]"]),
        ({"source": "shapes"}, ["source", "base2new"]),
        ({"task": "xd"}, ["source"]),
        ({"partitions": [1], "set": {"DATASET.PARTITION": "random:2"}}, ["DATASET.PARTITION"]),
        ({"set": {"DATASET.NUM_SHOTS": 8}}, ["DATASET.NUM_SHOTS"]),
        ({"methods": [{**COOP, "trian": False}]}, ["my.yaml", "methods.0", "trian", "Did you mean train"]),
        ({"methods": [{**COOP, "tag": "a/b"}]}, ["tag", "a/b"]),
        ({"methods": [{**COOP, "config": "tyni"}]}, ["tyni", "CoOp/tiny"]),
        ({"methods": [{**COOP, "config": "tyni.yaml"}]}, ["my.yaml", "tyni.yaml"]),
        ({"methods": [COOP, {**MIX, "name": "CoOp"}]}, ["CoOp"]),
        ({"methods": [COOP, {**COOP, "name": "other"}]}, ["CoOp", "other", "tag"]),
        ({"methods": [{**MIX, "model_of": "CoOp"}, COOP]}, ["Mix", "CoOp"]),
        ({"task": "fscil", "shots": None, "methods": [EPOCHS]}, ["epochs"]),
        ({"methods": [COOP, {**MIX, "set": {"X": ["{run:CoOpp}"]}}]}, ["Mix", "CoOpp", "Did you mean CoOp"]),
    ],
)
def test_a_mistake_names_its_key(tmp_path: Path, changes: dict[str, Any], words: list[str]) -> None:
    path = write_plan(tmp_path, **changes)
    with pytest.raises(UserError) as refused:
        load_plan(str(path))
    assert [word for word in words if word not in str(refused.value)] == []


def test_files_that_are_no_plans(tmp_path: Path) -> None:
    for content in ("", "[1]", "task: [", "1: 2"):
        (tmp_path / "my.yaml").write_text(content)
        with pytest.raises(UserError, match=r"my\.yaml"):
            load_plan(str(tmp_path / "my.yaml"))
    with pytest.raises(UserError, match=r"quikc.*quick"):
        load_plan("quikc")


def test_filters(tmp_path: Path) -> None:
    path = str(write_plan(tmp_path, methods=[CLIP, COOP, {**MIX, "model_of": "CoOp"}], partitions=[1, 2]))
    plan = load_plan(path, methods=["Mix"], seeds=[2], partitions=[2])
    assert [method.name for method in plan.methods] == ["CoOp", "Mix"]  # it evaluates CoOp's model
    assert (plan.seeds, plan.partitions) == ((2,), (2,))
    for name, value in {"methods": "CoOpp", "datasets": "shape", "seeds": 3, "partitions": 3}.items():
        with pytest.raises(UserError, match=f"--{name} names {value}, .*Known"):
            load_plan(path, **{name: [value]})  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["OPTIM.LR", "DATASET.PARTITION", "DATASET.SUBSAMPLE_CLASSES"])
def test_overrides_keep_what_the_plan_sets(tmp_path: Path, key: str) -> None:
    with pytest.raises(UserError, match=key):
        replace(plan_of(tmp_path, methods=[SWEEP], partitions=[1]), overrides={key: 1})


@pytest.mark.parametrize("name", shipped())
def test_shipped_plans_are_complete(name: str) -> None:
    runs = expand(replace(load_plan(name), root="/data"))
    assert len({run.folder for run in runs}) == len({run.name for run in runs}) == len(runs)
    places = {run.folder: number for number, run in enumerate(runs)}
    assert all(places[folder] < places[run.folder] for run in runs for folder in run.needs)
    assert all(Path(run.flags[key]).is_file() for run in runs for key in ("config_file", "dataset_config_file"))
