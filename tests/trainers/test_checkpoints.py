"""Which checkpoints a trainer loads and which it refuses; whose settings an evaluation uses, and what it records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cocoamix.config.settings import flatten
from cocoamix.io import checkpoints
from cocoamix.run.checkpointer import RESUME
from tests.conftest import CLASSES, Run, Runner
from tests.trainers.kinds import BASE, KINDS, TWO, context, evaluate, killed_at, state, watch_logits

SHORT = [*BASE, "OPTIM.MAX_EPOCH", "1"]
NEW = [*BASE[:3], "new"]
FOUR = ["TRAINER.COCOOP.N_CTX", "4", "TRAINER.DEPT.N_CTX", "4", "TRAINER.MAPLE.PROMPT_DEPTH", "2"]


def foreign(trained: Run, folder: Path, part: str, rename: Any = None, **more: Tensor) -> Run:
    """Write a checkpoint as other code bases do: no origin, but a frozen model or dead parameters."""
    shown = {key: value for key, value in state(trained, part, 1).items() if rename is None or rename(key)}
    path = folder / part / "model.pth.tar-1"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "state_dict": {**shown, **more},
        "epoch": 1,
        "optimizer": {"state": {}},
        "scheduler": {},
        "val_result": 1,
    }
    torch.save(content, path)
    (path.parent / "checkpoint").write_text("model.pth.tar-1\n")
    return Run(0, "", folder)


DEAD = {"bias_vectors": torch.ones(1, 128), "meta_net.linear1.weight": torch.ones(8, 128)}
MIDFIX = {"token_midfix": torch.zeros(5, 2, 128)}
TOWERS = {"image_encoder.a": torch.ones(1), "text_encoder.b": torch.ones(1), "logit_scale": torch.ones(1)}
MAPLE = "MultiModalPromptLearner"
# What the public code writes beside the learned parameters, for each method whose files have a layout of their own.
LAYOUTS: dict[str, tuple[str, str, list[str], dict[str, Tensor]]] = {
    "CoOp": ("CoOp", "prompt_learner", [], {}),
    "CoCoOp": ("CoCoOp", "prompt_learner", [], {}),
    "KgCoOp": ("KgCoOp", "prompt_learner", [], {**DEAD, **MIDFIX}),
    "ProGrad": ("ProGrad", "prompt_learner", [], {}),
    "MaPLe": ("MaPLe", MAPLE, [], {**TOWERS, "prompt_learner.token_midfix": torch.zeros(5, 2, 128)}),
    "CoOp with KgCoOp's network": ("CoOp", "prompt_learner", [], DEAD),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_of_other_code_bases_load(
    run: Runner, shared_run: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, layout: str
) -> None:
    """Their parameters and keys, without a record of the training; the logits are those of the same parameters."""
    trainer, part, settings, more = LAYOUTS[layout]
    logits = watch_logits(monkeypatch)
    trained = shared_run(*SHORT, *FOUR, *settings, trainer=trainer)
    theirs = foreign(trained, tmp_path / "theirs", part, lambda key: not key.startswith("_"), **more)
    for subset in ("base", "new"):
        where = [*SHORT[:3], subset, *SHORT[4:], *FOUR, *settings]
        ours = evaluate(run, trained, *where, trainer=trainer, name=f"ours-{subset}")
        other = evaluate(run, theirs, "--load-epoch", "1", *where, trainer=trainer, name=f"theirs-{subset}")
        assert (ours.status, other.status) == (0, 0), other.output[-800:]
        assert torch.equal(*logits[-2:])
        for key in more:
            assert key in other.output or "midfix" in key, key
    assert "does not record how it was trained" in other.output


def test_dept_files_of_other_code_bases_load(run: Runner, shared_run: Runner, tmp_path: Path) -> None:
    """Their folders, and a head whose number of classes no name explains: similarity alone."""
    trained = shared_run(*SHORT, *FOUR, trainer="DePT")
    theirs = foreign(trained, tmp_path / "theirs", "PromptLearner")
    head = {"head.weight": torch.ones(7, 128), "head.bias": torch.ones(7)}
    foreign(trained, tmp_path / "theirs", "channel_head", **head)
    done = evaluate(run, theirs, *NEW, *FOUR, trainer="DePT")
    assert done.status == 0, done.output[-500:]
    assert "7 classes with unknown names" in done.output


@pytest.mark.parametrize("trainer", ["CoOp", "KgCoOp", "ProGrad", "CoCoAMix"])
def test_the_network_of_cocoop_is_not_dropped(run: Runner, shared_run: Runner, tmp_path: Path, trainer: str) -> None:
    """A context is only half of what CoCoOp trains."""
    theirs = foreign(shared_run(*SHORT, *FOUR, trainer="CoCoOp"), tmp_path / "theirs", "prompt_learner")
    alone = ["TRAINER.COCOAMIX.N_CTX", "4", "TRAINER.COCOAMIX.ENSEMBLE", "none"]
    done = evaluate(run, theirs, *NEW, *alone, trainer=trainer)
    assert done.status == 2
    assert "meta_net.linear1.weight" in done.output


def test_files_that_do_not_fit_are_refused(run: Runner, shared_run: Runner, tmp_path: Path) -> None:
    """Each names the parameter: half of CoCoOp's, one of another depth, one made with other CLIP weights."""
    coop, cocoop = shared_run(*SHORT, name="coop"), shared_run(*SHORT, *FOUR, trainer="CoCoOp", name="cocoop")
    deep = shared_run(*SHORT, "TRAINER.MAPLE.PROMPT_DEPTH", "3", trainer="MaPLe", name="deep")
    prefix = state(coop, "prompt_learner", 1)["token_prefix"] + 1
    cases = [
        (foreign(coop, tmp_path / "a", "prompt_learner"), "CoCoOp", "meta_net.linear1.bias"),
        (foreign(cocoop, tmp_path / "b", "prompt_learner", **DEAD), "CoCoOp", "bias_vectors"),
        (foreign(deep, tmp_path / "c", MAPLE), "MaPLe", "PROMPT_DEPTH"),
        (foreign(coop, tmp_path / "d", "prompt_learner", token_prefix=prefix), "CoOp", "model.pth.tar-1"),
    ]
    for number, (theirs, trainer, word) in enumerate(cases):
        done = evaluate(run, theirs, *BASE, *FOUR, trainer=trainer, name=f"case{number}")
        assert (done.status, word in done.output) == (2, True), (number, done.output[-500:])


def test_checkpoint_of_another_method_is_refused(run: Runner, shared_run: Runner) -> None:
    """A CoOp context fits ProGrad, but the result would not be ProGrad's; it may start a training."""
    trained = shared_run(*SHORT)
    done = evaluate(run, trained, *NEW, trainer="ProGrad")
    assert (done.status, "CoOp" in done.output) == (2, True)
    assert evaluate(run, trained, *NEW, trainer="cocoamix.CoOp", name="prefixed").status == 0
    path = str(trained.folder / "prompt_learner" / "model.pth.tar-1")
    still = ["OPTIM.LR", "0.0", "OPTIM.WARMUP_CONS_LR", "0.0", "OPTIM.WEIGHT_DECAY", "0.0"]
    begun = run(*SHORT, "MODEL.INIT_WEIGHTS", path, *still, trainer="ProGrad", name="begun", seed="2")
    assert torch.equal(context(begun, 1), context(trained, 1))


def test_another_activation_is_another_model(run: Runner, shared_run: Runner) -> None:
    opened = ["MODEL.BACKBONE.SOURCE", "open_clip"]  # which has both
    model = shared_run(*SHORT, *opened)
    done = evaluate(run, model, *NEW, *opened, "MODEL.BACKBONE.ACTIVATION", "gelu", trainer="CoOp")
    assert (done.status, "quick_gelu" in done.output) == (2, True)


def flip(path: Path, at: float) -> None:
    """Flip one bit of a file."""
    content = bytearray(path.read_bytes())
    content[int(at * (len(content) - 1))] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("at", [0.1, 0.35, 0.6, 0.85])
def test_a_flipped_bit_is_refused(run: Runner, at: float) -> None:
    """In a checkpoint, in a resume file, in a session: the sentence names the file."""
    settings = [*SHORT, "OPTIM.MAX_EPOCH", "2"]
    with killed_at(None, 1):
        run(*settings)
    whole = run(*settings, name="whole")
    trainer, sessions = KINDS["CoOp, sessions"]
    few = [*sessions, "OPTIM.MAX_EPOCH", "1", "FSCIL.LAST_SESSION", "0"]
    done = run(*few, trainer=trainer, name="sessions")
    resume, session = whole.folder.parent / "run" / RESUME, done.folder / "sessions" / "session-0.pth"
    flip(resume, at)
    refused = {resume: run(*settings)}
    checkpoint = whole.folder / "prompt_learner" / "model.pth.tar-2"
    flip(checkpoint, at)
    refused[checkpoint] = evaluate(run, whole, *NEW, trainer="CoOp")
    flip(session, at)
    refused[session] = evaluate(run, done, *few, trainer=trainer, name="sessions-evaluated")
    for path, again in refused.items():
        assert again.status == 2, (path, again.output[-500:])
        assert path.name in again.output
        assert "Traceback" not in again.output


# ---------------------------------------------------------------------- whose settings

POSITION = ("CLASS_TOKEN_POSITION", "front", "end")
TEMPLATE = ("TEMPLATE", "a drawing of a {}.", "a {}.")


@pytest.mark.parametrize(
    ("trainer", "section", "setting", "more"),
    [
        ("CoOp", "COOP", POSITION, []),
        ("KgCoOp", "COOP", TEMPLATE, ["TRAINER.COOP.ENSEMBLE", "uniform"]),
        ("ProGrad", "COOP", TEMPLATE, ["TRAINER.COOP.ENSEMBLE", "uniform"]),
        ("MaPLe", "MAPLE", ("CTX_INIT", "a drawing of the", "a photo of a"), FOUR[4:]),
        ("DePT", "DEPT", ("WEIGHT", "0.2", "0.7"), []),
        ("DePTKgCoOp", "DEPT", TEMPLATE, ["TRAINER.DEPT.ENSEMBLE", "uniform"]),
        ("CoCoAMix", "COCOAMIX", POSITION, []),
        ("CoCoAMix", "COCOAMIX", TEMPLATE, []),
        ("CoCoAMix", "COCOAMIX", ("STAGE", "two", "one"), ["TRAINER.COCOAMIX.WEIGHT_EPOCHS", "1"]),
        ("CoCoAMix", "COCOAMIX", ("OUT_CLASSES", "none", "string"), []),
    ],
)
def test_training_settings_take_precedence(
    run: Runner,
    monkeypatch: pytest.MonkeyPatch,
    trainer: str,
    section: str,
    setting: tuple[str, str, str],
    more: list[str],
) -> None:
    """An evaluation that sets another value, or none, uses that of the training, and says so."""
    name, value, other = setting
    key, logits = f"TRAINER.{section}.{name}", watch_logits(monkeypatch)
    more = [*more, "TRAINER.COCOAMIX.WEIGHT_LR", "0.5"]  # so that the weights differ
    trained = run(*SHORT, *more, key, value, trainer=trainer)
    silent = evaluate(run, trained, *BASE, *more, trainer=trainer, name="silent")
    differing = evaluate(run, trained, *BASE, *more, key, other, trainer=trainer, name="differing")
    for done, found in zip((silent, differing), logits[1:], strict=True):
        assert torch.equal(found, logits[0]), done.output[-500:]
        assert f"{name} is" in done.output
    assert silent.results["fingerprint"] == differing.results["fingerprint"] == trained.results["fingerprint"]
    # If the training is not recorded, the configuration is used.
    if name in ("OUT_CLASSES", "STAGE"):
        return
    for path in trained.folder.glob("*/model.pth.tar-1"):
        content = checkpoints.load(path)
        torch.save({"state_dict": content["state_dict"], "epoch": 1}, path)
    blind = evaluate(run, trained, *BASE, *more, key, other, trainer=trainer, name="blind")
    assert "as in training" not in blind.output
    assert not torch.equal(logits[3], logits[0]), blind.output[-500:]


RECORDS: list[tuple[str, dict[str, object], list[str]]] = [
    ("CoOp", {"TRAINER.COOP.CTX_INIT": "a photo of a"}, []),
    ("KgCoOp", {"TRAINER.COOP.W": 2.0}, []),
    ("ProGrad", {"LOSS.LAMBDA": 0.5}, []),
    ("CoCoOp", {"TRAINER.COCOOP.CTX_INIT": "a photo of a"}, []),
    ("MaPLe", {"TRAINER.MAPLE.CTX_INIT": "a drawing of the"}, []),
    ("DePT", {"TRAINER.DEPT.LR_FACTOR": 2.0}, []),
    ("DePTKgCoOp", {"TRAINER.DEPT.W": 3.0}, []),
    ("CoCoAMix", {"TRAINER.COCOAMIX.LOSS": "ce", "TRAINER.COCOAMIX.OUT_CLASSES": "string"}, []),
    ("TuneEn", {"TRAINER.ENLEARN.DOWNSCALE": 16}, [*TWO, "TRAINER.ENLEARN.DOWNSCALE", "16"]),
]


@pytest.mark.parametrize(("trainer", "settings", "more"), RECORDS)
def test_evaluations_report_the_training(
    run: Runner, trainer: str, settings: dict[str, object], more: list[str]
) -> None:
    """Whatever their configuration says; only the classes, and what an evaluation alone decides, are their own."""
    settings = {**settings, "OPTIM.MAX_EPOCH": 1, "OPTIM.LR": 0.01, "DATALOADER.TRAIN_X.BATCH_SIZE": 4}
    own = [str(part) for pair in settings.items() for part in pair]
    trained = run(*BASE, *FOUR, *more, *own, trainer=trainer, name="base", seed="2")
    assert trained.status == 0, trained.output[-500:]
    shots = ["DATASET.NUM_SHOTS", "2", "DATASET.SUBSAMPLE_CLASSES"]
    done = evaluate(run, trained, *shots, "new", *FOUR, *more, trainer=trainer, name="new")
    assert done.status == 0, done.output[-500:]
    now, then = flatten(done.results["config"]), flatten(trained.results["config"])
    for key in (*settings, "SEED", "DATASET.NUM_SHOTS"):
        assert now[key] == then[key], key
    assert (now["DATASET.SUBSAMPLE_CLASSES"], done.results["classnames"]) == ("new", CLASSES[5:])
    again = evaluate(run, trained, *shots, "base", *FOUR, *more, trainer=trainer, name="again").results
    assert again["checkpoint"] == {"folder": "../base", "epoch": 1}
    alone = {"evaluation_seconds": 0, "config": 0, "checkpoint": 0}
    kept, other = ({**each, **alone} for each in (trained.results, again))
    overridden = other.pop("overridden")
    assert (overridden["SEED"], overridden["DATASET.NUM_SHOTS"], overridden["OPTIM.MAX_EPOCH"]) == (1, 2, 4)
    assert other == kept
