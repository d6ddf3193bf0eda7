"""What a cell is, what is bold, how differences are paired, and which remarks rows have."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cocoamix.experiments.tables import LOW, UNTESTED, Cell, Column, Measures, Table, differences, fill

Values = Mapping[str, Mapping[str, Sequence[float]]]  # seeds by method and dataset
NAN = math.nan
accuracies = st.floats(0, 100)


def on(*datasets: str, better: int = 1) -> Column:
    return Column("accuracy", "accuracy", datasets, better=better)


def measures(values: Values, zero_shot: Sequence[str] = (), caveats: Any = None) -> Measures:
    rows = {
        (method, dataset, seed): value
        for method, datasets in values.items()
        for dataset, seeds in datasets.items()
        for seed, value in enumerate(seeds, start=1)
        if not math.isnan(value)
    }
    index = pd.MultiIndex.from_tuples(list(rows), names=["method", "dataset", "seed"])
    return Measures(pd.DataFrame({"accuracy": list(rows.values())}, index), list(values), set(zero_shot), caveats or {})


def table(values: Values, column: Column | None = None, **more: Any) -> Table:
    made = fill(measures(values, **more), [column or on("A", "B")], "key", "title")
    assert made is not None
    return made


def cell(values: Values, row: str = "X") -> Cell:
    return table(values).rows[row].cells["accuracy"]


def bold(made: Table) -> set[str]:
    return {name for name, row in made.rows.items() if row.cells["accuracy"].bold}


# ---------------------------------------------------------------------------------------- cells


def test_the_deviation_of_an_average_is_over_the_averages_of_seeds() -> None:
    made = cell({"X": {"A": [60, 70], "B": [74, 70]}})
    # 67 and 70; each dataset varies more
    assert (made.mean, made.std, made.n, made.seeds, made.text, made.spread) == (
        68.5,
        1.5,
        2,
        [67, 70],
        "68.50",
        "1.50",
    )


def test_datasets_with_different_seeds_have_a_mean_without_deviation() -> None:
    values = {"X": {"A": [60, 70, 80], "B": [80, 90, NAN]}}
    assert (cell(values).mean, cell(values).n, cell(values).spread) == (77.5, 0, "")
    assert table(values).rows["X"].cells["seeds"].text == "2 to 3"


def test_a_method_that_lacks_a_dataset_has_no_average_and_is_not_bold() -> None:
    values = {"X": {"A": [60, 61], "B": [70, 71]}, "Y": {"A": [99, 98]}, "Z": {"A": [50, 51], "B": [50, 52]}}
    assert cell(values, "Y").text == ""
    assert "Y" not in bold(table(values))
    assert fill(measures(values), [on("C")], "key", "title") is None


@settings(deadline=None)
@given(st.lists(st.lists(accuracies, min_size=3, max_size=3), min_size=2, max_size=4))
def test_means_and_deviations_are_those_of_numpy(of_datasets: list[list[float]]) -> None:
    names = [f"D{place}" for place in range(len(of_datasets))]
    made = table({"X": dict(zip(names, of_datasets, strict=True))}, on(*names)).rows["X"].cells["accuracy"]
    assert made.mean == pytest.approx(np.mean(of_datasets), abs=1e-9)
    assert made.std == pytest.approx(np.std(np.mean(of_datasets, axis=0)), abs=1e-9)


# ---------------------------------------------------------------------------------------- bold


@pytest.mark.parametrize(
    ("values", "datasets", "expected"),
    [
        ({"X": {"A": [80, 82, 84]}, "Y": {"A": [79, 83, 82]}, "Z": {"A": [70, 72, 74.1]}}, "A", {"X", "Y"}),
        # Seeds agree that X is better, but one of two datasets does not.
        ({"X": {"A": [90, 90.1], "B": [60, 60.1]}, "Y": {"A": [80, 80.1], "B": [61, 61.1]}}, "AB", {"X", "Y"}),
        ({"X": {"A": [80, 81]}, "Y": {"A": [80, 81]}, "Z": {"A": [70, 71]}}, "A", {"X", "Y"}),  # ties
        # An average is not judged by the seeds of one dataset.
        ({"X": {"A": [50, 51], "B": [60, 60]}, "Y": {"A": [49, 50], "B": [NAN, NAN, 80, 80]}}, "AB", set()),
    ],
)
def test_rows_that_cannot_be_distinguished_from_the_best_are_bold(
    values: Values, datasets: str, expected: set[str]
) -> None:
    assert bold(table(values, on(*datasets))) == expected


def test_lower_is_better_where_the_column_says_so() -> None:
    values = {"X": {"A": [5, 5.1, 5.2]}, "Y": {"A": [9, 9.1, 9.3]}}
    assert (bold(table(values, on("A"))), bold(table(values, on("A", better=LOW)))) == ({"Y"}, {"X"})


def test_single_values_are_never_bold_and_the_caption_says_so() -> None:
    made = table({"X": {"A": [80]}, "Y": {"A": [70]}}, on("A"))
    assert bold(made) == set()
    assert UNTESTED in made.caption
    assert UNTESTED not in table({"X": {"A": [80]}}, on("A")).caption


def test_the_value_of_a_zero_shot_method_holds_for_every_seed() -> None:
    values = {"CLIP": {"A": [81]}, "X": {"A": [80, 82, 84]}, "Y": {"A": [90, 91, 92]}}
    assert bold(table(values, on("A"), zero_shot=["CLIP"])) == {"Y"}
    del values["Y"]
    assert bold(table(values, on("A"), zero_shot=["CLIP"])) == {"CLIP", "X"}


@settings(deadline=None)
@given(st.lists(st.tuples(accuracies, accuracies), min_size=3, max_size=6))
def test_bold_agrees_with_the_paired_t_test(pairs: list[tuple[float, float]]) -> None:
    first, second = ([pair[place] for pair in pairs] for place in (0, 1))
    made = table({"X": {"A": first}, "Y": {"A": second}}, on("A"))
    if np.std(np.subtract(first, second)) > 1e-6:
        p = stats.ttest_rel(first, second).pvalue
        assert math.isclose(p, 0.05, rel_tol=1e-6) or (len(bold(made)) == 2) == (p > 0.05)


def test_nothing_is_bold_if_a_row_is_of_other_images() -> None:
    compared = measures({"X": {"A": [80, 81]}, "Y": {"A": [70, 71.5]}})
    compared.differing = lambda row: {("Y" if row == "X" else "X", "A"): "splits.test is a and b"}
    made = fill(compared, [on("A")], "key", "title")
    assert made is not None
    assert bold(made) == set()


# ---------------------------------------------------------------------------------------- remarks


def test_rows_with_fewer_seeds_are_marked_but_not_zero_shot_ones() -> None:
    values = {"CLIP": {"A": [70]}, "X": {"A": [80, 81, 82]}, "Y": {"A": [83, 84]}, "Z": {"A": [81.2]}}
    made = table(values, on("A"), zero_shot=["CLIP"])
    assert [len(row.remarks) for row in made.rows.values()] == [0, 0, 1, 2]  # Z cannot be tested, either
    assert "too few seeds" in made.rows["Z"].remarks[0]


def test_a_row_with_a_caveat_is_marked_and_never_bold_beside_others() -> None:
    values = {"X": {"A": [80, 81]}, "Y": {"A": [90, 91.5]}, "Z": {"A": [80, 81.5]}}
    made = table(values, on("A"), caveats={("Y", "A"): {"random weights"}, ("X", "B"): {"of another dataset"}})
    assert bold(made) == {"X", "Z"}
    assert [row.remarks for row in made.rows.values()] == [[], ["random weights"], []]


def test_a_caveat_of_all_rows_is_that_of_the_table() -> None:
    values = {"X": {"A": [80, 81]}, "Y": {"A": [90, 91.5]}}
    made = table(values, on("A"), caveats={(row, "A"): {"random weights"} for row in "XY"})
    assert (made.caveats, made.rows["X"].remarks, bold(made)) == (["random weights"], [], {"Y"})


# ---------------------------------------------------------------------------------------- differences


def difference(values: Values, *datasets: str, **more: Any) -> tuple[Any, ...]:
    (row,) = differences(measures(values, **more), "X", [on(*datasets)], "key", "title").rows.values()
    shown = row.cells["d_accuracy"]
    texts = (row.cells["ci_accuracy"].text, row.cells["pairs"].text)
    return (shown.mean, row.cells["p_accuracy"].mean, *texts, shown.bold, shown.text)


def test_one_dataset_is_paired_by_shared_seeds() -> None:
    found = difference({"X": {"A": [70, 75, 60]}, "Y": {"A": [NAN, 77, 63, 90]}}, "A")
    # Seeds 2 and 3 are in both: 77 - 75 and 63 - 60. Both signs alike in 2 of 4 assignments. 2.5 ± 12.706 * 0.5.
    assert found == (2.5, 0.5, "-3.85 to +8.85", "2 seeds", False, "+2.50")


def test_several_datasets_are_paired_by_dataset() -> None:
    values = {"X": {n: [50, 52] for n in "ABC"}, "Y": {"A": [51, 53], "B": [53, 53], "C": [55, 53]}}
    mean, p, _, pairs, is_bold, _ = difference(values, *"ABC")
    assert (mean, p, pairs, is_bold) == (2, 0.25, "3 datasets", False)


def test_a_difference_is_bold_if_its_interval_does_not_contain_zero() -> None:
    values = {"X": {"A": [50, 52, 54]}, "Y": {"A": [60, 62, 64.5]}}
    assert difference(values, "A")[4]
    assert not difference(values, "A", caveats={("Y", "A"): {"random weights"}})[4]
    assert difference({"X": {"A": [50, 51]}, "Y": {"A": [49.999, 50.999]}}, "A")[5] == "+0.00"
