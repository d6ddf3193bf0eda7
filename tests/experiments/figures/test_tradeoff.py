"""`tradeoff`, `parameters` and `datasets`: their data recomputed from results, and what they draw."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from cocoamix.experiments import frame
from cocoamix.experiments.figures import main, source, tradeoff
from cocoamix.experiments.figures.style import RC, Style
from cocoamix.experiments.published import match, read_tables
from tests.experiments.trees import head, result, training, write_log, write_pair, write_results

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
NAMES = {"ZeroshotCLIP": "CLIP", "CoOp": "CoOp", "MaPLe": "MaPLe"}
PARAMETERS = {"ZeroshotCLIP": 0, "CoOp": 2048, "MaPLe": 3_550_000}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for trainer, values in ACCURACIES.items():
        for (dataset, seed), (base, new) in values.items():
            about = {"trainer": trainer, "dataset": dataset, "seed": seed, "trained_parameters": PARAMETERS[trainer]}
            write_pair(tmp_path / "tree", base, new, **about, protocol={"dataset": dataset})
    return tmp_path / "tree"


def run(name: str, root: Path, *more: str) -> list[dict[str, str]]:
    """Return the data of a figure."""
    out = root.parent / "out"
    assert main([name, "--runs", str(root), "--output", str(out), *more]) == 0
    with (out / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def points(root: Path, paper: bool = False) -> pd.DataFrame:
    (part,) = source.base_to_new(frame.read([root]))
    return tradeoff.points_of(part, match(part).rows if paper else None)


def cells(trainer: str) -> list[np.ndarray]:
    """Return a row per seed of base, new and H for each dataset."""
    values = ACCURACIES[trainer]
    names = sorted({dataset for dataset, _ in values})
    both = [np.array([pair for (dataset, _), pair in values.items() if dataset == name]) for name in names]
    return [np.column_stack([pairs, 2 / (1 / pairs).sum(axis=1)]) for pairs in both]


@pytest.mark.parametrize("figure", ["tradeoff", "parameters"])
def test_data_match_the_results(figure: str, tree: Path) -> None:
    rows = {row["method"]: row for row in run(figure, tree)}
    assert list(rows) == ["CLIP", "CoOp", "MaPLe"]
    for trainer, name in NAMES.items():
        expected = np.mean([cell.mean(axis=0) for cell in cells(trainer)], axis=0)
        assert [float(rows[name][key]) for key in ("base", "new", "H")] == pytest.approx(expected)
        assert float(rows[name]["parameters"]) == PARAMETERS[trainer]
        if trainer != "ZeroshotCLIP":  # the deviation of the population, over the seeds' averages
            spread = np.mean(cells(trainer), axis=0).std(axis=0)
            assert [float(rows[name][f"{key}_std"]) for key in ("base", "new", "H")] == pytest.approx(spread)


def test_h_of_each_seed_matches_the_results(tree: Path) -> None:
    found = {(row["method"], row["dataset"], int(row["seed"])): float(row["H"]) for row in run("datasets", tree)}
    assert found == pytest.approx(
        {
            (NAMES[trainer], dataset, seed): 2 / (1 / base + 1 / new)
            for trainer, values in ACCURACIES.items()
            for (dataset, seed), (base, new) in values.items()
        }
    )


def test_each_number_of_shots_is_a_figure(tree: Path) -> None:
    for trainer in ("CoOp", "MaPLe"):
        for dataset in ("EuroSAT", "DTD"):
            write_pair(tree / "more", 90.0, 80.0, trainer=trainer, dataset=dataset, shots=16, config_name="x")
    run("tradeoff", tree)
    with (tree.parent / "out/tradeoff-2.csv").open() as file:
        rows = {row["method"]: float(row["base"]) for row in csv.DictReader(file)}
    assert rows == {"CLIP": 55.0, "CoOp": 90.0, "MaPLe": 90.0}


def test_a_method_without_a_half_or_a_dataset_is_omitted(tree: Path) -> None:
    write_pair(tree, 99.0, 99.0, trainer="ProGrad")
    for dataset in ("EuroSAT", "DTD"):
        write_results(
            tree / f"base2new/train_base/{dataset}/shots_4/KgCoOp/x/seed1", 99.0, trainer="KgCoOp", dataset=dataset
        )
    assert set(points(tree).index) == set(NAMES.values())


def test_arrows_start_at_the_only_comparable_clip(tmp_path: Path) -> None:
    for backbone in ("ViT-B/16", "RN50"):
        for trainer in ("CoOp", "ZeroshotCLIP", "ZeroshotCLIP2"):
            names = {"trainer": trainer, "config_name": backbone.replace("/", "_")}
            write_pair(tmp_path, 80.0, 60.0, protocol={"backbone": backbone}, **names)
    starts = points(tmp_path)["start"].to_dict()
    clips = {name: start for name, start in starts.items() if "CoOp" in name}
    assert len(clips) == 2
    for name, start in clips.items():
        assert start == name.replace("CoOp", "CLIP")
    assert not any(start for name, start in starts.items() if "CLIP" in name)


def test_published_points_are_beside_ours(tmp_path: Path) -> None:
    table = read_tables()[0]
    for dataset in table.datasets:
        for trainer in ("ZeroshotCLIP", "CoOp"):
            write_pair(tmp_path, 80.0, 60.0, trainer=trainer, dataset=dataset)
    shown = points(tmp_path, paper=True)
    printed = shown[shown["published"] != ""]
    assert printed.loc["CoCoA-Mix (published)", ["base", "new"]].tolist() == [79.31, 75.1]
    assert set(printed["start"]) == {"", "CLIP (published)"}
    assert shown.loc["CoOp", "start"] == "CLIP"
    figure = drawn(shown)
    own, paper = (
        next(line for line in figure.axes[0].lines if line.get_label() == name) for name in ("CoOp", "CoOp (published)")
    )
    assert own.get_color() == paper.get_color()
    assert (own.get_markerfacecolor(), paper.get_markerfacecolor()) == (own.get_color(), "none")


@pytest.mark.parametrize("figure", ["tradeoff", "parameters", "datasets", "sessions"])
def test_other_kinds_of_runs_are_refused(figure: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_results(tmp_path / "tree/eurosat/CoOp/vit_b16_4shots/seed1", 80.0, subset="all")
    assert main([figure, "--runs", str(tmp_path / "tree"), "--output", str(tmp_path / "out")]) == 2
    assert capfd.readouterr().err.startswith("error: ")
    assert not (tmp_path / "out").exists()


def test_logs_contain_no_parameter_counts(tmp_path: Path) -> None:
    """Logs of other trees give a trade-off, but no figure over parameters."""
    for trainer, base, new in (("CoOp", 800, 600), ("KgCoOp", 780, 700)):
        for subset, correct, part in (("base", base, "train_base"), ("new", new, "test_new")):
            folder = tmp_path / f"tree/base2new/{part}/eurosat/shots_16/{trainer}/vit_b16/seed1"
            write_log(folder, head(trainer, "EuroSAT", subset), training(), result(correct))
    assert len(run("tradeoff", tmp_path / "tree")) == 2
    assert main(["parameters", "--runs", str(tmp_path / "tree"), "--output", str(tmp_path / "out")]) == 2


# ---------------------------------------------------------------------- drawing

FIVE = {"CLIP": (65, 69), "CoOp": (77, 68), "KgCoOp": (78.5, 75), "ProGrad": (79, 73), "Mix": (80, 75)}
CLOSE = {"CLIP": (70, 70)} | {f"method {n}": (78 + 0.3 * n, 74 + 0.2 * (n % 3)) for n in range(6)}
EQUAL = {"CLIP": (98, 99), "CoOp": (100, 100), "KgCoOp": (100, 100)}
LONG = {
    "CLIP, ensemble of templates": (78.6, 86.5),
    "CoCoA-Mix": (84.3, 87.5),
    "CoCoA-Mix [ENSEMBLE=uniform]": (84.8, 86.9),
}
MANY = {"CLIP": (65, 69)} | {f"method {n}": (70 + n, 66 + (7 * n) % 11) for n in range(30)}


def drawn(shown: pd.DataFrame, inches: float = 3.25) -> Figure:
    with matplotlib.rc_context(RC):
        figure = tradeoff.draw(shown, Style(inches), "Title")
        figure.draw_without_rendering()
    return figure


def table(places: dict[str, tuple[float, float]]) -> pd.DataFrame:
    rows = pd.DataFrame(places.values(), index=pd.Index(places, name="method"), columns=["base", "new"])
    starts = ["CLIP" if name != "CLIP" and "CLIP" in places else "" for name in places]
    return rows.assign(base_std=0.2, new_std=0.4, published="", start=starts)


@pytest.mark.parametrize("inches", [3.25, 6.75])
@pytest.mark.parametrize("places", [FIVE, CLOSE, EQUAL, LONG, MANY])
def test_names_are_free_of_each_other_and_of_points_or_in_a_legend(
    places: dict[str, tuple[float, float]], inches: float
) -> None:
    figure = drawn(table(places), inches)
    axes = figure.axes[0]
    texts = [text for text in axes.texts if text.get_text() and not text.get_text().startswith("H ")]
    if places is MANY:
        (legend,) = figure.legends
        assert [text.get_text() for text in legend.get_texts()] == list(places)
        assert not texts
        return
    assert {text.get_text().replace("\n", " ") for text in texts} == set(places)
    marks = axes.transData.transform(list(places.values()))
    for text, other in itertools.combinations([text for text in axes.texts if text.get_text()], 2):
        assert not text.get_window_extent().overlaps(other.get_window_extent())
    for text in texts:
        box = text.get_window_extent()
        assert not any(box.contains(x, y) for x, y in marks)
        assert axes.get_window_extent().padded(1).contains(box.x0, box.y0)
        assert axes.get_window_extent().padded(1).contains(box.x1, box.y1)


def test_h_is_the_same_along_a_line() -> None:
    axes = drawn(table(FIVE)).axes[0]
    (contours,) = (drawn for drawn in axes.collections if hasattr(drawn, "levels"))
    shown = 0
    for level, path in zip(contours.levels, contours.get_paths(), strict=True):
        for base, new in path.vertices:
            assert 2 * base * new / (base + new) == pytest.approx(level, abs=0.01)
            shown += 1
    assert shown > 200
    named = [text for text in axes.texts if text.get_text().startswith("H ")]
    assert len(named) >= 2
    for text in named:
        base, new = text.get_position()
        assert 2 * base * new / (base + new) == pytest.approx(float(text.get_text().removeprefix("H ")), abs=0.05)
