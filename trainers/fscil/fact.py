"""FACT (Zhou et al., CVPR 2022) on CLIP, in our interpretation: space reserved for later classes, and prototypes.

How published comparisons adapted FACT to CLIP is not public. Here its network is a residual network on frozen image
features (`cocoamix.fscil.prototypes`); everything after it is as in FACT.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import torch
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor
from yacs.config import CfgNode

from cocoamix.clip import FrozenCLIP
from cocoamix.clip.class_names import plain_class
from cocoamix.errors import UserError
from cocoamix.fscil import prototypes
from cocoamix.fscil.model import SessionModel, SessionTask
from cocoamix.fscil.prototypes import ForwardCompatible, Prototypes, ResidualNetwork
from cocoamix.io import checkpoints
from cocoamix.model import Classifier, Losses, Phase
from cocoamix.registry import register
from cocoamix.seeding import derive_seed

from .loop import SessionTrainer


class FACTModel(SessionModel):
    """Session 0 trains a network and prototypes. Later sessions train nothing and add class means as prototypes."""

    section = "FACT"
    main_part = "prototypes"
    title = "FACT w/ CLIP, our interpretation"

    def __init__(self, clip: FrozenCLIP, task: SessionTask, settings: CfgNode, seed: int) -> None:
        super().__init__(clip, task, settings, seed)
        own, width = len(task.classnames), clip.sizes.embedding
        self.learned: ForwardCompatible | Prototypes = Prototypes(own, width)
        if not task.session:
            virtual = settings.VIRTUAL or sum(map(len, task.sessions[1:]))
            hidden, seed = self._hidden(), derive_seed(seed, "fact")
            self.learned = ForwardCompatible(width, hidden, own, virtual, settings.OPEN_TO, seed)
        self.parts[self.main_part] = self.learned.to(clip.device)

    def _hidden(self) -> int:
        return max(1, int(self.clip.sizes.embedding) // int(self.settings.REDUCTION))

    def trained_parameters(self) -> int:
        """Return the trained parameters of session 0, the only session that trains."""
        if not self.task.session:
            return super().trained_parameters()
        return sum(tensor.numel() for tensor in self._saved_state(0).values())

    # ------------------------------------------------------------------ training

    def phases(self, optim: CfgNode, steps: int) -> list[Phase]:
        # One epoch without training, so that a later session is saved and resumed like any other.
        return [Phase("train", 1, {})] if self.task.session else super().phases(optim, steps)

    def loss(self, inputs: Tensor, labels: Tensor, training: Collection[str] = ()) -> Losses:
        assert isinstance(self.learned, ForwardCompatible)
        settings = self.settings
        mixed = prototypes.mix_pairs(inputs, labels, settings.ALPHA)
        losses, logits = self.learned.losses(inputs, labels, settings.TEMPERATURE, mixed)
        terms = {"base": losses[0], "room": torch.stack(losses[1:]).sum() if losses[1:] else losses[0].new_zeros(())}
        return Losses(terms["base"] + settings.BALANCE * terms["room"], logits, terms)

    @torch.no_grad()
    def end(self, phase: Phase, images: Callable[[], tuple[Tensor, Tensor, Tensor]]) -> None:
        """Use the mean embeddings of the session's images, without augmentation, as prototypes."""
        network = self.learned.network if isinstance(self.learned, ForwardCompatible) else self._network()
        features, labels, _ = images()
        missing = set(range(len(self.classnames))) - set(labels.tolist())
        if missing:
            raise UserError(
                f"No image of the class {self.classnames[min(missing)]!r} in session {self.task.session} can be read, "
                "so the class has no prototype. Restore its images."
            )
        means = prototypes.class_means(network(features), labels, len(self.classnames))
        self.learned.prototypes.copy_(means)

    # ------------------------------------------------------------------ evaluation

    def _network(self) -> ResidualNetwork:
        """Return the network of session 0."""
        network = ResidualNetwork(self.clip.sizes.embedding, self._hidden(), 0).to(self.clip.each()[0].device)
        saved = self._saved_state(0)
        state = {key.removeprefix("network."): value for key, value in saved.items() if key[:8] == "network."}
        checkpoints.load_into(network, state, "session 0")
        return network

    def _saved_state(self, session: int) -> dict[str, Tensor]:
        return self.task.learned[session][self.main_part]

    def _saved_rows(self, session: int, name: str, count: int | None = None) -> Tensor:
        """Return the prototypes that a session saved as `name`, after checking their width and number."""
        rows, width = self._saved_state(session).get(name), self.clip.sizes.embedding
        if rows is None or rows.dim() != 2 or rows.shape[1] != width or len(rows) != (count or len(rows)):
            raise UserError(
                f"Session {session} has no {name} of {self.clip.name}'s width, or not one for each class: its file was "
                "altered. Restore it."
            )
        return rows.to(self.clip.each()[0].device)

    def after(self, session: int, names: Sequence[str] = ()) -> Classifier:
        """Return the classifier after a session. From session 1 on, its logits are mixed log-probabilities."""
        network, settings, seen = self._network(), self.settings, self.seen(session)
        counts = [len(own) for own in self.task.sessions[: session + 1]]
        rows = torch.cat([self._saved_rows(n, "prototypes", count) for n, count in enumerate(counts)])
        virtual = self._saved_rows(0, "virtual")
        if names:
            rows = rows[self._rows_of(names, seen)]

        def logits(features: Tensor) -> Tensor:
            if not session:
                return settings.TEMPERATURE * prototypes.cosine(network(features), rows)
            return prototypes.mixed_log_probabilities(
                network(features), rows, virtual, settings.TEMPERATURE, settings.ETA
            )

        reason = "its logits come from a network on image features, so no fixed matrix gives them"
        return Classifier(list(names) or seen, logits, self.encode, reason)

    def _rows_of(self, names: Sequence[str], seen: Sequence[str]) -> list[int]:
        row_of = {plain_class(name): row for row, name in enumerate(seen)}
        unknown = [name for name in names if plain_class(name) not in row_of]
        if unknown:
            raise UserError(
                f"FACT has no images of the class {unknown[0]!r}, so it cannot recognise it: it knows the {len(seen)} "
                "classes of its sessions only. Train a session with images of the class, or use a method that needs "
                "class names only."
            )
        return [row_of[plain_class(name)] for name in names]


@register(TRAINER_REGISTRY)
class FACTFSCIL(SessionTrainer):
    """Trains `FACTModel`."""

    Model = FACTModel
