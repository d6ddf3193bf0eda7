"""results.json: the results of a run. This module defines the layout, and reads and writes the file.

docs/RESULTS.md is generated from it. It imports nothing heavy: the report and the runner read results without torch.
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

from .data_record import RunData

RESULTS = "results.json"
VERSION = 2
# Values of `caveats`.
RANDOM_WEIGHTS = "random weights"
TINY_IS_LOST = "tiny CLIP on images it does not know"
THREADS_DIFFER = "threads differ"


class ResultsError(UserError):
    """A results.json that cannot be used.

    Attributes:
        reason: Why, without the name of the file.
    """

    def __init__(self, path: Path, reason: str, advice: str = "Move it elsewhere, then run again.") -> None:
        super().__init__(f"{path} cannot be used: {reason}. {advice}")
        self.reason = reason


class NewerResultsError(ResultsError):
    """Results that a newer version of the project wrote."""

    def __init__(self, path: Path, version: int) -> None:
        reason = f"its version is {version}, and this cocoamix reads versions up to {VERSION}"
        super().__init__(path, reason, "Update cocoamix, or move the file elsewhere.")


def _about(words: str) -> dict[str, str]:
    """Return a field's metadata: its line in docs/RESULTS.md."""
    return {"about": words}


@dataclass(frozen=True)
class ModelFile:
    """`checkpoint`: the checkpoint that was evaluated."""

    folder: str = field(metadata=_about("output folder of its training run, relative to that of the evaluation"))
    epoch: int | None = field(default=None, metadata=_about("its epoch"))


@dataclass(frozen=True)
class Weights:
    """`weights`: the learned weights of CoCoA-Mix."""

    pi_in: float = field(metadata=_about("weight π^in of the learned prompt for its training classes"))
    pi_out: float = field(metadata=_about("weight π^out of the learned prompt for other classes"))


@dataclass(frozen=True)
class SecondStage:
    """`second_stage`: how the training of the weights ended, if they are trained after the prompt."""

    epochs: int = field(metadata=_about("number of epochs"))
    steps: int = field(metadata=_about("number of steps"))
    ended: str = field(
        metadata=_about(
            "why it ended: `length` (configured epochs done), `converged`, or `bound` (`WEIGHT_MAX_STEPS` reached)"
        )
    )
    moved: float | None = field(
        metadata=_about("largest change of a weight in the last round of steps; null if no round was completed")
    )
    # Missing in some files.
    pi_in: float | None = field(default=None, metadata=_about("π^in at the end"))
    pi_out: float | None = field(default=None, metadata=_about("π^out at the end"))


@dataclass(frozen=True)
class HeldOut:
    """`heldout`: the fit to held-out images (`WEIGHT_FIT heldout`)."""

    folds: int = field(metadata=_about("number of folds; 0 if no images could be held out"))
    images: int | None = field(default=None, metadata=_about("held-out images, over all folds"))
    pi_in: float | None = field(default=None, metadata=_about("the fitted π^in"))
    nll: float | None = field(default=None, metadata=_about("mean cross-entropy at π^in and CLIP's temperature"))
    temperature: float | None = field(
        default=None, metadata=_about("temperature τ of the mixture, fitted after π^in and used by `CALIBRATED`")
    )
    calibrated_nll: float | None = field(default=None, metadata=_about("mean cross-entropy at π^in and τ"))
    curve: tuple[tuple[float, ...], ...] | None = field(
        default=None, metadata=_about("pairs of π and its cross-entropy, at CLIP's temperature")
    )
    confidence: tuple[float, ...] | None = field(
        default=None, metadata=_about("0th to 100th percentile of the confidence on held-out images, at π^in and τ")
    )
    seconds: float | None = field(default=None, metadata=_about("duration of the folds and the fit"))
    why: str | None = field(default=None, metadata=_about("why nothing was fitted, if `folds` is 0"))


@dataclass(frozen=True)
class Session:
    """An entry of `sessions`: the evaluation after a session, on all classes seen so far. Accuracies in percent."""

    session: int = field(metadata=_about("number of the session, from 0"))
    classes: int = field(metadata=_about("number of classes seen so far"))
    images: int = field(metadata=_about("number of test images of these classes"))
    accuracy: float = field(metadata=_about("accuracy on all classes seen so far"))
    base: float = field(metadata=_about("accuracy on the classes of session 0"))
    novel_sessions: tuple[float, ...] = field(
        metadata=_about("accuracy on the classes of each later session, in order")
    )
    novel: float | None = field(metadata=_about("accuracy on the classes of all later sessions; null in session 0"))
    harmonic_mean: float | None = field(metadata=_about("harmonic mean of `base` and `novel`; null in session 0"))
    forgetting: tuple[float, ...] = field(
        metadata=_about("for each earlier session, its best earlier accuracy minus its current one")
    )
    mean_forgetting: float | None = field(metadata=_about("mean of `forgetting`; null in session 0"))
    ece: float | None = field(default=None, metadata=_about("expected calibration error, in percent"))
    nll: float | None = field(default=None, metadata=_about("mean negative log-likelihood, in nats"))


@dataclass(frozen=True, kw_only=True)
class Results:
    """`train.py` writes every key up to `versions`, and the others if they apply.

    A file of another program needs only `metrics`, and for the report also `trainer` and `dataset`.
    """

    version: int = field(default=VERSION, metadata=_about("version of this layout; a file without it has version 1"))
    trainer: str = field(default="", metadata=_about("trainer, as in `--trainer`"))
    dataset: str = field(default="", metadata=_about("dataset, as in `DATASET.NAME`"))
    subset: str = field(default="", metadata=_about("evaluated classes: `all`, `base` or `new`"))
    split: str = field(default="", metadata=_about("evaluated images: `test` or `val`"))
    seed: int | None = field(default=None, metadata=_about("seed of the run"))
    shots: int | None = field(default=None, metadata=_about("images per class, `DATASET.NUM_SHOTS`; -1 is all"))
    metrics: Mapping[str, float] = field(
        metadata=_about(
            "metrics by name: always `accuracy`, usually `error_rate`, `macro_f1`, `ece` and `nll`. If trained and "
            "other classes share a label space, also `base_accuracy`, `new_accuracy`, `harmonic_mean` and `auroc`; in "
            "sessions also `mean_accuracy`, `pd` and `mean_forgetting`. In percent, except `nll`"
        )
    )
    classes: int | None = field(default=None, metadata=_about("number of evaluated classes"))
    classnames: tuple[str, ...] | None = field(
        default=None, metadata=_about("names of the evaluated classes, in label order")
    )
    categories: Mapping[str, str] | None = field(
        default=None,
        metadata=_about(
            "for own images: the class name of each folder, or of each class in the table, also outside `subset`"
        ),
    )
    train_images: int | None = field(default=None, metadata=_about("number of training images"))
    evaluated_images: int | None = field(default=None, metadata=_about("number of evaluated images"))
    unreadable_images: int | None = field(
        default=None, metadata=_about("number of images left out as missing or unreadable (`DATASET.BAD_IMAGES skip`)")
    )
    trained_parameters: int | None = field(default=None, metadata=_about("number of trained parameters"))
    epoch: int | None = field(default=None, metadata=_about("training epochs of the evaluated model"))
    checkpoint: ModelFile | None = field(
        default=None, metadata=_about("the evaluated checkpoint, which `cocoamix predict` opens; not without training")
    )
    evaluation_seconds: float | None = field(default=None, metadata=_about("duration of the evaluation"))
    fingerprint: str = field(
        default="", metadata=_about("hash of `protocol`, without the training images, which depend on the seed")
    )
    protocol: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=_about("facts that must agree before two results are compared, such as images, model and templates"),
    )
    config: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=_about("the full configuration, nested; in an evaluation, with the checkpoint's training settings"),
    )
    versions: Mapping[str, str] = field(
        default_factory=dict, metadata=_about("versions of the packages that may affect results")
    )
    caveats: tuple[str, ...] | None = field(
        default=None,
        metadata=_about(
            f"why the metrics say less than they seem to: `{RANDOM_WEIGHTS}`, `{TINY_IS_LOST}`, or `{THREADS_DIFFER}` "
            "(a resume used another number of threads than the start)"
        ),
    )
    threads: int | None = field(
        default=None,
        metadata=_about(
            "on a CPU: number of threads at the start of the run, which affects the last bits. A resume uses the same "
            "number, unless `OMP_NUM_THREADS` sets another"
        ),
    )
    data: RunData | None = field(
        default=None, metadata=_about("hashes of the images of the run, to see whether they have changed since")
    )
    overridden: Mapping[str, Any] | None = field(
        default=None,
        metadata=_about(
            "in an evaluation: its own training settings that differ from the checkpoint's, by dotted key. They had no "
            "effect; `config` has the checkpoint's"
        ),
    )
    weights: Weights | None = field(
        default=None, metadata=_about("learned weights of CoCoA-Mix (`ENSEMBLE coa`), except in sessions")
    )
    second_stage: SecondStage | None = field(
        default=None, metadata=_about("how the second stage of CoCoA-Mix ended (`STAGE two`), except in sessions")
    )
    heldout: HeldOut | None = field(default=None, metadata=_about("the fit to held-out images (`WEIGHT_FIT heldout`)"))
    method: str | None = field(default=None, metadata=_about("in sessions: name of the method in tables"))
    finished: bool | None = field(default=None, metadata=_about("in sessions: whether all sessions were evaluated"))
    sessions: tuple[Session, ...] | None = field(
        default=None, metadata=_about("in sessions: the evaluation after each session")
    )
    mean: float | None = field(
        default=None, metadata=_about("in sessions: mean accuracy over the sessions, in percent")
    )
    pd: float | None = field(
        default=None, metadata=_about("in sessions: accuracy after the first session minus accuracy after the last")
    )
    second_stages: tuple[SecondStage | None, ...] | None = field(
        default=None,
        metadata=_about(
            "CoCoA-Mix in sessions: how the second stage of each session ended; null for a session without one"
        ),
    )
    extra: Mapping[str, Any] = field(
        default_factory=dict, metadata=_about("not a key of the file: further keys that a trainer adds")
    )

    # ------------------------------------------------------------------ properties

    @property
    def accuracy(self) -> float | None:
        """In percent; of a run in sessions, after the last."""
        return self.metrics.get("accuracy")

    @property
    def complete(self) -> bool:
        """Whether all sessions were evaluated: False for a run that stopped before its last session."""
        return self.finished is not False

    def is_of_the_same_evaluation(self, other: Results) -> bool:
        """Whether two results are of the same evaluation, so that the later replaces the earlier."""
        keys = ("trainer", "seed", "fingerprint", "split")
        return all(getattr(self, key) == getattr(other, key) for key in keys)

    # ------------------------------------------------------------------ reading

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Results:
        """Read a file of any version up to this one; raise a ResultsError if it cannot be used."""
        path = Path(path)
        try:
            return cls.parse(read_json(path), path)
        except UnreadableError as error:
            raise ResultsError(path, f"it {error.reason}") from error
        except ValueError as error:
            raise ResultsError(path, str(error)) from error

    @classmethod
    def parse(cls, content: Any, path: Path) -> Results:
        """Return the results in the content of a file. `path` is the file, for messages."""
        if not isinstance(content, Mapping):
            raise plain.MismatchError("it is not an object")
        version = content.get("version", 1)  # version 1 had no such key
        if isinstance(version, int) and version > VERSION:
            raise NewerResultsError(path, version)
        return cls(**_read_keys({**content, "version": version}))

    # ------------------------------------------------------------------ writing

    def with_more(self, keys: Mapping[str, Any]) -> Results:
        """Return the results with further keys, given as plain values.

        A value that does not fit its field is left out with a note, so that the other results are not lost.
        """
        found = self
        for key, value in keys.items():
            try:
                found = Results(**_read_keys({**found.keys(), key: value}))
            except plain.MismatchError as error:
                print(f"Note: {key} is left out of {RESULTS}: {error}.")
        return found

    def keys(self) -> dict[str, Any]:
        """Return the contents of the file, as plain values."""
        found: dict[str, Any] = plain.to_plain(self)
        extra = found.pop("extra")
        return {**found, **extra}

    def write(self, folder: str | os.PathLike[str]) -> Path:
        """Write results.json into a folder and return its path. Results of another evaluation are kept next to it."""
        path = Path(folder) / RESULTS
        self._keep_others(path)
        write_json(path, {**self.keys(), "version": VERSION})
        return path

    def _keep_others(self, path: Path) -> None:
        """Rename results of another evaluation in the same folder."""
        if not path.is_file():
            return
        try:
            if self.is_of_the_same_evaluation(Results.read(path)):
                return
        except ResultsError:
            pass  # their evaluation is unknown
        stamp, number = time.strftime("%Y-%m-%d-%H-%M-%S"), 1
        kept = path.with_name(f"{RESULTS}-{stamp}")
        while kept.exists():
            number += 1
            kept = path.with_name(f"{RESULTS}-{stamp}-{number}")
        path.rename(kept)
        print(f"Results of another evaluation are kept as {kept.name}")


def _read_keys(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of results from the keys of a file, with unknown keys under `extra`."""
    names = {one.name for one in fields(Results)} - {"extra"}
    known = {key: value for key, value in content.items() if key in names}
    return {**plain.read_fields(Results, known), "extra": {k: v for k, v in content.items() if k not in names}}
