"""Faults on purpose: kills, signals, full disks and damaged files, with a right result asked for after each.

All of it takes about ten minutes and ends in a table of what was tried:

    bash scripts/test.sh -m slow tests/faults
    bash scripts/test.sh -m slow tests/faults --fault-seed 7     other moments

The tests that are not marked `slow` are a short slice with a fixed seed, which runs with all other tests.
"""
