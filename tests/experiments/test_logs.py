"""The layouts and logs of other code bases, with expectations computed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from cocoamix.experiments.frame import Frame, read
from cocoamix.experiments.logs import read_log
from cocoamix.experiments.pivots import base_to_new, few_shot, measures, over_datasets
from tests.experiments.trees import FORK, UPSTREAM, head, result, training, write_log

BASE, NEW = "base2new/train_base", "base2new/test_new"


def rows(frame: Frame) -> dict[str, dict[str, float]]:
    """Return the means over seeds of base, new and H by method and dataset."""
    means = base_to_new(frame.values).groupby(level=["method", "dataset"], sort=False).mean()
    return {f"{method} {dataset}": dict(row) for (method, dataset), row in means.iterrows()}


@pytest.mark.parametrize("trainer", ["CoOp", "CoCoOp", "MaPLe", "PromptSRC"])
def test_upstream_layout_is_read(tmp_path: Path, trainer: str) -> None:
    """shots_16/TRAINER/CFG/seed1, one decimal, "Finish training"; validation during training does not count."""
    tail = f"eurosat/shots_16/{trainer}/vit_b16"
    for seed, (base, new) in {1: (800, 600), 2: (900, 600)}.items():
        parts = [head(trainer, "EuroSAT", "base", seed), result(100, split="val"), training(UPSTREAM), result(base)]
        write_log(tmp_path / BASE / tail / f"seed{seed}", *parts)
        new_head = head(trainer, "EuroSAT", "new", seed, model_dir=f"{BASE}/{tail}/seed{seed}")
        write_log(tmp_path / NEW / tail / f"seed{seed}", new_head, result(new))
    frame = read([tmp_path])
    # H: 2*80*60/140 = 68.5714 and 2*90*60/150 = 72.
    assert rows(frame) == {f"{trainer} EuroSAT": {"base": 85, "new": 60, "H": pytest.approx((68.571429 + 72) / 2)}}
    assert over_datasets(base_to_new(frame.values), ["EuroSAT"])["std"]["base"].tolist() == [5]  # of the population
    assert (frame.notes, frame.left_out) == ([], [])


def test_evaluations_of_kgcoop_belong_to_the_weight_of_their_training(tmp_path: Path) -> None:
    """Its test script does not pass the weight, so that test logs print the default, 1.0."""
    for weight, correct in (("8.0", 8000), ("2.0", 7000)):
        tail = f"dtd/shots_16_{weight}/KgCoOp/vit_b16/seed1"
        own = {"section": "COOP", "own": f"    W: {weight}\n"}
        base = head("KgCoOp", "DescribableTextures", "base", **own)
        write_log(tmp_path / BASE / tail, base, training(FORK), result(correct, 10_000, 2))
        test = head("KgCoOp", "DescribableTextures", "new", section="COOP", own="    W: 1.0\n", model_dir="m")
        write_log(tmp_path / NEW / tail, test, result(6000, 10_000, 2))
    means = rows(read([tmp_path]))
    assert {label: (row["base"], row["new"]) for label, row in means.items()} == {
        "KgCoOp DTD": (80, 60),
        "KgCoOp [W=2] DTD": (70, 60),
    }


def test_dept_layout_is_read_without_the_log_of_its_launcher(tmp_path: Path) -> None:
    trainer, tail = "ExtrasLinearProbeCoOp", "food101/shots16/vit_b16_ep10_bs4_lr35/seed1"
    for run, base in (("first", 905), ("second", 805)):
        folder = tmp_path / "outputs" / run
        write_log(folder, "Running task\n")
        write_log(folder / f"train_base/{trainer}/{tail}", head(trainer, "Food101", "base"), training(), result(base))
        write_log(folder / f"test_new/{trainer}/{tail}", head(trainer, "Food101", "new", model_dir="m"), result(880))
    frame = read([tmp_path])
    means = {label: (row["base"], row["new"]) for label, row in rows(frame).items()}
    assert means == {"DePT (CoOp) [first] Food101": (90.5, 88), "DePT (CoOp) [second] Food101": (80.5, 88)}
    assert frame.left_out == []


def test_few_shot_layout_is_read_with_and_without_context_folder(tmp_path: Path) -> None:
    for shots, correct in ((1, 500), (16, 700)):
        for trainer, middle, more in (("CoOp", "nctx16_cscFalse_ctpend/", 0), ("PromptSRC", "", 50)):
            folder = tmp_path / f"dtd/{trainer}/rn50_{shots}shots/{middle}seed1"
            write_log(folder, head(trainer, "DescribableTextures", shots=shots), training(), result(correct + more))
    zero_shot = head("ZeroshotCLIP", "DescribableTextures", shots=-1, model_dir=" ")
    write_log(tmp_path / "ZeroshotCLIP/rn50/dtd", zero_shot, result(420))
    table = few_shot(read([tmp_path]).values).droplevel(["dataset", "seed"])
    assert table.loc["CoOp"].dropna().to_dict() == {1: 50, 16: 70}
    assert table.loc["PromptSRC"].dropna().to_dict() == {1: 55, 16: 75}
    assert table.loc["CLIP"].dropna().to_dict() == {0: 42}


def test_transfer_layout_is_read(tmp_path: Path) -> None:
    """imagenet/TRAINER/CFG_16shots/seed1 is the source of evaluation/TRAINER/CFG_16shots/DATASET/seed1."""
    source = "imagenet/CoCoOp/vit_b16_16shots/seed1"
    write_log(tmp_path / source, head("CoCoOp", "ImageNet"), training(), result(700))
    for folder, name, correct in (("dtd", "DescribableTextures", 450), ("eurosat", "EuroSAT", 500)):
        target = tmp_path / f"evaluation/CoCoOp/vit_b16_16shots/{folder}/seed1"
        write_log(target, head("CoCoOp", name, shots=-1, model_dir=f"output/{source}"), result(correct))
    row = measures(read([tmp_path]).where(task="transfer", source="ImageNet").values)["all_accuracy"]
    assert row.droplevel(["method", "seed"]).to_dict() == {"ImageNet": 70, "DTD": 45, "EuroSAT": 50}


def test_transfer_is_inferred_from_the_loaded_model_if_the_folder_does_not_say(tmp_path: Path) -> None:
    model = "output/imagenet/MaPLe/vit_b16_16shots/seed1"
    write_log(tmp_path / "mine/seed1", head("MaPLe", "EuroSAT", shots=-1, model_dir=model), result(480))
    run = read([tmp_path]).runs.iloc[0]
    assert (run["task"], run["source"], run["shots"]) == ("transfer", "ImageNet", 16)


@pytest.mark.parametrize(
    ("text", "accuracy"),
    [
        (result(3599, 4200), 100 * 3599 / 4200),  # the log prints 85.7%
        (result(3599, 4200).replace("3,599", "1,000"), 85.7),  # the counts belong to something else
        ("* accuracy: 78.12%\n", 78.12),  # published logs are often truncated: the path has to be enough
    ],
)
def test_counts_take_precedence_over_a_rounded_accuracy(tmp_path: Path, text: str, accuracy: float) -> None:
    write_log(tmp_path / BASE / "eurosat/shots_16/CoOp/vit_b16/seed1", "Finish training\n", text)
    assert rows(read([tmp_path]))["CoOp EuroSAT"]["base"] == pytest.approx(accuracy)


def test_newest_log_with_a_result_counts(tmp_path: Path) -> None:
    folder = tmp_path / BASE / "eurosat/shots_16/CoOp/vit_b16/seed1"
    text = head("CoOp", "EuroSAT", "base")
    write_log(folder, text, training(), result(700))
    write_log(folder, text, training(), result(800), name="log.txt-2023-05-02-10-11-12")
    write_log(folder, text, training(epochs=1), name="log.txt-2023-05-03-10-11-12")
    frame = read([tmp_path])
    assert rows(frame)["CoOp EuroSAT"]["base"] == 80
    assert "stopped in epoch 1 of 2" in frame.notes[0]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ((training(epochs=1),), "stopped in epoch 1"),
        ((training(),), "training finished, but"),
        ((result(700),), "'Finish training' is missing"),
        ((), "before the first epoch"),
        (("Finish training\n", "=> result\n* accuracy: 8"), "the evaluation did not"),
    ],
)
def test_unfinished_log_is_left_out_with_the_reason(tmp_path: Path, parts: tuple[str, ...], reason: str) -> None:
    write_log(tmp_path / BASE / "eurosat/shots_16/CoOp/vit_b16/seed1", head("CoOp", "EuroSAT", "base"), *parts)
    write_log(tmp_path / BASE / "eurosat/shots_16/CoOp/vit_b16/seed2", training(), result(800))
    (left,) = read([tmp_path]).left_out
    assert (left.kind, reason in left.reason) == ("unfinished", True)


def test_arguments_and_configuration_are_read_as_yacs_prints_them(tmp_path: Path) -> None:
    log = read_log(write_log(tmp_path, head("CoOp", "EuroSAT", "base", own="    W: 8.0\n"), training(), result(800)))
    assert log.arguments["trainer"] == "CoOp"
    assert log.arguments["resume"] == ""
    assert log.config["INPUT.SIZE"] == (224.0, 224.0)
    assert log.config["TRAINER.COOP.W"] == 8.0
    assert log.config["DATASET.SUBSAMPLE_CLASSES"] == "base"
    assert log.config["OPTIM.STEPSIZE"] == (-1.0,)
    assert (log.metrics["accuracy"], log.unfinished) == (80.0, "")
