"""Published numbers: as printed, consistent with each other, and beside our runs only where the settings are equal."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cocoamix.errors import UserError
from cocoamix.experiments.frame import read
from cocoamix.experiments.plan import load_plan
from cocoamix.experiments.published import (
    AVERAGE,
    FOLDER,
    Matches,
    PublishedTable,
    differing_settings,
    facts_by_method,
    match,
    read_tables,
)
from cocoamix.experiments.runs import expand
from cocoamix.experiments.stats import harmonic
from tests.conftest import SHARED, needs
from tests.experiments.trees import write_results

TABLES = {table.entry["name"]: table for table in read_tables()}
ELEVEN = TABLES["base2new"].datasets

# Sums of the columns, taken from the source of the paper by another program than the one that wrote the data file.
SUMS = {
    "base2new": "7375.70 ± 60.58, 6866.08 ± 105.43, 7070.78",
    "base2new_version2": "952.16 ± 6.78, 900.49 ± 7.47, 923.77",
    "fscil": "441.4, 417.6, 407.2, 397.7, 397.8, 391.6, 389.8, 386.6, 376.4, 478.7, 65.0",
    "fscil_first": "86.9, 84.5, 83.8, 81.7, 81.3, 81.0, 81.1, 80.7, 79.8, 82.3, 7.1",
    "transfer": "484.93 ± 1.21, 651.25, 621.95, 451.11, 475.56, 597.10, 149.27, 445.33, 303.47, 313.54, 462.85, "
    "447.15, 449.99",
    "ensembles": "627.5, 587.4, 604.2",
    "weights": "237.73, 222.57, 229.50",
    "stages": "158.7, 150.1, 154.0",
    "outclasses": "299.26",
    "prograd": "65.13, 69.02",
}


# ---------------------------------------------------------------------------------------- as printed


def sums(values: pd.DataFrame) -> str:
    """Return the sums of the columns of a table and of their deviations, as text."""
    heads = values["column"].where(values["column"].ne("accuracy"), values["dataset"])
    decimals = values["decimals"].max()
    found = values.groupby(heads, sort=False)[["value", "spread"]].sum().reindex(heads.unique())
    cells = [[f"{number:.{decimals}f}" for number in row if number] for row in found.to_numpy()]
    return ", ".join(map(" ± ".join, cells))


def contradictions(table: PublishedTable) -> Iterator[tuple[str, str]]:
    """Yield the numbers that do not follow from the others of their table."""
    for method, rows in table.values.groupby("method"):
        wide = rows.pivot(index="dataset", columns="column", values="value")
        averages, parts = wide.iloc[0], wide[wide.index != AVERAGE]
        if table.entry["task"] == "fscil" and "PD" in wide:
            sessions = averages[[f"session_{number}" for number in range(9)]]
            following = {"mean": sessions.mean(), "PD": sessions.iloc[0] - sessions.iloc[-1]}
            yield from ((str(method), name) for name, value in following.items() if abs(averages[name] - value) > 0.051)
        elif table.entry["task"] == "transfer":
            targets, source = parts["accuracy"].drop("ImageNet"), parts["accuracy"]["ImageNet"]
            lost = harmonic(source, targets).mean() - averages["H"]  # by taking H of each seed
            if abs(targets.mean() - averages["accuracy"]) > 0.0051 or not -0.0051 < lost < 0.1:
                yield str(method), AVERAGE
        elif table.entry["task"] == "base2new" and len(parts):
            yield from ((str(method), c) for c in parts if abs(parts[c].mean() - averages[c]) > 0.0051)
            spread = rows.pivot(index="dataset", columns="column", values="spread").fillna(0)
            for dataset, (h, base, new) in parts[["H", "base", "new"]].iterrows():
                most = spread["base"][dataset] * new + spread["new"][dataset] * base
                if not -0.0101 < harmonic(base, new) - h < 0.0101 + 5 * most**2 / (base + new) ** 3:
                    yield str(method), str(dataset)
        elif "H" in averages and not 0 < harmonic(averages["base"], averages["new"]) - averages["H"] < 0.7:
            yield str(method), "H"


@pytest.mark.parametrize("name", TABLES)
def test_sums_of_columns_are_those_of_the_paper(name: str) -> None:
    assert sums(TABLES[name].values) == SUMS[name]


def test_numbers_follow_from_each_other_with_two_exceptions() -> None:
    found = [(name, *what) for name, table in TABLES.items() for what in contradictions(table)]
    assert found == [("base2new", "ProGrad", "base"), ("base2new", "ProGrad", "SUN397")]


@needs("paper/tables.json")
def test_cells_belong_to_their_methods_and_datasets() -> None:
    printed = json.loads((SHARED / "paper" / "tables.json").read_text(encoding="utf-8"))
    halves = printed["base_to_new_4shot_vit_b16"]
    for row in TABLES["base2new"].values.itertuples():
        entry = halves[row.dataset.replace("FGVCA", "FgvcA")][row.method][row.column]
        assert (row.value, row.spread) == pytest.approx((entry["mean"], entry.get("std", math.nan)), nan_ok=True)
    for row in TABLES["transfer"].values.query("column == 'accuracy'").itertuples():
        assert row.value == printed["cross_dataset_4shot_vit_b16"][row.method][row.dataset]


def test_a_wrong_file_is_refused(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "prograd.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"65.13"', '"65,13"'), encoding="utf-8")
    with pytest.raises(UserError, match=r"prograd\.json.*65,13"):
        read_tables(tmp_path)


# ---------------------------------------------------------------------------------------- beside our runs


@lru_cache
def runs_of(plan: str) -> list[tuple[Path, str, str, dict[str, Any]]]:
    """Return folder, subset, dataset and settings of the runs of a plan, with one seed and one dataset."""
    from cocoamix.run.protocol import settings_of
    from cocoamix.train import setup_cfg

    some = [] if plan in ("transfer", "fscil") else ["eurosat"]
    runs = expand(replace(load_plan(plan, datasets=some, seeds=[1]), root="data", output=Path("output")))
    return [(run.folder, run.subset, run.dataset, settings_of(setup_cfg(run.arguments()))) for run in runs]


def write_plan(root: Path, plan: str, datasets: list[str] = ELEVEN, **changes: Any) -> None:
    """Write results as the runs of a plan would: 80 % on trained classes, 70 % on others.

    Args:
        root: The folder to write to.
        plan: The name of the plan.
        datasets: The datasets, each with the runs of the plan on EuroSAT.
        changes: Facts of results.json; `settings` and `protocol` are merged with those of the plan.
    """
    changed, protocol = changes.pop("settings", {}), changes.pop("protocol", {})
    for folder, subset, own, settings in runs_of(plan):
        config = {**settings, **changed}
        trainer = str(config["TRAINER.NAME"])
        several = {"CoCoAMix": "TRAINER.COCOAMIX.BACKBONES", "TuneEn": "TRAINER.ENLEARN.BACKBONES"}.get(trainer, "")
        backbone = "+".join(config.get(several) or [config["MODEL.BACKBONE.NAME"]])
        facts = {"trainer": trainer, "subset": subset, "config": config, "epoch": int(config["OPTIM.MAX_EPOCH"])}
        facts["protocol"] = {"backbone": backbone, "views": 0, "evaluated_on": "test", **protocol}
        if plan == "fscil":
            facts |= {"shots": 0, "sessions": [90.0 - number for number in range(9)]}
        for dataset in [own] if plan in ("transfer", "fscil") else datasets:
            parts = [dataset if part == "eurosat" else part for part in folder.parts[1:]]
            write_results(root.joinpath(*parts), 70.0 if subset == "new" else 80.0, dataset=dataset, **facts, **changes)


def pairs(matches: Matches) -> dict[tuple[str, str], str]:
    """Return the published methods that are compared, and ours, by table and name."""
    rows = matches.comparisons[["table", "published_method", "method"]].drop_duplicates()
    return {(table, published): method for table, published, method in rows.itertuples(index=False)}


def cell(matches: Matches, table: str, method: str, column: str, dataset: str = AVERAGE) -> tuple[float, float, float]:
    """Return our number, the published one, and the difference."""
    rows = matches.comparisons.query("published_method == @method and table == @table and dataset == @dataset")
    ((ours, published, difference),) = rows[rows["column"].eq(column)][["ours", "published", "difference"]].to_numpy()
    return ours, published, difference


def test_the_methods_of_the_plan_are_compared_by_dataset_and_on_average(tmp_path: Path) -> None:
    write_plan(tmp_path, "base2new")
    matches = match(read([tmp_path]))
    own = {"CLIP": "CLIP [backbone=ViT-B/16]", "CoA-loss": "CoCoA-Mix [ENSEMBLE=uniform]"}
    expected = {("base2new", name): own.get(name, name) for name in TABLES["base2new"].settings}
    assert pairs(matches) == {**expected, ("prograd", "CLIP, RN50"): "CLIP [backbone=RN50]"}
    assert matches.differing == {}
    assert cell(matches, "base2new", "CoCoA-Mix", "new", "EuroSAT") == pytest.approx((70, 69.11, 0.89))
    assert cell(matches, "base2new", "KgCoOp", "base") == pytest.approx((80, 78.67, 1.33))
    shown = matches.rows.query("method == 'CoOp' and dataset == 'DTD' and column == 'base'").iloc[0]
    assert (shown["value"], shown["spread"], shown["decimals"], shown["seeds"]) == (71.22, 1.13, 2, 3)


def test_averages_over_fewer_datasets_are_computed_from_the_published_numbers(tmp_path: Path) -> None:
    write_plan(tmp_path, "base2new", ["EuroSAT", "DTD"])
    matches = match(read([tmp_path]))
    assert cell(matches, "base2new", "CoOp", "base")[1] == pytest.approx((79.93 + 71.22) / 2)
    assert set(matches.rows.query("dataset == 'Average'")["origin"]) == {"computed"}
    assert any("computed" in note for note in matches.notes)
    write_plan(tmp_path, "base2new", ["Shapes"])
    matches = match(read([tmp_path]))
    assert set(matches.rows["dataset"]) == {"EuroSAT", "DTD"}  # an average over other datasets than ours is none


def test_the_weights_plan_is_compared_in_each_table_that_prints_it(tmp_path: Path) -> None:
    write_plan(tmp_path, "weights")
    found, two = match(read([tmp_path])), "CoCoA-Mix [STAGE=two]"
    pi_in = "CoCoA-Mix [OUT_CLASSES=none]"
    assert (
        pairs(found).items()
        >= {
            ("base2new", "CoCoA-Mix"): "CoCoA-Mix",
            ("base2new_version2", "CoCoA-Mix, version 2"): two,
            ("stages", "Two-Stage Optimization"): two,
            ("weights", "neither"): "CoCoA-Mix [ENSEMBLE=uniform]",
            ("weights", "pi^in"): pi_in,
            ("outclasses", "None"): pi_in,
        }.items()
    )
    assert ("outclasses", "Random String") not in pairs(found)
    assert "Random String" in set(found.rows["method"])
    assert cell(found, "base2new_version2", "CoCoA-Mix, version 2", "new", "UCF101") == pytest.approx(
        (70, 78.53, -8.53)
    )
    assert any("pi^in" in note and "73.81" in note and "74.12" in note for note in found.notes)


def test_the_ensembles_plan_is_compared_without_a_difference_over_unnamed_datasets(tmp_path: Path) -> None:
    write_plan(tmp_path, "ensembles")
    matches = match(read([tmp_path]))
    assert {name for table, name in pairs(matches) if table == "ensembles"} == set(TABLES["ensembles"].settings)
    assert cell(matches, "ensembles", "CoA-loss (w/o Ensemble)", "base") == pytest.approx((80, 78.6, 1.4))
    assert cell(matches, "ensembles", "T_En + CoA-loss", "base") == pytest.approx((80, 85.3, float("nan")), nan_ok=True)
    (words,) = matches.differing.values()
    assert "TRAINER.COCOAMIX.ENSEMBLE" in words


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"TRAINER.COCOAMIX.LOSS": "ce"}, "prompts.TRAINER.COCOAMIX.LOSS is ce here"),
        (None, "prompts.backbone is not stated here"),
    ],
)
def test_prompts_of_other_runs_must_be_the_papers(tmp_path: Path, change: dict[str, str] | None, words: str) -> None:
    write_plan(tmp_path, "ensembles")
    for path in tmp_path.glob("*/*/*/*/CoCoAMix/ensemble_ep50_none/*/results.json"):
        content = json.loads(path.read_text())
        content["config"].update(change or {})
        path.write_text(json.dumps(content))
        if change is None:
            path.unlink()
    matches = match(read([tmp_path]))
    assert ("ensembles", "T_En + CoCoOp") in pairs(matches)
    assert ("ensembles", "T_En + CoA-loss") not in pairs(matches)
    assert any(words in note for note in matches.notes)


def test_transfers_are_compared_with_source_targets_and_averages(tmp_path: Path) -> None:
    write_plan(tmp_path, "transfer")
    matches = match(read([tmp_path]))
    assert {name for _, name in pairs(matches)} == set(TABLES["transfer"].settings)
    assert cell(matches, "transfer", "CoCoA-Mix", "accuracy", "ImageNet") == pytest.approx((80, 70.85, 9.15))
    assert cell(matches, "transfer", "CoCoA-Mix", "H") == pytest.approx((80, 66.07, 13.93))
    assert matches.rows.query("method == 'CoOp' and dataset == 'ImageNet'")["spread"].item() == 0.43
    elsewhere = read([tmp_path])
    elsewhere.runs["source"] = "DTD"
    assert match(elsewhere).rows.empty
    for path in tmp_path.glob("evaluation/*/*/*"):
        if path.name not in ("imagenet", "dtd", "eurosat"):
            shutil.rmtree(path)
    _, target, _ = cell(match(read([tmp_path])), "transfer", "CoOp", "accuracy")
    assert target == pytest.approx((38.44 + 39.24) / 2)


SPLIT = {"base": 60, "way": 5, "shots": 5, "split": "cec"}


def test_sessions_are_compared(tmp_path: Path) -> None:
    write_plan(tmp_path, "fscil", protocol={"fscil": SPLIT})
    matches = match(read([tmp_path]))
    assert {name for _, name in pairs(matches)} == set(TABLES["fscil"].settings)  # not the first version
    assert cell(matches, "fscil", "CoCoA-Mix", "session_8", "CIFAR100") == pytest.approx((82, 80.8, 1.2))
    assert cell(matches, "fscil", "FSPT-FSCIL", "PD", "CIFAR100") == pytest.approx((8, 7.5, 0.5))
    assert list(matches.differing) == ["CoCoA-Mix [ENSEMBLE=uniform]"]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"protocol": {"fscil": {**SPLIT, "split": "random"}}}, "fscil.split is random here, cec in the paper"),
        ({"protocol": {"fscil": {**SPLIT, "shots": 10}}}, "fscil.shots is 10 here, 5 in the paper"),
        ({"protocol": {"fscil": SPLIT, "backbone": "ViT-B/16"}}, "backbone is ViT-B/16 here, ViT-L/14 in the paper"),
        ({}, "fscil.split is not stated here, cec in the paper"),
        ({"protocol": {"fscil": SPLIT}, "sessions": [88.0] * 4}, "sessions is 4 here, 9 in the paper"),
        ({"protocol": {"fscil": SPLIT}, "dataset": "Shapes"}, "no published table has results for shapes"),
    ],
)
def test_sessions_of_another_protocol_have_no_published_rows(tmp_path: Path, facts: dict[str, Any], words: str) -> None:
    own = {"trainer": "CoOpFSCIL", "dataset": "CIFAR100FSCIL", "subset": "all", "sessions": [88.0] * 9}
    protocol = {"backbone": "ViT-L/14", **facts.pop("protocol", {})}
    write_results(tmp_path / "seed1", 88.0, **{**own, **facts, "protocol": protocol})
    matches = match(read([tmp_path]))
    assert matches.rows.empty
    assert matches.comparisons.empty
    assert any(words.lower() in note.lower() for note in matches.notes)


def test_every_stated_setting_is_that_of_our_configuration_and_counts(tmp_path: Path) -> None:
    for plan in ("base2new", "weights", "outclasses", "ensembles", "transfer", "fscil"):
        write_plan(tmp_path / plan, plan, ["EuroSAT"], protocol={"fscil": SPLIT} if plan == "fscil" else {})
    facts = [run for runs in facts_by_method(read([tmp_path]).runs).values() for run in runs]
    assert differing_settings({"backbone": "ViT-B/32+RN50"}, {"backbone": "RN50+ViT-B/32"}) == []
    for table in TABLES.values():
        for stated in table.settings.values():
            own = next((run for run in facts if not differing_settings(run, stated)), None)
            assert (own is None) == (table.entry["name"] == "fscil_first"), stated
            for key in stated if own is not None else ():
                (words,) = differing_settings({**own, key: "other"}, stated)
                assert words.startswith(f"{key} is other here")
                unstated = differing_settings({name: value for name, value in own.items() if name != key}, stated)
                assert (
                    unstated == [] if None in _allowed(stated[key]) else unstated[0].startswith(f"{key} is not stated")
                )


def _allowed(value: Any) -> list[Any]:
    return value["any"] if isinstance(value, dict) else [value]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"protocol": {"backbone": "RN50"}}, "backbone is RN50 here"),
        ({"shots": 16}, "shots is 16 here, 4 in the paper"),
        ({"protocol": {"evaluated_on": "val"}}, "evaluated_on is val here"),
        ({"protocol": {"partition": "random:1"}}, "draw is random:1 here"),
    ],
)
def test_a_table_of_another_protocol_is_not_shown(tmp_path: Path, facts: dict[str, Any], words: str) -> None:
    write_plan(tmp_path, "base2new", ["EuroSAT"], **facts)
    matches = match(read([tmp_path]))
    assert "base2new" not in set(matches.rows.get("table", ()))
    assert any(words in note and "not shown" in note for note in matches.notes)


def test_a_method_that_differs_is_not_compared_but_shown_beside_the_published_rows(tmp_path: Path) -> None:
    write_plan(tmp_path, "base2new", ["EuroSAT"], settings={"TRAINER.COCOAMIX.W": 7.0})
    matches = match(read([tmp_path]))
    assert "TRAINER.COCOAMIX.W is 7 here, 5 in the paper" in matches.differing["CoCoA-Mix"]
    assert ("base2new", "CoCoA-Mix") not in pairs(matches)
    assert "CoCoA-Mix" in set(matches.rows["method"])
    assert any("CoCoA-Mix is not compared" in note and "TRAINER.COCOAMIX.W is 7" in note for note in matches.notes)


def test_runs_with_random_weights_are_beside_no_published_rows(tmp_path: Path) -> None:
    write_plan(tmp_path, "base2new", ["EuroSAT"])
    frame = read([tmp_path])
    frame.runs["caveats"] = [("random weights",)] * len(frame.runs)
    matches = match(frame)
    assert matches.rows.empty
    assert any("weights is random here" in note for note in matches.notes)
