"""The documented commands run, in the order of their page, in a copy of the tree.

`bash scripts/test.sh tests/docs -m slow` runs them all, which takes half an hour or more.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

from .pages import PAGES, commands_of, name_of

# These would start the tests themselves, or create another environment.
LEFT_OUT = re.compile(r"scripts/(test|docs)\.sh|\.ci/run|pytest tests|source \.venv|--inputs 20000")

# Commands that run before those with a mark, to create what they need.
RUN = """
cocoamix shapes write images --dataset WarmCool
mkdir PHOTOS
for folder in images/warm_cool/images/*/; do cp "$folder/0001.png" "PHOTOS/$(basename "$folder").png"; done
cp "$(ls PHOTOS/*.png | head -n 1)" photo.jpg
python train.py --root images/warm_cool/images --seed 1 --trainer CoCoAMix \
  --dataset-config-file configs/datasets/folder.yaml --config-file configs/trainers/CoCoAMix/tiny.yaml \
  --output-dir output/own DATASET.NUM_SHOTS 4 OPTIM.MAX_EPOCH 3
printf 'zebra\\nokapi\\n' > names.txt
"""
RUNS = """
cocoamix bench run quick --datasets warm_cool --seeds 1 --output output
for tree in CoOp KgCoOp; do mkdir ../$tree; cp -r output ../$tree; done
find ../CoOp ../KgCoOp -type f ! -name log.txt -delete
"""
PREPARED = {'title="takes minutes"': "", 'title="needs a run"': RUN, 'title="needs runs"': RUNS}


def lines_of(page: Path, mark: str) -> list[str]:
    """Return the lines with this mark that can be run unchanged."""
    lines = dict.fromkeys(one.text for one in commands_of(page) if one.mark == mark)
    return [line for line in lines if not LEFT_OUT.search(line) and "..." not in line]


def run_lines(lines: list[str], tmp_path: Path) -> None:
    tree, programs = tmp_path / "tree", tmp_path / "programs"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "output", "site", "__pycache__", "mutants"))
    programs.mkdir()
    for name, start in (("python", ""), ("cocoamix", "-m cocoamix"), ("pytest", "-m pytest")):
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {start} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "COCOAMIX_PYTHON": sys.executable,
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if lines_of(page, "")], ids=name_of)
def test_commands_run(page: Path, tmp_path: Path) -> None:
    run_lines(lines_of(page, ""), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "mark"),
    [
        pytest.param(page, mark, id=f"{name_of(page)}, {mark[7:-1]}")
        for page in PAGES
        for mark in PREPARED
        if lines_of(page, mark)
    ],
)
def test_marked_commands_run(page: Path, mark: str, tmp_path: Path) -> None:
    """The unmarked commands of the page run first: a marked one may need their output."""
    unmarked = lines_of(page, "") if mark == 'title="takes minutes"' else []
    run_lines([*unmarked, PREPARED[mark], *lines_of(page, mark)], tmp_path)
