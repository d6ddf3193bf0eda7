"""Possible savings in a step of prompt tuning, separately and together, relative to the current encoder.

    python benchmarks/text_savings.py [--steps N] [--threads | --profile] [--json FILE] [--quick]

A step is forward and backward of the text encoder, at ViT-L/14's size with random weights, for the 60 base classes of
CIFAR-100 and a context of two vectors. All variants give the same features and gradients up to rounding; the difference
is printed, too. They take turns, N times, and a ratio is the median over the turns, in CPU seconds of one thread.
None of them is in the package: the gain does not justify a second path through the encoder.

Names that begin alike could share their first tokens. That is counted, not timed: it bounds what can be gained.
--threads compares two threads inside each product with two threads that each run half of the classes. It prints wall
time, and so needs two idle cores. --profile shows where the current step spends its time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cocoamix.datasets  # noqa: F401  (before dassl is used)

# isort: split
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.measure import class_names, cpu_time, multiplication_rate
from cocoamix.clip import FrozenCLIP, Layout, Prompts, backbones, load_clip
from cocoamix.clip import text_encoder as ours
from cocoamix.clip.tokens import encode
from cocoamix.datasets.cifar100_fscil import BASE, official_names
from cocoamix.datasets.cub200_fscil import CUB200FSCIL
from cocoamix.datasets.mini_imagenet_fscil import MiniImageNetFSCIL
from cocoamix.io.files import write_json
from cocoamix.prompts.context import PromptLearner

CONTEXT, BATCH, SCALE = 2, 32, 100.0


class Step:
    """The current step: the gradient of a cross-entropy on stored features with respect to the context."""

    name = "current"

    def __init__(self, clip: FrozenCLIP, names: Sequence[str]) -> None:
        self.clip, self.text = clip, clip.text
        self.learner = PromptLearner(clip, names, n_ctx=CONTEXT)
        draw = torch.Generator().manual_seed(0)
        self.images = F.normalize(torch.randn(BATCH, clip.sizes.embedding, generator=draw), dim=-1)
        self.labels = torch.randint(len(names), (BATCH,), generator=draw)

    def features(self) -> Tensor:
        """Return the features of the classes, not normalised."""
        return self.text(self.learner())

    def __call__(self) -> tuple[Tensor, Tensor]:
        """Run forward and backward; return features and gradient."""
        features = self.features()
        self.loss(features).backward()
        return features.detach(), self.take_gradient()

    def loss(self, features: Tensor) -> Tensor:
        return F.cross_entropy(SCALE * self.images @ F.normalize(features, dim=-1).t(), self.labels)

    def take_gradient(self) -> Tensor:
        found, self.learner.ctx.grad = self.learner.ctx.grad, None
        assert found is not None
        return found


class FirstLayerKept(Step):
    """Computes the first layer's projections of the class names once, because they do not depend on the context."""

    name = "first layer's constants kept"

    def __init__(self, clip: FrozenCLIP, names: Sequence[str]) -> None:
        super().__init__(clip, names)
        layout, attention = self.learner.layout, self.text.blocks[0].attn
        assert self.learner.own is not None
        self.own = (self.learner.own + self.text.positional_embedding[layout.positions])[None].detach()
        kept = ours.norm(self.text.blocks[0].ln_1, self.own)
        self.kept = F.linear(kept, attention.in_proj_weight, attention.in_proj_bias).detach()

    def features(self) -> Tensor:
        prompts = self.learner()
        layout, shared = prompts.layout, prompts.layout.shared
        (chunk,) = layout.chunks(len(layout))
        prefix = (prompts.prefix + self.text.positional_embedding[:shared])[None]
        first, *rest = self.text.blocks[:-1]
        projected = ours.norm(first.ln_1, prefix)
        projected = F.linear(projected, first.attn.in_proj_weight, first.attn.in_proj_bias)
        x = torch.cat([prefix, self.own], dim=1)
        x = x + self._attend(first.attn, torch.cat([projected, self.kept], dim=1), chunk, shared)
        x = x + ours._feed_forward(first.mlp, ours.norm(first.ln_2, x))
        for block in rest:
            x = x + ours._attend(block.attn, ours.norm(block.ln_1, x), chunk, shared)
            x = x + ours._feed_forward(block.mlp, ours.norm(block.ln_2, x))
        last = self.text.blocks[-1]
        ends = ours._Rows.apply(x, chunk.ends)
        x = ends + ours._attend_from_ends(last.attn, ours.norm(last.ln_1, x), ours.norm(last.ln_1, ends), chunk, shared)
        x = x + ours._feed_forward(last.mlp, ours.norm(last.ln_2, x))
        return (ours.norm(self.text.ln_final, x) @ self.text.text_projection)[0]

    def _attend(self, attention: Any, joint: Tensor, chunk: Any, shared: int) -> Tensor:
        """Run the attention of the first layer on projections that are already computed."""
        heads, width = attention.num_heads, joint.shape[-1] // 3
        head, own = ours._Spread.apply(joint, chunk, shared)
        head, (query, key, value) = ours.split_heads(head, 3, heads), ours.split_heads(own, 3, heads)
        mixed = F.scaled_dot_product_attention(
            query, ours._join(head[1], key), ours._join(head[2], value), attn_mask=chunk.causal
        )
        rest = ours._Rows.apply(mixed.transpose(1, 2).reshape(1, -1, width), chunk.unpadded)
        first = F.scaled_dot_product_attention(head[0], head[1], head[2], is_causal=True)
        first = first.transpose(1, 2).reshape(1, shared, width)
        return attention.out_proj(torch.cat([first, rest], dim=1))


class FactorsInWeights(Step):
    """Moves the factors of OpenAI's activation from the products into copies of the weights."""

    name = "activation's factors in the weights"

    def __init__(self, clip: FrozenCLIP, names: Sequence[str]) -> None:
        super().__init__(clip, names)
        self.scaled = {
            block.mlp: (
                (block.mlp.c_fc.weight * ours._QUICK).detach(),
                (block.mlp.c_fc.bias * ours._QUICK).detach(),
                (block.mlp.c_proj.weight / ours._QUICK).detach(),
            )
            for block in self.text.blocks
        }

    def _feed_forward(self, mlp: Any, x: Tensor) -> Tensor:
        inner, bias, outer = self.scaled[mlp]
        return F.linear(F.silu(F.linear(x, inner, bias)), outer, mlp.c_proj.bias)

    def __call__(self) -> tuple[Tensor, Tensor]:
        before, ours._feed_forward = ours._feed_forward, self._feed_forward
        try:
            return super().__call__()
        finally:
            ours._feed_forward = before


class Together(FactorsInWeights, FirstLayerKept):
    """Both savings."""

    name = "both"


class HalvesInThreads(Step):
    """Runs two threads, each with half of the classes, forward and backward."""

    name = "two threads, half of the classes each"

    def __init__(self, clip: FrozenCLIP, names: Sequence[str]) -> None:
        super().__init__(clip, names)
        lengths, middle = self.learner.layout.lengths, len(names) // 2
        assert self.learner.own is not None
        owns = self.learner.own.split([sum(lengths[:middle]), sum(lengths[middle:])])
        layouts = [Layout(1 + CONTEXT, part) for part in (lengths[:middle], lengths[middle:])]
        self.halves = list(zip(owns, layouts, strict=True))
        self.pool = ThreadPoolExecutor(len(self.halves))

    def __call__(self) -> tuple[Tensor, Tensor]:
        contexts = [self.learner.ctx.detach().clone().requires_grad_() for _ in self.halves]
        start = self.learner.token_prefix[0].float()

        def forward(number: int) -> Tensor:
            own, layout = self.halves[number]
            found: Tensor = self.text(Prompts(torch.cat([start, contexts[number]]), own, layout))
            return found

        parts = list(self.pool.map(forward, range(len(self.halves))))
        features = torch.cat([part.detach() for part in parts]).requires_grad_()
        self.loss(features).backward()
        assert features.grad is not None
        gradients = features.grad.split([len(part) for part in parts])
        list(self.pool.map(torch.autograd.backward, parts, gradients))
        return features.detach(), torch.stack([one.grad for one in contexts if one.grad is not None]).sum(dim=0)


# ---------------------------------------------------------------------- measuring


def differences(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[float, float]:
    """Return the largest difference of unit features, and the difference of gradients relative to their norm."""
    features = (F.normalize(one[0], dim=-1) - F.normalize(other[0], dim=-1)).abs().max()
    return float(features), float((one[1] - other[1]).norm() / other[1].norm())


def take_turns(steps: Sequence[Step], turns: int, clock: Callable[[Callable[[], object]], float]) -> list[list[float]]:
    """Return the seconds of each step in each turn."""
    for step in steps:
        step()  # the first call allocates memory
    return [[clock(step) for step in steps] for _ in range(turns)]


def compare(steps: Sequence[Step], turns: int) -> list[dict[str, Any]]:
    """Time steps in turn on one thread, relative to the first."""
    torch.set_num_threads(1)
    rows, base = take_turns(steps, turns, cpu_time), steps[0]()
    found = []
    for number, step in enumerate(steps):
        ratios = [row[number] / row[0] for row in rows]
        features, gradient = differences(step(), base)
        found.append(
            {
                "way": step.name,
                "cpu_seconds": round(statistics.median(row[number] for row in rows), 3),
                "fastest": round(min(row[number] for row in rows), 3),
                "ratio": round(statistics.median(ratios), 3),
                "from": round(min(ratios), 3),
                "to": round(max(ratios), 3),
                "features_apart": features,
                "gradient_apart": gradient,
            }
        )
    return found


def wall_time(call: Callable[[], object]) -> float:
    """Return the wall-clock seconds of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compare_threads(clip: FrozenCLIP, names: Sequence[str], turns: int) -> list[dict[str, Any]]:
    """Time one thread, two inside each product, and two that share the classes. The fastest turn of each counts."""
    plain, halves = Step(clip, names), HalvesInThreads(clip, names)
    ways = [("one thread", plain, 1), ("two threads inside of products", plain, 2), (halves.name, halves, 1)]
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name, *_ in ways}
    for _ in range(turns):
        for name, step, threads in ways:
            torch.set_num_threads(threads)
            step()
            cpu = time.process_time()
            wall = wall_time(step)
            seconds[name].append((wall, time.process_time() - cpu))
    torch.set_num_threads(1)
    best = {name: min(found) for name, found in seconds.items()}
    first = best["one thread"][0]
    return [
        {"way": name, "wall_seconds": round(wall, 3), "cpu_seconds": round(cpu, 3), "ratio": round(wall / first, 3)}
        for name, (wall, cpu) in best.items()
    ]


def profile(step: Step, turns: int) -> list[dict[str, Any]]:
    """Return the share of each kind of operation in a step, and the rate of its matrix products."""
    kinds = {"matrix products": ("aten::mm", "aten::addmm", "aten::bmm"), "attention": ("aten::_scaled_dot",)}
    seconds = dict.fromkeys([*kinds, "everything else"], 0.0)
    torch.set_num_threads(1)
    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        for _ in range(turns):
            step()
    for one in found.key_averages():
        kind = next((kind for kind, starts in kinds.items() if one.key.startswith(starts)), "everything else")
        seconds[kind] += one.self_cpu_time_total / 1e6 / turns
    text, layout = step.text, step.learner.layout
    tokens, prompts, width = layout.shared + len(layout.positions), len(layout), text.width
    # In the last layer, keys and values of all tokens, and the rest only for the end of each prompt.
    each = 12 * tokens * (len(text.blocks) - 1) + 2 * tokens + 10 * prompts
    whole = sum(seconds.values())
    # The profiler measures wall time, which is good enough for shares; the time of a step is measured separately.
    products = seconds["matrix products"] / whole * statistics.median(cpu_time(step) for _ in range(turns))
    # A factor of 2 for multiplication and addition, and of 2 for forward and backward.
    rate = 4 * each * width * width / products / 1e9
    rows = [{"operations": kind, "percent_of_a_step": round(100 * one / whole, 1)} for kind, one in seconds.items()]
    large = multiplication_rate() / 1e9
    print(f"\nProducts of a step: {rate:.0f} GFLOP a CPU second; one large product: {large:.0f} GFLOP")
    return rows


def count_tokens(names: Sequence[str]) -> tuple[int, int]:
    """Return the number of tokens after the context in all prompts, and the number of different beginnings."""
    own = [(*encode(f"{name}."), -1) for name in names]
    return sum(map(len, own)), len({one[: end + 1] for one in own for end in range(len(one))})


def shared_beginnings() -> list[dict[str, Any]]:
    """Count the tokens that names which begin alike could share: each beginning once, as in a tree."""
    birds, mini = (list(kind.read_lists().classes.values()) for kind in (CUB200FSCIL, MiniImageNetFSCIL))
    sets = {
        "CIFAR-100, 60 base classes": official_names()[:BASE],
        "miniImageNet, 60 base classes": mini[:60],
        "CUB-200, 100 base classes": birds[:100],
        "ImageNet, 1000 classes": class_names(1000),
    }
    found = []
    for title, names in sets.items():
        tokens, tree = count_tokens(names)
        saved = 100 * (1 - tree / tokens)
        found.append({"names": title, "own_tokens": tokens, "in_a_tree": tree, "percent_saved": round(saved, 1)})
    return found


def show(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print rows as a Markdown table."""
    print(f"\n{title}\n\n| {' | '.join(key.replace('_', ' ') for key in rows[0])} |\n|{'---|' * len(rows[0])}")
    for row in rows:
        print("| " + " | ".join(f"{one:.1e}" if key.endswith("apart") else str(one) for key, one in row.items()) + " |")


WAYS = (Step, FirstLayerKept, FactorsInWeights, Together)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=9, help="repetitions of each variant")
    parser.add_argument("--threads", action="store_true", help="compare ways to use two cores instead")
    parser.add_argument("--profile", action="store_true", help="what a step spends its time on instead")
    parser.add_argument("--json", type=Path, default=None, help="file for the numbers")
    parser.add_argument("--quick", action="store_true", help="two layers and one repetition, only to test the script")
    args = parser.parse_args()
    # A minimal image encoder, because it is not used.
    backbones.BACKBONES["ViT-L/14"] = backbones.Backbone(
        backbones.Sizes(768, 224, 1, 64, 56, 768, 2 if args.quick else 12), "none"
    )
    clip, names = load_clip("ViT-L/14", "random", source="clip", precision="fp32"), official_names()[:BASE]
    turns = 1 if args.quick else args.steps
    numbers: dict[str, Any] = {}
    if args.threads or args.quick:
        numbers["threads"] = compare_threads(clip, names, turns)
        show("A step on two cores: the fastest turn", numbers["threads"])
    if args.profile or args.quick:
        numbers["profile"] = profile(Step(clip, names), turns)
        show("What a step spends its time on", numbers["profile"])
    if not (args.threads or args.profile):
        ways = [kind(clip, names) for kind in WAYS]
        numbers["steps"] = compare(ways, turns)
        show("A step, one thread, relative to the first", numbers["steps"])
        numbers["beginnings"] = shared_beginnings()
        show("Tokens that class names run, and what equal beginnings would leave", numbers["beginnings"])
    if args.json:
        write_json(args.json, numbers)


if __name__ == "__main__":
    main()
