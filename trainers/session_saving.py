"""What sessions leave behind: one small file each, written when it is finished and never changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from dassl.utils import set_random_seed
from torch import Tensor

from cocoamix import checkpoints
from cocoamix.errors import UserError
from cocoamix.files import write_atomically
from cocoamix.registry import PREFIX

from .saving import RESUME, epochs_in, trained
from .session_data import SessionData

FOLDER = "sessions"  # below a run's folder
Models = dict[str, dict[str, Tensor]]  # parameters by the names of models


class SessionSaving(SessionData):
    """Saves, loads and resumes session by session; within one, after every epoch as all trainers do."""

    last_session: int  # of this run
    kept: list[Models]  # what each finished session learned

    def _choose_seed(self) -> int:
        """A run without a seed goes on with that of its first session."""
        for folder in (self.output_dir, self.cfg.RESUME):
            path = session_file(folder, 0)
            if self.cfg.SEED < 0 and folder and path.is_file():
                seed = int(checkpoints.load(path)["cocoamix"]["seed"])
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
                return self.trained_epochs
        return 0

    def _finished(self) -> list[Models]:
        """Return what the finished sessions of the run learned, or of the run that --resume names."""
        if not self._models:
            return []
        folders = [self.output_dir, *([self.cfg.RESUME] if self.cfg.RESUME else [])]
        for folder in folders:
            found = self._read_sessions(folder, going_on=True)
            if found or epochs_in(Path(folder, RESUME)):
                if found:
                    print(f"Going on from {folder}: {len(found)} of {len(self.sessions)} sessions are finished")
                if folder != self.output_dir:
                    for number in range(len(found)):
                        content = session_file(folder, number).read_bytes()
                        write_atomically(session_file(self.output_dir, number), _writer(content))
                return found
        if self.cfg.RESUME:
            raise UserError(f"--resume names {self.cfg.RESUME}, which holds neither {RESUME} nor finished sessions.")
        return []

    def _read_sessions(self, folder: str, going_on: bool = False) -> list[Models]:
        """Return what the sessions in a run's folder learned, once it is sure that they are of this run's kind."""
        there = sorted(int(path.stem.removeprefix("session-")) for path in Path(folder, FOLDER).glob("session-*.pth"))
        if there != list(range(len(there))):
            missing = next(number for number in range(len(there)) if number not in there)
            raise UserError(
                f"{session_file(folder, missing)} is missing, but later sessions are there. Restore it, "
                f"or delete {Path(folder, FOLDER)} to start anew."
            )
        if len(there) > len(self.sessions):
            raise UserError(f"{folder} holds {len(there)} sessions, but this run has {len(self.sessions)}.")
        return [self._read_session(session_file(folder, number), number, going_on) for number in there]

    def _read_session(self, path: Path, number: int, going_on: bool) -> Models:
        content = checkpoints.load(path)
        try:
            models, origin = cast(Models, content["models"]), content["cocoamix"]
            told = {key: origin[key] for key in ("trainer", "weights_sha256", "activation", "classnames")}
            self.trained_epochs = int(content["epoch"])
        except (KeyError, TypeError) as error:
            raise UserError(f"{path} is not what a session keeps: it has no {error}.") from error
        told["trainer"] = str(told["trainer"]).removeprefix(PREFIX)
        now = {**self.provenance(), "classnames": self.classnames_of(number)}
        now["trainer"] = now["trainer"].removeprefix(PREFIX)
        for key, value in told.items():
            if value != now[key]:
                raise UserError(
                    f"{path} belongs to another run: its {key} is {_short(value)}, "
                    f"and this run's is {_short(now[key])}."
                )
        if going_on:
            self._check_settings(path, origin["settings"], origin["protocol"])
        elif number == 0:
            self.follow(origin["settings"])
        self.unreadable.update(content.get("unreadable", {}))
        return models

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
        found = self._read_sessions(directory)
        if not found or len(found) <= self.cfg.FSCIL.LAST_SESSION:
            raise UserError(
                f"{Path(directory, FOLDER)} holds {len(found)} finished sessions"
                + (f", but FSCIL.LAST_SESSION is {self.cfg.FSCIL.LAST_SESSION}." if found else ": nothing to evaluate.")
            )
        self.session = self.last_session = min(self.last_session, len(found) - 1)
        self.kept = found[: self.session + 1]
        print(f"Loaded sessions 0 to {self.session} from {directory}")


def session_file(folder: str, number: int) -> Path:
    """Return the file of what a session learned, below a run's folder."""
    return Path(folder, FOLDER, f"session-{number}.pth")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _writer(content: bytes) -> Any:
    return lambda file: file.write(content)
