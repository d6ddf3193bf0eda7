"""What may be averaged, and what is noted if it may not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from cocoamix.errors import UserError
from cocoamix.report.build import Options, Report, build
from cocoamix.report.render.html import render
from tests.report.test_peers import line, near
from tests.experiments.trees import head, result, training, write_log, write_pair, write_results


def only_table(report: Report, title: str = "EuroSAT"):  # type: ignore[no-untyped-def]
    return next(one for section in report.sections for one in section.tables if one.title == title)


def test_seeds_with_the_same_protocol_are_averaged(tmp_path: Path) -> None:
    for seed, base in ((1, 80.0), (2, 82.0), (3, 87.0)):
        write_pair(tmp_path, base, 70.0, seed=seed)
    report = build([tmp_path])
    assert not report.notes
    assert line(only_table(report), "CoOp")["base"] == near(83)


@pytest.mark.parametrize(
    ("change", "key", "values"),
    [
        ({"protocol": {"backbone": "RN50"}}, "backbone", ("ViT-B/16", "RN50")),
        ({"protocol": {"transforms": {"SIZE": [336, 336]}}}, "transforms.SIZE", ("(224, 224)", "(336, 336)")),
        ({"protocol": {"splits": {"train": "t", "test": "other"}}}, "splits.test", ("test of ", "other")),
        ({"config": {"OPTIM": {"MAX_EPOCH": 200}}}, "OPTIM.MAX_EPOCH", ("50", "200")),
        ({"protocol": {"activation": "gelu"}}, "activation", ("quick_gelu", "gelu")),
        ({"protocol": {"precision": "fp16"}}, "precision", ("fp32", "fp16")),
        ({"protocol": {"weights_sha256": "1" * 64}}, "weights_sha256", ("0" * 12, "1" * 12)),
    ],
)
def test_runs_that_differ_are_not_averaged_and_a_note_says_so(
    tmp_path: Path, change: dict[str, object], key: str, values: tuple[str, str]
) -> None:
    write_pair(tmp_path, 80.0, 70.0, seed=1)
    write_pair(tmp_path, 90.0, 70.0, seed=2, **change)
    report = build([tmp_path])
    found = only_table(report)
    assert sorted(one.values[0].mean or 0 for one in found.lines) == [80.0, 90.0]
    note = next(note for note in report.notes if f" {key} is " in note)
    for value in values:
        assert value in note
    assert "seed1" in note
    assert "seed2" in note
    assert "not averaged" in note


def test_differences_by_design_do_not_count(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 70.0, seed=1, config={"SEED": 1, "DATASET": {"ROOT": "/a"}, "OUTPUT_DIR": "x"})
    write_pair(
        tmp_path,
        90.0,
        70.0,
        seed=2,
        protocol={"splits": {"train": "other draw", "test": "test of base"}},
        config={"SEED": 2, "DATASET": {"ROOT": "/b"}, "OUTPUT_DIR": "y", "DATALOADER": {"NUM_WORKERS": 8}},
    )
    # The protocol above is written for both subsets, so look at base only.
    report = build([tmp_path / "base2new/train_base"])
    assert not report.notes
    assert line(only_table(report), "CoOp")["base"] == near(85)


def test_peers_logs_of_differing_backbones_are_not_averaged(tmp_path: Path) -> None:
    for seed, backbone in ((1, "RN50"), (2, "ViT-B/16")):
        folder = tmp_path / f"base2new/train_base/eurosat/shots_16/CoOp/cfg/seed{seed}"
        text = head("CoOp", "EuroSAT", "base", seed, backbone=backbone)
        write_log(folder, text, training(), result(700 + 100 * seed))
    report = build([tmp_path])
    found = only_table(report)
    assert line(found, "CoOp [backbone=RN50]")["base"] == near(80)
    assert line(found, "CoOp [backbone=ViT-B/16]")["base"] == near(90)
    assert "RN50" in report.notes[0]
    assert "ViT-B/16" in report.notes[0]


@pytest.mark.parametrize(
    ("key", "one", "other"),
    [
        ("OPTIM.MAX_EPOCH", {"OPTIM": {"MAX_EPOCH": 50}}, {"OPTIM": {"MAX_EPOCH": 200}}),
        ("TRAINER.COOP.N_CTX", {"TRAINER": {"COOP": {"N_CTX": 4}}}, {"TRAINER": {"COOP": {"N_CTX": 16}}}),
        (
            "DATALOADER.TRAIN_X.BATCH_SIZE",
            {"DATALOADER": {"TRAIN_X": {"BATCH_SIZE": 8}}},
            {"DATALOADER": {"TRAIN_X": {"BATCH_SIZE": 32}}},
        ),
    ],
)
def test_base_and_new_of_different_trainings_have_no_h(
    tmp_path: Path, key: str, one: dict[str, Any], other: dict[str, Any]
) -> None:
    tail = "eurosat/shots_4/CoOp/vit_b16/seed1"
    write_results(tmp_path / "base2new/train_base" / tail, 80.0, config=one)
    write_results(tmp_path / "base2new/test_new" / tail, 60.0, subset="new", config=other)
    report = build([tmp_path])
    found = only_table(report)
    assert len(found.lines) == 2
    assert all(row.label.startswith(f"CoOp [{key.split('.')[-1]}=") for row in found.lines)
    for row in found.lines:
        values = line(found, row.label)
        assert (values["H"], values["H_of_means"]) == (None, None)
    (note,) = report.notes
    assert f"{key} is " in note
    assert "train_base" in note
    assert "test_new" in note


def write_peer(root: Path, trainer: str, base_head: str, new_head: str, seed: int = 1) -> None:
    tail = f"eurosat/shots_16/{trainer}/vit_b16/seed{seed}"
    write_log(root / "base2new/train_base" / tail, base_head, training(), result(800))
    write_log(root / "base2new/test_new" / tail, new_head, result(600))


def test_evaluation_must_have_loaded_the_last_epoch_of_the_training(tmp_path: Path) -> None:
    for root, loaded in (("right", 50), ("wrong", 200), ("silent", None)):
        new = head("CoOp", "EuroSAT", "new", model_dir="m", load_epoch=loaded)
        write_peer(tmp_path / root, "CoOp", head("CoOp", "EuroSAT", "base"), new)
    for root in ("right", "silent"):
        report = build([tmp_path / root])
        assert line(only_table(report), "CoOp")["H"] == near(2 * 80 * 60 / 140)
        assert not report.notes
    report = build([tmp_path / "wrong"])
    assert all(one.values[2].missing and one.values[3].missing for one in only_table(report).lines)
    assert any("epoch is 200 in" in note or "epoch is 50 in" in note for note in report.notes)


def test_seeds_that_converged_at_different_epochs_are_averaged(tmp_path: Path) -> None:
    """The number of epochs of a second stage that converged may differ by seed; a fixed length may not."""
    for ended, rows in (("converged", 1), ("bound", 1), ("length", 2)):
        root = tmp_path / ended
        for seed, epochs in ((1, 400), (2, 350)):
            stage = {"epochs": epochs, "steps": epochs, "ended": ended, "moved": None, "pi_in": 0.6, "pi_out": 0.4}
            facts = {"seed": seed, "epoch": 50 + epochs, "second_stage": stage}
            tail = f"eurosat/shots_4/CoOp/vit_b16/seed{seed}"
            write_results(root / "base2new/train_base" / tail, 80.0, **facts)
            write_results(root / "base2new/test_new" / tail, 60.0, subset="new", **facts)
        assert len(only_table(build([root])).lines) == rows, ended


def test_an_evaluation_may_omit_settings_only_the_loss_uses(tmp_path: Path) -> None:
    """KgCoOp's script passes TRAINER.COOP.W only to the training; its test prints the default."""
    base = head("KgCoOp", "EuroSAT", "base", section="COOP", own="    W: 8.0\n")
    new = head("KgCoOp", "EuroSAT", "new", section="COOP", own="    W: 1.0\n", model_dir="m", load_epoch=50)
    write_peer(tmp_path, "KgCoOp", base, new)
    report = build([tmp_path])
    assert line(only_table(report), "KgCoOp")["H"] == near(2 * 80 * 60 / 140)
    assert not report.notes


def test_source_and_targets_of_different_trainings_have_no_h(tmp_path: Path) -> None:
    model = "imagenet/CoOp/vit_b16_16shots/seed1"
    write_log(tmp_path / model, head("CoOp", "ImageNet", epochs=50), training(), result(700))
    target = tmp_path / "evaluation/CoOp/vit_b16_16shots/eurosat/seed1"
    write_log(target, head("CoOp", "EuroSAT", shots=-1, epochs=200, model_dir=f"output/{model}"), result(500))
    report = build([tmp_path])
    found = only_table(report, "To other datasets")
    assert all(line(found, one.label)["H"] is None for one in found.lines)
    assert any("OPTIM.MAX_EPOCH" in note for note in report.notes)


def test_differing_fingerprints_are_not_averaged_even_if_no_key_explains_them(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 70.0, seed=1, fingerprint="aaaa")
    write_pair(tmp_path, 90.0, 70.0, seed=2, fingerprint="bbbb")
    report = build([tmp_path])
    found = only_table(report)
    assert [(one.label, one.values[0].mean) for one in found.lines] == [
        ("CoOp [fingerprint=1]", 80.0),
        ("CoOp [fingerprint=2]", 90.0),
    ]
    assert any(
        "fingerprint is aaaa in" in note and "everything that they state agrees" in note for note in report.notes
    )


def test_differing_fingerprints_name_facts_of_only_one_run(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 70.0, seed=1, fingerprint="aaaa")
    write_pair(tmp_path, 90.0, 70.0, seed=2, fingerprint="bbbb", protocol={"views": 4})
    report = build([tmp_path])
    assert len(only_table(report).lines) == 2
    assert any("only one of them states views" in note for note in report.notes)


def test_differing_fingerprints_are_reported_by_the_fact_that_explains_them(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 70.0, seed=1, fingerprint="aaaa")
    write_pair(tmp_path, 90.0, 70.0, seed=2, fingerprint="bbbb", protocol={"backbone": "RN50"})
    report = build([tmp_path])
    assert sorted(one.label for one in only_table(report).lines) == ["CoOp [backbone=RN50]", "CoOp [backbone=ViT-B/16]"]
    assert not any("fingerprint is" in note for note in report.notes)


def test_missing_protocol_is_noted(tmp_path: Path) -> None:
    tree = "base2new/train_base/eurosat/shots_16/CoOp/vit_b16"
    write_log(tmp_path / tree / "seed1", head("CoOp", "EuroSAT", "base"), training(), result(800))
    write_log(tmp_path / tree / "seed2", "Finish training\n", "* accuracy: 90.00%\n")
    report = build([tmp_path])
    assert line(only_table(report), "CoOp")["base"] == near(85)
    (note,) = report.notes
    assert "CoOp: protocol not stated in" in note
    assert "seed2" in note
    assert "backbone" in note


def test_seeds_of_an_ensemble_of_trained_models_are_averaged(tmp_path: Path) -> None:
    """T_En's settings name the folders of its models, which differ from seed to seed."""
    for seed in (1, 2):
        settings = {"TRAINER": {"NAME": "TuneEn", "ENLEARN": {"PROMPTS": [f"output/x/seed{seed}"]}}}
        write_pair(tmp_path, 80.0 + seed, 60.0, seed=seed, trainer="TuneEn", config=settings)
    assert line(only_table(build([tmp_path])), "TuneEn")["base"] == near(81.5)


def test_runs_without_a_seed_are_distinguished_by_folder(tmp_path: Path) -> None:
    for number, base in ((1, 80.0), (2, 82.0), (3, 87.0)):
        tail = f"eurosat/shots_4/CoOp/vit_b16/seed{number}"
        write_results(tmp_path / "base2new/train_base" / tail, base, seed=-1)
    found = only_table(build([tmp_path]))
    assert (found.lines[0].values[0].mean, found.lines[0].values[0].n) == (near(83), 3)


def test_one_method_in_two_given_folders_is_two_rows(tmp_path: Path) -> None:
    write_pair(tmp_path / "mine", 80.0, 70.0)
    write_pair(tmp_path / "theirs", 82.0, 72.0)
    found = only_table(build([tmp_path / "mine", tmp_path / "theirs"]))
    assert line(found, "CoOp [mine]")["base"] == near(80)
    assert line(found, "CoOp [theirs]")["base"] == near(82)


def test_seeds_in_two_given_folders_are_one_row(tmp_path: Path) -> None:
    write_pair(tmp_path / "monday", 80.0, 70.0, seed=1)
    write_pair(tmp_path / "tuesday", 82.0, 72.0, seed=2)
    assert line(only_table(build([tmp_path / "monday", tmp_path / "tuesday"])), "CoOp")["base"] == near(81)


def test_a_folder_given_twice_counts_once(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 70.0)
    report = build([tmp_path, tmp_path / "base2new"])
    assert len(report.runs) == 2
    assert report.complete


def test_runs_given_the_same_name_share_a_row(tmp_path: Path) -> None:
    """ImageNet is often run with another configuration; a common name gives a single row."""
    write_pair(tmp_path, 80.0, 70.0, config_name="vit_b16_ep200")
    write_pair(tmp_path, 74.0, 66.0, config_name="vit_b16_ep50", dataset="ImageNet")
    apart = build([tmp_path])
    assert line(only_table(apart, "Average over 2 datasets"), "CoOp (vit_b16_ep50)")["base"] is None
    joined = build([tmp_path], Options(names=(("CoOp/*", "Context optimisation"),)))
    assert line(only_table(joined, "Average over 2 datasets"), "Context optimisation")["base"] == near(77)


def test_missing_dataset_omits_the_average_unless_common_is_set(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 60.0, dataset="EuroSAT")
    write_pair(tmp_path, 90.0, 50.0, dataset="DTD")
    write_pair(tmp_path, 70.0, 50.0, dataset="Food101")
    for dataset, base in (("EuroSAT", 82.0), ("DTD", 92.0)):
        write_pair(tmp_path, base, 60.0, dataset=dataset, trainer="KgCoOp")
    whole = only_table(build([tmp_path]), "Average over 3 datasets")
    assert line(whole, "KgCoOp")["base"] is None
    assert line(whole, "CoOp")["base"] == near(80)
    report = build([tmp_path], Options(common=True))
    shared = only_table(report, "Average over 2 datasets")
    assert line(shared, "KgCoOp")["base"] == near(87)
    assert line(shared, "CoOp")["base"] == near(85)
    assert any("Food101" in note for section in report.sections for note in section.notes)


def test_mean_of_h_and_h_of_means_are_both_shown(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 60.0, dataset="EuroSAT")
    write_pair(tmp_path, 40.0, 20.0, dataset="DTD")
    values = line(only_table(build([tmp_path]), "Average over 2 datasets"), "CoOp")
    # H: 68.5714 and 26.6667; base 60 and new 40 on average.
    assert values["H"] == near((68.57143 + 26.66667) / 2)
    assert values["H_of_means"] == near(48)


def test_deviation_of_an_average_is_over_the_averages_of_seeds(tmp_path: Path) -> None:
    for seed, (one, two) in {1: (80.0, 60.0), 2: (84.0, 52.0)}.items():
        write_pair(tmp_path, one, 50.0, dataset="EuroSAT", seed=seed)
        write_pair(tmp_path, two, 50.0, dataset="DTD", seed=seed)
    (found,) = only_table(build([tmp_path]), "Average over 2 datasets").lines
    assert found.values[0].mean == near(69)
    assert found.values[0].values == (70.0, 68.0)
    assert found.values[0].std == near(1)


def test_best_is_marked_including_ties_if_there_is_something_to_compare(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.001, 70.0)
    (alone,) = only_table(build([tmp_path])).lines
    assert not any(value.best for value in alone.values)
    write_pair(tmp_path, 80.004, 60.0, trainer="KgCoOp")
    found = {one.label: one.values for one in only_table(build([tmp_path])).lines}
    assert [value.best for value in found["CoOp"]] == [True, True, True, True, False]
    assert [value.best for value in found["KgCoOp"]] == [True, False, False, False, False]


def test_differences_are_paired_by_dataset(tmp_path: Path) -> None:
    gains = {"EuroSAT": 2.0, "DTD": 3.0, "Food101": -1.0}
    for dataset, gain in gains.items():
        write_pair(tmp_path, 70.0, 70.0, dataset=dataset)
        write_pair(tmp_path, 70.0 + gain, 70.0, dataset=dataset, trainer="KgCoOp")
    values = line(only_table(build([tmp_path], Options(baseline="coop")), "Difference from CoOp"), "KgCoOp")
    assert values["d_base"] == near(4 / 3)
    # Of the eight signs, |+-2 +-3 +-1| >= 4 for 2+3+1, 2+3-1 and their negatives: 4 of 8.
    assert values["p_base"] == near(0.5)
    assert values["p_new"] == near(1.0)


def test_differences_of_one_dataset_are_paired_by_seed(tmp_path: Path) -> None:
    for seed, (one, two) in {1: (70.0, 71.0), 2: (75.0, 77.0), 3: (60.0, 63.0)}.items():
        write_pair(tmp_path, one, 50.0, seed=seed)
        write_pair(tmp_path, two, 50.0, seed=seed, trainer="KgCoOp")
    values = line(only_table(build([tmp_path], Options(baseline="CoOp")), "Difference from CoOp"), "KgCoOp")
    assert (values["d_base"], values["p_base"]) == (near(2), near(0.25))


def test_differing_test_splits_are_not_compared(tmp_path: Path) -> None:
    write_pair(tmp_path, 70.0, 60.0)
    write_pair(tmp_path, 75.0, 65.0, trainer="KgCoOp", protocol={"splits": {"train": "t", "test": "x"}})
    report = build([tmp_path], Options(baseline="CoOp"))
    found = only_table(report, "Difference from CoOp")
    assert found.lines[0].values[0].text == "not comparable"
    assert any("splits.test" in note for section in report.sections for note in section.notes)


def test_different_precisions_are_compared_but_different_activations_are_not(tmp_path: Path) -> None:
    """A method that needs another precision can still be compared; other activations are other models."""
    write_pair(tmp_path, 70.0, 60.0)
    write_pair(tmp_path, 75.0, 65.0, trainer="KgCoOp", protocol={"activation": "gelu"})
    write_pair(tmp_path, 73.0, 65.0, trainer="ProGrad", protocol={"precision": "fp16"})
    report = build([tmp_path], Options(baseline="CoOp"))
    found = only_table(report, "Difference from CoOp")
    refused, allowed = (next(one for one in found.lines if one.label == label) for label in ("KgCoOp", "ProGrad"))
    assert refused.values[0].text == "not comparable"
    assert allowed.values[0].mean == near(3)
    assert any("activation is gelu and quick_gelu" in note for section in report.sections for note in section.notes)


def test_unknown_baseline_error_suggests_the_nearest(tmp_path: Path) -> None:
    write_pair(tmp_path, 70.0, 60.0)
    with pytest.raises(UserError, match=r"no method has that name. Did you mean CoOp\?"):
        build([tmp_path], Options(baseline="CoOpp"))


def test_sweep_of_a_setting_is_found_in_the_configurations(tmp_path: Path) -> None:
    for value, base in ((0.0, 70.0), (1.0, 74.0), (5.0, 72.0)):
        settings = {"TRAINER": {"NAME": "CoCoAMix", "COCOAMIX": {"W": value, "MARGIN": 0.2}}}
        write_pair(tmp_path, base, 60.0, trainer="CoCoAMix", config=settings, config_name=f"w{value}")
    names = tuple((f"CoCoAMix/w{value}", f"Mine, W {value:g}") for value in (0.0, 1.0, 5.0))  # as a plan calls them
    assert only_table(build([tmp_path], Options(names=names)), "Mine: sweep of w (EuroSAT)")
    report = build([tmp_path])
    found = only_table(report, "CoCoA-Mix: sweep of w (EuroSAT)")
    assert [(one.label, one.values[0].mean) for one in found.lines] == [("0", 70.0), ("1", 74.0), ("5", 72.0)]
    (chart,) = (one for section in report.sections for one in section.charts if one.x_label == "w")
    assert chart.series[0].x == (0.0, 1.0, 5.0)
    assert chart.series[0].y == (70.0, 74.0, 72.0)


def test_epochs_of_one_model_are_rows_and_not_sweep_points(tmp_path: Path) -> None:
    """Evaluated in separate folders, with or without names, and in the training's folder."""

    def write(root: Path, value: float, epoch: int, name: str, seed: int) -> None:
        config = {"TRAINER": {"NAME": "CoCoAMix", "COCOAMIX": {"W": value}}, "OPTIM": {"MAX_EPOCH": 50}}
        facts = {"trainer": "CoCoAMix", "config": config, "epoch": epoch, "seed": seed}
        write_pair(root, 60.0 + epoch / 10 + value + seed, 60.0, config_name=name, **facts)

    for seed in (1, 2):
        for value in (1.0, 5.0):
            write(tmp_path / "apart", value, 50, f"w{value}", seed)
        write(tmp_path / "apart", 5.0, 10, "w5.0_epoch10", seed)
        write(tmp_path / "one", 5.0, 50 - 40 * (seed == 1), "w5.0", seed)
    names = (("CoCoAMix/w5.0_epoch10", "Mine, epoch 10"),)
    for options, label in ((Options(names=names), "Mine, epoch 10"), (Options(), "CoCoA-Mix (w5.0_epoch10)")):
        report = build([tmp_path / "apart"], options)
        found = only_table(report, "EuroSAT")
        assert len(found.lines) == 3
        assert line(found, label)["base"] == near(67.5)
        sweep = next(one for section in report.sections for one in section.tables if "sweep of w" in one.title)
        assert [(one.label, one.values[0].mean) for one in sweep.lines] == [("1", near(67.5)), ("5", near(71.5))]
    assert len(only_table(build([tmp_path / "one"])).lines) == 2  # distinguished by the epoch


def test_sweep_points_cover_only_their_common_datasets(tmp_path: Path) -> None:
    for value, datasets in ((0.0, {"EuroSAT": 70.0, "DTD": 50.0}), (1.0, {"EuroSAT": 74.0})):
        settings = {"TRAINER": {"NAME": "CoCoAMix", "COCOAMIX": {"W": value}}}
        for dataset, base in datasets.items():
            names = {"trainer": "CoCoAMix", "dataset": dataset, "config_name": f"w{value}"}
            write_pair(tmp_path, base, 60.0, config=settings, **names)
    found = only_table(build([tmp_path]), "CoCoA-Mix: sweep of w (EuroSAT)")
    assert [(one.label, one.values[0].mean) for one in found.lines] == [("0", 70.0), ("1", 74.0)]


def test_least_forgetting_is_the_best(tmp_path: Path) -> None:
    for trainer, values in (("CoOpFSCIL", [90.0, 60.0]), ("CoCoAMixFSCIL", [80.0, 70.0])):
        names = {"trainer": trainer, "dataset": "ShapesFSCIL", "subset": "all"}
        write_results(tmp_path / f"fscil/{trainer}/seed1", values[-1], sessions=values, **names)
    found = only_table(build([tmp_path]), "ShapesFSCIL")
    place = [column.key for column in found.columns].index("PD")
    assert {one.label: (one.values[place].mean, one.values[place].best) for one in found.lines} == {
        "CoOp-FSCIL": (30.0, False),
        "CoCoA-Mix": (10.0, True),
    }


def test_sessions_of_class_incremental_runs_are_averaged_over_seeds(tmp_path: Path) -> None:
    for seed, values in {1: [90.0, 80.0, 70.0], 2: [92.0, 84.0, 70.0]}.items():
        write_results(
            tmp_path / f"fscil/seed{seed}",
            values[-1],
            dataset="ShapesFSCIL",
            subset="all",
            seed=seed,
            sessions=values,
        )
    report = build([tmp_path])
    values_of = line(only_table(report, "ShapesFSCIL"), "CoOp")
    assert [values_of[f"session_{number}"] for number in range(3)] == [near(91), near(82), near(70)]
    assert values_of["mean"] == near((80 + 82) / 2)
    assert values_of["PD"] == near(21)
    assert report.sections[0].charts[0].kind == "curves"


def test_results_on_all_classes_have_a_separate_table(tmp_path: Path) -> None:
    inside = {"accuracy": 70.0, "base_accuracy": 80.0, "new_accuracy": 60.0, "harmonic_mean": 68.57}
    folder = tmp_path / "base2new/test_all/eurosat/shots_4/CoOp/vit_b16/seed1"
    write_results(folder, 70.0, subset="all", metrics=inside)
    values = line(only_table(build([tmp_path]), "Base and new classes in one label space"), "CoOp")
    assert (values["accuracy"], values["new_accuracy"]) == (70.0, 60.0)


def test_base_evaluated_twice_with_the_same_result_is_accepted(tmp_path: Path) -> None:
    """MaPLe's scripts evaluate base classes again in test_base."""
    tail = "eurosat/shots_4/CoOp/vit_b16/seed1"
    write_results(tmp_path / "base2new/train_base" / tail, 80.0)
    write_results(tmp_path / "base2new/test_base" / tail, 80.02)
    report = build([tmp_path])
    assert report.complete
    assert len(only_table(report).lines) == 1


def test_conflicting_results_of_one_seed_are_noted_and_the_newer_is_used(tmp_path: Path) -> None:
    tail = "eurosat/shots_4/CoOp/vit_b16/seed1"
    old = write_results(tmp_path / "base2new/train_base" / tail, 80.0)
    os.utime(old, (1, 1))
    write_results(tmp_path / "base2new/test_base" / tail, 70.0)
    report = build([tmp_path])
    assert [(problem.kind, "train_base" in problem.folder) for problem in report.problems] == [("duplicate", True)]
    assert line(only_table(report), "CoOp")["base"] == near(70)


def test_rows_with_many_differences_have_distinct_names(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        optim = {"MAX_EPOCH": 50 * seed, "LR": 0.1 * seed, "NAME": "sgd", "MOMENTUM": 0.9 if seed == 1 else 0.8}
        write_pair(tmp_path, 80.0, 60.0, seed=seed, config={"OPTIM": optim})
    labels = [one.label for one in only_table(build([tmp_path])).lines]
    assert labels == ["CoOp [MAX_EPOCH=50]", "CoOp [MAX_EPOCH=100]", "CoOp [MAX_EPOCH=150]"]


def test_settings_of_other_trainers_do_not_matter(tmp_path: Path) -> None:
    for seed in (1, 2):
        sections = {"NAME": "CoOp", "COOP": {"N_CTX": 16}, "MAPLE": {"N_CTX": seed}}
        write_pair(tmp_path, 80.0, 60.0, seed=seed, config={"TRAINER": sections})
    assert len(only_table(build([tmp_path])).lines) == 1


def test_a_tree_without_pairs_has_no_h_figure(tmp_path: Path) -> None:
    write_results(tmp_path / "base2new/train_base/eurosat/shots_4/CoOp/vit_b16/seed1", 80.0)
    report = build([tmp_path])
    assert [chart.kind for chart in report.sections[0].charts] == ["points"]
    assert "<svg" in render(report)


def test_random_halves_do_not_affect_coops_halves(tmp_path: Path) -> None:
    """They have other classes for the same dataset: a separate section, with a row for each partition."""

    def write(root: Path) -> None:
        for dataset in ("EuroSAT", "DTD"):
            for seed in (1, 2):
                splits = {"train": "t", "test": f"test of {dataset}"}
                write_pair(root, 80.0 + seed, 70.0, dataset=dataset, seed=seed, protocol={"splits": splits})

    write(tmp_path / "plain")
    write(tmp_path / "both")
    for number in (1, 2, 3):
        halves = {"partition": f"random:{number}", "splits": {"train": "t", "test": f"half {number}"}}
        root = tmp_path / "both" / "base2new" / f"random_{number}"
        write_pair(root, 50.0 + number, 40.0, protocol=halves, fingerprint=str(number))
    plain, both = (build([tmp_path / name], Options(paper=True)) for name in ("plain", "both"))
    (section,) = plain.sections
    first, second = both.sections
    assert (first.tables, first.charts) == (section.tables, section.charts)
    assert (second.key, second.title, second.charts) == ("base2new-4-random", "Base to new, 4 shots, random halves", [])
    labels = [f"CoOp [partition=random:{number}]" for number in (1, 2, 3)]
    table = next(one for one in second.tables if one.title == "EuroSAT")
    assert [one.label for one in table.lines] == labels
    assert [one.values[0].mean for one in table.lines] == [51.0, 52.0, 53.0]
    assert any("partition is random:1 in" in note and "3 values in all" in note for note in both.notes)
    render(both)
    alone = build([tmp_path / "both" / "base2new" / "random_2"])
    assert [one.title for one in alone.sections] == ["Base to new, 4 shots, partition random:2"]
    assert not alone.notes
