"""Compare our trainers with the public ones, step by step: same random weights, same images, same order of batches.

    COOP_TREE=/path/to/CoOp DASSL_TREE=/path/to/Dassl.pytorch python benchmarks/parity.py --root DATA

Runs a public trainer on its Dassl in one process and ours without Dassl in another, without random augmentation, and
compares losses, learning rates, trained parameters, checkpoint keys, and the logits that each side computes from
the other's checkpoints. Every case takes 20 steps, half of them in warm-up where it has one. The public trees are
not edited: they are patched in memory to run on current torch and a CPU (see `run_theirs`). DATA holds `eurosat/` in
CoOp's layout. KGCOOP_TREE and PROGRAD_TREE are the folders that hold train.py in the public KgCoOp and Prompt-align;
their own Dassl is next to them. MAPLE_TREE is the public multimodal-prompt-learning. Cases whose tree is not named are
skipped.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import os
import re
import runpy
import subprocess
import sys
import tempfile
import types
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
PER_CLASS = {"train": 16, "val": 4, "test": 4}  # images of the small copy that both run on
WORDS = {"TRAINER.COOP.CTX_INIT": "a photo of a"}
FOUR = {"TRAINER.COOP.N_CTX": "4"}


@dataclass(frozen=True)
class Case:
    """A trainer and its settings, and how the public trainer differs from ours."""

    settings: dict[str, str]
    config: str = "CoOp/vit_b16_ep50"  # below configs/trainers; `settings` override it
    batch: int = 8
    shots: int = 16
    trainer: str = "CoOp"
    tree: str = "COOP_TREE"  # variable that names the folder with its train.py
    section: str = "COOP"
    losses: tuple[tuple[str, str], ...] = (("loss", "loss"),)  # their name, our name
    untrained: tuple[str, ...] = ()  # prefixes of entries in its checkpoints that are not trained
    folder: str = "prompt_learner"  # of its checkpoints
    whole: bool = False  # whether its checkpoints contain the whole model, not only the learner

    def tree_folder(self) -> Path:
        return Path(os.environ.get(self.tree, "-"))

    def dassl_folder(self) -> Path:
        own = self.tree_folder().resolve().parent / "Dassl.ProGrad.pytorch"  # KgCoOp and ProGrad include a fork
        return own if own.is_dir() else Path(os.environ.get("DASSL_TREE", "-"))


TRUE = {"TRAINER.COOP.CTX_INIT": "True"}
NO_WARMUP = {"OPTIM.WARMUP_EPOCH": "0"}
coop = Case
kgcoop = partial(Case, trainer="KgCoOp", tree="KGCOOP_TREE", untrained=("bias_vectors", "meta_net."))
prograd = partial(Case, trainer="ProGrad", tree="PROGRAD_TREE", losses=(("xe_loss", "loss"), ("kl_loss", "kl")))
cocoop = partial(Case, config="CoCoOp/vit_b16_c4_ep10_batch1_ctxv1", trainer="CoCoOp", section="COCOOP")
maple = partial(
    Case,
    config="MaPLe/vit_b16_c2_ep5_batch4_2ctx",
    batch=4,
    shots=8,
    trainer="MaPLe",
    tree="MAPLE_TREE",
    section="MAPLE",
    folder="MultiModalPromptLearner",
    whole=True,
    untrained=("image_encoder.", "text_encoder.", "logit_scale"),
)
CASES: dict[str, Case] = {
    "words": coop(WORDS),
    "words, no warm-up": coop({**WORDS, **NO_WARMUP}),
    "random, 16 vectors": coop({}),
    "class-specific": coop({"TRAINER.COOP.CSC": "True", **FOUR}),
    "name in the middle": coop({"TRAINER.COOP.CLASS_TOKEN_POSITION": "middle", **FOUR}),
    "name in front": coop({"TRAINER.COOP.CLASS_TOKEN_POSITION": "front", **FOUR}),
    "CoCoOp": cocoop({}, batch=1, shots=2),
    "CoCoOp, no warm-up": cocoop(NO_WARMUP, batch=1, shots=2),
    "CoCoOp, batch 2": cocoop(NO_WARMUP, batch=2, shots=4),
    "KgCoOp": kgcoop({**TRUE, "TRAINER.COOP.W": "8.0"}),
    "KgCoOp, no warm-up": kgcoop({**TRUE, **NO_WARMUP, "TRAINER.COOP.W": "8.0"}),
    "ProGrad": prograd({**TRUE, "LOSS.NAME": "prograd"}),
    "ProGrad, no warm-up": prograd({**TRUE, **NO_WARMUP, "LOSS.NAME": "prograd"}),
    "MaPLe, 9 layers": maple(NO_WARMUP),
    "MaPLe, 3 layers": maple({}, config="MaPLe/vit_b16_c2_ep5_batch4_2ctx_cross_datasets"),
}
EQUAL = ("rates_equal", "keys_equal", "correct_equal")
TOLERANCE = 1e-4  # relative difference of a loss or a logit


def write_data(source: Path, target: Path) -> None:
    """Make a small EuroSAT that links to the images of a full one."""
    split = json.loads((source / "split_zhou_EuroSAT.json").read_text())
    small = {
        part: [row for label in range(10) for row in [r for r in rows if r[1] == label][: PER_CLASS[part]]]
        for part, rows in split.items()
    }
    target.mkdir(parents=True)
    (target / "2750").symlink_to((source / "2750").resolve(), target_is_directory=True)
    (target / "split_zhou_EuroSAT.json").write_text(json.dumps(small))


def write_weights(backbone: str, path: Path) -> None:
    """Write random weights at true size.

    They are as small as in OpenAI's initialisation: within 20 steps, larger ones would amplify differences in rounding.
    CoOp rounds the weights that it loads to fp16, the format of OpenAI's files. Rounding them first gives both sides
    the same numbers.
    """
    import torch

    from cocoamix.clip.backbones import BACKBONES
    from cocoamix.clip.openai import build_openai
    from cocoamix.clip.precision import convert_weights

    torch.manual_seed(0)
    model = build_openai(BACKBONES[backbone].sizes)
    torch.nn.init.constant_(model.logit_scale, math.log(100))
    convert_weights(model, torch.float16)
    torch.save({key: value.float() for key, value in model.float().state_dict().items()}, path)


def flags(args: argparse.Namespace) -> list[str]:
    """Return the command line for train.py, which is the same on both sides except for paths and weights."""
    case = CASES[args.case]
    tree = HERE if args.role == "ours" else case.tree_folder()
    config = f"configs/trainers/{case.config}.yaml"
    config_tree = tree if (tree / config).is_file() else HERE  # KgCoOp and ProGrad have none for a ViT
    common = ["--root", args.root, "--seed", "1", "--trainer", case.trainer, "--transforms", "normalize"]
    common += ["--dataset-config-file", str(tree / "configs/datasets/eurosat.yaml")]
    common += ["--config-file", str(config_tree / config), "--output-dir", args.output]
    if args.model_dir:
        common += ["--eval-only", "--model-dir", args.model_dir, "--load-epoch", "2"]
    settings = {
        f"TRAINER.{case.section}.PREC": "fp32",
        "MODEL.BACKBONE.NAME": args.backbone,
        "INPUT.SIZE": "(32, 32)" if args.backbone == "tiny" else "(224, 224)",
        "DATASET.NUM_SHOTS": str(case.shots),
        "DATASET.SUBSAMPLE_CLASSES": "base",
        "DATALOADER.TRAIN_X.SAMPLER": "SequentialSampler",
        "DATALOADER.TRAIN_X.BATCH_SIZE": str(case.batch),
        "DATALOADER.NUM_WORKERS": "0",
        "OPTIM.MAX_EPOCH": "2",
        **case.settings,
        **({"MODEL.INIT_WEIGHTS": args.init} if args.init else {}),
        **({"MODEL.BACKBONE.WEIGHTS": args.weights} if args.role == "ours" else {}),
    }
    return common + [part for pair in settings.items() for part in pair]


def record(trainer: Any, evaluator: Any, begins: str, output: Path, losses: Sequence[str]) -> None:
    """Patch classes to write the losses and learning rate of each step, and the logits of the last evaluation.

    Args:
        trainer: The trainer.
        evaluator: The class that evaluates.
        begins: Its method that begins an evaluation.
        output: The file of the steps.
        losses: The names that this trainer gives its losses.
    """
    import torch

    steps: list[dict[str, Any]] = []
    logits: list[torch.Tensor] = []
    step, begin, process = trainer.forward_backward, getattr(evaluator, begins), evaluator.process

    def recorded(self: Any, batch: Any) -> Any:
        rate = self.get_current_lr()
        summary = step(self, batch)
        steps.append({"losses": [float(summary[name]) for name in losses], "lr": rate})
        output.write_text(json.dumps(steps))
        return summary

    def cleared(self: Any, *args: Any, **more: Any) -> None:
        logits.clear()
        begin(self, *args, **more)

    def kept(self: Any, output_of_model: torch.Tensor, labels: torch.Tensor) -> None:
        logits.append(output_of_model.float().cpu())
        torch.save(torch.cat(logits), output.with_name("logits.pt"))
        process(self, output_of_model, labels)

    trainer.forward_backward, evaluator.process = recorded, kept
    setattr(evaluator, begins, cleared)


def run_ours(args: argparse.Namespace) -> None:
    sys.path.insert(0, str(HERE))
    import train  # first: makes Dassl importable

    # isort: split
    from dassl.engine import TRAINER_REGISTRY

    from cocoamix.run.evaluation import Classification

    case = CASES[args.case]
    losses = [ours for _, ours in case.losses]
    record(TRAINER_REGISTRY.get(case.trainer), Classification, "__init__", Path(args.steps), losses)
    sys.exit(train.main(flags(args)))


def run_theirs(args: argparse.Namespace) -> None:
    """Run a public train.py on its Dassl, patched in memory for current torch and for a CPU."""
    case = CASES[args.case]
    tree = str(case.tree_folder().resolve())
    sys.path[:0] = [tree, str(case.dassl_folder().resolve())]
    sys.path.append(str(HERE))
    os.chdir(tree)
    import torch

    from cocoamix import compat
    from cocoamix.io import checkpoints

    compat.ensure_torchvision()
    if importlib.util.find_spec("wilds") is None:  # Dassl imports it for datasets that are not used here
        wilds: Any = types.ModuleType("wilds")
        wilds.get_dataset = None
        sys.modules["wilds"] = wilds
    base: Any = torch.optim.lr_scheduler.LRScheduler
    start = base.__init__
    base.__init__ = lambda self, optimizer, last_epoch=-1, verbose=None: start(self, optimizer, last_epoch)
    if not torch.cuda.is_available():  # KgCoOp and ProGrad always put their teacher on a GPU
        for kind in (torch.Tensor, torch.nn.Module):
            kind.cuda = lambda self, *_: self  # type: ignore[assignment,method-assign]
    theirs: Any = importlib.import_module(f"trainers.{case.trainer.lower()}")
    trainer = getattr(theirs, case.trainer)
    state = torch.load(args.weights, weights_only=True)
    # The teachers also run in fp32; the original would run them in fp16.
    theirs.load_clip_to_cpu = lambda cfg: theirs.clip.build_model(dict(state)).float()
    if case.trainer == "MaPLe":
        # Its blocks are built with its own settings, and round prompts and projections to fp16 whatever PREC is.
        details: dict[str, Any] = {"trainer": "MaPLe"}
        details.update(dict.fromkeys(("vision_depth", "language_depth", "vision_ctx", "language_ctx"), 0))
        for kind in (torch.Tensor, torch.nn.Module):
            kind.half = lambda self: self  # type: ignore[assignment,method-assign]
        theirs.load_clip_to_cpu = lambda cfg: theirs.clip.build_model(
            dict(state), {**details, "maple_length": cfg.TRAINER.MAPLE.N_CTX}
        ).float()
    theirs.load_checkpoint = checkpoints.load  # torch refuses Dassl's checkpoints, which contain pickled objects
    evaluator = importlib.import_module("dassl.evaluation").Classification
    record(trainer, evaluator, "reset", Path(args.steps), [name for name, _ in case.losses])
    build = trainer.build_model

    def build_and_keep(self: Any) -> None:
        build(self)
        kept = self.model if case.whole else self.model.prompt_learner
        torch.save({"state_dict": kept.state_dict()}, Path(args.output, "initial.pt"))

    trainer.build_model = build_and_keep
    sys.argv = ["train.py", *flags(args)]
    runpy.run_path(str(Path(tree, "train.py")), run_name="__main__")


def run(role: str, folder: Path, case: str, args: argparse.Namespace, init: str = "", model_dir: str = "") -> Path:
    """Run one side in a separate process; return its folder."""
    output = folder / f"{case.replace(' ', '_').replace(',', '')}-{role}{'-evaluates' if model_dir else ''}"
    output.mkdir()
    command = [sys.executable, __file__, "--role", role, "--case", case, "--backbone", args.backbone]
    command += ["--root", str(folder / "data"), "--weights", str(folder / "weights.pt"), "--output", str(output)]
    command += ["--steps", str(output / "steps.json"), "--init", init, "--model-dir", model_dir]
    done = subprocess.run(command, capture_output=True, text=True)
    (output / "console.txt").write_text(done.stdout + done.stderr)
    if done.returncode:
        sys.exit(f"{role} failed on {case}:\n{(done.stdout + done.stderr)[-3000:]}")
    return output


def count_correct(folder: Path) -> float:
    """Return the number of correct predictions that the last evaluation printed."""
    found = re.findall(r"\* correct: ([\d,]+)", (folder / "console.txt").read_text())
    return float(found[-1].replace(",", ""))


def trained_difference(case: Case, start: Path, theirs: Path, ours: Path) -> float:
    """Return the largest difference of a trained tensor, relative to its movement in training."""
    from cocoamix.io import checkpoints

    begun, one, other = (checkpoints.load(path)["state_dict"] for path in (start, theirs, ours))
    fixed = ("token_prefix", "token_suffix")
    names = [key for key in one if not key.endswith(fixed) and not (case.untrained and key.startswith(case.untrained))]
    return max(float((one[k] - other[k]).norm() / (one[k] - begun[k]).norm()) for k in names)


def logits_difference(one: Path, other: Path) -> float:
    """Return the largest difference of a logit between two evaluations, relative to the largest logit."""
    import torch

    a, b = (torch.load(folder / "logits.pt", weights_only=True) for folder in (one, other))
    return float((a - b).abs().max() / a.abs().max())


def compare(name: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Run one case on both sides and return the differences."""
    from cocoamix.io import checkpoints

    case = CASES[name]
    theirs = run("theirs", folder, name, args)
    ours = run("ours", folder, name, args, init=str(theirs / "initial.pt"))
    a, b = (json.loads((f / "steps.json").read_text()) for f in (theirs, ours))
    files = [f / case.folder / "model.pth.tar-2" for f in (theirs, ours)]
    keys = [list(checkpoints.load(file)["state_dict"]) for file in files]
    by_theirs = run("theirs", folder, name, args, model_dir=str(ours))
    by_ours = run("ours", folder, name, args, model_dir=str(theirs))
    correct = [count_correct(f) for f in (theirs, by_ours, ours, by_theirs)]
    return {
        "steps": len(a),
        "first_loss": a[0]["losses"][0],
        "last_loss": a[-1]["losses"][0],
        "loss_relative": max(
            abs(one - other) / abs(one)
            for m, n in zip(a, b, strict=True)
            for one, other in zip(m["losses"], n["losses"], strict=True)
        ),
        "trained_relative": trained_difference(case, theirs / "initial.pt", *files),
        "logits_relative": max(logits_difference(theirs, by_ours), logits_difference(ours, by_theirs)),
        "rates_equal": [m["lr"] for m in a] == [n["lr"] for n in b],
        "keys_equal": sorted(key for key in keys[0] if not (case.untrained and key.startswith(case.untrained)))
        == sorted(keys[1])
        and {"state_dict", "epoch", "optimizer", "scheduler", "val_result"} <= set(checkpoints.load(files[1])),
        "correct_equal": correct[0] == correct[1] and correct[2] == correct[3],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder that holds eurosat/")
    parser.add_argument("--backbone", default="ViT-B/16", choices=["ViT-B/16", "ViT-B/32", "tiny"])
    parser.add_argument("--cases", nargs="+", default=[], choices=list(CASES), help="default: all whose tree is named")
    for internal in ("role", "case", "weights", "output", "steps", "init", "model-dir"):
        parser.add_argument(f"--{internal}", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        (run_ours if args.role == "ours" else run_theirs)(args)
        return 0
    ready = [name for name, case in CASES.items() if (case.tree_folder() / "train.py").is_file()]
    ready = [name for name in ready if (CASES[name].dassl_folder() / "dassl").is_dir()]
    cases = [name for name in args.cases or ready if name in ready]
    if not cases or len(cases) < len(args.cases):
        sys.exit("Set COOP_TREE and DASSL_TREE, KGCOOP_TREE, PROGRAD_TREE or MAPLE_TREE to the public trees.")
    sys.path.insert(0, str(HERE))
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_data(Path(args.root, "eurosat"), folder / "data" / "eurosat")
        write_weights(args.backbone, folder / "weights.pt")
        print(f"{args.backbone}, fp32")
        heads = f"{'losses':>8} {'trained':>8} {'logits':>8}  rates  keys loads"
        print(f"{'case':19} batch steps {'loss, first -> last':>19} {heads}")
        for case in cases:
            row = compare(case, folder, args)
            rows.append(row)
            marks = ["equal" if row[key] else "DIFFER" for key in EQUAL]
            print(
                f"{case:19} {CASES[case].batch:5} {row['steps']:5} {row['first_loss']:8.4f} -> {row['last_loss']:7.4f}"
                f" {row['loss_relative']:8.1e} {row['trained_relative']:8.1e} {row['logits_relative']:8.1e}"
                f" {marks[0]:>6} {marks[1]:>5} {marks[2]:>5}",
                flush=True,
            )
    equal = all(row[key] for row in rows for key in EQUAL)
    close = all(row[key] < TOLERANCE for row in rows for key in ("loss_relative", "logits_relative"))
    return 0 if equal and close else 1


if __name__ == "__main__":
    sys.exit(main())
