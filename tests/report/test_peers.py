"""Log trees that imitate each project's layout, with expectations computed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from cocoamix.report.build import Options, build
from cocoamix.report.model.tables import Line, Table
from tests.experiments.trees import FORK, UPSTREAM, head, result, training, write_log

TCP_TRAIN, TCP_TEST = "output_1108_4", "output_1108_4_eval"


def table(root: Path | list[Path], title: str, **options: object) -> Table:
    folders = root if isinstance(root, list) else [root]
    report = build(folders, Options(**options))  # type: ignore[arg-type]
    assert not report.problems
    found = [one for section in report.sections for one in section.tables if one.title == title]
    assert len(found) == 1, [one.title for section in report.sections for one in section.tables]
    return found[0]


def line(one: Table, label: str) -> dict[str, float | None]:
    found: list[Line] = [entry for entry in one.lines if entry.label == label]
    assert len(found) == 1, [entry.label for entry in one.lines]
    return {column.key: value.mean for column, value in zip(one.columns, found[0].values, strict=True)}


def spread(one: Table, label: str) -> dict[str, float | None]:
    (found,) = (entry for entry in one.lines if entry.label == label)
    return {column.key: value.std for column, value in zip(one.columns, found.values, strict=True)}


def near(value: float) -> object:
    return pytest.approx(value, abs=0.0005)


@pytest.mark.parametrize("trainer", ["CoOp", "CoCoOp", "MaPLe", "PromptSRC"])
def test_upstream_layout_is_read(tmp_path: Path, trainer: str) -> None:
    """CoOp, CoCoOp, MaPLe, PromptSRC: shots_16/TRAINER/CFG/seed1, one decimal, "Finish training"."""
    tail = f"eurosat/shots_16/{trainer}/vit_b16"
    for seed, (base, new) in {1: (800, 600), 2: (900, 600)}.items():
        # A validation result before the end of training must not count.
        write_log(
            tmp_path / f"output/base2new/train_base/{tail}/seed{seed}",
            head(trainer, "EuroSAT", "base", seed),
            result(100, split="val"),
            training(UPSTREAM),
            result(base),
        )
        model = f"output/base2new/train_base/{tail}/seed{seed}"
        write_log(
            tmp_path / f"output/base2new/test_new/{tail}/seed{seed}",
            head(trainer, "EuroSAT", "new", seed, model_dir=model),
            result(new),
        )
    found = table(tmp_path / "output", "EuroSAT")
    values = line(found, trainer)
    # base: 80 and 90; new: 60 and 60. H: 2*80*60/140 = 68.5714 and 2*90*60/150 = 72.
    assert values["base"] == near(85)
    assert values["new"] == near(60)
    assert values["H"] == near((68.57143 + 72) / 2)
    assert values["H_of_means"] == near(2 * 85 * 60 / 145)
    assert spread(found, trainer)["base"] == near(5)  # of the population, as CoOp's parser
    assert spread(found, trainer)["new"] == near(0)


@pytest.mark.parametrize(("trainer", "shots"), [("KgCoOp", "shots_16_8.0"), ("ProGrad", "shots_4")])
def test_fork_layout_is_read(tmp_path: Path, trainer: str, shots: str) -> None:
    """KgCoOp and ProGrad: "Finished training", tabs, two decimals; KgCoOp's weight in the folder of shots."""
    number = int(shots.split("_")[1])
    for sub, correct in (("train_base", 8561), ("test_new", 6123)):
        subset = sub.split("_")[1]
        evaluates = "x/y" if subset == "new" else ""
        body = result(correct, 10_000, 2)
        if subset == "base":
            body = training(FORK, signal="Finished training") + body
        folder = tmp_path / f"output/base2new/{sub}/dtd/{shots}/{trainer}/vit_b16_ep100/seed1"
        text = head(trainer, "DescribableTextures", subset, shots=number, folder="dtd", model_dir=evaluates)
        write_log(folder, text, body)
    values = line(table(tmp_path, "DTD"), trainer)
    assert (values["base"], values["new"]) == (near(85.61), near(61.23))
    assert values["H"] == near(2 * 85.61 * 61.23 / (85.61 + 61.23))


def test_two_weights_of_kgcoop_are_two_rows(tmp_path: Path) -> None:
    for weight, correct in (("8.0", 800), ("4.0", 700)):
        folder = tmp_path / f"base2new/train_base/dtd/shots_16_{weight}/KgCoOp/vit_b16/seed1"
        write_log(folder, head("KgCoOp", "DescribableTextures", "base"), training(FORK), result(correct))
    found = table(tmp_path, "DTD")
    assert line(found, "KgCoOp (8.0)")["base"] == near(80)
    assert line(found, "KgCoOp (4.0)")["base"] == near(70)


def test_tcp_evaluates_next_to_its_training_folder(tmp_path: Path) -> None:
    tail = "ucf101/shots_16/TCP/vit_b16_ep100_ctxv1/seed1"
    write_log(
        tmp_path / TCP_TRAIN / "base2new/train_base" / tail, head("TCP", "UCF101", "base"), training(), result(870)
    )
    write_log(
        tmp_path / TCP_TEST / "base2new/test_new" / tail, head("TCP", "UCF101", "new", model_dir="m"), result(810)
    )
    together = line(table(tmp_path, "UCF101"), "TCP")
    apart = line(table([tmp_path / TCP_TRAIN, tmp_path / TCP_TEST], "UCF101"), "TCP")
    assert together == apart
    assert together["H"] == near(2 * 87 * 81 / 168)


def test_two_tcp_experiments_keep_base_and_new_paired(tmp_path: Path) -> None:
    tail = "ucf101/shots_16/TCP/vit_b16/seed1"
    for name, base, new in (("output_1108_4", 870, 810), ("output_1108_8", 850, 750)):
        write_log(
            tmp_path / name / "base2new/train_base" / tail, head("TCP", "UCF101", "base"), training(), result(base)
        )
        test = tmp_path / f"{name}_eval" / "base2new/test_new" / tail
        write_log(test, head("TCP", "UCF101", "new", model_dir="m"), result(new))
    found = table(tmp_path, "UCF101")
    assert line(found, "TCP [output_1108_4]")["H"] == near(2 * 87 * 81 / 168)
    assert line(found, "TCP [output_1108_8]")["H"] == near(2 * 85 * 75 / 160)


def test_dept_layout_is_read(tmp_path: Path) -> None:
    """DePT: outputs/<run>/train_base/<Trainer>/<dataset>/shots16/<cfg>/seed1, with a launcher's log above."""
    trainer, tail = "ExtrasLinearProbeCoOp", "food101/shots16/vit_b16_ep10_bs4_lr35/seed1"
    run = tmp_path / "outputs/dept"
    write_log(run, "Running task\n")
    write_log(run / f"train_base/{trainer}/{tail}", head(trainer, "Food101", "base"), training(), result(905))
    write_log(run / f"test_new/{trainer}/{tail}", head(trainer, "Food101", "new", model_dir="m"), result(880))
    values = line(table(tmp_path / "outputs", "Food101"), "DePT (CoOp)")
    assert (values["base"], values["new"]) == (near(90.5), near(88.0))


def test_dept_runs_that_differ_only_in_the_run_folder_are_two_rows(tmp_path: Path) -> None:
    for run, correct in (("first", 905), ("second", 805)):
        folder = tmp_path / f"outputs/{run}/train_base/ExtrasLinearProbeCoOp/food101/shots16/vit_b16/seed1"
        write_log(folder, head("ExtrasLinearProbeCoOp", "Food101", "base"), training(), result(correct))
    found = table(tmp_path / "outputs", "Food101")
    assert line(found, "DePT (CoOp) [first]")["base"] == near(90.5)
    assert line(found, "DePT (CoOp) [second]")["base"] == near(80.5)


def test_promptkd_has_base_and_new_in_one_log(tmp_path: Path) -> None:
    """PromptKD: seed_1, all classes in the configuration, *val* is base and *test* is new."""
    folder = tmp_path / "base2new/train_base/oxford_flowers/shots_0/PromptKD/vit_b16/seed_1"
    text = head("PromptKD", "OxfordFlowers", "all", shots=0, more="  MODAL: base2novel\n")
    write_log(folder, text, result(900, split="val"), training(epochs=2), result(975, split="val"), result(910))
    values = line(table(tmp_path, "Flowers102"), "PromptKD")
    assert (values["base"], values["new"]) == (near(97.5), near(91))
    assert values["H"] == near(94.1379)  # 2 * 97.5 * 91 / 188.5


def test_promptkd_with_one_accuracy_missing_keeps_the_other_with_a_note(tmp_path: Path) -> None:
    folder = tmp_path / "base2new/train_base/oxford_flowers/shots_0/PromptKD/vit_b16/seed_1"
    text = head("PromptKD", "OxfordFlowers", "all", shots=0, more="  MODAL: base2novel\n")
    cut = result(975, split="val").split("* accuracy")[0]
    write_log(folder, text, training(), cut, result(910))
    report = build([tmp_path])
    assert [(one.kind, one.reason) for one in report.problems] == [
        ("unfinished", "log.txt: the result on base classes has no accuracy")
    ]
    (found,) = (one for section in report.sections for one in section.tables if one.title == "Flowers102")
    assert (line(found, "PromptKD")["base"], line(found, "PromptKD")["new"]) == (None, near(91))


def test_few_shot_layout_is_read_with_and_without_context_folder(tmp_path: Path) -> None:
    for shots, correct in ((1, 500), (16, 700)):
        coop = tmp_path / f"output/dtd/CoOp/rn50_{shots}shots/nctx16_cscFalse_ctpend/seed1"
        write_log(coop, head("CoOp", "DescribableTextures", shots=shots), training(), result(correct))
        src = tmp_path / f"output/dtd/PromptSRC/vit_b16_{shots}shots/seed1"
        write_log(src, head("PromptSRC", "DescribableTextures", shots=shots), training(), result(correct + 50))
    zero_shot = tmp_path / "output/ZeroshotCLIP/rn50/dtd"
    write_log(zero_shot, head("ZeroshotCLIP", "DescribableTextures", shots=-1, model_dir=" "), result(420))
    found = table(tmp_path, "DTD")
    assert [column.key for column in found.columns] == ["zero-shot", "1 shot", "16 shots", "seeds"]
    assert line(found, "CoOp")["16 shots"] == near(70)
    assert line(found, "PromptSRC")["1 shot"] == near(55)
    assert line(found, "CLIP")["zero-shot"] == near(42)
    assert line(found, "CLIP")["1 shot"] is None


def test_transfer_layout_is_read(tmp_path: Path) -> None:
    """imagenet/TRAINER/CFG_16shots/seed1 is the source of evaluation/TRAINER/CFG_16shots/DATASET/seed1."""
    source = "imagenet/CoCoOp/vit_b16_16shots/seed1"
    write_log(tmp_path / source, head("CoCoOp", "ImageNet"), training(), result(700))
    for folder, name, correct in (("dtd", "DescribableTextures", 450), ("eurosat", "EuroSAT", 500)):
        target = tmp_path / f"evaluation/CoCoOp/vit_b16_16shots/{folder}/seed1"
        write_log(target, head("CoCoOp", name, shots=-1, model_dir=f"output/{source}"), result(correct))
    for folder, name, correct in (("imagenet_a", "ImageNetA", 480), ("imagenetv2", "ImageNetV2", 620)):
        target = tmp_path / f"evaluation/CoCoOp/vit_b16_16shots/{folder}/seed1"
        write_log(target, head("CoCoOp", name, shots=-1, model_dir=f"output/{source}"), result(correct))
    values = line(table(tmp_path, "To other datasets"), "CoCoOp")
    assert values["source"] == near(70)
    assert values["target"] == near(47.5)
    # H(70, 45) = 54.7826, H(70, 50) = 58.3333
    assert values["H"] == near((54.78261 + 58.33333) / 2)
    domains = line(table(tmp_path, "To other domains of the source"), "CoCoOp")
    assert (domains["ImageNet-A"], domains["ImageNetV2"]) == (near(48), near(62))


def test_transfer_is_inferred_from_the_loaded_model_if_the_folder_does_not_say(tmp_path: Path) -> None:
    model = "output/imagenet/MaPLe/vit_b16_16shots/seed1"
    write_log(tmp_path / "mine/seed1", head("MaPLe", "EuroSAT", shots=-1, model_dir=model), result(480))
    found = table(tmp_path, "To other datasets")
    assert line(found, "MaPLe")["EuroSAT"] == near(48)
    assert line(found, "MaPLe")["source"] is None


def test_counts_take_precedence_over_a_rounded_accuracy(tmp_path: Path) -> None:
    """3,599 of 4,200 are 85.690...%; the log prints 85.7%."""
    folder = tmp_path / "base2new/train_base/eurosat/shots_16/CoOp/vit_b16/seed1"
    write_log(folder, head("CoOp", "EuroSAT", "base"), training(), result(3599, 4200))
    assert line(table(tmp_path, "EuroSAT"), "CoOp")["base"] == pytest.approx(100 * 3599 / 4200)


def test_printed_accuracy_is_used_if_the_counts_do_not_match_it(tmp_path: Path) -> None:
    folder = tmp_path / "base2new/train_base/eurosat/shots_16/CoOp/vit_b16/seed1"
    text = result(3599, 4200).replace("3,599", "1,000")
    write_log(folder, head("CoOp", "EuroSAT", "base"), training(), text)
    assert line(table(tmp_path, "EuroSAT"), "CoOp")["base"] == near(85.7)


def test_time_stamped_log_is_newer_than_log_txt(tmp_path: Path) -> None:
    folder = tmp_path / "base2new/train_base/eurosat/shots_16/CoOp/vit_b16/seed1"
    text = head("CoOp", "EuroSAT", "base")
    write_log(folder, text, training(), result(700))
    write_log(folder, text, training(), result(800), name="log.txt-2023-05-02-10-11-12")
    assert line(table(tmp_path, "EuroSAT"), "CoOp")["base"] == near(80)


def test_a_truncated_log_is_identified_by_its_path(tmp_path: Path) -> None:
    """Published logs are often truncated: the path has to be enough."""
    folder = tmp_path / "base2new/train_base/stanford_cars/shots_16/CoOp/vit_b16/seed2"
    write_log(folder, "Finish training\n", "* accuracy: 78.12%\n")
    assert line(table(tmp_path, "StanfordCars"), "CoOp")["base"] == near(78.12)
