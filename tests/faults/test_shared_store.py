"""Runs that share a cold feature store and are killed end like runs with their own store."""

from __future__ import annotations

import random
import shutil
import signal
import time

import pytest

from .conftest import Tally
from .runs import Child, Place, finish, outcome

KINDS = ["CoOp", "KgCoOp", "CoCoAMix", "CoCoAMix, two stages", "CoCoAMix, sessions", "CoOp, sessions"]


@pytest.mark.slow
def test_runs_with_a_shared_store_end_like_separate_ones(place: Place, rng: random.Random, tally: Tally) -> None:
    wanted = {}
    for kind in KINDS:
        folder = place.fresh(f"alone {kind}")
        finish(place.arguments(kind, folder, "CACHE.MODE", "off"), place.folder / "alone.txt")
        wanted[kind] = outcome(folder)
    for number in range(4):
        store = place.fresh("store")
        folders = {kind: place.fresh(f"together {kind}") for kind in KINDS}
        started = {}
        for kind in KINDS:
            arguments = place.arguments(kind, folders[kind], "CACHE.DIR", str(store))
            started[kind] = arguments, Child(arguments, place.folder / f"together {kind}.txt")
        killed = rng.sample(KINDS, 4)
        for kind in killed:
            time.sleep(rng.uniform(0, 1.5))
            arguments, child = started[kind]
            child.kill(signal.SIGKILL)
            tally.count("kill -9, six runs on one cold store", child.wait() == -9)
            started[kind] = arguments, Child(arguments, child.log)
        for kind, (_, child) in started.items():
            assert child.wait() == 0, child.output()[-2500:]
            assert outcome(folders[kind]) == wanted[kind], f"{kind}, round {number}"
        shutil.rmtree(store)
