"""What a run records: its images, and results.json."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from yacs.config import CfgNode

from cocoamix.errors import encodable
from cocoamix.registry import plain_name

from . import data_record, overview, protocol
from .data_record import RunData
from .results import RESULTS, ModelFile, Results, ResultsError

if TYPE_CHECKING:
    from cocoamix.trainer import CLIPTrainer


class Evaluated(NamedTuple):
    """What an evaluation covers.

    Attributes:
        classnames: The label space.
        items: The images.
        training_images: The number of images that the model was trained on; None if it is not known.
        results: What results.json states of the method.
    """

    classnames: list[str]
    items: Sequence[Any]
    training_images: int | None
    results: dict[str, Any]


@dataclass(frozen=True)
class Loaded:
    """What an evaluation has taken from the training run of its model; all is empty without one.

    Attributes:
        origin: The metadata of the checkpoint.
        folder: The folder of the run.
        config: The configuration with the checkpoint's training settings, to record in the results.
        overridden: The evaluation's own training settings, which had no effect.
        facts: Entries of the protocol.
    """

    origin: Mapping[str, Any] = field(default_factory=dict)
    folder: str = ""
    config: CfgNode | None = None
    overridden: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def record_data(trainer: CLIPTrainer, trains: bool) -> None:
    """Record the images of a run once; refuse an output folder with results of this run on other images.

    Args:
        trainer: The trainer.
        trains: Whether the run trains, rather than only evaluates.
    """
    if trainer.data is not None:
        return
    data = data_record.record_run(trainer.cfg, trainer.dm.dataset, trains)
    loaded = data_record.parse(trainer.loaded.origin.get("data"), "The checkpoint")
    if not trains and loaded is not None:
        data = replace(data, training=loaded.training)
    trainer.data = data
    data_record.check_same(_data_of_results(trainer), data, trainer.output_dir)


def _data_of_results(trainer: CLIPTrainer) -> RunData | None:
    """Return the images of the results in the output folder, if all but the images is as in this run."""
    try:
        results = Results.read(Path(trainer.output_dir, RESULTS))
    except ResultsError:
        return None
    then, now = dict(results.protocol), trainer.evaluated_protocol()
    shared = (then.keys() & now.keys()) - {"splits"}  # an evaluation adds facts of its own
    names = sorted(shared)
    own = (trainer.cfg.TRAINER.NAME, trainer.seed, trainer.cfg.TEST.SPLIT, [now[key] for key in names])
    theirs = (results.trainer, results.seed, results.split, [then[key] for key in names])
    return results.data if protocol.digest(own) == protocol.digest(theirs) else None


def categories(trainer: CLIPTrainer) -> dict[str, str]:
    """Return the class name of each folder or class of own images; empty for other datasets."""
    names: Mapping[str, str] = getattr(trainer.dm.dataset, "categories", {})
    return {encodable(category): name for category, name in names.items()}


def write_results(trainer: CLIPTrainer, split: str, metrics: Mapping[str, float], seconds: float) -> None:
    """Write results.json."""
    items = trainer.evaluated(split).items
    unreadable = trainer.images.unreadable.keys() & {item.impath for item in items}
    results = replace(
        describe_run(trainer, split),
        split=split,
        metrics={key: float(value) for key, value in metrics.items()},
        evaluated_images=len(items) - len(unreadable),
        evaluation_seconds=round(seconds, 3),
    )
    trainer.tested = results.metrics
    print(f"Results written to {results.write(trainer.output_dir)}")


def describe_run(trainer: CLIPTrainer, split: str) -> Results:
    """Return the results of an evaluation without the measured values."""
    cfg: Any = trainer.loaded.config or trainer.cfg
    covered = trainer.evaluated(split)
    facts = trainer.evaluated_protocol()
    threads = trainer.threads_used
    results = Results(
        trainer=trainer.cfg.TRAINER.NAME,
        dataset=plain_name(trainer.cfg.DATASET.NAME),
        subset=trainer.cfg.DATASET.SUBSAMPLE_CLASSES,
        seed=trainer.seed,
        shots=cfg.DATASET.NUM_SHOTS,
        metrics={},
        classes=trainer.num_classes,
        classnames=tuple(covered.classnames),
        categories=categories(trainer) or None,
        train_images=covered.training_images,
        unreadable_images=len(trainer.images.unreadable),
        trained_parameters=trainer.model.trained_parameters(),
        epoch=trainer.trained_epochs,
        checkpoint=_checkpoint_of(trainer),
        fingerprint=protocol.fingerprint(facts),
        protocol=facts,
        config=protocol.plain(cfg),
        versions=protocol.versions(trainer.clip.source),
        caveats=overview.caveats(trainer.cfg, trainer.clip, covered.classnames, threads),
        threads=threads[0] if threads else None,
        data=trainer.data,
        overridden=dict(trainer.loaded.overridden) or None,
    )
    return results.with_more(covered.results)


def _checkpoint_of(trainer: CLIPTrainer) -> ModelFile | None:
    """Return where the evaluated parts are; None without training."""
    if not trainer.saved_parts:
        return None
    here, there = (os.path.realpath(folder) for folder in (trainer.output_dir, trainer.loaded.folder))
    try:
        folder = os.path.relpath(there, here) if trainer.loaded.folder else "."
    except ValueError:  # on another drive
        folder = there
    return ModelFile(encodable(folder), trainer.trained_epochs)
