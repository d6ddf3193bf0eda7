"""Finished, due or blocked: settings, data, models and code decide, and the reason names what differs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cocoamix
from cocoamix.io.plain import to_plain
from cocoamix.run import state as states
from cocoamix.run.arguments import parse_arguments
from cocoamix.run.data_record import record_run
from cocoamix.run.protocol import plain
from cocoamix.run.state import BLOCKED, DUE, FINISHED, Folders, Request
from cocoamix.train import read_dataset, setup_cfg
from tests.conftest import command

FEW = ("DATASET.NUM_SHOTS", "2")
Asker = Callable[..., Request]


@pytest.fixture
def request_for(data_root: Path, tmp_path: Path, tiny_config: Path) -> Asker:
    """Return the request for a run on the images in `data_root`, or in another folder."""

    def asker(*options: str, root: Path = data_root, **more: Any) -> Request:
        arguments = command(root, tmp_path / "run", tiny_config, *FEW, *options)
        return Request(setup_cfg(parse_arguments(arguments)), **{"trains": True, **more})

    return asker


def write(folder: Path, request: Request, **changes: Any) -> Path:
    """Write the results of a run, with keys changed."""
    folder.mkdir(exist_ok=True)
    data = record_run(request.cfg, read_dataset(request.cfg), request.trains)
    content = {"metrics": {"accuracy": 1.0}, "config": plain(request.cfg), "data": to_plain(data), **changes}
    (folder / "results.json").write_text(json.dumps(content))
    return folder


def ask(folder: Path, request: Request) -> tuple[str, str]:
    """Return the kind and the reason of a state."""
    state = Folders(read_dataset).state(folder, request)
    return state.kind, state.reason


def test_settings_decide(tmp_path: Path, request_for: Asker) -> None:
    folder = tmp_path / "run"
    assert ask(folder, request_for()) == (DUE, "")
    write(folder, request_for())
    assert ask(folder, request_for("DATALOADER.NUM_WORKERS", "3")) == (FINISHED, "")
    kind, reason = ask(folder, request_for("OPTIM.LR", "0.5"))
    assert (kind, "OPTIM.LR" in reason) == (BLOCKED, True)
    assert ask(folder, request_for("OPTIM.LR", "0.5", trains=False)) == (FINISHED, "")  # a method without training
    assert ask(folder, request_for("OPTIM.LR", "0.5", fresh=True)) == (DUE, "--fresh")


def test_results_that_cannot_be_used(tmp_path: Path, request_for: Asker) -> None:
    for content in ("", "[]", '{"metrics": {}}', '{"metrics": 3}'):
        (tmp_path / "results.json").write_text(content)
        assert ask(tmp_path, request_for())[0] == DUE
    assert ask(write(tmp_path / "run", request_for(), finished=False), request_for())[0] == DUE  # of sessions
    kind, reason = ask(write(tmp_path / "run", request_for(), version=99), request_for(code="x"))
    assert (kind, "99" in reason) == (BLOCKED, True)  # of a newer version


def test_evaluations_take_training_settings_from_the_model(tmp_path: Path, request_for: Asker) -> None:
    model = write(tmp_path / "model", request_for("OPTIM.LR", "0.5"))
    folder = write(tmp_path / "run", request_for("OPTIM.LR", "0.5", trains=False))
    evaluation = request_for(trains=False, model=model, needs=(model,))
    assert ask(folder, evaluation) == (FINISHED, "")
    write(model, request_for("OPTIM.LR", "0.25"))
    kind, reason = ask(folder, evaluation)
    assert (kind, "OPTIM.LR was 0.5 and is 0.25" in reason) == (BLOCKED, True)
    write(model, request_for("OPTIM.LR", "0.5", "TEST.FINAL_MODEL", "best_val"))  # an evaluation chooses this itself
    assert ask(folder, evaluation) == (FINISHED, "")
    (model / "results.json").unlink()  # nothing to compare with
    assert ask(folder, evaluation) == (FINISHED, "")


# ---------------------------------------------------------------------- data


def replace_image(root: Path) -> None:
    first, last = (sorted(root.rglob("*.png"))[place] for place in (0, -1))
    content = last.read_bytes()
    first.write_bytes(content + b"x" * (first.stat().st_size - len(content)))  # perhaps of the same size


def add_class(root: Path) -> None:
    (split,) = root.rglob("split*.json")
    content = json.loads(split.read_text())
    for part in ("train", "val", "test"):
        content[part] += [[path, 5, "Sea or Lake"] for path, label, _ in content[part] if label == 0]
    split.write_text(json.dumps(content))


def remove_image(root: Path) -> None:
    (split,) = root.rglob("split*.json")
    content = json.loads(split.read_text())
    split.write_text(json.dumps({**content, "test": content["test"][1:]}))


@pytest.mark.parametrize("change", [replace_image, add_class, remove_image])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_changed_images_block_a_run(
    tmp_path: Path, data_root: Path, request_for: Asker, change: Callable[[Path], None], elsewhere: bool
) -> None:
    folder, root = write(tmp_path / "run", request_for(*FEW, "DATASET.NUM_SHOTS", "-1")), data_root
    if elsewhere:
        root = tmp_path / "copy"
        shutil.copytree(data_root, root)
    request = request_for("DATASET.NUM_SHOTS", "-1", root=root)
    assert ask(folder, request) == (FINISHED, "")  # the same images, under other times
    change(root)
    kind, reason = ask(folder, request)
    assert (kind, "data" in reason) == (BLOCKED, True)


def test_missing_images_block_a_run(tmp_path: Path, data_root: Path, request_for: Asker) -> None:
    folder = write(tmp_path / "run", request_for())
    kind, reason = ask(folder, request_for(root=tmp_path / "nowhere"))
    assert (kind, "nowhere" in reason) == (BLOCKED, True)


def test_a_dataset_is_read_once(tmp_path: Path, request_for: Asker) -> None:
    read: list[Any] = []
    folders, request = Folders(lambda cfg: read.append(cfg) or read_dataset(cfg)), request_for()
    for name in ("a", "b"):
        assert folders.state(write(tmp_path / name, request), request).kind == FINISHED
    assert len(read) == 1


# ---------------------------------------------------------------------- models and code


def stamp(folder: Path, **content: Any) -> None:
    (folder / states.STAMP).write_text(json.dumps(content))


def test_a_retrained_model_makes_its_evaluation_due(tmp_path: Path, request_for: Asker) -> None:
    model, folder = tmp_path / "model", write(tmp_path / "run", request_for(trains=False))
    checkpoint = model / "prompt_learner" / "model.pth.tar-2"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(b"then")
    stamp(folder, models={"../model": states.hash_model(model)})
    evaluation = request_for(trains=False, model=model, needs=(model,))
    assert ask(folder, evaluation) == (FINISHED, "")
    checkpoint.write_bytes(b"now")
    state = Folders(read_dataset).state(folder, evaluation)
    assert (state.kind, state.repeat, str(model) in state.reason) == (DUE, True, True)
    stamp(folder, models=[1, 2])  # a damaged record tells nothing
    assert ask(folder, evaluation)[0] == FINISHED


def test_other_code_repeats_only_where_it_matters(tmp_path: Path, request_for: Asker) -> None:
    folder = write(tmp_path / "run", request_for(), versions={"cocoamix": "0.0.1"})
    assert ask(folder, request_for(code="now")) == (FINISHED, "")  # not started by the runner
    stamp(folder, code="then")
    assert ask(folder, request_for()) == (FINISHED, "")
    state = Folders(read_dataset).state(folder, request_for(code="now"))
    assert (state.kind, state.repeat) == (DUE, True)
    assert ask(folder, request_for("OPTIM.LR", "0.5", code="now"))[0] == BLOCKED
    note = Folders(read_dataset).state(folder, request_for(code="then")).note
    assert [version for version in ("0.0.1", cocoamix.__version__) if version not in note] == []


def test_the_digest_of_the_code_follows_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    before = states.hash_code()
    monkeypatch.setattr(states, "_NOT_HASHED", (*states._NOT_HASHED, "coa"))
    assert states.hash_code() != before
