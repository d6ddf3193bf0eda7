"""What counts as finished when the settings of a run are known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cocoamix.bench.ledger import BLOCKED, DUE, FINISHED, Ledger
from cocoamix.bench.runs import Run


def write(folder: Path, config: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps({"metrics": {"accuracy": 70.0}, "config": config}))


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    folders = [tmp_path / name for name in ("train", "test")]
    first = Run("train", folders[0], (), (), "m", "d", "base", 1, 4, True)
    return [first, Run("test", folders[1], (), (), "m", "d", "new", 1, 4, False, (folders[0],))]


def kinds(runs: list[Run], settings: dict[str, Any]) -> list[str]:
    return [state.kind for state in Ledger(settings=lambda _: settings).classify(runs).values()]


def test_changed_settings_block_finished_runs(runs: list[Run]) -> None:
    for run in runs:
        write(run.folder, {"OPTIM": {"LR": 0.1, "NAME": "sgd"}, "OLD": {"KEY": 1}})
    same = {"OPTIM.LR": 0.1, "OPTIM.NAME": "sgd", "NEW.KEY": 2}  # keys missing on one side are ignored
    assert kinds(runs, same) == [FINISHED, FINISHED]
    ledger = Ledger(settings=lambda _: {**same, "OPTIM.LR": 0.2})
    state = ledger.classify(runs)[runs[0].folder]
    assert state.kind == BLOCKED
    assert "OPTIM.LR was 0.1 and is 0.2" in state.reason


def test_training_settings_are_ignored_for_untrained_runs(runs: list[Run]) -> None:
    write(runs[0].folder, {"OPTIM": {"MAX_EPOCH": 30}, "FSCIL": {"SPLIT": 1}})
    zero_shot = [replace(runs[0], trains=False)]
    assert kinds(zero_shot, {"OPTIM.MAX_EPOCH": 3, "FSCIL.SPLIT": 1}) == [FINISHED]
    assert kinds(zero_shot, {"OPTIM.MAX_EPOCH": 30, "FSCIL.SPLIT": 2}) == [BLOCKED]
    assert kinds(runs[:1], {"OPTIM.MAX_EPOCH": 3, "FSCIL.SPLIT": 1}) == [BLOCKED]


def test_sessions_that_ended_early_are_due(runs: list[Run]) -> None:
    path = runs[0].folder / "results.json"
    write(runs[0].folder, {"FSCIL": {"LAST_SESSION": 3}})
    path.write_text(json.dumps({**json.loads(path.read_text()), "finished": False}))
    assert kinds(runs[:1], {}) == [DUE]
    assert kinds([replace(runs[0], arguments=("FSCIL.LAST_SESSION", "3"))], {}) == [FINISHED]
    assert kinds([replace(runs[0], arguments=("FSCIL.LAST_SESSION", "4"))], {}) == [DUE]
    path.write_text(json.dumps({**json.loads(path.read_text()), "finished": True}))
    assert kinds(runs[:1], {}) == [FINISHED]


@pytest.mark.parametrize("disposable", [False, True])
def test_results_of_a_newer_version_block_a_run(runs: list[Run], disposable: bool) -> None:
    """They must not be overwritten: they are neither read nor replaced."""
    write(runs[0].folder, {})
    path = runs[0].folder / "results.json"
    path.write_text(json.dumps({"version": 3, "metrics": {"accuracy": 70.0}}))
    state = Ledger(disposable, lambda _: {}).classify(runs[:1])[runs[0].folder]
    assert state.kind == BLOCKED
    assert state.reason.startswith(f"{path} cannot be used: its version is 3")


def test_evaluation_depends_on_its_training(runs: list[Run]) -> None:
    write(runs[1].folder, {})
    assert kinds(runs, {}) == [DUE, DUE]
    write(runs[0].folder, {"A": 1})
    assert kinds(runs, {}) == [FINISHED, FINISHED]
    (runs[1].folder / "results.json").unlink()
    assert kinds(runs, {}) == [FINISHED, DUE]
    assert kinds(runs, {"A": 2}) == [BLOCKED, BLOCKED]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"metrics": null}',
        '{"metrics": {}}',
        '{"metrics": [1]}',
        '{"metrics": {"accuracy": "high"}}',
        '{"metrics": {"accuracy": true}}',
        '{"metrics": {"accuracy": 70.0}, "config": [1]}',
        '{"metrics": {"accuracy": 70.0}, "config": "abc"}',
        100_000 * "[",
    ],
)
def test_broken_results_count_as_missing(runs: list[Run], content: str) -> None:
    write(runs[0].folder, {})
    (runs[0].folder / "results.json").write_text(content)
    assert kinds(runs[:1], {}) == [DUE]
