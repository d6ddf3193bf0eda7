"""A model in one's own loop is the model that train.py trains."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import cocoamix
from cocoamix.clip import FrozenCLIP
from cocoamix.errors import UserError
from cocoamix.io import checkpoints
from cocoamix.loading import find_trainer
from cocoamix.model import PromptModel
from tests.conftest import CLASSES, ROOT, Runner

SETTINGS: dict[str, dict[str, Any]] = {
    "CoOp": {"N_CTX": 2},
    "ProGrad": {"N_CTX": 2, "CTX_INIT": ""},
    "CoCoAMix": {"N_CTX": 2},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_step_equals_that_of_the_trainer(
    name: str, run: Runner, tiny_clip: FrozenCLIP, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit: an epoch of plain SGD over the batches that the trainer gave its model."""
    base, settings = find_trainer(name).Model, SETTINGS[name]
    batches: list[tuple[torch.Tensor, torch.Tensor]] = []
    loss: Callable[..., Any] = base.loss

    def recording(self: PromptModel, inputs: torch.Tensor, labels: torch.Tensor, training: Any = ()) -> Any:
        batches.append((inputs.clone(), labels.clone()))
        return loss(self, inputs, labels, training)

    keys = [part for key, value in settings.items() for part in (f"TRAINER.{base.section}.{key}", str(value))]
    with monkeypatch.context() as patch:
        patch.setattr(base, "loss", recording)
        own = ("DATASET.NUM_SHOTS", "4", "OPTIM.MAX_EPOCH", "1", "OPTIM.WARMUP_EPOCH", "-1", "OPTIM.LR", "0.02")
        done = run(*own, "TRAINER.COCOAMIX.WEIGHT_LR", "0.02", *keys, trainer=name, seed="3")
    assert done.status == 0, done.output[-500:]
    assert len(batches) > 3
    model = cocoamix.build_model(name, tiny_clip, CLASSES, dataset="EuroSAT", seed=3, **settings)
    optimizer = torch.optim.SGD(model.parts.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
    for inputs, labels in batches:
        optimizer.zero_grad()
        model.loss(inputs, labels).backward()
        optimizer.step()
    for part, module in model.parts.items():
        trained = checkpoints.load(done.folder / part / "model.pth.tar-1")["state_dict"]
        for key, parameter in module.named_parameters():
            assert torch.equal(parameter, trained[key]), (part, key)


def test_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cocoamix.shapes.command import main as shapes

    monkeypatch.chdir(tmp_path)
    assert shapes(["write", "images", "--dataset", "WarmCool"]) == 0
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "PREDICT.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    for word in ("PromptClassifier(", "build_model("):  # the second uses the images of the first
        (example,) = [block for block in blocks if word in block]
        assert len(example.splitlines()) < 16
        exec(compile(example.replace("*/00*.png", "*/000[0-7].png"), "PREDICT.md", "exec"), names)
    assert (tmp_path / "model" / "prompt_learner").is_dir()
    right = names["logits"].argmax(dim=1) == names["targets"][1::2]
    assert right.float().mean() > 0.6


def test_methods_of_sessions_are_refused(tiny_clip: FrozenCLIP) -> None:
    with pytest.raises(UserError, match="CoOpFSCIL"):
        cocoamix.build_model("CoOpFSCIL", tiny_clip, ["cat", "dog"])


def test_unknown_names_and_values_are_refused(tiny_clip: FrozenCLIP) -> None:
    for name, settings, words in (
        ("CoOpp", {}, "CoOpp.* Did you mean"),
        ("CoOp", {"N_CTXX": 2}, "TRAINER.COOP.N_CTXX, which is not"),
        ("CoOp", {"N_CTX": "two"}, "TRAINER.COOP.N_CTX"),
        ("CoOp", {"N_CTX": 0}, "N_CTX is 0"),
        ("CoOp", {"ENSEMBLE": "coa"}, "ENSEMBLE"),
    ):
        with pytest.raises(UserError, match=words):
            cocoamix.build_model(name, tiny_clip, CLASSES, **settings)


MODULE = """
from dassl.engine import TRAINER_REGISTRY
from cocoamix.trainers.coop import CoOp, CoOpModel

class Louder(CoOpModel):
    def text_loss(self, features, text, labels):
        losses = super().text_loss(features, text, labels)
        losses.total = 2 * losses.total
        return losses

@TRAINER_REGISTRY.register(force=True)
class MyCoOp(CoOp):
    Model = Louder
"""


def test_a_module_outside_the_tree_registers_a_trainer(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cocoamix.predict import main

    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_louder_method.py").write_text(MODULE)
    few = ("DATASET.NUM_SHOTS", "2", "OPTIM.MAX_EPOCH", "1", "OPTIM.WARMUP_EPOCH", "-1")
    done = run("--import", "my_louder_method", *few, trainer="MyCoOp")
    assert done.status == 0, done.output[-500:]
    assert done.results["trainer"] == "MyCoOp"
    other = run(*few, trainer="CoOp", name="other")
    states = [checkpoints.load(each.folder / "prompt_learner/model.pth.tar-1")["state_dict"] for each in (done, other)]
    assert not torch.equal(states[0]["ctx"], states[1]["ctx"])
    image = next((ROOT / "docs" / "images").rglob("*.png"))
    assert main([str(done.folder), str(image), "--import", "my_louder_method"]) == 0
    assert run("--import", "no_such_module", *few, name="none").status == 2
