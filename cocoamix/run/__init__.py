"""The parts of a run that all trainers share: checkpoints, metrics, protocol, results, schedules."""
