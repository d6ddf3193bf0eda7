"""What sessions leave behind: one small file each, written when it is finished and never changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dassl.utils import set_random_seed

from cocoamix import checkpoints
from cocoamix.errors import UserError
from cocoamix.files import write_atomically
from cocoamix.registry import PREFIX
from cocoamix.settings import flatten

from . import protocol
from .saving import RESUME, copier, epochs_in, trained
from .session_data import SessionData
from .session_files import FOLDER, Kept, Models, count_sessions, read_session, session_file


class SessionSaving(SessionData):
    """Saves, loads and resumes session by session; within one, after every epoch as all trainers do."""

    last_session: int  # of this run
    kept: list[Models]  # what each finished session learned
    origins: list[dict[str, Any]]  # and tells about itself: see `provenance`

    def _choose_seed(self) -> int:
        """A run without a seed goes on with that of its first session."""
        for folder in (self.output_dir, self.cfg.RESUME):
            path = session_file(folder, 0)
            if self.cfg.SEED < 0 and folder and path.is_file():
                seed = int(read_session(path, 0).origin["seed"])
                print(f"No seed is given; this run draws from {seed}, as its first session did")
                set_random_seed(seed)
                return seed
        return super()._choose_seed()

    def save_model(
        self,
        epoch: int,
        directory: str,
        is_best: bool = False,
        val_result: float | None = None,
        model_name: str = "",
    ) -> None:
        """Keep what the session learned, once it is finished."""
        if epoch + 1 < self.max_epoch:
            return  # the resume file is enough
        path = session_file(directory, self.session)
        content = {
            "session": self.session,
            "epoch": epoch + 1,
            "models": {name: trained(model) for name, model in self._models.items()},
            "unreadable": self.unreadable,
            "cocoamix": self.provenance(),
        }
        checkpoints.save(path, content)
        print(f"Session {self.session} is kept in {path}")

    def resume_state(self, epochs: int) -> dict[str, Any]:
        return {**super().resume_state(epochs), "session": self.session}

    def resume_model_if_exist(self, directory: str) -> int:
        """Go on within the present session where a resume file of it is; return the number of epochs already done."""
        for folder in dict.fromkeys((Path(self.output_dir), Path(directory))):
            path = folder / RESUME
            if epochs_in(path) and checkpoints.load(path).get("session") == self.session:
                self.trained_epochs = self._resume(path)
                print(
                    f"Resuming from {folder}: in session {self.session}, "
                    f"{self.trained_epochs} of {self.max_epoch} epochs are done"
                )
                if self.trained_epochs >= self.max_epoch:  # no epoch is left that would keep it
                    self.save_model(self.trained_epochs - 1, self.output_dir)
                return self.trained_epochs
        return 0

    def _finished(self) -> list[Models]:
        """Return what the finished sessions up to the last one learned, of the run or of that which --resume names."""
        if not self._models:
            return []
        folders = [self.output_dir, *([self.cfg.RESUME] if self.cfg.RESUME else [])]
        for folder in folders:
            found = self._read_sessions(folder)
            if found or epochs_in(Path(folder, RESUME)):
                if found:
                    print(f"Going on from {folder}: {len(found)} of {len(self.sessions)} sessions are finished")
                for one in found:
                    self._check_settings(one.path, one.origin["settings"], one.origin["protocol"])
                    if folder != self.output_dir:
                        write_atomically(Path(self.output_dir, FOLDER, one.path.name), copier(one.path))
                return self._take(found[: self.last_session + 1])
        if self.cfg.RESUME:
            raise UserError(f"--resume names {self.cfg.RESUME}, which holds neither {RESUME} nor finished sessions.")
        return []

    def _read_sessions(self, folder: str) -> list[Kept]:
        """Return what the sessions in a run's folder keep, once it is sure that they are of one run of this kind."""
        count = count_sessions(folder)
        if count > len(self.sessions):
            raise UserError(f"{folder} holds {count} sessions, but this run has {len(self.sessions)}.")
        found = [read_session(session_file(folder, number), number) for number in range(count)]
        for number, one in enumerate(found):
            self._check_kind(one, number)
            _check_same_run(one, found[0])
        return found

    def _check_kind(self, found: Kept, number: int) -> None:
        now = {**self.provenance(), "classnames": self.classnames_of(number)}
        for key in ("trainer", "weights_sha256", "activation", "classnames"):
            theirs, ours = found.origin[key], now[key]
            if key == "trainer":
                theirs, ours = theirs.removeprefix(PREFIX), ours.removeprefix(PREFIX)
            if theirs != ours:
                raise UserError(
                    f"{found.path} belongs to another run: its {key} is {_short(theirs)}, "
                    f"and this run's is {_short(ours)}."
                )

    def _take(self, found: list[Kept]) -> list[Models]:
        """Go on with, or evaluate, what sessions keep."""
        for one in found:
            self.unreadable.update(one.unreadable)
            self.trained_epochs = one.epoch
        self.origins = [one.origin for one in found]
        return [one.models for one in found]

    def load_model(self, directory: str, epoch: int | None = None) -> None:
        """Load the sessions of a run up to FSCIL.LAST_SESSION, or all that are finished."""
        if epoch is not None:
            raise UserError(
                "Sessions are evaluated after their last epoch: use FSCIL.LAST_SESSION N, not --load-epoch."
            )
        self.session = self.last_session
        if not self._models:
            return
        if not directory:
            raise UserError("--eval-only needs --model-dir, the output folder of a run in sessions.")
        if count_sessions(directory):
            self._follow_training(read_session(session_file(directory, 0), 0))
        found = self._read_sessions(directory)
        if not found or len(found) <= self.cfg.FSCIL.LAST_SESSION:
            raise UserError(
                f"{Path(directory, FOLDER)} holds {len(found)} finished sessions"
                + (f", but FSCIL.LAST_SESSION is {self.cfg.FSCIL.LAST_SESSION}." if found else ": nothing to evaluate.")
            )
        self.session = self.last_session = min(self.last_session, len(found) - 1)
        self.kept = self._take(found[: self.session + 1])
        print(f"Loaded sessions 0 to {self.session} from {directory}")

    def _follow_training(self, first: Kept) -> None:
        """Take what concerns training from the run that is evaluated: results must tell of that one.

        Which classes there are, the mixture (ENSEMBLE), the test images and how they are encoded stay as configured.
        """
        told, cfg = first.origin["settings"], self.cfg.clone()
        cfg.defrost()
        for key, now in protocol.training_settings(self.cfg, self.section).items():
            if not protocol.of_training_alone(key) or told.get(key, now) == now:
                continue
            print(f"{key} is {told[key]!r} as in training; the configuration's {now!r} is not used")
            *path, leaf = key.split(".")
            node = cfg
            for name in path:
                node = node[name]
            node[leaf] = told[key]
        cfg.freeze()
        if cfg != self.cfg or first.origin["seed"] != self.seed:
            self.cfg = cfg
            self._take_seed(first.origin["seed"])
            last, self.session = self.session, 0
            self.cut_sessions()
            self.build_session()
            self.protocol = self.describe_protocol()
            self.session = last
        splits = first.origin["protocol"].get("splits")
        if isinstance(splits, dict):  # the images that are here now may be others
            self.protocol["splits"]["train"] = splits.get("train")


def _check_same_run(one: Kept, first: Kept) -> None:
    """Refuse sessions that were put together from several runs: what each learned depends on those before it."""
    for key in ("seed", "settings", "protocol"):
        theirs, ours = one.origin[key], first.origin[key]
        if isinstance(ours, dict):
            theirs, ours = (protocol.that_matter(flatten(side)) for side in (theirs, ours))
            # A run that an older version began has both kinds of files.
            theirs, ours = protocol.brought_up(theirs, ours), protocol.brought_up(ours, theirs)
            for side in (theirs, ours):
                side.pop("centred", None)  # which older files tell, though it is a fact of an evaluation
            differing = [name for name in sorted({*theirs, *ours}) if theirs.get(name) != ours.get(name)]
            if differing:
                key, theirs, ours = differing[0], theirs.get(differing[0]), ours.get(differing[0])
        if theirs != ours:
            raise UserError(
                f"{one.path} is of another run than {first.path.name}: its {key} is {_short(theirs)}, "
                f"and that one's is {_short(ours)}. Restore it."
            )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
