"""The table of sources: complete, consistent with the loaders, and documented."""

from __future__ import annotations

import re

import pytest

from cocoamix.data.building import resolve_name
from cocoamix.data.sources import SOURCES, Source
from cocoamix.registry import PREFIX
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "DATASETS.md").read_text(encoding="utf-8")
ALL = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)


def test_includes_coops_fifteen_datasets() -> None:
    assert len(SOURCES) == 15 + 4 + 6
    assert len({source.config for source in SOURCES.values()}) == len(SOURCES)
    assert len({source.folder for source in SOURCES.values()}) == len(SOURCES) - 1  # CIFAR-100 in two ways


@ALL
def test_entry_is_complete(source: Source) -> None:
    assert source.licence
    assert source.synthetic == (not source.parts)
    paths = [part.path for part in source.parts]
    for part in source.parts:
        assert source.providers(part.path) or source.by_hand, f"no source provides {part.path}"
        assert part.required or part.instead
    for file in source.files:
        assert bool(file.url) != bool(file.drive)
        assert set(file.gives) <= set(paths)
        assert not file.md5 or re.fullmatch(r"[0-9a-f]{32}", file.md5)
        assert file.url.startswith("https://") or file.drive
        assert not (file.md5 and file.sha256)
        assert not file.sha256 or re.fullmatch(r"[0-9a-f]{64}", file.sha256)
        assert file.unpack or file.gives == (file.name,)


@ALL
def test_every_spelling_of_a_name_is_accepted(source: Source) -> None:
    for given in (source.name, source.name.lower(), source.config, source.config.upper()):
        assert resolve_name(given) == source.name
    assert resolve_name("FOLDER") == resolve_name("imagefolderdataset") == "ImageFolderDataset"


@ALL
def test_loaders_look_in_the_same_folder(source: Source) -> None:
    import cocoamix.datasets  # noqa: F401

    # isort: split
    from dassl.data.datasets import DATASET_REGISTRY

    registered = DATASET_REGISTRY.registered_names()
    name = PREFIX + source.name if PREFIX + source.name in registered else source.name
    loader = DATASET_REGISTRY.get(name) if name in registered else None
    if loader is None or not loader.__module__.startswith(PREFIX):  # one of Dassl's own datasets
        pytest.skip(f"no loader for {source.name}")
    assert (ROOT / "configs" / "datasets" / f"{source.config}.yaml").is_file()
    parts = [part.path for part in source.parts]
    if not source.synthetic:
        assert loader.folder == source.folder
        for attribute in ("image_folder", "split_file"):
            wanted = getattr(loader, attribute, "")
            assert not wanted or any(path == wanted or path.startswith(f"{wanted}/") for path in parts)


@ALL
def test_page_documents_each_dataset(source: Source) -> None:
    """Each dataset has a section with its home page, licence, folder, files and check command."""
    section = next((one for one in PAGE.split("\n## ")[1:] if f"`{source.name}`" in one.split("\n\n")[1]), None)
    assert section is not None, f"no section for {source.name}"
    assert f"cocoamix data check {source.name} --root $DATA" in section
    for fact in (source.homepage, source.licence, source.folder, *(part.path for part in source.parts)):
        assert fact in section
    for file in source.files:
        assert (file.drive or file.url) in section
        assert (file.checksum or "no checksum is published") in section
