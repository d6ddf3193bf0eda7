"""Methods that learn session by session, each session on its own images only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from cocoamix.io.checkpoints import load_into
from cocoamix.model import Classifier, Matrices, PromptModel, Task

from .files import Models


@dataclass(frozen=True)
class SessionTask(Task):
    """What a session is trained for. `classnames` are the classes of its loss.

    Attributes:
        session: Its number.
        sessions: The own classes of each session.
        learned: The trained parts of each finished session.
        shared: Text features that all sessions of a run share.
    """

    session: int = 0
    sessions: tuple[tuple[str, ...], ...] = ()
    learned: list[Models] = field(default_factory=list)
    shared: dict[Any, Tensor] = field(default_factory=dict)


class SessionModel(PromptModel):
    """One session of a method.

    Attributes:
        main_part: The part that every session saves.
        chooses_classes: Whether FSCIL.TUNED_CLASSES sets the classes of a session's loss.
        continues: Whether a session starts from the part of the previous one.
        title: The method's name in tables and plots.
    """

    main_part: ClassVar[str] = "prompt_learner"
    chooses_classes: ClassVar[bool] = False
    continues: ClassVar[bool] = False
    task: SessionTask

    @property
    def title(self) -> str:
        """The method's name in tables and plots."""
        return type(self).__name__

    def seen(self, session: int) -> list[str]:
        """Return all classes up to and including a session."""
        return [name for names in self.task.sessions[: session + 1] for name in names]

    def start_from_previous_session(self) -> None:
        """Initialise the main part with that of the previous session, if there is one."""
        if self.task.session:
            previous = self.task.learned[self.task.session - 1][self.main_part]
            load_into(self.parts[self.main_part], previous, "the previous session")

    def vectors(self, session: int, names: Sequence[str]) -> Tensor:
        """Return the (C, embedding) class vectors after a session.

        Their products with image features, times CLIP's scale, are the logits.

        Args:
            session: The last session to use.
            names: The classes; if empty, all classes seen up to the session.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no vectors")

    @torch.no_grad()
    def after(self, session: int, names: Sequence[str] = ()) -> Classifier:
        """Return the classifier after a session; see `vectors`."""
        vectors = self.vectors(session, names)
        shown = list(names) or self.seen(session)
        matrices = Matrices(self.clip.logit_scale * vectors)
        return Classifier(shown, lambda features: self.logits(features, vectors), self.encode, matrices)

    def classifier(self, classnames: Sequence[str] | None = None, synsets: Sequence[str] = ()) -> Classifier:
        """Return the classifier after the last finished session."""
        return self.after(len(self.task.learned) - 1 if self.task.learned else self.task.session, classnames or ())
