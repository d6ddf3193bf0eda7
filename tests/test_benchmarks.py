"""The benchmarks run; what they measure is not asserted."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from benchmarks import methods
from tests.conftest import ROOT


def test_speed_runs(tmp_path: Path) -> None:
    target = tmp_path / "speed.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), "--quick", "--json", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-800:]
    found = json.loads(target.read_text())
    for name in ("text_forward", "text_forward_backward", "text_memory", "iteration"):
        assert set(found[name]) == {"4"}
        assert found[name]["4"] > 0
    assert found["mix_over_coop"] > 0
    assert target.with_suffix(".png").stat().st_size > 1000


def test_every_method_of_the_table_can_be_timed() -> None:
    table = re.findall(r"^\| `(\w+)`", (ROOT / "docs" / "METHODS.md").read_text(), re.MULTILINE)
    assert sorted(methods.methods()) == sorted(set(table) - {"ZeroshotCLIP"})
    own, coop = methods.step_costs("TuneEn", size=0, rounds=1, quick=True)  # the one on several models
    assert len(own) == len(coop) == 1
    assert own[0] > 0
