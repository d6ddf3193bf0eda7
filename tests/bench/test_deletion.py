"""What a start may delete: only a run's own folder, and only when that run begins."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cocoamix.bench import benchmark, ledger
from cocoamix.bench.benchmark import RunOptions, run_plan
from cocoamix.bench.command import main
from cocoamix.bench.engines.process import DONE, BusyError, Process, begin
from cocoamix.bench.ledger import BLOCKED, DUE, FINISHED, Ledger
from cocoamix.bench.output_folder import folder_for
from cocoamix.bench.plan import load_plan
from cocoamix.bench.runs import expand
from cocoamix.bench.view import View
from cocoamix.report.readers.runs import find_runs

from .conftest import Writer, paused
from .test_engine import BASE, NEW, Diary, bench, start, wait_until

QUICK = "output/quickstart"
FEW = ["--methods", "CLIP", "--datasets", "warm_cool", "--gpus", "none"]


def contents(folder: str) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def finish_quick() -> None:
    """Write a finished plan: results, checkpoints, tables and figures."""
    for run in expand(load_plan("quick", methods=["CLIP"], datasets=["warm_cool"])):
        run.folder.mkdir(parents=True)
        (run.folder / "results.json").write_text(json.dumps({"metrics": {"accuracy": 70.0}}))
        (run.folder / "checkpoint").touch()
    for name in ("tables/quick.md", "tables/quick.json", "figures/quick/a.svg"):
        Path(QUICK, name).parent.mkdir(parents=True, exist_ok=True)
        Path(QUICK, name).touch()


@pytest.mark.parametrize("plan", ["quick", "methods"])
@pytest.mark.parametrize("extra", [[], ["--fresh"], ["--output", QUICK], ["--output", QUICK, "--fresh"]])
def test_a_typo_deletes_nothing(place: Path, capsys: pytest.CaptureFixture[str], plan: str, extra: list[str]) -> None:
    finish_quick()
    before = contents("output")
    assert main(["run", plan, *FEW, *extra, "--set", "OPTIM.MAX_EPOC", "3"]) == 2
    printed = capsys.readouterr()
    assert "OPTIM.MAX_EPOC" in printed.err
    assert "The runs are written to" not in printed.out
    assert contents("output") == before


@pytest.mark.parametrize(
    ("options", "of_method", "where"),
    [
        ({"TRAINER.COOP.WW": 1}, {}, "the plan my.yaml"),
        ({}, {"TRAINER.COOP.WW": 1}, "the method mine of the plan my.yaml"),
        ({}, {"TRAINER.COOP.N_CTX": [2]}, "the method mine of the plan my.yaml"),
    ],
)
def test_a_mistake_in_set_is_the_plans(
    write_plan: Writer,
    capsys: pytest.CaptureFixture[str],
    options: dict[str, int],
    of_method: dict[str, Any],
    where: str,
) -> None:
    methods = [{"name": "mine", "trainer": "CoOp", "config": "CoOp/tiny", "set": of_method}]
    write_plan(task="few-shot", methods=methods, shots=[1], seeds=[1], datasets=["warm_cool"], set=options)
    key = "TRAINER.COOP.WW" if options else next(iter(of_method))
    start = "The run mine warm_cool seed 1 1 shots of the plan cannot be started: "
    assert main(["run", "my.yaml", "--gpus", "none"]) == 2
    assert f"error: {start}{where} sets {key}" in capsys.readouterr().err
    assert main(["run", "my.yaml", "--gpus", "none", "--set", key, "[2]"]) == 2
    assert f"error: {start}the command line sets {key}" in capsys.readouterr().err


def test_an_error_in_a_single_run_is_found(write_plan: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    """All configurations are built, not just one per method and dataset."""
    methods = [{"trainer": "CoOp", "config": "CoOp/tiny"}]
    plan = write_plan(task="few-shot", methods=methods, shots=[1, 2], seeds=[1])
    real = benchmark.plan_settings()
    tried: list[int] = []

    def settings(run: Any) -> Any:
        tried.append(run.shots)
        return real(run)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmark, "plan_settings", lambda: settings)
        assert main(["run", str(plan), "--dry-run"]) == 0
    assert set(tried) == {1, 2}


def test_changed_settings_of_a_shipped_plan_use_another_folder(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish_quick()
    line = ["run", "quick", *FEW, "--dry-run"]
    assert main([*line, "--set", "OPTIM.MAX_EPOCH", "3", "--set", "MODEL.BACKBONE.NAME", "ViT-B/16"]) == 0
    shown = capsys.readouterr().out
    assert f"{QUICK}-nameViT-B-16_max_epoch3" in shown.splitlines()[0]
    assert re.search(f"--output-dir {QUICK}-nameViT-B-16_max_epoch3-[0-9a-f]{{6}}/base2new", shown)
    assert main([*line, "--set", "OPTIM.MAX_EPOCH", "3", "--output", "mine"]) == 0
    assert "--output-dir mine/base2new" in capsys.readouterr().out
    assert main([*line, "--set", "DATALOADER.NUM_WORKERS", "3", "--set", "OPTIM.LR", "9" * 300]) == 0
    folder = capsys.readouterr().out.split("--output-dir ")[1].split("/base2new")[0]
    assert folder.startswith(f"{QUICK}-lr999")
    assert len(folder) < 100
    assert main([*line, "--set", "DATALOADER.NUM_WORKERS", "3"]) == 0  # no result depends on it
    assert "0 of 2 runs are due, 2 finished" in capsys.readouterr().out


def test_results_of_other_settings_are_refused_in_disposable_plans(
    write_plan: Writer, fake: str, diary: Diary, capsys: pytest.CaptureFixture[str]
) -> None:
    bench(write_plan(disposable=True, seeds=[1]), fake, "--only", "CoOp*")
    before = contents("output")
    capsys.readouterr()
    plan = write_plan(disposable=True, seeds=[1], set={"OPTIM.LR": 1.0})
    assert bench(plan, fake, "--only", "CoOp*") == 1
    printed = capsys.readouterr().err
    assert f"{BASE} holds results of other settings" in printed
    assert "--fresh" in printed
    assert "--output" in printed
    assert contents("output") == before
    assert bench(plan, fake, "--only", "CoOp*", "--fresh") == 0
    assert diary("start") == [BASE, NEW, BASE, NEW]


def test_only_settings_matter_in_disposable_plans(write_plan: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the spelling of the arguments nor who produced the results matters."""
    run = next(run for run in expand(load_plan(str(write_plan(seeds=[1])))) if run.trains)
    run.folder.mkdir(parents=True)
    (run.folder / "results.json").write_text('{"metrics": {"accuracy": 70.0}, "config": {"OPTIM": {"LR": 0.1}}}')

    def kind(rate: float) -> str:
        return Ledger(True, lambda _: {"OPTIM.LR": rate}).classify([run])[run.folder].kind

    assert (kind(0.1), kind(0.2)) == (FINISHED, BLOCKED)
    Ledger(True).stamp_begin(run)
    assert (kind(0.1), kind(0.2)) == (FINISHED, BLOCKED)
    monkeypatch.setattr(ledger, "hash_code", lambda: "other code")
    assert (kind(0.1), kind(0.2)) == (DUE, BLOCKED)


def test_plans_that_share_a_folder_share_finished_runs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"methods": ["CoOp"], "datasets": ["warm_cool"]}
    quick, methods = (expand(load_plan(name, **chosen)) for name in ("quick", "methods"))
    book = Ledger(True, lambda _: {})
    for run in quick:
        run.folder.mkdir(parents=True)
        (run.folder / "results.json").write_text('{"metrics": {"accuracy": 70.0}}')
        book.stamp_begin(run)
    assert {state.kind for state in book.classify(methods).values()} == {FINISHED}


def stop_after(starts: int, diary: Diary) -> Callable[[View, object], None]:
    def tick(self: View, running: object) -> None:
        if len(diary("end")) >= starts:
            raise KeyboardInterrupt

    return tick


@pytest.mark.parametrize("why", ["--fresh", "other code"])
def test_a_folder_is_deleted_when_its_run_begins(
    write_plan: Writer,
    fake: str,
    diary: Diary,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    why: str,
) -> None:
    plan = write_plan(disposable=True)
    assert bench(plan, fake, "-j", "1") == 0
    before = contents("output")
    done = diary("end")
    capsys.readouterr()
    if why == "other code":
        monkeypatch.setattr(ledger, "hash_code", lambda: "other code")
    extra = ["--fresh"] if why == "--fresh" else []
    with monkeypatch.context() as patch:
        patch.setattr(View, "tick", stop_after(len(done) + 1, diary))
        assert bench(plan, fake, "-j", "1", *extra) == 130
    began = diary("start")[len(done) :]
    assert 1 <= len(began) < len(done)
    shown = capsys.readouterr().out
    kept = {path: text for path, text in before.items() if not any(path.is_relative_to(one) for one in began)}
    assert kept
    assert {path: contents("output").get(path) for path in kept} == kept
    for folder in done:
        assert (f"deleting the contents of {folder}" in shown) == (folder in began)
    assert bench(plan, fake, "-j", "1", *extra) == 0


def test_evaluation_of_a_retrained_model_is_due(
    write_plan: Writer, fake: str, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the runner was stopped in between, and no matter who produced the evaluation."""
    plan = write_plan(seeds=[1])
    only = ("-j", "1", "--only", "CoOp*")
    assert bench(plan, fake, *only) == 0
    Path(NEW, "bench.json").unlink()
    Path(BASE, "results.json").unlink()

    def stop(self: View, outcome: object, running: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(View, "ended", stop)
        assert bench(plan, fake, *only) == 130
    assert diary("start") == [BASE, NEW, BASE]
    assert Path(NEW, "results.json").is_file()  # its run has not begun
    assert bench(plan, fake, *only) == 0
    assert bench(plan, fake, *only) == 0
    assert diary("start") == [BASE, NEW, BASE, NEW]
    assert list(Path(NEW).glob("results.json-*-before"))


@pytest.mark.parametrize("fresh", [(), ("--fresh",)])
def test_two_runners_share_the_work(
    write_plan: Writer, fake: str, diary: Diary, capsys: pytest.CaptureFixture[str], fresh: tuple[str, ...]
) -> None:
    plan = write_plan(seeds=[1], set={"FAKE.EPOCHS": 3})
    with paused(BASE) as epoch:
        first = start(plan, fake, "-j", "1", "--only", "CoOp*")
        wait_until(lambda: epoch.is_file() and epoch.read_text() == "2")
        second = start(plan, fake, "-j", "1", "--only", "CoOp*", *fresh)
        lines: list[str] = []
        assert second.stdout is not None
        while not any("another process is working" in line for line in lines):
            lines.append(second.stdout.readline())
            assert lines[-1], lines
    shown = [first.communicate()[0], "".join(lines) + second.communicate()[0]]
    assert (first.returncode, second.returncode) == (0, 0), shown
    assert diary("start") == [BASE, NEW]
    assert "by another process" in shown[1]


def test_a_run_left_unfinished_by_another_runner_is_completed(
    write_plan: Writer, fake: str, diary: Diary, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = write_plan(seeds=[1], set={"FAKE.EPOCHS": 3})
    with paused(BASE) as epoch:
        first = start(plan, fake, "-j", "1", "--only", "CoOp*")
        wait_until(lambda: epoch.is_file() and epoch.read_text() == "2")
        second = start(plan, fake, "-j", "1", "--only", "CoOp*")
        assert second.stdout is not None
        while "another process is working" not in second.stdout.readline():
            assert second.poll() is None
        first.kill()
        first.communicate()
    assert "2 runs done" in second.communicate()[0]
    assert second.returncode == 0
    assert diary("start") == [BASE, BASE, NEW]
    assert json.loads(Path(BASE, "results.json").read_text())["begun"] == 2


def test_tables_are_kept_when_nothing_is_due(write_plan: Writer, fake: str) -> None:
    plan = write_plan(seeds=[1])
    assert bench(plan, fake) == 0
    table = Path("output/tables/my.md")
    table.parent.mkdir()
    table.touch()
    assert bench(plan, fake) == 0
    assert table.exists()
    assert bench(plan, fake, "--fresh") == 0
    assert not table.exists()


def test_fresh_deletes_only_after_all_checks(
    write_plan: Writer, fake: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = load_plan(str(write_plan(seeds=[1])))
    for run in expand(plan):
        run.folder.mkdir(parents=True)
        (run.folder / "results.json").write_text('{"metrics": {"accuracy": 70.0}}')
    before = contents("output")
    monkeypatch.setattr(benchmark, "_run_engine", lambda *_: [])
    summary = run_plan(plan, RunOptions(train=tuple(fake.split()), fresh=True))
    assert not summary.finished
    assert contents("output") == before


@pytest.mark.parametrize("wrong", [["-j", "0"], ["--engine", "slurm", "--slurm", "gpu"], ["--only", "nothing"]])
def test_usage_errors_keep_the_tables(write_plan: Writer, fake: str, wrong: list[str]) -> None:
    table = Path("output/tables/my.md")
    table.parent.mkdir(parents=True)
    table.touch()
    assert bench(write_plan(), fake, *wrong) == 2
    assert table.exists()


def test_folder_of_a_running_train_py_is_not_deleted(write_plan: Writer, fake: str) -> None:
    """It holds its own lock if it was started without the runner."""
    fcntl = pytest.importorskip("fcntl")
    run = expand(load_plan(str(write_plan(seeds=[1]))))[0]
    run.folder.mkdir(parents=True)
    (run.folder / "results.json").write_text('{"metrics": {"accuracy": 70.0}}')
    before = contents("output")
    with (run.folder / ".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BusyError, match="is working in"):
            begin(run, fake.split(), Ledger(fresh=time.time()), {})
        assert {path: text for path, text in contents("output").items() if path in before} == before
    begun = begin(run, fake.split(), Ledger(fresh=time.time()), {})
    assert isinstance(begun, Process)
    assert begun.wait().status == DONE


def test_results_of_a_deleted_model_are_renamed(
    write_plan: Writer, fake: str, diary: Diary, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its training is repeated and fails, so the evaluation does not start; no report shows the old one."""
    assert bench(write_plan(seeds=[1, 2]), fake, "--only", "CoOp*") == 0
    for seed in (1, 2):
        Path(f"{NEW[:-1]}{seed}", "log.txt").write_text("=> result\n* accuracy: 51.0%\n")
    capsys.readouterr()
    failing = write_plan(seeds=[1, 2], set={"FAKE.FAIL": "1"})
    assert bench(failing, fake, "--only", "CoOp*", "--fresh") == 1
    assert f"{NEW} were renamed, because their model was deleted or retrained." in capsys.readouterr().out
    kept = {path.name.split("-")[0] for path in Path(NEW).glob("*-before")}
    assert kept == {"results.json", "log.txt"}
    inventory = find_runs(["output"])
    folders = [run.folder for run in inventory.runs] + [problem.folder for problem in inventory.problems]
    assert BASE not in folders
    assert NEW not in folders
    assert Path(f"{NEW[:-1]}2", "results.json").is_file()


def test_results_are_kept_if_the_training_did_not_start(write_plan: Writer, fake: str) -> None:
    plan = write_plan(seeds=[1])
    assert bench(plan, fake, "--only", "CoOp*") == 0
    Path(BASE, "results.json").unlink()
    Path(BASE, "console.txt").unlink()
    Path(BASE, "console.txt").mkdir()  # so that it cannot be opened
    assert bench(plan, fake, "--only", "CoOp*") == 1
    assert Path(NEW, "results.json").is_file()


def test_folder_of_a_running_train_py_is_not_changed(write_plan: Writer, fake: str) -> None:
    """Even if nothing would be deleted: results that are due stay until that train.py has exited."""
    fcntl = pytest.importorskip("fcntl")
    run = expand(load_plan(str(write_plan(seeds=[1]))))[0]
    run.folder.mkdir(parents=True)
    (run.folder / "results.json").write_text('{"metrics": {}}')
    Ledger().stamp_begin(run)
    before = contents("output")
    with (run.folder / ".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BusyError, match="is working in"):
            begin(run, fake.split(), Ledger(), {})
        after = contents("output")
    assert {path for path in after if path not in before} == {run.folder / "console.txt", run.folder / ".lock"}
    assert {path: after.get(path) for path in before} == before


def test_folder_names_do_not_collide() -> None:
    def name(*options: tuple[str, object]) -> str:
        return folder_for(Path("out"), options).name

    assert name(("OPTIM.MAX_EPOCH", 3)) == "out-max_epoch3"
    assert name(("OPTIM.LR", 3)) != name(("X.LR", 3))
    assert name(("DATASET.SUBSAMPLE_CLASSES", "a/b")) != name(("DATASET.SUBSAMPLE_CLASSES", "a-b"))
    assert name(("MODEL.BACKBONE.NAME", "a")) != name(("DATASET.NAME", "a"))
