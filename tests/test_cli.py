"""One command: what it finds, how it exits, and that help does not wait for torch."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cocoamix import cli
from cocoamix.errors import UserError, run_command
from cocoamix.experiments.figures import FIGURES
from tests.conftest import ROOT
from tests.experiments.trees import write_pair

# Runs the command lines of a JSON list; prints which slow packages are imported after each, and the status.
EACH = """
import contextlib, io, json, sys
from cocoamix.cli import main
answers = []
for arguments in json.loads(sys.argv[1]):
    error = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(error):
        try:
            status = main(arguments)
        except SystemExit as end:
            status = end.code
    slow = [name for name in ("torch", "matplotlib") if name in sys.modules]
    answers.append([slow, status, error.getvalue()])
print(json.dumps(answers))
"""


def start(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cocoamix", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, **options)  # type: ignore[call-overload]


def test_help_and_usage_errors_do_not_import_torch() -> None:
    right = [[], ["--help"], ["--version"], ["bench", "list"], *([name, "--help"] for name in cli.COMMANDS)]
    right += [["figures", "list"], *(["figures", name, "--help"] for name in FIGURES)]
    wrong = [["rport"], ["bench", "rn"], ["data", "chek"], *([name, "--nonsense"] for name in cli.COMMANDS)]
    wrong += [["figures", "gradeint"], *(["figures", name, "--nonsense"] for name in FIGURES)]
    lines = [*right, *wrong]
    done = subprocess.run(
        [sys.executable, "-c", EACH, json.dumps(lines)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for arguments, (slow, status, error) in zip(lines, json.loads(done.stdout), strict=True):
        assert (slow, status) == ([], 2 * (arguments in wrong)), (arguments, error)
        assert error.count("\n") == (status == 2), error
        assert error.startswith("error: ") or not error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rport"], "Did you mean report?"),
        (["zzz"], "Known: train, predict"),
        (["bnch", "run"], "mean bench?"),
    ],
)
def test_a_typo_gives_a_one_sentence_error(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.err.count("\n") == 1
    assert not printed.out


def test_a_typo_in_a_subcommand_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["bench", "rnu", "quick"])
    assert end.value.code == 2
    printed = capsys.readouterr().err
    assert "Did you mean run?" in printed
    assert printed.endswith("See `cocoamix bench --help`.\n")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == cli.main([]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {name} " in shown for name in cli.COMMANDS)


def test_commands_of_the_docs_exist() -> None:
    """Every `cocoamix NAME` in a code block or in backquotes is a command."""
    found = set()
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/*.md")]:
        text = page.read_text(encoding="utf-8")
        found |= set(re.findall(r"(?:^|`)(?:python -m )?cocoamix ([a-z]+)", text, re.M))
    assert {"train", "bench", "report", "data", "features", "shapes"} <= found <= set(cli.COMMANDS)


@pytest.mark.parametrize("name", ["bench", "report", "data", "shapes", "features"])
def test_submodules_are_not_runnable_commands(name: str) -> None:
    done = subprocess.run([sys.executable, "-m", f"cocoamix.{name}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "No module named" in done.stderr


def test_train_accepts_the_flags_of_train_py(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--trainer", "coop", "--output-dir", str(tmp_path / "run")]
    assert cli.main(["train", *flags]) == 2
    message = capsys.readouterr().err.split(" Known: ")[0]  # other tests may have registered trainers here
    assert message.startswith("error: The trainer (--trainer) is 'coop'")
    script = subprocess.run([sys.executable, "train.py", *flags], cwd=ROOT, capture_output=True, text=True)
    assert (script.returncode, script.stderr.split(" Known: ")[0]) == (2, message)


# ---------------------------------------------------------------------- endings


def test_a_user_error_is_one_sentence(tmp_path: Path) -> None:
    done = start("report", "nowhere", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("error: ")


def test_a_system_error_is_one_sentence(tmp_path: Path) -> None:
    write_pair(tmp_path / "tree", 80.0, 60.0)
    (tmp_path / "file").touch()
    done = start("report", "tree", "--quiet", "--csv", "file/out.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert re.fullmatch(r"error: (Not a directory|File exists): file\S*\.\n", done.stderr)
    done = start("shapes", "sheet", "nowhere/sheet.png", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "error: No such file or directory: nowhere/sheet.png.\n")
    done = start("shapes", "sheet", "sheet.unknown", cwd=tmp_path)
    assert (done.returncode, "Use the ending .png" in done.stderr, done.stderr.count("\n")) == (2, True, 1)


@pytest.mark.parametrize("buffering", ["", "1"])
def test_a_closed_output_pipe_is_not_an_error(tmp_path: Path, buffering: str) -> None:
    write_pair(tmp_path, 80.0, 60.0)
    command = [sys.executable, "-m", "cocoamix", "report", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": buffering}
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, env=environment, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_other_broken_pipes_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """Such as that of a subprocess: its reader is not the reader of the command's output."""

    def fail() -> None:
        raise BrokenPipeError(32, "Broken pipe")

    assert run_command(fail, "Stopped.") == 2
    assert capsys.readouterr().err == "error: Broken pipe.\n"


def test_exit_status_of_each_ending(capsys: pytest.CaptureFixture[str]) -> None:
    def mistake() -> None:
        raise UserError("There is no plan.")

    def stop() -> None:
        raise KeyboardInterrupt

    def refused() -> None:
        open("/nowhere/at/all")  # noqa: SIM115

    assert run_command(lambda: 1, "") == 1
    assert run_command(lambda: None, "") == 0
    assert run_command(mistake, "") == 2
    assert run_command(stop, "Stopped. Again?") == 130
    assert run_command(refused, "") == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: There is no plan.",
        "Stopped. Again?",
        "error: No such file or directory: /nowhere/at/all.",
    ]
    with pytest.raises(FileNotFoundError):  # an error of other code keeps its traceback
        run_command(refused, "", foreign=True)


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_ctrl_c_prints_a_sentence_and_exits_with_130(tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-m", "cocoamix", "shapes", "speed"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, env=environment, text=True, **pipes)  # type: ignore[call-overload]
    assert process.stdout.readline()  # the first domain is drawn
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate()
    assert (process.returncode, printed) == (130, "Stopped.\n")
