"""Build a dataset as train.py does, without a trainer."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cocoamix.config import shipped
from cocoamix.dataset_table import DATASETS, OWN
from cocoamix.errors import UserError, brief, known_names, printable
from cocoamix.io.texts import read_yaml
from cocoamix.registry import PREFIX, plain_name

from .sources import SOURCES, Source


class NoLoaderError(UserError):
    """A known dataset that this installation has no loader for."""


def resolve_name(given: str) -> str:
    """Return the registered name of a dataset, ignoring case. The path of a configuration is returned unchanged."""
    if given.endswith((".yaml", ".yml")):
        return given
    known = {spelling.lower(): one.name for one in DATASETS.values() for spelling in (one.config, one.name)}
    name = known.get(plain_name(given).lower())
    if name is None:
        choices = [one.config if one.kind == OWN else one.name for one in DATASETS.values()]
        raise UserError(f"There is no dataset {brief(given)}.{known_names(given, choices)}")
    return name


def name_in(given: str) -> str:
    """Return the dataset that a name or a configuration file names; empty if the file cannot be used."""
    if not given.endswith((".yaml", ".yml")):
        return given
    with contextlib.suppress(UserError, AttributeError, TypeError, KeyError):
        return plain_name(str(read_yaml(shipped.locate(given))["DATASET"]["NAME"]))
    return ""  # make_cfg reports the error in the file


def source_of(given: str) -> Source | None:
    """Return the source of a dataset, given by its name or configuration file; None if it has no known source."""
    return SOURCES.get(name_in(given))


def make_cfg(name: str, root: str, options: Sequence[str] = (), shots: int = -1, seed: int = -1) -> Any:
    """Return the configuration of a dataset.

    Args:
        name: The name of the dataset, or the path of a YAML file.
        root: The data folder.
        options: KEY VALUE pairs that change the configuration.
        shots: Training images per class; -1 for all.
        seed: The seed of a few-shot draw; -1 for none.
    """
    import cocoamix.datasets
    import cocoamix.trainers  # noqa: F401

    # isort: split
    from dassl.config import get_cfg_default
    from dassl.data.datasets import DATASET_REGISTRY

    from cocoamix.config import keys

    cfg = get_cfg_default()
    keys.extend_cfg(cfg)
    if name.endswith((".yaml", ".yml")):
        keys.merge_file(cfg, name)
    else:
        cfg.DATASET.NAME = name
    cfg.DATASET.ROOT, cfg.DATASET.NUM_SHOTS, cfg.SEED = root, shots, seed
    keys.merge_options(cfg, options)
    registered = DATASET_REGISTRY.registered_names()
    # If another code base has already registered this name, ours is registered with a prefix.
    if PREFIX + cfg.DATASET.NAME in registered:
        cfg.DATASET.NAME = PREFIX + cfg.DATASET.NAME
    if cfg.DATASET.NAME not in registered:
        raise NoLoaderError(f"This installation has no loader for the dataset {plain_name(cfg.DATASET.NAME)}.")
    return cfg


def build(cfg: Any) -> tuple[Any, str]:
    """Return the dataset and the output of its loader. Nothing is written to the data folder."""
    from dassl.data.datasets import DATASET_REGISTRY

    from cocoamix.datasets.common.writing import write_nothing

    printed = io.StringIO()
    with write_nothing(), contextlib.redirect_stdout(printed):
        dataset = DATASET_REGISTRY.get(cfg.DATASET.NAME)(cfg)
    return dataset, printed.getvalue()


def why_draws_do_not_fit(cfg: Any, dataset: Any) -> dict[Path, str]:
    """Return the stored few-shot draws with the reason why a run could not use them; empty if it could.

    Args:
        cfg: The configuration. With DATASET.NUM_SHOTS or SEED, only the draws of these are read.
        dataset: The dataset that was built from it.
    """
    from cocoamix.datasets.common.base import FewShotDataset, SplitDataset
    from cocoamix.datasets.common.kept_draws import stored_draws
    from cocoamix.datasets.common.missing import collect_missing

    if not isinstance(dataset, FewShotDataset) or type(dataset).few_shot is not FewShotDataset.few_shot:
        return {}  # of another code base, or without draws
    if isinstance(dataset, SplitDataset) and not Path(dataset.dataset_dir, dataset.split_file).exists():
        return {}  # the split depends on the seed until a run has saved it
    wanted = cfg.DATASET.NUM_SHOTS, cfg.SEED
    draws = [
        (path, shots)
        for path, shots, seed in (stored_draws(dataset.dataset_dir) if dataset.dataset_dir else ())
        if (wanted[0] < 1 or wanted[0] == shots) and (wanted[1] < 0 or wanted[1] == seed)
    ]
    if draws and (cfg.DATASET.NUM_SHOTS >= 1 or cfg.DATASET.SUBSAMPLE_CLASSES != "all"):
        whole = cfg.clone()
        whole.defrost()
        whole.DATASET.NUM_SHOTS, whole.DATASET.SUBSAMPLE_CLASSES = -1, "all"
        with collect_missing():
            dataset, _ = build(whole)
    found = dict.fromkeys((path for path, _ in draws), "")
    for path, shots in draws:
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                dataset.read_draw(path, shots, list(dataset.train_x), list(dataset.val or ()))
        except UserError as error:
            found[path] = str(error)
    return found


def print_notes(notes: str) -> None:
    """Print the output of a loader."""
    for line in notes.splitlines():
        print(printable(f"  {line}"))
