"""`tradeoff`, `parameters` and `datasets`: their data recomputed from results, and what they draw."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest

from cocoamix.experiments import frame
from cocoamix.experiments.figures import main, source, tradeoff
from cocoamix.experiments.figures.style import RC, Style
from cocoamix.experiments.published import match, read_tables
from tests.experiments.trees import write_pair, write_results

# By method, a row for each dataset of base and new, with seeds 1 and 2.
ACCURACIES = {
    "ZeroshotCLIP": [[(60.0, 70.0)], [(50.0, 58.0)]],
    "CoOp": [[(80.0, 60.0), (84.0, 64.0)], [(70.0, 50.0), (72.0, 40.0)]],
    "MaPLe": [[(82.0, 72.0), (83.0, 71.0)], [(71.0, 57.0), (70.0, 59.0)]],
}
NAMES = {"ZeroshotCLIP": "CLIP", "CoOp": "CoOp", "MaPLe": "MaPLe"}
PARAMETERS = {"ZeroshotCLIP": 0, "CoOp": 2048, "MaPLe": 3_550_000}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for trainer, values in ACCURACIES.items():
        for dataset, pairs in zip(("EuroSAT", "DTD"), values, strict=True):
            for seed, pair in enumerate(pairs, start=1):
                about = {"trainer": trainer, "dataset": dataset, "seed": seed}
                write_pair(tmp_path / "tree", *pair, **about, trained_parameters=PARAMETERS[trainer])
    return tmp_path / "tree"


def run(name: str, root: Path, *more: str) -> list[dict[str, str]]:
    """Return the data of a figure."""
    out = root.parent / "out"
    assert main([name, "--runs", str(root), "--output", str(out), *more]) == 0
    with (out / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("figure", ["tradeoff", "parameters"])
def test_data_match_the_results(figure: str, tree: Path) -> None:
    rows = {row["method"]: row for row in run(figure, tree)}
    assert list(rows) == ["CLIP", "CoOp", "MaPLe"]
    for trainer, name in NAMES.items():
        values = np.array(ACCURACIES[trainer])  # dataset, seed, half
        whole = np.concatenate([values, 2 / (1 / values).sum(axis=-1, keepdims=True)], axis=-1).mean(axis=0)
        assert [float(rows[name][key]) for key in ("base", "new", "H")] == pytest.approx(whole.mean(axis=0))
        assert float(rows[name]["parameters"]) == PARAMETERS[trainer]
        if trainer != "ZeroshotCLIP":  # the deviation of the population, over the seeds' averages
            spread = [float(rows[name][f"{key}_std"]) for key in ("base", "new", "H")]
            assert spread == pytest.approx(whole.std(axis=0))


def test_h_of_each_seed_matches_the_results(tree: Path) -> None:
    for row in run("datasets", tree):
        trainer = {name: trainer for trainer, name in NAMES.items()}[row["method"]]
        base, new = ACCURACIES[trainer][["EuroSAT", "DTD"].index(row["dataset"])][int(row["seed"]) - 1]
        assert float(row["H"]) == pytest.approx(2 / (1 / base + 1 / new))


@pytest.mark.parametrize("figure", ["tradeoff", "parameters", "datasets", "sessions"])
def test_runs_of_one_half_are_refused(figure: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_results(tmp_path / "tree/base2new/train_base/dtd/shots_4/CoOp/x/seed1", 80.0, subset="base")
    assert main([figure, "--runs", str(tmp_path / "tree"), "--output", str(tmp_path / "out")]) == 2
    assert capfd.readouterr().err.startswith("error: ")
    assert not (tmp_path / "out").exists()


FIVE = {"CLIP": (65, 69), "CoOp": (77, 68), "KgCoOp": (78.5, 75), "ProGrad": (79, 73), "Mix": (80, 75)}
EQUAL = {"CLIP": (98, 99), "CoOp": (100, 100), "KgCoOp": (100, 100)}
MANY = {f"method {n}": (70 + n, 66 + (7 * n) % 11) for n in range(13)}
CROWD = {f"a method with a name {n}": (70 + n / 99, 70) for n in range(13)}


@pytest.mark.parametrize("inches", [3.25, 6.75])
@pytest.mark.parametrize("places", [FIVE, EQUAL, MANY, CROWD])
def test_names_are_free_of_each_other_and_of_points_or_in_a_legend(
    places: dict[str, tuple[float, float]], inches: float
) -> None:
    rows = pd.DataFrame(places.values(), index=pd.Index(places, name="method"), columns=["base", "new"])
    with matplotlib.rc_context(RC):
        figure = tradeoff.draw(rows.assign(base_std=0.2, new_std=0.4, published="", start=""), Style(inches), "Title")
        figure.draw_without_rendering()
    axes = figure.axes[0]
    if figure.legends:
        assert places not in (FIVE, EQUAL)
        assert [text.get_text().replace("\n", " ") for text in figure.legends[0].get_texts()] == list(places)
        assert not axes.texts
        return
    names = [text for text in axes.texts if text.get_text()]
    assert {text.get_text().replace("\n", " ") for text in names} == set(places)
    marks = axes.transData.transform(list(places.values()))
    for text, other in itertools.combinations(names, 2):
        assert not text.get_window_extent().overlaps(other.get_window_extent())
    for text in names:
        assert not any(text.get_window_extent().contains(x, y) for x, y in marks)


def test_published_points_are_beside_ours(tmp_path: Path) -> None:
    for dataset in read_tables()[0].datasets:
        for trainer in ("ZeroshotCLIP", "CoOp"):
            write_pair(tmp_path, 80.0, 60.0, trainer=trainer, dataset=dataset)
    (part,) = source.base_to_new(frame.read([tmp_path]))
    shown = tradeoff.points_of(part, match(part).rows)
    printed = shown[shown["published"] != ""]
    assert printed.loc["CoCoA-Mix (published)", ["base", "new"]].tolist() == [79.31, 75.1]
    assert set(printed["start"]) == {"", "CLIP (published)"}
    assert shown["start"].to_dict().items() >= {"CLIP": "", "CoOp": "CLIP"}.items()
    lines = {line.get_label(): line for line in tradeoff.draw(shown, Style()).axes[0].lines}
    own, paper = lines["CoOp"], lines["CoOp (published)"]
    assert own.get_color() == paper.get_color()
    assert (own.get_markerfacecolor(), paper.get_markerfacecolor()) == (own.get_color(), "none")
