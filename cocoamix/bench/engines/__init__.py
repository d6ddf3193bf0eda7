"""Where runs are executed: on the cores and GPUs of this machine, or on a Slurm cluster."""

ENGINES = ("local", "slurm")
