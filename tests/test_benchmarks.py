"""The benchmarks run; their measurements are not asserted."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from benchmarks import measure, methods, run, text_savings
from cocoamix.clip import FrozenCLIP
from tests.conftest import ROOT


def test_speed_benchmark_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "speed.json"
    in_new_process = measure._measured

    def measured(name: str, way: str, *sizes: int) -> dict[str, float]:
        if way == "plain":
            return in_new_process(name, way, *sizes)
        capsys.readouterr()
        measure.main([name, way, *map(str, sizes)])  # the same program in this process
        found = json.loads(capsys.readouterr().out)
        return {**found, "pass": max(1.0, found["pass"])}  # memory that tests have freed is used again

    monkeypatch.setattr(measure, "_measured", measured)
    monkeypatch.setattr(sys, "argv", ["run.py", "--quick", "--json", str(target)])
    run.main()
    found = json.loads(target.read_text())
    for name in ("text_forward", "text_forward_backward", "text_memory", "iteration"):
        assert set(found[name]) == {"4"}
        assert found[name]["4"] > 0
    assert found["mix_over_coop"] > 0
    assert target.with_suffix(".png").stat().st_size > 1000


def test_every_method_of_the_table_can_be_timed() -> None:
    table = re.findall(r"^\| `(\w+)`", (ROOT / "docs" / "METHODS.md").read_text(), re.MULTILINE)
    assert sorted(methods.methods()) == sorted(set(table) - {"ZeroshotCLIP"})
    own, coop = methods.step_costs("TuneEn", size=0, rounds=1, quick=True)  # the only one with several models
    assert len(own) == len(coop) == 1
    assert own[0] > 0


def test_text_savings_give_the_same_step(tiny_clip: FrozenCLIP) -> None:
    """Their times would be meaningless if they computed something else."""
    names = ["cat", "grey wolf", "aquarium fish", "dog"]
    plain = text_savings.Step(tiny_clip, names)()
    for way in (*text_savings.WAYS[1:], text_savings.HalvesInThreads):
        features, gradient = text_savings.differences(way(tiny_clip, names)(), plain)
        assert features < 1e-6
        assert gradient < 1e-5


def test_common_tokens_are_counted_once() -> None:
    # cat . end; cat fish . end; cat fish . end again: the two of one name share all of it.
    assert text_savings.count_tokens(["cat", "cat fish", "cat fish"]) == (3 + 4 + 4, 3 + 3)
    assert text_savings.count_tokens(["cat", "dog"]) == (6, 6)
