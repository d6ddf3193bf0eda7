"""What may be averaged, what is named and noted if it may not, and what is left out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cocoamix.errors import UserError
from cocoamix.experiments.frame import Frame, read
from cocoamix.experiments.pivots import base_to_new, over_datasets, over_sessions
from tests.experiments.trees import head, result, training, write_log, write_pair, write_results

TAIL = "eurosat/shots_4/CoOp/vit_b16/seed1"
STATED = {
    "splits": {"train": "t", "test": "the test images"},
    "evaluated_on": "test",
    "views": 0,
    "transforms": {"SIZE": [224, 224], "TRANSFORMS": ["random_flip", "normalize"], "RRCROP_SCALE": [0.08, 1.0]},
}


def bases(frame: Frame) -> dict[str, float]:
    """Return the mean of base by method on the first dataset."""
    wide = base_to_new(frame.values)
    return dict(over_datasets(wide, [wide.index[0][1]])["mean"]["base"])


def test_seeds_with_the_same_protocol_are_averaged(tmp_path: Path) -> None:
    for seed, base in ((1, 80.0), (2, 82.0), (3, 87.0)):
        write_pair(tmp_path, base, 70.0, seed=seed)
    frame = read([tmp_path])
    assert (bases(frame), frame.notes, frame.left_out) == ({"CoOp": 83}, [], [])


@pytest.mark.parametrize(
    ("change", "label", "key"),
    [
        ({"protocol": {"backbone": "RN50"}}, "backbone=RN50", "backbone"),
        ({"protocol": {"transforms": {"SIZE": [336, 336]}}}, "transforms.SIZE=(336, 336)", "transforms.SIZE"),
        ({"protocol": {"splits": {"train": "t", "test": "other"}}}, "splits.test=2", "splits.test"),
        ({"config": {"OPTIM": {"MAX_EPOCH": 200}}}, "MAX_EPOCH=200", "OPTIM.MAX_EPOCH"),
        ({"protocol": {"weights_sha256": "1" * 64}}, "weights_sha256=111111111111", "weights_sha256"),
        ({"protocol": {"views": 4}}, "views=4", "views"),  # a fact that only one of them states
    ],
)
def test_runs_that_differ_have_rows_named_after_the_difference(
    tmp_path: Path, change: dict[str, Any], label: str, key: str
) -> None:
    write_pair(tmp_path, 80.0, 70.0, seed=1)
    write_pair(tmp_path, 90.0, 70.0, seed=2, **change)
    frame = read([tmp_path])
    assert sorted(bases(frame).values()) == [80, 90]
    assert bases(frame)[f"CoOp [{label}]"] == 90
    assert any(f" {key} is " in note and "seed1" in note and "seed2" in note for note in frame.notes)


def test_settings_at_their_default_are_not_named(tmp_path: Path) -> None:
    for ensemble, base in (("coa", 80.0), ("uniform", 70.0)):
        config = {"TRAINER": {"NAME": "CoCoAMix", "COCOAMIX": {"ENSEMBLE": ensemble}}}
        write_pair(tmp_path, base, 60.0, trainer="CoCoAMix", config_name=ensemble, config=config)
    frame = read([tmp_path])
    assert bases(frame) == {"CoCoA-Mix": 80, "CoCoA-Mix [ENSEMBLE=uniform]": 70}
    assert frame.notes == []  # two configurations differ on purpose


def test_differences_by_design_do_not_count(tmp_path: Path) -> None:
    def config(seed: int) -> dict[str, Any]:
        sections = {"NAME": "CoOp", "COOP": {"N_CTX": 16}, "MAPLE": {"N_CTX": seed}}
        return {"SEED": seed, "DATASET": {"ROOT": f"/{seed}"}, "OUTPUT_DIR": f"/{seed}", "TRAINER": sections}

    write_results(tmp_path / "base2new/train_base" / TAIL, 80.0, config=config(1))
    other = {"splits": {"train": "other draw", "test": "test of base"}}
    write_results(tmp_path / f"base2new/train_base/{TAIL[:-1]}2", 90.0, seed=2, protocol=other, config=config(2))
    frame = read([tmp_path])
    assert (bases(frame), frame.notes) == ({"CoOp": 85}, [])


@pytest.mark.parametrize("key", ["OPTIM.MAX_EPOCH", "TRAINER.COOP.N_CTX", "DATALOADER.TRAIN_X.BATCH_SIZE"])
def test_base_and_new_of_different_trainings_have_no_h(tmp_path: Path, key: str) -> None:
    def nested(value: int) -> dict[str, Any]:
        node: Any = value
        for part in reversed(key.split(".")):
            node = {part: node}
        return dict(node)

    write_results(tmp_path / "base2new/train_base" / TAIL, 80.0, config=nested(4))
    write_results(tmp_path / "base2new/test_new" / TAIL, 60.0, subset="new", config=nested(16))
    frame = read([tmp_path])
    assert base_to_new(frame.values)["H"].isna().all()
    assert f"{key} is " in frame.notes[0]


@pytest.mark.parametrize(("loaded", "rows"), [(50, 1), (None, 1), (200, 2)])
def test_evaluation_must_have_loaded_the_last_epoch_of_the_training(
    tmp_path: Path, loaded: int | None, rows: int
) -> None:
    write_log(tmp_path / "base2new/train_base" / TAIL, head("CoOp", "EuroSAT", "base"), training(), result(800))
    new = head("CoOp", "EuroSAT", "new", model_dir="m", load_epoch=loaded)
    write_log(tmp_path / "base2new/test_new" / TAIL, new, result(600))
    assert read([tmp_path]).runs["method"].nunique() == rows


@pytest.mark.parametrize(("ended", "rows"), [("converged", 1), ("bound", 1), ("length", 2)])
def test_seeds_that_converged_at_different_epochs_are_averaged(tmp_path: Path, ended: str, rows: int) -> None:
    for seed, epochs in ((1, 400), (2, 350)):
        stage = {"epochs": epochs, "steps": epochs, "ended": ended, "moved": None, "pi_in": 0.6, "pi_out": 0.4}
        write_pair(tmp_path, 80.0, 60.0, seed=seed, epoch=50 + epochs, second_stage=stage)
    assert read([tmp_path]).runs["method"].nunique() == rows


def test_an_evaluation_may_omit_settings_only_the_loss_uses(tmp_path: Path) -> None:
    """KgCoOp's script passes TRAINER.COOP.W only to the training; its test prints the default."""
    base = head("KgCoOp", "EuroSAT", "base", section="COOP", own="    W: 4.0\n")
    new = head("KgCoOp", "EuroSAT", "new", section="COOP", own="    W: 1.0\n", model_dir="m", load_epoch=50)
    write_log(tmp_path / "base2new/train_base" / TAIL, base, training(), result(800))
    write_log(tmp_path / "base2new/test_new" / TAIL, new, result(600))
    assert base_to_new(read([tmp_path]).values)["H"].tolist() == [pytest.approx(2 * 80 * 60 / 140)]


def test_missing_protocol_is_noted(tmp_path: Path) -> None:
    folder = tmp_path / "base2new/train_base/eurosat/shots_4/CoOp/vit_b16"
    write_log(folder / "seed1", head("CoOp", "EuroSAT", "base", shots=4), training(), result(800))
    write_log(folder / "seed2", "Finish training\n", "* accuracy: 90.00%\n")
    frame = read([tmp_path])
    assert bases(frame) == {"CoOp": 85}
    assert "seed2" in frame.notes[0]


def test_one_method_in_two_folders_is_two_rows_unless_the_seeds_differ(tmp_path: Path) -> None:
    write_pair(tmp_path / "mine", 80.0, 70.0)
    write_pair(tmp_path / "theirs", 82.0, 72.0)
    write_pair(tmp_path / "more", 90.0, 70.0, seed=2)
    assert bases(read([tmp_path / "mine", tmp_path / "theirs"])) == {"CoOp [mine]": 80, "CoOp [theirs]": 82}
    assert bases(read([tmp_path / "mine", tmp_path / "more"])) == {"CoOp": 85}
    assert len(read([tmp_path / "mine", tmp_path / "mine" / "base2new"]).runs) == 2


def test_another_recipe_on_another_dataset_is_averaged_only_under_the_users_name(tmp_path: Path) -> None:
    """ImageNet is often trained for fewer epochs; an average of two recipes must not pass for that of one."""
    write_pair(tmp_path, 80.0, 70.0, config={"OPTIM": {"MAX_EPOCH": 200}})
    write_pair(tmp_path, 74.0, 66.0, config_name="vit_b16_ep50", dataset="ImageNet")
    datasets = ["ImageNet", "EuroSAT"]
    apart = over_datasets(base_to_new(read([tmp_path]).values), datasets)
    assert (len(apart), apart["mean"]["base"].isna().all()) == (2, True)
    joined = over_datasets(base_to_new(read([tmp_path], [("CoOp/*", "Mine")]).values), datasets)
    assert joined["mean"]["base"].to_dict() == {"Mine": 77}


def test_average_needs_all_datasets_and_its_deviation_is_over_seeds(tmp_path: Path) -> None:
    for dataset, values in {"EuroSAT": (80.0, 84.0), "DTD": (60.0, 68.0)}.items():
        for seed, base in enumerate(values, start=1):
            write_pair(tmp_path, base, 70.0, dataset=dataset, seed=seed)
    table = over_datasets(base_to_new(read([tmp_path]).values), ["EuroSAT", "DTD"]).loc["CoOp"]
    # Averages of the seeds: 70 and 76.
    assert (table["mean"]["base"], table["std"]["base"], table["n"]["base"]) == (73, 3, 2)
    write_pair(tmp_path, 90.0, 70.0, dataset="DTD", seed=3)
    table = over_datasets(base_to_new(read([tmp_path]).values), ["EuroSAT", "DTD"]).loc["CoOp"]
    assert table["mean"]["base"] == pytest.approx((82 + 218 / 3) / 2)
    assert (str(table["std"]["base"]), table["n"]["base"]) == ("nan", 0)  # other seeds on one dataset


@pytest.mark.parametrize(
    "changes",
    [
        {"config": {"OPTIM": {"MAX_EPOCH": 100, "LR": 0.1}}},
        {"shots": 16, "protocol": {"shots": 16}, "fingerprint": "g"},
        {"protocol": {"views": 8, "splits": {"train": "u", "test": "the test images"}}},
        {"protocol": {"transforms": {**STATED["transforms"], "TRANSFORMS": ["normalize"], "RRCROP_SCALE": [1, 1]}}},
    ],
)
def test_training_settings_do_not_split_zero_shot_rows(tmp_path: Path, changes: dict[str, Any]) -> None:
    write_pair(tmp_path / "a", 70.0, 70.0, trainer="ZeroshotCLIP", protocol=STATED)
    protocol = {**STATED, **changes.pop("protocol", {})}
    write_pair(tmp_path / "b", 70.0, 70.0, trainer="ZeroshotCLIP", config_name="x", protocol=protocol, **changes)
    frame = read([tmp_path])
    assert (set(frame.runs["method"]), frame.notes, frame.left_out) == ({"CLIP"}, [], [])


@pytest.mark.parametrize(
    ("accuracy", "protocol"),
    [(70.0, {"templates": ["a {}."]}), (70.0, {"evaluated_on": "val"}), (70.0, {"precision": "fp16"}), (71.0, {})],
)
def test_zero_shot_results_that_differ_split_rows(tmp_path: Path, accuracy: float, protocol: dict[str, Any]) -> None:
    write_pair(tmp_path / "a", 70.0, 70.0, trainer="ZeroshotCLIP", protocol=STATED)
    write_pair(tmp_path / "b", accuracy, 70.0, trainer="ZeroshotCLIP", protocol={**STATED, **protocol})
    assert read([tmp_path / "a", tmp_path / "b"]).runs["method"].nunique() == 2


def test_partitions_are_not_names_but_a_column(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 70.0)
    halves = {"partition": "random:1", "splits": {"train": "t", "test": "half"}}
    write_pair(tmp_path / "base2new" / "random_1", 50.0, 40.0, protocol=halves, fingerprint="1")
    values = read([tmp_path]).values
    assert values.groupby("draw")["method"].unique().map(list).to_dict() == {"label": ["CoOp"], "random:1": ["CoOp"]}
    assert base_to_new(values[values["draw"] == "label"])["base"].tolist() == [80]


def test_newest_of_two_results_counts_and_equal_ones_are_no_conflict(tmp_path: Path) -> None:
    """MaPLe's scripts evaluate base classes again in test_base."""
    old = write_results(tmp_path / "base2new/train_base" / TAIL, 80.0)
    os.utime(old, (1, 1))
    write_results(tmp_path / "base2new/test_base" / TAIL, 80.02)
    assert read([tmp_path]).left_out == []
    write_results(tmp_path / "base2new/test_base" / TAIL, 70.0)
    frame = read([tmp_path])
    assert bases(frame) == {"CoOp": 70}
    assert [(run.kind, "train_base" in run.folder) for run in frame.left_out] == [("duplicate", True)]


def write_sessions(root: Path, accuracies: list[float], seed: int, finished: bool = True) -> None:
    folder = root / f"fscil/cifar100/CoOpFSCIL/vit_l14/seed{seed}"
    facts = {"trainer": "CoOpFSCIL", "dataset": "CIFAR100FSCIL", "subset": "all", "finished": finished}
    write_results(folder, accuracies[-1], seed=seed, sessions=accuracies, **facts)


def test_stopped_runs_in_sessions_are_left_out_if_there_are_complete_ones(tmp_path: Path) -> None:
    write_sessions(tmp_path, [90.0, 80.0, 70.0], seed=1)
    write_sessions(tmp_path, [80.0, 60.0], seed=2, finished=False)
    frame = read([tmp_path])
    assert over_sessions(frame.values).iloc[0].tolist() == [90, 80, 70, 80, 20]
    assert [(run.kind, "session 1" in run.reason, "seed2" in run.folder) for run in frame.left_out] == [
        ("stopped", True, True)
    ]


# ---------------------------------------------------------------------------------------- damaged files


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"config": {"OPTIM": {"LR": float("nan")}}}, "OPTIM.LR"),
        ({"config": {"OPTIM": {"LR": 10**399}}}, "OPTIM.LR"),
        ({"metrics": {"accuracy": 80.0, "a\ud800": 1.0}}, "not a valid name"),
        ({"metrics": {"accuracy": 180.0}}, "180"),
        ({"metrics": {"nll": 1.0}}, "accuracy"),
        ({"protocol": {"backbone": "\ud800"}}, "backbone"),
        ({"trainer": "\x1b]0;title\x07"}, "trainer"),
        ({"seed": 10**399}, "number"),
    ],
)
def test_damaged_run_is_left_out_with_the_reason(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    write_pair(tmp_path, 80.0, 70.0)
    write_results(tmp_path / f"base2new/train_base/{TAIL[:-1]}2", 70.0, **{"seed": 2, **change})
    frame = read([tmp_path])
    assert bases(frame) == {"CoOp": 80}
    (left,) = frame.left_out
    assert (left.kind, reason in left.reason, "seed2" in left.folder) == ("broken", True, True)


@pytest.mark.parametrize("name", ["results.json", "log.txt"])
def test_named_pipe_is_left_out(tmp_path: Path, name: str) -> None:
    """Reading it would wait forever."""
    write_pair(tmp_path, 80.0, 70.0)
    os.mkfifo(tmp_path / "base2new" / name)
    assert [run.kind for run in read([tmp_path]).left_out] == ["broken"]


def test_metric_that_is_not_finite_is_noted_and_dropped(tmp_path: Path) -> None:
    write_results(tmp_path / TAIL, 70.0, metrics={"accuracy": 70.0, "nll": float("inf")})
    frame = read([tmp_path])
    assert set(frame.values["metric"]) == {"accuracy"}
    assert "nll" in frame.notes[0]


def test_run_with_skipped_images_is_not_averaged_with_others(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_pair(tmp_path, 80.0, 60.0, seed=seed)
    path = next(tmp_path.rglob("train_base/**/seed2/results.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "unreadable_images": 32}))
    frame = read([tmp_path])
    assert any("32 images" in note for note in frame.notes)
    assert len(bases(frame)) == 2


def test_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"results\.json"):
        read([tmp_path])
    with pytest.raises(UserError, match="does not exist"):
        read([tmp_path / "nowhere"])
