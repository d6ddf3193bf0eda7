"""`losses`: its numbers recomputed from results files, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cocoamix.bench.plan import load_plan
from cocoamix.bench.runs import expand
from cocoamix.drawing.style import DARK, LIGHT
from cocoamix.figures.command import main

from .trees import lines_of, make, rows_of, write_run

DATASETS, SEEDS = ("Alpha", "Beta"), (1, 2, 3)
NONE, COA = {"ENSEMBLE": "none"}, {"ENSEMBLE": "coa"}
# Folder of each configuration: the name in figures, and its settings.
LOSSES: dict[str, tuple[str, dict[str, Any]]] = {
    "focal": ("focal", {"LOSS": "focal", "GAMMA": 2.0}),
    "focal_5": ("focal", {"LOSS": "focal", "GAMMA": 5.0}),
    "gce": ("GCE", {"LOSS": "gce", "Q": 0.7}),
    "ce": ("CE", {"LOSS": "ce"}),
    "mae": ("CE + MAE", {"LOSS": "ce+mae", "W": 5.0}),
    "coa": ("CoA", {"LOSS": "coa", "W": 9.0}),  # a w without effect
    "ce_coa": ("CE + CoA", {"LOSS": "ce+coa"}),  # w 5 is the default
    "ce_coa_1": ("CE + CoA", {"LOSS": "ce+coa", "W": 1.0}),
}
W = {"w0": 0.0, "w1": 1.0, "mix": 5.0, "w9": 9.0}
D = {"d0": 0.0, "mix": 0.2, "d5": 0.5}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Losses without an ensemble, and CoCoA-Mix over w and d; accuracies are random."""
    generator, root = np.random.default_rng(1), tmp_path / "runs"

    def write(config: str, **settings: Any) -> None:
        for dataset in DATASETS:
            for seed in SEEDS:
                for subset in ("base", "new"):
                    accuracy = round(float(generator.uniform(20, 90)), 3)
                    write_run(root, config, dataset, subset, seed, accuracy, **settings)

    for config, (_, settings) in LOSSES.items():
        write(config, **settings, **NONE)
    for config, w in W.items():
        write(config, W=w, MARGIN=0.2, **COA)
    for config, d in D.items():
        if config != "mix":
            write(config, W=5.0, MARGIN=d, **COA)
    write("no_out", OUT_CLASSES="none", **COA)
    return root


def accuracies(root: Path, config: str, subset: str = "base") -> np.ndarray:
    """Return the accuracies of a configuration, a row for each dataset and a column for each seed."""
    folders = [root / f"base2new/test_{subset}/{dataset}/shots_4/CoCoAMix/{config}" for dataset in DATASETS]
    read = [[json.loads((one / f"seed{seed}/results.json").read_text()) for seed in SEEDS] for one in folders]
    return np.array([[one["metrics"]["accuracy"] for one in row] for row in read])


def table(rows: list[dict[str, str]], name: str, **chosen: str) -> np.ndarray:
    """Return the accuracies in a figure's data in the same shape."""
    found = [row for row in rows if all(row[key] == value for key, value in chosen.items())]
    assert len(found) == len(DATASETS) * len(SEEDS)
    return np.array([[float(row[name]) for row in found if row["dataset"] == one] for one in DATASETS])


def test_data_of_losses_and_settings_match_the_results(tree: Path) -> None:
    losses, settings, _ = make("losses", "--runs", tree)
    symbols = {"focal": "\u03b3", "GCE": "q", "CE + MAE": "w", "CE + CoA": "w"}
    values = {"focal": "2.0", "focal_5": "5.0", "gce": "0.7", "mae": "5.0", "ce_coa": "5.0", "ce_coa_1": "1.0"}
    for figure, configs in ((losses, [one for one in LOSSES if one[-1] not in "15"]), (settings, list(LOSSES))):
        rows = rows_of(figure)
        assert len(rows) == len(configs) * len(DATASETS) * len(SEEDS)
        for config in configs:
            name = LOSSES[config][0]
            chosen = {"loss": name, "setting": symbols.get(name, ""), "value": values.get(config, "")}
            assert table(rows, "base_accuracy", **chosen).tolist() == accuracies(tree, config).tolist()
            assert f"{accuracies(tree, config).mean():.2f}" in figure.sentence
    order = ["focal", "gce", "ce", "mae", "coa", "ce_coa"]
    means = [accuracies(tree, config).mean() for config in order]
    best = LOSSES[order[int(np.argmax(means))]][0]
    assert f"Highest: {best}" in losses.sentence
    for palette in (LIGHT, DARK):
        axes = losses.draw(palette).axes[0]
        marks = [line for line in axes.lines if line.get_marker() == "D"]
        assert [float(np.asarray(line.get_xdata())[0]) for line in marks] == pytest.approx(means)
        assert [text.get_text() for text in axes.texts] == [f"{mean:.2f}" for mean in means]
        dots = [line for line in axes.lines if line.get_marker() == "."]
        for line, config in zip(dots, order, strict=True):
            assert np.asarray(line.get_xdata()) == pytest.approx(accuracies(tree, config).mean(axis=0))
    every = ["focal", "focal_5", "gce", "ce", "mae", "coa", "ce_coa_1", "ce_coa"]
    axes = settings.draw(LIGHT).axes[0]
    assert lines_of(axes, "D") == [pytest.approx([accuracies(tree, config).mean()]) for config in every]
    texts = ["\u03b3 2", "\u03b3 5", "q 0.7", "", "w 5", "", "w 1", "w 5"]
    assert [text.get_text() for text in axes.texts] == texts


def test_sensitivity_data_match_the_results(tree: Path) -> None:
    *_, figure = make("losses", "--runs", tree)
    rows = rows_of(figure)
    for palette in (LIGHT, DARK):
        over_w, over_d = figure.draw(palette).axes
        for axes, marker, configs, subset, dashed in (
            (over_w, "o", ["w1", "mix", "w9"], "base", "w0"),
            (over_d, "s", ["d0", "mix", "d5"], "new", "no_out"),
        ):
            assert lines_of(axes, marker) == [pytest.approx([accuracies(tree, one, subset).mean() for one in configs])]
            (line,) = (line for line in axes.lines if line.get_linestyle() == "--")
            assert list(line.get_ydata()) == pytest.approx([accuracies(tree, dashed, subset).mean()] * 2)
    for symbol, subset, configs in (("w", "base", W), ("d", "new", D)):
        for config, value in configs.items():
            found = table(rows, "accuracy", panel=symbol, subset=subset, out_classes="word", **{symbol: str(value)})
            assert found.tolist() == accuracies(tree, config, subset).tolist()
            mean = accuracies(tree, config, subset).mean()
            assert (
                f"{mean:.2f} at {symbol} {value:g}" if value or symbol == "d" else f"; {mean:.2f} with CE"
            ) in figure.sentence
    found = table(rows, "accuracy", panel="d", out_classes="none", baseline="1")
    assert found.tolist() == accuracies(tree, "no_out", "new").tolist()
    assert f"; {found.mean():.2f} without pi^out" in figure.sentence
    assert {(row["panel"], row["w"], row["out_classes"]) for row in rows if row["baseline"] == "1"} == {
        ("w", "0.0", "word"),
        ("d", "5.0", "none"),
    }


def test_means_cover_only_datasets_and_seeds_that_all_losses_have(tree: Path) -> None:
    """A seed that one loss lacks on one dataset is excluded for all, and so is a dataset."""
    (tree / "base2new/test_base/Beta/shots_4/CoCoAMix/gce/seed2/results.json").unlink()
    losses = make("losses", "--runs", tree, "--parts", "losses")[0]
    assert {row["seed"] for row in rows_of(losses)} == {"1", "3"}
    expected = accuracies_of_seeds(tree, "ce", [1, 3])
    assert f"CE {expected:.2f}" in losses.sentence
    for seed in SEEDS:
        (tree / f"base2new/test_base/Beta/shots_4/CoCoAMix/gce/seed{seed}/results.json").unlink(missing_ok=True)
    losses = make("losses", "--runs", tree, "--parts", "losses")[0]
    assert {row["dataset"] for row in rows_of(losses)} == {"Alpha"}
    assert "(Alpha; mean of seeds 1, 2, 3)" in losses.sentence


def accuracies_of_seeds(root: Path, config: str, seeds: list[int]) -> float:
    """Return the mean over the named seeds."""
    return float(np.mean(accuracies(root, config)[:, [SEEDS.index(seed) for seed in seeds]]))


def test_earlier_epochs_and_ensembles_are_not_plotted(tree: Path) -> None:
    """Neither an earlier epoch nor an ensemble of equal weights is plotted."""
    before = [rows_of(figure) for figure in make("losses", "--runs", tree)]
    write_run(tree, "ce_epoch5", "Alpha", epoch=5, LOSS="ce", **NONE)
    write_run(tree, "mix_epoch5", "Alpha", epoch=5, W=2.0, **COA)
    write_run(tree, "uniform", "Alpha", ENSEMBLE="uniform")
    assert [rows_of(figure) for figure in make("losses", "--runs", tree)] == before


def test_parts_that_cannot_be_drawn_are_reported(tree: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = ["--output", str(tmp_path / "out")]
    for config in ("focal_5", "ce_coa_1", "w0", "w1", "w9", "d0", "d5", "no_out"):
        for folder in tree.glob(f"**/CoCoAMix/{config}/seed*"):
            (folder / "results.json").unlink()
    assert main(["losses", "--runs", str(tree), *out]) == 0
    printed = capfd.readouterr()
    assert "Base accuracy by loss and setting is not drawn: there is no loss with several settings." in printed.err
    assert (
        "Sensitivity to w and d is not drawn: base-to-new runs of CoCoAMix with TRAINER.COCOAMIX.ENSEMBLE coa"
        in printed.err
    )
    assert {path.stem for path in (tmp_path / "out").iterdir()} == {"losses", "losses-dark"}
    assert main(["losses", "--runs", str(tree), "--parts", "sensitivity", *out]) == 2
    assert "error: There is nothing to draw, for the reasons above." in capfd.readouterr().err
    write_run(tree, "other", "Alpha", protocol={"splits": {"test": "x"}}, LOSS="ce", **NONE)
    write_run(tree, "again", "Alpha", protocol={"splits": {"test": "y"}}, LOSS="gce", **NONE)
    assert main(["losses", "--runs", str(tree), *out]) == 2
    assert "cannot be compared: splits.test is" in capfd.readouterr().err


def test_runs_without_shared_datasets_or_protocols_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["losses", "--runs", str(tmp_path / "empty"), "--output", str(tmp_path / "out")]) == 2
    assert "There is no run below" in capfd.readouterr().err
    write_run(tmp_path / "runs", "ce", "Alpha", LOSS="ce", **NONE)
    write_run(tmp_path / "runs", "gce", "Beta", LOSS="gce", **NONE)
    assert main(["losses", "--runs", str(tmp_path / "runs"), "--output", str(tmp_path / "out")]) == 2
    printed = capfd.readouterr().err
    lacking = (
        "No dataset is shared by all runs on base classes: GCE (q 0.7) has Beta, CE has Alpha. Run what is missing"
    )
    assert f"Base accuracy by loss is not drawn: {lacking}" in printed
    assert "error: There is nothing to draw, for the reasons above." in printed
    write_run(tmp_path / "runs", "gce", "Alpha", seed=2, LOSS="gce", **NONE)
    assert main(["losses", "--runs", str(tmp_path / "runs"), "--output", str(tmp_path / "out")]) == 2
    lacking = "No seed is shared by all runs on base classes: GCE (q 0.7) on Alpha has 2, CE on Alpha has 1."
    assert lacking in capfd.readouterr().err


def test_a_part_that_cannot_be_drawn_does_not_stop_the_others(
    tree: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A refused panel or part does not affect the others."""
    out = tmp_path / "out"
    for seed in SEEDS:
        for dataset, config in zip(DATASETS, ("d0", "d5"), strict=True):
            (tree / f"base2new/test_new/{dataset}/shots_4/CoCoAMix/{config}/seed{seed}/results.json").unlink()
    whole = [rows_of(figure) for figure in make("losses", "--runs", tree)]
    assert {row["panel"] for row in whole[2]} == {"w"}
    assert "Sensitivity to d is not drawn: No dataset is shared by all runs on new classes: w 5 with d 0 and " in (
        capfd.readouterr().err
    )
    for path in tree.glob("**/test_base/*/shots_4/CoCoAMix/focal_5/seed[12]/results.json"):
        path.unlink()
    for path in tree.glob("**/test_base/*/shots_4/CoCoAMix/ce/seed3/results.json"):
        path.unlink()
    assert main(["losses", "--runs", str(tree), "--output", str(out)]) == 0
    lacking = "No seed is shared by all runs on base classes: focal (\u03b3 2) on Alpha has 1, 2, 3, "
    assert f"Base accuracy by loss and setting is not drawn: {lacking}" in capfd.readouterr().err
    assert {path.stem for path in out.iterdir() if path.suffix == ".csv"} == {"losses", "losses-sensitivity"}
    for path in tree.glob("**/test_base/*/shots_4/CoCoAMix/w[019]/seed*/results.json"):
        path.unlink()
    assert main(["losses", "--runs", str(tree), "--parts", "sensitivity", "--output", str(out)]) == 2
    assert "Sensitivity to w and d is not drawn: No dataset is shared by all runs on new" in capfd.readouterr().err


def test_plans_share_their_runs() -> None:
    """A run that two plans share in one folder is identical, so neither lacks what the other saved or repeats it."""
    quick, losses, confusing, sensitivity = (
        {run.folder: run.arguments for run in expand(load_plan(name))}
        for name in ("quick", "quick_losses", "quick_confusing", "quick_sensitivity")
    )
    shared = losses.keys() & confusing.keys()
    assert len(shared) == 6 * 5 * 3
    assert all(losses[folder] == confusing[folder] for folder in shared)
    shared = quick.keys() & sensitivity.keys()
    assert len(shared) == 2 * 5 * 3
    assert all(quick[folder] == sensitivity[folder] for folder in shared)
    # Others save no predictions, or no checkpoints of epochs.
    assert not (losses.keys() | confusing.keys()) & (quick.keys() | sensitivity.keys())
