"""Facts of a protocol: which of them may differ between the runs of a row, and which prevent a comparison."""

from __future__ import annotations

from typing import Any

import pytest

from cocoamix.report.model.rows import Row, make_rows, not_comparable
from cocoamix.report.readers.runs import Inventory, Run


def run(seed: int, dataset: str = "EuroSAT", **protocol: Any) -> Run:
    place = {"folder": f"{dataset}/{seed}", "dataset": dataset, "subset": "all", "task": "few-shot", "shots": 4}
    name = {"trainer": "CoOp", "config": "", "variant": "", "origin": 0}
    facts = {key.replace("__", "."): value for key, value in protocol.items()}
    return Run(**place, **name, seed=seed, metrics={"accuracy": 80.0}, protocol=facts)  # type: ignore[arg-type]


def rows_of(*runs: Run) -> tuple[list[Row], list[str]]:
    inventory = Inventory()
    return make_rows(runs, (), inventory), inventory.notes


@pytest.mark.parametrize("fact", ["dataset", "subset", "shots", "splits__train", "splits__folds"])
def test_facts_that_differ_by_design_do_not_split_rows(fact: str) -> None:
    rows, notes = rows_of(run(1, **{fact: "one"}), run(2, **{fact: "two"}))
    assert len(rows) == 1
    assert not notes


@pytest.mark.parametrize("fact", ["templates", "splits__test"])
def test_facts_that_may_differ_only_between_datasets(fact: str) -> None:
    rows, notes = rows_of(run(1, **{fact: "one"}), run(1, "DTD", **{fact: "two"}))
    assert (len(rows), notes) == (1, [])
    rows, notes = rows_of(run(1, **{fact: "one"}), run(2, **{fact: "two"}))
    assert len(rows) == 2
    assert fact.replace("__", ".") in notes[0]


@pytest.mark.parametrize("fact", ["evaluated_on", "backbone", "model_selection", "views", "centred"])
def test_facts_shared_by_all_runs_of_a_row(fact: str) -> None:
    rows, notes = rows_of(run(1, **{fact: "one"}), run(1, "DTD", **{fact: "two"}))
    assert len(rows) == 2
    assert fact in notes[0]


def test_partitions_are_not_averaged() -> None:
    """Neither with each other, over seeds or over datasets, nor with CoOp's halves, which do not record one."""
    for others in ([run(2, partition="random:2")], [run(1, "DTD", partition="random:2")]):
        rows, notes = rows_of(run(1, partition="random:1"), *others)
        assert [row.label for row in rows] == ["CoOp [partition=random:1]", "CoOp [partition=random:2]"]
        assert "partition is random:1" in notes[0]
    rows, notes = rows_of(run(1), run(2, partition="label"), run(3, partition="random:1"))
    assert [(row.label, len(row.runs)) for row in rows] == [
        ("CoOp [partition=label]", 2),
        ("CoOp [partition=random:1]", 1),
    ]
    assert "partition is label in EuroSAT/1 and random:1 in EuroSAT/3" in notes[0]
    assert not any("not stated" in note for note in notes)
    assert not_comparable(run(1), run(1, partition="random:1")) == [("partition", "label", "random:1")]
    assert not not_comparable(run(1), run(1, partition="label"))


@pytest.mark.parametrize(("fact", "missed"), [("centred", False), ("calibrated", False), ("views", True)])
def test_facts_stated_only_where_they_take_effect(fact: str, missed: bool) -> None:
    """A run in which all classes have the same weights does not record centring, and need not."""
    _, notes = rows_of(run(1, **{fact: True}), run(2))
    assert any("protocol not stated" in note for note in notes) is missed


@pytest.mark.parametrize(
    ("fact", "forbids"),
    [
        *((fact, True) for fact in ("splits__test", "evaluated_on", "backbone", "weights_sha256", "activation")),
        *((f"transforms__{key}", True) for key in ("SIZE", "INTERPOLATION", "PIXEL_MEAN", "PIXEL_STD")),
        *((fact, False) for fact in ("transforms__TRANSFORMS", "templates", "precision", "source", "splits__train")),
    ],
)
def test_facts_that_prevent_a_comparison(fact: str, forbids: bool) -> None:
    found = not_comparable(run(1, **{fact: "one"}), run(1, **{fact: "two"}))
    assert found == ([(fact.replace("__", "."), "one", "two")] if forbids else [])
