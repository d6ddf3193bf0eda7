"""Check the rules by which the synthetic datasets were designed. They use CLIP and CoOp only.

    python benchmarks/rules.py [--weights FILE] [--output DIR]

1. Zero-shot CLIP with "a photo of a {}." is between 60 and 92 % on base and on new of every dataset, and below 90 % on
   base. No other template is better by more than 2 points on the mean of base and new.
2. On average over the datasets, with 4 shots and seeds 1 to 3, CoOp is at least 2 points above CLIP on base and at
   least 1.5 points below on new. Both signs hold on at least four datasets of five.
3. Over all pairs of dataset and seed, CoOp's error is below CLIP's on base and above it on new: one-sided paired
   t-tests, p < 0.05 each.

The zero-shot accuracies of all templates are printed, too.
The runs are those of the plan `quick`; finished ones are not repeated. Exit status 1: a rule does not hold.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch import Tensor
from yacs.config import CfgNode

from cocoamix.clip import FrozenCLIP, load_clip
from cocoamix.errors import UserError, run_command
from cocoamix.experiments.plan import Plan, load_plan
from cocoamix.experiments.runner import Outcome, run_plan
from cocoamix.experiments.stats import one_sided_t_test
from cocoamix.run.results import RESULTS, Results
from cocoamix.shapes import DATASETS, FAMILY, SyntheticDataset
from cocoamix.shapes.captions import style_templates

LOW, HIGH, HIGH_ON_BASE, TEMPLATE_GAIN = 60.0, 92.0, 90.0, 2.0
GAIN_ON_BASE, LOSS_ON_NEW = 2.0, 1.5
LEVEL = 0.05
DEFAULT = "a photo of a {}."
PLAIN = ("{}.", "a picture of a {}.", "an image of a {}.", "a good photo of a {}.", "a close-up of a {}.")
TEMPLATES = (DEFAULT, *PLAIN, *style_templates())
CONFIG = Path(__file__).resolve().parent.parent / "configs" / "trainers" / "ZeroshotCLIP" / "tiny.yaml"


class Pair(NamedTuple):
    """Accuracy on base and on new."""

    base: float
    new: float


class Finding(NamedTuple):
    """A sentence with numbers, and whether they satisfy a rule."""

    words: str
    holds: bool


def encode(clip: FrozenCLIP, dataset: SyntheticDataset) -> tuple[Tensor, Tensor]:
    """Return the features and labels of all test images, normalised as the tiny configuration does."""
    settings = CfgNode.load_cfg(CONFIG.read_text()).INPUT
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (settings.PIXEL_MEAN, settings.PIXEL_STD))
    items, features = list(dataset.items("test")), []
    for start in range(0, len(items), 200):
        drawn = [torch.from_numpy(dataset.draw(*item)) for item in items[start : start + 200]]
        images = torch.stack(drawn).permute(0, 3, 1, 2).float() / 255
        features.append(clip.encode_image((images - mean) / std))
    return torch.cat(features), torch.tensor([label for label, _ in items])


def accuracies(clip: FrozenCLIP, dataset: SyntheticDataset) -> dict[str, tuple[float, float]]:
    """Return the zero-shot accuracy (%) on base and on new classes by template."""
    features, labels = encode(clip, dataset)
    names = [known.name for known in dataset.classes]
    base, by_template = labels < dataset.base, {}
    for template in TEMPLATES:
        text = clip.encode_classes(names, [template]).t()
        on_base = (features[base] @ text[:, : dataset.base]).argmax(dim=1) == labels[base]
        on_new = (features[~base] @ text[:, dataset.base :]).argmax(dim=1) == labels[~base] - dataset.base
        by_template[template] = (100 * float(on_base.float().mean()), 100 * float(on_new.float().mean()))
    return by_template


def check_zero_shot(by_dataset: Mapping[str, Mapping[str, tuple[float, float]]]) -> list[Finding]:
    """Check rule 1 on (base, new) accuracies by dataset and template."""
    found = []
    for name, by_template in by_dataset.items():
        base, new = by_template[DEFAULT]
        best = max(by_template, key=lambda template: sum(by_template[template]))
        gain = sum(by_template[best]) / 2 - (base + new) / 2
        inside = min(base, new) >= LOW and max(base, new) <= HIGH and base < HIGH_ON_BASE
        words = f"{name}: {base:.1f} / {new:.1f}; the best template, {best!r}, is better by {gain:.1f}"
        found.append(Finding(words, inside and gain <= TEMPLATE_GAIN))
    return found


def check_trade_off(clip: Mapping[str, Pair], coop: Mapping[str, Sequence[Pair]]) -> list[Finding]:
    """Check rule 2 on CLIP's accuracy by dataset and CoOp's by dataset and seed."""
    gains = {name: [Pair(one.base - clip[name].base, one.new - clip[name].new) for one in coop[name]] for name in coop}
    means = {name: _mean_pair(seeds) for name, seeds in gains.items()}
    total = _mean_pair(means.values())
    right = [name for name, one in means.items() if one.base > 0 > one.new]
    needed = -(-4 * len(means) // 5)
    each = "; ".join(f"{name} {one.base:+.1f} / {one.new:+.1f}" for name, one in means.items())
    return [
        Finding(f"CoOp minus CLIP on base, on average: {total.base:+.2f}", total.base >= GAIN_ON_BASE),
        Finding(f"CoOp minus CLIP on new, on average: {total.new:+.2f}", total.new <= -LOSS_ON_NEW),
        Finding(f"both signs on {len(right)} of {len(means)} datasets ({each})", len(right) >= needed),
    ]


def check_assumption(clip: Mapping[str, Pair], coop: Mapping[str, Sequence[Pair]]) -> list[Finding]:
    """Check rule 3 with one-sided paired t-tests of the errors."""
    pairs = [(one, clip[name]) for name in coop for one in coop[name]]
    found = []
    for half, sign, words in (("base", 1, "below"), ("new", -1, "above")):
        _, p = one_sided_t_test([sign * (getattr(one, half) - getattr(other, half)) for one, other in pairs])
        found.append(Finding(f"error of CoOp {words} CLIP's on {half}, {len(pairs)} pairs: p = {p:.2g}", p < LEVEL))
    return found


def _mean_pair(pairs: Iterable[Pair]) -> Pair:
    base, new = zip(*pairs, strict=True)
    return Pair(fmean(base), fmean(new))


def collect(outcome: Outcome) -> tuple[dict[str, Pair], dict[str, list[Pair]]]:
    """Return CLIP's accuracies by dataset, and CoOp's by dataset and seed. Datasets are keyed by their class names."""
    names = {one.folder: name for name, one in DATASETS.items()}
    found: dict[tuple[str, str, int], dict[str, float]] = {}
    for run in outcome.runs:
        accuracy = Results.read(run.folder / RESULTS).metrics["accuracy"]
        found.setdefault((run.method.name, names[run.dataset.stem], run.seed), {})[run.subset] = accuracy
    clip: dict[str, Pair] = {}
    coop: dict[str, list[Pair]] = {}
    for (method, dataset, _), halves in found.items():
        if method == "CLIP":
            clip[dataset] = Pair(**halves)
        else:
            coop.setdefault(dataset, []).append(Pair(**halves))
    return clip, coop


def prepare(weights: str, output: str) -> Plan:
    """Return the plan of the runs. Runs with other weights have a separate folder."""
    plan = load_plan(str(Path(__file__).with_name("rules.yaml")))
    if weights:
        plan = replace(plan, overrides={"MODEL.BACKBONE.WEIGHTS": weights})
        # Named after the content, so that other weights at the same path do not reuse these runs.
        if not Path(weights).is_file():
            raise UserError(f"--weights {weights} is not a file.")
        digest = hashlib.sha256(Path(weights).read_bytes()).hexdigest()[:12]
        plan = replace(plan, output=Path("output") / "rules" / digest)
    return replace(plan, output=Path(output)) if output else plan


def show_templates(by_dataset: Mapping[str, Mapping[str, tuple[float, float]]]) -> None:
    """Print the zero-shot accuracies by dataset and template."""
    print(f"\n| base / new | {' | '.join(by_dataset)} |\n|---|{'---|' * len(by_dataset)}")
    for template in TEMPLATES:
        cells = (f"{base:.1f} / {new:.1f}" for base, new in (each[template] for each in by_dataset.values()))
        print(f"| {template} | {' | '.join(cells)} |")


def show(title: str, findings: Sequence[Finding]) -> bool:
    """Print a rule with its numbers, and return whether it holds."""
    print(f"\n{title}: {'holds' if all(one.holds for one in findings) else 'DOES NOT HOLD'}")
    for one in findings:
        print(f"  [{'yes' if one.holds else 'NO'}] {one.words}")
    return all(one.holds for one in findings)


def judge(weights: str, output: str) -> int:
    """Execute the unfinished runs, print every rule, and return the exit status."""
    outcome = run_plan(prepare(weights, output))
    tiny = load_clip("tiny", weights)
    zero_shot = {one.name: accuracies(tiny, one) for one in FAMILY}
    show_templates(zero_shot)
    clip, coop = collect(outcome)
    family = {one.name: coop[one.name] for one in FAMILY}
    held = [
        show("Rule 1, zero-shot accuracy (base / new) and templates", check_zero_shot(zero_shot)),
        show("Rule 2, the trade-off", check_trade_off(clip, family)),
        show("Rule 3, the paper's assumption", check_assumption(clip, family)),
    ]
    return 0 if all(held) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", default="", help="weights of another pre-training")
    parser.add_argument(
        "--output", default="", help="output folder of the runs (output/quickstart, or output/rules/HASH)"
    )
    args = parser.parse_args()
    weights, output = (os.path.abspath(path) if path else "" for path in (args.weights, args.output))
    os.chdir(Path(__file__).resolve().parent.parent)  # the plan's folders are relative to it
    return run_command(lambda: judge(weights, output), "Stopped. Finished runs are kept; the same command resumes.")


if __name__ == "__main__":
    sys.exit(main())
