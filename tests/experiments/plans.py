"""Plans for tests of the runner: two methods on a synthetic dataset, and processes that only pretend to run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from cocoamix.experiments.local import DONE, FAILED, End, Task
from cocoamix.experiments.plan import Plan, load_plan
from cocoamix.experiments.runs import Run, expand

CLIP = {"name": "CLIP", "trainer": "ZeroshotCLIP", "config": "tiny", "train": False}
COOP = {"name": "CoOp", "trainer": "CoOp", "config": "tiny"}
MIX = {"name": "Mix", "trainer": "CoCoAMix", "config": "tiny"}


def write_plan(folder: Path, **changes: Any) -> Path:
    """Write a plan, with keys changed, or removed if their value is None."""
    plan = {"task": "base2new", "datasets": ["shapes"], "shots": 4, "seeds": [1, 2], "methods": [CLIP, COOP]}
    plan.update({"output": str(folder / "out"), **changes})
    path = folder / "my.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in plan.items() if value is not None}, sort_keys=False))
    return path


def plan_of(folder: Path, **changes: Any) -> Plan:
    """Return a plan as `write_plan` writes it."""
    return load_plan(str(write_plan(folder, **changes)))


def runs_of(folder: Path, **changes: Any) -> dict[str, Run]:
    """Return the runs of such a plan by name."""
    return {run.name: run for run in expand(plan_of(folder, **changes))}


class FakeWorker:
    """Ends at the second look. It writes results, unless `fails` names an error for the run."""

    started: list[Task]
    most: int  # at a time
    active: set[str]
    fails: Callable[[Run], str]

    def __init__(self, task: Task, fork: bool) -> None:
        assert all((folder / "results.json").is_file() for folder in task.run.needs), "started too early"
        self.task, self.run, self.seconds, self.step = task, task.run, 1.0, {"epoch": 1, "epochs": 2}
        self.started.append(task)
        self.active.add(task.run.name)
        type(self).most = max(self.most, len(self.active))
        self._looks, self._pipe = 0, os.pipe()

    @property
    def sentinel(self) -> int:
        return self._pipe[0]

    def end(self) -> End | None:
        self._looks += 1
        if self._looks < 2:
            return None
        self.stop()
        reason = type(self).fails(self.run)
        if not reason:
            self.run.folder.mkdir(parents=True)
            content = {"metrics": {"accuracy": 50.0 + self.run.seed}}
            (self.run.folder / "results.json").write_text(json.dumps(content))
        return End(self.run, FAILED if reason else DONE, reason, 1.0)

    def stop(self) -> None:
        self.active.discard(self.run.name)


def fake_workers(fails: Callable[[Run], str] = lambda run: "") -> type[FakeWorker]:
    """Return a class of workers that remember what was started."""
    return type("Worker", (FakeWorker,), {"started": [], "most": 0, "active": set(), "fails": staticmethod(fails)})
