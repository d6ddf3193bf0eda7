"""The runner on a fake train.py: what is run, repeated, resumed, tolerated and stopped."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from cocoamix.bench.command import main
from cocoamix.bench.plan import load_plan
from cocoamix.bench.runs import expand
from cocoamix.bench.view import View
from cocoamix.report.command import main as report
from tests.conftest import ROOT
from tests.experiments.trees import write_results

from .conftest import Writer, paused

Diary = Callable[[str], list[str]]
BASE = "output/base2new/train_base/shapes/shots_4/CoOp/two/seed1"
NAMES = (("my method, W 1", "w=1"), ("other [x]", "[x]"))  # of methods, and tags
PAGE = "A page with all tables and figures: "
NEW = "output/base2new/test_new/shapes/shots_4/CoOp/two/seed1"


def bench(plan: Path, fake: str, *extra: str) -> int:
    return main(["run", str(plan), "--train", fake, "--gpus", "none", "--no-report", *extra])


def test_every_run_is_done_exactly_once(
    write_plan: Writer, fake: str, diary: Diary, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = write_plan()
    assert bench(plan, fake, "-j", "2") == 0
    assert len(diary("end")) == 6
    shown = capsys.readouterr().out
    assert "[6/6] " in shown
    assert "CoOp shapes seed 2 new: 52.00 %" in shown
    assert "6 runs done" in shown
    assert bench(plan, fake) == 0
    assert len(diary("start")) == 6
    assert "0 runs done in 0 s, 6 were finished before" in capsys.readouterr().out


def test_evaluation_waits_for_its_training(write_plan: Writer, fake: str, diary: Diary) -> None:
    """The fake fails without a model; eight slots would start everything at once."""
    assert bench(write_plan(set={"FAKE.EPOCHS": 3}), fake, "-j", "8") == 0
    assert len(diary("end")) == 6


def test_folder_without_results_is_not_finished(write_plan: Writer, fake: str, diary: Diary) -> None:
    plan = write_plan(seeds=[1])
    bench(plan, fake)
    (Path(NEW) / "results.json").write_text('{"metrics": {}}')
    assert bench(plan, fake) == 0
    assert diary("start")[4:] == [NEW]
    os.remove(f"{BASE}/results.json")  # its evaluation is now of another model
    assert bench(plan, fake) == 0
    assert diary("start")[5:] == [BASE, NEW]
    assert list(Path(NEW).glob("results.json-*-before"))  # nothing is lost


def test_failures_are_listed_and_do_not_stop_other_runs(
    write_plan: Writer, fake: str, diary: Diary, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = [{"trainer": "CoOp", "config": "two.yaml", "set": {"FAKE.FAIL": "2"}}]
    methods += [{"name": "bug", "trainer": "CoOp", "config": "one.yaml", "set": {"FAKE.CRASH": 1}}]
    methods += [{"name": "quiet", "trainer": "CoOp", "config": "one.yaml", "tag": "q", "set": {"FAKE.SILENT": 1}}]
    methods += [
        {"name": "malformed", "trainer": "CoOp", "config": "one.yaml", "tag": "o", "set": {"FAKE.RESULTS": "[]"}}
    ]
    plan = write_plan(methods=methods, seeds=[1, 2])
    assert bench(plan, fake) == 1
    printed = capsys.readouterr().err
    assert "CoOp shapes seed 2 base (failed): the images of seed 2 are missing.\n" in printed
    assert f"    {BASE[:-1]}2/console.txt" in printed
    assert "CoOp shapes seed 2 new (left out): it needs CoOp shapes seed 2 base" in printed
    assert "bug shapes seed 1 base (failed): ValueError: this is a bug" in printed
    assert "quiet shapes seed 1 base (failed): it exited without an error, but wrote no results.json" in printed
    assert "malformed shapes seed 1 base (failed): it exited without an error, but output/" in printed
    assert "results.json cannot be used: it is not an object." in printed
    assert diary("end") == [BASE, NEW]
    assert bench(plan, fake) == 1  # and it is retried


def test_missing_train_command(write_plan: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(write_plan(seeds=[1]), "no-such-program") == 1
    assert "cannot be started" in capsys.readouterr().err


def test_dry_run_prints_commands_that_work(
    write_plan: Writer, fake: str, diary: Diary, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = write_plan(seeds=[1])
    assert bench(plan, fake, "--dry-run") == 0
    assert diary("start") == []
    assert not Path("output").exists()
    lines = [line for line in capsys.readouterr().out.splitlines() if line and not line.startswith("#")]
    assert len(lines) == 4
    for line in lines:
        subprocess.run(["bash", "-c", line], check=True, capture_output=True)
    assert len(diary("end")) == 4
    bench(plan, fake, "--dry-run")
    assert "0 of 4 runs are due, 4 finished" in capsys.readouterr().out


def test_only_runs_the_named_run_and_what_it_needs(write_plan: Writer, fake: str, diary: Diary) -> None:
    assert bench(write_plan(), fake, "--only", "CoOp * seed 1 new") == 0
    assert diary("end") == [BASE, NEW]


def test_gpus_and_threads(write_plan: Writer, fake: str, diary: Diary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(12), raising=False)
    plan = write_plan(set={"FAKE.EPOCHS": 2})
    assert main(["run", str(plan), "--train", fake, "--gpus", "3,5", "--no-report"]) == 0
    assert set(diary("gpu")) == {"3 threads 6", "5 threads 6"}


def test_devices_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    from cocoamix.bench.engines.local import find_gpus, find_slots
    from cocoamix.errors import UserError

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 7")
    assert find_gpus() == ["2", "7"]
    assert find_slots().jobs == 2
    assert find_slots(jobs=4).environment(3)["CUDA_VISIBLE_DEVICES"] == "7"
    assert find_slots(gpus=()).environment(0)["CUDA_VISIBLE_DEVICES"] == ""  # "--gpus none" hides them
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert find_gpus() == []
    assert "CUDA_VISIBLE_DEVICES" not in find_slots().environment(0)
    with pytest.raises(UserError, match="-j is 0"):
        find_slots(jobs=0)


def test_cold_store_is_filled_by_a_single_run(write_plan: Writer, fake: str, diary: Diary) -> None:
    """With work on two datasets, the first two concurrent runs use different ones."""
    methods = [{"name": name, "trainer": "CoOp", "config": "one.yaml", "tag": name} for name in "abc"]
    plan = write_plan(
        task="few-shot", datasets=["shapes", "warm_cool"], seeds=[1], methods=methods, set={"FAKE.EPOCHS": 3}
    )
    assert bench(plan, fake, "-j", "2") == 0
    assert {start.split("/")[1] for start in diary("start")[:2]} == {"shapes", "warm_cool"}


def test_disposable_results_of_other_code_are_regenerated(
    write_plan: Writer, fake: str, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = write_plan(disposable=True, seeds=[1])
    bench(plan, fake)
    bench(plan, fake)
    assert len(diary("start")) == 4
    Path(BASE, "left").write_text("from before")
    monkeypatch.setattr("cocoamix.bench.ledger.hash_code", lambda: "other code")
    assert bench(plan, fake) == 0
    assert len(diary("start")) == 8
    assert not Path(BASE, "left").exists()


def test_results_of_other_arguments_block_a_run(
    write_plan: Writer, fake: str, diary: Diary, capsys: pytest.CaptureFixture[str]
) -> None:
    bench(write_plan(seeds=[1]), fake)
    before = Path(BASE, "results.json").read_text()
    assert bench(write_plan(seeds=[1], shots=4, set={"OPTIM.LR": 1.0}), fake) == 1
    printed = capsys.readouterr().err
    assert "CoOp shapes seed 1 base (blocked): the folder of each holds results of" in printed
    assert "another --output" in printed
    assert len(diary("start")) == 4
    assert Path(BASE, "results.json").read_text() == before


def start(plan: Path, fake: str, *extra: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "cocoamix", "bench", "run", str(plan), "--train", fake, "--gpus", "none"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [*line, "--no-report", *extra], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def wait_until(test: Callable[[], Any], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def children_of(plan: Path) -> list[str]:
    """Return the processes of the fake train.py of this test."""
    fake = str(plan.parent / "fake.py")
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            parts = entry.read_bytes().decode().split("\0")
        except OSError:
            continue
        if len(parts) > 1 and parts[1] == fake:
            found.append(entry.parent.name)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_plan_resumes(write_plan: Writer, fake: str, diary: Diary, how: signal.Signals) -> None:
    plan = write_plan(seeds=[1], set={"FAKE.EPOCHS": 3})
    with paused(BASE) as epoch:
        process = start(plan, fake, "-j", "1", "--only", "CoOp*")
        wait_until(lambda: epoch.is_file() and epoch.read_text() == "2")
        process.send_signal(how)
        output = process.communicate()[0]
        wait_until(lambda: not children_of(plan))
    assert not Path(BASE, "results.json").exists()
    if how != signal.SIGKILL:
        assert process.returncode == 130
        assert "the same command resumes" in output
    assert bench(plan, fake, "--only", "CoOp*") == 0
    assert json.loads(Path(BASE, "results.json").read_text())["begun"] == 2
    assert diary("start") == [BASE, BASE, NEW]
    assert Path(BASE, "console.txt").read_text().count("begun at epoch") == 2


def test_sighup_is_ignored_under_nohup(write_plan: Writer, fake: str) -> None:
    plan = write_plan(seeds=[1], set={"FAKE.EPOCHS": 3})
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # processes inherit it, as from nohup
    try:
        with paused(BASE) as epoch:
            process = start(plan, fake, "-j", "1", "--only", "CoOp*")
            wait_until(lambda: epoch.is_file() and epoch.read_text() == "2")
            process.send_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert "2 runs done" in process.communicate()[0]
    assert process.returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_stopping_terminates_child_processes(
    write_plan: Writer, fake: str, diary: Diary, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even if the process that started them stays alive, as this one does."""
    plan = write_plan(set={"FAKE.EPOCHS": 100})

    def tick(self: View, running: object) -> None:
        if len(diary("start")) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(View, "tick", tick)
    before = signal.getsignal(signal.SIGTERM)
    assert bench(plan, fake, "-j", "2") == 130
    assert children_of(plan) == []
    assert signal.getsignal(signal.SIGTERM) == before


def test_stopping_lists_earlier_failures(
    write_plan: Writer, fake: str, diary: Diary, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = write_plan(methods=[{"trainer": "CoOp", "config": "two.yaml", "set": {"FAKE.FAIL": "1"}}])
    ended = View.ended

    def stop(self: View, outcome: Any, running: Any) -> None:
        ended(self, outcome, running)
        if outcome.run.name == "CoOp shapes seed 1 new":  # skipped after its training failed
            raise KeyboardInterrupt

    monkeypatch.setattr(View, "ended", stop)
    assert bench(plan, fake, "-j", "1") == 130
    printed = capsys.readouterr().err
    assert "CoOp shapes seed 1 base (failed): the images of seed 1 are missing.\n" in printed
    assert f"    {BASE}/console.txt" in printed
    assert printed.index("Missing:") < printed.index("Stopped.")


def test_the_command_of_the_page_uses_the_table_names(
    write_plan: Writer, fake: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fake's results lack what the report reads, so complete ones are written here."""
    pytest.importorskip("matplotlib")
    methods = [{"trainer": "CoOp", "config": "two.yaml", "name": name, "tag": tag} for name, tag in NAMES]
    plan = write_plan(methods=methods, seeds=[1])
    for run in expand(load_plan(str(plan))):
        write_results(run.folder, 70.0 if run.subset == "base" else 60.0, subset=run.subset, dataset="Shapes")
    assert main(["run", str(plan), "--train", fake, "--gpus", "none"]) == 0
    shown = capsys.readouterr().out
    (line,) = (line for line in shown.splitlines() if line.startswith(PAGE))
    (command,) = re.findall("<code>(.*)</code>", Path(line.removeprefix(PAGE)).read_text())
    words = shlex.split(unescape(re.sub("<[^>]*>", "", command)))
    assert words[:2] == ["cocoamix", "report"]
    assert report([*words[2:], "--markdown", "page.md"]) == 0
    page = Path("page.md").read_text()
    for name, _ in NAMES:
        assert f"\n{name} " in shown
        assert f"| {name} " in page


def test_usage_errors(write_plan: Writer, fake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "quik"]) == 2
    assert "error: There is no plan 'quik'" in capsys.readouterr().err
    assert bench(write_plan(), fake, "--methods", "KoOp") == 2
    assert "Did you mean CoOp?" in capsys.readouterr().err
    assert main(["list"]) == 0
    assert "quick" in capsys.readouterr().out
