"""The benchmarks run; their measurements are not asserted."""

from __future__ import annotations

import json
import re
import sys

import pytest

from benchmarks import exactness, measure, methods, run
from tests.conftest import ROOT


def test_speed_is_compared(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def in_this_process(name: str, way: str, classes: int) -> float:
        measure.main([name, way, str(classes)])
        *printed, last = capsys.readouterr().out.splitlines()
        print("\n".join(printed))
        assert set(json.loads(last)) == {"pass", "process"}
        return 1.0

    monkeypatch.setattr(measure, "peak_memory", in_this_process)
    monkeypatch.setattr(sys, "argv", ["run.py", "--quick"])
    run.main()
    row = capsys.readouterr().out.splitlines()[-1].strip("| ").split(" | ")
    assert len(row) == len(run.HEAD)
    assert row[0] == "4"


def test_exactness_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["exactness.py", "--quick"])
    monkeypatch.setattr(exactness, "NAMES", ["cat", "grey wolf"])
    exactness.main()
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[:2] for row in rows] == [[source, n] for source in ("clip", "open_clip") for n in ("2", "4", "16")]
    assert all(float(row[2]) < 1e-5 and float(row[3]) < 1e-4 for row in rows)


def test_every_method_of_the_table_can_be_timed() -> None:
    table = re.findall(r"^\| `(\w+)`", (ROOT / "docs" / "METHODS.md").read_text(), re.MULTILINE)
    assert sorted(methods.methods()) == sorted(set(table) - {"ZeroshotCLIP"})


@pytest.mark.parametrize("name", ["TuneEn", "CoCoAMix", "L2PFSCIL"])  # several models, two parts, sessions
def test_a_method_is_timed(name: str) -> None:
    row = methods.compare(name, size=4, rounds=1, quick=True)
    assert row[:2] == [name, "4"]
    assert all(float(seconds) > 0 for seconds in row[2::2])
    assert len(row) == (4 if "FSCIL" in name else 6)
