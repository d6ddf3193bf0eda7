"""Helpers shared by the engine and by its users."""

from .errors import MissingFileError, NonFiniteLossError, UnknownNameError
from .logger import Logger, setup_logger
from .meters import AverageMeter, MetricMeter
from .registry import Registry
from .tools import (
    check_availability,
    check_isfile,
    collect_env_info,
    listdir_nohidden,
    mkdir_if_missing,
    read_image,
    read_json,
    set_random_seed,
    write_json,
)
from .torchtools import (
    load_checkpoint,
    load_pretrained_weights,
    resume_from_checkpoint,
    save_checkpoint,
)

__all__ = [
    "AverageMeter",
    "Logger",
    "MetricMeter",
    "MissingFileError",
    "NonFiniteLossError",
    "Registry",
    "UnknownNameError",
    "check_availability",
    "check_isfile",
    "collect_env_info",
    "listdir_nohidden",
    "load_checkpoint",
    "load_pretrained_weights",
    "mkdir_if_missing",
    "read_image",
    "read_json",
    "resume_from_checkpoint",
    "save_checkpoint",
    "set_random_seed",
    "setup_logger",
    "write_json",
]
