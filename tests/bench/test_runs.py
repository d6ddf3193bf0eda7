"""Runs of a plan: CoOp's folders, command lines for train.py, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cocoamix.bench.benchmark import RunOptions, classify_runs
from cocoamix.bench.plan import load_plan, override
from cocoamix.bench.runs import Run, expand, select
from cocoamix.errors import UserError
from cocoamix.run.arguments import parse_arguments

from .conftest import Writer

COOP = {"trainer": "CoOp", "config": "two.yaml"}


def table(runs: Sequence[Run]) -> list[tuple[str, str, list[str]]]:
    return [(run.name, str(run.folder), [str(folder) for folder in run.needs]) for run in runs]


def test_runs_of_a_base_to_new_plan(write_plan: Writer) -> None:
    runs = expand(load_plan(str(write_plan(seeds=[1], set={"OPTIM.LR": 0.1}, store="features"))))
    base, new = (f"output/base2new/{part}/shapes/shots_4/CoOp/two/seed1" for part in ("train_base", "test_new"))
    zero = [f"output/base2new/{part}/shapes/shots_4/ZeroshotCLIP/one/seed1" for part in ("train_base", "test_new")]
    assert table(runs) == [
        ("CLIP shapes base", zero[0], []),
        ("CLIP shapes new", zero[1], []),
        ("CoOp shapes seed 1 base", base, []),
        ("CoOp shapes seed 1 new", new, [base]),
    ]
    line = " ".join(runs[3].arguments)
    assert f"--seed 1 --trainer CoOp --dataset-config-file {runs[3].files[0]}" in line
    assert f"--config-file two.yaml --output-dir {new} --eval-only --model-dir {base}" in line
    options = "DATASET.NUM_SHOTS 4 DATASET.SUBSAMPLE_CLASSES new OPTIM.LR 0.1 CACHE.DIR output/features"
    assert line.endswith(options)
    assert "--eval-only" in runs[0].arguments
    assert "--eval-only" not in runs[2].arguments
    assert [run.trains for run in runs] == [False, False, True, False]


def test_all_classes_are_evaluated_on_request(write_plan: Writer) -> None:
    runs = expand(load_plan(str(write_plan(seeds=[1], subsets=["all", "base", "new"]))))
    trained = [run for run in runs if run.method == "CoOp"]
    assert [run.subset for run in trained] == ["base", "new", "all"]
    assert trained[2].folder == Path("output/base2new/test_all/shapes/shots_4/CoOp/two/seed1")
    assert trained[2].needs == (trained[0].folder,)
    assert "DATASET.SUBSAMPLE_CLASSES all" in " ".join(trained[2].arguments)


def test_each_random_partition_has_separate_runs(write_plan: Writer) -> None:
    """Each has its own folders and its own zero-shot runs, which depend on the classes in it."""
    runs = expand(load_plan(str(write_plan(seeds=[1, 2], partitions=[3, 0], set={"OPTIM.LR": 0.1}))))
    names = [run.name for run in runs]
    assert len(names) == len(set(names)) == len({run.folder for run in runs}) == 2 * (2 + 4)
    assert names[:3] == ["CLIP shapes random:3 base", "CLIP shapes random:3 new", "CoOp shapes random:3 seed 1 base"]
    tail = "shapes/shots_4/CoOp/two/seed1"
    new = next(run for run in runs if run.name == "CoOp shapes random:0 seed 1 new")
    assert new.folder == Path("output/base2new/random_0/test_new") / tail
    assert new.needs == (Path("output/base2new/random_0/train_base") / tail,)
    assert "DATASET.SUBSAMPLE_CLASSES new DATASET.PARTITION random:0 OPTIM.LR 0.1" in " ".join(new.arguments)
    assert all(f"DATASET.PARTITION random:{run.partition}" in " ".join(run.arguments) for run in runs)
    # Runs on other halves read other images.
    assert len({run.stored for run in runs if run.method == "CLIP"}) == 4
    assert [run.partition for run in expand(load_plan(str(write_plan(seeds=[1]))))] == [None] * 4

    kept = expand(load_plan(str(write_plan(seeds=[1], partitions=[3, 0])), partitions=[0]))
    assert {run.partition for run in kept} == {0}


def test_untrained_methods_run_once(write_plan: Writer) -> None:
    names = [run.name for run in expand(load_plan(str(write_plan(seeds=[3, 1, 2]))))]
    assert names.count("CLIP shapes base") == 1
    assert [name for name in names if name.startswith("CoOp") and name.endswith("base")] == [
        f"CoOp shapes seed {seed} base" for seed in (3, 1, 2)
    ]


def test_runs_of_a_transfer_plan(write_plan: Writer) -> None:
    path = write_plan(task="xd", source="shapes", datasets=["warm_cool", "colour_shape"], seeds=[1])
    source = "output/shapes/CoOp/two_4shots/seed1"
    assert table(expand(load_plan(str(path)))) == [
        ("CLIP shapes", "output/evaluation/ZeroshotCLIP/one_4shots/shapes/seed1", []),
        ("CLIP warm_cool", "output/evaluation/ZeroshotCLIP/one_4shots/warm_cool/seed1", []),
        ("CLIP colour_shape", "output/evaluation/ZeroshotCLIP/one_4shots/colour_shape/seed1", []),
        ("CoOp shapes seed 1", source, []),
        ("CoOp warm_cool seed 1", "output/evaluation/CoOp/two_4shots/warm_cool/seed1", [source]),
        ("CoOp colour_shape seed 1", "output/evaluation/CoOp/two_4shots/colour_shape/seed1", [source]),
    ]


def test_runs_of_a_few_shot_plan(write_plan: Writer) -> None:
    path = write_plan(task="few-shot", shots=[1, 16], seeds=[1])
    assert table(expand(load_plan(str(path)))) == [
        ("CLIP shapes", "output/ZeroshotCLIP/one/shapes", []),
        ("CoOp shapes seed 1 1 shots", "output/shapes/CoOp/two_1shots/seed1", []),
        ("CoOp shapes seed 1 16 shots", "output/shapes/CoOp/two_16shots/seed1", []),
    ]


def test_runs_of_a_session_plan(write_plan: Writer) -> None:
    uniform: dict[str, Any] = {**COOP, "name": "uniform", "tag": "uniform", "model_of": "CoOp", "set": {"A.B": 1}}
    runs = expand(load_plan(str(write_plan(task="fscil", shots=None, seeds=[1], methods=[COOP, uniform]))))
    first, second = "output/fscil/shapes/CoOp/two/seed1", "output/fscil/shapes/CoOp/two_uniform/seed1"
    assert table(runs) == [("CoOp shapes seed 1", first, []), ("uniform shapes seed 1", second, [first])]
    assert " ".join(runs[1].arguments).endswith(f"--eval-only --model-dir {first} A.B 1")
    assert "DATASET.NUM_SHOTS" not in runs[0].arguments


def test_model_of_another_method_is_evaluated_on_base_and_new(write_plan: Writer) -> None:
    """Both parts are evaluations of the model that the other method trained on base."""
    other = {**COOP, "name": "other", "tag": "other", "model_of": "CoOp"}
    runs = expand(load_plan(str(write_plan(seeds=[1], methods=[COOP, other]))))
    trained = "output/base2new/train_base/shapes/shots_4/CoOp/two/seed1"
    for run, part in ((runs[2], "test_base"), (runs[3], "test_new")):
        assert str(run.folder) == f"output/base2new/{part}/shapes/shots_4/CoOp/two_other/seed1"
        assert [str(folder) for folder in run.needs] == [trained]
        assert not run.trains


def test_each_epoch_of_a_model_is_evaluated(write_plan: Writer) -> None:
    """Evaluations of one training on base and new classes, each in its own folder."""
    runs = expand(load_plan(str(write_plan(seeds=[1], methods=[{**COOP, "epochs": [1, 5]}]))))
    trained = "output/base2new/train_base/shapes/shots_4/CoOp/two/seed1"
    assert [(run.name, run.epoch) for run in runs] == [
        *[(f"CoOp shapes seed 1 {part}", None) for part in ("base", "new")],
        *[(f"CoOp, epoch {epoch} shapes seed 1 {part}", epoch) for epoch in (1, 5) for part in ("base", "new")],
    ]
    for run in runs[2:]:
        assert [str(folder) for folder in run.needs] == [trained]
        assert not run.trains
        assert f"--eval-only --model-dir {trained} --load-epoch {run.epoch} " in " ".join(run.arguments)
        parse_arguments(run.arguments)
    assert "--load-epoch" not in runs[1].arguments
    assert len({run.folder for run in runs}) == len(runs)


def test_epochs_without_a_checkpoint_are_refused(write_plan: Writer) -> None:
    def due(epochs: list[int], **changes: Any) -> int:
        options = {"OPTIM.MAX_EPOCH": 6, "TRAIN.CHECKPOINT_FREQ": 2, **changes}
        method = {"trainer": "CoOp", "config": "tiny", "set": options, "epochs": epochs}
        return len(classify_runs(load_plan(str(write_plan(seeds=[1], methods=[method]))), RunOptions()).due)

    assert due([2, 4, 6]) == 8
    for epochs, changes in (([3], {}), ([8], {}), ([2], {"TRAIN.CHECKPOINT_FREQ": 0}), ([4], {"OPTIM.MAX_EPOCH": 3})):
        with pytest.raises(
            UserError, match=rf"evaluates epoch {epochs[0]}, of which CoOp keeps no checkpoint: its OPTIM"
        ):
            due(epochs, **changes)
    assert due([3], **{"OPTIM.MAX_EPOCH": 3}) == 4


def test_options_can_name_folders_of_other_methods(write_plan: Writer) -> None:
    parts = [{**COOP, "name": name, "tag": name} for name in ("a", "b")]
    several = {**COOP, "name": "both", "tag": "both", "set": {"T.PROMPTS": ["{run:a}", "{run:b}"]}}
    runs = expand(load_plan(str(write_plan(seeds=[2], methods=[*parts, several]))))
    folders = [f"output/base2new/train_base/shapes/shots_4/CoOp/two_{name}/seed2" for name in ("a", "b")]
    base, new = runs[4:]
    for run in (base, new):
        assert run.arguments[run.arguments.index("T.PROMPTS") + 1] == str(folders)
    assert [str(folder) for folder in base.needs] == folders
    assert [str(folder) for folder in new.needs] == [str(base.folder), *folders]


def test_the_command_line_takes_precedence(write_plan: Writer) -> None:
    method = {**COOP, "set": {"OPTIM.LR": 0.2, "OPTIM.NAME": "sgd"}}
    plan = load_plan(str(write_plan(seeds=[1], methods=[method], set={"OPTIM.LR": 0.1, "A.B": 1})))
    line = " ".join(expand(override(plan, (("OPTIM.LR", "0.3"), ("A.B", "2"))))[0].arguments)
    assert line.endswith("OPTIM.LR 0.3 A.B 2 OPTIM.NAME sgd")


def test_the_command_line_does_not_undo_a_sweep(write_plan: Writer) -> None:
    plan = load_plan(str(write_plan(methods=[{**COOP, "sweep": {"A.W": [1.0, 2.0]}}])))
    with pytest.raises(UserError, match=r"--set A\.W would undo the sweep.*--methods, such as 'CoOp, W 1'"):
        override(plan, (("A.W", "3"),))
    with pytest.raises(UserError, match="belongs in the set of a method"):
        override(plan, (("A.B", "{run:CoOp}"),))


def test_the_command_line_does_not_undo_partitions(write_plan: Writer) -> None:
    plan = load_plan(str(write_plan(partitions=[1])))
    with pytest.raises(UserError, match=r"--set, with the plan my, sets DATASET\.PARTITION, which the plan's key"):
        override(plan, (("DATASET.PARTITION", "random:2"),))
    assert override(load_plan(str(write_plan())), (("DATASET.PARTITION", "random:2"),)).overrides


def test_data_root_is_required(write_plan: Writer) -> None:
    plan = load_plan(str(write_plan(datasets=["eurosat"])))
    with pytest.raises(UserError, match="--root DIR, with the environment variable DATA"):
        expand(plan)
    assert expand(replace(plan, root="data"))[0].arguments[:2] == ("--root", "data")


def test_selecting_runs_includes_their_dependencies(write_plan: Writer) -> None:
    runs = expand(load_plan(str(write_plan())))
    assert [run.name for run in select(runs, ["CoOp*2 new", "CLIP * new"])] == [
        "CLIP shapes new",
        "CoOp shapes seed 2 base",
        "CoOp shapes seed 2 new",
    ]
    with pytest.raises(UserError, match="matches KgCoOp"):
        select(runs, ["KgCoOp*"])


def test_paths_are_relative_only_below_the_working_directory(
    write_plan: Writer, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    path = str(write_plan())
    assert "two.yaml" in expand(load_plan(path))[-1].arguments
    (place / "below").mkdir()
    monkeypatch.chdir(place / "below")
    assert str(place / "two.yaml") in expand(load_plan(path))[-1].arguments
