"""`tradeoff`, `parameters` and `datasets`: their data recomputed from results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cocoamix.experiments import frame
from cocoamix.experiments.figures import base_to_new
from cocoamix.experiments.figures.style import Style
from cocoamix.experiments.published import match, read_tables
from tests.experiments.figures.conftest import Draw
from tests.experiments.trees import write_pair, write_results

# By method, a row for each dataset of base and new, with seeds 1 and 2.
ACCURACIES = {
    "ZeroshotCLIP": [[(60.0, 70.0)], [(50.0, 58.0)]],
    "CoOp": [[(80.0, 60.0), (84.0, 64.0)], [(70.0, 50.0), (72.0, 40.0)]],
    "MaPLe": [[(82.0, 72.0), (83.0, 71.0)], [(71.0, 57.0), (70.0, 59.0)]],
}
NAMES = {"CLIP": "ZeroshotCLIP", "CoOp": "CoOp", "MaPLe": "MaPLe"}
PARAMETERS = {"CLIP": 0, "CoOp": 2048, "MaPLe": 3_550_000}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, trainer in NAMES.items():
        for dataset, pairs in zip(("EuroSAT", "DTD"), ACCURACIES[trainer], strict=True):
            for seed, pair in enumerate(pairs, start=1):
                about = {"trainer": trainer, "dataset": dataset, "seed": seed}
                write_pair(tmp_path / "tree", *pair, **about, trained_parameters=PARAMETERS[name])
    return tmp_path / "tree"


@pytest.mark.parametrize("figure", ["tradeoff", "parameters"])
def test_averages_match_the_results(figure: str, tree: Path, draw: Draw) -> None:
    rows = {row["method"]: row for row in draw(figure, tree)[figure]}
    assert list(rows) == ["CLIP", "CoOp", "MaPLe"]
    for name, row in rows.items():
        values = np.array(ACCURACIES[NAMES[name]])  # dataset, seed, half
        whole = np.concatenate([values, 2 / (1 / values).sum(axis=-1, keepdims=True)], axis=-1).mean(axis=0)
        assert [float(row[key]) for key in ("base", "new", "H")] == pytest.approx(whole.mean(axis=0))
        assert float(row["parameters"]) == PARAMETERS[name]
        if name != "CLIP":  # the deviation of the population, over the seeds' averages
            assert [float(row[f"{key}_std"]) for key in ("base", "new", "H")] == pytest.approx(whole.std(axis=0))


def test_h_of_each_seed_matches_the_results(tree: Path, draw: Draw) -> None:
    for row in draw("datasets", tree)["datasets"]:
        base, new = ACCURACIES[NAMES[row["method"]]][["EuroSAT", "DTD"].index(row["dataset"])][int(row["seed"]) - 1]
        assert float(row["H"]) == pytest.approx(2 / (1 / base + 1 / new))


@pytest.mark.parametrize("figure", ["tradeoff", "parameters", "datasets"])
def test_runs_of_one_half_are_refused(figure: str, tmp_path: Path, refused: Callable[..., str]) -> None:
    write_results(tmp_path / "tree/base2new/train_base/dtd/shots_4/CoOp/x/seed1", 80.0, subset="base")
    refused(figure, "--runs", tmp_path / "tree")


def test_published_points_are_beside_ours(tmp_path: Path) -> None:
    """Published methods of one name in two tables are both shown, and start at the CLIP of their own table."""
    for dataset in read_tables()[0].datasets:
        for trainer in ("ZeroshotCLIP", "CoOp"):
            write_pair(tmp_path, 80.0, 60.0, trainer=trainer, dataset=dataset)
    part = frame.read([tmp_path])
    rows = match(part).rows
    shown = base_to_new.points_of(part, rows)
    assert shown.loc["CoCoA-Mix (published)", ["base", "new"]].tolist() == [79.31, 75.1]
    assert (
        shown["start"].to_dict().items() >= {"CLIP": "", "CoOp": "CLIP", "CoOp (published)": "CLIP (published)"}.items()
    )
    axes = base_to_new.draw_points(shown, Style()).axes[0]
    own, paper = ({line.get_label(): line for line in axes.lines}[name] for name in ("CoOp", "CoOp (published)"))
    assert own.get_color() == paper.get_color()
    assert (own.get_markerfacecolor(), paper.get_markerfacecolor()) == (own.get_color(), "none")

    first = rows[rows["place"] == rows["place"].iloc[0]]
    other = first[first["method"].isin(["CLIP", "CoOp"])].assign(place="Table 9", value=50.0)
    both = base_to_new.points_of(part, pd.concat([first, other]))
    assert both.loc["CoOp (published; Table 9)", ["base", "new", "start"]].tolist() == [
        50,
        50,
        "CLIP (published; Table 9)",
    ]
    assert both.loc[f"CoOp (published; {first['place'].iloc[0]})", "base"] == shown.loc["CoOp (published)", "base"]
    assert "MaPLe (published)" in both.index
