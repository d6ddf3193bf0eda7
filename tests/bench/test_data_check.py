"""Missing data is reported for all datasets of a plan before its first run."""

from __future__ import annotations

from pathlib import Path

import pytest

from cocoamix.bench.command import main

from .conftest import Writer

METHODS = [{"trainer": "CoOp", "config": "CoOp/tiny"}]


@pytest.mark.parametrize("extra", [[], ["--fresh"]])
def test_missing_datasets_are_listed_before_the_first_run(
    write_plan: Writer, data_root: Path, capsys: pytest.CaptureFixture[str], extra: list[str]
) -> None:
    plan = write_plan(methods=METHODS, datasets=["dtd", "eurosat", "warm_cool", "food101"], shots=1)
    before = sorted(data_root.rglob("*"))
    assert main(["run", str(plan), "--root", str(data_root), "--gpus", "none", *extra]) == 2
    printed = capsys.readouterr()
    head, *lines = printed.err.splitlines()
    assert head == "error: Nothing was started, because 2 of the 4 datasets of the plan cannot be read:"
    assert [line.split(":")[0] for line in lines] == ["  dtd", "  food101"]
    assert f"is not in {data_root}: there is no folder dtd/" in lines[0]
    assert printed.out == ""
    assert not Path("output").exists()
    assert sorted(data_root.rglob("*")) == before


def test_missing_images_are_reported(write_plan: Writer, data_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = write_plan(methods=METHODS, datasets=["eurosat"], shots=1)
    for path in (data_root / "eurosat" / "2750").rglob("*.*"):
        path.unlink()
    assert main(["run", str(plan), "--root", str(data_root), "--gpus", "none"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert not Path("output").exists()


def test_finished_runs_need_no_data(write_plan: Writer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor do printed commands of unfinished ones."""
    (tmp_path / "empty").mkdir()
    plan = write_plan(methods=METHODS, datasets=["eurosat"], shots=1, seeds=[1])
    line = ["run", str(plan), "--root", str(tmp_path / "empty"), "--gpus", "none", "--no-report"]
    assert main([*line, "--dry-run"]) == 0
    for part in ("train_base", "test_new"):
        folder = Path("output/base2new", part, "eurosat/shots_1/CoOp/tiny/seed1")
        folder.mkdir(parents=True)
        (folder / "results.json").write_text('{"metrics": {"accuracy": 70.0}}')
    assert main(line) == 0
    assert "2 were finished before" in capsys.readouterr().out
