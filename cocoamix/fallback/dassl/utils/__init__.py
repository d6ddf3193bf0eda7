"""Helpers shared by the engine and by its users."""

from .errors import MissingFileError, NonFiniteLossError, UnknownNameError
from .logger import Logger, setup_logger
from .meters import AverageMeter, MetricMeter
from .registry import Registry
from .tools import (
    check_availability,
    check_isfile,
    collect_env_info,
    get_most_similar_str_to_a_from_b,
    listdir_nohidden,
    mkdir_if_missing,
    read_image,
    read_json,
    set_random_seed,
    tolist_if_not,
    write_json,
)
from .torchtools import (
    count_num_param,
    load_checkpoint,
    load_pretrained_weights,
    open_all_layers,
    open_specified_layers,
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
    "count_num_param",
    "get_most_similar_str_to_a_from_b",
    "listdir_nohidden",
    "load_checkpoint",
    "load_pretrained_weights",
    "mkdir_if_missing",
    "open_all_layers",
    "open_specified_layers",
    "read_image",
    "read_json",
    "resume_from_checkpoint",
    "save_checkpoint",
    "set_random_seed",
    "setup_logger",
    "tolist_if_not",
    "write_json",
]
