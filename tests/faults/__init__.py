"""Injected faults: kills, signals, full disks and damaged files; each must still end in a correct result.

All of it takes about ten minutes and ends in a table of what was tried:

    bash scripts/test.sh -m slow tests/faults
    bash scripts/test.sh -m slow tests/faults --fault-seed 7     other moments

The tests that are not marked `slow` are a short sample with a fixed seed, which runs with all other tests.
"""
