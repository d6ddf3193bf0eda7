"""Inside the real trees of CoOp, KgCoOp, MaPLe, PromptSRC and DePT, if environment variables name them.

    DASSL_TREE=Dassl.pytorch COOP_TREE=CoOp MAPLE_TREE=multimodal-prompt-learning pytest tests/test_trees.py

Each variable of TREES is a folder with a train.py. DASSL_TREE is the folder that holds `dassl/`; KgCoOp takes the fork
next to it. All are copied and never written to. The runs are of a tiny random CLIP on generated images, so they say
nothing about accuracy.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from cocoamix.io import checkpoints
from tests.conftest import ROOT, TINY, write_dataset

TREES = ("COOP_TREE", "KGCOOP_TREE", "MAPLE_TREE", "PROMPTSRC_TREE", "DEPT_TREE")
NAMED = [name for name in TREES if os.environ.get(name)]
pytestmark = pytest.mark.skipif(
    not NAMED or not os.environ.get("DASSL_TREE"), reason="DASSL_TREE and the variables of TREES name no trees"
)
CONFIG = TINY.replace("MAX_EPOCH: 4", "MAX_EPOCH: 2")
PLUGIN = ("-m", "cocoamix.plugin", "train.py")
LINE = "import cocoamix.trainers\n"

# Dassl imports `wilds` for datasets, and DePT `plotnine` for plots, that nothing here uses; a torchvision for CUDA does
# not import with a CPU torch.
STUBS = {
    "wilds": "get_dataset = None\n",
    "plotnine": "",
    "torchvision": "from cocoamix.compat import ensure_torchvision\nensure_torchvision()\n",
}


def imports(module: str) -> bool:
    return subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True).returncode == 0


def contents(folder: Path) -> dict[str, str]:
    """Return the hash of every file of a folder."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


@dataclass
class Place:
    """A copy of the tree, with an environment in which cocoamix is installed."""

    name: str  # of the environment variable
    given: Path
    tree: Path
    scratch: Path
    environment: dict[str, str]

    def python(self, *arguments: str, status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.tree, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == status, (done.stdout + done.stderr)[-3000:]
        return done.stdout + done.stderr

    def run(self, *command: str, name: str, subset: str = "base", extra: tuple[str, ...] = ()) -> Path:
        """Run the tree's train.py; return the output folder of the run."""
        folder = self.scratch / name / subset / "seed1"
        self.python(
            *command, *flags(self.scratch / "data", self.scratch / "tiny.yaml", folder), *extra, *subset_of(subset)
        )
        return folder


def flags(data: Path, config: Path, folder: Path, trainer: str = "CoCoAMix") -> list[str]:
    named = {"--root": data, "--seed": 1, "--trainer": trainer, "--config-file": config, "--output-dir": folder}
    named["--dataset-config-file"] = "configs/datasets/eurosat.yaml"
    return [str(part) for pair in named.items() for part in pair]


def subset_of(subset: str) -> list[str]:
    return ["DATASET.NUM_SHOTS", "4", "DATASET.SUBSAMPLE_CLASSES", subset]


@pytest.fixture(scope="module", params=NAMED or TREES[:1])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, wheel: zipfile.ZipFile) -> Place:
    given, dassl = Path(os.environ[request.param]), os.environ["DASSL_TREE"]
    if request.param == "KGCOOP_TREE" and (given.parent / "Dassl.ProGrad.pytorch").is_dir():
        dassl = str(given.parent / "Dassl.ProGrad.pytorch")
    scratch = tmp_path_factory.mktemp("trees")
    ignored = shutil.ignore_patterns(".git", "__pycache__", "output")
    shutil.copytree(given, scratch / "tree", ignore=ignored)
    wheel.extractall(scratch / "site")
    shutil.copytree(Path(dassl, "dassl"), scratch / "engine" / "dassl", ignore=ignored)
    searched = [scratch / "site", scratch / "engine"]
    for module, text in STUBS.items():
        if not imports(module):
            name = "sitecustomize" if module == "torchvision" else module
            (scratch / "stubs").mkdir(exist_ok=True)
            (scratch / "stubs" / f"{name}.py").write_text(text)
            searched.append(scratch / "stubs")
    (scratch / "tiny.yaml").write_text(CONFIG)
    write_dataset(scratch / "data")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, searched)), "PYTHONDONTWRITEBYTECODE": "1"}
    return Place(request.param, given, scratch / "tree", scratch, environment)


@pytest.fixture(scope="module")
def trained(place: Place) -> Path:
    """A run on the base classes by the plugin command."""
    return place.run(*PLUGIN, name="plugin")


def context(folder: Path) -> torch.Tensor:
    return checkpoints.load(folder / "prompt_learner" / "model.pth.tar-2")["state_dict"]["ctx"]


def parsed(place: Place, folder: Path, *extra: str) -> float:
    """Return what the tree's own parser reads from a run's log."""
    printed = place.python("parse_test_res.py", str(folder.parent), *extra)
    return float(re.findall(r"\* accuracy: ([\d.]+)% \+-", printed)[-1])


def check_parser(place: Place, trained: Path, tested: Path) -> None:
    """Compare the accuracies that the tree's parser finds with those in the logs."""
    if (place.tree / "parse_test_res.py").is_file():  # not in DePT
        assert parsed(place, tested, "--test-log") == logged(tested)
        assert parsed(place, trained) == logged(trained)


def logged(folder: Path) -> float:
    return float(re.findall(r"\* accuracy: ([\d.]+)%", (folder / "log.txt").read_text())[-1])


def test_their_parser_reads_our_logs_and_the_tree_is_unchanged(place: Place, trained: Path) -> None:
    given = contents(place.given)
    loaded = ("--eval-only", "--model-dir", str(trained), "--load-epoch", "2")
    tested = place.run(*PLUGIN, name="plugin", subset="new", extra=loaded)
    check_parser(place, trained, tested)
    log = (trained / "log.txt").read_text()
    assert log.index("Finish training\nFinished training\n") < log.index("=> result\n* total: ")
    assert re.search(r"^epoch \[1/2\] batch \[1/\d+\] time .* loss [\d.]+ \([\d.]+\) .* lr \S+ eta \S+$", log, re.M)
    assert list((trained / "tensorboard").glob("events.*"))
    for name, digest in contents(place.tree).items():
        assert given[name] == digest, name


@pytest.mark.parametrize("first", [True, False])
def test_import_line_gives_the_same_run(place: Place, trained: Path, first: bool) -> None:
    """The line before all of their imports, or after them."""
    text = (place.tree / "train.py").read_text()
    last = re.findall(r"^import trainers(?:\.\w+)?\n", text, re.M)[-1]
    script = place.tree / "train_with_line.py"
    script.write_text(LINE + text if first else text.replace(last, last + LINE))
    try:
        folder = place.run(script.name, name=f"line-{first}")
    finally:
        script.unlink()
    assert torch.equal(context(folder), context(trained))


# The plugin, in a process that stops after the first epoch.
STOPPED = """
import os, sys, cocoamix.plugin, cocoamix.checkpoint as checkpoint
save = checkpoint.save_resume
def stop(trainer, epochs):
    save(trainer, epochs)
    if epochs == 1:
        sys.stdout.flush()
        os._exit(3)
checkpoint.save_resume = stop
cocoamix.plugin.main(sys.argv[1:])
"""


def test_a_stopped_run_resumes_exactly(place: Place, trained: Path) -> None:
    folder = place.scratch / "stopped"
    named = [*flags(place.scratch / "data", place.scratch / "tiny.yaml", folder), *subset_of("base")]
    place.python("-c", STOPPED, "train.py", *named, status=3)
    assert not list(folder.glob("*/model.pth.tar-2"))
    place.python(*PLUGIN, *named)
    assert torch.equal(context(folder), context(trained))
    results = [json.loads((run / "results.json").read_text())["metrics"] for run in (folder, trained)]
    assert results[0] == results[1]


def test_training_gives_the_same_context_as_in_our_tree(place: Place, trained: Path) -> None:
    """Our own train.py without Dassl, from a separate data folder, so that the few shots are drawn again."""
    data, folder = write_dataset(place.scratch / "data-ours"), place.scratch / "ours"
    command = [sys.executable, "train.py", *flags(data, place.scratch / "tiny.yaml", folder), *subset_of("base")]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    start = checkpoints.load(folder / "prompt_learner" / "model.pth.tar-2")["state_dict"]["ctx"]
    assert (start - context(trained)).abs().max() <= 1e-5


def test_trainers_of_the_same_name_get_a_prefix(place: Place) -> None:
    """Theirs stays in either order; ours trains under its prefix, with their version of TRAINER.COOP."""
    for order in ("cocoamix.trainers, trainers.coop", "trainers.coop, cocoamix.trainers"):
        code = (
            f"import cocoamix; from cocoamix.compat import ensure_torchvision; ensure_torchvision(); import {order}\n"
            "from dassl.engine import TRAINER_REGISTRY as t\n"
            "assert t.get('CoOp').__module__ == 'trainers.coop'\n"
            "assert t.get('cocoamix.CoOp').__module__ == 'cocoamix.trainers.coop'\n"
        )
        place.python("-c", code)
    folder = place.scratch / "prefixed"
    named = flags(place.scratch / "data", place.scratch / "tiny.yaml", folder, trainer="cocoamix.CoOp")
    place.python(*PLUGIN, *named, "TRAINER.COOP.PREC", "fp32", *subset_of("base"))
    assert context(folder).shape[0] == 4
    named = flags(place.scratch / "data", place.scratch / "tiny.yaml", place.scratch / "prefixed-new", "cocoamix.CoOp")
    loaded = ("--eval-only", "--model-dir", str(folder), "--load-epoch", "2", "TRAINER.COOP.PREC", "fp32")
    place.python(*PLUGIN, *named, *loaded, *subset_of("new"))


def test_our_keys_can_be_set(place: Place) -> None:
    """Also where train.py removes the sections of other trainers before it sets any key, as DePT's does."""
    folder = place.scratch / "keys"
    named = flags(place.scratch / "data", place.scratch / "tiny.yaml", folder)
    place.python(*PLUGIN, *named, "TRAINER.COCOAMIX.W", "5.0", *subset_of("base"))
    assert json.loads((folder / "results.json").read_text())["config"]["TRAINER"]["COCOAMIX"]["W"] == 5.0
    printed = place.python(*PLUGIN, *named, "TRAINER.COCOAMIX.LOSS", "nonsense", *subset_of("base"), status=2)
    assert "error: TRAINER.COCOAMIX.LOSS is 'nonsense'" in printed
    assert "Traceback" not in printed


def test_maple_trains_with_the_clip_of_the_tree(place: Place) -> None:
    """Our MaPLe, which reads the layers of the image tower that the tree's own `clip` folder builds."""
    folder = place.scratch / "maple"
    named = flags(place.scratch / "data", place.scratch / "tiny.yaml", folder, trainer="cocoamix.MaPLe")
    place.python(*PLUGIN, *named, "TRAINER.MAPLE.PREC", "fp32", "TRAINER.MAPLE.PROMPT_DEPTH", "2", *subset_of("base"))
    versions = json.loads((folder / "results.json").read_text())["versions"]
    assert versions["clip"] == "folder"


def test_our_datasets_work_without_our_trainers(place: Place) -> None:
    place.python(
        "-c",
        "import sys, cocoamix.datasets\n"
        "from dassl.config import get_cfg_default\n"
        "from dassl.data.datasets import build_dataset\n"
        "cfg = get_cfg_default()\n"
        f"cfg.DATASET.NAME, cfg.DATASET.ROOT = 'cocoamix.EuroSAT', {str(place.scratch / 'data')!r}\n"
        "cfg.DATASET.NUM_SHOTS, cfg.SEED = 3, 1\n"
        "assert len(build_dataset(cfg).train_x) == 30\n"
        "assert 'cocoamix.trainers' not in sys.modules\n",
    )


def test_their_scripts_train_our_trainers(place: Place) -> None:
    """Their base2new scripts with another TRAINER, by the substitutions that docs/DROP_IN.md shows."""
    found = sorted(place.tree.glob("scripts/**/base2new_train.sh"))
    if not found:
        pytest.skip("the tree has no base2new scripts")
    (place.tree / "configs" / "trainers" / "CoCoAMix").mkdir()
    (place.tree / "configs" / "trainers" / "CoCoAMix" / "tiny.yaml").write_text(CONFIG)
    changes = {"DATA": place.scratch / "data", "TRAINER": "CoCoAMix", "CFG": "tiny", "SHOTS": 4, "LOADEP": 2}
    made = found[0].parent.parent / "cocoamix" if found[0].parent.name != "scripts" else found[0].parent
    made.mkdir(exist_ok=True)
    for name in ("base2new_train.sh", "base2new_test.sh"):
        text = (found[0].parent / name).read_text().replace("python train.py", "$PYTHON -m cocoamix.plugin train.py")
        for variable, value in changes.items():
            text = re.sub(rf"^{variable}=.*", f"{variable}={value}", text, flags=re.M)
        text = re.sub(r"^for SEED in .*", "for SEED in 1", text, flags=re.M)
        (made / f"cocoamix_{name}").write_text(text)
        environment = {**place.environment, "PYTHON": sys.executable}
        second = "8.0" if "WEIGHT=$2" in text else "1"  # KgCoOp's weight, or the seed
        # Some change to the top of the tree themselves; the others are started there.
        start = made if re.search(r"^cd \.\.", text, re.M) else place.tree
        command = ["bash", str(made / f"cocoamix_{name}"), "eurosat", second]
        done = subprocess.run(command, cwd=start, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
    results = sorted(path.parent for path in place.tree.glob("output/base2new/*/eurosat/*/CoCoAMix/tiny/seed1/log.txt"))
    assert [path.relative_to(place.tree / "output" / "base2new").parts[0] for path in results] == [
        "test_new",
        "train_base",
    ]
    check_parser(place, results[1], results[0])
