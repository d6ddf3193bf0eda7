"""What a step of CoCoA-Mix costs beside one of CoOp, through the trainers themselves."""

from __future__ import annotations

import contextlib
import io
import statistics
import tempfile
from typing import Any

import torch
import torch.nn.functional as F

import train
from benchmarks.measure import BACKBONES, BATCH, ROOT, cpu_time


def build(name: str, folder: str, quick: bool) -> Any:
    """Return a trainer on the 60 base classes of Shapes, at true size with random weights."""
    flags = ["--trainer", name, "--seed", "1", "--backbone", BACKBONES[quick], "--output-dir", f"{folder}/{name}"]
    flags += ["--dataset-config-file", str(ROOT / "configs/datasets/shapes.yaml")]
    flags += ["--config-file", str(ROOT / f"configs/trainers/{name}/{'tiny' if quick else 'vit_b16_ep50'}.yaml")]
    options = {"DATASET.SUBSAMPLE_CLASSES": "base", "DATASET.NUM_SHOTS": "1", "MODEL.BACKBONE.WEIGHTS": "random"}
    options |= {
        f"TRAINER.{name.upper()}.{key}": value for key, value in (("CTX_INIT", "a photo of a"), ("PREC", "fp32"))
    }
    options["CACHE.MODE"] = "off"  # a step is given features anyway
    cfg = train.setup_cfg(train.parse_arguments([*flags, *(part for pair in options.items() for part in pair)]))
    with contextlib.redirect_stdout(io.StringIO()):
        return train.build_trainer(cfg)


def compare_steps(repetitions: int, quick: bool) -> tuple[float, dict[str, float]]:
    """Return how many times longer a step of CoCoA-Mix takes than one of CoOp, and the CPU seconds of both."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        coop, mix = build("CoOp", folder, quick), build("CoCoAMix", folder, quick)
    classes, width = coop.num_classes, coop.clip.sizes.embedding
    features, labels = F.normalize(torch.randn(BATCH, width), dim=-1), torch.randint(classes, (BATCH,))
    for one in (coop, mix):
        one.epoch = one.batch_idx = 0
        one._step(features, labels)
    rounds = 2 if quick else 5 * repetitions
    times = [
        (cpu_time(lambda: coop._step(features, labels)), cpu_time(lambda: mix._step(features, labels)))
        for _ in range(rounds)
    ]
    ratio = statistics.median(other / one for one, other in times)
    seconds = {
        "CoOp": statistics.median(one for one, _ in times),
        "CoCoAMix": statistics.median(other for _, other in times),
    }
    print(
        f"\nA step of CoCoA-Mix ({classes} classes, as many out-classes, batch {BATCH}) costs {ratio:.2f} steps of CoOp"
    )
    return round(ratio, 2), {name: round(value, 4) for name, value in seconds.items()}
