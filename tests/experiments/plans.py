"""Plans for tests of the runner: two methods on a synthetic dataset, and processes that only pretend to run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
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


class FakeWorkers:
    """Stands for `Worker`: each ends at the second look with results, unless `fails` names an error for its run."""

    def __init__(self, fails: Callable[[Run], str]) -> None:
        self.fails, self.started, self.active, self.most = fails, list[Task](), 0, 0

    def __call__(self, task: Task) -> SimpleNamespace:
        assert all((folder / "results.json").is_file() for folder in task.run.needs), "started too early"
        self.started.append(task)
        self.active += 1
        self.most = max(self.most, self.active)
        looks = iter([None, self._end])
        process = SimpleNamespace(sentinel=os.pipe()[0])
        return SimpleNamespace(
            run=task.run,
            seconds=1.0,
            step={},
            process=process,
            stop=lambda: None,
            end=lambda: (end := next(looks)) and end(task.run),
        )

    def _end(self, run: Run) -> End:
        self.active -= 1
        reason = self.fails(run)
        if not reason:
            run.folder.mkdir(parents=True, exist_ok=True)
            content = {"metrics": {"accuracy": 50.0 + run.seed}}
            (run.folder / "results.json").write_text(json.dumps(content))
        return End(run, FAILED if reason else DONE, reason, 1.0)
