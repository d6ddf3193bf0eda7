"""The paper's figures: quoted as printed, and labelled as the paper's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cocoamix.report.build import Options, build
from cocoamix.report.names import dataset_name
from cocoamix.report.paper import figures
from tests.conftest import ROOT, SHARED, needs
from tests.report.test_peers import line, near
from tests.report.test_rows import only_table
from tests.experiments.trees import write_pair, write_results


def test_figures_agree_with_each_other() -> None:
    """The paper averages H over datasets: the printed average is the mean of the printed H."""
    printed = figures()["base_to_new"]["datasets"]
    datasets = [name for name in printed if name != "Average"]
    assert len(datasets) == 11
    for method, entry in printed["Average"].items():
        mean_of_h = sum(printed[name][method]["H"]["mean"] for name in datasets) / 11
        assert mean_of_h == pytest.approx(entry["H"]["mean"], abs=0.006)


@needs("paper/tables.json")
def test_figures_match_the_paper_source() -> None:
    tables = json.loads((SHARED / "paper" / "tables.json").read_text())
    ours = figures()
    expected = {dataset_name(name): entry for name, entry in tables["base_to_new_4shot_vit_b16"].items()}
    assert {dataset_name(name): entry for name, entry in ours["base_to_new"]["datasets"].items()} == expected
    assert ours["transfer"]["datasets"] == tables["cross_dataset_4shot_vit_b16"]
    assert ours["transfer"]["summary"] == tables["cross_dataset_summary"]
    assert ours["fscil"]["methods"] == tables["fscil_cifar100_vit_l14"]


def test_paper_names_match_report_names() -> None:
    for name in figures()["base_to_new"]["datasets"]:
        assert name == "Average" or dataset_name(name) == name


def test_paper_figures_are_shown_next_to_ours(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 65.0)
    report = build([tmp_path], Options(paper=True))
    found = only_table(report)
    (theirs,) = (one for one in found.lines if one.label == "CoOp (paper)")
    assert theirs.kind == "paper"
    assert not any(value.best for value in theirs.values)
    assert theirs.values[0].mean == 79.93
    compared = line(only_table(report, "CoOp next to CoOp in the paper"), "EuroSAT")
    assert compared["base_gap"] == near(0.07)
    assert compared["new_paper"] == near(64.79)
    notes = report.sections[0].notes
    assert any("printed numbers of CoCoA-Mix" in note and "4 shots" in note for note in notes)
    assert not any("settings differ" in note for note in notes)


def test_variants_are_not_compared_with_the_papers_method(tmp_path: Path) -> None:
    for value in (0.0, 5.0):
        settings = {"TRAINER": {"NAME": "CoCoAMix", "COCOAMIX": {"W": value, "ENSEMBLE": "coa", "BACKBONES": []}}}
        write_pair(tmp_path, 80.0, 65.0, trainer="CoCoAMix", config=settings, config_name=f"w{value:g}")
    uniform = {"TRAINER": {"NAME": "CoCoAMix", "COCOAMIX": {"W": 5.0, "ENSEMBLE": "uniform"}}}
    write_pair(tmp_path, 80.0, 65.0, trainer="CoCoAMix", config=uniform, config_name="uniform")
    report = build([tmp_path], Options(paper=True))
    titles = [one.title for one in report.sections[0].tables if "next to" in one.title]
    assert titles == [
        "CoCoA-Mix (uniform) next to CoA-loss in the paper",
        "CoCoA-Mix (w5) next to CoCoA-Mix in the paper",
    ]
    (note,) = (one for one in report.sections[0].notes if "settings differ" in one)
    assert note.startswith("CoCoA-Mix (w0) is not compared with CoCoA-Mix in the paper")
    assert "TRAINER.COCOAMIX.W is 0 here, 5 in the paper" in note


def test_paper_settings_match_the_configurations() -> None:
    """Each compared key exists, and the configurations named after the paper's have its value."""
    from cocoamix.run.protocol import settings_of
    from cocoamix.train import parse_arguments, setup_cfg

    names = {"CoA-loss": "CoCoAMix/vit_b16_ep50_uniform", "CoCoA-Mix": "CoCoAMix/vit_b16_ep50"}
    for method, stated in figures()["base_to_new"]["settings"].items():
        name = names.get(method, f"{method}/vit_b16_ep50")
        file = ROOT / "configs" / "trainers" / f"{name}.yaml"
        trainer = ["--trainer", name.split("/")[0], "--dataset-config-file", str(ROOT / "configs/datasets/shapes.yaml")]
        settings = settings_of(setup_cfg(parse_arguments([*trainer, "--config-file", str(file)])))
        assert {key: settings[key] for key in stated} == stated


def test_differing_setting_is_noted(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 65.0, protocol={"backbone": "RN50"})
    report = build([tmp_path], Options(paper=True))
    assert any("backbone RN50 here, ViT-B/16 in the paper" in note for note in report.sections[0].notes)


def test_dataset_missing_from_the_paper_is_noted(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 65.0, dataset="Shapes")
    report = build([tmp_path], Options(paper=True))
    assert "The paper has no results for Shapes." in report.sections[0].notes
    assert all(one.kind == "own" for one in only_table(report, "Shapes").lines)


def test_average_over_fewer_datasets_is_computed_and_noted(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 65.0, dataset="EuroSAT")
    write_pair(tmp_path, 70.0, 55.0, dataset="DTD")
    found = only_table(build([tmp_path], Options(paper=True)), "Average over 2 datasets")
    assert line(found, "CoOp (paper)")["base"] == near((79.93 + 71.22) / 2)
    assert "computed from its numbers for these 2 datasets" in found.caption


def test_transfer_is_shown_next_to_the_papers(tmp_path: Path) -> None:
    common = {"trainer": "CoOp", "subset": "all"}
    write_results(tmp_path / "imagenet/CoOp/vit_b16_4shots/seed1", 69.0, dataset="ImageNet", **common)
    targets = [name for name in figures()["transfer"]["datasets"]["CoOp"] if name not in ("ImageNet", "Average")]
    for name in targets:
        folder = tmp_path / f"evaluation/CoOp/vit_b16_4shots/{name.lower()}/seed1"
        write_results(folder, 60.0, dataset=name, **common)
    whole = line(only_table(build([tmp_path], Options(paper=True)), "To other datasets"), "CoOp (paper)")
    # As the paper prints them.
    assert (whole["source"], whole["target"], whole["H"]) == (near(69.06), near(59.88), near(61.52))
    for name in targets[2:]:
        (tmp_path / f"evaluation/CoOp/vit_b16_4shots/{name.lower()}/seed1/results.json").unlink()
    part = line(only_table(build([tmp_path], Options(paper=True)), "To other datasets"), "CoOp (paper)")
    one, two = (figures()["transfer"]["datasets"]["CoOp"][name] for name in targets[:2])
    source = figures()["transfer"]["datasets"]["CoOp"]["ImageNet"]
    assert part["target"] == near((one + two) / 2)
    assert part["H"] == near((2 * source * one / (source + one) + 2 * source * two / (source + two)) / 2)


def test_sessions_are_shown_next_to_the_papers(tmp_path: Path) -> None:
    def write(base: int) -> None:
        sessions = {"base": base, "way": 5, "shots": 5, "split": "cec"}
        write_results(
            tmp_path / "seed1",
            88.0,
            trainer="CoOpFSCIL",
            dataset="CIFAR100FSCIL",
            subset="all",
            sessions=[88.0] * 9,
            protocol={"backbone": "ViT-L/14", "fscil": sessions},
        )

    write(60)
    found = only_table(build([tmp_path], Options(paper=True)), "CIFAR100")
    assert line(found, "CoOp-FSCIL (paper)")["session_8"] == near(79.3)
    assert line(found, "CoOp-FSCIL")["PD"] == near(0)
    write(50)
    report = build([tmp_path], Options(paper=True))
    assert len(only_table(report, "CIFAR100").lines) == 1
    assert report.sections[0].notes == [
        "The paper's lines are not shown next to CIFAR100: fscil.base is 50 here, 60 in the paper."
    ]
