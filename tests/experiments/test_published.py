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
    PublishedTable,
    add_published,
    differing_settings,
    facts_by_method,
    match,
    read_tables,
)
from cocoamix.experiments.report import Options, build
from cocoamix.experiments.runs import expand
from cocoamix.experiments.stats import harmonic
from cocoamix.experiments.tables import Column, Table
from tests.conftest import SHARED, needs
from tests.experiments.trees import write_results

TABLES = {table.entry["name"]: table for table in read_tables()}
ELEVEN = TABLES["base2new"].datasets
OUT_CLASSES = ("None", "Random String", "Random String and Word")
REPEATED = TABLES["ensembles"].entry["repeats"]

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
    return [(run.folder, run.subset, run.dataset.stem, settings_of(setup_cfg(run.arguments()))) for run in runs]


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


def shown(root: Path) -> dict[str, Table]:
    """Return the tables with published rows, by their title."""
    return {table.title: table for section in build([root], Options(paper=True)).sections for table in section.tables}


def values(table: Table, row: str, *keys: str) -> list[str]:
    cells = table.rows[f"{row} (published)"].cells
    return [cells[key].text + (f" ± {cells[key].spread}" if cells[key].spread else "") for key in keys]


def published(table: Table) -> set[str]:
    return {name.removesuffix(" (published)") for name, row in table.rows.items() if row.published}


SPLIT = {"base": 60, "way": 5, "shots": 5, "split": "cec"}


def test_the_rows_of_the_paper_are_beside_the_runs_of_its_plan(tmp_path: Path) -> None:
    write_plan(tmp_path, "base2new")
    tables = shown(tmp_path)
    average = tables["Average over 11 datasets"]
    assert published(average) == {*TABLES["base2new"].settings, "CLIP, RN50"}  # ProGrad's CLIP, for our run of RN50
    assert values(average, "KgCoOp", "base", "new", "H", "H_of_means") == ["78.67", "74.62", "76.38", "76.59"]
    assert values(tables["DTD"], "CoOp", "base") == ["71.22 ± 1.13"]
    assert not any(cell.bold for row in average.rows.values() if row.published for cell in row.cells.values())
    assert "Table 1" in average.rows["CoOp (published)"].remarks[0]
    assert not any("not the paper's settings" in row.remarks for row in average.rows.values())
    assert not any(row.published for table in build([tmp_path]).sections[0].tables for row in table.rows.values())


def test_averages_over_fewer_datasets_are_computed_from_the_published_numbers(tmp_path: Path) -> None:
    write_plan(tmp_path, "base2new", ["EuroSAT", "DTD"])
    assert float(values(shown(tmp_path)["Average over 2 datasets"], "CoOp", "base")[0]) == pytest.approx(
        (79.93 + 71.22) / 2, abs=0.0051
    )
    assert any("computed" in note for note in match(read([tmp_path])).notes)
    write_plan(tmp_path, "base2new", ["Shapes"])  # an average over other datasets than the paper's is none
    assert set(match(read([tmp_path])).rows["dataset"]) == {"EuroSAT", "DTD"}


@pytest.mark.parametrize(
    ("plan", "rows"),
    [
        (
            "weights",
            {"CoCoA-Mix, version 2", "stages: Two-Stage Optimization", "weights: pi^in", "kinds of out-classes: None"},
        ),
        ("outclasses", {"weights: pi^in", *(f"kinds of out-classes: {name}" for name in OUT_CLASSES)}),
        ("ensembles", {f"ensembles: {name}" for name in TABLES["ensembles"].settings if name not in REPEATED}),
    ],
)
def test_ablations_of_the_paper_are_beside_runs_of_equal_settings(tmp_path: Path, plan: str, rows: set[str]) -> None:
    write_plan(tmp_path, plan)
    average = shown(tmp_path)["Average over 11 datasets"]
    assert published(average) - set(TABLES["base2new"].settings) == rows
    if plan == "weights":
        assert values(average, "weights: pi^in", "new") + values(average, "kinds of out-classes: None", "new") == [
            "73.81",
            "74.12",
        ]


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
    assert "ensembles: T_En + CoCoOp" in set(matches.rows["method"])
    assert "ensembles: T_En + CoA-loss" not in set(matches.rows["method"])
    assert any(words in note for note in matches.notes)


def test_transfers_have_the_published_source_targets_and_averages(tmp_path: Path) -> None:
    write_plan(tmp_path, "transfer")
    table = shown(tmp_path)["To other datasets"]
    assert published(table) == set(TABLES["transfer"].settings)
    assert values(table, "CoOp", "source", "DTD", "target", "H") == ["69.06 ± 0.43", "38.44", "59.88", "61.52"]
    elsewhere = read([tmp_path])
    elsewhere.runs["source"] = "DTD"
    assert match(elsewhere).rows.empty


def test_sessions_have_the_published_rows(tmp_path: Path) -> None:
    write_plan(tmp_path, "fscil", protocol={"fscil": SPLIT})
    table = shown(tmp_path)["CIFAR100"]
    assert published(table) == set(TABLES["fscil"].settings)  # not the first version
    assert values(table, "CoCoA-Mix", "session_8", "PD") == ["80.8", "7.4"]
    assert table.rows["CoCoA-Mix [ENSEMBLE=uniform]"].remarks == ["not the paper's settings"]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"protocol": {"fscil": {**SPLIT, "shots": 10}}}, "fscil.shots is 10 here, 5 in the paper"),
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
    assert any(words in note.lower().replace("vit-l", "ViT-L") for note in matches.notes)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"protocol": {"backbone": "RN50"}}, "backbone is RN50 here"),
        ({"shots": 16}, "shots is 16 here, 4 in the paper"),
        ({"protocol": {"evaluated_on": "val"}}, "evaluated_on is val here"),
        ({"protocol": {"partition": "random:1"}}, "draw is random:1 here"),
        ({"caveats": ["random weights"]}, "weights is random here"),
    ],
)
def test_a_table_of_another_protocol_is_not_shown(tmp_path: Path, facts: dict[str, Any], words: str) -> None:
    write_plan(tmp_path, "base2new", ["EuroSAT"], **facts)
    matches = match(read([tmp_path]))
    assert matches.rows.empty
    assert any(words in note and "not shown" in note for note in matches.notes)


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
                optional = isinstance(stated[key], dict) and None in stated[key]["any"]
                assert unstated == [] if optional else unstated[0].startswith(f"{key} is not stated")


def test_a_method_that_differs_has_a_caveat_beside_the_published_rows(tmp_path: Path) -> None:
    write_plan(tmp_path, "base2new", ["EuroSAT"], settings={"TRAINER.COCOAMIX.W": 7.0})
    (table,) = (table for title, table in shown(tmp_path).items() if title == "EuroSAT")
    assert table.rows["CoCoA-Mix"].remarks == ["not the paper's settings"]
    assert "CoCoA-Mix" in published(table)
    notes = match(read([tmp_path])).notes
    assert any("CoCoA-Mix is not compared" in note and "TRAINER.COCOAMIX.W is 7 here, 5" in note for note in notes)


def test_methods_of_one_name_in_two_published_tables_are_two_rows() -> None:
    cell = {"method": "CoOp", "dataset": "EuroSAT", "column": "base", "spread": math.nan, "decimals": 1}
    rows = [{**cell, "value": 80.0 + n, "place": "Table 1", "source_name": f"Paper {n}"} for n in (1, 2, 3)]
    table = Table("key", "title", [Column("base", "base", ("EuroSAT",))], {})
    add_published(table, pd.DataFrame(rows))
    assert sorted(row.cells["base"].mean for row in table.rows.values()) == [81, 82, 83]
