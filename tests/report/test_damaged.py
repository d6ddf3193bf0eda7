"""A damaged run is skipped with the reason and does not affect others; its content is displayed safely."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from cocoamix.report.build import build
from cocoamix.report.command import main
from cocoamix.report.render.data import render_csv

from tests.experiments.trees import head, result, training, write_log, write_pair, write_results

ESCAPE = "\x1b]0;title\x07"
BAD = Path("base2new/train_base/eurosat/shots_4/CoOp/vit_b16/seed3")


def config(value: Any) -> dict[str, Any]:
    return {"TRAINER": {"NAME": "CoCoAMix", "COCOAMIX": {"MINE": value}}}


def good(root: Path) -> None:
    """Write a sweep of two points."""
    for number, value in enumerate((0.5, 1.0), 1):
        write_pair(root, 80.0 + number, 60.0, trainer="CoCoAMix", config=config(value), config_name=f"w{value}", seed=1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"config": {"OPTIM": {"LR": float("nan")}}}, "OPTIM.LR nan, which is not a valid value"),
        ({"config": {"OPTIM": {"LR": float("inf")}}}, "OPTIM.LR inf, which is not a valid value"),
        ({"metrics": {"accuracy": 80.0, "a\ud800": 1.0}}, "its metrics has a key"),
        ({"config": {"OPTIM": {"STEPSIZE": [1, float("-inf")]}}}, "OPTIM.STEPSIZE"),
        ({"config": {"OPTIM": {"LR": 10**399}}}, "which is not a valid value"),
        ({"protocol": {"backbone": "\ud800"}}, "backbone '\\ud800', which is not a valid value"),
        ({"dataset": "Euro\ud800SAT"}, "its dataset is"),
        ({"trainer": ESCAPE}, "its trainer is"),
        ({"trainer": "x" * 300}, "its trainer is"),
        ({"seed": 10**399, "config": {"SEED": 3}}, "its seed is"),
        ({"config": {"OPTIM": {"LR": 0.1}, "TRAINER": {"COCOAMIX": {"N_CTX": "four"}}}}, "a string and not a number"),
    ],
)
def test_a_damaged_run_is_skipped_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], reason: str
) -> None:
    good(tmp_path)
    write_results(tmp_path / BAD, 70.0, **change)
    files = {kind: str(tmp_path / f"report.{kind}") for kind in ("markdown", "latex", "csv", "json")}
    assert main([str(tmp_path), *(word for kind, file in files.items() for word in (f"--{kind}", file))]) == 1
    printed = capsys.readouterr()
    assert f"{tmp_path / BAD}: results.json cannot be used" in printed.err
    assert reason in printed.err
    assert len(printed.err) < 600
    assert "81.00" in printed.out
    (left,) = json.loads(Path(files["json"]).read_text())["left_out"]
    assert reason in left["reason"]
    assert "cannot be used" in Path(files["markdown"]).read_text()


def test_the_reason_is_on_the_page(tmp_path: Path) -> None:
    good(tmp_path)
    write_results(tmp_path / BAD, 70.0, protocol={"backbone": "\ud800"})
    assert main([str(tmp_path), "--quiet", "--html", str(tmp_path / "report.html")]) == 1
    assert "backbone &#x27;\\ud800&#x27;, which is not a valid value" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("name", ["results.json", "log.txt"])
def test_a_named_pipe_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """Reading it would wait forever."""
    good(tmp_path)
    (tmp_path / BAD).mkdir(parents=True)
    os.mkfifo(tmp_path / BAD / name)
    assert main([str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert "is not a file" in printed.err
    assert "81.00" in printed.out


def test_a_log_with_a_non_numeric_setting_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good(tmp_path)
    start = head("CoOp", "EuroSAT", "base", 3).replace("LR: 0.002", "LR: 1e999")
    write_log(tmp_path / BAD, start, training(), result(800))
    assert main([str(tmp_path)]) == 1
    assert "OPTIM.LR inf, which is not a valid value" in capsys.readouterr().err


def test_a_text_value_is_left_out_of_a_numeric_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For a foreign key, which may be `auto`: the run has its row, and the sweep omits it."""
    good(tmp_path)
    write_pair(tmp_path, 88.0, 60.0, trainer="CoCoAMix", config=config("auto"), config_name="auto", seed=1)
    assert main([str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "88.00" in printed
    assert "is left out of the sweep of TRAINER.COCOAMIX.MINE, because its value is auto, not a number" in printed


def test_a_non_finite_metric_is_omitted_with_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_results(tmp_path / BAD, 70.0, metrics={"accuracy": 70.0, "nll": float("inf")})
    assert main([str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "nll of its results.json is not finite and is left out" in printed
    assert "70.00" in printed


# ---------------------------------------------------------------------- what is shown


def test_escape_sequences_do_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Folder names become labels, and broken runs are named."""
    for name in ("one", f"two{ESCAPE}"):
        write_pair(tmp_path, 80.0, 60.0, config_name=name)
    write_log(tmp_path / f"broken{ESCAPE}" / "seed1", "")
    assert main([str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err
    assert "two\\x1b]0;title\\x07" in printed.out
    assert "broken\\x1b" in printed.err


def test_folders_that_are_not_utf8_are_shown(tmp_path: Path) -> None:
    for name in (b"one", b"two\xff"):
        write_pair(tmp_path, 80.0, 60.0, config_name=os.fsdecode(name))
    files = {kind: str(tmp_path / f"report.{kind}") for kind in ("markdown", "latex", "csv", "json", "html")}
    assert main([str(tmp_path), *(word for kind, file in files.items() for word in (f"--{kind}", file))]) == 0
    for file in files.values():
        assert "two" in Path(file).read_text(encoding="utf-8")


def test_no_cell_of_the_csv_is_a_formula(tmp_path: Path) -> None:
    for name in ("one", "=HYPERLINK(1)", "@SUM(1)", "+1+1"):
        write_pair(tmp_path, 80.0, 60.0, method=name, trainer="CoOp", config_name=name.strip("=@+"))
    write_pair(tmp_path, 79.0, 60.0, method="two", config_name="two")
    from cocoamix.report.build import Options

    rows = list(csv.DictReader(io.StringIO(render_csv(build([tmp_path], Options(baseline="one"))))))
    labels = {row["line"] for row in rows}
    assert {"'=HYPERLINK(1)", "'@SUM(1)", "'+1+1"} <= {label.split(" (")[0] for label in labels} | labels
    texts = [value for row in rows for value in row.values()]
    assert not [text for text in texts if text.startswith(("=", "@", "+"))]
    # A negative difference stays a number.
    assert [row for row in rows if row["mean"].startswith("-") and float(row["mean"]) < 0]


def test_runs_with_skipped_images_are_reported_and_not_averaged(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 60.0, seed=1)
    write_pair(tmp_path, 90.0, 60.0, seed=2)
    path = next(tmp_path.rglob("train_base/**/seed2/results.json"))
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "unreadable_images": 32}))
    report = build([tmp_path])
    notes = " ".join(report.notes)
    assert "32 images could not be read and were left out of the run" in notes
    assert "unreadable_images" in notes
