"""Cost of training and of evaluation of each method relative to CoOp, on the modules themselves.

    python benchmarks/methods.py                     all trained methods, as a Markdown table
    python benchmarks/methods.py KgCoOp CoCoOp       only these
    python benchmarks/methods.py --batch 32 CoCoOp   with batches of 32 images instead of the method's own size

At true size with random weights, for the 60 base classes of Shapes, in CPU time; on features if the method reads them,
otherwise on images. Training is one step: loss, gradients and update. Evaluation computes the text features of all
classes and the logits of a batch. Both are timed in turn with CoOp on as many images. The configuration is that of the
method in the paper's comparison, on ViT-B/16 (T_En: its four models), but contexts are "a photo of a".
Class-incremental methods are timed in session 0, on the backbone of their configuration.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import train  # first: makes Dassl importable

# isort: split
import torch
import yaml
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor

from benchmarks import measure
from benchmarks.measure import BACKBONES, ROOT
from cocoamix.fscil.model import SessionModel, SessionTask
from cocoamix.model import IMAGES, RAW_FEATURES, PromptModel, Task
from cocoamix.run.backbone import load_clips
from cocoamix.run.optimisation import Optimisation
from cocoamix.shapes import DATASETS

CONFIGURATIONS = ("vit_b16_ep50", "ensemble_ep50", "vit_l14")  # the first that a method has is the one that is timed
SHAPES = DATASETS["Shapes"]
NAMES = [known.name for known in SHAPES.classes]


def configuration(name: str, quick: bool = False) -> Path:
    """Return the configuration file for timing a trainer."""
    files = [ROOT / f"configs/trainers/{name}/{each}.yaml" for each in (("tiny",) if quick else CONFIGURATIONS)]
    return next((file for file in files if file.is_file()), files[0])


def methods() -> list[str]:
    """Return the trainers that have something to train and a configuration for the comparison, CoOp first."""
    names = [name for name in TRAINER_REGISTRY.registered_names() if configuration(name).is_file()]
    return sorted((name for name in names if "FSCIL" not in name), key=lambda name: (name != "CoOp", name))


@dataclass
class Timed:
    """A method with random weights, and a batch for it.

    Attributes:
        name: Its trainer.
        size: Images of a batch; 0: as configured.
        quick: Whether to use the tiny CLIP.
        like: The configuration whose backbone to use.
    """

    name: str
    size: int = 0
    quick: bool = False
    like: Path | None = None

    def __post_init__(self) -> None:
        file = configuration(self.name, self.quick)
        self.size = self.size or int(yaml.safe_load(file.read_text())["DATALOADER"]["TRAIN_X"]["BATCH_SIZE"])
        model = self.model
        self.optimisation = Optimisation(model.parts)
        phase = model.phases(self.cfg.OPTIM, 1)[0]
        model.begin(phase)
        self.optimisation.add(phase.optim)
        self.parts = phase.parts
        self.inputs, self.labels = self._batch()

    @cached_property
    def cfg(self) -> train.CfgNode:
        """The configuration, with random weights in fp32."""
        backbone = BACKBONES[True] if self.quick else backbone_of(self.like or configuration(self.name))
        flags = ["--trainer", self.name, "--seed", "1", "--config-file", str(configuration(self.name, self.quick))]
        flags += ["--dataset-config-file", str(ROOT / "configs/datasets/shapes.yaml"), "--backbone", backbone]
        cfg = train.setup_cfg(train.parse_arguments([*flags, "--output-dir", "-", "MODEL.BACKBONE.WEIGHTS", "random"]))
        section = cfg.TRAINER[TRAINER_REGISTRY.get(self.name).Model.section]
        cfg.defrost()
        section.PREC = "fp32"
        if "BACKBONE_WEIGHTS" in section:
            section.BACKBONE_WEIGHTS = ["random"] * len(section.BACKBONES)
        if "CTX_INIT" in section:
            section.CTX_INIT, section.N_CTX = "a photo of a", min(4, section.N_CTX)
        return cfg

    @cached_property
    def model(self) -> PromptModel:
        """The method."""
        kind, base = TRAINER_REGISTRY.get(self.name).Model, tuple(NAMES[: SHAPES.base])
        settings, device = kind.settings_of(self.cfg), torch.device("cpu")
        with contextlib.redirect_stdout(io.StringIO()):
            clip = load_clips(self.cfg, settings, device, kind.several)
            labels = tuple(range(len(base))) * 32
            task = Task(base, "Shapes", labels=labels)
            if issubclass(kind, SessionModel):
                task = SessionTask(base, "Shapes", labels=labels, sessions=(base, tuple(NAMES[len(base) :])))
            model: PromptModel = kind(clip, task, settings, 1)
        return model

    def _batch(self) -> tuple[Tensor, Tensor]:
        """Return random inputs of the kind that the method reads, and labels."""
        draw, clip = torch.Generator().manual_seed(0), self.model.clip
        labels = torch.randint(len(self.model.classnames), (self.size,), generator=draw)
        side, width = clip.sizes.resolution, sum(each.sizes.embedding for each in clip.each())
        if self.model.reads == IMAGES:
            return torch.randn(self.size, 3, side, side, generator=draw), labels
        features = torch.randn(self.size, width, generator=draw)
        return features if self.model.reads == RAW_FEATURES else torch.nn.functional.normalize(features), labels

    def step(self) -> None:
        """Take a training step."""
        self.optimisation.step(self.model.loss(self.inputs, self.labels, self.parts))

    @torch.no_grad()
    def evaluate(self) -> None:
        """Compute the logits of a batch for all base classes, and their text features."""
        classifier = self.model.classifier()
        inputs = classifier.encode(self.inputs) if self.model.reads == IMAGES else self.inputs
        classifier.logits(inputs)


def backbone_of(file: Path) -> str:
    """Return the backbone that a configuration names."""
    return str(yaml.safe_load(file.read_text())["MODEL"]["BACKBONE"]["NAME"])


def compare(name: str, size: int, rounds: int, quick: bool = False) -> list[str]:
    """Return the row of a method: its batch, and seconds and ratio to CoOp of training and of evaluation.

    Args:
        name: Its trainer.
        size: The batch size; 0 for that of its configuration.
        rounds: Calls to time.
        quick: Whether to use the tiny CLIP.
    """
    method = Timed(name, size, quick)
    # T_En has a backbone of its own for each model, and CoOp runs on the one of the comparison.
    like = None if method.model.several else configuration(name, quick)
    coop, row = Timed("CoOp", method.size, quick, like), [name, str(method.size)]
    pairs = [(method.step, coop.step)]
    if "FSCIL" not in name:  # a session is evaluated after its end
        pairs.append((method.evaluate, coop.evaluate))
    for own, reference in pairs:
        cost = measure.compare(own, reference, rounds)
        row += [f"{cost.first:.3g}", str(cost)]
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trainers", nargs="*", help="names of trainers (default: all, without sessions)")
    parser.add_argument("--batch", type=int, default=0, help="images of a step (default: as configured)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="the tiny CLIP, to see that it runs")
    args = parser.parse_args()
    print(f"Median of {args.rounds} calls, fp32, CPU seconds, and cost relative to CoOp\n")
    print("| method | batch | training | relative | evaluation | relative |\n|---|---|---|---|---|---|")
    for name in args.trainers or methods():
        print(f"| {' | '.join(compare(name, args.batch, args.rounds, args.quick))} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
