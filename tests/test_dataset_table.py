"""The table of datasets: each configuration has a correct row, and the data command knows them all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cocoamix import shapes
from cocoamix.clip.templates import PER_DATASET, VARIANTS
from cocoamix.data import download
from cocoamix.data.building import source_of
from cocoamix.data.command import main
from cocoamix.data.sources import SOURCES
from cocoamix.dataset_table import DATASETS, OWN, PUBLISHED, SYNTHETIC, of_kind
from cocoamix.experiments.names import dataset_name, sort_datasets
from cocoamix.experiments.runs import SYNTHETIC as NO_ROOT
from cocoamix.registry import plain_name
from tests.conftest import ROOT
from tests.datasets.own import classes

CONFIGS = sorted((ROOT / "configs" / "datasets").glob("*.yaml"))
BY_CONFIG = {one.config: one for one in DATASETS.values()}
EACH = pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)


def test_every_configuration_has_a_line_and_every_line_a_configuration() -> None:
    assert sorted(BY_CONFIG) == [path.stem for path in CONFIGS]
    assert len(BY_CONFIG) == len(DATASETS)


@EACH
def test_the_configuration_names_the_dataset(path: Path) -> None:
    assert plain_name(yaml.safe_load(path.read_text())["DATASET"]["NAME"]) == BY_CONFIG[path.stem].name


def test_all_but_user_datasets_have_a_source() -> None:
    assert [*SOURCES] == [one.name for one in of_kind(PUBLISHED) + of_kind(SYNTHETIC)]
    for name, source in SOURCES.items():
        known = DATASETS[name]
        facts = (source.config, source.folder, source.title, source.homepage, source.licence)
        assert facts == (known.config, known.folder, known.title, known.homepage, known.licence)
        assert source.synthetic == (known.kind == SYNTHETIC)


def test_generated_datasets_can_be_drawn() -> None:
    assert {one.name: one.folder for one in of_kind(SYNTHETIC)} == {
        name: one.folder for name, one in shapes.DATASETS.items()
    }
    assert {one.config for one in of_kind(SYNTHETIC)} == NO_ROOT


def test_templates_belong_to_known_datasets() -> None:
    assert set(PER_DATASET).union(*VARIANTS.values()) <= set(DATASETS)


@EACH
def test_the_report_shows_one_name_for_all_spellings(path: Path) -> None:
    known = BY_CONFIG[path.stem]
    if known.kind != OWN:
        spellings = {known.name, known.config, known.table_name}
        assert {dataset_name(spelling) for spelling in spellings} == {known.table_name}


def test_the_report_keeps_the_papers_order() -> None:
    order = list(dict.fromkeys(one.table_name for one in of_kind(PUBLISHED)))
    assert sort_datasets(["Zoo", *reversed(order), "Ants"]) == [*order, "Ants", "Zoo"]
    assert order[0] == "ImageNet"
    assert order[-3:] == ["CIFAR100", "miniImageNet", "CUB200"]


def test_the_table_needs_no_torch() -> None:
    code = "import sys, cocoamix.experiments.names, cocoamix.data.sources; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


# The data command, for every configuration: by its name, its file, and its name in the package.


def spellings(path: Path) -> list[str]:
    return [BY_CONFIG[path.stem].name, path.stem, str(path), f"cocoamix:{path.name}"]


@EACH
def test_check_accepts_every_spelling_of_a_dataset(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No data exists: a published dataset reports what is missing, the others can be read."""
    known = BY_CONFIG[path.stem]
    if known.kind == OWN:
        classes(tmp_path, "cat", "dog", count=4)
        (tmp_path / "list.csv").write_text(
            "path,classname\n" + "".join(f"{name}/{n}.png,{name}\n" for name in ("cat", "dog") for n in range(4))
        )
    for given in spellings(path):
        status = main(["check", given, "--root", str(tmp_path), "--fast"])
        printed = capsys.readouterr().out
        if known.kind == PUBLISHED:
            assert (status, f"{known.name} is not ready" in printed, known.licence in printed) == (1, True, True), (
                printed
            )
            assert f"download {known.name} --root {tmp_path}" in printed
        else:
            assert (status, f"{known.name} is ready for training." in printed) == (0, True), printed


@EACH
def test_download_asks_for_confirmation(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody confirms in a test: what would be downloaded is printed, or why there is nothing to download."""
    monkeypatch.setattr(download, "size_of", lambda url: 0)  # no server is asked
    known = BY_CONFIG[path.stem]
    for given in spellings(path):
        status = main(["download", given, "--root", str(tmp_path)])
        captured = capsys.readouterr()
        if known.kind == SYNTHETIC:
            assert (status, "nothing to download" in captured.out) == (0, True)
        elif known.kind == OWN:
            assert (status, "nothing to download" in captured.err) == (2, True)
        else:
            assert (status, "Add --yes" in captured.err) == (2, True), captured
            source = source_of(known.name)
            assert source is not None
            assert all(file.name in captured.out for file in source.files)
    assert list(tmp_path.iterdir()) == []


def test_list_shows_every_dataset(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    listed = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]]
    assert listed == [[one.name, f"{one.config}.yaml"] for one in DATASETS.values()]
