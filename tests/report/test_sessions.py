"""The average of class-incremental results over datasets: what it is, and when there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cocoamix.report.build import Options, Report, build
from cocoamix.report.model.tables import Table
from tests.report.test_peers import line, near
from tests.report.test_rows import only_table
from tests.experiments.trees import write_results

AVERAGE = "Average over 2 datasets"


def write_sessions(root: Path, dataset: str, values: list[float], seed: int = 1, **changes: Any) -> None:
    trainer = changes.setdefault("trainer", "CoOpFSCIL")
    metrics = {"accuracy": values[-1], **changes.pop("metrics", {})}
    names = {"dataset": dataset, "subset": "all", "seed": seed, "sessions": values, "metrics": metrics}
    write_results(root / f"fscil/{dataset}/{trainer}/seed{seed}", values[-1], **names, **changes)


def titles(report: Report) -> list[str]:
    return [table.title for section in report.sections for table in section.tables]


def average(report: Report) -> Table:
    table: Table = only_table(report, AVERAGE)
    return table


def test_sessions_are_averaged_over_datasets(tmp_path: Path) -> None:
    for dataset, shift in (("DTD", 0.0), ("EuroSAT", 10.0)):
        for seed in (1, 2):
            metrics = {"base_accuracy": 60.0 + shift, "mean_forgetting": 4.0 + seed}
            write_sessions(tmp_path, dataset, [80.0 + shift, 70.0 + shift + 2 * seed], seed, metrics=metrics)
    report = build([tmp_path])
    found = average(report)
    values = line(found, "CoOp-FSCIL")
    assert values["session_0"] == near(85.0)
    assert values["session_1"] == near(78.0)
    assert values["mean"] == near(81.5)
    assert values["PD"] == near(7.0)
    assert values["base_accuracy"] == near(65.0)
    assert values["mean_forgetting"] == near(5.5)
    assert [value.text for value in found.lines[0].values][-1] == "2"
    # First table, first chart; each dataset follows.
    assert titles(report) == [AVERAGE, "DTD", "EuroSAT"]
    chart = report.sections[0].charts[0]
    assert (chart.key, chart.title) == ("fscil-average-curves", AVERAGE)
    assert chart.series[0].y == (85.0, 78.0)


def test_deviation_is_over_the_averages_of_seeds(tmp_path: Path) -> None:
    """If datasets vary in opposite directions, their average varies less than each of them."""
    for seed, one, other in ((1, 60.0, 74.0), (2, 70.0, 70.0)):
        write_sessions(tmp_path, "DTD", [90.0, one], seed)
        write_sessions(tmp_path, "EuroSAT", [90.0, other], seed)
    last = average(build([tmp_path])).lines[0].values[1]
    assert last.mean == near(68.5)
    assert last.std == near(1.5)  # averages 67 and 70


def test_a_method_that_lacks_a_dataset_has_no_average(tmp_path: Path) -> None:
    for dataset in ("DTD", "EuroSAT"):
        write_sessions(tmp_path, dataset, [80.0, 70.0])
    write_sessions(tmp_path, "DTD", [99.0, 98.0], trainer="CoCoAMixFSCIL")
    found = {one.label: one.values for one in average(build([tmp_path])).lines}
    assert found["CoOp-FSCIL"][0].mean == 80.0
    assert all(value.missing for value in found["CoCoA-Mix"][:-1])
    assert not found["CoCoA-Mix"][0].best


def test_there_is_no_average_where_no_method_has_all_datasets(tmp_path: Path) -> None:
    write_sessions(tmp_path, "DTD", [80.0, 70.0])
    write_sessions(tmp_path, "EuroSAT", [80.0, 70.0], trainer="CoCoAMixFSCIL")
    assert titles(build([tmp_path])) == ["DTD", "EuroSAT"]


def test_datasets_with_different_numbers_of_sessions_are_not_averaged(tmp_path: Path) -> None:
    write_sessions(tmp_path, "DTD", [80.0, 70.0])
    write_sessions(tmp_path, "EuroSAT", [80.0, 70.0, 60.0])
    report = build([tmp_path])
    assert titles(report) == ["DTD", "EuroSAT"]
    shown = [
        f"{dataset}, ViT-B/16{part}"
        for dataset in ("DTD", "EuroSAT")
        for part in ("", ": base classes", ": novel classes")
    ]
    assert [chart.title for chart in report.sections[0].charts] == shown


def test_datasets_with_different_session_sizes_are_not_averaged(tmp_path: Path) -> None:
    write_sessions(tmp_path, "DTD", [80.0, 70.0])
    write_sessions(tmp_path, "EuroSAT", [80.0, 70.0])
    write_sessions(tmp_path, "EuroSAT", [80.0, 70.0], trainer="CoCoAMixFSCIL", protocol={"backbone": "RN50"})
    assert AVERAGE not in titles(build([tmp_path]))


def test_one_dataset_needs_no_average(tmp_path: Path) -> None:
    write_sessions(tmp_path, "DTD", [80.0, 70.0])
    assert titles(build([tmp_path])) == ["DTD"]


def test_a_run_that_ended_early_counts_up_to_its_last_session(tmp_path: Path) -> None:
    write_sessions(tmp_path, "DTD", [80.0, 70.0])
    write_sessions(tmp_path, "EuroSAT", [90.0, 70.0])
    write_sessions(tmp_path, "DTD", [60.0], trainer="CoCoAMixFSCIL")
    write_sessions(tmp_path, "EuroSAT", [70.0, 50.0], trainer="CoCoAMixFSCIL")
    found = next(one for one in average(build([tmp_path])).lines if one.label == "CoCoA-Mix")
    assert found.values[0].mean == 65.0
    assert all(value.missing for value in found.values[1:4])  # the last session, the mean and PD


def test_session_folders_name_the_configuration(tmp_path: Path) -> None:
    """An evaluation with other weights has a separate folder, with the same configuration file."""
    for config in ("tiny", "tiny_uniform"):
        write_results(tmp_path / f"fscil/warm_cool/CoCoAMixFSCIL/{config}/seed1", 80.0, sessions=[82.0, 80.0])
    options = Options(names=(("CoOp/tiny_uniform", "uniform"), ("CoOp/tiny", "mine")))
    (section,) = build([tmp_path], options).sections
    assert sorted(line.label for line in section.tables[0].lines) == ["mine", "uniform"]
