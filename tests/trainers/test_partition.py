"""Training and evaluation under DATASET.PARTITION, and runs from before the key existed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cocoamix.config.settings import flatten
from cocoamix.errors import UserError
from cocoamix.finished import is_finished
from cocoamix.io import checkpoints
from tests.conftest import CLASSES, Run, Runner, command

KEY = "DATASET.PARTITION"
SHORT = ["OPTIM.MAX_EPOCH", "1", "DATASET.NUM_SHOTS", "1"]
BASE = [*SHORT, "DATASET.SUBSAMPLE_CLASSES", "base"]
NEW = [*SHORT, "DATASET.SUBSAMPLE_CLASSES", "new"]
ALL = [*SHORT, "DATASET.SUBSAMPLE_CLASSES", "all"]
RANDOM = [KEY, "random:2"]
IN, OUT = ([CLASSES[label] for label in half] for half in ((3, 4, 5, 6, 9), (0, 1, 2, 7, 8)))


def evaluate(run: Runner, trained: Run, *settings: str, name: str = "evaluated") -> Run:
    return run("--eval-only", "--model-dir", str(trained.folder), *settings, name=name)


def test_random_halves_from_training_to_evaluation(run: Runner) -> None:
    trained = run(*BASE, *RANDOM, name="trained")
    assert trained.status == 0, trained.output[-800:]
    new, whole = evaluate(run, trained, *NEW, *RANDOM, name="new"), evaluate(run, trained, *ALL, *RANDOM, name="all")
    assert [one.results["classnames"] for one in (trained, new, whole)] == [IN, OUT, CLASSES]
    assert {one.results["protocol"]["partition"] for one in (trained, new, whole)} == {"random:2"}
    assert flatten(new.results["config"])[KEY] == "random:2"
    assert "| data | EuroSAT, base classes of the partition random:2 |" in (trained.folder / "README.md").read_text()
    # Among all classes, base are those that it was trained on: all ten classes have equally many test images.
    metrics = whole.results["metrics"]
    assert (metrics["base_accuracy"] + metrics["new_accuracy"]) / 2 == pytest.approx(metrics["accuracy"])
    assert "* base and new in one label space: base" in whole.output

    for settings, words in ((NEW, "label"), ([*NEW, KEY, "random:3"], "random:3"), (BASE, "label"), (ALL, "label")):
        done = evaluate(run, trained, *settings, name="refused")
        assert done.status == 2
        message = f"was trained on the base classes of {KEY} random:2, but this run has {words}"
        assert message in done.output
        assert f"Set {KEY} random:2." in done.output
        assert not (done.folder / "results.json").exists()
    # A run initialised from it would have seen classes that it calls new.
    begun = run(*BASE, "MODEL.INIT_WEIGHTS", str(trained.folder / "prompt_learner/model.pth.tar-1"), name="begun")
    assert begun.status == 2
    assert f"{KEY} random:2, but this run has label" in begun.output


def test_prompts_of_another_partition_are_refused(run: Runner) -> None:
    """T_En uses them for its own training and evaluation."""
    trained = run(*BASE, *RANDOM, name="trained")
    node = "TRAINER.ENLEARN"
    models = [f"{node}.BACKBONES", "['tiny', 'tiny']", f"{node}.BACKBONE_WEIGHTS", "['random', 'random']"]
    prompts = [*models, f"{node}.PROMPTS", str([str(trained.folder)] * 2)]
    refused = run(*BASE, *prompts, name="refused", trainer="TuneEn")
    assert refused.status == 2
    assert f"was trained on the base classes of {KEY} random:2, but this run has label" in refused.output
    done = run(*BASE, *prompts, *RANDOM, name="done", trainer="TuneEn")
    assert done.status == 0, done.output[-500:]


def test_a_model_of_all_classes_has_no_partition(run: Runner) -> None:
    trained = run(*ALL, name="trained")
    done = evaluate(run, trained, *NEW, *RANDOM)
    assert done.status == 0, done.output[-500:]
    assert done.results["classnames"] == OUT


def test_coop_checkpoints_are_partitioned_by_label(run: Runner) -> None:
    """They name no classes, and nothing else partitions classes at random."""
    trained = run(*BASE, name="trained")
    file = trained.folder / "prompt_learner" / "model.pth.tar-1"
    content = checkpoints.load(file)
    del content["cocoamix"]
    checkpoints.save(file, content)
    done = evaluate(run, trained, *NEW, *RANDOM, name="refused")
    assert done.status == 2
    assert f"not record which classes it was trained on, so some of them may be new under {KEY} random:2" in done.output
    assert evaluate(run, trained, *NEW).status == 0


def test_fingerprint_distinguishes_partitions_and_keeps_coops_unchanged(run: Runner) -> None:
    plain, named, other = (run(*BASE, *more, name=str(more)) for more in ([], [KEY, "label"], RANDOM))
    results = [one.results for one in (plain, named, other)]
    prints = [one["fingerprint"] for one in results]
    assert prints[0] == prints[1] != prints[2]
    assert results[0]["metrics"] == results[1]["metrics"]
    assert all("partition" not in one["protocol"] for one in results[:2])
    # The protocol of CoOp's halves is the same as before the key existed.
    assert results[2]["protocol"].keys() - results[0]["protocol"].keys() == {"partition"}


def without_key(folder: Path) -> None:
    """Make a run look like one from before the key existed."""
    for file in [*folder.rglob("*.pth.tar*"), *folder.glob("resume*")]:
        content = checkpoints.load(file)
        recorded = content.get("cocoamix") or content
        if "settings" in recorded:
            assert recorded["settings"].pop(KEY) == "label"
            checkpoints.save(file, content)
    path = folder / "results.json"
    if path.exists():
        results = json.loads(path.read_text())
        del results["config"]["DATASET"]["PARTITION"]
        path.write_text(json.dumps(results))


def test_older_runs_resume_and_evaluate(run: Runner) -> None:
    longer = [*BASE, "OPTIM.MAX_EPOCH", "2"]
    whole = run(*longer, name="whole")
    older = run(*longer, name="older")
    without_key(older.folder)
    done = run(*longer, name="older")
    assert done.status == 0, done.output[-800:]
    assert "Resuming from" in done.output
    assert done.results["metrics"] == whole.results["metrics"]
    assert run(*longer, *RANDOM, name="older").status == 2
    results = [evaluate(run, one, *NEW, name=one.folder.name + "-new").results for one in (whole, older)]
    assert results[0]["metrics"] == results[1]["metrics"]
    assert results[0]["fingerprint"] == results[1]["fingerprint"]
    refused = evaluate(run, older, *NEW, *RANDOM, name="refused")
    assert refused.status == 2
    assert f"of {KEY} label, but this run has random:2" in refused.output


def test_results_of_another_partition_are_not_those_of_a_run(run: Runner, data_root: Path, tiny_config: Path) -> None:
    done = run(*BASE, name="run")
    assert is_finished(done.folder, command(data_root, done.folder, tiny_config, *BASE))
    with pytest.raises(UserError, match=r"DATASET\.PARTITION was 'label' and is 'random:2'"):
        is_finished(done.folder, command(data_root, done.folder, tiny_config, *BASE, *RANDOM))


def test_a_dataset_of_another_code_base_is_refused(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CoOp tree's own dataset does not know the key: the results would state a partition that was not used."""
    from cocoamix.datasets.eurosat import EuroSAT

    init: Any = EuroSAT.__init__

    def foreign(self: Any, cfg: Any) -> None:
        init(self, cfg)
        del self.partition

    monkeypatch.setattr(EuroSAT, "__init__", foreign)
    done = run(*BASE, *RANDOM)
    assert done.status == 2
    assert "DATASET.PARTITION is random:2, but the dataset EuroSAT is not this project's" in done.output
    assert run(*BASE, name="by label").status == 0


def test_sessions_have_no_halves(run: Runner) -> None:
    done = run("FSCIL.BASE", "8", "FSCIL.WAY", "2", "FSCIL.SHOTS", "1", *RANDOM, trainer="CoOpFSCIL")
    assert done.status == 2
    assert "DATASET.PARTITION is random:2, but sessions are formed from all classes" in done.output


@pytest.mark.parametrize("value", ["labels", "random:-1", "3"])
def test_invalid_partitions_are_refused(run: Runner, value: str) -> None:
    done = run(*BASE, KEY, value)
    assert done.status == 2
    assert KEY in done.output
    assert not (done.folder / "results.json").exists()
