"""Plans are read, or refused with a message that names the problem and the fix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cocoamix.bench.plan import Plan, load_plan, shipped
from cocoamix.bench.runs import expand
from cocoamix.config import shipped as configurations
from cocoamix.errors import UserError

from .conftest import Writer

COOP = {"trainer": "CoOp", "config": "two.yaml"}


def test_plan_is_read(write_plan: Writer, place: Path) -> None:
    plan = load_plan(str(write_plan(set={"OPTIM.LR": 0.1}, root="~/data", store="features")))
    assert (plan.name, plan.task, plan.seeds, plan.shots) == ("my", "base2new", (1, 2), (4,))
    assert [(one.name, one.trainer, one.label, one.trained) for one in plan.methods] == [
        ("CLIP", "ZeroshotCLIP", "one", False),
        ("CoOp", "CoOp", "two", True),
    ]
    assert plan.methods[0].config == place / "one.yaml"  # relative to the plan, whatever the working directory
    assert plan.options == (("OPTIM.LR", 0.1),)
    assert not plan.disposable


def test_sweep_makes_a_method_of_each_value(write_plan: Writer) -> None:
    sweep = {"A.W": [1.0, 2.5], "A.B": ["x/y"]}
    plan = load_plan(str(write_plan(methods=[{**COOP, "name": "M", "tag": "t", "set": {"A.C": 1}, "sweep": sweep}])))
    assert [(one.name, one.label) for one in plan.methods] == [
        ("M, W 1, B x/y", "two_t_w1_bx-y"),
        ("M, W 2.5, B x/y", "two_t_w2.5_bx-y"),
    ]
    assert plan.methods[1].options == (("A.C", 1), ("A.W", 2.5), ("A.B", "x/y"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"metods": []}, ["'metods'", "Did you mean methods?", "my.yaml"]),
        ({"task": "base3new"}, ["'base3new'", "Did you mean base2new?"]),
        ({"task": None}, ["has no key task"]),
        ({"seeds": [1, "two"]}, ["seeds", "'two'"]),
        ({"seeds": [1, 1]}, ["seeds", "twice"]),
        ({"seeds": []}, ["seeds", "empty"]),
        ({"shots": [1, 2]}, ["shots", "one number"]),
        ({"shots": 0}, ["shots", "from 1 up"]),
        ({"datasets": ["shapess"]}, ["shapess", "Did you mean shapes"]),
        ({"datasets": ["shapes", "shapes"]}, ["shapes twice"]),
        ({"source": "shapes"}, ["source", "only the task xd"]),
        ({"task": "xd"}, ["has no key source"]),
        ({"task": "fscil"}, ["shots", "FSCIL."]),
        ({"disposable": "yes"}, ["disposable", "true or false"]),
        ({"set": ["a"]}, ["key set of the plan", "a list"]),
        ({"set": {1: 2}}, ["key set of the plan", "the key 1", "a string is expected"]),
        ({"set": {"A.B": "{run:CoOp}"}}, ["{run:...}", "the set of a method"]),
        ({1: 2}, ["the key 1", "a string is expected"]),
        ({"methods": [{**COOP, "sweep": {1: [2]}}]}, ["The sweep of CoOp", "the key 1"]),
        ({"methods": [{**COOP, "sweep": {}}]}, ["The sweep of CoOp is empty"]),
        ({"methods": [{**COOP, "set": {2: 1}}]}, ["key set of method 1", "the key 2"]),
        ({"methods": [{**COOP, "tag": "../../x"}]}, ["tag of method 1", "'../../x'", "not a path"]),
        ({"methods": [{**COOP, "trainer": "a/b"}]}, ["trainer of method 1", "not a path"]),
        ({"subsets": ["base", "newer"]}, ["subsets of the plan", "'newer'", "Did you mean new?"]),
        ({"subsets": ["new", "all"]}, ["leaves out base", "every training run evaluates"]),
        ({"subsets": ["base"], "task": "few-shot"}, ["has subsets", "only the task base2new", "few-shot"]),
        ({"partitions": [1, -1]}, ["partitions of the plan", "-1", "from 0 up"]),
        ({"partitions": ["random:1"]}, ["partitions of the plan", "'random:1'", "whole numbers"]),
        ({"partitions": [1, 1]}, ["partitions of the plan", "twice"]),
        ({"partitions": [1], "task": "few-shot"}, ["has partitions", "only the task base2new", "few-shot"]),
        ({"partitions": [1], "set": {"DATASET.PARTITION": "label"}}, ["sets DATASET.PARTITION", "Leave out one"]),
        (
            {"partitions": [1], "methods": [{**COOP, "sweep": {"DATASET.PARTITION": ["random:2"]}}]},
            ["sets DATASET.PARTITION", "Leave out one"],
        ),
        ({"methods": ["CoOp"]}, ["Method 1", "a string"]),
        ({"methods": [{"trainer": "CoOp"}]}, ["Method 1", "has no key config"]),
        ({"methods": [{**COOP, "confg": 1}]}, ["'confg'", "Did you mean config?"]),
        ({"methods": [{**COOP, "config": "vit_b17"}]}, ["CoOp/vit_b17", "Did you mean CoOp/vit_b1"]),
        ({"methods": [{**COOP, "config": "three.yaml"}]}, ["three.yaml", "does not exist"]),
        ({"methods": [COOP, COOP]}, ["two methods named CoOp"]),
        ({"methods": [COOP, {**COOP, "name": "other"}]}, ["CoOp and other", "CoOp/two", "a tag"]),
        ({"methods": [COOP, {**COOP, "name": "o", "tag": "o", "model_of": "CoOpp"}]}, ["'CoOpp'", "mean CoOp?"]),
        ({"methods": [{**COOP, "model_of": "CoOp"}]}, ["not an earlier method"]),
        ({"methods": [{**COOP, "train": False}, {**COOP, "name": "o", "model_of": "CoOp"}]}, ["which is not trained"]),
        ({"methods": [{**COOP, "epochs": [1, 0]}]}, ["epochs of method 1", "holds 0", "from 1 up"]),
        ({"methods": [{**COOP, "epochs": [3, 3]}]}, ["epochs of method 1", "twice"]),
        ({"methods": [{**COOP, "epochs": 3, "train": False}]}, ["has epochs, but it is not trained"]),
        ({"methods": [{**COOP, "epochs": 3}], "task": "fscil", "shots": None}, ["has epochs", "sessions of fscil"]),
        (
            {"methods": [{**COOP, "epochs": 3}, {**COOP, "name": "o", "tag": "epoch3"}]},
            ["CoOp, epoch 3 and o", "a tag"],
        ),
    ],
)
def test_errors_name_the_bad_entry(write_plan: Writer, changes: dict[Any, Any], words: list[str]) -> None:
    unnamed = {key: changes.pop(key) for key in list(changes) if not isinstance(key, str)}
    path = write_plan(**changes)
    path.write_text(path.read_text() + (yaml.safe_dump(unnamed) if unnamed else ""))
    with pytest.raises(UserError) as refused:
        load_plan(str(path))
    for word in words:
        assert word in str(refused.value)


def test_refuses_files_that_are_not_plans(place: Path) -> None:
    with pytest.raises(UserError, match=r"no plan 'quik'\. Did you mean quick\?"):
        load_plan("quik")
    with pytest.raises(UserError, match=r"no plan file away\.yaml"):
        load_plan("away.yaml")
    (place / "bad.yaml").write_text("a: [1")
    with pytest.raises(UserError, match="not valid YAML"):
        load_plan("bad.yaml")
    (place / "text.yaml").write_text("hello")
    with pytest.raises(UserError, match="should be keys"):
        load_plan("text.yaml")


def test_filters_select_methods_datasets_and_seeds(write_plan: Writer) -> None:
    path = str(write_plan(datasets=["shapes", "warm_cool"]))
    plan = load_plan(path, methods=["CoOp"], datasets=["warm_cool"], seeds=[2])
    assert ([one.name for one in plan.methods], plan.seeds) == (["CoOp"], (2,))
    assert [one.name for one in plan.datasets] == ["warm_cool"]
    for flag, value in (("methods", ["CoOpp"]), ("datasets", ["shape"]), ("seeds", [3])):
        with pytest.raises(UserError, match=f"--{flag} names .* not in the plan"):
            load_plan(path, **{flag: value})  # type: ignore[arg-type]


def test_filter_of_partitions(write_plan: Writer) -> None:
    assert load_plan(str(write_plan(partitions=[1, 2, 3])), partitions=[3, 1]).partitions == (1, 3)
    with pytest.raises(UserError, match="--partitions names 4, which is not in the plan"):
        load_plan(str(write_plan(partitions=[1, 2, 3])), partitions=[4])
    with pytest.raises(
        UserError, match=r"--partitions is for plans that have partitions, but the plan .*my.yaml has none"
    ):
        load_plan(str(write_plan()), partitions=[4])


def test_each_listed_epoch_is_evaluated(write_plan: Writer) -> None:
    """In addition to the training, or for another method's model, without one."""
    other = {**COOP, "name": "other", "tag": "t", "model_of": "CoOp", "epochs": 7}
    swept = {**COOP, "name": "S", "sweep": {"A.W": [1.0]}, "epochs": [2]}
    methods = load_plan(str(write_plan(methods=[{**COOP, "epochs": [1, 5]}, other, swept]))).methods
    assert [(one.name, one.label, one.model_of, one.epoch) for one in methods] == [
        ("CoOp", "two", "", None),
        ("CoOp, epoch 1", "two_epoch1", "CoOp", 1),
        ("CoOp, epoch 5", "two_epoch5", "CoOp", 5),
        ("other, epoch 7", "two_t_epoch7", "CoOp", 7),
        ("S, W 1", "two_w1", "", None),
        ("S, W 1, epoch 2", "two_w1_epoch2", "S, W 1", 2),
    ]
    assert methods[5].options == (("A.W", 1.0),)


def test_filter_keeps_methods_that_others_depend_on(write_plan: Writer) -> None:
    other = {**COOP, "name": "other", "tag": "other", "model_of": "CoOp"}
    last = {**COOP, "name": "last", "tag": "last", "set": {"A.B": "{run:other2}"}}
    other2 = {**COOP, "name": "other2", "tag": "o2"}
    path = str(write_plan(methods=[COOP, other, other2, last]))
    assert [one.name for one in load_plan(path, methods=["other"]).methods] == ["CoOp", "other"]
    assert [one.name for one in load_plan(path, methods=["last"]).methods] == ["other2", "last"]
    path = str(write_plan(methods=[{**COOP, "epochs": [1, 5]}]))
    assert [one.name for one in load_plan(path, methods=["CoOp, epoch 5"]).methods] == ["CoOp", "CoOp, epoch 5"]


def load_shipped(name: str) -> Plan:
    """Load a shipped plan, or skip if its trainers are not in this tree."""
    try:
        return load_plan(name)
    except UserError as error:
        trainers = {path.name for path in (configurations.folder() / "trainers").iterdir()}
        named = str(error).split("There is no configuration ")[-1].split("/")[0]
        if "There is no configuration" in str(error) and named not in trainers:
            pytest.skip(f"this tree has no trainer {named}")
        raise


@pytest.mark.parametrize("name", sorted(shipped()))
def test_shipped_plans_are_complete(name: str) -> None:
    """Every configuration exists, every key of train.py is known, no two runs share a folder."""
    from dataclasses import replace

    from cocoamix.bench.ledger import plan_settings

    plan = load_shipped(name)
    assert plan.about.endswith(".")
    runs = expand(replace(plan, root="data"))
    folders = [run.folder for run in runs]
    assert len(set(folders)) == len(folders)
    settings_of = plan_settings()
    for run in {run.method: run for run in runs}.values():
        assert settings_of(run)["SEED"] == run.seed


def test_paper_plans_are_shipped() -> None:
    wanted = "quick base2new transfer fscil losses losses_sweep ensembles weights outclasses sweep_w sweep_d fewshot"
    assert {*wanted.split(), "assumption", "quick_assumption"} <= set(shipped())
