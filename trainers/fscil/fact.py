"""FACT with CLIP, in our reading (FACT: Zhou et al., CVPR 2022): room for later classes, and prototypes that are means.

How FACT was put on CLIP for published comparisons is not public. Here its network is a residual one on frozen image
features (`cocoamix.fscil.prototypes`); everything after it is FACT's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor

from cocoamix.clip.class_names import plain_class
from cocoamix.errors import UserError
from cocoamix.fscil import prototypes
from cocoamix.fscil.prototypes import ForwardCompatible, Prototypes, ResidualNetwork
from cocoamix.io import checkpoints
from cocoamix.registry import register
from cocoamix.run.loaders import loader_over
from cocoamix.seeding import derive_seed

from .loop import Scorer, SessionTrainer


@register(TRAINER_REGISTRY)
class FACTFSCIL(SessionTrainer):
    """Session 0 trains a network and prototypes. Later sessions train nothing: they add means of their images."""

    section = "FACT"
    kept_model = "prototypes"

    def title(self) -> str:
        return "FACT w/ CLIP, our reading"

    # ------------------------------------------------------------------ training

    def build_prompts(self) -> None:
        own, width = self.sessions[self.session].classnames, self.clip.sizes.embedding
        self.learned: ForwardCompatible | Prototypes
        if self.session:
            # An epoch that trains nothing, so that a session is kept and resumed as others are.
            self.max_epoch = 1
            self.learned = Prototypes(len(own), width).to(self.device)
            self.register_model(self.kept_model, self.learned, None, None)
            return
        self.learned = ForwardCompatible(
            width,
            self._hidden(),
            len(own),
            self.settings.VIRTUAL or sum(len(one.classnames) for one in self.sessions[1:]),
            self.settings.OPEN_TO,
            derive_seed(self.seed, "fact"),
        ).to(self.device)
        self.register(self.kept_model, self.learned, self.cfg.OPTIM)
        self._trained = super().trained_parameters()

    def trained_parameters(self) -> int:
        """Return what session 0 trains, which it is built for first, whatever the present session is."""
        return self._trained

    def _hidden(self) -> int:
        return max(1, int(self.clip.sizes.embedding) // int(self.settings.REDUCTION))

    def compute_loss(self, image_features: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        assert isinstance(self.learned, ForwardCompatible)
        settings = self.settings
        mixed = prototypes.mix_pairs(image_features, labels, settings.ALPHA)
        found, logits = self.learned.losses(image_features, labels, settings.TEMPERATURE, mixed)
        terms = {"base": found[0], "room": torch.stack(found[1:]).sum() if found[1:] else found[0].new_zeros(())}
        return {"loss": terms["base"] + settings.BALANCE * terms["room"], **terms}, logits

    def _show_epoch(self) -> None:
        """A later session reads its images only as they are evaluated: see `class_means`."""
        if not self.session:
            super()._show_epoch()

    def run_epoch(self) -> None:
        if not self.session:
            super().run_epoch()

    def after_epoch(self) -> None:
        if self.epoch + 1 == self.max_epoch:
            with torch.no_grad():
                self.learned.prototypes.copy_(self.class_means())
        super().after_epoch()

    @torch.no_grad()
    def class_means(self) -> Tensor:
        """Return the (C, width) means of the embeddings of the session's images, which are not augmented."""
        shown = self.sessions[self.session]
        network = self.learned.network if isinstance(self.learned, ForwardCompatible) else self._network()
        # In batches of the training's size, which a resume keeps. That of tests is free to change, and bits with it.
        size = int(self.cfg.DATALOADER.TRAIN_X.BATCH_SIZE)
        loader = loader_over(self.cfg, self._all_test, shown.train, train=False, seed=self.seed, batch_size=size)
        parts = [
            (network(self.encode(inputs)), labels - shown.labels.start)
            for inputs, labels, _ in self.images.batches(loader, f"train/session{self.session}", self.device)
        ]
        embedded, labels = (torch.cat(side) for side in zip(*parts, strict=True)) if parts else (None, None)
        without = set(range(len(shown.classnames))) - set([] if labels is None else labels.tolist())
        if embedded is None or labels is None or without:
            raise UserError(
                f"No image of the class {shown.classnames[min(without)]!r} in session {self.session} can be read, so "
                "that it has no prototype. Restore its images."
            )
        return prototypes.class_means(embedded, labels, len(shown.classnames))

    # ------------------------------------------------------------------ evaluation

    def _network(self) -> ResidualNetwork:
        """Return the network as session 0 left it."""
        network = ResidualNetwork(self.clip.sizes.embedding, self._hidden(), 0).to(self.device)
        state = {key.removeprefix("network."): value for key, value in self._kept(0).items() if key[:8] == "network."}
        checkpoints.load_into(network, state, "session 0")
        return network

    def _kept(self, session: int) -> dict[str, Tensor]:
        return self.kept[session][self.kept_model]

    def _kept_rows(self, session: int, name: str, count: int | None = None) -> Tensor:
        """Return the prototypes that a session kept under a name. count: how many there must be."""
        rows, width = self._kept(session).get(name), self.clip.sizes.embedding
        if rows is None or rows.dim() != 2 or rows.shape[1] != width or len(rows) != (count or len(rows)):
            raise UserError(
                f"Session {session} has no {name} of {self.clip.name}'s width, or not one for each class: its file was "
                "altered. Restore it."
            )
        return rows.to(self.device)

    def scorer(self, session: int, names: Sequence[str] = ()) -> Scorer:
        """From session 1 on, logits are logarithms of mixed probabilities."""
        network, settings = self._network(), self.settings
        own = [self._kept_rows(one.number, "prototypes", len(one.classnames)) for one in self.sessions[: session + 1]]
        rows, virtual = torch.cat(own), self._kept_rows(0, "virtual")
        if names:
            rows = rows[self._rows_of(names, self.seen_classes(session))]
        if not session:
            return lambda features: settings.TEMPERATURE * prototypes.cosine(network(features), rows)
        return lambda features: prototypes.mixed_log_probabilities(
            network(features), rows, virtual, settings.TEMPERATURE, settings.ETA
        )

    def _rows_of(self, names: Sequence[str], seen: Sequence[str]) -> list[int]:
        places = {plain_class(name): place for place, name in enumerate(seen)}
        unknown = [name for name in names if plain_class(name) not in places]
        if unknown:
            raise UserError(
                f"FACT knows a class by images of it, and of {unknown[0]!r} it has seen none: it can tell apart the "
                f"{len(seen)} classes of its sessions alone. Train a session with images of the class, or use a method "
                "that knows classes by their names."
            )
        return [places[plain_class(name)] for name in names]

    def why_not_exported(self) -> str:
        return "its logits come from a network on image features, and no fixed matrix gives them"
