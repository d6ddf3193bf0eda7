"""Measure two paths to the same result, plain and ours, in time and memory. As a program, it measures memory.

python benchmarks/measure.py ViT-B/16 plain 100     peak memory of a forward and backward pass on 100 classes
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.plain import PlainPrompts
from cocoamix.clip import FrozenCLIP, load_clip
from cocoamix.compat import import_open_clip
from cocoamix.prompts.context import PromptLearner

ROOT = Path(__file__).resolve().parent.parent
BACKBONES = {False: "ViT-B/16", True: "tiny"}  # by --quick
BATCH = 32
PLAIN_AT_ONCE = 100  # classes; more would need too much memory, so the plain path runs them in parts
CONTEXT, SCALE = 4, 100.0


def class_names(count: int) -> list[str]:
    """Return `count` evenly spaced class names of ImageNet. If there are not enough, they repeat with a number."""
    import_open_clip()
    from open_clip.zero_shot_metadata import IMAGENET_CLASSNAMES as NAMES

    if count <= len(NAMES):
        return [NAMES[number * len(NAMES) // count] for number in range(count)]
    return [f"{NAMES[number % len(NAMES)]} {number // len(NAMES)}" for number in range(count)]


@lru_cache(maxsize=1)
def load_backbone(name: str) -> FrozenCLIP:
    """Return the model, with random weights at true size."""
    return load_clip(name, "random", source="clip", precision="fp32")


@dataclass
class Case:
    """Both paths for one number of classes."""

    clip: FrozenCLIP
    classes: int

    def __post_init__(self) -> None:
        clip, names = self.clip, class_names(self.classes)
        self.learner = PromptLearner(clip, names, n_ctx=CONTEXT)
        self.plain = PlainPrompts(clip, names, self.learner.ctx)
        draw = torch.Generator().manual_seed(0)
        side = clip.sizes.resolution
        self.images = torch.randn(BATCH, 3, side, side, generator=draw)
        self.stored = F.normalize(torch.randn(BATCH, clip.sizes.embedding, generator=draw), dim=-1)
        self.labels = torch.randint(self.classes, (BATCH,), generator=draw)

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
    """The cost of one call relative to another, and the range over repetitions."""

    first: float
    second: float
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def __str__(self) -> str:
        return f"{self.ratio:.3g}x ({min(self.ratios):.3g} to {max(self.ratios):.3g})"


def compare(first: Callable[[], object], second: Callable[[], object], repetitions: int) -> Ratio:
    """Time two calls in turn, in CPU seconds. The second is short, so the median of three runs counts."""
    if repetitions > 1:
        first()  # the first call allocates memory
    second()
    rows = [(cpu_time(first), statistics.median(cpu_time(second) for _ in range(3))) for _ in range(repetitions)]
    return Ratio(*map(statistics.median, zip(*rows, strict=True)), tuple(one / other for one, other in rows))


# ---------------------------------------------------------------------- memory


def peak_memory(name: str, way: str, classes: int) -> float:
    """Return the peak memory in MB of one forward and backward pass, without weights and prompts."""
    command = [sys.executable, __file__, name, way, str(classes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{way} with {classes} classes ended with {done.returncode}: {done.stderr[-500:]}")
    return float(json.loads(done.stdout.splitlines()[-1])["pass"])


def _resident(field: str) -> float:
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(field))) / 1024


def main(arguments: Sequence[str]) -> None:
    """Measure this process and print the result. Only Linux has a peak that can be reset."""
    name, way, classes = *arguments[:2], int(arguments[2])
    clip, names = load_backbone(name), class_names(classes)
    learner = PromptLearner(clip, names, n_ctx=CONTEXT)
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
