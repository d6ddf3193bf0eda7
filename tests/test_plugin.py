"""Our trainers inside another tree, whose own train.py, trainers and datasets do not know them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cocoamix import plugin
from cocoamix.config import shipped
from cocoamix.errors import UserError
from cocoamix.io import checkpoints
from tests.conftest import ROOT, TINY

# A minimal version of CoOp's train.py: it recreates TRAINER.COOP, merges with yacs, and names its own modules.
TRAIN = """
# first
import argparse
from dassl.config import get_cfg_default
from dassl.engine import TRAINER_REGISTRY, build_trainer
from dassl.utils import set_random_seed, setup_logger
from yacs.config import CfgNode
import datasets.land
import trainers.coop
# last

parser = argparse.ArgumentParser()
for flag in ("--root", "--output-dir", "--config-file", "--trainer", "--model-dir"):
    parser.add_argument(flag, default="")
parser.add_argument("--eval-only", action="store_true")
parser.add_argument("opts", nargs=argparse.REMAINDER)
args = parser.parse_args()
cfg = get_cfg_default()
cfg.TRAINER.COOP = CfgNode({"N_CTX": 4, "CTX_INIT": False})
cfg.DATASET.SUBSAMPLE_CLASSES = "all"
cfg.merge_from_file(args.config_file)
cfg.DATASET.NAME, cfg.DATASET.ROOT, cfg.OUTPUT_DIR, cfg.SEED = "EuroSAT", args.root, args.output_dir, 1
cfg.TRAINER.NAME = args.trainer
cfg.merge_from_list(args.opts)
cfg.freeze()
set_random_seed(cfg.SEED)
setup_logger(cfg.OUTPUT_DIR)
print("CoOp of", TRAINER_REGISTRY.get("CoOp").__module__)
trainer = build_trainer(cfg)
if args.eval_only:
    trainer.load_model(args.model_dir)
    trainer.test()
else:
    trainer.train()
"""
COOP = """
from dassl.engine import TRAINER_REGISTRY, TrainerX

@TRAINER_REGISTRY.register()
class CoOp(TrainerX):
    pass
"""
LAND = """
from dassl.data.datasets import DATASET_REGISTRY, DatasetBase, Datum
import json, os

@DATASET_REGISTRY.register()
class EuroSAT(DatasetBase):
    def __init__(self, cfg):
        print("the tree's own loader")
        folder = os.path.join(cfg.DATASET.ROOT, "eurosat")
        with open(os.path.join(folder, "split_zhou_EuroSAT.json")) as file:
            split = json.load(file)
        parts = {
            part: [Datum(os.path.join(folder, "2750", path), label, 0, name) for path, label, name in rows]
            for part, rows in split.items()
        }
        super().__init__(train_x=parts["train"][::6], val=parts["val"], test=parts["test"][::2])
"""

STAND_IN = ROOT / "cocoamix" / "fallback"
# What the files above use of Dassl and the stand-in does not have.
ENGINE = "\nclass TrainerX:\n    pass\n"
UTILS = """
import os, sys
from cocoamix.seeding import set_random_seed

class Tee:
    def __init__(self, console, file):
        self.console, self.file = console, file

    def write(self, text):
        self.console.write(text)
        self.file.write(text)
        self.flush()

    def flush(self):
        self.console.flush()
        self.file.flush()

def setup_logger(folder):
    os.makedirs(folder, exist_ok=True)
    sys.stdout = Tee(sys.stdout, open(os.path.join(folder, "log.txt"), "w"))
"""
Starter = Callable[..., subprocess.CompletedProcess[str]]


def write_tree(folder: Path) -> Path:
    for name, text in {"train.py": TRAIN, "trainers/coop.py": COOP, "datasets/land.py": LAND}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for package in ("trainers", "datasets"):
        (folder / package / "__init__.py").touch()
    return folder


def write_dassl(folder: Path) -> Path:
    """Write a small Dassl that is not the stand-in; return the folder to search."""
    shutil.copytree(STAND_IN / "dassl", folder / "dassl")
    for module, more in {"engine": ENGINE, "utils": UTILS}.items():
        with (folder / "dassl" / module / "__init__.py").open("a") as file:
            file.write(more)
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "tree")


@pytest.fixture
def start(tree: Path, data_root: Path, tmp_path: Path) -> Starter:
    config = tmp_path / "tiny.yaml"
    config.write_text(TINY)
    dassl = write_dassl(tmp_path / "engine")

    def starter(
        *command: str, trainer: str, name: str = "run", extra: tuple[str, ...] = (), engine: Path = dassl
    ) -> object:
        flags = ["--root", str(data_root), "--trainer", trainer, "--output-dir", str(tmp_path / name)]
        flags += ["--config-file", str(config)]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{engine}", "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [sys.executable, *command, *flags, *extra], cwd=tree, env=environment, capture_output=True, text=True
        )

    return starter  # type: ignore[return-value]


QUICK = ("OPTIM.MAX_EPOCH", "1", "DATALOADER.TRAIN_X.BATCH_SIZE", "10")


def test_train_and_evaluate_without_an_edit(start: Starter, tree: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    done = start("-m", "cocoamix.plugin", "train.py", trainer="CoCoAMix", extra=QUICK)
    assert done.returncode == 0, done.stderr
    assert "CoOp of trainers.coop" in done.stdout  # theirs, although ours was registered first
    assert "the tree's own loader" in done.stdout
    assert (tmp_path / "run" / "coa_weights" / "model.pth.tar-1").is_file()
    log = (tmp_path / "run" / "log.txt").read_text()
    assert log.index("Finish training") < log.index("* accuracy: ")
    assert {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()} == before


def test_a_failed_start_leaves_no_log(start: Starter, tmp_path: Path) -> None:
    """Ours, with `--eval-only` and a folder without a model; then a start that trains."""
    command = ("-m", "cocoamix.plugin", "train.py")
    failed = start(*command, trainer="CoCoAMix", extra=("--eval-only", "--model-dir", "nowhere", *QUICK))
    assert failed.returncode == 2
    assert "nowhere" in failed.stderr
    assert not list((tmp_path / "run").glob("log.txt*"))
    assert start(*command, trainer="CoCoAMix", extra=QUICK).returncode == 0
    assert [path.name for path in (tmp_path / "run").glob("log.txt*")] == ["log.txt"]


def test_a_script_is_refused_without_dassl(start: Starter, tmp_path: Path) -> None:
    done = start("-m", "cocoamix.plugin", "train.py", trainer="CoCoAMix", engine=STAND_IN)
    assert done.returncode == 2
    assert "train.py belongs to a code base that needs Dassl, which is not installed" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_an_import_after_theirs_registers_our_trainers(start: Starter, tree: Path, tmp_path: Path) -> None:
    """Our CoOp under its prefix, with a section TRAINER.COOP that lacks most of our keys."""
    script = tree / "train.py"
    script.write_text(script.read_text().replace("# last", "import cocoamix.trainers"))
    done = start("train.py", trainer="cocoamix.CoOp", extra=QUICK)
    assert done.returncode == 0, done.stderr
    assert "CoOp of trainers.coop" in done.stdout
    context = checkpoints.load(tmp_path / "run" / "prompt_learner" / "model.pth.tar-1")["state_dict"]["ctx"]
    assert context.shape[0] == 4
    assert torch.isfinite(context).all()


def test_a_script_is_run_as_python_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "script.py").write_text(
        "import sys, beside\n"
        "from cocoamix.errors import UserError\n"
        "print(__name__, sys.argv[1:], beside.__file__)\n"
        "raise UserError('LR is wrong.')\n"
    )
    (tmp_path / "beside.py").touch()
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(plugin, "uses_fallback", lambda: False)
    script = str(tmp_path / "script.py")
    assert plugin.main([script, "--trainer", "CoOp", "A.B", "1"]) == 2
    printed = capsys.readouterr()
    assert f"__main__ ['--trainer', 'CoOp', 'A.B', '1'] {tmp_path / 'beside.py'}" in printed.out
    assert printed.err == "error: LR is wrong.\n"
    assert "" not in sys.path  # the script's folder replaced the current one


@pytest.mark.parametrize(("raised", "known"), [("UserError('LR is wrong.')", True), ("ValueError('LR')", False)])
def test_a_user_error_behind_a_scripts_exception_is_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    raised: str,
    known: bool,
) -> None:
    """DePT's train.py replaces every exception with its own."""
    (tmp_path / "script.py").write_text(
        "from cocoamix.errors import UserError\n"
        f"try:\n    raise {raised}\n"
        "except:\n    raise Exception('Training task does not run successfully!')\n"
    )
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(plugin, "uses_fallback", lambda: False)
    if not known:
        with pytest.raises(Exception, match="does not run successfully"):
            plugin.main([str(tmp_path / "script.py")])
        return
    assert plugin.main([str(tmp_path / "script.py")]) == 2
    assert capsys.readouterr().err == "error: LR is wrong.\n"


def test_our_datasets_work_without_our_trainers(data_root: Path) -> None:
    """Only `import cocoamix.datasets`: the loaders work with the defaults that Dassl then has."""
    code = (
        "import sys, cocoamix.datasets\n"
        "from dassl.config import get_cfg_default\n"
        "from dassl.data.datasets import build_dataset\n"
        "cfg = get_cfg_default()\n"
        f"cfg.DATASET.NAME, cfg.DATASET.ROOT, cfg.DATASET.NUM_SHOTS = 'EuroSAT', {str(data_root)!r}, 2\n"
        "assert len(build_dataset(cfg).train_x) == 20\n"
        "assert 'COCOAMIX' not in cfg.TRAINER and 'cocoamix.trainers' not in sys.modules\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_missing_script_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(["nothing.py"]) == 2
    assert "There is no script nothing.py" in capsys.readouterr().err


def test_the_usage_names_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        plugin.main(["--help"])
    assert "usage: cocoamix plugin train.py ..." in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        plugin.main([])
    assert end.value.code == 2
    assert "--configs" in capsys.readouterr().err


def test_named_configurations_are_replaced_by_their_files() -> None:
    file = str(shipped.folder() / "trainers/CoCoAMix/vit_b16_ep50.yaml")
    data = str(shipped.folder() / "datasets/eurosat.yaml")
    given = ["--config-file", "cocoamix:CoCoAMix/vit_b16_ep50.yaml", "--dataset-config-file=cocoamix:eurosat.yaml"]
    assert plugin.name_files(given) == ["--config-file", file, f"--dataset-config-file={data}"]
    assert plugin.name_files(["--conf", "cocoamix:trainers/CoCoAMix/vit_b16_ep50.yaml"]) == ["--conf", file]
    untouched = ["--root", "cocoamix:x", "--config-file", "configs/own.yaml", "--config-file"]
    assert plugin.name_files(untouched) == untouched
    untouched = ["--dataset-config-file", "", "--config-file", "a"]
    assert plugin.name_files(untouched) == untouched
    with pytest.raises(UserError, match=r"Did you mean CoCoAMix/vit_b16_ep50\.yaml"):
        shipped.locate("cocoamix:CoCoAMix/vit_b16_ep5.yaml")
    with pytest.raises(UserError, match="no configuration"):
        shipped.locate("cocoamix:../setup.py")


def test_copied_configurations_replace_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "configs"
    (target / "trainers" / "CoCoAMix").mkdir(parents=True)
    (target / "trainers" / "CoCoAMix" / "tiny.yaml").write_text("mine")
    assert plugin.main(["--configs", str(target), "CoCoAMix"]) == 0
    assert "tiny.yaml exists and differs" in capsys.readouterr().out
    assert (target / "trainers" / "CoCoAMix" / "tiny.yaml").read_text() == "mine"
    ours = shipped.folder() / "trainers" / "CoCoAMix" / "vit_b16_ep50.yaml"
    assert (target / "trainers" / "CoCoAMix" / "vit_b16_ep50.yaml").read_bytes() == ours.read_bytes()
    assert sorted(path.name for path in (target / "trainers").iterdir()) == ["CoCoAMix"]
    assert plugin.main(["--configs", str(target)]) == 0
    assert sorted(path.relative_to(target).as_posix() for path in target.rglob("*.yaml")) == shipped.names()
    assert plugin.main(["--configs", str(target), "CoCoA"]) == 2
    assert "Did you mean CoCoAMix?" in capsys.readouterr().err


@pytest.mark.parametrize("name", shipped.names())
def test_configurations_load_with_plain_yacs(name: str) -> None:
    """Another tree merges them with yacs, which accepts no integer for a default like 1.0."""
    from dassl.config import get_cfg_default

    import cocoamix.trainers  # noqa: F401

    get_cfg_default().merge_from_file(str(shipped.folder() / name))


def test_missing_keys_are_completed() -> None:
    from dassl.config import get_cfg_default
    from yacs.config import CfgNode

    from cocoamix.config import keys as config

    cfg = get_cfg_default()
    cfg.TRAINER.COOP = CfgNode({"N_CTX": 7, "W": 8.0})
    del cfg.INPUT["RRCROP_SCALE"]  # as in the fork that KgCoOp and ProGrad include
    cfg.freeze()
    full = config.complete(cfg)
    assert (full.TRAINER.COOP.N_CTX, full.TRAINER.COOP.W, full.TRAINER.COOP.PREC) == (7, 8.0, "auto")
    assert tuple(full.INPUT.RRCROP_SCALE) == (0.08, 1.0)
    assert full.is_frozen()
    assert "PREC" not in cfg.TRAINER.COOP
    config.check_common(full)
