"""The command: what it prints and writes, and its messages for empty, broken and half-finished trees."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cocoamix.report.command import main
from tests.conftest import ROOT
from tests.experiments.trees import head, result, training, write_log, write_pair, write_results


def test_terminal_table_marks_the_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pair(tmp_path, 80.0, 60.0)
    write_pair(tmp_path, 90.0, 60.0, seed=2)
    write_pair(tmp_path, 70.0, 65.0, trainer="ZeroshotCLIP")
    assert main([str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "Base to new, 4 shots" in lines
    (coop,) = (one for one in lines if one.startswith("CoOp"))
    assert coop.split() == ["CoOp", "85.00", "±", "5.00*", "60.00", "±", "0.00", "70.29", "±", "1.71*", "70.34*", "2"]
    (clip,) = (one for one in lines if one.startswith("CLIP"))
    assert clip.split() == ["CLIP", "70.00", "65.00*", "67.41", "67.41", "1"]


def test_missing_cells_are_shown_as_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_results(tmp_path / "base2new/train_base/eurosat/shots_4/CoOp/vit_b16/seed1", 80.0)
    assert main([str(tmp_path)]) == 0
    (coop,) = (one for one in capsys.readouterr().out.splitlines() if one.startswith("CoOp"))
    assert coop.split() == ["CoOp", "80.00", "\u2013", "\u2013", "\u2013", "1"]


def test_methods_without_an_average_are_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def notes(*extra: str) -> list[str]:
        assert main([str(tmp_path), *extra]) == 0
        return [line for line in capsys.readouterr().out.splitlines() if "lack" in line]

    for dataset in ("DTD", "EuroSAT", "UCF101"):
        write_pair(tmp_path, 80.0, 60.0, dataset=dataset)
    assert notes() == []
    for trainer in ("KgCoOp", "ProGrad"):
        for dataset in ("DTD", "UCF101"):
            write_pair(tmp_path, 80.0, 60.0, dataset=dataset, trainer=trainer)
    remedy = "cocoamix report --common averages over the 2 datasets that all methods have."
    assert notes() == [f"KgCoOp and ProGrad lack base or new results of EuroSAT, so they lack averages. {remedy}"]
    for trainer in ("MaPLe", "TCP"):
        write_pair(tmp_path, 80.0, 60.0, dataset="DTD", trainer=trainer)
    assert notes() == [
        "KgCoOp, MaPLe and 2 more lack base or new results of some of EuroSAT and UCF101, so they lack averages. "
        "There are no two datasets that all methods have."
    ]
    assert notes("--common") == []
    for folder in (*tmp_path.rglob("ProGrad"), *tmp_path.rglob("MaPLe"), *tmp_path.rglob("TCP")):
        shutil.rmtree(folder)
    shutil.rmtree(tmp_path / "base2new/test_new/ucf101/shots_4/KgCoOp")
    (one,) = notes()
    assert one.startswith("KgCoOp lacks base or new results of EuroSAT and UCF101, so it lacks averages. There are")


def test_each_format_has_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree, out = tmp_path / "tree", tmp_path / "out"
    write_pair(tree, 80.0, 60.0, config_name="a_b")
    write_pair(tree, 82.0, 50.0, config_name="c&d")
    kinds = ("markdown", "latex", "csv", "json")
    arguments = [part for kind in kinds for part in (f"--{kind}", str(out / kind))]
    assert main([str(tree), "--quiet", *arguments]) == 0
    assert capsys.readouterr().out.splitlines() == [f"Written: {out / kind}" for kind in kinds]
    markdown = (out / "markdown").read_text()
    assert "| CoOp (a_b) | 80.00     | **60.00** | **68.57** | **68.57**  | 1     |" in markdown
    latex = (out / "latex").read_text()
    assert r"CoOp (a\_b) & 80.00 & \textbf{60.00} & \textbf{68.57} & \textbf{68.57} & 1 \\" in latex
    assert r"CoOp (c\&d) & \textbf{82.00}" in latex
    for word in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert word in latex
    rows = list(csv.DictReader(io.StringIO((out / "csv").read_text())))
    (row,) = (one for one in rows if one["line"] == "CoOp (a_b)" and one["column"] == "new")
    assert (row["mean"], row["best"], row["n"]) == ("60.0", "1", "1")
    content = json.loads((out / "json").read_text())
    (line,) = (one for one in content["sections"][0]["tables"][0]["lines"] if one["label"] == "CoOp (a_b)")
    assert line["H"]["mean"] == pytest.approx(2 * 80 * 60 / 140)
    assert [run["seed"] for run in content["runs"]] == [1, 1, 1, 1]


def test_output_files_are_reproducible(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for seed in (3, 1, 2):
        write_pair(tree, 80.0 + seed, 60.0, seed=seed)
    written = []
    out = tmp_path / "out"  # the page names the command, and so the files
    for _ in range(2):
        files = [part for kind in ("markdown", "json", "html") for part in (f"--{kind}", str(out / kind))]
        assert main([str(tree), "--quiet", *files]) == 0
        written.append([path.read_bytes() for path in sorted(out.iterdir())])
    assert written[0] == written[1]


def test_markdown_escapes_names(tmp_path: Path) -> None:
    tree, out = tmp_path / "tree", tmp_path / "out.md"
    write_pair(tree, 80.0, 60.0, trainer=r"a*b*\`c`_d_e_f|<g>", config_name="x")
    for trainer in ("CoOp", "KgCoOp"):
        write_pair(tree, 82.0, 50.0, dataset="*Own*", trainer=trainer)
    assert main([str(tree), "--quiet", "--markdown", str(out)]) == 0
    text = out.read_text()
    assert r"a\*b\*\\\`c\`\_d_e_f\|&lt;g>" in text
    assert r"### \*Own\*" in text
    assert "| **82.00** |" in text  # bold text stays bold
    rows = [line for line in text.splitlines() if line.startswith("|")]
    cells = [line.replace(r"\|", "").count("|") for line in rows]
    assert cells[0] == cells[2]


def test_figures_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pair(tmp_path / "tree", 80.0, 60.0)
    write_pair(tmp_path / "tree", 80.0, 60.0, trainer="KgCoOp")
    assert main([str(tmp_path / "tree"), "--quiet", "--plots", str(tmp_path / "plots")]) == 0
    assert capsys.readouterr().out == f"Written: {tmp_path / 'plots'}\n"
    names = {path.name for path in (tmp_path / "plots").iterdir()}
    ends = (".svg", "-dark.svg", ".png", "-dark.png", ".pdf")
    assert names == {f"base2new-4-{kind}{end}" for kind in ("points", "dots", "tradeoff") for end in ends}


def test_names_with_dollars_are_drawn(tmp_path: Path) -> None:
    """matplotlib would treat them as formulas, and fail on a broken one."""
    tree = tmp_path / "tree"
    for trainer in (r"$\foo{$", "$x$"):
        for dataset in (r"$\bar{$", "EuroSAT"):
            write_pair(tree, 80.0, 60.0, trainer=trainer, dataset=dataset, config_name="x")
    write_results(tree / "seed1", 70.0, trainer=r"$\foo{$", dataset=r"$\bar{$", subset="all", sessions=[80.0, 70.0])
    files = ["--html", str(tmp_path / "page.html"), "--plots", str(tmp_path / "plots")]
    assert main([str(tree), "--quiet", *files]) == 0
    assert "$x$" in (tmp_path / "plots" / "base2new-4-points.svg").read_text()


def test_empty_tree_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "output/base2new").mkdir(parents=True)
    assert main([str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert f"There is no run below {tmp_path}" in message
    assert "results.json or a log.txt" in message


def test_missing_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "outptu")]) == 2
    assert "does not exist" in capsys.readouterr().err


def deep(levels: int) -> str:
    """Return deeply nested objects."""
    return levels * '{"a": ' + "1" + levels * "}"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"trainer": "CoOp", "metr', "Unterminated string"),
        ("[1, 2]", "it is not an object"),
        ('{"trainer": "CoOp", "dataset": "EuroSAT", "seed": 1}', "it has no 'metrics'"),
        ('{"trainer": "CoOp", "dataset": "EuroSAT", "seed": 1, "metrics": {"accuracy": 180}}', "180"),
        ('{"trainer": "CoOp", "dataset": "EuroSAT", "seed": 1, "metrics": {"accuracy": NaN}}', "nan"),
        ('{"trainer": "CoOp", "dataset": "EuroSAT", "seed": 1, "metrics": {}}', "it has no 'accuracy'"),
        ('{"trainer": "CoOp", "dataset": "EuroSAT", "metrics": [1]}', "its metrics is not an object"),
        ('{"trainer": "CoOp", "dataset": "EuroSAT", "metrics": null}', "its metrics is not an object"),
        ('{"trainer": 1, "dataset": "EuroSAT", "metrics": {"accuracy": 1}}', "its trainer is not a string"),
        ('{"trainer": "C", "dataset": "E", "metrics": {"accuracy": 1}, "config": [1]}', "its config is not an object"),
        ('{"trainer": "C", "dataset": "E", "metrics": {"accuracy": 1}, "protocol": "a"}', "its protocol is not an"),
        (
            '{"trainer": "C", "dataset": "E", "metrics": {"accuracy": 1}, "sessions": [null]}',
            "its sessions[0] is not an object",
        ),
        ('{"trainer": "C", "dataset": "E", "metrics": {"accuracy": 1}, "sessions": [{}]}', "its sessions[0] has no"),
        ('{"trainer": "C", "metrics": {"accuracy": 1}}', "results.json cannot be used (it has no 'dataset')"),
        ('{"version": 3, "metrics": 1}', "(its version is 3, and this cocoamix reads versions up to 2)"),
        (
            '{"trainer": "C", "dataset": "E", "metrics": {"accuracy": 1}, "config": ' + deep(5000) + "}",
            "nested too deeply",
        ),
        ('{"trainer": "C", "dataset": "E", "metrics": {"accuracy": 1' + 400 * "0" + "}}", "cannot be used"),
    ],
)
def test_broken_run_is_reported_and_the_others_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, words: str
) -> None:
    write_pair(tmp_path, 80.0, 60.0)
    broken = tmp_path / "base2new/train_base/eurosat/shots_4/CoOp/vit_b16/seed2"
    broken.mkdir()
    (broken / "results.json").write_text(content)
    assert main([str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert "80.00" in printed.out
    assert "Left out, cannot be read (1):" in printed.err
    assert str(broken) in printed.err
    assert words in printed.err


def test_unfinished_runs_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pair(tmp_path, 80.0, 60.0)
    runs = tmp_path / "base2new/train_base/eurosat/shots_4/CoOp/vit_b16"
    text = head("CoOp", "EuroSAT", "base", 2)
    write_log(runs / "seed2", text, training(epochs=7, last=50))
    write_log(runs / "seed3", text, result(100, split="val"), training(), "Evaluate on the *test* set\n")
    write_log(runs / "seed4", "")
    sessions = [f"Checkpoint saved to {tmp_path}\n{result(correct)}" for correct in (753, 647, 483)]
    write_log(runs / "seed5", head("CoOp", "EuroSAT", "base", 5), *sessions)  # as FSPT-FSCIL writes it
    write_log(runs / "seed6", head("CoOp", "EuroSAT", "base", 6), result(753))
    assert main([str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert "80.00" in printed.out
    assert "48.3" not in printed.out
    assert "Left out, not finished (5):" in printed.err
    missing = "log.txt: the line 'Finish training' is missing, so its"
    assert f"seed5: {missing} 3 results are from an unknown step of the training" in printed.err
    assert f"seed6: {missing} 1 result is from an unknown step of the training" in printed.err
    assert "seed2: log.txt: training stopped in epoch 7 of 50" in printed.err
    assert "seed3: log.txt: training finished, but the evaluation did not" in printed.err
    assert "seed4: log.txt: the log is empty" in printed.err


def test_accuracy_that_is_not_a_number_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pair(tmp_path, 80.0, 60.0)
    text = result(800).replace("* accuracy: 80.0%", "* accuracy: nan%")
    folder = tmp_path / "base2new/train_base/eurosat/shots_4/CoOp/vit_b16/seed2"
    write_log(folder, head("CoOp", "EuroSAT", "base", 2), training(), text)
    assert main([str(tmp_path)]) == 1
    printed = capsys.readouterr().err
    assert f"{folder}: its accuracy is nan" in printed


def test_tree_without_results_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(tmp_path / "seed1", head("CoOp", "EuroSAT", "base"), training(epochs=1, last=50))
    assert main([str(tmp_path)]) == 2
    assert "has a result" in capsys.readouterr().err


def test_an_unfinished_newer_log_does_not_hide_an_older_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "base2new/train_base/eurosat/shots_4/CoOp/vit_b16/seed1"
    text = head("CoOp", "EuroSAT", "base")
    write_log(folder, text, training(), result(800))
    write_log(folder, text, training(epochs=1, last=50), name="log.txt-2024-01-01-00-00-00")
    assert main([str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "80.00" in printed
    assert "the result of the earlier log.txt is used" in printed


def test_bad_name_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pair(tmp_path, 80.0, 60.0)
    assert main([str(tmp_path), "--name", "CoOp"]) == 2
    assert "PATTERN=NAME" in capsys.readouterr().err


def test_report_needs_neither_torch_nor_matplotlib(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 60.0)
    code = (
        "import sys; from cocoamix.report.command import main; status = main(sys.argv[1:]); "
        "print([name for name in ('torch', 'matplotlib', 'numpy', 'yaml') if name in sys.modules]); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), "--quiet"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_page_without_matplotlib_is_explained(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 60.0)
    code = (
        "import sys; sys.modules['matplotlib'] = None; from cocoamix.report.command import main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    page = tmp_path / "page.html"
    command = [sys.executable, "-c", code, str(tmp_path), "--html", str(page)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "80.00" in done.stdout
    assert "Figures need matplotlib" in done.stderr
    assert not page.exists()
