"""Running plans: what is due, in which order, and what is listed as missing. tests/faults kills runners."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cocoamix.errors import UserError
from cocoamix.experiments import bench, local
from cocoamix.experiments.local import CONSOLE, DONE, End, Task, find_slots, prepare
from cocoamix.experiments.plan import Plan, load_plan
from cocoamix.experiments.progress import Progress
from cocoamix.experiments.runner import PlanRunner, RunOptions, run_plan
from cocoamix.experiments.runs import Run, expand
from cocoamix.run.lock import FolderLock
from cocoamix.run.state import BLOCKED, DUE, STAMP

from .plans import CLIP, COOP, MIX, FakeWorkers, plan_of, runs_of, write_plan

CPU = RunOptions(jobs=2, gpus=())
Faker = Callable[..., FakeWorkers]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Faker:
    """Replace the processes of runs by ones that only pretend."""

    def faker(fails: Callable[[Run], str] = lambda run: "") -> FakeWorkers:
        workers = FakeWorkers(fails)
        monkeypatch.setattr(local, "Worker", workers)
        monkeypatch.setattr("cocoamix.experiments.runner.warm_up", lambda: None)
        return workers

    return faker


def kinds(plan: Plan) -> dict[str, str]:
    """Return the state of each run by its name."""
    runner = PlanRunner(plan, CPU)
    return {run.name: runner.states[run.folder].kind for run in runner.runs}


def test_every_run_is_done_once_after_those_it_needs(tmp_path: Path, fake: Faker) -> None:
    methods = [CLIP, COOP, {**MIX, "set": {"MODEL.INIT_WEIGHTS": "{run:CoOp}"}}]
    plan, workers = plan_of(tmp_path, methods=methods), fake()
    outcome = run_plan(plan, CPU)
    assert sorted(task.run.name for task in workers.started) == sorted(run.name for run in expand(plan))
    assert (workers.most, len(outcome.runs), outcome.missing) == (2, 10, [])
    assert outcome.names[1] == ("CoOp/tiny", "CoOp")
    again = fake()
    assert (len(run_plan(plan, CPU).finished), again.started) == (10, [])


def test_failures_are_listed_and_stop_no_other_run(
    tmp_path: Path, fake: Faker, capsys: pytest.CaptureFixture[str]
) -> None:
    path, name = write_plan(tmp_path), "CoOp shapes seed 1 base"
    fake(lambda run: "the disk is on fire" if run.name == name else "")
    assert bench.main(["run", str(path), "--no-report", "--gpus", "none"]) == 1
    printed = capsys.readouterr()
    assert f"{name} (failed): the disk is on fire" in printed.err
    assert f"CoOp shapes seed 1 new (left out): it needs {name}" in printed.err
    assert "4 runs done" in printed.out
    with pytest.raises(UserError, match=rf"(?s)my\.yaml .*{name}.*on fire"):
        run_plan(plan_of(tmp_path), CPU)


def test_slots(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(6))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 5")
    assert (find_slots(), find_slots(jobs=4), find_slots(2, ())) == (["3", "5"], ["3", "5", "3", "5"], ["", ""])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_slots() == [None] * 6
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'GPU 0: A'\necho 'GPU 1: B'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    assert find_slots() == ["0", "1"]
    with pytest.raises(UserError, match="-j"):
        find_slots(0)


def test_each_gpu_has_one_process(tmp_path: Path, fake: Faker) -> None:
    workers = fake()
    run_plan(plan_of(tmp_path), RunOptions(gpus=("0", "7")))
    assert {task.gpu for task in workers.started} == {"0", "7"}


def test_images_are_not_encoded_twice_at_a_time(tmp_path: Path, fake: Faker) -> None:
    workers = fake()
    methods = [{**CLIP, "name": str(number), "tag": str(number)} for number in range(3)]
    run_plan(plan_of(tmp_path, methods=methods, subsets="base", datasets=["shapes", "warm_cool"]), CPU)
    assert [task.run.name for task in workers.started[:2]] == ["0 shapes base", "0 warm_cool base"]


# ---------------------------------------------------------------------- due and blocked


def test_other_settings_block_and_fresh_repeats(tmp_path: Path, fake: Faker) -> None:
    plan, _ = plan_of(tmp_path), fake()
    run_plan(plan, CPU)
    training = runs_of(tmp_path)["CoOp shapes seed 1 base"]
    content = {"metrics": {"accuracy": 1.0}, "config": {"OPTIM": {"MAX_EPOCH": 1234}}}
    (training.folder / "results.json").write_text(json.dumps(content))
    blocked = {name for name, kind in kinds(plan).items() if kind == BLOCKED}
    assert blocked == {training.name, "CoOp shapes seed 1 new"}
    with pytest.raises(UserError, match="1234"):
        run_plan(plan, CPU)
    workers = fake()
    run_plan(plan, replace(CPU, fresh=True))
    assert [task.repeat for task in workers.started] == [True] * 6


def test_a_due_model_makes_its_evaluations_due(tmp_path: Path, fake: Faker) -> None:
    fake()
    run_plan(plan_of(tmp_path), CPU)
    (runs_of(tmp_path)["CoOp shapes seed 1 base"].folder / "results.json").unlink()
    due = [name for name, kind in kinds(plan_of(tmp_path)).items() if kind == DUE]
    assert due == ["CoOp shapes seed 1 base", "CoOp shapes seed 1 new"]


TRANSFER = {"task": "xd", "source": "shapes", "datasets": ["warm_cool", "round_angular"], "seeds": [1]}


def write_runs(folder: Path, **versions: int) -> dict[str, Run]:
    """Write a model, results and the record of each run of a transfer, and return the runs by dataset."""
    runs = {run.dataset.stem: run for run in runs_of(folder, methods=[COOP], **TRANSFER).values()}
    for name, run in runs.items():
        (run.folder / "prompt_learner").mkdir(parents=True)
        (run.folder / "prompt_learner" / "model.pth.tar-1").touch()
        prepare(Task(run, "an earlier start"))
        content = {"metrics": {"accuracy": 1.0}, "version": versions.get(name, 2)}
        (run.folder / "results.json").write_text(json.dumps(content))
    return runs


def test_results_of_a_retrained_model_are_set_aside_in_the_whole_plan(tmp_path: Path, fake: Faker) -> None:
    runs = write_runs(tmp_path)
    (runs["shapes"].folder / "results.json").unlink()
    fake(lambda run: "it is tired")
    PlanRunner(load_plan(str(tmp_path / "my.yaml"), datasets=["warm_cool"]), CPU).execute()
    names = [path.name for name in TRANSFER["datasets"] for path in runs[name].folder.glob("results.json*")]
    assert (len(names), all(name.endswith("-before") for name in names)) == (2, True)


def test_fresh_deletes_no_results_of_a_newer_version(tmp_path: Path, fake: Faker) -> None:
    runs, workers = write_runs(tmp_path, warm_cool=99), fake()
    runner = PlanRunner(plan_of(tmp_path, methods=[COOP], **TRANSFER), replace(CPU, fresh=True))
    state = runner.states[runs["warm_cool"].folder]
    assert (state.kind, "99" in state.reason) == (BLOCKED, True)
    runner.execute()
    assert [task.run.dataset.stem for task in workers.started] == ["shapes", "round_angular"]
    assert (runs["warm_cool"].folder / "results.json").is_file()


def test_a_mistake_starts_and_writes_nothing(tmp_path: Path, fake: Faker, data_root: Path) -> None:
    workers = fake()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"set": {"OPTIM.MAX_EPOC": 3}}, r"my\.yaml sets OPTIM.MAX_EPOC.*MAX_EPOCH"),
        ({"methods": [{**COOP, "set": {"OPTIM.LR": "x"}}]}, r"CoOp .*my\.yaml.*OPTIM.LR"),
        ({"methods": [{**COOP, "epochs": [3]}], "set": {"OPTIM.MAX_EPOCH": 5}}, "epoch 3.*CHECKPOINT_FREQ"),
        ({"datasets": ["shapes", "eurosat", "dtd"], "root": str(data_root)}, "(?s)1 of the 2 .*dtd: "),
    ]
    for changes, words in wrong:
        with pytest.raises(UserError, match=words):
            run_plan(plan_of(tmp_path, **changes), CPU)
    assert (workers.started, (tmp_path / "out").exists()) == ([], False)


def test_a_second_runner_is_refused_naming_the_first(tmp_path: Path, fake: Faker) -> None:
    workers = fake()
    (tmp_path / "out").mkdir()
    with FolderLock(tmp_path / "out"), pytest.raises(UserError, match=f"{os.getpid()}.*--output"):
        run_plan(plan_of(tmp_path), CPU)
    assert workers.started == []


def test_a_repeated_run_empties_its_folder_once(tmp_path: Path) -> None:
    run = next(iter(runs_of(tmp_path).values()))
    (run.folder / "prompt_learner").mkdir(parents=True)
    (tmp_path / "kept").mkdir()
    (run.folder / "link").symlink_to(tmp_path / "kept")
    (run.folder / "resume.pth").touch()
    prepare(Task(run, "this start", repeat=True))
    assert ([path.name for path in run.folder.iterdir()], (tmp_path / "kept").is_dir()) == ([STAMP], True)
    (run.folder / "resume.pth").touch()
    prepare(Task(run, "this start", repeat=True))  # a job that a cluster starts again
    assert (run.folder / "resume.pth").exists()


# ---------------------------------------------------------------------- what the user sees


def test_the_time_left_is_that_of_similar_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = list(runs_of(tmp_path).values())
    progress = Progress(runs[:5], 2)
    assert progress.time_left([]) == ""
    progress.ended(End(runs[0], DONE, "50.00 %", 10.0), [])
    running: Any = SimpleNamespace(run=runs[1], seconds=4.0)
    assert progress.time_left([running]) == ", about 00:18 left"  # (6 + 3 * 10) / 2
    assert "[1/5] CLIP shapes base done: 50.00 % (00:10), about 00:20 left" in capsys.readouterr().out
    progress.ended(End(runs[2], DONE, "50.00 %", 41.0), [])
    assert progress.time_left([]) == ", about 00:41 left"  # of the other training


def test_changed_settings_of_a_shipped_plan_have_their_own_folder() -> None:
    settings = {"OPTIM.MAX_EPOCH": 3, "DATALOADER.NUM_WORKERS": 2, "MODEL.INIT_WEIGHTS": "a/b"}
    assert bench.folder_for(Path("out"), settings) == Path("out-init_weightsa-b_max_epoch3")
    assert bench.folder_for(Path("out"), {}) == Path("out")


def test_dry_run_prints_the_runs_that_are_due(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["run", str(write_plan(tmp_path)), "--dry-run", "--only", "CLIP*", "--set", "OPTIM.LR", "1"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("--trainer ZeroshotCLIP") == printed.count("OPTIM.LR 1") == 2
    assert not (tmp_path / "out").exists()
    assert bench.main(["list"]) == 0
    assert "base2new" in capsys.readouterr().out


@pytest.mark.slow
def test_forked_and_new_processes_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    methods, out = [CLIP, COOP], tmp_path / "out"
    plan = plan_of(tmp_path, seeds=[1], shots=1, datasets="warm_cool", methods=methods, set={"OPTIM.MAX_EPOCH": 2})
    forked = run_plan(plan, CPU)
    assert "epoch [2/2]" in (forked.runs[2].folder / CONSOLE).read_text()
    results = [json.loads((run.folder / "results.json").read_text())["metrics"] for run in expand(plan)]
    shutil.rmtree(out)
    monkeypatch.setattr(local, "can_fork", lambda gpus: False)
    run_plan(plan, replace(CPU, jobs=1))
    assert results == [json.loads((run.folder / "results.json").read_text())["metrics"] for run in expand(plan)]
