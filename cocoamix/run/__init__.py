"""The parts of a run that every trainer has: checkpoints, protocol, results, schedules."""
