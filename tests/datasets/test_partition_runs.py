"""Training and evaluation on random halves of the classes: which checkpoints belong to which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cocoamix.io import checkpoints
from tests.conftest import CLASSES, Run, Runner
from tests.trainers.kinds import BASE, TWO, evaluate

SHORT = [*BASE, "OPTIM.MAX_EPOCH", "1"]
NEW = [*BASE[:3], "new"]
KEY = "DATASET.PARTITION"
HALVES = [CLASSES[label] for label in (3, 4, 5, 6, 9)], [CLASSES[label] for label in (0, 1, 2, 7, 8)]


def test_random_halves_from_training_to_evaluation(run: Runner) -> None:
    random = [KEY, "random:2"]
    trained = run(*SHORT, *random)

    def tested(*settings: str, name: str = "refused") -> Run:
        return evaluate(run, trained, *settings, trainer="CoOp", name=name)

    new, whole = tested(*NEW, *random, name="new"), tested(*BASE[:3], "all", *random, name="all")
    assert [one.results["classnames"] for one in (trained, new, whole)] == [*HALVES, CLASSES]
    assert {one.results["protocol"]["partition"] for one in (trained, new, whole)} == {"random:2"}
    metrics = whole.results["metrics"]
    assert (metrics["base_accuracy"] + metrics["new_accuracy"]) / 2 == pytest.approx(metrics["accuracy"])
    for settings in (NEW, [*NEW, KEY, "random:3"], BASE):
        refused = tested(*settings)
        assert (refused.status, f"{KEY} random:2" in refused.output) == (2, True)
        assert not (refused.folder / "results.json").exists()
    path = str(trained.folder / "prompt_learner/model.pth.tar-1")
    begun = run(*SHORT, "MODEL.INIT_WEIGHTS", path, name="begun")  # would have seen classes that it calls new
    prompts = ["TRAINER.ENLEARN.PROMPTS", str([str(trained.folder)] * 2), *TWO[:3], "['random', 'random']"]
    tuned = run(*SHORT, *prompts, name="tuned", trainer="TuneEn")
    for refused in (begun, tuned):
        assert (refused.status, KEY in refused.output) == (2, True), refused.output[-300:]
    assert run(*SHORT, *prompts, *random, name="same", trainer="TuneEn").status == 0
    content = checkpoints.load(Path(path))
    del content["cocoamix"]  # CoOp's name no classes, and nothing else partitions at random
    checkpoints.save(Path(path), content)
    assert (tested(*NEW, *random).status, tested(*NEW).status) == (2, 0)


def test_labels_are_the_default_partition(run: Runner) -> None:
    plain, named, other = (
        run(*SHORT, *more, name=f"n{len(str(more))}") for more in ([], [KEY, "label"], [KEY, "random:2"])
    )
    prints = [one.results["fingerprint"] for one in (plain, named, other)]
    assert prints[0] == prints[1] != prints[2]
    assert "partition" not in named.results["protocol"]
    whole = run(*BASE[:3], "all", "OPTIM.MAX_EPOCH", "1", name="whole")
    assert evaluate(run, whole, *NEW, KEY, "random:2", trainer="CoOp").results["classnames"] == HALVES[1]
    for value in ("labels", "random:-1", "3"):
        refused = run(*SHORT, KEY, value, name="refused")
        assert (refused.status, KEY in refused.output) == (2, True)


def test_a_dataset_of_another_code_base_is_refused(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CoOp tree's own dataset does not know the key: the results would state a partition that was not used."""
    from cocoamix.datasets.eurosat import EuroSAT

    init: Any = EuroSAT.__init__

    def foreign(self: Any, cfg: Any) -> None:
        init(self, cfg)
        del self.partition

    monkeypatch.setattr(EuroSAT, "__init__", foreign)
    done = run(*SHORT, KEY, "random:2")
    assert (done.status, KEY in done.output) == (2, True)
    assert run(*SHORT, name="by label").status == 0
