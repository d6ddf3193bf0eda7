"""Tables of confidence: which runs they use, what they average, and that older results have none."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from cocoamix.report.build import Options, build
from cocoamix.report.command import main
from cocoamix.report.model.tables import Table, Value
from tests.experiments.trees import head, result, training, write_log, write_results


def metrics(accuracy: float, ece: float, nll: float, **more: float) -> dict[str, float]:
    return {"accuracy": accuracy, "ece": ece, "nll": nll, **more}


def place(root: Path, subset: str, dataset: str = "EuroSAT", trainer: str = "CoOp", seed: int = 1) -> Path:
    folder = "train_base" if subset == "base" else f"test_{subset}"
    return root / "base2new" / folder / dataset.lower() / "shots_4" / trainer / "vit_b16" / f"seed{seed}"


def write(root: Path, subset: str, values: dict[str, float], **changes: Any) -> None:
    where = {key: changes[key] for key in ("dataset", "trainer", "seed") if key in changes}
    write_results(place(root, subset, **where), values["accuracy"], subset=subset, metrics=values, **changes)


def tables(root: Path, **options: Any) -> dict[str, Table]:
    return {table.key: table for section in build([root], Options(**options)).sections for table in section.tables}


def cells(table: Table, label: str = "CoOp") -> dict[str, Value]:
    (line,) = (line for line in table.lines if line.label == label)
    return {column.key: value for column, value in zip(table.columns, line.values, strict=True)}


def test_seeds_are_averaged(tmp_path: Path) -> None:
    for seed, shift in ((1, 0.0), (2, 1.0)):
        write(tmp_path, "base", metrics(80, 4 + shift, 0.5), seed=seed)
        write(tmp_path, "new", metrics(60, 8 + shift, 1.5), seed=seed)
        write(tmp_path, "all", metrics(50, 9 + shift, 2.5, auroc=70 + 2 * shift), seed=seed)
    table = tables(tmp_path)["base2new-4-confidence"]
    assert table.title == "Confidence"
    found = cells(table)
    assert list(found) == ["base_ece", "base_nll", "new_ece", "new_nll", "all_ece", "all_nll", "all_auroc", "seeds"]
    assert [value.mean for value in found.values()] == [4.5, 0.5, 8.5, 1.5, 9.5, 2.5, 71, None]
    assert (found["base_ece"].std, found["base_ece"].n, found["seeds"].text) == (0.5, 2, "2")
    for words in ("15 bins", "nats", "trained classes"):
        assert words in table.caption


def test_the_best_is_the_lowest_except_for_auroc(tmp_path: Path) -> None:
    write(tmp_path, "all", metrics(50, 9, 2.5, auroc=70))
    write(tmp_path, "all", metrics(50, 7, 3.5, auroc=80), trainer="KgCoOp")
    table = tables(tmp_path)["base2new-4-confidence"]
    assert {key: value.best for key, value in cells(table).items()} == {
        "all_ece": False,
        "all_nll": True,
        "all_auroc": False,
        "seeds": False,
    }
    assert [value.best for value in cells(table, "KgCoOp").values()] == [True, False, True, False]


def test_older_results_have_empty_cells(tmp_path: Path) -> None:
    write(tmp_path, "base", {"accuracy": 80.0})
    write(tmp_path, "new", {"accuracy": 60.0})
    assert not any("confidence" in key for key in tables(tmp_path))
    write(tmp_path, "new", metrics(60, 8, 1.5))
    write(tmp_path, "base", metrics(80, 4, 0.5), trainer="KgCoOp")
    write_log(place(tmp_path, "base", trainer="ProGrad"), head("ProGrad", "EuroSAT", "base"), training(), result(800))
    table = tables(tmp_path)["base2new-4-confidence"]
    assert [line.label for line in table.lines] == ["CoOp", "KgCoOp"]  # the log does not contain it
    assert [value.mean for value in cells(table).values()] == [None, None, 8, 1.5, None]
    assert [value.mean for value in cells(table, "KgCoOp").values()] == [4, 0.5, None, None, None]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_values_are_omitted(tmp_path: Path, value: float) -> None:
    write(tmp_path, "base", metrics(80, value, 0.5))
    assert list(cells(tables(tmp_path)["base2new-4-confidence"])) == ["base_nll", "seeds"]


def test_datasets_are_averaged(tmp_path: Path) -> None:
    for dataset, ece in (("EuroSAT", 4.0), ("DTD", 6.0)):
        write(tmp_path, "base", metrics(80, ece, ece / 10), dataset=dataset)
        write(tmp_path, "new", metrics(60, 2 * ece, ece / 5), dataset=dataset)
    write(tmp_path, "base", metrics(80, 3, 0.3), trainer="KgCoOp")
    write(tmp_path, "all", metrics(50, 9, 2.5, auroc=70))
    found = tables(tmp_path)
    assert [key for key in found if "confidence" in key] == ["base2new-4-confidence"]
    table = found["base2new-4-confidence"]
    assert table.title == "Confidence, average over 2 datasets"
    wanted = {"base_ece": 5, "base_nll": 0.5, "new_ece": 10, "new_nll": 1.0}
    wanted |= {"all_ece": 9, "all_nll": 2.5, "all_auroc": 70}  # over the only dataset with such a run
    assert {key: value.mean for key, value in cells(table).items() if value.mean} == pytest.approx(wanted)
    assert all(value.missing for value in cells(table, "KgCoOp").values())  # it lacks a dataset
    words = "KgCoOp has no average, because it lacks the confidence on some of the datasets."
    assert table.caption.endswith(f" {words}")
    each = tables(tmp_path, confidence=True)
    assert words not in each["base2new-4-confidence-eurosat"].caption
    assert [key.rpartition("-")[2] for key in each if "confidence-" in key] == ["dtd", "eurosat"]
    assert cells(each["base2new-4-confidence-eurosat"], "KgCoOp")["base_ece"].mean == 3
    assert "all_auroc" not in cells(each["base2new-4-confidence-dtd"])


def test_datasets_are_listed_where_no_method_has_an_average(tmp_path: Path) -> None:
    write(tmp_path, "base", metrics(80, 4, 0.5))
    write(tmp_path, "base", metrics(80, 6, 0.5), dataset="DTD", trainer="KgCoOp")
    keys = [key for key in tables(tmp_path) if "confidence" in key]
    assert keys == ["base2new-4-confidence-dtd", "base2new-4-confidence-eurosat"]


def test_transfer_has_means_of_source_targets_and_domains(tmp_path: Path) -> None:
    for dataset, ece in (("ImageNet", 2.0), ("EuroSAT", 4.0), ("DTD", 6.0), ("ImageNetV2", 3.0)):
        folder = "imagenet/CoOp/vit_16shots/seed1"
        if dataset != "ImageNet":
            folder = f"evaluation/CoOp/vit_16shots/{dataset.lower()}/seed1"
        values = metrics(50, ece, ece / 10)
        write_results(tmp_path / folder, 50, dataset=dataset, subset="all", shots=16, metrics=values)
    found = tables(tmp_path)
    (key,) = (key for key in found if key.endswith("confidence"))
    means = {name: value.mean for name, value in cells(found[key]).items() if value.mean is not None}
    wanted = {"source_ece": 2, "source_nll": 0.2, "target_ece": 5, "target_nll": 0.5}
    assert means == pytest.approx(wanted | {"domain_ece": 3, "domain_nll": 0.3})
    each = cells(tables(tmp_path, confidence=True)[f"{key}-each"])
    assert (each["EuroSAT_ece"].mean, each["ImageNetV2_nll"].mean) == (4, pytest.approx(0.3))


def write_sessions(root: Path, count: int, ece: float, **changes: Any) -> None:
    folder = root / changes.get("dataset", "EuroSAT") / changes.get("trainer", "CoOpFSCIL") / "vit/seed1"
    accuracies = [70.0 - number for number in range(count)]
    write_results(folder, 60, subset="all", sessions=accuracies, metrics=metrics(60, ece, ece / 10), **changes)


def test_sessions_use_only_complete_runs(tmp_path: Path) -> None:
    write_sessions(tmp_path, 3, 5.0, trainer="CoOpFSCIL")
    write_sessions(tmp_path, 2, 1.0, trainer="CoCoAMixFSCIL")
    table = tables(tmp_path)["fscil-eurosat-confidence"]
    assert table.title == "Confidence after the last session: EuroSAT"
    (line,) = table.lines
    assert [value.mean for value in line.values] == [5, 0.5, None]
    assert [column.title for column in table.columns] == ["ECE", "NLL", "seeds"]
    write_sessions(tmp_path, 3, 7.0, trainer="CoOpFSCIL", dataset="DTD")
    found = tables(tmp_path)
    assert [key for key in found if "confidence" in key] == ["fscil-average-confidence"]
    assert found["fscil-average-confidence"].lines[0].values[0].mean == 6
    assert {"fscil-eurosat-confidence", "fscil-dtd-confidence"} <= tables(tmp_path, confidence=True).keys()


def test_few_shot_table_has_columns_for_each_number_of_shots(tmp_path: Path) -> None:
    for shots, ece in ((1, 4.0), (16, 2.0)):
        folder = tmp_path / f"eurosat/CoOp/vit_{shots}shots/seed1"
        write_results(folder, 50, subset="all", shots=shots, metrics=metrics(50, ece, 0.5))
    table = tables(tmp_path)["few-shot-confidence"]
    assert [column.title for column in table.columns[:-1]] == [
        f"{shots} {measure}" for shots in ("1 shot", "16 shots") for measure in ("ECE", "NLL")
    ]
    assert [value.mean for value in table.lines[0].values] == [4, 0.5, 2, 0.5, None]


def test_every_output_format_has_confidence_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree, out = tmp_path / "tree", tmp_path / "out"
    for seed in (1, 2):
        write(tree, "base", metrics(80, 4.25, 0.5125 + seed / 100), seed=seed)
        write(tree, "base", metrics(80, 5.25, 0.4), trainer="KgCoOp", seed=seed)
    kinds = ("markdown", "latex", "csv", "json", "html")
    assert main([str(tree), "--confidence", *(part for kind in kinds for part in (f"--{kind}", str(out / kind)))]) == 0
    text = capsys.readouterr().out
    assert "base ECE" in text
    assert "4.25 ± 0.00*" in text
    assert "| **4.25 ± 0.00** | 0.527 ± 0.005     | 2     |" in (out / "markdown").read_text()
    assert r"\textbf{4.25} {\small$\pm$ 0.00} & 0.527 {\small$\pm$ 0.005} & 2 \\" in (out / "latex").read_text()
    rows = list(csv.DictReader(io.StringIO((out / "csv").read_text())))
    (row,) = (one for one in rows if one["line"] == "CoOp" and one["column"] == "base NLL")
    assert (row["table"], row["mean"], row["n"], row["best"]) == ("Confidence", "0.5275", "2", "0")
    (table,) = (
        one for one in json.loads((out / "json").read_text())["sections"][0]["tables"] if one["title"] == "Confidence"
    )
    assert table["lines"][0]["base_nll"]["seeds"] == pytest.approx([0.5225, 0.5325])
    page = (out / "html").read_text()
    assert '<h3 id="base2new-4-confidence">Confidence</h3>' in page
    assert "seeds: 0.522, 0.532" in page or "seeds: 0.523, 0.532" in page
