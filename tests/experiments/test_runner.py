"""Running plans: what is due, in which order, and what is listed as missing. tests/faults kills runners."""

from __future__ import annotations

import json
import os
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

from .plans import CLIP, COOP, MIX, FakeWorker, fake_workers, plan_of, runs_of, write_plan

CPU = RunOptions(jobs=2, gpus=())
Faker = Callable[..., type[FakeWorker]]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Faker:
    """Replace the processes of runs by ones that only pretend."""

    def faker(fails: Callable[[Run], str] = lambda run: "") -> type[FakeWorker]:
        workers = fake_workers(fails)
        monkeypatch.setattr(local, "Worker", workers)
        monkeypatch.setattr("cocoamix.experiments.runner.warm_up", lambda: None)
        return workers

    return faker


def kinds(plan: Plan, **options: Any) -> dict[str, str]:
    """Return the state of each run by its name."""
    runner = PlanRunner(plan, replace(CPU, **options))
    return {run.name: runner.states[run.folder].kind for run in runner.runs}


def test_every_run_is_done_once_after_those_it_needs(tmp_path: Path, fake: Faker) -> None:
    plan, workers = (
        plan_of(tmp_path, methods=[CLIP, COOP, {**MIX, "set": {"MODEL.INIT_WEIGHTS": "{run:CoOp}"}}]),
        fake(),
    )
    outcome = run_plan(plan, CPU)
    assert sorted(task.run.name for task in workers.started) == sorted(run.name for run in expand(plan))
    assert (workers.most, len(outcome.runs), outcome.missing) == (2, 10, [])
    assert outcome.names[1] == ("CoOp/tiny", "CoOp")
    again = fake()
    assert len(run_plan(plan, CPU).finished) == 10
    assert again.started == []


def test_failures_are_listed_and_stop_no_other_run(
    tmp_path: Path, fake: Faker, capsys: pytest.CaptureFixture[str]
) -> None:
    path, name = write_plan(tmp_path), "CoOp shapes seed 1 base"
    fake(lambda run: "the disk is on fire" if run.name == name else "")
    assert bench.main(["run", str(path), "--no-report", "--gpus", "none"]) == 1
    printed = capsys.readouterr()
    assert f"{name} (failed): the disk is on fire" in printed.err
    assert f"CoOp shapes seed 1 new (left out): it needs {name}" in printed.err
    assert "runs 4 done" in printed.out
    with pytest.raises(UserError, match=f"(?s)my.yaml .*{name}.*on fire"):
        run_plan(plan_of(tmp_path), CPU)
    fake()
    assert len(run_plan(plan_of(tmp_path), CPU).ends) == 2


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
    plan, workers = plan_of(tmp_path), fake()
    run_plan(plan, CPU)
    training = runs_of(tmp_path)["CoOp shapes seed 1 base"]
    content = {"metrics": {"accuracy": 1.0}, "config": {"OPTIM": {"MAX_EPOCH": 1234}}}
    (training.folder / "results.json").write_text(json.dumps(content))
    states = kinds(plan)
    assert {name for name, kind in states.items() if kind == BLOCKED} == {training.name, f"{training.name[:-4]}new"}
    with pytest.raises(UserError, match="1234"):
        run_plan(plan, CPU)
    workers = fake()
    for run in expand(plan):
        (run.folder / "results.json").unlink()  # the pretended runs do not empty their folders
        run.folder.rename(f"{run.folder}-before")
    run_plan(plan, replace(CPU, fresh=True))
    assert [task.repeat for task in workers.started] == [True] * 6
    assert set(kinds(plan, fresh=True).values()) == {DUE}


def test_a_due_model_makes_its_evaluations_due(tmp_path: Path, fake: Faker) -> None:
    fake()
    run_plan(plan_of(tmp_path), CPU)
    training = runs_of(tmp_path)["CoOp shapes seed 1 base"]
    (training.folder / "results.json").unlink()
    assert {name for name, kind in kinds(plan_of(tmp_path)).items() if kind == DUE} == {
        training.name,
        "CoOp shapes seed 1 new",
    }


TRANSFER = {"task": "xd", "source": "shapes", "datasets": ["warm_cool", "round_angular"], "seeds": [1]}


def finish(run: Run, **content: Any) -> None:
    """Write a model, results and the record of a run."""
    (run.folder / "prompt_learner").mkdir(parents=True)
    (run.folder / "prompt_learner" / "model.pth.tar-1").write_bytes(b"then")
    prepare(Task(run, "an earlier start"))
    (run.folder / "results.json").write_text(json.dumps({"metrics": {"accuracy": 1.0}, **content}))


def test_results_of_a_retrained_model_are_set_aside_everywhere(tmp_path: Path, fake: Faker) -> None:
    runs = runs_of(tmp_path, methods=[COOP], **TRANSFER)
    for run in runs.values():
        finish(run)
    (runs["CoOp shapes seed 1"].folder / "results.json").unlink()
    fake(lambda run: "it is tired" if run.dataset.stem == "shapes" else "")
    part = load_plan(str(tmp_path / "my.yaml"), datasets=["warm_cool"])
    PlanRunner(part, CPU).execute()
    results = {run.dataset.stem: [*run.folder.glob("results.json*")] for run in runs.values()}
    assert [path.name[-7:] for path in [*results["warm_cool"], *results["round_angular"]]] == ["-before"] * 2


def test_results_of_a_newer_version_are_never_deleted(tmp_path: Path, fake: Faker) -> None:
    runs, workers = runs_of(tmp_path, methods=[COOP], **TRANSFER), fake()
    for run in runs.values():
        finish(run, version=99 if run.dataset.stem == "warm_cool" else 2)
    runner = PlanRunner(plan_of(tmp_path, methods=[COOP], **TRANSFER), replace(CPU, fresh=True))
    states = {run.dataset.stem: runner.states[run.folder] for run in runner.runs}
    assert [state.kind for state in states.values()] == [DUE, BLOCKED, DUE]
    assert "99" in states["warm_cool"].reason
    for run in runner.of_kind(DUE):
        (run.folder / "results.json").unlink()  # the pretended runs do not empty their folders
        run.folder.rename(f"{run.folder}-before")
    runner.execute()
    assert [task.run.dataset.stem for task in workers.started] == ["shapes", "round_angular"]
    assert (runs["CoOp warm_cool seed 1"].folder / "results.json").is_file()


def test_a_mistake_starts_and_writes_nothing(tmp_path: Path, fake: Faker, data_root: Path) -> None:
    workers = fake()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"set": {"OPTIM.MAX_EPOC": 3}}, "the plan my.yaml sets OPTIM.MAX_EPOC.*MAX_EPOCH"),
        ({"methods": [{**COOP, "set": {"OPTIM.LR": "x"}}]}, "CoOp .*my.yaml.*OPTIM.LR"),
        ({"methods": [{**COOP, "epochs": [3]}], "set": {"OPTIM.MAX_EPOCH": 5}}, "epoch 3.*CHECKPOINT_FREQ"),
        ({"datasets": ["shapes", "eurosat", "dtd"], "root": str(data_root)}, "(?s)1 of the 2 .*dtd: "),
        ({"datasets": ["eurosat"], "root": str(tmp_path / "none")}, "eurosat: .*none"),
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
    folder = run.folder
    (folder / "prompt_learner").mkdir(parents=True)
    (tmp_path / "kept").mkdir()
    (folder / "link").symlink_to(tmp_path / "kept")
    for name in ("results.json", CONSOLE, "resume.pth"):
        (folder / name).write_text("x")
    task = Task(run, "this start", repeat=True)
    prepare(task)
    assert [path.name for path in folder.iterdir()] == [STAMP]
    assert (tmp_path / "kept").is_dir()
    (folder / "resume.pth").write_text("x")
    prepare(task)  # a job that a cluster starts again
    assert (folder / "resume.pth").exists()
    prepare(replace(task, start="the next"))
    assert not (folder / "resume.pth").exists()


# ---------------------------------------------------------------------- progress and commands


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


# ---------------------------------------------------------------------- real processes

SMALL = {"datasets": ["warm_cool"], "shots": 1, "store": "f", "methods": [CLIP, COOP]}


def metrics(folder: Path) -> dict[str, Any]:
    """Return the metrics of all runs below a folder."""
    paths = sorted(folder.rglob("results.json"))
    return {str(path.relative_to(folder)): json.loads(path.read_text())["metrics"] for path in paths}


@pytest.mark.slow
def test_forked_and_new_processes_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    plan = plan_of(tmp_path, seeds=[1], set={"OPTIM.MAX_EPOCH": 2}, **SMALL)
    forked = run_plan(plan, CPU)
    assert "epoch [2/2]" in (forked.runs[2].folder / CONSOLE).read_text()
    monkeypatch.setattr(local, "can_fork", lambda gpus: False)
    run_plan(replace(plan, output=tmp_path / "new", root=""), replace(CPU, jobs=1))
    assert metrics(tmp_path / "new") == metrics(tmp_path / "out")
    assert len(metrics(tmp_path / "out")) == 4
