"""results.json: what a run measured, and on what. The one description of the file, its reader and its writer.

docs/RESULTS.md is made from this file. Nothing heavy is imported: the report and the runner read results without torch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from cocoamix.errors import UserError
from cocoamix.io import plain
from cocoamix.io.files import write_json
from cocoamix.io.texts import UnreadableError, read_json

RESULTS = "results.json"
VERSION = 2


class ResultsError(UserError):
    """A results.json that cannot be used. reason: why, without the name of the file."""

    def __init__(self, path: Path, reason: str, way_out: str = "Move it away, and run again.") -> None:
        super().__init__(f"{path} cannot be used: {reason}. {way_out}")
        self.reason = reason


class NewerResultsError(ResultsError):
    """Results that a newer version of the project wrote."""

    def __init__(self, path: Path, version: int) -> None:
        reason = f"its version is {version}, and this cocoamix reads versions up to {VERSION}"
        super().__init__(path, reason, "Update cocoamix, or move the file away.")


def _about(words: str) -> dict[str, str]:
    """Return a field's metadata: its line in docs/RESULTS.md."""
    return {"about": words}


@dataclass(frozen=True)
class Weights:
    """`weights`: the learned weights of CoCoA-Mix."""

    pi_in: float = field(metadata=_about("weight π^in of the learned prompt for the classes that it was trained on"))
    pi_out: float = field(metadata=_about("its weight π^out for other classes"))


@dataclass(frozen=True)
class SecondStage:
    """`second_stage`: how the training of the weights ended, where they are trained after the prompt."""

    epochs: int = field(metadata=_about("epochs that it took"))
    steps: int = field(metadata=_about("steps that it took"))
    ended: str = field(
        metadata=_about(
            "why it ended: `length` (the epochs that were set), `converged` (the weights stood still) or `bound` "
            "(`WEIGHT_MAX_STEPS`)"
        )
    )
    moved: float | None = field(
        metadata=_about("how far a weight moved in the last round of steps; null where no round was completed")
    )
    # Files that early versions wrote do not have the two.
    pi_in: float | None = field(default=None, metadata=_about("π^in at its end"))
    pi_out: float | None = field(default=None, metadata=_about("π^out at its end"))


@dataclass(frozen=True)
class HeldOut:
    """`heldout`: what was fitted to held-out images (`WEIGHT_FIT heldout`)."""

    folds: int = field(metadata=_about("folds of the training images; 0 where nothing could be held out"))
    images: int | None = field(default=None, metadata=_about("held-out images, over all folds"))
    pi_in: float | None = field(default=None, metadata=_about("the fitted π^in"))
    nll: float | None = field(default=None, metadata=_about("mean cross-entropy at π^in and CLIP's temperature"))
    temperature: float | None = field(
        default=None, metadata=_about("temperature τ of the mixture with π^in, fitted after it; `CALIBRATED` uses it")
    )
    calibrated_nll: float | None = field(default=None, metadata=_about("mean cross-entropy at π^in and τ"))
    curve: tuple[tuple[float, ...], ...] | None = field(
        default=None, metadata=_about("pairs of π and the cross-entropy at it, at CLIP's temperature")
    )
    confidence: tuple[float, ...] | None = field(
        default=None, metadata=_about("0th to 100th percentile of the confidence on held-out images, at π^in and τ")
    )
    seconds: float | None = field(default=None, metadata=_about("time of the folds and the fit"))
    why: str | None = field(default=None, metadata=_about("why nothing was fitted, where `folds` is 0"))


@dataclass(frozen=True)
class Session:
    """An entry of `sessions`: the evaluation after a session, on all classes seen so far. Accuracies in percent."""

    session: int = field(metadata=_about("its number, from 0"))
    classes: int = field(metadata=_about("classes seen so far"))
    images: int = field(metadata=_about("test images of these classes"))
    accuracy: float = field(metadata=_about("accuracy on all of them"))
    base: float = field(metadata=_about("accuracy on the classes of session 0"))
    novel_sessions: tuple[float, ...] = field(
        metadata=_about("accuracy on the classes of each later session, in order")
    )
    novel: float | None = field(metadata=_about("accuracy on the classes of all later sessions; null in session 0"))
    harmonic_mean: float | None = field(metadata=_about("harmonic mean of `base` and `novel`; null in session 0"))
    forgetting: tuple[float, ...] = field(
        metadata=_about("for each earlier session, its best accuracy before minus the present one")
    )
    mean_forgetting: float | None = field(metadata=_about("mean of `forgetting`; null in session 0"))
    ece: float | None = field(default=None, metadata=_about("expected calibration error, in percent"))
    nll: float | None = field(default=None, metadata=_about("mean negative log-likelihood, in nats"))


@dataclass(frozen=True, kw_only=True)
class Results:
    """What `train.py` writes: every key up to `versions`, and the others where they apply.

    A file of another program needs `metrics` alone, and for the report `trainer` and `dataset`.
    """

    version: int = field(default=VERSION, metadata=_about("version of this layout; a file without it is of version 1"))
    trainer: str = field(default="", metadata=_about("trainer, as `--trainer` names it"))
    dataset: str = field(default="", metadata=_about("dataset, as `DATASET.NAME` names it"))
    subset: str = field(default="", metadata=_about("classes that were evaluated: `all`, `base` or `new`"))
    split: str = field(default="", metadata=_about("images that were evaluated: `test` or `val`"))
    seed: int | None = field(default=None, metadata=_about("seed of the run"))
    shots: int | None = field(default=None, metadata=_about("images per class, `DATASET.NUM_SHOTS`; -1 is all"))
    metrics: Mapping[str, float] = field(
        metadata=_about(
            "what was measured, by name. Always `accuracy`, mostly `error_rate`, `macro_f1`, `ece` and `nll`; where "
            "trained and other classes share a label space `base_accuracy`, `new_accuracy`, `harmonic_mean` and "
            "`auroc`; in sessions `mean_accuracy`, `pd` and `mean_forgetting`, too. In percent, but for `nll`"
        )
    )
    classes: int | None = field(default=None, metadata=_about("classes that were evaluated"))
    classnames: tuple[str, ...] | None = field(default=None, metadata=_about("their names, in the order of the labels"))
    train_images: int | None = field(default=None, metadata=_about("images that the method was given to train on"))
    evaluated_images: int | None = field(default=None, metadata=_about("images that the metrics are over"))
    unreadable_images: int | None = field(
        default=None, metadata=_about("images of the run that could not be read (`DATASET.BAD_IMAGES skip`)")
    )
    trained_parameters: int | None = field(default=None, metadata=_about("parameters that are trained"))
    epoch: int | None = field(default=None, metadata=_about("epochs of training that the evaluated model had"))
    evaluation_seconds: float | None = field(default=None, metadata=_about("time of the evaluation"))
    fingerprint: str = field(
        default="", metadata=_about("hash of `protocol` without the training images, which differ by seed")
    )
    protocol: Mapping[str, Any] = field(
        default_factory=dict, metadata=_about("what has to agree before two results may be compared")
    )
    config: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=_about(
            "the whole configuration, nested; of an evaluation, with the training settings of the checkpoint"
        ),
    )
    versions: Mapping[str, str] = field(
        default_factory=dict, metadata=_about("versions of the packages that a number may depend on")
    )
    overridden: Mapping[str, Any] | None = field(
        default=None,
        metadata=_about(
            "of an evaluation: by dotted key, what its own configuration said of training where the checkpoint tells "
            "otherwise; it had no effect, and `config` has what the model was trained with"
        ),
    )
    weights: Weights | None = field(
        default=None, metadata=_about("learned weights of CoCoA-Mix (`ENSEMBLE coa`), outside sessions")
    )
    second_stage: SecondStage | None = field(
        default=None, metadata=_about("how the second stage of CoCoA-Mix ended (`STAGE two`), outside sessions")
    )
    heldout: HeldOut | None = field(
        default=None, metadata=_about("what was fitted to held-out images (`WEIGHT_FIT heldout`)")
    )
    method: str | None = field(default=None, metadata=_about("of a run in sessions: the method's name in tables"))
    finished: bool | None = field(
        default=None, metadata=_about("of a run in sessions: whether all of them were evaluated")
    )
    sessions: tuple[Session, ...] | None = field(
        default=None, metadata=_about("of a run in sessions: the evaluation after each")
    )
    mean: float | None = field(
        default=None, metadata=_about("of a run in sessions: mean of the accuracies after each, in percent")
    )
    pd: float | None = field(
        default=None, metadata=_about("of a run in sessions: accuracy after the first minus that after the last")
    )
    second_stages: tuple[SecondStage | None, ...] | None = field(
        default=None, metadata=_about("of CoCoA-Mix in sessions: how the second stage of each ended; null without one")
    )
    extra: Mapping[str, Any] = field(
        default_factory=dict, metadata=_about("not a key of the file: other keys that a trainer adds beside these")
    )

    # ------------------------------------------------------------------ what readers ask

    @property
    def accuracy(self) -> float | None:
        """In percent; of a run in sessions, after the last."""
        return self.metrics.get("accuracy")

    @property
    def complete(self) -> bool:
        """Whether there is nothing left to evaluate: False for a run that was to stop before its last session."""
        return self.finished is not False

    def is_of_the_same_evaluation(self, other: Results) -> bool:
        """Say whether two results may stand for each other, the later for the earlier."""
        keys = ("trainer", "seed", "fingerprint", "split")
        return all(getattr(self, key) == getattr(other, key) for key in keys)

    # ------------------------------------------------------------------ reading

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Results:
        """Read a file of any version up to this one. Raises ResultsError for what cannot be used."""
        path = Path(path)
        try:
            return cls.parse(read_json(path), path)
        except UnreadableError as error:
            raise ResultsError(path, f"it {error.reason}") from error
        except ValueError as error:
            raise ResultsError(path, str(error)) from error

    @classmethod
    def parse(cls, content: Any, path: Path) -> Results:
        """Return the results that a file holds. path: the file, for the message about a newer version."""
        if not isinstance(content, Mapping):
            raise plain.MismatchError("it is not an object")
        version = content.get("version", 1)  # version 1 did not say so
        if isinstance(version, int) and version > VERSION:
            raise NewerResultsError(path, version)
        return cls(**_read_keys({**content, "version": version}))

    # ------------------------------------------------------------------ writing

    def with_more(self, keys: Mapping[str, Any]) -> Results:
        """Return the results with further keys, given as plain values.

        A key whose value does not fit its field is left out with a printed note: what was measured must not be lost.
        """
        found = self
        for key, value in keys.items():
            try:
                found = Results(**_read_keys({**found.keys(), key: value}))
            except plain.MismatchError as error:
                print(f"Note: {key} is left out of {RESULTS}: {error}.")
        return found

    def keys(self) -> dict[str, Any]:
        """Return what the file holds, as plain values."""
        found: dict[str, Any] = plain.to_plain(self)
        extra = found.pop("extra")
        return {**found, **extra}

    def write(self, folder: str | os.PathLike[str]) -> Path:
        """Write results.json into a folder and return its path. Results of another evaluation are kept beside it."""
        path = Path(folder) / RESULTS
        self._keep_others(path)
        write_json(path, {**self.keys(), "version": VERSION})
        return path

    def _keep_others(self, path: Path) -> None:
        """Move results of another evaluation in the same folder aside, as the log of an earlier run is kept."""
        if not path.is_file():
            return
        try:
            if self.is_of_the_same_evaluation(Results.read(path)):
                return
        except ResultsError:
            pass  # nobody can tell what they are of
        stamp, number = time.strftime("%Y-%m-%d-%H-%M-%S"), 1
        kept = path.with_name(f"{RESULTS}-{stamp}")
        while kept.exists():
            number += 1
            kept = path.with_name(f"{RESULTS}-{stamp}-{number}")
        path.rename(kept)
        print(f"Results of another evaluation are kept as {kept.name}")


def _read_keys(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of results from the keys of a file, the unknown ones under `extra`."""
    names = {one.name for one in fields(Results)} - {"extra"}
    known = {key: value for key, value in content.items() if key in names}
    return {**plain.read_fields(Results, known), "extra": {k: v for k, v in content.items() if k not in names}}
