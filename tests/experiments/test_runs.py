"""From a plan to runs: folders as CoOp's scripts choose them, typed settings, and equivalent command lines."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cocoamix.errors import UserError
from cocoamix.experiments.plan import load_plan
from cocoamix.experiments.runs import as_word, expand, from_word, select
from cocoamix.run.arguments import parse_arguments

from .plans import CLIP, COOP, MIX, plan_of, runs_of

FOLDERS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "base2new": (
        {"seeds": [1], "subsets": ["all", "new"], "methods": [COOP]},
        {
            "CoOp shapes seed 1 base": "base2new/train_base/shapes/shots_4/CoOp/tiny/seed1",
            "CoOp shapes seed 1 new": "base2new/test_new/shapes/shots_4/CoOp/tiny/seed1",
            "CoOp shapes seed 1 all": "base2new/test_all/shapes/shots_4/CoOp/tiny/seed1",
        },
    ),
    "partitions": (
        {"seeds": [2], "partitions": [7], "methods": [CLIP]},
        {
            "CLIP shapes random:7 base": "base2new/random_7/train_base/shapes/shots_4/ZeroshotCLIP/tiny/seed2",
            "CLIP shapes random:7 new": "base2new/random_7/test_new/shapes/shots_4/ZeroshotCLIP/tiny/seed2",
        },
    ),
    "model_of": (
        {"seeds": [1], "methods": [COOP, {**COOP, "name": "other", "tag": "x", "model_of": "CoOp"}]},
        {
            "CoOp shapes seed 1 base": "base2new/train_base/shapes/shots_4/CoOp/tiny/seed1",
            "CoOp shapes seed 1 new": "base2new/test_new/shapes/shots_4/CoOp/tiny/seed1",
            "other shapes seed 1 base": "base2new/test_base/shapes/shots_4/CoOp/tiny_x/seed1",
            "other shapes seed 1 new": "base2new/test_new/shapes/shots_4/CoOp/tiny_x/seed1",
        },
    ),
    "transfer": (
        {"task": "xd", "source": "shapes", "datasets": ["warm_cool"], "seeds": [1]},
        {
            "CLIP shapes": "evaluation/ZeroshotCLIP/tiny_4shots/shapes/seed1",
            "CLIP warm_cool": "evaluation/ZeroshotCLIP/tiny_4shots/warm_cool/seed1",
            "CoOp shapes seed 1": "shapes/CoOp/tiny_4shots/seed1",
            "CoOp warm_cool seed 1": "evaluation/CoOp/tiny_4shots/warm_cool/seed1",
        },
    ),
    "few-shot": (
        {"task": "few-shot", "shots": [1, 2], "seeds": [3]},
        {
            "CLIP shapes": "ZeroshotCLIP/tiny/shapes",
            "CoOp shapes seed 3 1 shots": "shapes/CoOp/tiny_1shots/seed3",
            "CoOp shapes seed 3 2 shots": "shapes/CoOp/tiny_2shots/seed3",
        },
    ),
    "fscil": (
        {"task": "fscil", "shots": None, "seeds": [1], "methods": [COOP, {**MIX, "model_of": "CoOp"}]},
        {
            "CoOp shapes seed 1": "fscil/shapes/CoOp/tiny/seed1",
            "Mix shapes seed 1": "fscil/shapes/CoCoAMix/tiny/seed1",
        },
    ),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_are_those_of_coops_scripts(tmp_path: Path, name: str) -> None:
    changes, folders = FOLDERS[name]
    runs = runs_of(tmp_path, **changes)
    assert {run.name: str(run.folder.relative_to(tmp_path / "out")) for run in runs.values()} == folders
    for run in runs.values():
        assert run.trains == ("eval_only" not in run.flags)
        assert run.needs == ((Path(run.flags["model_dir"]),) if "model_dir" in run.flags else ())


def test_settings_of_a_run(tmp_path: Path) -> None:
    methods = [COOP, {**MIX, "set": {"OPTIM.LR": 0.5, "A": ["{run:CoOp}", 1], "B": "in {run:CoOp}"}}]
    plan = plan_of(tmp_path, methods=methods, set={"OPTIM.LR": 0.1, "OPTIM.NAME": "sgd"}, store="f", partitions=[1])
    runs = {run.name: run for run in expand(replace(plan, overrides={"OPTIM.NAME": "adam"}))}
    mix, coop = runs["Mix shapes random:1 seed 2 new"], runs["CoOp shapes random:1 seed 2 base"]
    assert mix.settings == {
        "DATASET.NUM_SHOTS": 4,
        "DATASET.SUBSAMPLE_CLASSES": "new",
        "DATASET.PARTITION": "random:1",
        "OPTIM.LR": 0.5,
        "OPTIM.NAME": "adam",
        "A": [str(coop.folder), 1],
        "B": f"in {coop.folder}",
        "CACHE.DIR": str(tmp_path / "out" / "f"),
    }
    assert mix.needs == (runs["Mix shapes random:1 seed 2 base"].folder, coop.folder)


@example("a photo of a {}.")
@example("{}")
@example("--root")
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
                    | st.text(), st.lists))  # fmt: skip
def test_a_word_is_read_as_the_value_it_was_made_of(value: Any) -> None:
    word = as_word(value)
    assert (type(from_word(word)), from_word(word)) == (type(value), value)
    assert not word.startswith("--")


def test_the_printed_command_is_equivalent(tmp_path: Path) -> None:
    from cocoamix.train import setup_cfg

    plan = replace(load_plan("quick_weights"), overrides={"TRAINER.COCOAMIX.TEMPLATE": "5", "OPTIM.LR": 1})
    kinds = {(run.method.name, run.subset): run for run in expand(replace(plan, output=tmp_path / "a b"))}
    assert len(kinds) == 24
    for run in kinds.values():
        words = shlex.split(run.command())
        parsed = parse_arguments(words[words.index("--seed") :])
        assert setup_cfg(parsed) == setup_cfg(run.arguments(), settings=run.settings)
        flags = {key: value for key, value in vars(parsed).items() if key != "opts"}
        assert flags == {key: value for key, value in vars(run.arguments()).items() if key != "opts"}


def test_selection_keeps_what_the_runs_need(tmp_path: Path) -> None:
    runs = list(runs_of(tmp_path).values())
    assert [run.name for run in select(runs, ["CoOp * seed 2 new"])] == [
        "CoOp shapes seed 2 base",
        "CoOp shapes seed 2 new",
    ]
    with pytest.raises(UserError, match="CLIP shapes base"):
        select(runs, ["nothing"])


def test_real_datasets_need_a_root(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--root"):
        runs_of(tmp_path, datasets=["eurosat"])
    plan = replace(plan_of(tmp_path, datasets=["eurosat"]), root="/data")
    assert {run.flags["root"] for run in expand(plan)} == {"/data"}
