"""`cocoamix figures tradeoff`, `parameters` and `sessions`: their data recomputed from results, and bad input."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PathCollection

from cocoamix.drawing.bubbles import draw_bubbles_on
from cocoamix.drawing.style import LIGHT, Figure
from cocoamix.figures.command import main
from cocoamix.report.build import build
from tests.experiments.trees import write_log, write_pair, write_results

ACCURACIES = {  # by method, dataset and seed: base and new
    "ZeroshotCLIP": {("EuroSAT", 1): (60.0, 70.0), ("DTD", 1): (50.0, 58.0)},
    "CoOp": {
        ("EuroSAT", 1): (80.0, 60.0),
        ("EuroSAT", 2): (84.0, 64.0),
        ("DTD", 1): (70.0, 50.0),
        ("DTD", 2): (72.0, 40.0),
    },
    "MaPLe": {
        ("EuroSAT", 1): (82.0, 72.0),
        ("EuroSAT", 2): (83.0, 71.0),
        ("DTD", 1): (71.0, 57.0),
        ("DTD", 2): (70.0, 59.0),
    },
}
PARAMETERS = {"ZeroshotCLIP": 0, "CoOp": 2048, "MaPLe": 3_550_000}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for trainer, values in ACCURACIES.items():
        for (dataset, seed), (base, new) in values.items():
            about = {"trainer": trainer, "dataset": dataset, "seed": seed, "trained_parameters": PARAMETERS[trainer]}
            write_pair(tmp_path / "tree", base, new, **about, protocol={"dataset": dataset})
    return tmp_path / "tree"


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def averages(trainer: str) -> tuple[float, float, float]:
    """Return base, new and H over datasets of the means over seeds, computed with numpy."""
    values = ACCURACIES[trainer]
    names = sorted({dataset for dataset, _ in values})
    cells = [np.array([pair for (dataset, _), pair in values.items() if dataset == name]) for name in names]
    h = [np.mean([2 / (1 / base + 1 / new) for base, new in cell]) for cell in cells]
    base, new = np.mean([cell.mean(axis=0) for cell in cells], axis=0)
    return float(base), float(new), float(np.mean(h))


def test_tradeoff_data_match_the_results(tree: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["tradeoff", "--runs", str(tree), "--output", str(out)]) == 0
    found = {row["method"]: row for row in rows_of(out / "tradeoff.csv")}
    for trainer, name in (("ZeroshotCLIP", "CLIP"), ("CoOp", "CoOp"), ("MaPLe", "MaPLe")):
        base, new, _ = averages(trainer)
        assert float(found[name]["x"]) == pytest.approx(base)
        assert float(found[name]["y"]) == pytest.approx(new)
    (base, new, _), (clip_base, clip_new, _) = averages("CoOp"), averages("ZeroshotCLIP")
    printed = capfd.readouterr().out.splitlines()
    assert f"CoOp {base - clip_base:+.1f} and {new - clip_new:+.1f}" in printed[0]
    assert (out / "tradeoff.txt").read_text().strip() == printed[0]
    files = {f"tradeoff{colours}.{kind}" for colours in ("", "-dark") for kind in ("svg", "png")}
    assert {path.name for path in out.iterdir()} == files | {"tradeoff.csv", "tradeoff.txt"}


def test_tradeoff_shows_the_papers_rows(tree: Path, tmp_path: Path) -> None:
    """The paper's rows cover the datasets of the runs, and are labelled as the paper's."""
    assert main(["tradeoff", "--runs", str(tree), "--paper", "--output", str(tmp_path)]) == 0
    assert "CoOp (paper)" in {row["method"] for row in rows_of(tmp_path / "tradeoff.csv") if row["from_paper"] == "1"}


def test_parameters_data_match_the_results(tree: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["parameters", "--runs", str(tree), "--output", str(tmp_path)]) == 0
    rows = rows_of(tmp_path / "parameters.csv")
    by_panel = {
        panel: {row["method"]: row for row in rows if row["panel"] == panel} for panel in {row["panel"] for row in rows}
    }
    for trainer, name in (("ZeroshotCLIP", "CLIP"), ("CoOp", "CoOp"), ("MaPLe", "MaPLe")):
        base, new, h = averages(trainer)
        one, two = by_panel["H and parameters"][name], by_panel["base and new"][name]
        assert (float(one["x"]), float(one["y"])) == pytest.approx((PARAMETERS[trainer], h))
        assert (float(two["x"]), float(two["y"])) == pytest.approx((base, new))
    assert capfd.readouterr().out.startswith(
        f"MaPLe has the highest H, {averages('MaPLe')[2]:.2f}, with 3,550,000 trained parameters; no smaller"
    )


def test_bubbles_grow_with_parameters(tree: Path) -> None:
    (chart,) = [one for section in build([tree]).sections for one in section.charts if one.kind == "bubbles"]
    figure = Figure()
    axes = figure.subplots()
    draw_bubbles_on(axes, chart, LIGHT)
    areas = [float(one.get_sizes()[0]) for one in axes.collections if isinstance(one, PathCollection)]
    assert len(areas) == 2  # zero-shot CLIP is a line
    assert areas[0] < areas[1]
    order = [one.get_zorder() for one in axes.collections if isinstance(one, PathCollection)]
    assert order[0] > order[1]  # the smaller point is not hidden
    assert axes.get_xscale() == "log"


def test_sessions_data_match_the_results(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seen = {1: [90.0, 80.0, 75.0], 2: [88.0, 82.0, 73.0]}
    base = {1: [90.0, 85.0, 80.0], 2: [88.0, 87.0, 76.0]}
    novel = {1: [None, 50.0, 40.0], 2: [None, 54.0, 48.0]}
    for seed in (1, 2):
        path = write_results(
            tmp_path / f"tree/fscil/warm_cool/CoOpFSCIL/tiny/seed{seed}",
            seen[seed][-1],
            trainer="CoOpFSCIL",
            dataset="WarmCool",
            subset="all",
            seed=seed,
            sessions=seen[seed],
        )
        content = json.loads(path.read_text())
        for number, entry in enumerate(content["sessions"]):
            entry["base"], entry["novel"] = base[seed][number], novel[seed][number]
        path.write_text(json.dumps(content))
    out = tmp_path / "out"
    assert main(["sessions", "--runs", str(tmp_path / "tree"), "--output", str(out)]) == 0
    rows = rows_of(out / "sessions.csv")
    for panel, values in (("all classes so far", seen), ("base classes", base), ("novel classes", novel)):
        found = [row for row in rows if row["panel"] == panel]
        wanted = {
            number: (one + two) / 2
            for number, (one, two) in enumerate(zip(values[1], values[2], strict=True))
            if one is not None and two is not None
        }
        assert {float(row["x"]): float(row["y"]) for row in found} == pytest.approx(wanted)
    assert "from 89.0 to 74.0 (-15.0)" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        ("tradeoff", "no base and new accuracy of two methods"),
        ("parameters", "no base and new accuracy of two trained methods"),
        ("sessions", "no sessions"),
    ],
)
def test_other_kinds_of_runs_are_refused(
    figure: str, words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_results(tmp_path / "tree/eurosat/CoOp/vit_b16_4shots/seed1", 80.0, subset="all")
    assert main([figure, "--runs", str(tmp_path / "tree"), "--output", str(tmp_path / "out")]) == 2
    error = capfd.readouterr().err
    assert error.startswith("error: ")
    assert words in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("figure", ["tradeoff", "parameters", "sessions"])
def test_missing_runs_are_reported(figure: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([figure, "--runs", str(tmp_path / "nothing")]) == 2
    assert "nothing does not exist" in capfd.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main([figure, "--runs", str(tmp_path / "empty"), "--output", str(tmp_path / "out")]) == 2
    assert "There is no run below" in capfd.readouterr().err


def test_logs_contain_no_parameter_counts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Logs of other trees give a trade-off, but no figure over parameters."""
    from tests.experiments.trees import head, result, training

    for trainer, base, new in (("CoOp", 800, 600), ("KgCoOp", 780, 700)):
        for subset, correct in (("base", base), ("new", new)):
            part = "train_base" if subset == "base" else "test_new"
            folder = tmp_path / f"tree/base2new/{part}/eurosat/shots_16/{trainer}/vit_b16/seed1"
            write_log(folder, head(trainer, "EuroSAT", subset), training(), result(correct))
    out = ["--output", str(tmp_path / "out")]
    assert main(["tradeoff", "--runs", str(tmp_path / "tree"), *out]) == 0
    assert main(["parameters", "--runs", str(tmp_path / "tree"), *out]) == 2
    assert "which results.json holds and logs do not" in capfd.readouterr().err
