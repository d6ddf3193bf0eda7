"""One run: train and evaluate, or evaluate only, with CoOp's flags.

`python train.py` in a source tree and `cocoamix train` run this module. The flags are in cocoamix/run/arguments.py.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from typing import Any

# First: it checks torch and makes Dassl and torchvision importable.
import cocoamix.trainers

# isort: split
import cocoamix.datasets  # noqa: F401  (registers the datasets)

# isort: split
import torch
from dassl.config import get_cfg_default
from dassl.data.datasets import DATASET_REGISTRY
from dassl.engine import TRAINER_REGISTRY
from yacs.config import CfgNode

from cocoamix.config import keys
from cocoamix.config.trainer_file import note_unread_options, refuse_other_trainers
from cocoamix.datasets.common.writing import write_nothing
from cocoamix.errors import UserError, check_choice, run_command
from cocoamix.io.failed_start import open_log, remove_log
from cocoamix.io.files import check_still_there, check_writable
from cocoamix.io.log import collect_env_info, setup_logger
from cocoamix.io.screen import brief, detail, log_only
from cocoamix.refusals import explain
from cocoamix.run.arguments import STOPPED, import_modules, parse_arguments
from cocoamix.run.lock import FolderLock
from cocoamix.run.overview import describe, note_on_tiny, render
from cocoamix.run.threads import threads_for
from cocoamix.seeding import set_random_seed
from cocoamix.trainer import CLIPTrainer

__all__ = ["main", "parse_arguments", "run", "setup_cfg"]


def setup_cfg(
    args: argparse.Namespace, origins: Mapping[str, str] | None = None, settings: Mapping[str, Any] | None = None
) -> CfgNode:
    """Merge defaults, dataset file, trainer file, flags and trailing options, in CoOp's order.

    Args:
        args: The arguments.
        origins: Where the keys of the options were set, for messages, if not on a command line.
        settings: Typed values by key, which a plan gives in place of the options.
    """
    import_modules(args.imports)
    cfg = get_cfg_default()
    keys.extend_cfg(cfg)
    for path in (args.dataset_config_file, args.config_file):
        if path:
            keys.merge_file(cfg, path)
    flags = {
        "DATASET.ROOT": args.root,
        "OUTPUT_DIR": args.output_dir,
        "RESUME": args.resume,
        "SEED": args.seed,
        "DATASET.SOURCE_DOMAINS": args.source_domains,
        "DATASET.TARGET_DOMAINS": args.target_domains,
        "INPUT.TRANSFORMS": args.transforms,
        "TRAINER.NAME": args.trainer,
        "MODEL.BACKBONE.NAME": args.backbone,
        "MODEL.HEAD.NAME": args.head,
    }
    for key, value in flags.items():
        if value is not None and value != "":
            keys.merge_value(cfg, key, value)
    if settings is None:
        keys.merge_options(cfg, args.opts, origins)
    else:
        keys.merge_settings(cfg, settings, origins)
    trainers = TRAINER_REGISTRY.registered_names()
    check_choice("The trainer (--trainer)", cfg.TRAINER.NAME, trainers)
    trainer = TRAINER_REGISTRY.get(cfg.TRAINER.NAME)
    if args.config_file and issubclass(trainer, CLIPTrainer) and trainer.reads_section:
        refuse_other_trainers(args.config_file, cfg.TRAINER.NAME, trainer.Model.section, trainers)
    check_choice(
        "The dataset (DATASET.NAME, from --dataset-config-file)", cfg.DATASET.NAME, DATASET_REGISTRY.registered_names()
    )
    keys.check_common(keys.complete(cfg))
    cfg.freeze()
    return cfg


def read_dataset(cfg: CfgNode) -> Any:
    """Return the dataset of a configuration. Nothing is printed or written, and no image is opened."""
    with write_nothing(), redirect_stdout(StringIO()):
        try:
            return DATASET_REGISTRY.get(cfg.DATASET.NAME)(cfg)
        except OSError as error:
            raise UserError(explain(error) or str(error)) from error


def run(args: argparse.Namespace, settings: Mapping[str, Any] | None = None) -> None:
    """Train or evaluate, according to the arguments. `settings` are as in `setup_cfg`."""
    cfg = setup_cfg(args, settings=settings)
    check_writable(cfg.OUTPUT_DIR)
    with FolderLock(cfg.OUTPUT_DIR):
        try:
            _run(args, cfg)
        except FileNotFoundError:
            check_still_there(cfg.OUTPUT_DIR)
            raise


def _run(args: argparse.Namespace, cfg: CfgNode) -> None:
    before = open_log()
    setup_logger(cfg.OUTPUT_DIR)
    # CoOp's configurations ask for 8 workers, also on machines with fewer cores.
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    trainer = TRAINER_REGISTRY.get(cfg.TRAINER.NAME)
    ours = issubclass(trainer, CLIPTrainer)
    with brief(not args.verbose), threads_for(cfg, trainer.Model.section if ours else "", resumes=not args.eval_only):
        if ours and trainer.reads_section:
            note_unread_options(args.opts, cfg.TRAINER.NAME, trainer.Model.section)
        try:
            _run_logged(args, cfg)
        except Exception as error:
            if isinstance(error, UserError) or explain(error):  # otherwise it is a bug, and the log may help
                remove_log(error, before)
            raise


def _run_logged(args: argparse.Namespace, cfg: CfgNode) -> None:
    if cfg.SEED >= 0:
        detail(f"Setting fixed seed: {cfg.SEED}")
        set_random_seed(cfg.SEED)
    if torch.cuda.is_available() and cfg.USE_CUDA:
        torch.backends.cudnn.benchmark = True
    with log_only():
        print("** Arguments **")
        for key, value in sorted(vars(args).items()):
            print(f"{key}: {value}")
        print("** Config **")
        print(cfg)
        print(f"** System info **\n{collect_env_info()}\n")
    trainer = TRAINER_REGISTRY.get(cfg.TRAINER.NAME)(cfg)
    if args.eval_only:
        trainer.load_model(args.model_dir, epoch=args.load_epoch)
    if isinstance(trainer, CLIPTrainer):
        print(render(describe(trainer, trains=not args.eval_only)))
        note = note_on_tiny(cfg, trainer.clip, trainer.classnames)
        if note:
            print(note)
    if args.eval_only:
        trainer.test()
    elif args.no_train:
        trainer.begin_training()
    else:
        trainer.train()


def main(argv: Sequence[str] | None = None) -> int:
    """Run and return the exit status; a UserError is one sentence and status 2."""
    return run_command(partial(run, parse_arguments(argv)), STOPPED, work=True)
