"""Tables and curves of class-incremental runs, next to the lines printed in the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cocoamix.report.build import Options, build
from tests.experiments.trees import write_results

SPLIT = {"base": 60, "way": 5, "shots": 5, "split": "cec"}
PAPER = {"backbone": "ViT-L/14", "fscil": SPLIT}  # the paper's setting


def write_run(folder: Path, method: str, seed: int = 1, count: int = 9, **changes: Any) -> None:
    """Write the results of a run on CIFAR-100 whose accuracy falls by one in every session."""
    sessions = [90.0 - number + seed for number in range(count)]
    metrics = {"accuracy": sessions[-1], "base_accuracy": 80.0, "new_accuracy": 40.0}
    metrics |= {"harmonic_mean": 160 / 3, "mean_forgetting": 3.0}
    facts = {"trainer": "CoCoAMixFSCIL", "method": method, "dataset": "CIFAR100FSCIL", "subset": "all"}
    facts |= {"protocol": PAPER}
    facts |= {"seed": seed, "sessions": sessions, "metrics": metrics, **changes}
    write_results(folder / f"seed{seed}", 80.0, **facts)


def lines(folder: Path) -> dict[str, dict[str, float | None]]:
    (section,) = build([folder], Options(paper=True)).sections
    (table,) = section.tables
    return {
        line.label: {column.key: value.mean for column, value in zip(table.columns, line.values, strict=True)}
        for line in table.lines
    }


def notes(folder: Path) -> str:
    report = build([folder], Options(paper=True))
    return " ".join([*report.notes, *(note for section in report.sections for note in section.notes)])


def test_seeds_of_each_method_are_averaged(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / "a", "A", seed)
    write_run(tmp_path / "b", "B", protocol={**PAPER, "backbone": "ViT-L/14"})
    found = lines(tmp_path)
    assert found["A"]["session_8"] == 83.5
    assert found["A"]["mean"] == 87.5
    assert found["B"]["PD"] == 8
    wanted = {"base_accuracy": 80, "new_accuracy": 40, "harmonic_mean": 160 / 3, "mean_forgetting": 3}
    assert {key: found["B"][key] for key in wanted} == pytest.approx(wanted)


def test_published_lines_match_the_paper(tmp_path: Path) -> None:
    write_run(tmp_path, "A")
    found = {name: line for name, line in lines(tmp_path).items() if name.endswith(" (paper)")}
    assert len(found) == 6
    assert found["CoCoA-Mix (paper)"]["session_8"] == 80.8
    assert found["CLIP-ZSL (paper)"]["mean"] == 77.9
    for name, line in found.items():
        if name != "CLIP-ZSL (paper)":
            sessions = [line[f"session_{number}"] for number in range(9)]
            assert line["PD"] == pytest.approx(sessions[0] - sessions[-1], abs=0.06)
            assert line["mean"] == pytest.approx(sum(sessions) / 9, abs=0.06)
    assert "printed numbers of CoCoA-Mix" in notes(tmp_path)


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        (
            {"protocol": {**PAPER, "fscil": {**SPLIT, "split": "random"}}},
            "fscil.split is random here, cec in the paper",
        ),
        ({"protocol": {**PAPER, "fscil": {**SPLIT, "shots": 10}}}, "fscil.shots is 10 here, 5 in the paper"),
        ({"protocol": {**PAPER, "backbone": "ViT-B/16"}}, "backbone is ViT-B/16 here, ViT-L/14 in the paper"),
        ({"protocol": {"backbone": "ViT-L/14"}}, "fscil.split is not stated here, cec in the paper"),
        ({"count": 4}, "there are 4 sessions here, 9 in the paper"),
        ({"dataset": "Shapes"}, "The paper has no results for Shapes"),
    ],
)
def test_published_lines_are_shown_only_for_their_setting(tmp_path: Path, changes: dict[str, Any], note: str) -> None:
    write_run(tmp_path, "A", **changes)
    assert list(lines(tmp_path)) == ["A"]
    assert note in notes(tmp_path)


def test_seeds_of_other_settings_are_not_averaged(tmp_path: Path) -> None:
    for seed, rate in ((1, 0.002), (2, 0.01)):
        write_run(tmp_path, "A", seed, config={"OPTIM": {"LR": rate}})
    own = [name for name in lines(tmp_path) if "paper" not in name]
    assert own == ["A [LR=0.002]", "A [LR=0.01]"]
    assert "OPTIM.LR is 0.002 in" in notes(tmp_path)


def test_other_models_and_session_sizes_have_separate_tables(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "A")
    write_run(tmp_path / "b", "B", protocol={"backbone": "RN50", "fscil": {**SPLIT, "way": 10}})
    (section,) = build([tmp_path], Options(paper=True)).sections
    assert [table.title for table in section.tables] == [
        "CIFAR100 (backbone ViT-L/14, fscil.way 5)",
        "CIFAR100 (backbone RN50, fscil.way 10)",
    ]
    assert len({table.key for table in section.tables}) == 2


def test_shorter_runs_have_no_mean(tmp_path: Path) -> None:
    write_run(tmp_path, "A", 1, count=4)
    write_run(tmp_path, "B", 2, config={"SEED": 2})
    found = lines(tmp_path)
    assert found["A"]["session_3"] == 88
    assert found["A"]["mean"] is found["A"]["base_accuracy"] is None
    assert found["B"]["mean"] == 88


def test_chart_shows_our_runs_and_the_papers(tmp_path: Path) -> None:
    charts = pytest.importorskip("cocoamix.drawing.charts")
    for seed in (1, 2):
        write_run(tmp_path, "A", seed)
    (section,) = build([tmp_path], Options(paper=True)).sections
    chart, base, novel = section.charts
    assert [one.title for one in (base, novel)] == [f"{chart.title}: {part} classes" for part in ("base", "novel")]
    figure = charts.draw(chart)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[0] == "A"
    assert sorted(labels[1:]) == [
        *("CoCoA-Mix (paper)", "CoOp-FSCIL (paper)", "FACT w/ CLIP (paper)", "FSPT-FSCIL (paper)", "L2P (paper)"),
    ]
    assert chart.title == "CIFAR100, ViT-L/14"
