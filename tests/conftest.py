"""What the tests share: a small generated dataset in CoOp's layout, a tiny random CLIP, and a way to run train.py."""

from __future__ import annotations

import atexit
import contextlib
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Some virtual machines announce AMX and cannot run it; bf16 would end the test process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
# The models of most tests are too small to share among threads; one thread is faster, above all beside other work.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell starts background jobs with SIGINT ignored, children inherit that, and tests that interrupt one would hang.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Stored features of tests stay out of the user's own.
os.environ["COCOAMIX_CACHE"] = tempfile.mkdtemp(prefix="cocoamix-tests-")

import cocoamix  # noqa: F401  (before dassl)

# isort: split
import numpy as np
import pytest
from PIL import Image

from cocoamix.clip import FrozenCLIP, load_clip

atexit.register(shutil.rmtree, os.environ["COCOAMIX_CACHE"], ignore_errors=True)

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
CLASSES = ["Annual Crop Land", "Forest", "Herbaceous Vegetation Land", "Highway or Road", "Industrial Buildings"]
CLASSES += ["Pasture Land", "Permanent Crop Land", "Residential Buildings", "River", "Sea or Lake"]

TINY = """
DATALOADER:
  TRAIN_X: {BATCH_SIZE: 8}
  TEST: {BATCH_SIZE: 20}
  NUM_WORKERS: 0
INPUT:
  SIZE: (32, 32)
  INTERPOLATION: "bicubic"
  PIXEL_MEAN: [0.48145466, 0.4578275, 0.40821073]
  PIXEL_STD: [0.26862954, 0.26130258, 0.27577711]
  TRANSFORMS: ["random_resized_crop", "random_flip", "normalize"]
OPTIM: {NAME: "sgd", LR: 0.02, MAX_EPOCH: 4, LR_SCHEDULER: "cosine", WARMUP_EPOCH: 1, WARMUP_TYPE: "constant"}
TRAIN: {PRINT_FREQ: 1}
MODEL: {BACKBONE: {NAME: "tiny", WEIGHTS: "random"}}
TRAINER: {COOP: {N_CTX: 4}}
"""


def write_dataset(root: Path, train: int = 6, val: int = 4, test: int = 4) -> Path:
    """Write a dataset of ten coloured classes in EuroSAT's layout."""
    generator = np.random.default_rng(0)
    split: dict[str, list[tuple[str, int, str]]] = {"train": [], "val": [], "test": []}
    for label, name in enumerate(CLASSES):
        colour = generator.integers(0, 256, size=3)
        folder = root / "eurosat" / "2750" / name.replace(" ", "")
        folder.mkdir(parents=True)
        for number, part in enumerate(["train"] * train + ["val"] * val + ["test"] * test):
            pixels = np.clip(colour + generator.normal(0, 40, size=(40, 36, 3)), 0, 255).astype(np.uint8)
            file = folder / f"{name.replace(' ', '')}_{number}.png"
            Image.fromarray(pixels).save(file)
            split[part].append((f"{folder.name}/{file.name}", label, name))
    (root / "eurosat" / "split_zhou_EuroSAT.json").write_text(json.dumps(split))
    return root


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files of the project: those that git knows, or those that a source distribution lists."""
    folder = tmp_path_factory.mktemp("source")
    found = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    listed = ROOT / "cocoamix.egg-info" / "SOURCES.txt"
    if found.returncode and not listed.is_file():
        pytest.skip("neither a git checkout nor a source distribution")
    for name in (listed.read_text() if found.returncode else found.stdout).splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """What `pip install` would install of this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(source, folder / "source")  # building leaves files there
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(folder), "."]
    done = subprocess.run(build, cwd=folder / "source", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(next(folder.glob("*.whl")))


@pytest.fixture
def data_root(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "data")


@pytest.fixture(scope="session")
def tiny_clip() -> FrozenCLIP:
    return load_clip("tiny", "random", precision="fp32")


@dataclass
class Run:
    """A finished run of train.py."""

    status: int
    output: str
    folder: Path

    @property
    def results(self) -> dict[str, Any]:
        return json.loads((self.folder / "results.json").read_text())  # type: ignore[no-any-return]

    @property
    def log(self) -> str:
        return (self.folder / "log.txt").read_text()


Runner = Callable[..., Run]


def epochs(folder: Path) -> list[dict[str, str]]:
    """Return the rows of a run's metrics.csv without the times."""
    with (folder / "metrics.csv").open(newline="") as file:
        return [{name: cell for name, cell in row.items() if name != "seconds"} for row in csv.DictReader(file)]


def command(data: Path, folder: Path, config: Path, *extra: str, trainer: str = "CoOp", seed: str = "1") -> list[str]:
    """Return the arguments of train.py for a tiny run."""
    dataset = ROOT / "configs" / "datasets" / "eurosat.yaml"
    files = ["--dataset-config-file", str(dataset), "--config-file", str(config)]
    flags = ["--root", str(data), "--seed", seed, "--trainer", trainer, "--output-dir", str(folder)]
    return [*flags, *files, *extra]


@pytest.fixture
def tiny_config(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


@pytest.fixture
def run(data_root: Path, tmp_path: Path, tiny_config: Path, capfd: pytest.CaptureFixture[str]) -> Runner:
    """Run train.py in this process on the generated dataset; trailing arguments are KEY VALUE pairs or flags."""
    sys.path.insert(0, str(ROOT))
    import train

    def runner(*extra: str, name: str = "run", data: Path = data_root, **options: str) -> Run:
        folder = tmp_path / name
        with own_stdout():
            status = train.main(command(data, folder, tiny_config, *extra, **options))
        captured = capfd.readouterr()
        return Run(status, captured.out + captured.err, folder)

    return runner


@contextlib.contextmanager
def own_stdout() -> Iterator[None]:
    """Undo the logger's taking over of stdout."""
    before = sys.stdout
    try:
        yield
    finally:
        sys.stdout.flush()
        _loggers.append(sys.stdout)  # real Dassl's closes the console when it is deleted
        sys.stdout = before


_loggers: list[Any] = []


@pytest.fixture
def start(data_root: Path, tmp_path: Path, tiny_config: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start train.py in a process of its own."""

    def starter(*extra: str, name: str = "run", **options: str) -> subprocess.Popen[str]:
        arguments = command(data_root, tmp_path / name, tiny_config, *extra, **options)
        return subprocess.Popen(
            [sys.executable, str(ROOT / "train.py"), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=tmp_path,
        )

    return starter
