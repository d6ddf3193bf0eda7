"""The loop of class-incremental learning over sessions, each trained on its own images only.

Each session has a model of its own (`SessionModel`). Its learned parts are saved in `sessions/session-<n>.pth`. Images
of earlier sessions are never read again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from yacs.config import CfgNode

from cocoamix import checkpoint
from cocoamix.config import keys
from cocoamix.errors import UserError
from cocoamix.features.images import image_name
from cocoamix.fscil import metrics
from cocoamix.fscil.files import (
    FOLDER,
    Models,
    SavedSession,
    copy_session,
    count_sessions,
    read_session,
    read_sessions,
    save_session,
    session_file,
)
from cocoamix.fscil.model import SessionModel, SessionTask
from cocoamix.fscil.split import Session, SessionSplit, choose_split, split_into_sessions
from cocoamix.io import checkpoints
from cocoamix.io.screen import detail
from cocoamix.model import IMAGES, Task
from cocoamix.registry import plain_name
from cocoamix.run import origin, protocol, recording
from cocoamix.run.checkpointer import RESUME, epochs_in, parameters_of
from cocoamix.run.evaluation import Evaluation, NotFiniteError
from cocoamix.run.predictions import paths_at, predictions_for
from cocoamix.run.recording import Evaluated, Loaded
from cocoamix.run.results import RESULTS, Results, ResultsError
from cocoamix.trainer import CLIPTrainer


class SessionTrainer(CLIPTrainer):
    """A trainer that learns session by session. Its training images and classes are those of the current session."""

    Model: ClassVar[type[SessionModel]]
    model: SessionModel
    session: int = 0  # the current session
    last_session: int  # the last session of this run
    learned: list[Models]  # parts of each finished session
    origins: list[dict[str, Any]]  # origin of each finished session

    @classmethod
    def check_cfg(cls, cfg: CfgNode) -> None:
        super().check_cfg(cfg)
        keys.check_sessions(cfg)

    # ------------------------------------------------------------------ the classes and images of a session

    def build_data_loader(self) -> None:
        """Split the dataset into sessions and load the first."""
        super().build_data_loader()
        self._split_sessions()

    def _split_sessions(self) -> None:
        """Split the dataset according to FSCIL.*, and load the current session."""
        data, fscil = self.dm.dataset, self.cfg.FSCIL
        items = data.val if self.cfg.TEST.SPLIT == "val" else data.test
        if not items:
            raise UserError(f"The dataset {self.cfg.DATASET.NAME} has no {self.cfg.TEST.SPLIT} images.")
        split = SessionSplit(fscil.BASE, fscil.WAY, fscil.SHOTS, fscil.SPLIT, self.seed, self.cfg.DATASET.FEWER_SHOTS)
        self.sessions = split_into_sessions(data, items, split)
        self.split = choose_split(data, fscil.SPLIT)
        if len(self.sessions) <= fscil.LAST_SESSION:
            raise UserError(
                f"FSCIL.LAST_SESSION is {fscil.LAST_SESSION}, but {self.cfg.DATASET.NAME} has the sessions 0 to "
                f"{len(self.sessions) - 1}."
            )
        self.last_session = fscil.LAST_SESSION if fscil.LAST_SESSION >= 0 else len(self.sessions) - 1
        first = self.sessions[0]
        print(
            f"Sessions: {len(first.classnames)} base classes with {len(first.train):,} images, then "
            f"{len(self.sessions) - 1} x {fscil.WAY} classes with {fscil.SHOTS} images each "
            f"({'the published ones' if self.split == 'cec' else f'drawn with seed {self.seed}'})"
        )
        self._tests = [self.images.test_loader_of(session.test) for session in self.sessions]
        self._use_images()

    def _use_images(self) -> None:
        """Use the training images of the current session."""
        batch_size = 0 if self.session else int(self.cfg.FSCIL.BASE_BATCH_SIZE)
        self.images.use_session(self.sessions[self.session].train, self.session, batch_size)
        self.images.first_label = self.sessions[self.session].labels.start if self.tuned_classes == "session" else 0
        self.train_loader_x = self.images.loader_of(None)

    @property
    def classnames(self) -> list[str]:
        """The classes of the current session's loss."""
        return self.classnames_of(self.session)

    def classnames_of(self, session: int) -> list[str]:
        """Return the classes of a session's loss."""
        last = {"session": None, "seen": session, "all": len(self.sessions) - 1}[self.tuned_classes]
        return self.sessions[session].classnames if last is None else self.seen_classes(last)

    @property
    def tuned_classes(self) -> str:
        """Classes of a session's loss: `session` (its own), `seen` (up to it) or `all` (of all sessions)."""
        return str(self.cfg.FSCIL.TUNED_CLASSES) if self.Model.chooses_classes else "session"

    def seen_classes(self, session: int) -> list[str]:
        """Return all classes up to and including a session."""
        return [name for each in self.sessions[: session + 1] for name in each.classnames]

    def synsets(self) -> list[str]:
        return []

    def describe_protocol(self) -> dict[str, Any]:
        fscil, facts = self.cfg.FSCIL, super().describe_protocol()
        training_items = [item for session in self.sessions for item in session.train]
        facts["splits"]["train"] = protocol.items_hash(training_items)
        facts["views"] = protocol.views(self.cfg, self.Model.most_epochs(self.cfg))
        facts["fscil"] = {"base": fscil.BASE, "way": fscil.WAY, "shots": fscil.SHOTS, "split": self.split}
        if fscil.BASE_BATCH_SIZE:  # only then, so that fingerprints of runs without it do not change
            facts["fscil"]["base_batch_size"] = fscil.BASE_BATCH_SIZE
        return facts

    # ------------------------------------------------------------------ the model of a session

    def build_model(self) -> None:
        self.learned, self.origins = [], []
        self._shared: dict[Any, Tensor] = {}
        self.rows: list[metrics.Row] = []  # one evaluation per session
        super().build_model()

    def make_task(self) -> Task:
        items = self.images.train_items
        return SessionTask(
            tuple(self.classnames),
            self.cfg.DATASET.NAME,
            tuple(image_name(item.impath) for item in items),
            tuple(int(item.label) for item in items),
            session=self.session,
            sessions=tuple(tuple(session.classnames) for session in self.sessions),
            learned=self.learned,
            shared=self._shared,
        )

    def build_session(self) -> None:
        """Build the model of the current session."""
        self.start_epoch = self.epoch = self.trained_epochs = 0
        self.is_training = False  # each session builds its own optimizers and scaler, which a resume restores
        self.use_model(self.make_model(self.make_task(), self.Model.settings_of(self.cfg)))
        while self.model.notes:
            detail(self.model.notes.pop(0))
        if self.cfg.MODEL.INIT_WEIGHTS and self.saved_parts and not self.Model.continues:
            checkpoint.load_initial_weights(self, self.cfg.MODEL.INIT_WEIGHTS)

    def begin(self, number: int) -> None:
        """Make session `number` the current one. The first is built with the trainer."""
        session = self.sessions[number]
        print(
            f"** Session {number} of {len(self.sessions) - 1}: {len(session.classnames)} classes, "
            f"{len(session.train):,} images **"
        )
        if number != self.session:
            self.session = number
            self._use_images()
            self.build_session()

    def train(self) -> None:
        """Train the sessions that are not finished."""
        self._began = time.time()
        recording.record_data(self, trains=True)
        self._read_finished()
        if not self.saved_parts or len(self.learned) > self.last_session:
            self.session = self.last_session
            if self.saved_parts:
                print(f"All sessions up to {self.last_session} are finished")
                folders = [folder for folder in (self.resumed_from, self.cfg.RESUME) if folder]
                self.metrics.begin(self.cfg, folders, 0, 0, len(self.sessions))  # keeps the rows of all sessions
            self._finish()
            return
        for number in range(len(self.learned), self.last_session + 1):
            self.begin(number)
            super().train()

    def after_train(self) -> None:
        self.learned.append(
            {
                name: {key: value.clone() for key, value in parameters_of(part).items()}
                for name, part in self.model.parts.items()
            }
        )
        self.origins.append(checkpoint.describe_origin(self))
        if self.session == self.last_session:
            self._finish()
        elif not self.cfg.TEST.NO_TEST:
            self.test()

    def _finish(self) -> None:
        self.time_start = self._began  # the time of all sessions, not only of the last
        super().after_train()

    def write_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
        super().write_scalar(f"session{self.session}/{tag}", scalar_value, global_step)

    # ------------------------------------------------------------------ saving and resuming, session by session

    def save_model(self, epoch: int, directory: str, *_: Any, **__: Any) -> None:
        """Save the parts of a finished session. There is one file per session and no best checkpoint."""
        if epoch + 1 < self.max_epoch:
            return  # before that, the resume file is enough
        models = {name: parameters_of(part) for name, part in self.model.parts.items()}
        facts = checkpoint.describe_origin(self)
        save_session(directory, self.session, epoch + 1, models, facts, self.images.unreadable)

    def resume_model_if_exist(self, directory: str) -> int:
        """Resume within the current session if it has a resume file; return the number of epochs done."""
        for folder in dict.fromkeys((Path(self.output_dir), Path(directory))):
            path = folder / RESUME
            if epochs_in(path) and checkpoints.load(path).get("session") == self.session:
                self.trained_epochs, self.resumed_from = checkpoint.resume_file(self, path), folder
                print(
                    f"Resuming from {folder}: in session {self.session}, "
                    f"{self.trained_epochs} of {self.max_epoch} epochs are done"
                )
                if self.trained_epochs >= self.max_epoch:  # no epoch is left that would save the session
                    self.save_model(self.trained_epochs - 1, self.output_dir)
                return self.trained_epochs
        return 0

    def _read_finished(self) -> None:
        """Read the finished sessions of this run, or of the run that --resume names."""
        folders = [self.output_dir, *filter(None, [self.cfg.RESUME])] if self.saved_parts else []
        for folder in folders:
            saved = self._read_sessions(folder)
            if not saved and not epochs_in(Path(folder, RESUME)):
                continue
            self.resumed_from = folder
            if saved:
                print(f"Resuming from {folder}: {len(saved)} of {len(self.sessions)} sessions are finished")
                checkpoint.check_origin(self, saved[-1].origin, saved[-1].path)
            for each in saved:
                checkpoint.check_settings(self, each.path, each.origin["settings"], each.origin["protocol"])
                if folder != self.output_dir:
                    copy_session(each, self.output_dir)
            self._use_sessions(saved[: self.last_session + 1])
            return
        if self.cfg.RESUME and folders:
            raise UserError(f"--resume names {self.cfg.RESUME}, which holds neither {RESUME} nor finished sessions.")

    def _read_sessions(self, folder: str) -> list[SavedSession]:
        now = checkpoint.describe_origin(self)
        expected = [{**now, "classnames": self.classnames_of(number)} for number in range(len(self.sessions))]
        return read_sessions(folder, expected, self.Model.main_part)

    def _use_sessions(self, saved: Sequence[SavedSession]) -> None:
        """Use saved sessions for a resume or an evaluation."""
        for each in saved:
            self.images.unreadable.update(each.unreadable)
            self.trained_epochs = each.epoch
        self.origins = [each.origin for each in saved]
        self.learned[:] = [each.models for each in saved]  # the model has the same list

    def load_model(self, directory: str, epoch: int | None = None) -> None:
        """Load the finished sessions of a run, up to FSCIL.LAST_SESSION if it is set."""
        if epoch is not None:
            raise UserError(
                "Sessions are evaluated after their last epoch: use FSCIL.LAST_SESSION N, not --load-epoch."
            )
        self.session = self.last_session
        if not self.saved_parts:
            return
        if not directory:
            raise UserError("--eval-only needs --model-dir, the output folder of a run with sessions.")
        if count_sessions(directory):
            self._adopt_training_settings(read_session(session_file(directory, 0), 0, self.Model.main_part))
        saved = self._read_sessions(directory)
        if not saved or len(saved) <= self.cfg.FSCIL.LAST_SESSION:
            raise UserError(
                f"{Path(directory, FOLDER)} holds {len(saved)} finished sessions"
                + (f", but FSCIL.LAST_SESSION is {self.cfg.FSCIL.LAST_SESSION}." if saved else ": nothing to evaluate.")
            )
        self.session = self.last_session = min(self.last_session, len(saved) - 1)
        self._use_sessions(saved[: self.session + 1])
        self.loaded = replace(self.loaded, origin=self.origins[0], folder=directory)
        self.model.adopt(self.origins[0])
        print(f"Loaded sessions 0 to {self.session} from {directory}")

    def _adopt_training_settings(self, first: SavedSession) -> None:
        """Adopt the training settings of the evaluated run, because the results describe that run."""
        cfg, overridden = origin.follow_training(self.cfg, first.origin["settings"], self.Model.section)
        self.loaded = Loaded(overridden=overridden)
        then = protocol.settings_of(cfg)
        for key, now in overridden.items():
            print(f"{key} is {then[key]!r} as in training; the configuration's {now!r} is not used")
        if cfg != self.cfg or first.origin["seed"] != self.seed:
            self.cfg = self.images.cfg = cfg
            self.set_seed(first.origin["seed"])
            last, self.session = self.session, 0
            self._split_sessions()
            self.build_session()
            self.session = last
        splits = first.origin["protocol"].get("splits")
        if isinstance(splits, dict):  # the images may have changed since
            self.protocol["splits"]["train"] = splits.get("train")

    # ------------------------------------------------------------------ evaluation

    @torch.no_grad()
    def test(self, split: str | None = None) -> float:
        """Evaluate after each session that is not evaluated yet, on all classes seen so far, in a single pass."""
        if split is None:
            recording.record_data(self, trains=False)
        name = split or self.cfg.TEST.SPLIT
        due = range(len(self.rows), self.session + 1)
        print(f"Evaluate on the *{name}* set after session{'s' if len(due) > 1 else ''} {_format_range(due)}")
        self.set_model_mode("eval")
        start = time.monotonic()
        hits, evaluations = self._evaluate(due, name, split)
        results: dict[str, float] = {}
        images_of = [self._readable(session) for session in self.sessions]
        for number in due:
            print(f"After session {number}, {self.sessions[number].seen} classes:")
            results = evaluations[number].accuracies()
            confidence = evaluations[number].confidence()
            results.update(confidence)
            images = tuple(images_of[: number + 1])
            self.rows.append(metrics.Row(self.sessions[number].seen, tuple(hits[number]), images, confidence))
            for key, value in {"accuracy": self.rows[-1].accuracy, **confidence}.items():
                super().write_scalar(f"{name}/{key}", value, number)
        dataset = plain_name(self.cfg.DATASET.NAME)
        print(f"\n{self.model.title} on {dataset}, accuracy (%)\n\n{metrics.text_table(self.rows)}")
        if self.session == self.last_session and not self._keeps_longer_results():
            self.num_classes = self.sessions[self.session].seen
            recording.write_results(self, name, {**results, **self._last_metrics()}, time.monotonic() - start)
        return self.rows[-1].accuracy

    def _evaluate(self, due: range, name: str, split: str | None) -> tuple[dict[int, list[int]], dict[int, Evaluation]]:
        """Return the correct predictions on each session's classes, and the evaluation, after each due session."""
        classifiers = {number: self.model.after(number) for number in due}
        for classifier in classifiers.values():
            self.evaluation_facts = {**self.evaluation_facts, **classifier.facts}
        evaluations = {number: Evaluation(self.cfg, self.lab2cname, f"after session {number}") for number in due}
        hits = {number: [0] * (number + 1) for number in due}
        last = self.session == self.last_session and self.session in due
        with predictions_for(self.cfg, self.seen_classes(self.session), last and split is None) as predictions:
            for block, loader in enumerate(self._tests[: self.session + 1]):
                for inputs, labels, indices in self.images.batches(loader, name):
                    shared = None if self.model.reads == IMAGES else self.images.encode(inputs)
                    for number in due[max(0, block - due.start) :]:
                        features = classifiers[number].encode(inputs) if shared is None else shared
                        logits = classifiers[number].logits(features)
                        try:
                            hits[number][block] += evaluations[number].add(logits, labels)
                        except NotFiniteError as error:
                            raise self.images.fault(inputs, self.classnames) or error from None
                        if predictions is not None and number == self.session:
                            predictions.add(logits, labels, paths_at(loader, indices))
                if predictions is not None:
                    predictions.add_unreadable(loader, self.images.unreadable)
        return hits, evaluations

    def _readable(self, session: Session) -> int:
        return sum(item.impath not in self.images.unreadable for item in session.test)

    def _last_metrics(self) -> dict[str, float]:
        last, summary = self.rows[-1], metrics.summary(self.rows)
        values = {
            "accuracy": last.accuracy,
            "mean_accuracy": summary["mean"],
            "pd": summary["pd"],
            "base_accuracy": last.blocks[0],
            "new_accuracy": last.novel,
            "harmonic_mean": last.harmonic_mean,
            "mean_forgetting": summary["sessions"][-1]["mean_forgetting"],
        }
        return {key: value for key, value in values.items() if value is not None}

    @property
    def finished(self) -> bool:
        """Whether all sessions of the dataset are evaluated, not only those up to FSCIL.LAST_SESSION."""
        return len(self.rows) == len(self.sessions)

    def _keeps_longer_results(self) -> bool:
        """Return whether the folder has results of the same run over more sessions, which are not overwritten."""
        try:
            existing = Results.read(Path(self.output_dir, RESULTS))
        except ResultsError:
            return False
        count = len(existing.sessions or ())
        # Whether similarities were centred in any session may depend on the number of sessions.
        then = {key: value for key, value in existing.protocol.items() if key != "centred"}
        own = (self.model.title, self.seed, protocol.fingerprint(self.protocol), self._settings_in(self.cfg))
        same = "splits" in then and own == (
            *(existing.method, existing.seed, protocol.fingerprint(then)),
            self._settings_in(existing.config),
        )
        if same and count > len(self.rows):
            print(f"The results in {self.output_dir} cover {count} sessions of this run; they are not overwritten")
        return same and count > len(self.rows)

    def _settings_in(self, cfg: Mapping[str, Any]) -> dict[str, Any]:
        return protocol.training_settings(cfg, self.Model.section)

    def evaluated(self, split: str) -> Evaluated:
        """Return what an evaluation covers: the sessions up to the current one."""
        so_far = self.sessions[: self.session + 1]
        items = [item for session in so_far for item in session.test]
        own = {**self.model.results(), "method": self.model.title}
        ended = [each.get("second_stage") for each in self.origins]
        own |= {"second_stages": ended} if any(ended) else {}
        if self.rows:
            own |= {"finished": self.finished, **metrics.summary(self.rows)}
        images = sum(len(session.train) for session in so_far)
        return Evaluated(self.seen_classes(self.session), items, images, own)


def _format_range(numbers: range) -> str:
    return str(numbers.start) if len(numbers) == 1 else f"{numbers.start} to {numbers.stop - 1}"
