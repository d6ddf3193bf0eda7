"""`confusing`: its numbers recomputed from the prediction tables, and what it refuses."""

from __future__ import annotations

import argparse
import csv
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from cocoamix.drawing.style import DARK, LIGHT
from cocoamix.figures import confusing
from cocoamix.figures.command import main
from cocoamix.figures.sources import Choice, Plans, Source

from .trees import Prediction, lines_of, make, rows_of, write_predictions, write_run

IMAGES, CLASSES, EPOCHS, SEEDS = 60, 4, (5, 30), (1, 2)
LOSSES = {"CE": "ce", "CE + CoA": "ce+coa"}
NONE = {"ENSEMBLE": "none"}


def predict(generator: np.random.Generator, labels: np.ndarray) -> list[Prediction]:
    """Return predictions with random probabilities."""
    shares = np.round(generator.dirichlet(np.full(CLASSES, 1.5), len(labels)), 6)
    best = shares.argmax(1)
    return [
        (f"img/{n}.png", f"c{label}", f"c{best[n]}", shares[n, best[n]], shares[n, label])
        for n, label in enumerate(labels)
    ]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two datasets, two losses at two epochs, two seeds; the second dataset has only the last epoch."""
    generator = np.random.default_rng(0)
    root = tmp_path / "runs"
    for dataset in ("Alpha", "Beta"):
        labels = generator.integers(0, CLASSES, IMAGES)
        guessed = predict(generator, labels)
        # A gap of exactly 0.2 is not below 0.2, though 0.6 - 0.4 is in floating point.
        guessed[0] = ("img/0.png", f"c{labels[0]}", f"c{(labels[0] + 1) % CLASSES}", 0.6, 0.4)
        write_run(root, "tiny", dataset, trainer="ZeroshotCLIP", predictions=guessed)
        write_run(root, "tiny", dataset, "new", trainer="ZeroshotCLIP", accuracy=61.5)
        for loss in LOSSES.values():
            for epoch in EPOCHS if dataset == "Alpha" else EPOCHS[-1:]:
                for seed in SEEDS:
                    facts: dict[str, Any] = {"seed": seed, "epoch": epoch, "LOSS": loss, **NONE}
                    config = f"{loss.replace('+', '_')}_{epoch}"
                    write_run(root, config, dataset, predictions=predict(generator, labels), **facts)
                    write_run(root, config, dataset, "new", accuracy=float(generator.integers(10, 90)), **facts)
    return root


def columns(path: Path) -> dict[str, np.ndarray]:
    """Read a table of predictions column by column."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}


def by_hand(root: Path, gap_in_millionths: int, dataset: str) -> dict[str, np.ndarray]:
    """Return which images are easy, confusing and hard, using integers."""
    (path,) = root.glob(
        f"**/{'test' if 'runs' in str(root) else 'train'}_base/{dataset}/**/ZeroshotCLIP/**/predictions.csv"
    )
    zero = columns(path)
    easy = zero["predicted"] == zero["label"]
    first, own = (
        np.array([int(text.replace(".", "")) for text in zero[key]]) for key in ("confidence", "label_probability")
    )
    near = first - own < gap_in_millionths
    return {"easy": easy, "confusing": ~easy & near, "hard": ~easy & ~near, "all": np.ones(len(easy), bool)}


def test_numbers_match_the_predictions(tree: Path) -> None:
    curves, gains = make("confusing", "--runs", tree)
    parts = by_hand(tree, 200_000, "Alpha")
    assert parts["hard"][0]
    assert all(part.any() for part in parts.values())
    rows = rows_of(curves)
    first = [
        (row["images"], int(row["count"]), float(row["accuracy"])) for row in rows if row["loss"] == "zero-shot CLIP"
    ]
    exact = {"easy": 100.0, "confusing": 0.0, "hard": 0.0, "all": 100 * parts["easy"].mean()}
    assert first == [*((name, part.sum(), exact[name]) for name, part in parts.items()), ("new", 7, 61.5)]
    found = {
        (row["loss"], int(row["epoch"]), int(row["seed"]), row["images"]): float(row["accuracy"]) for row in rows[5:]
    }
    assert len(found) == len(rows) - 5 == len(LOSSES) * len(EPOCHS) * len(SEEDS) * 5
    for name, loss in LOSSES.items():
        for epoch in EPOCHS:
            for seed in SEEDS:
                folder = f"Alpha/shots_4/CoCoAMix/{loss.replace('+', '_')}_{epoch}/seed{seed}"
                own = columns(tree / "base2new" / "test_base" / folder / "predictions.csv")
                right = own["predicted"] == own["label"]
                for part, chosen in parts.items():
                    assert found[name, epoch, seed, part] == pytest.approx(100 * right[chosen].mean())
                text = (tree / "base2new" / "test_new" / folder / "results.json").read_text()
                assert f'"accuracy": {found[name, epoch, seed, "new"]}' in text
                # The parts add up to the whole.
                whole = sum(
                    found[name, epoch, seed, part] * parts[part].sum() for part in ("easy", "confusing", "hard")
                )
                assert found[name, epoch, seed, "all"] == pytest.approx(whole / IMAGES)

    # The plotted values are means over seeds.
    for palette in (LIGHT, DARK):
        panels = curves.draw(palette).axes
        for axes, part in zip(panels[1:], ("easy", "confusing", "hard", "all", "new"), strict=True):
            for name, marker in zip(LOSSES, "os", strict=True):
                means = [np.mean([found[name, epoch, seed, part] for seed in SEEDS]) for epoch in EPOCHS]
                assert lines_of(axes, marker) == [pytest.approx(means)]
        shares = [bar.get_width() for bar in panels[0].patches]
        assert shares == pytest.approx([100 * parts[part].mean() for part in ("easy", "confusing", "hard")])
    assert f"{parts['confusing'].sum()} (" in curves.sentence
    for name in LOSSES:
        mean = np.mean([found[name, 30, seed, "confusing"] for seed in SEEDS])
        assert f"After epoch 30, {name} has" in curves.sentence
        assert f"{mean:.1f} % on confusing ones" in curves.sentence

    means = []
    for dataset in ("Alpha", "Beta"):
        chosen = by_hand(tree, 500_000, dataset)["confusing"]
        values = []
        for seed in SEEDS:
            one, two = (
                columns(tree / f"base2new/test_base/{dataset}/shots_4/CoCoAMix/{kind}_30/seed{seed}/predictions.csv")
                for kind in ("ce", "ce_coa")
            )
            before, after = (100 * (own["predicted"] == own["label"])[chosen].mean() for own in (one, two))
            (row,) = (row for row in rows_of(gains) if (row["dataset"], row["seed"]) == (dataset, str(seed)))
            assert [float(row[key]) for key in ("baseline_accuracy", "accuracy", "gain")] == pytest.approx(
                [before, after, after - before]
            )
            assert (int(row["confusing"]), int(row["images"])) == (chosen.sum(), IMAGES)
            values.append(after - before)
        means.append(np.mean(values))
        assert f"{means[-1]:+.1f} on {dataset} ({chosen.sum()} images)" in gains.sentence
    assert f"{np.mean(means):+.1f} on average" in gains.sentence
    assert [bar.get_width() for bar in gains.draw(LIGHT).axes[0].patches] == pytest.approx([*means, np.mean(means)])


def test_a_wider_gap_moves_hard_images_to_confusing(tree: Path) -> None:
    counts = []
    for gap in (0.05, 0.2, 0.5, 1):
        rows = rows_of(make("confusing", "--runs", tree, "--gap", gap, "--datasets-gap", gap)[0])
        counts.append({row["images"]: int(row["count"]) for row in rows if row["epoch"] == "0"})
    assert len({one["easy"] for one in counts}) == 1
    assert all(one["confusing"] < two["confusing"] for one, two in pairwise(counts))
    assert all(one["confusing"] + one.get("hard", 0) == IMAGES - one["easy"] for one in counts)
    assert "hard" not in counts[-1]  # no gap is 1 or more, and a part without images has no accuracy


def test_losses_and_dataset_can_be_selected(tree: Path) -> None:
    curves, gains = make("confusing", "--runs", tree, "--losses", "ce+coa", "ce", "--curves", "Beta")
    assert {row["dataset"] for row in rows_of(curves)} == {"Beta"}
    assert {(row["loss"], row["baseline"]) for row in rows_of(gains)} == {("CE", "CE + CoA")}


def test_a_single_loss_has_no_gains(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (curves,) = make("confusing", "--runs", tree, "--losses", "ce")
    assert {row["loss"] for row in rows_of(curves)} == {"zero-shot CLIP", "CE"}
    make("confusing", "--runs", tree, "--losses", "ce", "gce")
    assert "of the losses ce, gce, only ce has runs" in capsys.readouterr().err


# ---------------------------------------------------------------------- bad input


def refused(capfd: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Return the error message of the command."""
    assert main(["confusing", "--runs", *map(str, arguments)]) == 2
    printed = capfd.readouterr().err
    assert printed.splitlines()[-1].startswith("error: ")
    return printed.splitlines()[-1]


def only(folder: Path, pattern: str) -> Path:
    return next(iter(sorted(folder.glob(pattern))))


def _no_predictions(root: Path) -> str:
    folder = only(root, "**/test_base/Alpha/**/ce_5/seed1")
    (folder / "predictions.csv").unlink()
    return (
        f"{folder} has no predictions.csv, because its evaluation kept no predictions. Evaluate it again with TEST.SAVE"
    )


def _no_zero_shot(root: Path) -> str:
    shutil.rmtree(only(root, "**/test_base/Alpha/shots_4/ZeroshotCLIP"))
    return "There is no run of ZeroshotCLIP on the base classes of Alpha"


def _zero_shot_without_predictions(root: Path) -> str:
    path = only(root, "**/test_base/Alpha/shots_4/ZeroshotCLIP/**/predictions.csv")
    path.unlink()
    return f"{path.parent} has no predictions.csv"


def _one_class(root: Path) -> str:
    for path in root.glob("**/test_base/Alpha/**/predictions.csv"):
        write_predictions(path.parent, [(f"img/{n}.png", "c0", "c0", 1.0, 1.0) for n in range(IMAGES)])
    return "Alpha has only one class, c0, in "


def _none_confusing(root: Path) -> str:
    folder = only(root, "**/test_base/Alpha/**/ZeroshotCLIP/**/predictions.csv").parent
    right = [(f"img/{n}.png", "c0", "c0", 0.9, 0.9) for n in range(IMAGES - 1)]
    write_predictions(folder, [*right, (f"img/{IMAGES - 1}.png", "c0", "c1", 0.9, 0.1)])
    return (
        f"None of the {IMAGES} images of Alpha in {folder} is confusing: {IMAGES - 1} are predicted correctly, 1 wrong"
    )


def _other_images(root: Path) -> str:
    folder = only(root, "**/test_base/Alpha/**/ce_5/seed2")
    with (folder / "predictions.csv").open("a") as file:
        file.write("img/more.png,c0,c0,0.9,0.9,\n")
    return f"{folder} has a prediction for img/more.png, but "


def _damaged(root: Path) -> str:
    path = only(root, "**/test_base/Alpha/**/ce_5/seed2/predictions.csv")
    path.write_text(path.read_text().replace("img/5.png", 'img/5.png,"c0"', 1).replace("0.", "1.9", 3))
    return f"{path}, line "


def _two_settings(root: Path) -> str:
    write_run(root, "ce_coa_w", "Alpha", predictions=[], LOSS="ce+coa", W=1.0, **NONE)
    return "There are runs of CE + CoA with w 5 and with w 1"


def _ensembles_alone(root: Path) -> str:
    for path in root.glob("**/CoCoAMix/**/results.json"):
        path.write_text(path.read_text().replace('"ENSEMBLE": "none"', '"ENSEMBLE": "coa"'))
    return "with TRAINER.COCOAMIX.ENSEMBLE none are needed, with ce or ce+coa for LOSS"


def _chosen_on_validation_images(root: Path) -> str:
    for path in root.glob("**/CoCoAMix/**/results.json"):
        path.write_text(path.read_text().replace('"protocol": {', '"protocol": {"model_selection": "best_val", '))
    return "because its models were selected on validation images. Evaluate with --load-epoch."


def _no_common_seed(root: Path) -> str:
    shutil.rmtree(only(root, "**/test_base/Alpha/**/ce_5/seed1"))
    shutil.rmtree(only(root, "**/test_base/Alpha/**/ce_30/seed2"))
    return "No seed is shared by all runs on base classes of Alpha: CE at epoch 5 has 2, CE at epoch 30 has 1, CE + CoA"


def _no_probability_of_a_label(root: Path) -> str:
    path = only(root, "**/test_base/Alpha/**/ZeroshotCLIP/**/predictions.csv")
    path.write_text(path.read_text().replace("0.600000,0.400000", "0.600000,"))
    return f"{path} has a wrong prediction for img/0.png without a label_probability"


@pytest.mark.parametrize(
    "damage",
    [
        *(_no_predictions, _no_zero_shot, _zero_shot_without_predictions, _one_class, _none_confusing),
        *(_other_images, _damaged, _two_settings, _ensembles_alone),
        *(_chosen_on_validation_images, _no_common_seed, _no_probability_of_a_label),
    ],
)
def test_damaged_runs_are_refused(
    tree: Path, damage: Callable[[Path], str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = damage(tree)
    assert words in refused(capfd, tree, "--output", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_invalid_arguments_are_refused(tree: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert "--gap is 0; a gap between" in refused(capfd, tree, "--gap", 0)
    assert "--datasets-gap is 1.5;" in refused(capfd, tree, "--datasets-gap", 1.5)
    assert "--curves names Gamma, for which there is no run. There are: Alpha, Beta." in refused(
        capfd, tree, "--curves", "Gamma"
    )
    (tmp_path / "empty").mkdir()
    assert "There is no run below" in refused(capfd, tmp_path / "empty")
    assert "--seeds is for runs of a plan" in refused(capfd, tree, "--seeds", 1)


def test_other_kinds_of_runs_are_skipped_or_refused(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = rows_of(make("confusing", "--runs", tree)[0])
    write_run(tree, "other", "Alpha", predictions=[], LOSS="ce", N_CTX=4, **NONE)
    assert rows_of(make("confusing", "--runs", tree)[0]) == before
    assert "TRAINER.COCOAMIX.N_CTX is 4 in " in capfd.readouterr().err
    for kind, name in enumerate(("ce", "ce_coa")):
        for epoch in EPOCHS:
            facts: dict[str, Any] = {"LOSS": list(LOSSES.values())[kind], "N_CTX": 8, "epoch": epoch, **NONE}
            write_run(tree, f"{name}_more{epoch}", "Alpha", predictions=[], **facts)
    assert "The runs are of several kinds: TRAINER.COCOAMIX.N_CTX is" in refused(capfd, tree)


def test_a_row_without_a_prediction_is_not_counted(tree: Path) -> None:
    before = rows_of(make("confusing", "--runs", tree)[0])
    for path in tree.glob("**/predictions.csv"):
        head, *rows = path.read_text().splitlines()
        lines = [f"{head},error", *(f"{row}," for row in rows), "img/unreadable.png,c0,,,,,it cannot be read"]
        path.write_text("\n".join(lines) + "\n")
    assert rows_of(make("confusing", "--runs", tree)[0]) == before


@pytest.mark.parametrize("protocol", [{"backbone": "other"}, {"partition": "random:1"}])
@pytest.mark.parametrize("subset", ["base", "new"])
def test_zero_shot_run_has_the_protocol_of_the_prompts(
    tree: Path, protocol: dict[str, str], subset: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = [rows_of(one) for one in make("confusing", "--runs", tree)]
    guessed = [(f"img/{n}.png", "c0", "c1", 0.5, 0.4) for n in range(IMAGES)]
    # Last by name, and newest.
    other = write_run(
        *(tree, "zz", "Alpha", subset), trainer="ZeroshotCLIP", accuracy=1.0, predictions=guessed, protocol=protocol
    )
    assert [rows_of(one) for one in make("confusing", "--runs", tree)] == before
    shutil.rmtree(only(tree, f"**/test_{subset}/Alpha/shots_4/ZeroshotCLIP/tiny"))
    ((key, value),) = protocol.items()
    text = refused(capfd, tree)
    assert f"No run of ZeroshotCLIP on the {subset} classes of Alpha can be compared with the learned prompts" in text
    assert f"{key} is {value} in {other} and " in text


def test_gains_compare_models_of_the_same_epoch(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """If a loss lacks the last epoch on a dataset, an earlier one that both have is compared."""
    (gains,) = make("confusing", "--runs", tree)[1:]
    assert {row["epoch"] for row in rows_of(gains)} == {"30"}
    assert gains.sentence.endswith("wrong by less than 0.5; models of epoch 30 (mean of seeds 1, 2).")
    for folder in tree.glob("**/Alpha/shots_4/CoCoAMix/ce_30"):
        shutil.rmtree(folder)
    (gains,) = make("confusing", "--runs", tree)[1:]
    assert {(row["dataset"], row["epoch"]) for row in rows_of(gains)} == {("Alpha", "5"), ("Beta", "30")}
    assert "; on Alpha models of epoch 5, on Beta models of epoch 30 (" in gains.sentence
    chosen = by_hand(tree, 500_000, "Alpha")["confusing"]
    for row in rows_of(gains)[:2]:
        for kind, key in (("ce", "baseline_accuracy"), ("ce_coa", "accuracy")):
            folder = tree / f"base2new/test_base/Alpha/shots_4/CoCoAMix/{kind}_5/seed{row['seed']}"
            own = columns(folder / "predictions.csv")
            assert float(row[key]) == pytest.approx(100 * (own["predicted"] == own["label"])[chosen].mean())
    for folder in tree.glob("**/Alpha/shots_4/CoCoAMix/ce_coa_5"):
        shutil.rmtree(folder)
    capfd.readouterr()
    (gains,) = make("confusing", "--runs", tree, "--curves", "Beta")[1:]
    assert {row["dataset"] for row in rows_of(gains)} == {"Beta"}
    lacking = "No epoch is shared by all runs on base classes of Alpha: CE has 5, CE + CoA has 30. Evaluate"
    assert f"Left out: {lacking}" in capfd.readouterr().err
    for folder in tree.glob("**/Beta"):
        shutil.rmtree(folder)
    assert f"error: {lacking}" in refused(capfd, tree)


def test_reports_datasets_and_seeds_that_losses_do_not_share(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for folder in tree.glob("**/Beta/shots_4/CoCoAMix/*/seed1"):
        shutil.rmtree(folder)
    for folder in tree.glob("**/Alpha/shots_4/CoCoAMix/*/seed2"):
        shutil.rmtree(folder)
    assert (
        "No seed is shared by all runs on base classes: CE on Alpha has 1, CE + CoA on Alpha has 1, CE on Beta has 2, "
        "CE + CoA on Beta has 2. Run what is missing, or give only output folders"
    ) in refused(capfd, tree)
    for path in ("Alpha/shots_4/CoCoAMix/ce_*", "Beta/shots_4/CoCoAMix/ce_coa_*"):
        for folder in tree.glob(f"**/{path}"):
            if path.startswith("Beta") or "coa" not in folder.name:
                shutil.rmtree(folder)
    assert "No dataset is shared by all runs on base classes: CE has Beta, CE + CoA has Alpha." in refused(capfd, tree)


def test_one_loss_needs_no_runs_of_other_datasets(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def find_source(args: argparse.Namespace, plans: Plans) -> Source:
        asked.append(args.datasets)
        return Source((tree,))

    monkeypatch.setattr(confusing.sources, "find_source", find_source)
    make("confusing", "--losses", "ce", "ce")
    assert asked == [["texture_colour"]]
    make("confusing", "--losses", "ce", "ce+coa")
    assert asked[1:] == [["texture_colour"], []]


# ---------------------------------------------------------------------- from a plan


@pytest.mark.slow
def test_a_plan_is_run_before_drawing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two epochs of training on one synthetic dataset: the numbers match the predictions that the runs saved."""
    plan = yaml.safe_load(
        (Path(confusing.__file__).parents[2] / "bench" / "plans" / "quick_confusing.yaml").read_text()
    )
    plan |= {"seeds": [1], "datasets": ["warm_cool"], "output": str(tmp_path / "work"), "methods": plan["methods"][:3]}
    plan["set"]["OPTIM.MAX_EPOCH"] = 2
    for method in plan["methods"][1:]:
        method["epochs"] = [1]
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(plan))
    choice = Choice(str(tmp_path / "small.yaml"))
    monkeypatch.setattr(confusing, "_PLANS", Plans(choice, choice))
    out, arguments = tmp_path / "out", ["confusing", "--curves", "warm_cool", "--output", str(tmp_path / "out")]
    assert main(arguments) == 0
    printed = capfd.readouterr().out
    assert "10 runs are needed first: about" in printed
    assert sorted(path.suffix for path in out.iterdir()) == sorted([".csv", ".txt", *[".svg", ".png"] * 2] * 2)
    rows = list(csv.DictReader((out / "confusing.csv").open()))
    parts = by_hand(tmp_path / "work", 200_000, "warm_cool")
    for name, label in (("CE", "tiny_loss_ce"), ("CE + CoA", "tiny_loss_ce_coa")):
        for epoch, folder in (
            (1, f"test_base/warm_cool/shots_4/CoCoAMix/{label}_epoch1"),
            (2, f"train_base/warm_cool/shots_4/CoCoAMix/{label}"),
        ):
            own = columns(tmp_path / "work" / "base2new" / folder / "seed1" / "predictions.csv")
            right = own["predicted"] == own["label"]
            for part, chosen in parts.items():
                (row,) = (one for one in rows if (one["loss"], one["epoch"], one["images"]) == (name, str(epoch), part))
                assert float(row["accuracy"]) == pytest.approx(100 * right[chosen].mean())
    assert main(arguments) == 0
    assert "runs are needed first" not in capfd.readouterr().out
