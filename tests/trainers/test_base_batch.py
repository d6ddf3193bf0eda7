"""FSCIL.BASE_BATCH_SIZE: fewer, larger steps, only in session 0; and where it is reported."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from cocoamix.run import protocol
from tests.conftest import Run, Runner
from tests.trainers.test_fscil import COOP, MIX, SHORT, tensors
from tests.trainers.test_store import count_encoded

ONE_LATER = [*SHORT, "FSCIL.LAST_SESSION", "1", "TRAIN.PRINT_FREQ", "1", "DATALOADER.TRAIN_X.BATCH_SIZE", "3"]


def steps(run: Run) -> list[int]:
    """Return the number of steps per epoch in each session."""
    parts = re.split(r"\*\* Session \d", run.output)[1:]
    return [int(re.findall(r"batch \[\d+/(\d+)\]", part)[0]) for part in parts]


def test_larger_batches_only_in_session_0(run: Runner) -> None:
    paper = run(*ONE_LATER, **MIX)
    assert paper.status == 0, paper.output[-800:]
    large = run(*ONE_LATER, "FSCIL.BASE_BATCH_SIZE", "12", name="large", **MIX)
    assert large.status == 0, large.output[-800:]
    assert steps(paper) == [8, 1]  # 24 images, then 4
    assert steps(large) == [2, 1]
    split = large.results["protocol"]["fscil"]
    assert split.pop("base_batch_size") == 12
    assert split == paper.results["protocol"]["fscil"]
    assert large.results["fingerprint"] != paper.results["fingerprint"]
    # An evaluation reports it, too, whatever its own command sets.
    model = ["--eval-only", "--model-dir", str(large.folder)]
    again = run(*model, *ONE_LATER, name="again", **MIX)
    assert again.results["fingerprint"] == large.results["fingerprint"]
    # A run resumes only with its original batch size.
    other = run(*ONE_LATER, "FSCIL.LAST_SESSION", "2", name="large", **MIX)
    assert other.status == 2
    assert "FSCIL.BASE_BATCH_SIZE was 12 and is 0" in other.output


def test_setting_the_default_size_trains_identically(run: Runner) -> None:
    """Bit for bit: the key only changes the number of images per step."""
    first = [*ONE_LATER, "FSCIL.LAST_SESSION", "0"]
    plain = run(*first, **MIX)
    named = run(*first, "FSCIL.BASE_BATCH_SIZE", "3", name="named", **MIX)
    one, other = tensors(plain.folder, 0), tensors(named.folder, 0)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_stored_features_are_shared(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Larger steps encode images in the usual batches, so the store is the same whichever run comes first."""
    first = [*ONE_LATER, "FSCIL.LAST_SESSION", "0", "CACHE.MODE", "all", "CACHE.DIR", str(tmp_path / "store")]
    sizes = count_encoded(monkeypatch)
    assert run(*first, "FSCIL.BASE_BATCH_SIZE", "12", name="large", **COOP).status == 0
    assert sizes[:8] == [3] * 8  # 24 images
    assert 12 not in sizes
    sizes.clear()
    assert run(*first, **COOP).status == 0
    assert sizes == []


def test_runs_older_than_the_key_resume() -> None:
    now = {"FSCIL.BASE": 60, "FSCIL.BASE_BATCH_SIZE": 0}
    assert protocol.updated({"FSCIL.BASE": 60}, now) == now
    assert protocol.updated({"FSCIL.BASE": 60}, {"FSCIL.BASE": 60}) == {"FSCIL.BASE": 60}
