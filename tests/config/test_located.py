"""Documented paths name the package's own configurations if there is no such file."""

from __future__ import annotations

from pathlib import Path

import pytest

from cocoamix.config import shipped
from cocoamix.errors import UserError
from cocoamix.experiments.plan import load_plan
from cocoamix.run.arguments import parse_arguments

NAME = "configs/trainers/CoOp/vit_b16.yaml"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, like a user who has installed the package."""
    monkeypatch.chdir(tmp_path)
    shipped._note.cache_clear()


def test_documented_path_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert shipped.locate(NAME) == shipped.folder() / "trainers" / "CoOp" / "vit_b16.yaml"
    shipped.locate(NAME)
    assert capsys.readouterr().err == f"{NAME} does not exist; using the package's own, cocoamix:CoOp/vit_b16.yaml\n"


def test_printed_name_finds_the_same_file(capsys: pytest.CaptureFixture[str]) -> None:
    for name in (NAME, "configs/datasets/eurosat.yaml"):
        found = shipped.locate(name)
        assert shipped.locate(capsys.readouterr().err.split()[-1]) == found


def test_user_file_takes_precedence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / NAME).parent.mkdir(parents=True)
    (tmp_path / NAME).touch()
    assert shipped.locate(NAME) == Path(NAME)
    assert not capsys.readouterr().err


@pytest.mark.parametrize("name", ["configs/trainers/CoOp/none.yaml", "trainers/CoOp/vit_b16.yaml", f"other/{NAME}", ""])
def test_other_paths_are_unchanged(name: str) -> None:
    assert shipped.locate(name) == Path(name)


def test_plans_accept_the_same_names(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "task: few-shot\nseeds: [1]\nshots: [1]\ndatasets: [configs/datasets/warm_cool.yaml, 'cocoamix:shapes.yaml']\n"
        "methods:\n- {trainer: CoOp, config: configs/trainers/CoOp/tiny.yaml}\n"
        "- {name: other, trainer: CoOp, config: 'cocoamix:CoOp/vit_b16.yaml'}\n"
    )
    plan = load_plan(str(tmp_path / "mine.yaml"))
    files = [*plan.datasets, *(one.config for one in plan.methods)]
    assert all(file.is_file() and shipped.folder() in file.parents for file in files)
    assert [one.stem for one in plan.datasets] == ["warm_cool", "shapes"]


def test_run_reads_located_configurations() -> None:
    from cocoamix.train import setup_cfg

    dataset = ["--dataset-config-file", "configs/datasets/eurosat.yaml"]
    cfg = setup_cfg(parse_arguments(["--trainer", "CoOp", "--config-file", NAME, *dataset]))
    assert (cfg.DATASET.NAME, cfg.MODEL.BACKBONE.NAME) == ("EuroSAT", "ViT-B/16")
    with pytest.raises(UserError, match="There is no configuration file configs/datasets/none"):
        setup_cfg(parse_arguments(["--trainer", "CoOp", "--dataset-config-file", "configs/datasets/none.yaml"]))


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UserError, match=r"Did you mean CoOp/vit_b16\.yaml"):
        shipped.locate("cocoamix:CoOp/vit_b61.yaml")
