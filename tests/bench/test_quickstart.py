"""The table of the quick start is the report's, in the shape that README.md shows."""

from __future__ import annotations

import runpy
import statistics

from tests.conftest import ROOT


def test_table_is_the_readmes() -> None:
    quickstart = runpy.run_path(str(ROOT / "scripts" / "quickstart.py"), run_name="quickstart")
    rows = {"CLIP": [(73.44, 75.44)], "CoA-loss (uniform)": [(77.0, 79.0), (78.0, 79.5), (78.2, 80.0)]}
    lines = quickstart["table"](rows).splitlines()
    readme = (ROOT / "README.md").read_text().splitlines()
    shown = readme.index("| method             | base         | new          | H            |")
    assert lines[:2] == readme[shown : shown + 2]
    assert lines[2] == readme[shown + 2]  # CLIP: no deviation, H of its own pair
    of_seeds = [2 * base * new / (base + new) for base, new in rows["CoA-loss (uniform)"]]
    expected = f"{statistics.fmean(of_seeds):.2f} ± {statistics.pstdev(of_seeds):.2f}"
    assert lines[3].split("|")[4].strip() == expected
