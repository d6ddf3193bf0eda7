"""Bad input: one sentence that names the problem and the fix, exit status 2, no incomplete files."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from cocoamix.model import Losses
from cocoamix.trainers.coop import CoOpModel
from tests.conftest import Runner

BASE = ["DATASET.NUM_SHOTS", "4", "DATASET.SUBSAMPLE_CLASSES", "base"]


def refused(run: Runner, *extra: str, **options: object) -> str:
    """Run a command that must be refused; return its message."""
    done = run(*extra, **options)
    assert done.status == 2, done.output[-2000:]
    assert "Traceback" not in done.output
    assert not (done.folder / "results.json").exists()
    assert not list(done.folder.rglob("*.part"))
    sentences = [line for line in done.output.splitlines() if line.startswith("error: ")]
    assert len(sentences) == 1
    for log in done.folder.glob("log.txt*"):  # that of a run that began its work
        assert sentences[0] in log.read_text()
    return sentences[0]


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["DATASET.NAME", "EuroSat"], ["EuroSat", "Did you mean EuroSAT?"]),
        (["TRAINER.COOP.NCTX", "4"], ["TRAINER.COOP.NCTX", "Did you mean TRAINER.COOP.N_CTX?"]),
        (["TRAINER.COOP.N_CTX", "many"], ["TRAINER.COOP.N_CTX", "'many'", "a whole number"]),
        (["TRAINER.COOP.N_CTX", "0"], ["TRAINER.COOP.N_CTX is 0", "at least one"]),
        (["TRAINER.COOP.PREC", "fp8"], ["TRAINER.COOP.PREC", "fp8", "fp32"]),
        (["TRAINER.COOP.CLASS_TOKEN_POSITION", "back"], ["CLASS_TOKEN_POSITION", "back", "front"]),
        (["TRAINER.COOP.CSC"], ["TRAINER.COOP.CSC", "has no value"]),
        (["TRAINER", "x"], ["TRAINER is a section"]),
        (["TRAINER.COOP.CTX_INIT", "5"], ["TRAINER.COOP.CTX_INIT", "a string"]),
        (["OPTIM.LR", "-1"], ["OPTIM.LR is -1", "at least 0"]),
        (["OPTIM.SGD_NESTEROV", "True", "OPTIM.MOMENTUM", "0.0"], ["sgd", "OPTIM.*", "Nesterov"]),
        (["OPTIM.ADAM_BETA1", "1.5", "OPTIM.NAME", "adam"], ["adam", "OPTIM.*", "1.5"]),
        (["OPTIM.LR_SCHEDULER", "cosin"], ["OPTIM.LR_SCHEDULER", "Did you mean cosine?"]),
        (["OPTIM.STEPSIZE", "(2.5,)", "OPTIM.LR_SCHEDULER", "single_step"], ["OPTIM.STEPSIZE", "2.5"]),
        (["DATALOADER.TRAIN_X.SAMPLER", "Random"], ["DATALOADER.TRAIN_X.SAMPLER", "RandomSampler"]),
        (["DATALOADER.K_TRANSFORMS", "2"], ["DATALOADER.K_TRANSFORMS is 2"]),
        (["SEED", "99999999999"], ["SEED is 99999999999"]),
        (["INPUT.SIZE", "(32,)"], ["INPUT.SIZE", "2 non-negative numbers"]),
        (["INPUT.PIXEL_MEAN", "[0.5, 0.5]"], ["INPUT.PIXEL_MEAN", "a list of 3 non-negative numbers"]),
        (["INPUT.PIXEL_STD", "[0.5, 0, 0.5]"], ["INPUT.PIXEL_STD", "divided by 0"]),
        (["INPUT.RRCROP_SCALE", "(0.5,)"], ["INPUT.RRCROP_SCALE", "2 non-negative numbers"]),
        (["INPUT.RRCROP_SCALE", "(0.9, 0.1)"], ["INPUT.RRCROP_SCALE", "the smaller number must come first"]),
        (["INPUT.INTERPOLATION", "cubic"], ["INPUT.INTERPOLATION"]),
        (["OPTIM.WARMUP_CONS_LR", "-1.0"], ["OPTIM.WARMUP_CONS_LR is -1.0"]),
        (["DATALOADER.TRAIN_X.N_INS", "0"], ["DATALOADER.TRAIN_X.N_INS is 0"]),
        (["INPUT.NO_TRANSFORM", "True"], ["INPUT.NO_TRANSFORM"]),
        (["INPUT.TRANSFORMS", "['gaussian_blur']", "INPUT.GB_K", "2"], ["INPUT.*"]),
        (["OPTIM.LR", "0.1", "--load-epoch", "3"], ["--load-epoch comes after KEY VALUE pairs"]),
        (["DATASET.SUBSAMPLE_CLASSES", "novel"], ["DATASET.SUBSAMPLE_CLASSES", "novel", "new"]),
        (["MODEL.BACKBONE.NAME", "ViT-B16"], ["MODEL.BACKBONE.NAME", "Did you mean ViT-B/16?"]),
        (["MODEL.BACKBONE.WEIGHTS", "nowhere.pt"], ["nowhere.pt", "not a file"]),
        (["MODEL.BACKBONE.SOURCE", "hf"], ["MODEL.BACKBONE.SOURCE", "open_clip"]),
        (["OPTIM.MAX_EPOCH", "0"], ["OPTIM.MAX_EPOCH is 0", "at least 1"]),
        (["OPTIM.NAME", "adamm"], ["OPTIM.NAME", "adamm", "Did you mean adam"]),
        (["INPUT.SIZE", "(224, 224)"], ["INPUT.SIZE", "(224, 224)", "32 x 32"]),
        (["INPUT.TRANSFORMS", "['random_flop']"], ["random_flop"]),
        (["DATASET.NUM_SHOTS", "7"], ["DATASET.NUM_SHOTS is 7", "Annual Crop Land (6)", "DATASET.FEWER_SHOTS"]),
        (["--config-file", "configs/nowhere.yaml"], ["configs/nowhere.yaml"]),
        (["--eval-only", "--model-dir", "nowhere"], ["nowhere", "--model-dir"]),
        (["--eval-only"], ["--eval-only", "CoOp", "--model-dir", "output folder of a training run"]),
    ],
)
def test_errors_name_and_explain_the_problem(run: Runner, extra: list[str], words: list[str]) -> None:
    sentence = refused(run, *extra)
    for word in words:
        assert word in sentence


def test_unknown_trainer_suggests_the_nearest(run: Runner) -> None:
    assert "Did you mean CoOp?" in refused(run, trainer="coop")


def test_missing_data_are_reported(run: Runner, tmp_path: Path) -> None:
    assert f"{tmp_path / 'nowhere'} does not exist" in refused(run, data=tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "no folder eurosat/" in refused(run, data=tmp_path / "empty", name="second")


def test_missing_images_are_counted(run: Runner, data_root: Path) -> None:
    for path in sorted(data_root.rglob("Forest*.png"))[:3]:
        path.unlink()
    sentence = refused(run)
    assert "3 of 140 images" in sentence
    assert "Forest" in sentence


def test_missing_images_are_skipped_on_request(run: Runner, data_root: Path) -> None:
    """A test image and a training image; each is reported, and the first is counted in the evaluation."""
    for name in ("River_12", "River_0"):
        next(data_root.rglob(f"River/{name}.png")).unlink()
    assert "DATASET.BAD_IMAGES skip" in refused(run, "--eval-only", trainer="ZeroshotCLIP")
    done = run("--eval-only", "DATASET.BAD_IMAGES", "skip", trainer="ZeroshotCLIP", name="skipped")
    assert done.status == 0, done.output[-500:]
    assert "2 of 140 images" in done.output
    assert done.results["unreadable_images"] == 1
    assert done.results["evaluated_images"] == 39


def damage(data_root: Path) -> Path:
    path = next(data_root.rglob("River/River_12.png"))  # a test image
    path.write_bytes(path.read_bytes()[:200])
    return path


@pytest.mark.parametrize("workers", ["0", "2"])
def test_unreadable_image_stops_the_run(run: Runner, data_root: Path, workers: str) -> None:
    path = damage(data_root)
    sentence = refused(run, "--eval-only", "DATALOADER.NUM_WORKERS", workers, trainer="ZeroshotCLIP")
    assert "1 unreadable image" in sentence
    assert str(path) in sentence
    assert "DATASET.BAD_IMAGES skip" in sentence


def test_unreadable_images_are_skipped_on_request(run: Runner, data_root: Path) -> None:
    damage(data_root)
    done = run("--eval-only", "DATASET.BAD_IMAGES", "skip", trainer="ZeroshotCLIP")
    assert done.status == 0
    assert done.results["unreadable_images"] == 1
    assert done.results["evaluated_images"] == 39
    assert "* total: 39" in done.output


def test_whole_batch_of_unreadable_training_images_is_skipped(run: Runner, data_root: Path) -> None:
    """An empty batch is skipped; the schedule still advances."""
    for path in data_root.rglob("*.png"):
        if int(path.stem.split("_")[1]) < 6 and "Forest" not in path.name:
            path.write_bytes(b"")
    done = run("DATASET.BAD_IMAGES", "skip", "DATALOADER.TRAIN_X.BATCH_SIZE", "4", "TRAIN.PRINT_FREQ", "1")
    assert done.status == 0
    assert done.results["unreadable_images"] == 54
    assert "lr 2.0000e-02" in done.output


def edit_split(data_root: Path, change: object) -> None:
    path = data_root / "eurosat" / "split_zhou_EuroSAT.json"
    content = json.loads(path.read_text())
    change(content)  # type: ignore[operator]
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("subset", ["all", "base", "new"])
def test_empty_class_is_refused(run: Runner, data_root: Path, subset: str) -> None:
    """Also if only half of the classes is used: the halves themselves would shift."""
    edit_split(data_root, lambda c: c.update(train=[row for row in c["train"] if row[1] != 3]))
    sentence = refused(run, "DATASET.SUBSAMPLE_CLASSES", subset)
    assert "The class 3 (Highway or Road) of EuroSAT has no training image" in sentence


def test_labels_that_do_not_start_at_zero_are_refused(run: Runner, data_root: Path) -> None:
    def shift(content: dict[str, list[list[object]]]) -> None:
        for rows in content.values():
            rows[:] = [[path, label - 1, name] for path, label, name in rows]  # type: ignore[operator]

    edit_split(data_root, shift)
    assert "no training image has 9" in refused(run)


def test_too_few_images_are_detected_despite_the_cache(run: Runner) -> None:
    """A draw allowed once does not permit the next run."""
    assert run("DATASET.NUM_SHOTS", "7", "DATASET.FEWER_SHOTS", "True", "OPTIM.MAX_EPOCH", "1", name="once").status == 0
    assert "DATASET.NUM_SHOTS is 7" in refused(run, "DATASET.NUM_SHOTS", "7")


def test_folder_of_a_run_without_progress_can_be_reused(run: Runner) -> None:
    """A run that stopped in its first epoch, or could not train at all, does not block the corrected command."""
    assert run(*BASE, "OPTIM.LR", "1e38", "OPTIM.WARMUP_EPOCH", "0", "OPTIM.MAX_EPOCH", "1").status == 2
    assert run(*BASE, trainer="ZeroshotCLIP").status == 2
    assert run(*BASE, "OPTIM.MAX_EPOCH", "1").status == 0


def test_diverged_context_is_not_reported(run: Runner) -> None:
    """The step overflows; the loss before it was finite."""
    settings = [
        "OPTIM.LR",
        "1e38",
        "OPTIM.WARMUP_EPOCH",
        "0",
        "OPTIM.MAX_EPOCH",
        "1",
        "DATALOADER.TRAIN_X.BATCH_SIZE",
        "20",
    ]
    done = run(*BASE, *settings)
    assert done.status == 2
    assert "not finite" in done.output
    assert not list(done.folder.rglob("model*"))
    assert not (done.folder / "results.json").exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"train": [], "val": []}', '{"train": [["a", "b", "c"]]}', "\xff"])
def test_malformed_split_file_is_refused(run: Runner, data_root: Path, text: str) -> None:
    (data_root / "eurosat" / "split_zhou_EuroSAT.json").write_bytes(text.encode("latin-1"))
    assert "split_zhou_EuroSAT.json is not a split file" in refused(run)


@pytest.mark.parametrize("content", ["- a\n- b\n", "A: {B\n", "OPTIM: 3\n", "OPTIM:\n  LR: fast\n"])
def test_malformed_configuration_is_refused(run: Runner, tiny_config: Path, content: str) -> None:
    tiny_config.write_text(content)
    assert str(tiny_config) in refused(run)


def test_unwritable_output_is_reported(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    done = run(name="taken")
    assert done.status == 2
    assert "taken cannot be written" in done.output


def test_non_finite_loss_names_step_and_term(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    original, steps = CoOpModel.text_loss, []

    def break_third_step(self: CoOpModel, *args: torch.Tensor) -> Losses:
        losses = original(self, *args)
        steps.append(losses)
        if len(steps) == 3:
            losses.terms["ce"] = losses.total * math.nan
            losses.total = losses.total + losses.terms["ce"]
        return losses

    monkeypatch.setattr(CoOpModel, "text_loss", break_third_step)
    sentence = refused(run, *BASE)
    for word in ("ce is nan", "epoch 2, batch 1 of 2", "OPTIM.LR", "TRAINER.COOP.PREC"):
        assert word in sentence


class TestCheckpoints:
    """Wrong, damaged and foreign checkpoints."""

    @pytest.fixture
    def trained(self, shared_run: Runner) -> Path:
        return shared_run(*BASE, "OPTIM.MAX_EPOCH", "1", name="trained").folder

    def evaluate(self, run: Runner, folder: Path, *extra: str) -> str:
        return refused(run, "--eval-only", "--model-dir", str(folder), *BASE, *extra)

    def test_epoch_without_a_checkpoint_is_refused(self, run: Runner, trained: Path) -> None:
        sentence = refused(run, "--eval-only", "--model-dir", str(trained), "--load-epoch", "9", *BASE)
        assert "There is no model.pth.tar-9" in sentence
        assert "It holds: model.pth.tar-1" in sentence

    def test_truncated_checkpoint_is_refused(self, run: Runner, trained: Path) -> None:
        path = trained / "prompt_learner" / "model.pth.tar-1"
        path.write_bytes(path.read_bytes()[:300])
        assert f"{path} cannot be read" in self.evaluate(run, trained)

    def test_different_context_length_is_refused(self, run: Runner, trained: Path) -> None:
        sentence = self.evaluate(run, trained, "TRAINER.COOP.N_CTX", "5")
        assert "ctx is 4 x 128 there and 5 x 128 here" in sentence

    def test_different_weights_are_refused(self, run: Runner, trained: Path) -> None:
        sentence = self.evaluate(run, trained, "MODEL.BACKBONE.SOURCE", "open_clip")
        assert "was trained on tiny with weights" in sentence

    def test_different_weights_in_a_coop_checkpoint_are_refused(self, run: Runner, trained: Path) -> None:
        """CoOp's checkpoints do not name their backbone, but carry its embedding of the start token."""
        path = trained / "prompt_learner" / "model.pth.tar-1"
        content = torch.load(path, weights_only=True)
        del content["cocoamix"]
        torch.save(content, path)
        assert run("--eval-only", "--model-dir", str(trained), *BASE, name="same").status == 0
        content["state_dict"]["token_prefix"] = content["state_dict"]["token_prefix"].flip(-1)
        torch.save(content, path)
        assert "other CLIP weights" in self.evaluate(run, trained)

    @pytest.mark.parametrize("change", [{"epoch": None}, {"cocoamix": "text"}, {"cocoamix": {}}])
    def test_unusual_but_usable_checkpoints_are_loaded(
        self, run: Runner, trained: Path, change: dict[str, object]
    ) -> None:
        path = trained / "prompt_learner" / "model.pth.tar-1"
        torch.save({**torch.load(path, weights_only=True), **change}, path)
        assert run("--eval-only", "--model-dir", str(trained), *BASE, name="unusual").status == 0

    @pytest.mark.parametrize("state", [None, 3, {"ctx": 3}, {}, {3: torch.zeros(1)}])
    def test_checkpoint_without_weights_is_refused(self, run: Runner, trained: Path, state: object) -> None:
        path = trained / "prompt_learner" / "model.pth.tar-1"
        torch.save({"state_dict": state, "epoch": 1}, path)
        assert str(path) in self.evaluate(run, trained)

    def test_initial_weights_are_checked_too(self, run: Runner, trained: Path) -> None:
        path = trained / "prompt_learner" / "model.pth.tar-1"
        extra = ["MODEL.INIT_WEIGHTS", str(path), "MODEL.BACKBONE.SOURCE", "open_clip"]
        assert "was trained on tiny" in refused(run, *BASE, *extra)

    def test_damaged_resume_file_is_refused(self, run: Runner, trained: Path) -> None:
        (trained / "resume.pth").write_bytes(b"PK")
        done = run(*BASE, "OPTIM.MAX_EPOCH", "1", name="trained")
        assert done.status == 2
        assert "resume.pth cannot be read" in done.output
        torch.save({"epoch": 1}, trained / "resume.pth")
        assert "it has no models" in run(*BASE, "OPTIM.MAX_EPOCH", "1", name="trained").output

    def test_checkpoint_of_another_trainer_is_refused(self, run: Runner, trained: Path) -> None:
        path = trained / "prompt_learner" / "model.pth.tar-1"
        torch.save({"state_dict": {"weight": torch.zeros(2)}, "epoch": 1}, path)
        sentence = self.evaluate(run, trained)
        assert "lacks ctx (it holds weight)" in sentence

    def test_class_specific_context_of_other_classes_is_refused(self, run: Runner) -> None:
        """As many classes, but different ones: without our metadata the class-name embeddings show it."""
        settings = ["TRAINER.COOP.CSC", "True", "OPTIM.MAX_EPOCH", "1"]
        folder = run(*BASE, *settings, name="csc").folder
        path = folder / "prompt_learner" / "model.pth.tar-1"
        new = ["--eval-only", "--model-dir", str(folder), "DATASET.SUBSAMPLE_CLASSES", "new", *settings]
        assert "TRAINER.COOP.CSC" in refused(run, *new, name="one")
        content = torch.load(path, weights_only=True)
        del content["cocoamix"]
        content["state_dict"] = {f"module.{key}": value for key, value in content["state_dict"].items()}
        torch.save(content, path)
        assert "of other classes" in refused(run, *new, name="two")
        same = ["--eval-only", "--model-dir", str(folder), *BASE, *settings]
        assert run(*same, name="three").status == 0
