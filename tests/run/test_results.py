"""results.json: files of every version, damaged ones, and what happens to another evaluation's file."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cocoamix import finished
from cocoamix.errors import UserError
from cocoamix.run import results_page
from cocoamix.run.results import NewerResultsError, Results, ResultsError
from tests.conftest import ROOT

# Written by train.py before versions were introduced, with the tiny CLIP on a synthetic dataset.
VERSION_1 = Path(__file__).parent / "results_v1"
SOME = Results(trainer="CoOp", dataset="EuroSAT", split="test", seed=1, fingerprint="f", metrics={"accuracy": 80.0})


@pytest.mark.parametrize("name", ["ordinary", "heldout", "fscil"])
def test_version_1_is_read_without_loss(name: str) -> None:
    path = VERSION_1 / f"{name}.json"
    results, content = Results.read(path), json.loads(path.read_text())
    assert results.version == 1
    assert not results.extra
    assert results.keys() == {"version": 1, **content}
    assert list(results.keys()) == ["version", *content]  # in the same order


def test_fields_of_version_1() -> None:
    ordinary, heldout, sessions = (
        Results.read(VERSION_1 / f"{name}.json") for name in ("ordinary", "heldout", "fscil")
    )
    assert (ordinary.trainer, ordinary.subset, ordinary.seed, ordinary.shots) == ("CoCoAMix", "base", 1, 4)
    assert ordinary.weights is not None
    assert 0 < ordinary.weights.pi_out < ordinary.weights.pi_in < 1
    assert ordinary.second_stage is ordinary.heldout is ordinary.sessions is None
    assert ordinary.complete
    assert heldout.second_stage is not None
    assert (heldout.second_stage.epochs, heldout.second_stage.ended, heldout.second_stage.moved) == (6, "bound", None)
    assert heldout.heldout is not None
    assert heldout.heldout.curve is not None
    assert (heldout.heldout.folds, len(heldout.heldout.curve), heldout.heldout.why) == (4, 21, None)
    assert sessions.sessions is not None
    assert [one.classes for one in sessions.sessions] == [30, 40, 50, 60]
    assert [len(one.novel_sessions) for one in sessions.sessions] == [0, 1, 2, 3]
    assert sessions.sessions[0].novel is None
    assert sessions.sessions[-1].accuracy == sessions.accuracy
    assert [one.epochs for one in sessions.second_stages or () if one is not None] == [2, 4, 4, 4]
    assert (sessions.method, sessions.finished, sessions.weights) == ("CoCoA-Mix", True, None)


def test_results_round_trip(tmp_path: Path) -> None:
    kept = replace(Results.read(VERSION_1 / "fscil.json"), version=2).with_more({"my_key": [1, {"a": None}]})
    path = kept.write(tmp_path / "new" / "folder")
    assert Results.read(path) == kept
    content = json.loads(path.read_text())
    assert next(iter(content)) == "version"
    assert (content["version"], content["my_key"]) == (2, [1, {"a": None}])
    assert not {"extra", "weights", "heldout", "second_stage"} & content.keys()  # what does not apply is omitted
    assert content["sessions"][0]["novel"] is None


def test_results_of_version_1_are_written_as_version_2(tmp_path: Path) -> None:
    path = Results.read(VERSION_1 / "ordinary.json").write(tmp_path)
    assert json.loads(path.read_text())["version"] == 2


def test_keys_of_a_method_are_preserved() -> None:
    more = SOME.with_more({"weights": {"pi_in": 1, "pi_out": 0.25}, "mine": 3})
    assert more.weights is not None
    assert (more.weights.pi_in, more.extra) == (1.0, {"mine": 3})
    assert more.with_more({"other": 4}).extra == {"mine": 3, "other": 4}
    assert SOME.with_more({"extra": 5}).keys()["extra"] == 5  # the field is not a key
    assert SOME.with_more({"weights": {"pi_in": 1}}).weights is None  # which lacks pi_out


def test_newer_versions_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"version": 3, "metrics": "in another shape"}))
    with pytest.raises(NewerResultsError) as caught:
        Results.read(path)
    assert isinstance(caught.value, UserError)
    assert str(caught.value) == (
        f"{path} cannot be used: its version is 3, and this cocoamix reads versions up to 2. "
        "Update cocoamix, or move the file elsewhere."
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "Expecting value"),
        ('{"metrics": {"accuracy": 1}', "Expecting ',' delimiter"),
        ("[]", "it is not an object"),
        ("{}", "it has no 'metrics'"),
        ('{"metrics": {"accuracy": "high"}}', "its metrics.accuracy is not a number"),
        ('{"metrics": {}, "version": "2"}', "its version is not an integer"),
        ('{"metrics": {}, "version": true}', "its version is not an integer"),
        ('{"metrics": {}, "seed": "1"}', "its seed is not an integer"),
        ('{"metrics": {}, "heldout": {}}', "its heldout has no 'folds'"),
        ('{"metrics": {}, "second_stages": [null, 1]}', "its second_stages[1] is not an object"),
        (100_000 * "[", "it is nested too deeply"),
        ("\udcff", "it is not UTF-8: see line 1"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(ResultsError) as caught:
        Results.read(path)
    assert reason in caught.value.reason
    assert str(caught.value).startswith(f"{path} cannot be used: ")


def test_missing_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "results.json", tmp_path):
        with pytest.raises(ResultsError):
            Results.read(path)


def test_the_same_evaluation_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    SOME.write(tmp_path)
    replace(SOME, metrics={"accuracy": 81.0}).write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
    assert Results.read(tmp_path / "results.json").accuracy == 81.0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "changes", [{"trainer": "KgCoOp"}, {"seed": 2}, {"fingerprint": "g"}, {"split": "val"}, {"seed": None}]
)
def test_another_evaluation_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]
) -> None:
    replace(SOME, **changes).write(tmp_path)
    SOME.write(tmp_path)
    (kept,) = tmp_path.glob("results.json-*")
    assert Results.read(kept) == replace(SOME, **changes)
    assert Results.read(tmp_path / "results.json") == SOME
    assert capsys.readouterr().out == f"Results of another evaluation are kept as {kept.name}\n"


def test_results_within_one_second_are_all_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.strftime", lambda form: "now")
    for content in ("damaged", '{"version": 3}'):  # whose meaning is unknown
        (tmp_path / "results.json").write_text(content)
        SOME.write(tmp_path)
    replace(SOME, seed=2).write(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["results.json", "results.json-now", "results.json-now-2", "results.json-now-3"]


def test_exit_status_says_whether_a_run_is_finished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.json"
    assert finished.main([str(tmp_path)]) == 1
    for value, status in ((None, 0), (True, 0), (False, 1)):
        replace(SOME, finished=value).write(tmp_path)
        assert finished.main([str(tmp_path)]) == status
    assert capsys.readouterr().err == ""
    path.write_text("[]")
    assert finished.main([str(tmp_path)]) == 1
    assert f"{tmp_path}: its results cannot be used: it is not an object" in capsys.readouterr().err
    path.write_text('{"version": 3}')
    assert finished.main([str(tmp_path)]) == 2
    assert "its version is 3" in capsys.readouterr().err


def test_reading_needs_no_torch() -> None:
    code = "import sys; from cocoamix.run import results; print('torch' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "RESULTS.md").read_text(encoding="utf-8")
    assert page == results_page.render(), "write it again: python -m cocoamix.run.results_page > docs/RESULTS.md"


def test_a_second_stage_of_early_versions_has_no_weights() -> None:
    stage = {"epochs": 10, "steps": 20, "ended": "length", "moved": None}
    results = Results.parse({"metrics": {"accuracy": 1.0}, "second_stage": stage}, Path("results.json"))
    assert results.second_stage is not None
    assert results.second_stage.pi_in is results.second_stage.pi_out is None


def test_an_invalid_key_does_not_discard_the_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    found = SOME.with_more({"second_stage": {"epochs": "many"}, "note": "own"})
    assert found.second_stage is None
    assert found.extra == {"note": "own"}
    assert found.metrics == SOME.metrics
    assert "second_stage is left out of results.json" in capsys.readouterr().out
