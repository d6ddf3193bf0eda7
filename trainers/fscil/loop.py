"""The loop of class-incremental learning over sessions, each trained on its own images only.

A method overrides `build_prompts`, which builds the modules of one session (`classnames` are those of the session), and
`classifier`, or `scorer` if its logits are more than products with class vectors. The learned modules of a session are
saved in `sessions/session-<n>.pth`. Images of earlier sessions are never read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from dassl.evaluation import build_evaluator
from dassl.utils import set_random_seed
from torch import Tensor
from torch.utils.data import DataLoader
from yacs.config import CfgNode

from cocoamix.config import keys
from cocoamix.errors import UserError
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
from cocoamix.fscil.split import Session, SessionSplit, choose_split, sessions_of, split_into_sessions
from cocoamix.io import checkpoints
from cocoamix.registry import plain_name
from cocoamix.run import origin, protocol
from cocoamix.run.checkpointer import RESUME, epochs_in, parameters_of
from cocoamix.run.evaluation import Evaluation, NotFiniteError
from cocoamix.run.given import GivenData
from cocoamix.run.loaders import loader_over
from cocoamix.run.predictions import paths_at
from cocoamix.run.results import RESULTS, Results, ResultsError
from cocoamix.trainer import CLIPTrainer

Scorer = Callable[[Tensor], Tensor]  # output of `encode` for B images -> (B, C) logits


class SessionTrainer(CLIPTrainer):
    """A trainer that learns session by session. Its training images and classes are those of the current session."""

    main_model = "prompt_learner"  # the model that every session saves
    chooses_classes = False  # whether FSCIL.TUNED_CLASSES sets the classes of a session's loss
    session = 0  # the current session
    last_session: int  # the last session of this run
    session_models: list[Models]  # learned modules of each finished session
    origins: list[dict[str, Any]]  # origin of each finished session

    def title(self) -> str:
        """Return the method's name in tables and plots."""
        return type(self).__name__

    def classifier(self, session: int, names: Sequence[str] = ()) -> Tensor:
        """Return the (C, embedding) class vectors after `session`.

        Their products with image features, times CLIP's scale, are the logits.

        Args:
            session: The last session to use.
            names: The classes; by default all classes seen up to the session.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no classifier")

    def scorer(self, session: int, names: Sequence[str] = ()) -> Scorer:
        """Return the function from features to logits after `session`. By default it uses `classifier`."""
        classes = self.classifier(session, names)
        return lambda features: self.logits(features, classes)

    def check_cfg(self, cfg: CfgNode) -> None:
        super().check_cfg(cfg)
        keys.check_sessions(cfg)

    # ------------------------------------------------------------------ the classes and images of a session

    def choose_seed(self) -> int:
        """Return the configured seed. Without one, reuse the seed of the run's first session, if it is finished."""
        for folder in (self.output_dir, self.cfg.RESUME):
            path = session_file(folder, 0)
            if self.cfg.SEED < 0 and folder and path.is_file():
                seed = int(read_session(path, 0, self.main_model).origin["seed"])
                print(f"No seed was given; this run uses {seed}, as its first session did")
                set_random_seed(seed)
                return seed
        return super().choose_seed()

    def build_data_loader(self) -> None:
        """Split the dataset into sessions and load the first."""
        super().build_data_loader()
        # Loaders over all items, as templates for those of the sessions. No images are read from them.
        self._all_train, self._all_test = self.train_loader_x, self.test_loader
        self._split_sessions()

    def _split_sessions(self) -> None:
        """Split the dataset according to FSCIL.*, and load the current session."""
        data, fscil = self.dm.dataset, self.cfg.FSCIL
        if isinstance(data, GivenData):
            self._use_given_sessions(data)
            return
        items = data.val if self.cfg.TEST.SPLIT == "val" else data.test
        if not items:
            raise UserError(f"The dataset {self.cfg.DATASET.NAME} has no {self.cfg.TEST.SPLIT} images.")
        how = SessionSplit(fscil.BASE, fscil.WAY, fscil.SHOTS, fscil.SPLIT, self.seed, self.cfg.DATASET.FEWER_SHOTS)
        self.sessions = split_into_sessions(data, items, how)
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
        self._tests = [self._loader_over(session.test, train=False) for session in self.sessions]
        self._set_session_loader()

    def _use_given_sessions(self, data: GivenData) -> None:
        """Use the sessions of a saved run, without its images."""
        self.sessions, self.split = sessions_of(data.classnames, data.sessions, data.train_x), "given"
        self.last_session = len(self.sessions) - 1
        self._tests = [self._loader_over(session.test, train=False) for session in self.sessions]
        self._set_session_loader()

    def _loader_over(self, items: Sequence[Any], train: bool) -> DataLoader[Any]:
        """Return a loader over some of the items."""
        batch = self._base_batch() if train else 0
        return loader_over(self.cfg, self._all_train if train else self._all_test, items, train, self.seed, batch)

    def _set_session_loader(self) -> None:
        """Use the training loader of the current session. The images and features of the previous one are released."""
        self.train_loader_x = self.training_loader()

    def training_loader(self) -> DataLoader[Any]:
        """Return a loader over the training images of the current session."""
        return self._loader_over(self.sessions[self.session].train, train=True)

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
        return str(self.cfg.FSCIL.TUNED_CLASSES) if self.chooses_classes else "session"

    @property
    def first_label(self) -> int:
        """Label of the first of `classnames` among all classes."""
        return self.sessions[self.session].labels.start if self.tuned_classes == "session" else 0

    def parse_batch_train(self, batch: Any) -> tuple[Tensor, Tensor]:
        inputs, labels = super().parse_batch_train(batch)
        return inputs, labels - self.first_label

    def store_part(self, split: str) -> str:
        """Return the part of the store. The training images of each session have their own."""
        return super().store_part(split) + (f"/session{self.session}" if split == "train" else "")

    def encoding_batch_size(self) -> int:
        """Return the batch size without FSCIL.BASE_BATCH_SIZE, so that stored features do not depend on that key."""
        return super().encoding_batch_size() or (self.default_batch_size() if self._base_batch() else 0)

    def default_batch_size(self) -> int:
        """Return the batch size of the current session without the keys of a method or of session 0."""
        return min(int(self.cfg.DATALOADER.TRAIN_X.BATCH_SIZE), len(self.sessions[self.session].train))

    def _base_batch(self) -> int:
        """Return the batch size that is set for session 0; 0 if none is set, or in a later session."""
        return 0 if self.session else int(self.cfg.FSCIL.BASE_BATCH_SIZE)

    def describe_protocol(self) -> dict[str, Any]:
        fscil, facts = self.cfg.FSCIL, super().describe_protocol()
        training_items = [item for session in self.sessions for item in session.train]
        facts["splits"]["train"] = protocol.items_hash(training_items)
        facts["views"] = protocol.views(self.cfg, self.epoch_limit())
        facts["fscil"] = {"base": fscil.BASE, "way": fscil.WAY, "shots": fscil.SHOTS, "split": self.split}
        if fscil.BASE_BATCH_SIZE:  # only then, so that fingerprints of runs without it do not change
            facts["fscil"]["base_batch_size"] = fscil.BASE_BATCH_SIZE
        return facts

    # ------------------------------------------------------------------ training

    def build_model(self) -> None:
        self.session_models, self.origins = [], []
        self.rows: list[metrics.Row] = []  # one evaluation per session
        super().build_model()

    def build_session(self) -> None:
        """Build the modules of the current session."""
        self.unregister()
        self.start_epoch = self.epoch = self.trained_epochs = 0
        self.max_epoch = self.cfg.OPTIM.MAX_EPOCH
        self.trained_classes = self.classnames
        self.is_training = False  # each session builds its own optimizers and scaler, which a resume restores
        self.build_prompts()

    def start_from_previous_session(self) -> None:
        """Initialise the main model with that of the previous session, if there is one."""
        if self.session:
            previous = self.session_models[-1][self.main_model]
            checkpoints.load_into(self._models[self.main_model], previous, "the previous session")

    def describe_dataset(self) -> str:
        classes = sum(len(session.classnames) for session in self.sessions)
        return f"{plain_name(self.cfg.DATASET.NAME)}, {classes:,} classes in {len(self.sessions)} sessions"

    def session_number(self) -> int:
        return self.session

    def begin(self, number: int) -> None:
        """Make session `number` the current one. The first is built with the trainer."""
        session = self.sessions[number]
        print(
            f"** Session {number} of {len(self.sessions) - 1}: {len(session.classnames)} classes, "
            f"{len(session.train):,} images **"
        )
        if number != self.session:
            self.session = number
            self._set_session_loader()
            self.build_session()

    def train(self) -> None:
        """Train the sessions that are not finished."""
        self._began = time.time()
        self.record_data(trains=True)
        self.session_models = self._read_finished()
        if not self._models or len(self.session_models) > self.last_session:
            self.session = self.last_session
            if self._models:
                print(f"All sessions up to {self.last_session} are finished")
                self.begin_metrics(0, 0, len(self.sessions))  # keeps the rows of all sessions
            self._finish()
            return
        for number in range(len(self.session_models), self.last_session + 1):
            self.begin(number)
            super().train()

    def after_train(self) -> None:
        states = {name: parameters_of(model) for name, model in self._models.items()}
        self.session_models.append(
            {name: {key: value.clone() for key, value in state.items()} for name, state in states.items()}
        )
        self.origins.append(self.describe_origin())
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
        """Save the modules of a finished session. There is one file per session and no best checkpoint."""
        if epoch + 1 < self.max_epoch:
            return  # before that, the resume file is enough
        models = {name: parameters_of(model) for name, model in self._models.items()}
        save_session(directory, self.session, epoch + 1, models, self.describe_origin(), self.unreadable)

    def resume_state(self, epochs: int) -> dict[str, Any]:
        return {**super().resume_state(epochs), "session": self.session}

    def resume_model_if_exist(self, directory: str) -> int:
        """Resume within the current session if it has a resume file; return the number of epochs done."""
        for folder in dict.fromkeys((Path(self.output_dir), Path(directory))):
            path = folder / RESUME
            if epochs_in(path) and checkpoints.load(path).get("session") == self.session:
                self.trained_epochs, self.resumed_from = self.resume_file(path), folder
                print(
                    f"Resuming from {folder}: in session {self.session}, "
                    f"{self.trained_epochs} of {self.max_epoch} epochs are done"
                )
                if self.trained_epochs >= self.max_epoch:  # no epoch is left that would save the session
                    self.save_model(self.trained_epochs - 1, self.output_dir)
                return self.trained_epochs
        return 0

    def _read_finished(self) -> list[Models]:
        """Return the modules of the finished sessions of this run, or of the run that --resume names."""
        if not self._models:
            return []
        folders = [self.output_dir, *([self.cfg.RESUME] if self.cfg.RESUME else [])]
        for folder in folders:
            found = self._read_sessions(folder)
            if found or epochs_in(Path(folder, RESUME)):
                self.resumed_from = folder
                if found:
                    print(f"Resuming from {folder}: {len(found)} of {len(self.sessions)} sessions are finished")
                for one in found:
                    self.check_settings(one.path, one.origin["settings"], one.origin["protocol"])
                    if folder != self.output_dir:
                        copy_session(one, self.output_dir)
                if found:
                    self.check_origin(found[-1].origin, found[-1].path)
                return self._use_sessions(found[: self.last_session + 1])
        if self.cfg.RESUME:
            raise UserError(f"--resume names {self.cfg.RESUME}, which holds neither {RESUME} nor finished sessions.")
        return []

    def _read_sessions(self, folder: str) -> list[SavedSession]:
        now = self.describe_origin()
        expected = [{**now, "classnames": self.classnames_of(number)} for number in range(len(self.sessions))]
        if self.tuned_classes == "all" and isinstance(self.dm.dataset, GivenData):
            # A run that ended early is saved without the class names of the sessions it did not reach.
            for one in expected:
                del one["classnames"]
        return read_sessions(folder, expected, self.main_model)

    def _use_sessions(self, found: list[SavedSession]) -> list[Models]:
        """Use saved sessions for a resume or an evaluation; return their modules."""
        for one in found:
            self.unreadable.update(one.unreadable)
            self.trained_epochs = one.epoch
        self.origins = [one.origin for one in found]
        return [one.models for one in found]

    def loaded_origin(self) -> Mapping[str, Any]:
        return self.origins[0] if self.origins else {}

    def load_model(self, directory: str, epoch: int | None = None) -> None:
        """Load the finished sessions of a run, up to FSCIL.LAST_SESSION if it is set."""
        if epoch is not None:
            raise UserError(
                "Sessions are evaluated after their last epoch: use FSCIL.LAST_SESSION N, not --load-epoch."
            )
        self.session = self.last_session
        if not self._models:
            return
        if not directory:
            raise UserError("--eval-only needs --model-dir, the output folder of a run with sessions.")
        if count_sessions(directory):
            self._adopt_training_settings(read_session(session_file(directory, 0), 0, self.main_model))
        found = self._read_sessions(directory)
        if not found or len(found) <= self.cfg.FSCIL.LAST_SESSION:
            raise UserError(
                f"{Path(directory, FOLDER)} holds {len(found)} finished sessions"
                + (f", but FSCIL.LAST_SESSION is {self.cfg.FSCIL.LAST_SESSION}." if found else ": nothing to evaluate.")
            )
        self.session = self.last_session = min(self.last_session, len(found) - 1)
        self.session_models = self._use_sessions(found[: self.session + 1])
        print(f"Loaded sessions 0 to {self.session} from {directory}")

    def _adopt_training_settings(self, first: SavedSession) -> None:
        """Adopt the training settings of the evaluated run, because the results describe that run."""
        cfg, self.overridden = origin.follow_training(self.cfg, first.origin["settings"], self.section)
        then = protocol.settings_of(cfg)
        for key, now in self.overridden.items():
            print(f"{key} is {then[key]!r} as in training; the configuration's {now!r} is not used")
        if cfg != self.cfg or first.origin["seed"] != self.seed:
            self.cfg = cfg
            self.set_seed(first.origin["seed"])
            last, self.session = self.session, 0
            self._split_sessions()
            self.hand_crafted = self.make_hand_crafted()
            self.build_session()
            self.protocol = self.describe_protocol()
            self.session = last
        splits = first.origin["protocol"].get("splits")
        if isinstance(splits, dict):  # the images may have changed since
            self.protocol["splits"]["train"] = splits.get("train")

    # ------------------------------------------------------------------ evaluation

    @torch.no_grad()
    def test(self, split: str | None = None) -> float:
        """Evaluate after each session that is not evaluated yet, on all classes seen so far, in a single pass."""
        if split is None:
            self.record_data(trains=False)
        name = split or self.cfg.TEST.SPLIT
        due = range(len(self.rows), self.session + 1)
        print(f"Evaluate on the *{name}* set after session{'s' if len(due) > 1 else ''} {_format_range(due)}")
        self.set_model_mode("eval")
        start = time.monotonic()
        scorers = {number: self.scorer(number) for number in due}
        evaluations = {
            number: Evaluation(build_evaluator(self.cfg, lab2cname=self.lab2cname), f"after session {number}")
            for number in due
        }
        hits = {number: [0] * (number + 1) for number in due}
        last = self.session == self.last_session and self.session in due
        with self.predictions_file(split) if last else nullcontext() as predictions:
            for block, loader in enumerate(self._tests[: self.session + 1]):
                for inputs, labels, indices in self.images.batches(loader, name, self.device):
                    features = self.encode(inputs)
                    for number in due[max(0, block - due.start) :]:
                        logits = scorers[number](features)
                        try:
                            hits[number][block] += evaluations[number].add(logits, labels)
                        except NotFiniteError as error:
                            raise self.cause_in_clip(inputs) or error from None
                        if predictions is not None and number == self.session:
                            predictions.add(logits, labels, paths_at(loader, indices))
                if predictions is not None:
                    predictions.add_unreadable(loader, self.unreadable)
        images_of = [self._readable(session) for session in self.sessions]
        found: dict[str, float] = {}
        for number in due:
            seen = self.sessions[number].seen
            print(f"After session {number}, {seen} classes:")
            found = evaluations[number].accuracies()
            confidence = evaluations[number].confidence()
            found.update(confidence)
            images_so_far = tuple(images_of[: number + 1])
            self.rows.append(metrics.Row(seen, tuple(hits[number]), images_so_far, confidence))
            for key, value in {"accuracy": self.rows[-1].accuracy, **confidence}.items():
                super().write_scalar(f"{name}/{key}", value, number)
        dataset = plain_name(self.cfg.DATASET.NAME)
        print(f"\n{self.title()} on {dataset}, accuracy (%)\n\n{metrics.text_table(self.rows)}")
        if self.session == self.last_session and not self._keeps_longer_results():
            self.num_classes = self.sessions[self.session].seen
            self._write_results(name, {**found, **self._last_metrics()}, time.monotonic() - start)
        return self.rows[-1].accuracy

    def begin_inference(self) -> list[str]:
        self.set_model_mode("eval")
        data = self.dm.dataset
        names = list(data.label_space) if isinstance(data, GivenData) else []
        self._inferring = self.scorer(self.session, names)
        return names or self.seen_classes(self.session)

    def infer(self, features: Tensor) -> Tensor:
        return self._inferring(features)

    def seen_classes(self, session: int) -> list[str]:
        """Return all classes up to and including a session."""
        return [name for one in self.sessions[: session + 1] for name in one.classnames]

    def _readable(self, session: Session) -> int:
        return sum(item.impath not in self.unreadable for item in session.test)

    def _last_metrics(self) -> dict[str, float]:
        last, summary = self.rows[-1], metrics.summary(self.rows)
        found = {
            "accuracy": last.accuracy,
            "mean_accuracy": summary["mean"],
            "pd": summary["pd"],
            "base_accuracy": last.blocks[0],
            "new_accuracy": last.novel,
            "harmonic_mean": last.harmonic_mean,
            "mean_forgetting": summary["sessions"][-1]["mean_forgetting"],
        }
        return {key: value for key, value in found.items() if value is not None}

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
        own = (self.title(), self.seed, protocol.fingerprint(self.protocol), self._settings_in(self.cfg))
        same = "splits" in then and own == (
            *(existing.method, existing.seed, protocol.fingerprint(then)),
            self._settings_in(existing.config),
        )
        if same and count > len(self.rows):
            print(f"The results in {self.output_dir} cover {count} sessions of this run; they are not overwritten")
        return same and count > len(self.rows)

    def _settings_in(self, cfg: Mapping[str, Any]) -> dict[str, Any]:
        return protocol.training_settings(cfg, self.section)

    def evaluated_classes(self) -> list[str]:
        return self.seen_classes(self.session)

    def evaluated_items(self, split: str) -> Sequence[Any]:
        return [item for session in self.sessions[: self.session + 1] for item in session.test]

    def count_training_images(self) -> int:
        return sum(len(session.train) for session in self.sessions[: self.session + 1])

    def more_results(self) -> dict[str, Any]:
        found = {**super().more_results(), "method": self.title()}
        return {**found, "finished": self.finished, **metrics.summary(self.rows)} if self.rows else found


def _format_range(numbers: range) -> str:
    return str(numbers.start) if len(numbers) == 1 else f"{numbers.start} to {numbers.stop - 1}"
