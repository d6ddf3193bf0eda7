"""The report on trees of runs: its sections and tables, what it leaves out and notes, its files and exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cocoamix.errors import UserError
from cocoamix.experiments import plan_report
from cocoamix.experiments.plan import load_plan
from cocoamix.experiments.report import Options, Report, build, main
from cocoamix.experiments.runner import Outcome
from cocoamix.experiments.runs import expand
from cocoamix.experiments.tables import Table
from tests.conftest import ROOT
from tests.experiments.trees import write_pair, write_results


def tables(root: Path, **options: Any) -> dict[str, Table]:
    return {table.key: table for section in build([root], Options(**options)).sections for table in section.tables}


def means(table: Table, row: str, *keys: str) -> list[float]:
    return [table.rows[row].cells[key].mean for key in keys]


def notes(report: Report) -> str:
    return "\n".join([*report.notes, *(note for section in report.sections for note in section.notes)])


def write_sessions(root: Path, dataset: str, values: list[float], trainer: str = "CoOpFSCIL", **changes: Any) -> None:
    folder = root / f"fscil/{dataset}/{trainer}/tiny/seed{changes.get('seed', 1)}"
    names = {"trainer": trainer, "dataset": dataset, "subset": "all", "sessions": values}
    write_results(folder, values[-1], **names, **changes)


def write_transfer(root: Path, trainer: str, source: float, targets: dict[str, float], seed: int) -> None:
    common: dict[str, Any] = {"trainer": trainer, "subset": "all", "seed": seed}
    write_results(root / f"imagenet/{trainer}/vit_b16_4shots/seed{seed}", source, dataset="ImageNet", **common)
    for name, value in targets.items():
        folder = root / f"evaluation/{trainer}/vit_b16_4shots/{name.lower()}/seed{seed}"
        write_results(folder, value, dataset=name, **common)


# ---------------------------------------------------------------------------------------- tasks


def test_h_is_averaged_over_seeds_and_datasets_and_h_of_means_is_not(tmp_path: Path) -> None:
    write_pair(tmp_path, 90.0, 10.0, dataset="DTD")
    write_pair(tmp_path, 50.0, 50.0, dataset="EuroSAT")
    average = tables(tmp_path)["base2new-4-average"]
    assert means(average, "CoOp", "base", "new", "H", "H_of_means") == [70, 30, 34, 42]


def test_missing_datasets_are_noted_and_common_averages_over_the_others(tmp_path: Path) -> None:
    for dataset in ("DTD", "EuroSAT", "Food101"):
        write_pair(tmp_path, 80.0, 60.0, dataset=dataset)
        if dataset != "Food101":
            write_pair(tmp_path, 70.0, 60.0, dataset=dataset, trainer="KgCoOp")
    assert "Food101 are missing: KgCoOp" in notes(build([tmp_path]))
    common = tables(tmp_path, common=True)["base2new-4-average"]
    assert means(common, "CoOp", "base") + means(common, "KgCoOp", "base") == [80, 70]


def test_each_number_of_shots_and_random_halves_have_sections(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 60.0)
    for draw in (1, 2):
        write_pair(tmp_path / f"random{draw}", 50.0 + draw, 60.0, protocol={"partition": f"random:{draw}"})
    write_pair(tmp_path / "more", 81.0, 60.0, shots=16)
    sections = {section.key: section.tables[0].rows.values() for section in build([tmp_path]).sections}
    found = {key: [row.cells["base"].mean for row in rows] for key, rows in sections.items()}
    assert found == {"base2new-4": [80], "base2new-16": [81], "base2new-4-random": [51, 52]}  # not averaged


def test_all_classes_and_confidence_have_tables(tmp_path: Path) -> None:
    for dataset, ece in (("DTD", 4.0), ("EuroSAT", 6.0)):
        folder = tmp_path / f"base2new/train_base/{dataset.lower()}/shots_4/CoOp/vit_b16/seed1"
        write_results(folder, 80.0, dataset=dataset, metrics={"accuracy": 80.0, "ece": ece, "nll": ece / 10})
    metrics = {"accuracy": 64.25, "base_accuracy": 70.0, "new_accuracy": 50.0}
    folder = tmp_path / "base2new/test_all/dtd/shots_4/CoOp/vit_b16/seed1"
    write_results(folder, 64.25, subset="all", dataset="DTD", metrics=metrics)
    found = tables(tmp_path)
    assert means(found["base2new-4-all-dtd"], "CoOp", *metrics) == [64.25, 70, 50]
    assert [name for name in found if "confidence" in name] == ["base2new-4-confidence"]
    cells = found["base2new-4-confidence"].rows["CoOp"].cells
    assert (cells["base_ece"].text, cells["base_nll"].text) == ("5.00", "0.500")
    each = tables(tmp_path, confidence=True)["base2new-4-confidence-dtd"]
    assert means(each, "CoOp", "base_ece") == [4]


def test_transfers_have_the_mean_of_h_and_differences(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_transfer(tmp_path, "CoOp", 60.0, {"DTD": 40.0, "EuroSAT": 50.0, "ImageNetV2": 55.0}, seed)
        write_transfer(tmp_path, "KgCoOp", 60.0 + seed, {"DTD": 41.0, "EuroSAT": 52.0, "ImageNetV2": 56.0}, seed)
    found = tables(tmp_path, baseline="coop")
    shown = means(found["transfer-imagenet-4-datasets"], "CoOp", "source", "DTD", "EuroSAT", "target", "H")
    assert shown == pytest.approx([60, 40, 50, 45, (48 + 2 * 60 * 50 / 110) / 2])
    compared = found["transfer-imagenet-4-datasets-difference"]
    assert means(compared, "KgCoOp", "d_source", "d_target") == [1.5, 1.5]
    assert compared.rows["KgCoOp"].cells["pairs"].text == "2 seeds (source); 2 datasets (target, H)"
    assert means(found["transfer-imagenet-4-domains"], "KgCoOp", "ImageNetV2") == [56]


def test_sessions_have_mean_and_pd_and_an_average_over_datasets(tmp_path: Path) -> None:
    for dataset, shift in (("DTD", 0.0), ("EuroSAT", 10.0)):
        for seed in (1, 2):
            write_sessions(tmp_path, dataset, [80.0 + shift, 70.0 + shift + 2 * seed], seed=seed)
    found = tables(tmp_path)
    assert list(found) == ["fscil-average", "fscil-2-dtd", "fscil-3-eurosat"]
    assert means(found["fscil-average"], "CoOp-FSCIL", "session_0", "session_1", "mean", "PD") == [85, 78, 81.5, 7]


def test_what_follows_the_last_session_needs_all_sessions(tmp_path: Path) -> None:
    for seed, values in ((1, [80.0, 70.0]), (2, [90.0])):
        metrics = {"accuracy": values[-1], "mean_forgetting": 10.0 * seed}
        write_sessions(tmp_path, "DTD", values, seed=seed, metrics=metrics)
    keys = ("session_0", "session_1", "mean", "mean_forgetting")
    assert means(tables(tmp_path)["fscil-dtd"], "CoOp-FSCIL", *keys) == [85, 70, 75, 10]


@pytest.mark.parametrize(
    "other", [{"values": [80.0, 70.0, 60.0]}, {"values": [80.0, 70.0], "protocol": {"backbone": "RN50"}}]
)
def test_unlike_sessions_are_not_averaged(tmp_path: Path, other: dict[str, Any]) -> None:
    write_sessions(tmp_path, "DTD", [80.0, 70.0])
    write_sessions(tmp_path, "EuroSAT", [80.0, 70.0])
    write_sessions(tmp_path, "EuroSAT", other.pop("values"), trainer="CoCoAMixFSCIL", **other)
    assert "fscil-average" not in tables(tmp_path)


def test_zero_shot_is_compared_with_every_number_of_shots(tmp_path: Path) -> None:
    for dataset, base in (("DTD", 50.0), ("Food101", 60.0)):
        folder = tmp_path / f"ZeroshotCLIP/rn50/{dataset.lower()}"
        write_results(folder, base, dataset=dataset, subset="all", trainer="ZeroshotCLIP", shots=-1)
        for shots, gain in ((1, 2.0), (16, 8.0)):
            folder = tmp_path / f"{dataset.lower()}/CoOp/rn50_{shots}shots/seed1"
            write_results(folder, base + gain, dataset=dataset, subset="all", shots=shots)
    average, compared, *_ = tables(tmp_path, baseline="ZeroshotCLIP").values()
    assert [column.key for column in average.columns] == ["1 shot", "16 shots", "seeds"]
    assert [means(average, row, "1 shot", "16 shots") for row in average.rows] == [[55, 55], [57, 63]]
    assert means(compared, "CoOp", "d_1 shot", "d_16 shots") == [2, 8]


# ---------------------------------------------------------------------------------------- notes


def test_different_test_images_are_not_compared(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 60.0)
    write_pair(tmp_path, 85.0, 60.0, trainer="KgCoOp", protocol={"splits": {"train": "t", "test": "other"}})
    report = build([tmp_path], Options(baseline="CoOp"))
    assert report.sections[0].tables[1].rows["KgCoOp"].cells["d_base"].text == ""
    assert "splits.test" in notes(report)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"versions": {"torch": "9.9"}}, ["torch", "9.9"]),
        ({"versions": {"cocoamix": "0.0.1"}}, ["cocoamix", "0.0.1"]),
        ({"evaluated_images": 17}, ["17", "EuroSAT"]),
        ({"metrics": {"accuracy": 80.0, "error_rate": 30.0}}, ["error_rate", "30.00"]),
    ],
)
def test_results_that_are_not_alike_are_noted(tmp_path: Path, changes: dict[str, Any], words: list[str]) -> None:
    same = {"versions": {"torch": "2.5", "cocoamix": "0.1.0"}, "evaluated_images": 100}
    folder = tmp_path / "base2new/train_base/eurosat/shots_4/CoOp/vit_b16"
    write_results(folder / "seed1", 80.0, **same, metrics={"accuracy": 80.0, "error_rate": 20.0})
    assert build([tmp_path]).notes == []
    write_results(folder / "seed2", 80.0, **{**same, "seed": 2, **changes})
    (note,) = build([tmp_path]).notes
    assert all(word in note for word in [*words, "seed2"])


def test_a_baseline_must_be_in_a_section(tmp_path: Path) -> None:
    write_pair(tmp_path, 70.0, 60.0)
    with pytest.raises(UserError, match=r"--baseline KgCoOpp.*CoOp"):
        build([tmp_path], Options(baseline="KgCoOpp"))
    write_pair(tmp_path, 75.0, 60.0, trainer="KgCoOp")
    write_results(tmp_path / "dtd/CoOp/rn50_1shots/seed1", 50.0, dataset="DTD", subset="all", shots=1)
    assert sum("difference" in key for key in tables(tmp_path, baseline="KgCoOp")) == 1


# ---------------------------------------------------------------------------------------- command


def test_all_files_are_written_and_reproducible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for dataset in ("DTD", "EuroSAT", "Birds-A", "Birds A"):  # the last two have equal keys
        write_pair(tmp_path / "tree", 80.0, 60.0, dataset=dataset)
        write_pair(tmp_path / "tree", 70.0, 65.0, dataset=dataset, trainer="KgCoOp")
    kinds = ("markdown", "latex", "csv", "json", "html")
    contents = []
    for _ in range(2):
        flags = [word for kind in kinds for word in (f"--{kind}", str(tmp_path / f"report.{kind}"))]
        assert main([str(tmp_path / "tree"), "--quiet", *flags, "--plots", str(tmp_path / "plots")]) == 0
        contents.append([(tmp_path / f"report.{kind}").read_bytes() for kind in kinds])
    assert contents[0] == contents[1]
    assert {path.suffix for path in (tmp_path / "plots").iterdir()} == {".svg", ".png", ".pdf", ".csv", ".txt"}
    data = json.loads((tmp_path / "report.json").read_text())
    made = data["sections"][0]["tables"]
    (line,) = (line for line in made[0]["lines"] if line["label"] == "KgCoOp")
    assert (line["base"]["mean"], line["base"]["n"], line["seeds"], data["runs"][0]["seed"]) == (70, 1, "1", 1)
    assert len({table["key"] for table in made}) == len(made) == 5
    cells = pd.read_csv(tmp_path / "report.csv").query("line == 'KgCoOp' and column == 'new'")
    assert cells["mean"].tolist() == 5 * [65]


def test_a_page_of_base_classes_alone_has_no_figure_of_h(tmp_path: Path) -> None:
    write_results(tmp_path / "base2new/train_base/eurosat/shots_4/CoOp/vit_b16/seed1", 80.0)
    assert main([str(tmp_path), "--quiet", "--html", str(tmp_path / "page.html")]) == 0
    assert "<figure" not in (tmp_path / "page.html").read_text()


def test_exit_status_and_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "outptu")]) == 2
    write_pair(tmp_path, 80.0, 60.0)
    assert main([str(tmp_path)]) == 0
    assert main([str(tmp_path), "--name", "CoOp"]) == 2
    broken = tmp_path / "base2new/train_base/eurosat/shots_4/CoOp/vit_b16/seed2"
    broken.mkdir()
    (broken / "results.json").write_text("{")
    write_sessions(tmp_path, "DTD", [80.0, 70.0])
    write_sessions(tmp_path, "DTD", [99.0], seed=3, finished=False)
    capsys.readouterr()
    assert main([str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert "80.00" in printed.out
    assert "99.00" not in printed.out
    assert all(name in printed.err for name in (str(broken), "seed3"))


def test_the_report_needs_no_torch_and_tables_no_matplotlib(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 60.0)
    code = (
        "import sys; from cocoamix.experiments.report import main; status = main(sys.argv[1:]); "
        "print([name for name in ('torch', 'matplotlib') if name in sys.modules]); sys.exit(status)"
    )
    command = [sys.executable, "-c", code, str(tmp_path), "--quiet"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---------------------------------------------------------------------------------------- the report of a plan


def test_a_plan_prints_and_writes_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = load_plan("quick", datasets=["colour_shape", "warm_cool"], methods=["CLIP", "CoOp"])
    runs = expand(plan)
    for run in runs:
        facts = {"subset": run.subset, "dataset": run.dataset.stem, "seed": run.seed, "trainer": run.method.trainer}
        write_results(run.folder, 70.0 + run.seed, protocol={"backbone": "tiny"}, **facts)
    files = plan_report.files_of(plan)
    stale = [files["markdown"], files["plots"] / "old.svg"]
    kept = [files["plots"] / "notes.md", files["markdown"].with_name("other.md")]
    for path in (*stale, *kept):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    plan_report.write(plan, Outcome(plan, []))  # without results, nothing of an earlier start may stay
    assert [path.exists() for path in (*stale, *kept)] == [False, False, True, True]
    plan_report.write(plan, Outcome(plan, runs))
    printed, whole = capsys.readouterr().out, files["markdown"].read_text()
    for text in ("### Average over 2 datasets", "72.00 ± 0.82"):
        assert text in printed
        assert text in whole
    assert "### WarmCool" in whole.replace("warm\\_cool", "WarmCool")
    assert "### WarmCool" not in printed
    assert json.loads(files["json"].read_text())["sections"][0]["tables"][0]["title"] == "Average over 2 datasets"
    page = files["html"].read_text()
    assert page.count("<figure") == len(list(files["plots"].glob("*.pdf"))) > 0
    assert "--name" in page
    assert f"{len(runs)} runs from {plan.output}" in page
