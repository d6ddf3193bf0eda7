"""What a plan shows at the end: the report's tables, in the format of README.md."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cocoamix.bench import tables
from cocoamix.bench.benchmark import RunOptions, Summary, run_plan
from cocoamix.bench.command import main
from cocoamix.bench.comparison import settings_of_arguments
from cocoamix.bench.engines.process import Outcome
from cocoamix.bench.ledger import BLOCKED
from cocoamix.bench.plan import Plan, load_plan
from cocoamix.bench.runs import Run, expand
from cocoamix.report.build import Options, build
from cocoamix.report.render import brief
from tests.conftest import ROOT
from tests.experiments.trees import write_pair, write_results

from .test_finished import nested

README = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
DATASETS = {one: "".join(part.capitalize() for part in one.split("_")) for one in ("colour_shape", "warm_cool")}


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def make_tree(root: Path) -> None:
    """CLIP once and CoOp with two seeds, on two datasets."""
    for dataset, shift in (("ColourShape", 0.0), ("WarmCool", 10.0)):
        write_pair(root, 70.0 + shift, 80.0, dataset=dataset, trainer="ZeroshotCLIP")
        for seed in (1, 2):
            write_pair(root, 80.0 + shift + seed, 70.0, dataset=dataset, seed=seed)


def render(root: Path) -> list[str]:
    (section,) = build([root], Options()).sections
    return brief.render(section, "Accuracy (%)", "4 shots").splitlines()


def test_tables_match_the_readme(tmp_path: Path) -> None:
    make_tree(tmp_path)
    title, _, head, _, *lines = render(tmp_path)
    assert title == "Accuracy (%), average over 2 datasets, 4 shots"
    assert cells(head) == ["method", "base", "new", "H"]
    assert any(cells(line) == cells(head) for line in README)
    clip, coop = map(cells, lines[:2])
    h = (2 * 70 * 80 / 150 + 80) / 2  # the mean of H, not H of the means
    assert clip == ["CLIP", "75.00", "80.00", f"{h:.2f}"]
    assert coop[:3] == ["CoOp", "86.50 ± 0.50", "70.00 ± 0.00"]
    assert lines[2:5] == ["", "Each dataset:", ""]
    assert cells(lines[5]) == ["base / new", "ColourShape", "WarmCool"]
    assert cells(lines[8]) == ["CoOp", "81.5 / 70.0", "91.5 / 70.0"]


def test_a_missing_method_does_not_shift_other_rows(tmp_path: Path) -> None:
    write_pair(tmp_path, 70.0, 80.0, dataset="ColourShape", trainer="ZeroshotCLIP")
    for dataset in ("ColourShape", "WarmCool"):
        write_pair(tmp_path, 81.0, 71.0, dataset=dataset)
    lines = [cells(line) for line in render(tmp_path)]
    assert ["CLIP", "70.0 / 80.0", "\N{EN DASH}"] in lines
    assert ["CoOp", "81.0 / 71.0", "81.0 / 71.0"] in lines


def test_one_dataset_has_no_average(tmp_path: Path) -> None:
    write_pair(tmp_path, 81.0, 71.0, dataset="WarmCool")
    assert render(tmp_path) == []


def test_other_tables_are_shown_without_confidence(tmp_path: Path) -> None:
    make_tree(tmp_path)
    for dataset in ("ColourShape", "WarmCool"):
        folder = tmp_path / f"base2new/test_all/{dataset.lower()}/shots_4/CoOp/vit_b16/seed1"
        write_results(folder, 64.25, subset="all", dataset=dataset, metrics={"accuracy": 64.25, "ece": 3.0, "nll": 1.0})
    text = "\n".join(render(tmp_path))
    assert "Base and new classes in one label space" in text
    assert "64.25" in text
    (section,) = build([tmp_path], Options()).sections
    assert any("-confidence" in table.key for table in section.tables)
    assert "ECE" not in text


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.chdir(tmp_path)
    return load_plan("quick", datasets=list(DATASETS), methods=["CLIP", "CoOp"])


def finish(run: Run, config: dict[str, Any] | None = None) -> None:
    """Write the results of a run."""
    config = config or {"MODEL": {"BACKBONE": {"NAME": "tiny"}}}
    trainer = "ZeroshotCLIP" if run.method == "CLIP" else "CoOp"
    facts = {"subset": run.subset, "dataset": DATASETS[run.dataset], "seed": run.seed, "config": config}
    write_results(run.folder, 70.0 + run.seed, trainer=trainer, protocol={"backbone": "tiny"}, **facts)


def test_a_plan_prints_and_writes_tables(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    runs = expand(plan)
    for run in runs:
        finish(run)
    tables.show(plan, Summary(runs, finished=runs))
    printed = capsys.readouterr().out
    written = Path("output/quickstart/tables/quick.md").read_text()
    assert written.startswith(
        "Accuracy (%) with the tiny CLIP, average over 2 datasets, 4 shots; mean ± deviation over 3 seeds\n"
    )
    assert f"\n{written}" in printed
    assert "| CoOp   | 72.00 ± 0.82 |" in written
    content = json.loads(Path("output/quickstart/tables/quick.json").read_text())
    assert content["sections"][0]["tables"][0]["title"] == "Average over 2 datasets"
    assert Path("output/quickstart/figures/quick/base2new-4-tradeoff.svg").is_file()
    assert printed.endswith("A page with all tables and figures: output/quickstart/tables/quick.html\n")
    page = Path("output/quickstart/tables/quick.html").read_text()
    assert "<h1>Results with the tiny CLIP</h1>" in page
    assert f"{len(runs)} runs from output/quickstart</p>" in page
    assert ">--name</span> CoOp/tiny=CoOp " in page
    assert page.count("<figure>") == len(list(Path("output/quickstart/figures/quick").glob("*.pdf"))) > 0
    # Its figures are the files' ones, drawn once; a page of its own would have the same.
    from cocoamix.report.render import html

    alone = html.render(build([run.folder for run in runs], Options(names=tables.report_names(plan))))
    assert re.findall("<figure>.*?</figure>", page, re.DOTALL) == re.findall("<figure>.*?</figure>", alone, re.DOTALL)


def test_tables_are_shown_without_matplotlib(
    plan: Plan, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = expand(plan)
    for run in runs:
        finish(run)
    monkeypatch.setattr(tables.importlib.util, "find_spec", lambda name: None)
    tables.show(plan, Summary(runs, finished=runs))
    printed = capsys.readouterr()
    assert "72.00 ± 0.82" in printed.out
    assert "There are no figures and no page: matplotlib is not installed" in printed.err
    assert "A page with" not in printed.out
    assert not Path("output/quickstart/figures").exists()
    assert not Path("output/quickstart/tables/quick.html").exists()


def test_a_new_start_removes_old_tables_and_keeps_other_files(plan: Plan) -> None:
    table, data, figures = tables.places(plan)
    others = (figures / "notes.txt", table.with_name("methods.html"), plan.output / "fscil" / "results.json")
    for path in (table, data, table.with_suffix(".html"), figures / "a.svg", *others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    tables.clear(plan)
    assert sorted(path for path in plan.output.rglob("*") if path.is_file()) == sorted(others)


def test_fresh_runs_delete_only_their_own_folders(plan: Plan, fake: str) -> None:
    runs = expand(plan)
    other = plan.output / "fscil" / "warm_cool"
    other.mkdir(parents=True)
    for run in runs:
        finish(run)
        (run.folder / "checkpoint").touch()
    run_plan(plan, RunOptions(only=("CLIP *",), fresh=True, train=tuple(fake.split()), gpus=()))
    left = {run.folder for run in runs if (run.folder / "checkpoint").exists()}
    assert left == {run.folder for run in runs if run.method == "CoOp"}
    assert other.is_dir()


def test_a_mistake_deletes_nothing(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    plan_file = Path("mine.yaml")
    shutil.copy(ROOT / "cocoamix/bench/plans/quick.yaml", plan_file)
    plan_file.write_text(plan_file.read_text().replace("disposable: true", "disposable: false"))
    run = expand(plan)[0]
    finish(run)
    assert main(["run", "mine.yaml", "--fresh", "--set", "OPTIM.LRR", "1"]) == 2
    assert "OPTIM.LRR" in capsys.readouterr().err
    assert (run.folder / "results.json").is_file()


def test_missing_runs_are_in_no_table(
    plan: Plan, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their folders may contain results of other settings, or of a deleted model."""
    monkeypatch.setattr(tables, "draw", lambda *_: None)
    runs = expand(plan)
    for run in runs:
        finish(run)
    coop = [run for run in runs if run.method == "CoOp"]
    blocked = [Outcome(run, BLOCKED, "other settings") for run in coop]
    tables.show(plan, Summary(runs, finished=runs[: -len(coop)], outcomes=blocked))
    table, data, _ = tables.places(plan)
    assert "| CLIP " in table.read_text()
    assert "CoOp" not in table.read_text() + data.read_text()
    tables.clear(plan)
    capsys.readouterr()
    tables.show(plan, Summary(coop, outcomes=blocked))
    assert capsys.readouterr().out == ""
    assert not table.exists()
    assert not data.exists()


def test_results_of_other_settings_are_in_no_table(
    plan: Plan, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trained runs are blocked; untrained ones do not depend on training settings."""
    monkeypatch.setattr(tables, "draw", lambda *_: None)
    for run in expand(replace(plan, seeds=(1,))):
        settings = dict(settings_of_arguments(run.arguments))
        finish(run, nested({**settings, "OPTIM.MAX_EPOCH": 30}))
    chosen = ["--methods", "CLIP", "CoOp", "--datasets", *DATASETS, "--seeds", "1", "--output", str(plan.output)]
    line = ["run", "quick", *chosen, "--gpus", "none", "--set", "OPTIM.MAX_EPOCH", "3"]
    assert main(line) == 1
    shown = capsys.readouterr()
    assert "4 were finished before, 4 are missing" in shown.out
    assert "CLIP" in tables.places(plan)[0].read_text()
    assert "CoOp" not in tables.places(plan)[0].read_text()
    first, second, *others = [line for line in shown.err.splitlines() if line.startswith("  ")]
    assert first.endswith("move that folder elsewhere, or repeat the run with --fresh, which deletes the folder.")
    assert "(blocked): the folder of each holds results of other settings (OPTIM.MAX_EPOCH was 30 and is 3)" in first
    assert second.endswith("(blocked): a run that it needs is blocked")
    assert not others
