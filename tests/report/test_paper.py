"""The paper's figures: quoted as they are printed, and named as the paper's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cocoamix.report.build import Options, build
from cocoamix.report.names import dataset_name
from cocoamix.report.paper import figures
from tests.conftest import SHARED
from tests.report.test_peers import line, near
from tests.report.test_rows import only_table
from tests.report.trees import write_pair, write_results


def test_figures_agree_with_each_other() -> None:
    """The paper averages H over datasets: the printed average is the mean of the printed H."""
    printed = figures()["base_to_new"]["datasets"]
    datasets = [name for name in printed if name != "Average"]
    assert len(datasets) == 11
    for method, entry in printed["Average"].items():
        mean_of_h = sum(printed[name][method]["H"]["mean"] for name in datasets) / 11
        assert mean_of_h == pytest.approx(entry["H"]["mean"], abs=0.006)


def test_figures_are_those_of_the_source() -> None:
    source = SHARED / "paper" / "tables.json"
    if not source.is_file():
        pytest.skip("the paper's tables are not here")
    tables = json.loads(source.read_text())
    ours = figures()
    expected = {dataset_name(name): entry for name, entry in tables["base_to_new_4shot_vit_b16"].items()}
    assert {dataset_name(name): entry for name, entry in ours["base_to_new"]["datasets"].items()} == expected
    assert ours["transfer"]["datasets"] == tables["cross_dataset_4shot_vit_b16"]
    assert ours["transfer"]["summary"] == tables["cross_dataset_summary"]
    assert ours["fscil"]["methods"] == tables["fscil_cifar100_vit_l14"]


def test_names_of_the_paper_are_names_of_the_report() -> None:
    for name in figures()["base_to_new"]["datasets"]:
        assert name == "Average" or dataset_name(name) == name


def test_beside_ours(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 65.0)
    report = build([tmp_path], Options(paper=True))
    found = only_table(report)
    (theirs,) = (one for one in found.lines if one.label == "CoOp (paper)")
    assert theirs.kind == "paper"
    assert not any(value.best for value in theirs.values)
    assert theirs.values[0].mean == 79.93
    beside = line(only_table(report, "CoOp beside CoOp in the paper"), "EuroSAT")
    assert beside["base_gap"] == near(0.07)
    assert beside["new_paper"] == near(64.79)
    notes = report.sections[0].notes
    assert any("printed figures of CoCoA-Mix" in note and "4 shots" in note for note in notes)
    assert not any("settings differ" in note for note in notes)


def test_differing_setting_is_said(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 65.0, protocol={"backbone": "RN50"})
    report = build([tmp_path], Options(paper=True))
    assert any("backbone RN50 here, ViT-B/16 in the paper" in note for note in report.sections[0].notes)


def test_dataset_that_the_paper_has_not(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 65.0, dataset="Shapes")
    report = build([tmp_path], Options(paper=True))
    assert "The paper has no figures for Shapes." in report.sections[0].notes
    assert all(one.kind == "own" for one in only_table(report, "Shapes").lines)


def test_average_over_fewer_datasets_is_computed_and_said(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 65.0, dataset="EuroSAT")
    write_pair(tmp_path, 70.0, 55.0, dataset="DTD")
    found = only_table(build([tmp_path], Options(paper=True)), "Average over 2 datasets")
    assert line(found, "CoOp (paper)")["base"] == near((79.93 + 71.22) / 2)
    assert "computed from its figures on these 2 datasets" in found.caption


def test_sessions_beside_the_papers(tmp_path: Path) -> None:
    values = [88.0] * 9
    cut = {"base": 60, "way": 5, "shots": 5, "split": "cec"}
    write_results(
        tmp_path / "seed1",
        88.0,
        trainer="CoOpFSCIL",
        dataset="CIFAR100FSCIL",
        subset="all",
        sessions=values,
        protocol={"backbone": "ViT-L/14", "fscil": cut},
    )
    found = only_table(build([tmp_path], Options(paper=True)), "CIFAR100")
    assert line(found, "CoOp-FSCIL (paper)")["session_8"] == near(79.3)
    assert line(found, "CoOp-FSCIL")["PD"] == near(0)
    write_results(
        tmp_path / "seed1",
        88.0,
        trainer="CoOpFSCIL",
        dataset="CIFAR100FSCIL",
        subset="all",
        sessions=values,
        protocol={"backbone": "ViT-L/14", "fscil": {**cut, "base": 50}},
    )
    report = build([tmp_path], Options(paper=True))
    assert len(only_table(report, "CIFAR100").lines) == 1
    assert report.sections[0].notes == [
        "The paper's lines are left out beside CIFAR100: fscil.base is 50 here, 60 there."
    ]
