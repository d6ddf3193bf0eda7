"""Every documented command is valid: the parsers accept its arguments, and the files that it names exist.

tests/docs/test_commands_run.py runs them.
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cocoamix import cli
from cocoamix.config.shipped import locate
from cocoamix.errors import UserError
from cocoamix.experiments import bench
from cocoamix.parser import Parser
from cocoamix.plugin import name_files
from cocoamix.run.arguments import parse_arguments
from cocoamix.train import setup_cfg
from tests.conftest import ROOT

from .pages import PAGES, Command, commands_of, name_of, split

# External programs, whose arguments are not checked.
OTHERS = {
    *("pip", "git", "apt-get", "sinfo", "scontrol", "mutmut", "source", "export", "cd", "mkdir"),
    *("for", "do", "done", "sed"),
}
COMMANDS = {page: commands_of(page) for page in PAGES}
EACH = pytest.mark.parametrize("page", PAGES, ids=name_of)


def refuse(reason: str) -> None:
    raise UserError(reason)


def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the parser of `cocoamix NAME`."""
    if name not in cli.COMMANDS:
        refuse(f"cocoamix {name} is not a command")
    parser = Parser(prog=f"cocoamix {name}")
    importlib.import_module(cli.COMMANDS[name][0]).add_arguments(parser)
    return parser


def check_run(words: list[str]) -> None:
    """Check the arguments of train.py: flags, trainer, configuration files, keys and values."""
    args = parse_arguments(name_files([word.replace("$", "") for word in words]))
    setup_cfg(args)


def check_plugin(words: list[str]) -> None:
    """Check what the plugin passes to another tree's train.py; only that tree has its datasets' configurations."""
    if words[0] == "--configs":
        parser_of("plugin").parse_args(words)
        return
    args = parse_arguments(words[1:])
    if any(word.startswith("--") for word in args.opts):
        refuse("train.py accepts flags only before KEY VALUE pairs")
    if not locate(args.config_file).is_file():
        refuse(f"{args.config_file} is not a file")


def check_cocoamix(words: list[str]) -> None:
    if words == ["--help"] or words[1:] == ["--help"]:
        return
    name, *rest = words
    if name == "train":
        check_run(rest)
    elif name == "plugin":
        check_plugin(rest)
    else:
        # `data` takes KEY VALUE pairs after its arguments.
        _, more = parser_of(name).parse_known_args([word for word in rest if word not in ("...]", "[RUN")])
        if more and (name != "data" or any(word.startswith("-") for word in more)):
            refuse(f"cocoamix {name} does not take {' '.join(more)}")


def check_python_file(path: str, words: list[str]) -> None:
    """Check that a script exists and knows the flags."""
    file = ROOT / path
    if not file.is_file():
        refuse(f"{path} is not a file")
    text = file.read_text(encoding="utf-8")
    for flag in (word.partition("=")[0] for word in words if word.startswith("--")):
        if f'"{flag}"' not in text:
            refuse(f"{path} does not take {flag}")


def check_pytest(words: list[str]) -> None:
    for word in words:
        if word.startswith("tests") and not (ROOT / word.partition("::")[0]).exists():
            refuse(f"{word} is not a file")


def check_python(words: list[str]) -> None:
    if words[0] != "-m":
        check_run(words[1:]) if words[0] == "train.py" else check_python_file(words[0], words[1:])
    elif words[1] in ("pytest", "mutmut", "pip"):
        check_pytest(words[2:])
    elif words[1] == "cocoamix":
        check_cocoamix(words[2:])
    elif words[1] == "cocoamix.plugin":
        check_plugin(words[2:])
    else:
        check_python_file(words[1].replace(".", "/") + ".py", words[2:])


def check_script(settings: dict[str, str], words: list[str]) -> None:
    """Check that a shell script exists, and the configurations that its variables name."""
    path, *arguments = words
    if not (ROOT / path).is_file():
        refuse(f"{path} is not a file")
    if path == "scripts/test.sh":
        check_pytest(arguments)
    if not path.startswith("scripts/cocoamix/"):
        return
    folder = settings.get("CONFIGS", settings.get("TRAINER", "CoCoAMixFSCIL" if "fscil" in path else "CoCoAMix"))
    if "CFG" in settings and not (ROOT / "configs" / "trainers" / folder / f"{settings['CFG']}.yaml").is_file():
        refuse(f"{folder} has no configuration {settings['CFG']}")
    named = [*settings.get("DATASETS", "").split(), settings.get("DATASET"), settings.get("SOURCE")]
    named += arguments[:1] if path.endswith(("base2new_train.sh", "_test.sh")) else []
    for dataset in filter(None, named):
        if not (ROOT / "configs" / "datasets" / f"{dataset}.yaml").is_file():
            refuse(f"{dataset} is not a dataset")


def check(command: Command) -> None:
    """Raise for a command that would not work as written."""
    program, *words = command.words or ["export"]
    if "tree" in command.mark and "cocoamix.plugin" not in words:  # a script of that tree
        return
    if "--import" in words:  # tests/docs/test_new_method.py runs it with its module
        return
    checks: dict[str, Callable[[list[str]], None]] = {
        "cocoamix": check_cocoamix,
        "python": check_python,
        "pytest": check_pytest,
    }
    if program in checks:
        checks[program](words)
    elif program == "bash":
        check_script(command.settings, words)
    elif program not in OTHERS:
        refuse(f"{program} is not a program that a page may name")


@EACH
def test_commands_are_accepted(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    wrong = []
    for command in COMMANDS[page]:
        try:
            check(command)
        except (UserError, SystemExit) as error:
            wrong.append(f"{' '.join(command.words)}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "line",
    [
        "cocoamix bnech run quick",
        "cocoamix bench walk quick",
        "cocoamix report output --no-such-flag x",
        "python -m cocoamix data chekc EuroSAT",
        "python train.py --trainer CoOp --config-file configs/trainers/CoOp/none.yaml",
        "python train.py --trainer CoOpp --config-file configs/trainers/CoOp/tiny.yaml",
        "python train.py --trainer CoOp --config-file configs/trainers/CoOp/tiny.yaml DATASET.NUM_SHOT 4",
        "python train.py --seeds 1",
        "python -m cocoamix.plugin train.py --config-file cocoamix:CoOp/none.yaml",
        "python -m cocoamix.plugin train.py --config-file cocoamix:CoOp/tiny.yaml DATASET.NUM_SHOTS 4 --seed 1",
        "python benchmarks/none.py",
        "python benchmarks/rules.py --none",
        "python -m cocoamix.none",
        "pytest tests/none",
        "bash scripts/none.sh",
        "CFG=none bash scripts/cocoamix/base2new.sh",
        "DATASETS=none bash scripts/cocoamix/base2new.sh",
        "nonesuch",
    ],
)
def test_invalid_commands_are_detected(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    ((settings, words),) = split(line)
    with pytest.raises((UserError, SystemExit)):
        check(Command("a page", line, settings, words, ""))


@EACH
def test_flags_in_the_text_exist(page: Path) -> None:
    """Flags of `cocoamix NAME --flag` in backquotes are flags of the command."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for words in re.findall(r"`cocoamix ([a-z]+ [^`]*)`", text):
        name = words.split()[0]
        known = parser_of(name).format_help() if name != "plugin" else "--configs --config-file"
        for kind in re.findall(r"[a-z]+", words)[1:2]:  # a command inside the command
            subparsers = [one for one in parser_of(name)._actions if isinstance(one, argparse._SubParsersAction)]
            known += "".join(one.choices[kind].format_help() for one in subparsers if kind in one.choices)
        for flag in re.findall(r"(?<!\S)\[?(--[a-z][a-z-]*)", words):
            assert flag in known, f"cocoamix {words}"


def test_first_plan_of_the_page_runs_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "BENCH.md").read_text(encoding="utf-8")
    (tmp_path / "my_plan.yaml").write_text(re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S)[0])
    monkeypatch.chdir(tmp_path)
    assert bench.main(["run", "my_plan.yaml", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert len(re.findall(r"--trainer (?:CoCoAMix|KgCoOp) .*--output-dir output/three", printed)) == 8
