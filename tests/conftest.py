"""Shared by the tests: a small generated dataset in CoOp's layout, a tiny random CLIP, and a way to run train.py."""

from __future__ import annotations

import atexit
import contextlib
import copy
import csv
import functools
import gc
import hashlib
import importlib.metadata
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # on Windows, where no two workers create a shared folder at once
    fcntl = None  # type: ignore[assignment]

# Some virtual machines announce AMX but cannot run it; bf16 would crash the test process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
# The models of most tests are too small for several threads; one is faster, especially on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell starts background jobs with SIGINT ignored, children inherit that, and tests that interrupt one would hang.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Keep stored features of tests out of the user's store.
os.environ["COCOAMIX_CACHE"] = tempfile.mkdtemp(prefix="cocoamix-tests-")

import cocoamix  # noqa: F401  (before dassl)

# isort: split
import numpy as np
import pytest
import torch
from PIL import Image

from cocoamix import compat
from cocoamix.clip import FrozenCLIP, load_clip, tiny
from cocoamix.clip import model as clip_model
from cocoamix.clip.backbones import BACKBONES
from cocoamix.features.extract import FrozenFeatures
from tests.fast import FOLDERS, is_fast

# Otherwise every seed is queued for missing devices, with its stack, and versions are read from files each time.
for device in (torch.cuda, getattr(torch, "xpu", torch.cuda), getattr(torch, "mtia", torch.cuda)):
    if not device.is_available() and hasattr(device, "manual_seed_all"):
        device.manual_seed_all = lambda seed: None
importlib.metadata.version = functools.cache(importlib.metadata.version)
# Tests kill processes, not the machine, so files need not reach the disk: waiting for it is slower than many tests.
os.fsync = lambda descriptor: None

atexit.register(shutil.rmtree, os.environ["COCOAMIX_CACHE"], ignore_errors=True)

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
# What cannot be in the tree, such as CoOp's split files: CONTRIBUTING.md describes this folder.
SHARED = Path(os.environ.get("COCOAMIX_SHARED") or ROOT.parent / "shared")
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


def needs(place: str) -> pytest.MarkDecorator:
    """Skip a test if a file or folder below SHARED is missing."""
    reason = f"needs {place} in the folder that COCOAMIX_SHARED names; see CONTRIBUTING.md"
    return pytest.mark.skipif(not (SHARED / place).exists(), reason=reason)


def pytest_collection_finish() -> None:
    """Collect garbage less often, and not among objects that last for the whole run: it took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m fast`, collect only folders with such tests: importing the others takes longer than the tests."""
    if config.option.markexpr != "fast" or collection_path.parent != TESTS:
        return None
    return collection_path.name not in (*FOLDERS, "conftest.py") or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the fast tests."""
    for item in items:
        folder = item.path.parent
        if isinstance(item, pytest.Function) and folder.parent == TESTS and not item.get_closest_marker("slow"):
            name, fixtures = item.originalname, set(item.fixturenames)
            if is_fast(folder.name, item.path.name, name, item.function, fixtures):
                item.add_marker(pytest.mark.fast)


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


def copy_module(module: Any) -> Any:
    """Copy a module with its parameters and buffers; everything else is shared. `deepcopy` takes many times as long."""
    found = copy.copy(module)
    for name, value in vars(found).items():
        if isinstance(value, dict):
            found.__dict__[name] = value.copy()  # hooks, among other things
    for name, parameter in found._parameters.items():
        if parameter is not None:
            found._parameters[name] = torch.nn.Parameter(parameter.detach().clone(), parameter.requires_grad)
    for name, buffer in found._buffers.items():
        found._buffers[name] = None if buffer is None else buffer.clone()
    for name, part in found._modules.items():
        found._modules[name] = copy_module(part)
    return found


@pytest.fixture(scope="session", autouse=True)
def draw_weights_once() -> Iterator[None]:
    """Draw and hash the random weights of the tiny CLIP once, and give each run a copy: they are always the same.

    The embeddings that are generated on loading are also computed once.
    """
    build, digest, generate = clip_model.build_openai, clip_model.hash_weights, tiny.generated_rows
    generated: dict[tuple[bytes, int], torch.Tensor] = {}
    drawn: dict[type, torch.nn.Module] = {}
    known: list[tuple[dict[str, torch.Tensor], str]] = []

    def build_copy(sizes: Any) -> Any:
        if sizes != BACKBONES["tiny"].sizes:
            return build(sizes)
        compat.import_openai_clip()
        from clip.model import CLIP

        if CLIP not in drawn:
            drawn[CLIP] = build(sizes)
        return copy_module(drawn[CLIP])

    def find_digest(state: Mapping[str, torch.Tensor]) -> str:
        for other, found in known:
            if other.keys() == state.keys() and all(torch.equal(other[key], state[key]) for key in other):
                return found
        found = digest(state)
        if len(known) < 4:
            known.append(({key: value.detach().clone() for key, value in state.items()}, found))
        return found

    def copy_rows(content: torch.Tensor, count: int) -> torch.Tensor:
        key = content.numpy().tobytes(), count
        if key not in generated:
            generated[key] = generate(content, count)
        return generated[key].clone()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "generated_rows", copy_rows)
        patch.setattr(clip_model, "build_openai", build_copy)
        patch.setattr(clip_model, "hash_weights", find_digest)
        yield


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project's files: those tracked by git, or those listed by a source distribution."""
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
def undrawn_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the weights of new models unset, for tests of large models that only look at shapes."""
    for draw in ("normal_", "xavier_uniform_", "kaiming_uniform_"):
        monkeypatch.setattr(torch.nn.init, draw, lambda tensor, *_, **__: tensor)
    monkeypatch.setattr(clip_model, "hash_weights", lambda state: "")


@pytest.fixture
def data_root(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "data")


@pytest.fixture(scope="session")
def common_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of runs whose test does not touch their images."""
    return write_dataset(tmp_path_factory.mktemp("common") / "data")


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
def run(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    tiny_config: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Runner]:
    """Run train.py in this process on the generated dataset; trailing arguments are KEY VALUE pairs or flags.

    Tests that use `data_root` themselves get separate images. The others share images, encoded once for each batch
    size: the last bits of a feature depend on it, and a test must not depend on those before it.
    """
    own = "data_root" in request.fixturenames
    root: Path = request.getfixturevalue("data_root" if own else "common_data")
    if not own:
        find_stores = FrozenFeatures._stores_of
        monkeypatch.setattr(
            FrozenFeatures,
            "_stores_of",
            lambda self, source: find_stores(
                self, replace(source, settings=f"{source.settings}, {source.batch_size} at once")
            ),
        )
    before = list_files(root)

    def runner(*extra: str, name: str = "run", data: Path = root, **options: str) -> Run:
        folder = tmp_path / name
        status = train_here(command(data, folder, tiny_config, *extra, **options))
        captured = capfd.readouterr()
        return Run(status, captured.out + captured.err, folder)

    yield runner
    if not own and list_files(root) != before:
        shutil.rmtree(root)
        write_dataset(root)
        pytest.fail("the test changes images that it shares with others; it needs the fixture data_root")


def list_files(root: Path) -> list[tuple[str, int, int]]:
    """Return the files of a dataset with their sizes and times, without the few-shot splits that runs keep there."""
    found = [(path, path.stat()) for path in root.rglob("*") if path.suffix != ".pkl" and path.is_file()]
    return sorted((str(path), info.st_size, info.st_mtime_ns) for path, info in found)


def train_here(arguments: list[str]) -> int:
    """Run train.py in this process."""
    from cocoamix.train import main

    with own_stdout():
        return main(arguments)


@pytest.fixture(scope="session")
def for_all_workers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """Create a folder once for all tests of all workers: the first to ask for it fills it, the others wait."""
    worker = "PYTEST_XDIST_WORKER" in os.environ
    top = tmp_path_factory.getbasetemp().parent if worker else tmp_path_factory.mktemp("shared")

    def make(name: str, fill: Callable[[Path], None]) -> Path:
        folder = top / "shared" / hashlib.sha256(name.encode()).hexdigest()[:24]
        folder.parent.mkdir(exist_ok=True)
        with folder.with_suffix(".lock").open("ab") as lock:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "made").is_file():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                fill(folder)
                (folder / "made").touch()
        return folder

    return make


@pytest.fixture
def shared_run(
    for_all_workers: Callable[[str, Callable[[Path], None]], Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> Runner:
    """Train as `run` does, once for all tests with these arguments, and return a copy of the folder.

    Its images and OUTPUT_DIR are those of the shared run. Call it before you patch anything that training uses.
    """

    def find(*extra: str, name: str = "run", **options: str) -> Run:
        def fill(place: Path) -> None:
            (place / "tiny.yaml").write_text(TINY)
            data = write_dataset(place / "data")
            capfd.readouterr()
            status = train_here(command(data, place / "run", place / "tiny.yaml", *extra, **options))
            captured = capfd.readouterr()
            (place / "output.txt").write_text(captured.out + captured.err, encoding="utf-8")
            assert status == 0, captured.err[-800:]

        place = for_all_workers(json.dumps([extra, options], sort_keys=True), fill)
        output = (place / "output.txt").read_text(encoding="utf-8")
        return Run(0, output, Path(shutil.copytree(place / "run", tmp_path / name)))

    return find


@contextlib.contextmanager
def own_stdout() -> Iterator[None]:
    """Undo the logger's replacement of stdout."""
    before = sys.stdout
    try:
        yield
    finally:
        sys.stdout.flush()
        _loggers.append(sys.stdout)  # real Dassl's closes the console when it is deleted
        sys.stdout = before


_loggers: list[Any] = []
