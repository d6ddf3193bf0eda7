"""Another trainer's configuration is refused only if none of it would be used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cocoamix.errors import UserError, known_names
from cocoamix.run.arguments import parse_arguments
from cocoamix.train import setup_cfg
from tests.conftest import Runner

DATASET = ("--dataset-config-file", "cocoamix:shapes.yaml")


def load(trainer: str, config: str) -> None:
    setup_cfg(parse_arguments(["--trainer", trainer, "--config-file", config, *DATASET]))


@pytest.mark.parametrize(
    ("trainer", "config"),
    [
        ("KgCoOp", "CoCoAMix/vit_b16_ep50_xd"),
        ("CoCoAMix", "CoOp/vit_b16_ctxv1"),
        ("cocoamix.MaPLe", "DePT/vit_b16_ep50"),
    ],
)
def test_another_trainers_file_is_refused(trainer: str, config: str) -> None:
    with pytest.raises(UserError) as refused:
        load(trainer, f"cocoamix:{config}.yaml")
    name, owner = trainer.removeprefix("cocoamix."), config.split("/")[0]
    assert f"is a configuration of {owner}: it sets TRAINER." in str(refused.value)
    assert f"which {name} does not read" in str(refused.value)
    assert f"--trainer {owner}" in str(refused.value)


@pytest.mark.parametrize(
    ("trainer", "config"),
    [
        ("ZeroshotCLIP", "CoOp/vit_b16"),  # CoOp's own convention
        ("ZeroshotCLIP2", "MaPLe/vit_b16_ep50"),
        ("KgCoOp", "CoOp/vit_b16"),  # reads the same keys
        ("CoCoAMixFSCIL", "CoCoAMix/tiny"),
        ("CoOp", "ZeroshotCLIP/tiny"),  # sets no method's keys
    ],
)
def test_files_read_by_several_trainers_are_accepted(trainer: str, config: str) -> None:
    load(trainer, f"cocoamix:{config}.yaml")


def test_file_outside_the_layout_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("TRAINER: {COOP: {N_CTX: 4}}\n")
    load("CoCoAMix", str(tmp_path / "mine.yaml"))


def test_file_with_sections_of_both_trainers_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "trainers" / "CoOp" / "both.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("TRAINER: {COOP: {N_CTX: 4}, COCOAMIX: {N_CTX: 4}}\n")
    load("CoCoAMix", str(file))
    file.write_text("TRAINER: {COOP: {N_CTX: 4}}\n")
    with pytest.raises(UserError, match="a configuration of CoOp"):
        load("CoCoAMix", str(file))


SHOTS = ("DATASET.NUM_SHOTS", "2", "OPTIM.MAX_EPOCH", "1")


def notes(text: str) -> list[str]:
    return re.findall(r"^Note: (.* no effect.*)$", text, re.M)


def test_options_of_another_trainer_are_noted(run: Runner) -> None:
    """They do not stop a run, because scripts and plans give several methods the same options."""
    mix = ("TRAINER.COCOAMIX.W", "3.0", "TRAINER.COCOOP.N_CTX", "8", "TRAINER.COCOAMIX.W", "5.0")
    done = run(*SHOTS, "TRAINER.COOP.N_CTX", "2", *mix, trainer="cocoamix.CoOp")
    assert done.status == 0, done.output[-500:]
    wanted = (
        "TRAINER.COCOAMIX.W and TRAINER.COCOOP.N_CTX on the command line have no effect: of the methods' sections, "
        "CoOp reads only TRAINER.COOP.*."
    )
    assert notes(done.output) == notes(done.log) == [wanted]
    assert done.output.index("Note: ") < done.output.index("trainer  ")


def test_one_option_of_another_trainer_is_noted(run: Runner) -> None:
    done = run("TRAINER.COOP.N_CTX", "2", "OPTIM.MAX_EPOCH", "1", trainer="CoCoAMix")
    (note,) = notes(done.output)
    assert note.startswith("TRAINER.COOP.N_CTX on the command line has no effect: ")
    assert note.endswith(" CoCoAMix reads only TRAINER.COCOAMIX.*.")


@pytest.mark.parametrize(
    ("trainer", "option"),
    [
        ("KgCoOp", ("TRAINER.COOP.N_CTX", "2")),  # reads CoOp's section
        ("CoCoAMix", ("TRAINER.COCOAMIX.N_CTX", "2")),
        ("CoCoAMix", ("OPTIM.LR", "0.001")),
        ("CoCoAMix", ("TRAINER.NAME", "CoCoAMix")),
        ("ZeroshotCLIP", ("TRAINER.COOP.N_CTX", "2")),  # CoOp's own convention
        ("ZeroshotCLIP2", ("TRAINER.ZEROSHOT.ENSEMBLE", "80")),
    ],
)
def test_shared_options_are_not_noted(run: Runner, trainer: str, option: tuple[str, ...]) -> None:
    evaluates = ("--eval-only",) if trainer.startswith("Zero") else ()
    done = run(*evaluates, *SHOTS, *option, trainer=trainer)
    assert (done.status, notes(done.output)) == (0, [])


@pytest.mark.parametrize("arguments", [[], ["--trainer", ""]])
def test_missing_trainer_error_lists_the_known_ones(arguments: list[str]) -> None:
    with pytest.raises(UserError, match=r"^The trainer \(--trainer\) is not set\. Known: ") as refused:
        setup_cfg(parse_arguments([*arguments, *DATASET]))
    names = re.split(r", | and ", str(refused.value).split("Known: ")[1].rstrip("."))
    assert len(names) == len(set(names))


def test_missing_dataset_is_refused() -> None:
    with pytest.raises(UserError, match=r"^The dataset \(DATASET\.NAME, from --dataset-config-file\) is not set\."):
        setup_cfg(parse_arguments(["--trainer", "CoOp"]))


def test_known_names_are_listed_once() -> None:
    names = ["A", "cocoamix.A", "cocoamix.B", "A"]
    assert known_names("x", names) == " Known: A, cocoamix.B."
    assert known_names("a", names) == " Did you mean A? Known: A, cocoamix.B."
    assert known_names(3, []) == " Known: nothing."
