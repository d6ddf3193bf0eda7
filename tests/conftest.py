"""What the tests share: a small generated dataset in CoOp's layout, a tiny random CLIP, and a way to run train.py."""

from __future__ import annotations

import atexit
import contextlib
import copy
import functools
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Some virtual machines announce AMX and cannot run it; bf16 would end the test process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
# The models of most tests are too small to share among threads; one thread is faster, above all beside other work.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Stored features of tests stay out of the user's own.
os.environ["COCOAMIX_CACHE"] = tempfile.mkdtemp(prefix="cocoamix-tests-")

import cocoamix  # noqa: F401  (before dassl)

# isort: split
import numpy as np
import pytest
import torch
from PIL import Image

from cocoamix import compat
from cocoamix.clip import FrozenCLIP, load_clip
from cocoamix.clip import model as clip_model
from cocoamix.clip.backbones import BACKBONES

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
    for name, content in _draw_dataset(train, val, test).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


@functools.cache
def _draw_dataset(train: int, val: int, test: int) -> dict[str, bytes]:
    """Return the files of `write_dataset` by name; drawing them takes longer than writing them."""
    files: dict[str, bytes] = {}
    generator = np.random.default_rng(0)
    split: dict[str, list[tuple[str, int, str]]] = {"train": [], "val": [], "test": []}
    for label, name in enumerate(CLASSES):
        colour = generator.integers(0, 256, size=3)
        folder = name.replace(" ", "")
        for number, part in enumerate(["train"] * train + ["val"] * val + ["test"] * test):
            pixels = np.clip(colour + generator.normal(0, 40, size=(40, 36, 3)), 0, 255).astype(np.uint8)
            content = io.BytesIO()
            Image.fromarray(pixels).save(content, "png")
            files[f"eurosat/2750/{folder}/{folder}_{number}.png"] = content.getvalue()
            split[part].append((f"{folder}/{folder}_{number}.png", label, name))
    files["eurosat/split_zhou_EuroSAT.json"] = json.dumps(split).encode()
    return files


@pytest.fixture(scope="session", autouse=True)
def draw_weights_once() -> Iterator[None]:
    """Draw and hash the random weights of the tiny CLIP once, and give each run a copy: they are always the same."""
    build, digest = clip_model.build_openai, clip_model.hash_weights
    drawn: dict[type, torch.nn.Module] = {}
    known: list[tuple[dict[str, torch.Tensor], str]] = []

    def build_copy(sizes: Any) -> Any:
        if sizes != BACKBONES["tiny"].sizes:
            return build(sizes)
        compat.import_openai_clip()
        from clip.model import CLIP

        if CLIP not in drawn:
            drawn[CLIP] = build(sizes)
        return copy.deepcopy(drawn[CLIP])

    def find_digest(state: Mapping[str, torch.Tensor]) -> str:
        for other, found in known:
            if other.keys() == state.keys() and all(torch.equal(other[key], state[key]) for key in other):
                return found
        found = digest(state)
        if len(known) < 4:
            known.append(({key: value.detach().clone() for key, value in state.items()}, found))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clip_model, "build_openai", build_copy)
        patch.setattr(clip_model, "hash_weights", find_digest)
        yield


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """What `pip install` would install of this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    tracked = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("not a git checkout")
    for name in tracked.stdout.splitlines():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(folder), "."]
    done = subprocess.run(build, cwd=source, capture_output=True, text=True)
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


Runner = Callable[..., Run]


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
