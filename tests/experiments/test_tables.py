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

from cocoamix.experiments.differences import differences
from cocoamix.experiments.tables import LOW, UNTESTED, Column, Measures, Table, fill

Values = Mapping[str, Mapping[str, Sequence[float]]]  # seeds by method and dataset
COLUMN = Column("accuracy", "accuracy", ("A", "B"))


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


def table(values: Values, column: Column = COLUMN, **more: Any) -> Table:
    made = fill(measures(values, **more), [column], "key", "title")
    assert made is not None
    return made


def bold(made: Table) -> set[str]:
    return set(made.bold.index[made.bold["accuracy"]])


def on(*datasets: str, better: int = 1) -> Column:
    return Column("accuracy", "accuracy", datasets, better=better)


# ---------------------------------------------------------------------------------------- cells


def test_the_deviation_of_an_average_is_over_the_averages_of_seeds() -> None:
    made = table({"X": {"A": [60, 70], "B": [74, 70]}})
    assert made.mean.loc["X", "accuracy"] == 68.5
    assert made.std.loc["X", "accuracy"] == 1.5  # of 67 and 70; each dataset varies more
    assert (made.n.loc["X", "accuracy"], made.words.loc["X", "seeds"]) == (2, "2")
    assert made.seeds["X", "accuracy"] == [67, 70]


def test_datasets_with_different_seeds_have_a_mean_without_deviation() -> None:
    made = table({"X": {"A": [60, 70, 80], "B": [80, 90, math.nan]}})
    assert made.mean.loc["X", "accuracy"] == 77.5
    assert math.isnan(made.std.loc["X", "accuracy"])
    assert (made.n.loc["X", "accuracy"], made.words.loc["X", "seeds"]) == (0, "2 to 3")


def test_a_method_that_lacks_a_dataset_has_no_average_and_is_not_bold() -> None:
    made = table({"X": {"A": [60, 61], "B": [70, 71]}, "Y": {"A": [99, 98]}, "Z": {"A": [50, 51], "B": [50, 52]}})
    assert math.isnan(made.mean.loc["Y", "accuracy"])
    assert "Y" not in bold(made)


def test_without_any_value_there_is_no_table() -> None:
    assert fill(measures({"X": {"A": [1]}}), [on("C")], "key", "title") is None


accuracies = st.floats(0, 100)


@settings(deadline=None)
@given(st.lists(st.lists(accuracies, min_size=3, max_size=3), min_size=2, max_size=4))
def test_means_and_deviations_are_those_of_numpy(of_datasets: list[list[float]]) -> None:
    names = [f"D{place}" for place in range(len(of_datasets))]
    made = table({"X": dict(zip(names, of_datasets, strict=True))}, on(*names))
    assert made.mean.loc["X", "accuracy"] == pytest.approx(np.mean(of_datasets), abs=1e-9)
    assert made.std.loc["X", "accuracy"] == pytest.approx(np.std(np.mean(of_datasets, axis=0)), abs=1e-9)


# ---------------------------------------------------------------------------------------- bold


def test_on_one_dataset_a_row_is_bold_if_its_seeds_cannot_be_told_from_the_best() -> None:
    made = table({"best": {"A": [80, 82, 84]}, "close": {"A": [79, 83, 82]}, "worse": {"A": [70, 72, 74.1]}}, on("A"))
    assert bold(made) == {"best", "close"}


def test_over_datasets_the_interval_is_over_their_means() -> None:
    """Seeds agree that X is better, but one of two datasets does not."""
    made = table({"X": {"A": [90, 90.1], "B": [60, 60.1]}, "Y": {"A": [80, 80.1], "B": [61, 61.1]}})
    assert bold(made) == {"X", "Y"}


def test_lower_is_better_where_the_column_says_so() -> None:
    values = {"X": {"A": [5, 5.1, 5.2]}, "Y": {"A": [9, 9.1, 9.3]}}
    assert (bold(table(values, on("A"))), bold(table(values, on("A", better=LOW)))) == ({"Y"}, {"X"})


def test_equal_values_are_all_bold() -> None:
    assert bold(table({"X": {"A": [80, 81]}, "Y": {"A": [80, 81]}, "Z": {"A": [70, 71]}}, on("A"))) == {"X", "Y"}


def test_single_values_are_never_bold_and_the_caption_says_so() -> None:
    made = table({"X": {"A": [80]}, "Y": {"A": [70]}}, on("A"))
    assert bold(made) == set()
    assert UNTESTED in made.caption
    assert UNTESTED not in table({"X": {"A": [80]}}, on("A")).caption


def test_the_value_of_a_zero_shot_method_holds_for_every_seed() -> None:
    values = {"CLIP": {"A": [81]}, "X": {"A": [80, 82, 84]}, "Y": {"A": [90, 91, 92]}}
    assert bold(table(values, on("A"), zero_shot=["CLIP"])) == {"Y"}
    far = {"CLIP": {"A": [81]}, "X": {"A": [80, 82, 84]}}
    assert bold(table(far, on("A"), zero_shot=["CLIP"])) == {"CLIP", "X"}


@settings(deadline=None)
@given(st.lists(st.tuples(accuracies, accuracies), min_size=3, max_size=6))
def test_bold_agrees_with_the_paired_t_test(pairs: list[tuple[float, float]]) -> None:
    first, second = ([pair[place] for pair in pairs] for place in (0, 1))
    made = table({"X": {"A": first}, "Y": {"A": second}}, on("A"))
    gaps = np.subtract(first, second)
    if np.std(gaps) > 1e-6:
        p = stats.ttest_rel(first, second).pvalue
        assert math.isclose(p, 0.05, rel_tol=1e-6) or (len(bold(made)) == 2) == (p > 0.05)


# ---------------------------------------------------------------------------------------- remarks


def test_rows_with_fewer_seeds_are_marked_but_not_zero_shot_ones() -> None:
    values = {"CLIP": {"A": [70]}, "X": {"A": [80, 81, 82]}, "Y": {"A": [83, 84]}}
    made = table(values, on("A"), zero_shot=["CLIP"])
    assert list(made.remarks) == ["Y"]


def test_a_row_with_a_caveat_is_marked_and_never_bold_beside_others() -> None:
    values = {"X": {"A": [80, 81]}, "Y": {"A": [90, 91.5]}, "Z": {"A": [80, 81.5]}}
    made = table(values, on("A"), caveats={("Y", "A"): {"random weights"}})
    assert bold(made) == {"X", "Z"}
    assert made.remarks == {"Y": ["random weights"]}


def test_a_caveat_of_all_rows_is_that_of_the_table() -> None:
    values = {"X": {"A": [80, 81]}, "Y": {"A": [90, 91.5]}}
    made = table(values, on("A"), caveats={(row, "A"): {"random weights"} for row in "XY"})
    assert (made.caveats, made.remarks, bold(made)) == (["random weights"], {}, {"Y"})
    made.add_row("Z (published)", {"accuracy": 60.0}, {}, "Table 1")  # it has no caveat
    assert bold(made) == set()


def test_nothing_is_bold_if_a_row_is_of_other_images() -> None:
    compared = measures({"X": {"A": [80, 81]}, "Y": {"A": [70, 71.5]}})
    compared.differing = lambda row: {("Y" if row == "X" else "X", "A"): "splits.test is a and b"}
    made = fill(compared, [on("A")], "key", "title")
    assert made is not None
    assert bold(made) == set()


def test_an_average_is_not_judged_by_the_seeds_of_one_dataset() -> None:
    nan = math.nan
    values = {"X": {"A": [50, 51, 52], "B": [60, 60, 60]}, "Y": {"A": [49, 50, 51], "B": [nan, nan, nan, 80, 80, 80]}}
    assert bold(table(values)) == set()


def test_a_row_that_cannot_be_tested_is_marked() -> None:
    made = table({"X": {"A": [80, 81]}, "Y": {"A": [70, 71.5]}, "Z": {"A": [80.4]}}, on("A"))
    assert bold(made) == {"X"}
    assert any("too few seeds" in remark for remark in made.remarks["Z"])


def test_caveats_of_other_datasets_do_not_count() -> None:
    made = table({"X": {"A": [80, 81]}, "Y": {"A": [70, 71]}}, on("A"), caveats={("X", "B"): {"random weights"}})
    assert made.remarks == {}


def test_published_rows_are_never_bold_and_name_their_source() -> None:
    made = table({"X": {"A": [80, 81]}, "Y": {"A": [70, 71.5]}}, on("A"))
    made.add_row("X (published)", {"accuracy": 99.0}, {"accuracy": "99.0"}, "Table 1 of a paper")
    assert bold(made) == {"X"}
    assert made.remarks["X (published)"] == ["Table 1 of a paper"]


# ---------------------------------------------------------------------------------------- differences


def difference(values: Values, *datasets: str, **more: Any) -> dict[str, Any]:
    made = differences(measures(values, **more), "X", [on(*datasets)], "key", "title")
    words, bold = made.words.iloc[0], made.bold.iloc[0]["d_accuracy"]
    return {**made.mean.iloc[0], "interval": words["ci_accuracy"], "pairs": words["pairs"], "bold": bold}


def test_one_dataset_is_paired_by_shared_seeds() -> None:
    found = difference({"X": {"A": [70, 75, 60]}, "Y": {"A": [math.nan, 77, 63, 90]}}, "A")
    # Seeds 2 and 3 are in both: 77 - 75 and 63 - 60. Both signs alike in 2 of 4 assignments.
    assert (found["d_accuracy"], found["p_accuracy"], found["pairs"]) == (2.5, 0.5, "2 seeds")
    assert found["interval"] == "-3.85 to +8.85"  # 2.5 ± 12.706 * 0.5


def test_several_datasets_are_paired_by_dataset() -> None:
    values = {"X": {n: [50, 52] for n in "ABC"}, "Y": {"A": [51, 53], "B": [53, 53], "C": [55, 53]}}
    found = difference(values, *"ABC")
    assert (found["d_accuracy"], found["p_accuracy"], found["pairs"]) == (2, 0.25, "3 datasets")
    assert not found["bold"]


def test_a_difference_is_bold_if_its_interval_does_not_contain_zero() -> None:
    values = {"X": {"A": [50, 52, 54]}, "Y": {"A": [60, 62, 64.5]}}
    assert difference(values, "A")["bold"]
    assert not difference(values, "A", caveats={("Y", "A"): {"random weights"}})["bold"]
