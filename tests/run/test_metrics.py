"""metrics.csv has one row per epoch, whatever happens to the run, and Weights & Biases gets the same rows."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from cocoamix.errors import UserError
from cocoamix.run.metrics import read_metrics
from cocoamix.trainers.fscil.loop import SessionTrainer
from tests.conftest import Run, Runner, epochs
from tests.trainers.kinds import BASE, stopping_at

MIX = ["TRAINER.COCOAMIX.N_CTX", "2", "TRAINER.COCOAMIX.STAGE", "two", "OPTIM.MAX_EPOCH", "2"]
SESSIONS = ["FSCIL.BASE", "6", "FSCIL.WAY", "2", "FSCIL.SHOTS", "2", "OPTIM.MAX_EPOCH", "2"]
WANDB = ["TRAIN.WANDB", "True", "TRAIN.WANDB_PROJECT", "prompts"]


def last_lines(run: Run) -> list[dict[str, str]]:
    """Return the averages that the log shows after each epoch's last batch, and the rate of its first."""
    found = []
    for line in re.findall(r"^epoch \[.*batch \[(?:1|2)/2\].*$", (run.folder / "log.txt").read_text(), re.M):
        if "batch [1/2]" in line:
            rate = re.findall(r"lr (\S+)", line)[0]
        else:
            averages = re.findall(r"(\w+) [-\d.]+ \(([-\d.]+)\)", line)
            found.append(dict(averages[2:], lr=rate))  # the first two are times
    return found


def test_rows_match_the_averages_in_the_log(run: Runner) -> None:
    done = run(*BASE, "OPTIM.MAX_EPOCH", "3")
    rows, logged = epochs(done.folder), last_lines(done)
    assert [(row["epoch"], row["phase"]) for row in rows] == [("1", "train"), ("2", "train"), ("3", "train")]
    assert len(logged) == 3
    for row, line in zip(rows, logged, strict=True):
        assert line.keys() == row.keys() - {"epoch", "phase"}
        for name, value in line.items():
            assert float(row[name]) == pytest.approx(float(value), rel=1e-4, abs=1e-4), name
    times = [line.rpartition(",")[2] for line in (done.folder / "metrics.csv").read_text().splitlines()]
    assert times[0] == "seconds"
    assert all(float(time) > 0 for time in times[1:])


def test_rows_have_only_the_terms_of_their_phase(run: Runner) -> None:
    """A row has only the terms of its phase, and the learning rate of what the phase trains."""
    folds = ["TRAINER.COCOAMIX.WEIGHT_FIT", "heldout", "TRAINER.COCOAMIX.WEIGHT_EPOCHS", "1"]
    rows = epochs(run(*BASE, *MIX, *folds, trainer="CoCoAMix").folder)
    assert [row["phase"] for row in rows] == ["prompt"] * 2 + ["fold"] * 2 * 4 + ["weights"]
    assert [int(row["epoch"]) for row in rows] == list(range(1, len(rows) + 1))
    for row in rows:
        weights = row["phase"] == "weights"
        assert bool(row["ce"]) is not weights
        assert bool(row["pi_in"]) is weights
    assert rows[0]["lr"] == "1e-05"
    assert rows[-1]["lr"] == "0.002"


def test_rows_survive_a_resume_in_any_folder(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = epochs(run(*BASE, name="whole").folder)
    with monkeypatch.context() as patch:
        stopping_at(2, patch)
        stopped = run(*BASE, name="stopped")
    assert epochs(stopped.folder) == whole[:2]
    # As if it was killed in epoch 3, after the row was written and before anything else was.
    table = stopped.folder / "metrics.csv"
    table.write_text(table.read_text() + table.read_text().splitlines()[-1].replace("2,train", "3,train") + "\n")
    assert epochs(run("--resume", str(stopped.folder), *BASE, name="other").folder) == whole
    assert epochs(run(*BASE, name="stopped").folder) == whole
    assert epochs(run(*BASE, name="stopped").folder) == whole  # nothing was left to do


@pytest.mark.parametrize("last", ["0", "1", "-1"])
def test_rows_of_finished_sessions_are_copied(run: Runner, shared_run: Runner, last: str) -> None:
    """All rows are copied with the sessions, even if the run in the other folder ends earlier."""
    whole = shared_run(*SESSIONS, name="whole", trainer="CoOpFSCIL").folder
    other = run("--resume", str(whole), *SESSIONS, "FSCIL.LAST_SESSION", last, name="other", trainer="CoOpFSCIL")
    assert other.status == 0, other.output[-500:]
    assert epochs(other.folder) == epochs(whole)
    assert len(list((other.folder / "sessions").glob("session-*.pth"))) == 3
    again = run(*SESSIONS, name="other", trainer="CoOpFSCIL")  # nothing is left to do
    assert again.results["sessions"][-1]["accuracy"] == pytest.approx(again.results["metrics"]["accuracy"])
    assert epochs(again.folder) == epochs(whole)


def test_a_session_that_was_stopped_keeps_its_rows(
    run: Runner, shared_run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ends before that session has nothing to do, and leaves them for the run that resumes it."""
    whole = epochs(shared_run(*SESSIONS, name="whole", trainer="CoOpFSCIL").folder)
    with monkeypatch.context() as patch:
        begin = SessionTrainer.begin

        def stop_in_the_last(self: SessionTrainer, number: int) -> None:
            begin(self, number)
            if number == 2:
                stopping_at(1, patch)

        patch.setattr(SessionTrainer, "begin", stop_in_the_last)
        stopped = run(*SESSIONS, trainer="CoOpFSCIL")
    assert epochs(stopped.folder) == whole[:5]
    assert run(*SESSIONS, "FSCIL.LAST_SESSION", "1", trainer="CoOpFSCIL").status == 0
    assert epochs(stopped.folder) == whole[:5]
    assert run(*SESSIONS, trainer="CoOpFSCIL").status == 0
    assert epochs(stopped.folder) == whole


def test_restarted_run_starts_a_new_table(run: Runner) -> None:
    done = run(*BASE, "OPTIM.MAX_EPOCH", "2")
    wanted = epochs(done.folder)
    (done.folder / "resume.pth").unlink()
    (done.folder / "prompt_learner" / "checkpoint").unlink()
    assert epochs(run(*BASE, "OPTIM.MAX_EPOCH", "2").folder) == wanted


def test_a_damaged_table_does_not_stop_training(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        stopping_at(1, patch)
        stopped = run(*BASE, "OPTIM.MAX_EPOCH", "2")
    (stopped.folder / "metrics.csv").write_text("epoch,phase\n1,train\n1,train\n")
    resumed = run(*BASE, "OPTIM.MAX_EPOCH", "2")
    assert resumed.status == 0, resumed.output[-500:]
    assert "metrics.csv is not a table of epochs" in resumed.output
    assert [row["epoch"] for row in epochs(resumed.folder)] == ["2"]


@pytest.mark.parametrize("content", ["", "no,table\n1,2\n", 'epoch\n"1', "epoch\n1,2\n", "epoch\n2\n1\n", "epoch\nx\n"])
def test_damaged_tables_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(content)
    with pytest.raises(UserError, match=r"metrics\.csv is not a table of epochs"):
        read_metrics(path)


class FakeRun:
    """What `wandb.init` returns, with a server that remembers runs."""

    def __init__(self, rows: dict[int, dict[str, Any]]) -> None:
        self.rows, self.summary, self.finished = rows, dict[str, float](), False

    @property
    def step(self) -> int:
        return max(self.rows, default=-1) + 1

    def log(self, values: dict[str, Any], step: int) -> None:
        assert step not in self.rows, "W&B ignores a row with a known step"
        self.rows[step] = values

    def finish(self) -> None:
        self.finished = True


class FakeWandb(types.ModuleType):
    def __init__(self) -> None:
        super().__init__("wandb")
        self.server: dict[str, dict[int, dict[str, Any]]] = {}
        self.asked: list[dict[str, Any]] = []
        self.runs: list[FakeRun] = []

    def init(self, **options: Any) -> FakeRun:
        self.asked.append(options)
        self.runs.append(FakeRun(self.server.setdefault(options["id"], {})))
        return self.runs[-1]


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def as_sent(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of metrics.csv as W&B should have them."""
    return [
        {name: cell if name == "phase" else float(cell) for name, cell in row.items() if cell} for row in epochs(folder)
    ]


def received(rows: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    assert list(rows) == list(range(len(rows)))
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows.values()]


def test_wandb_gets_the_rows(run: Runner, wandb: FakeWandb, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        stopping_at(2, patch)
        run(*BASE, *WANDB)
    done = run(*BASE, *WANDB)
    assert done.status == 0, done.output[-500:]
    ((key, rows),) = wandb.server.items()  # one run, although it was resumed
    assert received(rows) == as_sent(done.folder)
    assert len(rows) == 4
    assert wandb.asked[0]["project"] == "prompts"
    assert wandb.asked[0]["resume"] == "allow"
    assert wandb.asked[0]["config"]["OPTIM"]["MAX_EPOCH"] == 4
    assert wandb.runs[-1].finished
    assert wandb.runs[-1].summary["test/accuracy"] == done.results["metrics"]["accuracy"]
    # A restarted run is a new run in W&B.
    (done.folder / "resume.pth").unlink()
    (done.folder / "prompt_learner" / "checkpoint").unlink()
    run(*BASE, *WANDB)
    assert len(wandb.server) == 2
    # One resumed in another folder is a new run as well, with all rows from the start.
    with monkeypatch.context() as patch:
        stopping_at(2, patch)
        first = run(*BASE, *WANDB, name="first")
    second = run("--resume", str(first.folder), *BASE, *WANDB, name="second")
    assert received(list(wandb.server.values())[-1]) == as_sent(second.folder)
    assert key != wandb.asked[-1]["id"]


def test_wandb_gets_the_rows_of_all_sessions(run: Runner, wandb: FakeWandb) -> None:
    done = run(*SESSIONS, *WANDB, trainer="CoOpFSCIL")
    (rows,) = wandb.server.values()
    assert len(wandb.runs) == 1
    assert received(rows) == as_sent(done.folder)
    assert [(row["session"], row["epoch"]) for row in received(rows)] == [(s, e) for s in range(3) for e in (1, 2)]
    other = run("--resume", str(done.folder), *SESSIONS, *WANDB, name="other", trainer="CoOpFSCIL")  # a new run in W&B
    assert received(list(wandb.server.values())[-1]) == as_sent(other.folder)
    assert len(wandb.server) == 2
    assert wandb.runs[-1].summary["test/accuracy"] == other.results["metrics"]["accuracy"]
    run(*SESSIONS, *WANDB, trainer="CoOpFSCIL")  # nothing was left to do
    assert len(wandb.runs) == 2


def test_wandb_is_off_by_default(run: Runner, wandb: FakeWandb) -> None:
    assert run(*BASE, "OPTIM.MAX_EPOCH", "1").status == 0
    assert not wandb.asked


def test_missing_wandb_is_reported(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    done = run(*BASE, *WANDB)
    assert done.status == 2
    assert "error: TRAIN.WANDB is True, but the package wandb is not installed." in done.output
    assert "epoch [" not in done.output


def test_wandb_failure_is_reported(run: Runner, wandb: FakeWandb, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise RuntimeError("no API key")

    monkeypatch.setattr(wandb, "init", refuse)
    done = run(*BASE, *WANDB)
    assert done.status == 2
    assert "error: Weights & Biases did not start a run (no API key)." in done.output


def test_a_non_numeric_value_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,phase,loss,seconds\n1,prompt,1;5,0.1\n")
    with pytest.raises(UserError, match=r"metrics\.csv is not a table of epochs"):
        read_metrics(path)
