"""The scripts start train.py as documented in docs/BASELINES.md, with each paper's own settings.

A fake interpreter prints its arguments.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from cocoamix.run.arguments import parse_arguments
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "BASELINES.md").read_text(encoding="utf-8")
OURS = ("CFG", "SHOTS", "TRAINER", "SOURCE", "CONFIGS", "SUB", "DATA", "DATASET", "DATASETS", "SEEDS", "TAG")
OURS += ("COCOAMIX_PYTHON", "PYTHON")

# The configuration of each method's own paper: base to new, the same on ImageNet, and trained to be transferred.
PAPERS = {
    "CoOp": ("vit_b16_ctxv1", "vit_b16_ep50_ctxv1", "vit_b16_ep50_ctxv1"),
    "CoCoOp": ("vit_b16_c4_ep10_batch1_ctxv1", "", "vit_b16_c4_ep10_batch1_ctxv1"),
    "KgCoOp": ("vit_b16_ep100_ctxv1", "vit_b16_ep50_ctxv1", "vit_b16_ep50_ctxv1"),
    "ProGrad": ("rn50_ep100", "rn50_ep50", "rn50_ep50"),
    "MaPLe": ("vit_b16_c2_ep5_batch4_2ctx", "", "vit_b16_c2_ep5_batch4_2ctx_cross_datasets"),
    "DePT": ("vit_b16_ep10_batch4", "", "vit_b16_ep10_batch4"),
    "DePTKgCoOp": ("vit_b16_ep10_batch4", "", ""),
    "TuneEn": ("En_ep5_batch128", "", "En_ep5_batch128"),
}


def start(tmp_path: Path, line: str, **environment: str) -> list[list[str]]:
    """Run a shell command; return the arguments of each train.py that it starts."""
    stand_in = tmp_path / "python"
    stand_in.write_text('#!/bin/sh\nprintf "%s\\037" "$@"\nprintf "\\n"\n')
    stand_in.chmod(0o755)
    clean = {key: value for key, value in os.environ.items() if key not in OURS}
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=ROOT,
        env={**clean, "COCOAMIX_PYTHON": str(stand_in), **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [one.split("\x1f")[:-1] for one in done.stdout.splitlines()]


def blocks() -> list[list[str]]:
    """Return the commands of the page, by block."""
    found = re.findall(r'```bash title="needs data"\n(.*?)```', PAGE, re.DOTALL)
    return [re.sub(r"\s*\\\n\s*", " ", block).splitlines() for block in found]


def commands(*words: str) -> list[str]:
    """Return the commands that contain all of the words, each preceded by the exports of its block."""
    found = []
    for block in blocks():
        exports = [line for line in block if line.startswith("export ")]
        found += [" && ".join([*exports, line]) for line in block if line not in exports]
    return [line for line in found if all(word in line for word in words)]


@pytest.mark.parametrize("line", [line for line in commands() if " bash " in line])
def test_documented_commands_start_the_documented_runs(tmp_path: Path, line: str) -> None:
    wanted = dict(re.findall(r"\b(TRAINER|CFG|SHOTS)=(\S+)", line))
    runs = start(tmp_path, line)
    assert runs
    for script, *rest in runs:
        args = parse_arguments(rest)
        assert script == "train.py"
        assert args.trainer == wanted["TRAINER"]
        assert (ROOT / args.config_file).is_file(), args.config_file
        assert (ROOT / args.dataset_config_file).is_file()
        assert "CFG" not in wanted or Path(args.config_file).stem == wanted["CFG"]
        given = dict(zip(args.opts[::2], args.opts[1::2], strict=True))
        assert "DATASET.NUM_SHOTS" not in given or given["DATASET.NUM_SHOTS"] == wanted.get("SHOTS", "4")


def test_command_without_a_script_is_a_valid_run() -> None:
    (line,) = commands("cocoamix train")
    args = parse_arguments(shlex.split(line)[2:])
    assert (args.trainer, args.eval_only) == ("ZeroshotCLIP", True)
    assert (ROOT / args.config_file).is_file()
    assert (ROOT / args.dataset_config_file).is_file()


@pytest.mark.parametrize("method", PAPERS)
def test_page_has_each_papers_settings(tmp_path: Path, method: str) -> None:
    elsewhere, on_imagenet, transferred = PAPERS[method]
    shots = "4" if method == "ProGrad" else "16"
    name = f"TRAINER={method} "
    (first, *_) = commands(name, "eurosat dtd", "base2new.sh", "SHOTS")
    assert f"CFG={elsewhere} SHOTS={shots} " in first
    others = commands(name, "DATASETS=imagenet")
    assert [f"CFG={on_imagenet} SHOTS={shots} " in line for line in others] == [True] * bool(on_imagenet)
    both = commands(name, "xd_", f"CFG={transferred} SHOTS={shots} ") if transferred else []
    assert len(both) == 2 * bool(transferred)
    if both:  # what is evaluated is what was trained
        (trained,), (tested,) = (start(tmp_path, line) for line in both)
        assert parse_arguments(trained[1:]).output_dir == parse_arguments(tested[1:]).model_dir


def test_prograd_strength_is_passed_on(tmp_path: Path) -> None:
    for line in commands("TRAINER=ProGrad", "LOSS.LAMBDA"):
        for run in start(tmp_path, line):
            assert run[run.index("LOSS.LAMBDA") + 1] == "0.8"
            assert run[run.index("DATASET.NUM_SHOTS") + 1] == "16"


def test_scripts_run_cocoamix_by_default(tmp_path: Path) -> None:
    train, test = start(tmp_path, "bash scripts/cocoamix/base2new.sh OPTIM.LR 0.1", DATASETS="dtd", SEEDS="2")
    for run in (train, test):
        args = parse_arguments(run[1:])
        assert args.config_file == "configs/trainers/CoCoAMix/vit_b16_ep50.yaml"
        assert (args.trainer, args.seed, args.opts[-2:]) == ("CoCoAMix", 2, ["OPTIM.LR", "0.1"])
    assert parse_arguments(test[1:]).model_dir == parse_arguments(train[1:]).output_dir
    (transfer,) = start(tmp_path, "bash scripts/cocoamix/xd_train.sh 1")
    assert parse_arguments(transfer[1:]).config_file == "configs/trainers/CoCoAMix/vit_b16_ep50_xd.yaml"


def test_comparison_ends_with_a_report(tmp_path: Path) -> None:
    """With the arguments of the report command."""
    line = "bash scripts/cocoamix/fscil_compare.sh"
    *runs, last = start(tmp_path, line, DATASET="warm_cool", CFG="tiny", SEEDS="1")
    assert [parse_arguments(run[1:]).trainer for run in runs] == [
        *("ZeroshotCLIPFSCIL", "CoOpFSCIL", "CoCoAMixFSCIL", "CoCoAMixFSCIL"),
    ]
    assert last[:4] == ["-m", "cocoamix", "report", "output/fscil/warm_cool"]


@pytest.mark.parametrize(("status", "trains"), [(0, False), (1, True), (2, False)])
def test_results_are_compared_with_what_train_py_would_get(tmp_path: Path, status: int, trains: bool) -> None:
    """In a copy of the scripts, so that the tree is not written to."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    folder = tmp_path / "output/base2new/train_base/dtd/shots_4/CoCoAMix/vit_b16_ep50/seed1"
    folder.mkdir(parents=True)
    (folder / "results.json").write_text("{}")
    stand_in = tmp_path / "python"
    stand_in.write_text(f'#!/bin/sh\nprintf "%s\\037" "$@"\nprintf "\\n"\n[ "$1" = train.py ] || exit {status}\n')
    stand_in.chmod(0o755)
    done = subprocess.run(
        ["bash", "scripts/cocoamix/base2new_train.sh", "dtd", "1", "OPTIM.LR", "a b"],
        cwd=tmp_path,
        env={**{key: value for key, value in os.environ.items() if key not in OURS}, "COCOAMIX_PYTHON": str(stand_in)},
        capture_output=True,
        text=True,
    )
    asked, *trained = [line.split("\x1f")[:-1] for line in done.stdout.splitlines() if "\x1f" in line]
    output = str(folder.relative_to(tmp_path))
    assert asked[:3] == ["-m", "cocoamix.finished", output]
    assert parse_arguments(asked[3:]).output_dir == output
    assert asked[-2:] == ["OPTIM.LR", "a b"]
    assert trained == ([["train.py", *asked[3:]]] if trains else [])
    assert done.returncode == (2 if status == 2 else 0)


@pytest.mark.parametrize("script", ["base2new_train.sh", "base2new_test.sh", "xd_train.sh", "xd_test.sh", "fscil.sh"])
def test_missing_arguments_print_the_usage(script: str) -> None:
    done = subprocess.run(["bash", str(ROOT / "scripts" / "cocoamix" / script)], capture_output=True, text=True)
    assert (done.returncode, f"usage: {script}" in done.stderr) == (2, True)


@pytest.mark.parametrize("script", sorted((ROOT / "scripts").rglob("*.sh")), ids=lambda path: path.name)
def test_temporary_file_names_are_unpredictable(script: Path) -> None:
    """Otherwise another user of the machine could put a link there."""
    text = script.read_text(encoding="utf-8")
    assert not re.search(r"TMPDIR|/tmp\b|\$\$", text)


# ---------------------------------------------------------------------- the interpreter


def executable(path: Path, lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return path


def tree(tmp_path: Path) -> Path:
    """A copy of the scripts, whose .venv has a fake interpreter that writes its arguments to `calls`."""
    folder = tmp_path / "tree"
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    command = f"{folder}/.venv/bin/cocoamix"
    answers = f"*--stamp) echo stamp;; *' -e .') printf '#!/bin/sh' >{command}; chmod +x {command};;"
    executable(folder / ".venv/bin/python", f'echo "$*" >>{folder}/calls\ncase "$*" in {answers} esac')
    return folder


def shell(script: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if key not in OURS}
    command = ["bash", str(script), *arguments]
    options = {"cwd": script.parent, "env": {**clean, **environment}}
    return subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload,no-any-return]


def test_scripts_use_the_tree_environment(tmp_path: Path) -> None:
    folder = tree(tmp_path)
    script = folder / "scripts/cocoamix/xd_train.sh"
    assert shell(script, "1").returncode == 0
    (call,) = (folder / "calls").read_text().splitlines()
    assert call.startswith("train.py --seed 1 ")
    executable(folder / "scripts/cocoamix/mine", "echo mine")  # relative to the working directory
    assert shell(script, "1", COCOAMIX_PYTHON="./mine").stdout == "mine\n"
    assert len((folder / "calls").read_text().splitlines()) == 1
    done = shell(script, "1", COCOAMIX_PYTHON="./nothing")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "COCOAMIX_PYTHON" in done.stderr


def test_python_variable_is_ignored_with_a_notice(tmp_path: Path) -> None:
    """The notice appears once, also if scripts start scripts, and not for an interpreter that a script chose itself."""
    folder = tree(tmp_path)
    executable(folder / ".venv/bin/cocoamix", "")
    mine = str(executable(tmp_path / "mine", "echo mine"))
    message = f"PYTHON is {mine}, which the scripts do not read. Set COCOAMIX_PYTHON to choose the interpreter.\n"
    scripts = folder / "scripts"
    for script, *arguments in (["quickstart.sh"], ["test.sh"], ["cocoamix/xd_train.sh", "1"]):
        done = shell(scripts / script, *arguments, PYTHON=mine)
        assert (done.returncode, done.stderr.count(message)) == (0, 1), done.stderr
        assert "mine" not in done.stdout
    for script in ("base2new.sh", "fscil_compare.sh"):
        done = shell(scripts / "cocoamix" / script, PYTHON=mine, SEEDS="1 2")
        assert (done.returncode, done.stderr) == (0, message)
    assert message not in shell(scripts / "cocoamix/xd_train.sh", "1", PYTHON=mine, COCOAMIX_PYTHON=mine).stderr
    assert shell(scripts / "cocoamix/xd_train.sh", "1", PYTHON="").stderr == ""


def test_child_scripts_print_no_notice(tmp_path: Path) -> None:
    """The interpreter of test.sh starts scripts, too."""
    folder = tree(tmp_path)
    executable(folder / ".venv/bin/cocoamix", "")
    stand_in = folder / ".venv/bin/python"
    nested = f'case "$*" in *pytest*) bash {folder}/scripts/cocoamix/xd_train.sh 1;; esac\n'
    stand_in.write_text(stand_in.read_text() + nested)
    done = shell(folder / "scripts/test.sh")
    assert done.returncode == 0, done.stderr
    assert "train.py --seed 1" in (folder / "calls").read_text()
    assert "PYTHON is" not in done.stderr


def test_tree_environment_has_the_command(tmp_path: Path) -> None:
    """It is installed once, and again if it is missing or the packages are reinstalled."""
    folder = tree(tmp_path)
    environment, calls = folder / "scripts/environment.sh", folder / "calls"

    def installed() -> list[str]:
        calls.write_text("")
        assert shell(environment).returncode == 0
        found = re.findall(r"^-m pip install .*?(-r \S+|-e \.)$", calls.read_text(), re.M)
        assert all(
            "--no-deps --no-build-isolation" in line for line in calls.read_text().splitlines() if "-e ." in line
        )
        return found

    assert installed() == ["-r requirements.txt", "-e ."]
    assert installed() == []
    (folder / ".venv/bin/cocoamix").unlink()
    assert installed() == ["-e ."]
    (folder / ".venv/.installed").write_text("of another folder")
    assert installed() == ["-r requirements.txt", "-e ."]
