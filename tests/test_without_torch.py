"""Commands without torch: they work if they do not need it, and otherwise say how to install it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cocoamix.cli import COMMANDS
from cocoamix.refusals import explain
from tests.conftest import ROOT
from tests.experiments.trees import write_pair

# Runs the command lines of a JSON list; prints the status, the output and the errors of each.
EACH = """
import contextlib, io, json, sys
sys.path.insert(0, sys.argv[2])


class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("torch", "torchvision"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
from cocoamix.cli import main
ends = []
for arguments in json.loads(sys.argv[1]):
    output, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(error):
        status = main(arguments)
    ends.append([status, output.getvalue(), error.getvalue()])
print(json.dumps(ends))
"""
WITH = [
    ["train", "--trainer", "CoOp"],
    ["predict", "runs", "images"],
    ["export", "runs", "--to", "model.onnx"],
    ["bench", "run", "quick", "--dry-run"],
    ["figures", "gradient"],
    ["data", "check", "eurosat", "--root", "data"],
    ["data", "export", "eurosat", "--shots", "1", "--seed", "1", "--out", "draw.json", "--root", "data"],
    ["features", "info"],
]
WITHOUT = [
    ["bench", "list"],
    ["figures", "list"],
    ["data", "list"],
    ["data", "download", "warm_cool", "--root", "data"],
    ["report", "tree"],
    ["shapes", "sheet", "sheet.png"],
    ["plugin", "--configs", "copies", "CoOp"],
]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str]]:
    """The outcome of each command line: status, output, errors."""
    folder = tmp_path_factory.mktemp("without")
    write_pair(folder / "tree", 80.0, 60.0)
    lines = [*WITH, *WITHOUT]
    command = [sys.executable, "-c", EACH, json.dumps(lines), str(ROOT)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {" ".join(line): tuple(end) for line, end in zip(lines, json.loads(done.stdout), strict=True)}


@pytest.mark.parametrize("line", [" ".join(line) for line in WITH])
def test_command_names_the_missing_package(line: str, outcomes: dict[str, tuple[int, str, str]]) -> None:
    status, output, error = outcomes[line]
    assert (status, output, error.count("\n")) == (2, "", 1)
    assert error.startswith("error: This needs the package torch")
    assert error.endswith("Install it with `pip install torch torchvision`.\n")
    assert sys.executable in error


@pytest.mark.parametrize("line", [" ".join(line) for line in WITHOUT])
def test_command_works(line: str, outcomes: dict[str, tuple[int, str, str]]) -> None:
    status, output, error = outcomes[line]
    assert (status, error) == (0, "")
    assert output or line.startswith("shapes")


def test_every_command_is_covered() -> None:
    assert {line[0] for line in (*WITH, *WITHOUT)} == set(COMMANDS)


def test_train_py_names_the_missing_package(tmp_path: Path) -> None:
    code = (
        "import runpy, sys; sys.modules['torch'] = None; sys.argv = sys.argv[1:]\n"
        f"sys.path.insert(0, {str(ROOT)!r}); runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-c", code, str(ROOT / "train.py"), "--trainer", "CoOp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "`pip install torch torchvision`" in done.stderr


def test_only_whole_missing_packages_are_reported() -> None:
    """A missing part of an installed package, or of this one, is a bug and keeps its traceback."""
    assert explain(ModuleNotFoundError("no", name="torch._inductor")) is None
    assert explain(ModuleNotFoundError("no", name="cocoamix.nothing")) is None
    assert "`pip install pillow`" in str(explain(ModuleNotFoundError("no", name="PIL")))
