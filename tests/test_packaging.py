"""What a wheel contains, and what the scripts do before any package is installed."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import cocoamix
from cocoamix import compat
from tests.conftest import ROOT


def test_wheel_has_everything_in_one_package(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    for name in (
        "cocoamix/trainers/coop.py",
        "cocoamix/datasets/eurosat.py",
        "cocoamix/datasets/cifar100_fscil.json",
        "cocoamix/datasets/cub200_fscil.json",
        "cocoamix/datasets/mini_imagenet_fscil.json",
        "cocoamix/configs/trainers/CoOp/vit_b16.yaml",
        "cocoamix/configs/datasets/eurosat.yaml",
        "cocoamix/experiments/published/cocoa_mix.json",
        "cocoamix/experiments/page.html.j2",
        "cocoamix/experiments/figures/figures.mplstyle",
        "cocoamix/fallback/dassl/engine/__init__.py",
        "cocoamix/clip/text_encoder.py",
        "cocoamix/plugin.py",
        "cocoamix/cli.py",
        "cocoamix/__main__.py",
        "cocoamix/experiments/plans/quick.yaml",
        "cocoamix/assets/tiny.safetensors",
        "cocoamix/configs/trainers/CoCoAMix/vit_b16_ep50.yaml",
        "cocoamix/py.typed",
    ):
        assert name in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"cocoamix"}


def test_wheel_installs_one_command(wheel: zipfile.ZipFile) -> None:
    name = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert wheel.read(name).decode().split() == ["[console_scripts]", "cocoamix", "=", "cocoamix.cli:main"]


def test_metadata_of_the_wheel(wheel: zipfile.ZipFile) -> None:
    name = next(name for name in wheel.namelist() if name.endswith("METADATA"))
    fields = email.message_from_bytes(wheel.read(name))
    assert (fields["Name"], fields["Version"]) == ("cocoamix", cocoamix.__version__)
    assert (fields["License-Expression"], fields["Requires-Python"]) == ("MIT", ">=3.10")
    assert fields.get_payload().startswith("# CoCoA-Mix")
    assert "Typing :: Typed" in fields.get_all("Classifier")
    assert all(url.split(", ")[1].startswith("https://") for url in fields.get_all("Project-URL"))


def extras() -> dict[str, list[str]]:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 cannot read TOML")
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return dict(content["project"]["optional-dependencies"])


def test_extra_all_includes_every_extra() -> None:
    every_extra = extras()
    (every,) = every_extra.pop("all")
    assert every == f"cocoamix[{','.join(every_extra)}]"


def test_oldest_torch_is_the_same_everywhere() -> None:
    assert f"torch>={'.'.join(map(str, compat.OLDEST_TORCH))}" in extras()["torch"]
    assert f"OLDEST_TORCH = {compat.OLDEST_TORCH}\n" in (ROOT / "scripts" / "missing_packages.py").read_text()


def test_source_distribution_has_the_whole_tree(source: Path, tmp_path: Path) -> None:
    """So its tests run like those of a checkout."""
    shutil.copytree(source, tmp_path / "source")
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "source", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()} <= held


def test_installing_replaces_nothing(wheel: zipfile.ZipFile) -> None:
    """Installation names no package whose working build it could replace, and pins none."""
    name = next(name for name in wheel.namelist() if name.endswith("METADATA"))
    required = re.findall(r"^Requires-Dist: ([\w-]+)(.*)$", wheel.read(name).decode(), re.M)
    needed = {package.lower(): rest for package, rest in required if "extra ==" not in rest}
    assert needed
    assert not {"torch", "torchvision", "dassl", "clip", "clip-anytorch", "open-clip-torch"} & needed.keys()
    assert not any("==" in rest or "<" in rest for rest in needed.values())


def test_installed_package_finds_its_parts(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """Outside the source tree, next to a CoOp tree's own `trainers` and `datasets`."""
    wheel.extractall(tmp_path / "site")
    tree = tmp_path / "tree"
    for package in ("trainers", "datasets"):
        (tree / package).mkdir(parents=True)
        (tree / package / "__init__.py").write_text("THEIRS = True\n")
    code = (
        "import trainers, datasets, cocoamix.trainers, cocoamix.datasets\n"
        "assert trainers.THEIRS and datasets.THEIRS\n"
        "from dassl.engine import TRAINER_REGISTRY\n"
        "print(cocoamix.trainers.__file__, TRAINER_REGISTRY.registered_names())"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "site") in done.stdout
    assert "CoOp" in done.stdout


def test_scripts_refuse_a_python_without_torch(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -I "$@"\n')
    bare.chmod(0o755)
    environment = {**os.environ, "COCOAMIX_PYTHON": str(bare)}
    done = subprocess.run(
        ["bash", str(ROOT / "scripts" / "test.sh"), "--version"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "has no torch" in done.stderr
    environment["COCOAMIX_PYTHON"] = str(tmp_path / "nothing")
    done = subprocess.run(
        ["bash", str(ROOT / "scripts" / "test.sh"), "--version"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "does not run" in done.stderr


def test_files_contain_no_absolute_paths_of_a_machine() -> None:
    """No absolute path of a home or work folder in tracked files."""

    def search(*places: str) -> subprocess.CompletedProcess[str]:
        command = ["git", "grep", "-nIE", r"(/home|/root|/Users|/work)/[a-z]", "--", *places]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    here = search("tests/test_packaging.py")
    if here.returncode > 1:
        pytest.skip(f"not a git checkout: {here.stderr.strip()}")
    assert here.returncode == 0, "the search must find a path such as /home/user"
    found = search(".", ":!tests/test_packaging.py")
    assert found.returncode == 1, found.stdout + found.stderr  # git's status for no match


def test_pages_have_no_placeholders() -> None:
    """No placeholder is left in place of a command's output."""
    for page in [ROOT / "README.md", *ROOT.glob("docs/*.md"), ROOT / "cocoamix" / "assets" / "README.md"]:
        assert not re.search(r"^[A-Z]+(_[A-Z]+)+$", page.read_text(), re.M), page


SCRIPTS = ["scripts/pretrain_tiny.py"]
SCRIPTS += [f"benchmarks/{name}.py" for name in ("rules", "parity", "weights", "methods")]
# Starts each script with --help where nothing of the tree can be imported.
START = """
import os, runpy, sys
root, searched = sys.argv[1], list(sys.path)
for script in sys.argv[2:]:
    sys.path[:] = [path for path in searched if path not in ("", root)]
    for name in list(sys.modules):
        if name.partition(".")[0] in ("cocoamix", "trainers", "datasets", "benchmarks", "dassl"):
            del sys.modules[name]
    sys.argv = [script, "--help"]
    try:
        runpy.run_path(os.path.join(root, script), run_name="__main__")
    except SystemExit as end:
        assert not end.code, script
    print("started", script)
"""


def test_scripts_start_from_a_clone(tmp_path: Path) -> None:
    """Without an installed cocoamix: the source tree is found from the script itself."""
    command = [sys.executable, "-c", START, str(ROOT), *SCRIPTS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.findall("^started (.*)", done.stdout, re.M) == SCRIPTS
