"""Measure two paths to the same result, plain and ours, in time and memory. As a program, it measures memory.

python benchmarks/measure.py ViT-B/16 plain 100 4     peak memory of a forward and backward pass with 4 context vectors
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from benchmarks.plain import PlainPrompts
from cocoamix.clip import FrozenCLIP, load_clip
from cocoamix.compat import import_open_clip
from cocoamix.features.images import ImageItems
from cocoamix.prompts.context import PromptLearner

ROOT = Path(__file__).resolve().parent.parent
BACKBONES = {False: "ViT-B/16", True: "tiny"}  # by --quick
BATCH = 32
PLAIN_AT_ONCE = 100  # classes; more would need too much memory, so the plain path runs them in parts
SCALE = 100.0


def class_names(count: int) -> list[str]:
    """Return `count` evenly spaced class names of ImageNet. If there are not enough, they repeat with a number."""
    import_open_clip()
    from open_clip.zero_shot_metadata import IMAGENET_CLASSNAMES

    names = IMAGENET_CLASSNAMES
    if count <= len(names):
        return [names[number * len(names) // count] for number in range(count)]
    return [f"{names[number % len(names)]} {number // len(names)}" for number in range(count)]


@lru_cache(maxsize=1)
def load_backbone(name: str) -> FrozenCLIP:
    """Return the model, with random weights at true size."""
    return load_clip(name, "random", source="clip", precision="fp32")


@dataclass
class Case:
    """Both paths for one number of classes."""

    clip: FrozenCLIP
    classes: int
    context: int = 4
    batch: int = BATCH

    def __post_init__(self) -> None:
        clip, names = self.clip, class_names(self.classes)
        self.learner = PromptLearner(clip, names, n_ctx=self.context)
        self.plain = PlainPrompts(clip, names, self.learner.ctx)
        draw = torch.Generator().manual_seed(0)
        side = clip.sizes.resolution
        self.images = torch.randn(self.batch, 3, side, side, generator=draw)
        self.stored = F.normalize(torch.randn(self.batch, clip.sizes.embedding, generator=draw), dim=-1)
        self.labels = torch.randint(self.classes, (self.batch,), generator=draw)

    # Each method below has a counterpart on the plain path, with the prefix `plain_`.

    @torch.no_grad()
    def plain_forward(self) -> None:
        for chosen in self._parts():
            self.plain.encode(chosen)

    @torch.no_grad()
    def forward(self) -> None:
        self.clip.encode_prompts(self.learner())

    def plain_forward_backward(self) -> None:
        for chosen in self._parts():
            self._backward(self.plain.encode(chosen), self.stored)

    def forward_backward(self) -> None:
        self._backward(self.clip.encode_prompts(self.learner()), self.stored)

    def plain_iteration(self) -> None:
        features = self.clip.encode_image(self.images)
        for chosen in self._parts():
            self._backward(self.plain.encode(chosen), features)
        self._update()

    def iteration(self) -> None:
        self._backward(self.clip.encode_prompts(self.learner()), self.stored)
        self._update()

    @torch.no_grad()
    def plain_evaluation(self) -> None:
        for _ in range(2):  # batches; the plain path computes text features for each
            features = self.clip.encode_image(self.images)
            for chosen in self._parts():
                features @ self.plain.encode(chosen).t()

    @torch.no_grad()
    def evaluation(self) -> None:
        text = self.clip.encode_prompts(self.learner())
        for _ in range(2):
            self.stored @ text.t()

    def _parts(self) -> list[slice]:
        return [slice(start, start + PLAIN_AT_ONCE) for start in range(0, self.classes, PLAIN_AT_ONCE)]

    def _backward(self, text: Tensor, features: Tensor) -> None:
        F.cross_entropy(SCALE * features @ text.t(), self.labels.clamp(max=len(text) - 1)).backward()

    def _update(self) -> None:
        with torch.no_grad():
            assert self.learner.ctx.grad is not None
            self.learner.ctx -= 1e-4 * self.learner.ctx.grad
        self.learner.ctx.grad = None


def cpu_time(call: Callable[[], object]) -> float:
    """Return the CPU seconds of a call, over all threads of this process."""
    start = time.process_time()
    call()
    return time.process_time() - start


@dataclass(frozen=True)
class Ratio:
    """The cost of the plain path relative to ours, and the range over repetitions."""

    plain: float
    ours: float
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def __str__(self) -> str:
        return f"{self.ratio:.1f}x ({min(self.ratios):.1f} to {max(self.ratios):.1f})"


def compare(plain: Callable[[], object], ours: Callable[[], object], repetitions: int) -> Ratio:
    """Time both paths in turn. Ours is short, so the median of three runs counts."""
    for call in (plain, ours):
        if repetitions > 1 or call is ours:
            call()  # the first call allocates memory
    rows: list[tuple[float, float]] = []
    for _ in range(repetitions):
        first = cpu_time(plain)
        rows.append((first, statistics.median(cpu_time(ours) for _ in range(3))))
    return Ratio(
        statistics.median(row[0] for row in rows),
        statistics.median(row[1] for row in rows),
        tuple(one / other for one, other in rows),
    )


# ---------------------------------------------------------------------- arithmetic


def token_work(clip: FrozenCLIP, classes: int, context: int = 4) -> int:
    """Return the multiplications and additions of a forward and backward pass that sharing of tokens cannot avoid.

    Each token is multiplied twice by the matrices of the frozen weights: forward and backward.
    """
    learner = PromptLearner(clip, class_names(classes), n_ctx=context)
    tokens, width, layers = (
        learner.layout.shared + len(learner.layout.positions),
        clip.text.width,
        len(clip.text.blocks),
    )
    full = 12 * width * width * 2
    # In the last layer, keys and values of all tokens, and the rest only for the end of each prompt.
    last = tokens * 2 * width * width * 2 + classes * 10 * width * width * 2
    return 2 * (tokens * full * (layers - 1) + last)


def multiplication_rate() -> float:
    """Return the multiplications and additions per CPU second in a large matrix product."""
    one, other = torch.randn(1024, 2048), torch.randn(2048, 2048)
    seconds = statistics.median(cpu_time(lambda: one @ other) for _ in range(9))
    return 2 * 1024 * 2048 * 2048 / seconds


# ---------------------------------------------------------------------- data loading


def loading_rates(clip: FrozenCLIP, images: int = 32) -> tuple[float, float]:
    """Return how many images are read and augmented per CPU second, and how many are encoded."""
    from torchvision import transforms

    side = clip.sizes.resolution
    transform = transforms.Compose([transforms.RandomResizedCrop(side), transforms.ToTensor()])
    noise = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/photo.jpg"
        Image.fromarray(noise).resize((500, 375), Image.Resampling.BICUBIC).save(path, quality=90)
        item = SimpleNamespace(impath=path, label=0, domain=0)
        items = ImageItems(None, [item], transform=transform, is_train=True)
        loaded = cpu_time(lambda: [items.load_image(0, view) for view in range(images)])
        batch = torch.stack([items.load_image(0, view)["img"] for view in range(images)])
    encoded = cpu_time(lambda: clip.encode_image(batch))
    return images / loaded, images / encoded


# ---------------------------------------------------------------------- memory


def peak_memory(name: str, way: str, classes: int, context: int = 4) -> float:
    """Return the peak memory in MB of one forward and backward pass, without weights and prompts."""
    return _measured(name, way, classes, context)["pass"]


def whole_memory(name: str, way: str, classes: int) -> float:
    """Return the peak memory in MB of the whole process in that pass."""
    return _measured(name, way, classes, 4)["process"]


@cache
def _measured(name: str, way: str, classes: int, context: int) -> dict[str, float]:
    command = [sys.executable, __file__, name, way, str(classes), str(context)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{way} with {classes} classes ended with {done.returncode}: {done.stderr[-500:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _resident(field: str) -> float:
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(field))) / 1024


def main(arguments: Sequence[str]) -> None:
    """Measure this process and print the result. Only Linux has a peak that can be reset."""
    name, way, classes, context = *arguments[:2], int(arguments[2]), int(arguments[3])
    clip, names = load_backbone(name), class_names(classes)
    learner = PromptLearner(clip, names, n_ctx=context)
    plain = PlainPrompts(clip, names, learner.ctx) if way == "plain" else None
    clip.encode_texts(["warm up"])
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    features = plain.encode() if plain else clip.encode_prompts(learner())
    F.cross_entropy(SCALE * features[:BATCH] @ features.t(), torch.arange(min(BATCH, classes))).backward()
    peak = _resident("VmHWM")
    print(json.dumps({"pass": peak - before, "process": peak}))


if __name__ == "__main__":
    main(sys.argv[1:])
