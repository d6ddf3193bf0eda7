"""The estimator trains what train.py trains, and follows scikit-learn's conventions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import cocoamix
from cocoamix.errors import UserError
from cocoamix.io import checkpoints
from tests.conftest import Runner

SETTINGS = {"MODEL.BACKBONE.WEIGHTS": "random", "TRAINER.COCOAMIX.N_CTX": 2}


@pytest.fixture
def images(data_root: Path) -> tuple[list[str], list[str]]:
    """Images of three classes with their labels."""
    folders = sorted((data_root / "eurosat" / "2750").iterdir())[:3]
    paths = [(str(path), folder.name) for folder in folders for path in sorted(folder.glob("*.png"))]
    return [path for path, _ in paths], [label for _, label in paths]


def make(tiny_config: Path, **parameters: Any) -> cocoamix.PromptClassifier:
    return cocoamix.PromptClassifier("tiny", config=str(tiny_config), settings=SETTINGS, **parameters)


def test_same_seed_gives_the_context_of_train_py(
    run: Runner, data_root: Path, tiny_config: Path, images: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    """On a user's folder, with the same few images of each class."""
    folder = tmp_path / "own"
    for path, label in zip(*images, strict=True):
        for split in ("train", "test"):
            target = folder / split / label / Path(path).name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(Path(path).read_bytes() + split.encode())
    settings = [part for key, value in SETTINGS.items() for part in (key, str(value))]
    done = run(
        *("--dataset-config-file", "configs/datasets/folder.yaml", "--root", str(folder)),
        *("DATASET.NUM_SHOTS", "4", "OPTIM.MAX_EPOCH", "2", *settings),
        trainer="CoCoAMix",
    )
    assert done.status == 0, done.output[-800:]
    paths = sorted(str(path) for path in (folder / "train").rglob("*.png"))
    model = make(tiny_config, shots=4, epochs=2, output=tmp_path / "fitted")
    model.fit(paths, [Path(path).parent.name for path in paths])
    contexts = [
        checkpoints.load(one / "prompt_learner" / "model.pth.tar-2")["state_dict"]["ctx"]
        for one in (done.folder, tmp_path / "fitted")
    ]
    assert torch.equal(*contexts)


def test_fit_predict_save_and_load(tiny_config: Path, images: tuple[list[str], list[str]], tmp_path: Path) -> None:
    paths, labels = images
    model = make(tiny_config, shots=4, epochs=2).fit(paths[::2], labels[::2])
    assert list(model.classes_) == sorted(set(labels))
    probabilities = model.predict_proba(paths)
    assert probabilities.shape == (len(paths), 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    predicted = model.predict(paths)
    assert list(predicted) == [model.classes_[number] for number in probabilities.argmax(axis=1)]
    assert model.score(paths, labels) == np.mean(predicted == np.array(labels))
    folder = model.save(tmp_path / "saved")
    again = cocoamix.PromptClassifier.load(folder)
    assert np.array_equal(again.predict_proba(paths), probabilities)
    assert list(again.predict(paths)) == list(predicted)  # the labels, not the names in prompts
    assert (again.shots, again.epochs) == (4, 2)
    assert cocoamix.load(folder).with_classes(["zebra"]).probabilities(paths[0]).shape == (1, 4)
    with pytest.raises(UserError, match="already exists"):
        model.save(folder)


def test_all_image_types_give_the_same_probabilities(tiny_config: Path, images: tuple[list[str], list[str]]) -> None:
    paths, labels = images
    loaded = [Image.open(path).convert("RGB") for path in paths]
    model = make(tiny_config, epochs=1).fit(loaded, labels)
    array = np.array(loaded[0])
    tensor = torch.from_numpy(array).permute(2, 0, 1)
    forms = [paths[0], Path(paths[0]), loaded[0], array, tensor, tensor / 255, array.astype(np.uint16) * 257]
    rows = model.predict_proba(forms)
    np.testing.assert_allclose(rows, np.repeat(rows[:1], len(forms), axis=0), atol=1e-6)
    for one in forms:
        assert len(model.classifier_.predict(one)) == 1, type(one)
    for wrong, words in ((array.astype(int), "is of int64"), (array / 1.0, "outside the range"), (3, "of type int")):
        with pytest.raises(UserError, match=words):
            model.predict([wrong])
    with pytest.raises(UserError, match="has the shape"):
        model.predict([np.zeros((2, 3, 4, 5), dtype=np.uint8)])


def test_numeric_labels_need_class_names(tiny_config: Path, images: tuple[list[str], list[str]]) -> None:
    paths, labels = images
    numbers = [9 - 2 * sorted(set(labels)).index(label) for label in labels]
    with pytest.raises(UserError, match="prompts need names"):
        make(tiny_config, epochs=1).fit(paths, numbers)
    names = {5: "crop", 7: "forest", 9: "plants"}
    model = make(tiny_config, epochs=1, class_names=names).fit(paths, numbers)
    assert set(model.predict(paths)) <= {5, 7, 9}
    assert model.classifier_.classes == ["crop", "forest", "plants"]
    alone = model.classifier_
    del model
    assert alone.with_classes(["zebra"]).classes[-1] == "zebra"  # the run outlives its estimator


def test_estimator_follows_scikit_learn_conventions(tiny_config: Path, images: tuple[list[str], list[str]]) -> None:
    model = make(tiny_config, shots=2)
    assert type(model)(**model.get_params()).get_params() == model.get_params()
    assert model.set_params(shots=3).shots == 3
    with pytest.raises(ValueError, match="Invalid parameter 'shot'"):
        model.set_params(shot=3)
    with pytest.raises(UserError, match="not fitted yet"):
        model.predict(images[0])
    with pytest.raises(ValueError, match="3 images, but 2 labels"):
        model.fit(images[0][:3], images[1][:2])
    with pytest.raises(UserError, match="A classifier needs at least two"):
        model.fit(images[0][:3], ["one"] * 3)
    with pytest.raises(UserError, match="'Nothing', which is not known"):
        cocoamix.PromptClassifier("tiny", "Nothing").fit(*images)
    sklearn = pytest.importorskip("sklearn.base")
    assert sklearn.clone(model).get_params() == model.get_params()


def test_public_names_are_imported_lazily() -> None:
    import subprocess
    import sys

    code = "import sys, cocoamix; assert 'torch' not in sys.modules; cocoamix.load_clip; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="nothing"):
        cocoamix.nothing  # noqa: B018
