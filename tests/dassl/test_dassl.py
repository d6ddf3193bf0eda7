"""What trainers and datasets use of Dassl: the same where it is installed as with the stand-in in `cocoamix/fallback`.

`reference.json` was made by running Dassl 0.6.3.
"""

from __future__ import annotations

import base64
import json
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from yacs.config import CfgNode

import cocoamix  # before dassl: makes it importable
import cocoamix.compat

# isort: split
from dassl.config import get_cfg_default
from dassl.data.datasets import DATASET_REGISTRY, DatasetBase, Datum, build_dataset
from dassl.engine import TRAINER_REGISTRY, build_trainer
from dassl.utils import Registry

from cocoamix.errors import UserError
from tests.conftest import ROOT

REFERENCE: dict[str, Any] = json.loads(Path(__file__).with_name("reference.json").read_text())
REFUSALS = (UserError, ValueError, KeyError, AssertionError)  # Dassl raises built-in exceptions
only_ours = pytest.mark.skipif(not cocoamix.compat.uses_fallback(), reason="Dassl does not do this")


def flat(node: CfgNode, prefix: str = "") -> dict[str, str]:
    """Return every key with its value as text, without the nodes of Dassl's own trainers."""
    rows: dict[str, str] = {}
    for key, value in node.items():
        if not isinstance(value, CfgNode):
            rows[prefix + key] = repr(value)
        elif prefix != "TRAINER.":
            rows.update(flat(value, f"{prefix}{key}."))
    return rows


def test_every_key_has_dassls_default() -> None:
    """In a separate process: importing our trainers adds our keys."""
    code = "import json; from tests.dassl import test_dassl as t; print(json.dumps(t.flat(t.get_cfg_default())))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == REFERENCE["defaults"]


def test_defaults_are_fresh_each_time() -> None:
    first = get_cfg_default()
    before = flat(first)
    first.OPTIM.LR = 7.0
    first.INPUT.PIXEL_MEAN.append(1.0)
    assert flat(get_cfg_default()) == before


def test_registry_refuses_duplicates_unless_forced() -> None:
    registry = Registry("THING")

    @registry.register()
    class One:
        pass

    def two() -> None:
        pass

    registry.register(two)
    assert (registry.get("One"), registry.get("two")) == (One, two)
    assert registry.registered_names() == ["One", "two"]
    with pytest.raises(KeyError, match="One"):
        registry.register(One)
    registry.register(One, force=True)
    with pytest.raises(KeyError, match="Three"):
        registry.get("Three")


def test_unknown_names_suggest_the_nearest() -> None:
    class Built:
        def __init__(self, cfg: CfgNode) -> None:
            self.cfg = cfg

    cfg = get_cfg_default()
    for registry, node, build in (
        (DATASET_REGISTRY, cfg.DATASET, build_dataset),
        (TRAINER_REGISTRY, cfg.TRAINER, build_trainer),
    ):
        registry.register(Built, force=True)
        try:
            node.NAME = "Built"
            assert build(cfg).cfg is cfg
            node.NAME = "Bilt"
            with pytest.raises(REFUSALS, match="Built"):
                build(cfg)
        finally:
            del registry._obj_map["Built"]


# Items and datasets


@pytest.fixture
def image(tmp_path: Path) -> str:
    (tmp_path / "a.jpg").touch()
    return str(tmp_path / "a.jpg")


def items(image: str, labels: list[int]) -> list[Datum]:
    return [Datum(image, label, i % 2, f"class {label}") for i, label in enumerate(labels)]


class Bare(DatasetBase):
    def __init__(self) -> None:
        pass


def test_pickled_items_are_the_same_in_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = base64.b64decode(REFERENCE["pickled_items"])
    first, second = pickle.loads(blob)  # the image need not exist to load a cache
    assert (first.impath, first.label, first.domain, first.classname) == ("a.jpg", 7, 1, "sea lion")
    assert (second.impath, second.label, second.domain, second.classname) == ("a.jpg", 2, 0, "")
    monkeypatch.chdir(tmp_path)
    Path("a.jpg").touch()
    path, name = "a.jpg", ""
    assert pickle.dumps([Datum(path, 7, 1, "sea lion"), Datum(path, 2, 0, name)], protocol=4) == blob


@pytest.mark.filterwarnings("ignore:No file")
def test_an_item_needs_its_image(tmp_path: Path) -> None:
    with pytest.raises((*REFUSALS, FileNotFoundError)):
        Datum(str(tmp_path / "absent.jpg"))


@pytest.mark.parametrize("case", REFERENCE["draws"])
def test_few_shot_draw_matches_dassl(case: dict[str, Any], image: str) -> None:
    pool = items(image, REFERENCE["labels"])
    place = {id(item): index for index, item in enumerate(pool)}
    random.seed(case["seed"])
    train = Bare().generate_fewshot_dataset(pool, num_shots=case["shots"], repeat=case["repeat"])
    val = Bare().generate_fewshot_dataset(pool, num_shots=min(case["shots"], 4), repeat=case["repeat"])
    assert [place[id(item)] for item in train] == case["train"]
    assert [place[id(item)] for item in val] == case["val"]


def test_without_shots_all_items_are_used(image: str) -> None:
    pool = items(image, [0, 1, 0, 1])
    assert Bare().generate_fewshot_dataset(pool) is pool
    assert [item.label for item in Bare().generate_fewshot_dataset(pool, num_shots=1)] == [0, 1]


def test_classes_come_from_the_training_items(image: str) -> None:
    data = DatasetBase(train_x=items(image, [2, 0, 2]), test=items(image, [0]))
    assert data.num_classes == 3
    assert data.lab2cname == {0: "class 0", 2: "class 2"}
    assert data.classnames == ["class 0", "class 2"]
    assert (data.val, data.train_u, len(data.train_x)) == (None, None, 3)


def test_empty_training_set_is_refused() -> None:
    with pytest.raises(REFUSALS):
        DatasetBase(train_x=[], test=[])


@only_ours
def test_two_names_for_one_label_are_refused(image: str) -> None:
    with pytest.raises(UserError, match=r"Label 1 .*'cat' and 'dog'"):
        DatasetBase(train_x=[Datum(image, 1, 0, "cat"), Datum(image, 1, 0, "dog")])
