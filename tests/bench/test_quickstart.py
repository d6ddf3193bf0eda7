"""The tables of the quick start are the report's, in the shape that README.md shows."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from cocoamix.bench.plan import Plan, load_plan
from cocoamix.bench.runs import expand
from cocoamix.report.build import Options, build
from tests.conftest import ROOT
from tests.report.trees import write_pair

README = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def quickstart() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "quickstart.py"), run_name="quickstart")


def make_tree(root: Path) -> None:
    """CLIP once and CoOp with two seeds, on two datasets of which CoOp lacks new of the second."""
    for dataset, shift in (("ColourShape", 0.0), ("WarmCool", 10.0)):
        write_pair(root, 70.0 + shift, 80.0, dataset=dataset, trainer="ZeroshotCLIP")
        for seed in (1, 2):
            write_pair(root, 80.0 + shift + seed, 70.0, dataset=dataset, seed=seed)


def test_tables_are_the_readmes(quickstart: dict[str, Any], tmp_path: Path) -> None:
    make_tree(tmp_path)
    (section,) = build([tmp_path], Options()).sections
    average, *others = [table for table in section.tables if "-confidence" not in table.key]
    lines = quickstart["average_table"](average).splitlines()
    assert [cell.strip() for cell in lines[0].split("|")] == ["", "method", "base", "new", "H", ""]
    assert any([cell.strip() for cell in line.split("|")] == ["", "method", "base", "new", "H", ""] for line in README)
    clip, coop = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:])
    h = (2 * 70 * 80 / 150 + 80) / 2  # the mean of H, not H of the means
    assert clip == ["CLIP", "75.00", "80.00", f"{h:.2f}"]
    assert coop[:3] == ["CoOp", "86.50 ± 0.50", "70.00 ± 0.00"]
    lines = quickstart["dataset_table"](others).splitlines()
    assert [cell.strip() for cell in lines[0].split("|")] == ["", "base / new", "ColourShape", "WarmCool", ""]
    assert [cell.strip() for cell in lines[3].split("|")] == ["", "CoOp", "81.5 / 70.0", "91.5 / 70.0", ""]


def test_a_missing_method_shifts_no_other(quickstart: dict[str, Any], tmp_path: Path) -> None:
    write_pair(tmp_path, 70.0, 80.0, dataset="ColourShape", trainer="ZeroshotCLIP")
    for dataset in ("ColourShape", "WarmCool"):
        write_pair(tmp_path, 81.0, 71.0, dataset=dataset)
    (section,) = build([tmp_path], Options()).sections
    tables = [table for table in section.tables if table.title in ("ColourShape", "WarmCool")]
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in quickstart["dataset_table"](tables).splitlines()
    ]
    assert ["CLIP", "70.0 / 80.0", "\N{EN DASH}"] in lines
    assert ["CoOp", "81.0 / 71.0", "81.0 / 71.0"] in lines


def test_a_start_leaves_no_table_of_another_and_keeps_other_runs(
    quickstart: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan: Plan = load_plan("quick")
    own, other = expand(plan)[0].folder, plan.output / "fscil" / "warm_cool"
    for folder in (own, other, plan.output / "figures"):
        folder.mkdir(parents=True)
    (plan.output / "table.md").touch()
    quickstart["clear"](plan, fresh=False)
    assert not (plan.output / "table.md").exists()
    assert not (plan.output / "figures").exists()
    assert own.exists()
    quickstart["clear"](plan, fresh=True)
    assert not own.exists()
    assert other.exists()
