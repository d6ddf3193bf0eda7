"""With the store on or off, cold or warm, intact or damaged, a run computes the same numbers."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cocoamix.clip import FrozenCLIP
from cocoamix.clip.packing import Prompts
from cocoamix.clip.text_encoder import TextEncoder
from cocoamix.io import checkpoints
from tests.conftest import Run, Runner
from tests.trainers.kinds import Killed

FEW = ["DATASET.NUM_SHOTS", "3"]  # 30 images: 3 batches of 8 and a smaller one
MODELS = {"CoOp": ["prompt_learner"], "CoCoAMix": ["prompt_learner", "coa_weights"]}


@pytest.fixture
def store(tmp_path: Path) -> list[str]:
    return ["CACHE.DIR", str(tmp_path / "store")]


def context(done: Run, epoch: int = 4) -> Tensor:
    assert done.status == 0, done.output[-800:]
    return checkpoints.load(done.folder / "prompt_learner" / f"model.pth.tar-{epoch}")["state_dict"]["ctx"]


def count_encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that receives the size of each encoded batch of images."""
    sizes: list[int] = []
    encode = FrozenCLIP.encode_image

    def counting(self: FrozenCLIP, images: Tensor) -> Tensor:
        sizes.append(len(images))
        return encode(self, images)

    monkeypatch.setattr(FrozenCLIP, "encode_image", counting)
    return sizes


@pytest.mark.parametrize("trainer", ["CoOp", "CoCoAMix"])
def test_off_cold_and_warm_store_are_bit_identical(
    run: Runner, store: list[str], monkeypatch: pytest.MonkeyPatch, trainer: str
) -> None:
    sizes = count_encoded(monkeypatch)
    off = run(*FEW, "CACHE.MODE", "off", trainer=trainer, name="off")
    assert sizes == [8] * 3 * 4 + [20, 20]
    sizes.clear()
    cold = run(*FEW, *store, trainer=trainer, name="cold")
    assert sizes == [8] * 15 + [20, 20]  # 4 views of 30 images and no batch of another size
    sizes.clear()
    warm = run(*FEW, *store, trainer=trainer, name="warm")
    assert sizes == []
    for done in (cold, warm):
        assert torch.equal(context(done), context(off))
        assert done.results["metrics"] == off.results["metrics"]
        assert done.results["fingerprint"] == off.results["fingerprint"]


def test_test_images_are_encoded_once_for_all_subsets_and_methods(
    run: Runner, store: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = count_encoded(monkeypatch)
    mode = [*FEW, *store, "CACHE.MODE", "test"]
    trained = run(*mode, "DATASET.SUBSAMPLE_CLASSES", "base", name="base")
    sizes.clear()
    whole = run("--eval-only", *mode, trainer="ZeroshotCLIP", name="all")
    assert whole.status == 0
    assert sizes == [20], "half of them were stored"
    sizes.clear()
    evaluate = ["--eval-only", "--model-dir", str(trained.folder), *mode, "DATASET.SUBSAMPLE_CLASSES"]
    assert run(*evaluate, "new", name="new").status == 0
    assert sizes == []


def test_a_changed_image_is_encoded_again(
    run: Runner, store: list[str], data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("--eval-only", *FEW, *store, trainer="ZeroshotCLIP", name="one")
    path = next(data_root.rglob("River_13.png"))
    os.utime(path, ns=(1, 1))
    sizes = count_encoded(monkeypatch)
    run("--eval-only", *FEW, *store, trainer="ZeroshotCLIP", name="two")
    assert sizes == [20]  # a batch that is filled up


def test_damaged_files_and_kills_do_not_change_results(
    run: Runner, store: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = run(*FEW, "CACHE.MODE", "off", name="off")
    encode, left = FrozenCLIP.encode_image, iter(range(6))

    def dying(self: FrozenCLIP, images: Tensor) -> Tensor:
        if next(left, None) is None:
            raise Killed
        return encode(self, images)

    with monkeypatch.context() as patch:
        patch.setattr(FrozenCLIP, "encode_image", dying)
        with pytest.raises(Killed):
            run(*FEW, *store, name="killed")
    sizes = count_encoded(monkeypatch)
    again = run(*FEW, *store, name="again")
    assert 0 < sum(sizes[:-2]) < 120, "features of the killed run were stored"
    assert torch.equal(context(again), context(wanted))
    for path in Path(store[1]).rglob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-5])
    repaired = run(*FEW, *store, name="repaired")
    assert "is damaged" in repaired.output
    assert torch.equal(context(repaired), context(wanted))
    assert "is damaged" not in run(*FEW, *store, name="after").output


def test_an_unwritable_store_does_not_change_results(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = run(*FEW, "CACHE.DIR", str(tmp_path / "file"), name="stuck")
    assert done.output.count("cannot be stored") == 2  # training and test images have separate stores
    assert torch.equal(context(done), context(run(*FEW, "CACHE.MODE", "off", name="off")))


def test_number_of_workers_does_not_change_results(run: Runner, store: list[str]) -> None:
    alone = run(*FEW, *store, name="alone")
    other = [store[0], store[1] + "2"]
    helped = run(*FEW, *other, "DATALOADER.NUM_WORKERS", "2", name="helped")
    assert torch.equal(context(alone), context(helped))


def test_another_augmentation_has_other_features(run: Runner, store: list[str]) -> None:
    blur = [*FEW, "INPUT.TRANSFORMS", "['random_resized_crop', 'gaussian_blur', 'normalize']", "INPUT.GB_K"]
    for size in ("3", "15"):
        stored = run(*blur, size, *store, name=f"stored{size}")
        plain = run(*blur, size, "CACHE.MODE", "off", name=f"plain{size}")
        assert torch.equal(context(stored), context(plain))


def test_an_unreadable_image_is_not_tried_again(
    run: Runner, data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if nothing can be stored, and views encoded ahead are only in memory."""
    chosen = run(*FEW, "OPTIM.MAX_EPOCH", "1", name="draw")
    assert chosen.status == 0
    for path in sorted(data_root.rglob("River_*.png")):
        path.write_bytes(b"not an image")
    (tmp_path / "file").write_text("in the way")
    sizes = count_encoded(monkeypatch)
    skip = [*FEW, "DATASET.BAD_IMAGES", "skip", "OPTIM.MAX_EPOCH", "8"]
    stuck = run(*skip, "CACHE.DIR", str(tmp_path / "file"), name="stuck")
    assert sum(sizes) < 8 * 40 + 60
    assert torch.equal(context(stuck, 8), context(run(*skip, "CACHE.MODE", "off", name="off"), 8))


def test_views_are_limited_and_reported(run: Runner, store: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = count_encoded(monkeypatch)
    every = run(*FEW, *store, name="every")
    sizes.clear()
    one = run(*FEW, *store, "CACHE.VIEWS", "1", name="one")
    assert sum(sizes) == 32, "one view of 30 images, in batches of 8"
    two = run(*FEW, *store, "CACHE.VIEWS", "2", name="two")
    off = run(*FEW, "CACHE.MODE", "off", "CACHE.VIEWS", "2", name="off")
    assert torch.equal(context(two), context(off))
    assert "departs from CoOp's protocol" not in every.output
    for done in (one, two):
        assert "departs from CoOp's protocol" in done.output
    assert len({done.results["fingerprint"] for done in (every, one, two)}) == 3
    assert not torch.equal(context(one), context(two))
    sizes.clear()
    many = run(*FEW, *store, "CACHE.VIEWS", "40", name="many")
    assert sizes == [], "the views of the epochs are stored"
    assert many.results["fingerprint"] == every.results["fingerprint"]


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("CACHE.MODE some", "off, test, all"),
        ("CACHE.VIEWS -1", "at least 0"),
        ("MODEL.BACKBONE.TEXT_CHUNK 0", "least 1"),
    ],
)
def test_bad_settings_are_refused(run: Runner, setting: str, complaint: str) -> None:
    done = run(*setting.split())
    assert done.status == 2
    assert re.search(complaint, done.output)


def test_unreadable_images_are_skipped_with_the_store(run: Runner, store: list[str], data_root: Path) -> None:
    next(data_root.rglob("River_13.png")).write_bytes(b"not an image")
    stopped = run(*FEW, *store, name="stopped")
    assert stopped.status == 2
    assert "River_13.png" in stopped.output
    skipped = run(*FEW, *store, "DATASET.BAD_IMAGES", "skip", name="skipped")
    assert skipped.results["evaluated_images"] == 39
    assert skipped.results["unreadable_images"] == 1


@pytest.mark.parametrize("trainer", ["CoOp", "CoCoAMix"])
def test_twenty_steps_match_the_plain_text_encoder(run: Runner, monkeypatch: pytest.MonkeyPatch, trainer: str) -> None:
    """The trajectory of the fast encoder against all 77 positions, run by the package's own blocks."""

    def plain(self: TextEncoder, prompts: Prompts) -> Tensor:
        own = prompts.own.split(prompts.layout.lengths)
        rows = [torch.cat([prompts.prefix, one.float()]) for one in own]
        filled = [torch.cat([row, row.new_zeros(self.context_length - len(row), self.width)]) for row in rows]
        x = (torch.stack(filled) + self.positional_embedding).permute(1, 0, 2)
        for block in self.blocks:
            x = block(x)
        x = self.ln_final(x.permute(1, 0, 2))
        ends = torch.tensor([len(row) - 1 for row in rows])
        return x[torch.arange(len(x)), ends] @ self.text_projection

    settings = [*FEW, "OPTIM.MAX_EPOCH", "7", "MODEL.BACKBONE.SOURCE", "clip"]  # 21 steps
    fast = run(*settings, trainer=trainer, name="fast")
    monkeypatch.setattr(TextEncoder, "forward", plain)
    slow = run(*settings, trainer=trainer, name="slow")
    torch.testing.assert_close(context(fast, 7), context(slow, 7), atol=1e-4, rtol=0)
    assert not torch.equal(context(fast, 7), context(slow, 7)), "the plain path was not used"
