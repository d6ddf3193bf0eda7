"""The runner unpickles nothing in the folder of its jobs: it reads only JSON there."""

from __future__ import annotations

import json
import os
import pickle
import stat
from pathlib import Path
from typing import Any

import pytest

from cocoamix.bench.command import main
from cocoamix.bench.engines import slurm
from cocoamix.bench.engines.process import DONE, FAILED, Outcome
from cocoamix.bench.engines.slurm_files import read_answer, read_runs, write_error, write_outcomes, write_runs
from cocoamix.bench.ledger import Ledger
from cocoamix.bench.plan import load_plan
from cocoamix.bench.runs import Run, expand
from cocoamix.errors import UserError

from .conftest import Writer
from .test_engine import BASE, NEW, Diary
from .test_slurm import METHODS
from .test_slurm_queue import Squeue

submitit = pytest.importorskip("submitit")


class WritesWhenUnpickled:
    """Writes a file when it is unpickled."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("unpickled").absolute(),)


@pytest.fixture
def runs(write_plan: Writer) -> list[Run]:
    return expand(load_plan(str(write_plan(methods=METHODS[:1], seeds=[1]))))


@pytest.fixture
def earlier(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an earlier start whose job 7 is in the queue, with a malicious pickle."""
    tools = place / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    folder = place / "slurm" / "my-1"
    folder.mkdir(parents=True)
    (folder / "7_submitted.pkl").write_bytes(pickle.dumps(WritesWhenUnpickled()))
    Squeue(tools).answer(f"7|RUNNING|None|{folder}/x.sh")
    return folder


def still_queued(runs: list[Run], earlier: Path) -> list[Any]:
    return slurm._still_queued(runs, earlier.parent, ["train"], Ledger(), 1)


def test_jobs_of_an_earlier_start_are_found_without_unpickling(runs: list[Run], earlier: Path) -> None:
    with pytest.raises(UserError, match="scancel 7"):
        still_queued(runs, earlier)
    write_runs(earlier / "7_runs.json", runs, "outcomes-0.json")
    ((job, chain),) = still_queued(runs, earlier)
    assert (job.job_id, chain.runs, chain.answer) == ("7", runs, earlier / "outcomes-0.json")
    write_runs(earlier / "7_runs.json", [runs[0]], "../../outcomes-0.json")
    ((job, chain),) = still_queued(runs[:1], earlier)
    assert chain.answer == earlier / "outcomes-0.json"  # never elsewhere
    with pytest.raises(UserError, match="needs a run that the job 7"):
        still_queued(runs, earlier)
    text = (earlier / "7_runs.json").read_text()
    for other in (text.replace("--seed", "--sead"), "{", "[1]", '{"runs": [1]}', 100_000 * "["):
        (earlier / "7_runs.json").write_text(other)
        with pytest.raises(UserError, match="scancel 7"):
            still_queued(runs, earlier)
    assert not Path("unpickled").exists()


def test_results_of_jobs_are_not_unpickled(
    write_plan: Writer, fake: str, diary: Diary, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The jobs are separate processes, which this patch does not affect."""

    def refuse(*_: object) -> None:
        raise AssertionError("unpickled")

    monkeypatch.setattr(submitit.core.utils, "pickle_load", refuse)
    mask = os.umask(0)
    try:
        plan = write_plan(methods=METHODS, seeds=[1])
        line = ["run", str(plan), "--train", fake, "--no-report", "--engine", "slurm", "--slurm", "cluster=local"]
        assert main(line) == 1
    finally:
        os.umask(mask)
    shown = capsys.readouterr()
    assert "2 runs done" in shown.out
    assert "bad shapes seed 1 base (failed): the images of seed 1 are missing." in shown.err
    assert sorted(diary("end")) == sorted([BASE, NEW])
    (folder,) = Path("output/slurm").iterdir()
    assert not stat.S_IMODE(folder.stat().st_mode) & 0o022  # the jobs unpickle what is in it


def test_only_valid_answers_are_read(runs: list[Run], tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    assert read_answer(path, runs) is None
    outcomes = [Outcome(runs[0], DONE, "", 2.5, 70.0), Outcome(runs[1], FAILED, "why", 1.0)]
    write_outcomes(path, outcomes)
    assert read_answer(path, runs) == outcomes
    assert read_answer(path, [runs[1]]) == outcomes[1:]
    write_error(path, ValueError("no\nroom"))
    assert read_answer(path, runs) == "ValueError: no room"
    good = {"status": DONE, "reason": "", "seconds": 1.0, "accuracy": 2.0}
    for entry in ({}, {**good, "status": "great"}, {**good, "seconds": "1"}, {**good, "accuracy": None}, 1):
        path.write_text(json.dumps({"outcomes": {str(run.folder): entry for run in runs}}))
        assert read_answer(path, runs) is None
    for text in ("", "[]", '{"outcomes": []}', '{"error": 1}', 100_000 * "["):
        path.write_text(text)
        assert read_answer(path, runs) is None
    assert read_runs(path) is None
