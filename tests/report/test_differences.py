"""Differences from a baseline in every task, computed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cocoamix.errors import UserError
from cocoamix.report.build import Options, Report, build
from tests.report.test_peers import line, near
from tests.report.test_rows import only_table
from tests.experiments.trees import write_pair, write_results


def pairs(report: Report, title: str, label: str) -> str:
    (found,) = (one for one in only_table(report, title).lines if one.label == label)
    return found.values[-1].text


def test_differences_are_paired_by_shared_seeds(tmp_path: Path) -> None:
    for seed, base in {1: 70.0, 2: 75.0, 3: 60.0}.items():
        write_pair(tmp_path, base, 50.0, seed=seed)
    for seed, base in {2: 77.0, 3: 63.0, 4: 90.0}.items():
        write_pair(tmp_path, base, 50.0, seed=seed, trainer="KgCoOp")
    report = build([tmp_path], Options(baseline="CoOp"))
    values = line(only_table(report, "Difference from CoOp"), "KgCoOp")
    # Seeds 2 and 3 are in both: 77 - 75 = 2 and 63 - 60 = 3. Both signs alike in 2 of 4 assignments.
    assert (values["d_base"], values["p_base"]) == (near(2.5), near(0.5))
    assert pairs(report, "Difference from CoOp", "KgCoOp") == "2 seeds"


def write_transfer(root: Path, trainer: str, source: float, targets: dict[str, float], seed: int) -> None:
    common: dict[str, Any] = {"trainer": trainer, "subset": "all", "seed": seed}
    write_results(root / f"imagenet/{trainer}/vit_b16_4shots/seed{seed}", source, dataset="ImageNet", **common)
    for name, value in targets.items():
        folder = root / f"evaluation/{trainer}/vit_b16_4shots/{name.lower()}/seed{seed}"
        write_results(folder, value, dataset=name, **common)


def test_differences_of_transfer_runs(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_transfer(tmp_path, "CoOp", 60.0, {"DTD": 40.0, "EuroSAT": 50.0, "Food101": 60.0}, seed)
        write_transfer(tmp_path, "KgCoOp", 60.0 + seed, {"DTD": 41.0, "EuroSAT": 52.0, "Food101": 63.0}, seed)
    report = build([tmp_path], Options(baseline="coop"))
    title = "Difference from CoOp, other datasets"
    values = line(only_table(report, title), "KgCoOp")
    assert (values["d_source"], values["p_source"]) == (near(1.5), near(0.5))
    # 1, 2 and 3 have one sign in 2 of 8 assignments.
    assert (values["d_target"], values["p_target"]) == (near(2), near(0.25))
    # H: 48, 54.5455, 60 of the baseline; seed 1 has 2*61*41/102 and so on, seed 2 the same with 62.
    own = [(2 * s * t / (s + t)) for s in (61, 62) for t in (41, 52, 63)]
    assert values["d_H"] == near(sum(own) / 6 - (48 + 2 * 60 * 50 / 110 + 60) / 3)
    assert pairs(report, title, "KgCoOp") == "2 seeds (source); 3 datasets (target, H)"


def test_differences_of_session_runs(tmp_path: Path) -> None:
    for trainer, gains in (("CoOpFSCIL", (0.0, 0.0)), ("CoCoAMixFSCIL", (2.0, 4.0))):
        for seed, gain in enumerate(gains, start=1):
            names = {"trainer": trainer, "dataset": "ShapesFSCIL", "subset": "all", "seed": seed}
            values = [90.0, 80.0, 70.0 + gain]
            write_results(tmp_path / f"fscil/shapes/{trainer}/tiny/seed{seed}", values[-1], sessions=values, **names)
    report = build([tmp_path], Options(baseline="CoOp-FSCIL"))
    found = line(only_table(report, "Difference from CoOp-FSCIL, ShapesFSCIL"), "CoCoA-Mix")
    assert (found["d_last"], found["d_mean"], found["d_PD"]) == (near(3), near(1), near(-3))
    assert found["p_last"] == near(0.5)


def test_differences_of_few_shot_and_untrained_methods(tmp_path: Path) -> None:
    for dataset, base in (("DTD", 50.0), ("Food101", 60.0)):
        folder = tmp_path / f"ZeroshotCLIP/rn50/{dataset.lower()}"
        write_results(folder, base, dataset=dataset, subset="all", trainer="ZeroshotCLIP", shots=-1)
        for shots, gain in ((1, 2.0), (16, 8.0)):
            folder = tmp_path / f"{dataset.lower()}/CoOp/rn50_{shots}shots/seed1"
            write_results(folder, base + gain, dataset=dataset, subset="all", shots=shots)
    report = build([tmp_path], Options(baseline="ZeroshotCLIP"))  # by its trainer's name
    found = line(only_table(report, "Difference from CLIP"), "CoOp")
    assert (found["d_1 shot"], found["d_16 shots"]) == (near(2), near(8))
    assert found["p_16 shots"] == near(0.5)
    assert pairs(report, "Difference from CLIP", "CoOp") == "2 datasets"


def test_part_of_a_name_does_not_match(tmp_path: Path) -> None:
    write_pair(tmp_path, 70.0, 60.0)
    write_pair(tmp_path, 75.0, 60.0, trainer="KgCoOp")
    with pytest.raises(UserError, match=r"--baseline C: no method has that name.* Methods: CoOp, KgCoOp\."):
        build([tmp_path], Options(baseline="C"))


def test_ambiguous_name_says_which_row_was_used(tmp_path: Path) -> None:
    for config, base in (("a", 70.0), ("b", 75.0)):
        write_pair(tmp_path, base, 60.0, config_name=config)
    report = build([tmp_path], Options(baseline="CoOp"))
    assert line(only_table(report, "Difference from CoOp (a)"), "CoOp (b)")["d_base"] == near(5)
    assert any("CoOp (a) here; it could also be CoOp (b)" in note for note in report.sections[0].notes)


def test_a_baseline_in_one_section_is_enough(tmp_path: Path) -> None:
    write_pair(tmp_path, 70.0, 60.0)
    write_pair(tmp_path, 75.0, 60.0, trainer="KgCoOp")
    write_results(tmp_path / "dtd/CoOp/rn50_1shots/seed1", 50.0, dataset="DTD", subset="all", shots=1)
    report = build([tmp_path], Options(baseline="KgCoOp"))
    titles = [one.title for section in report.sections for one in section.tables]
    assert titles.count("Difference from KgCoOp") == 1
