"""FACT (Zhou et al., CVPR 2022) on CLIP, in our interpretation: space reserved for later classes, and prototypes.

How published comparisons adapted FACT to CLIP is not public. Here its network is a residual network on frozen image
features (`cocoamix.fscil.prototypes`); everything after it is as in FACT.
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
    """Session 0 trains a network and prototypes. Later sessions train nothing and add class means as prototypes."""

    section = "FACT"
    main_model = "prototypes"

    def title(self) -> str:
        return "FACT w/ CLIP, our interpretation"

    # ------------------------------------------------------------------ training

    def build_prompts(self) -> None:
        own, width = self.sessions[self.session].classnames, self.clip.sizes.embedding
        self.learned: ForwardCompatible | Prototypes
        if self.session:
            # One epoch without training, so that the session is saved and resumed like any other.
            self.max_epoch = 1
            self.learned = Prototypes(len(own), width).to(self.device)
            self.register_model(self.main_model, self.learned, None, None)
            return
        self.learned = ForwardCompatible(
            width,
            self._hidden(),
            len(own),
            self.settings.VIRTUAL or sum(len(one.classnames) for one in self.sessions[1:]),
            self.settings.OPEN_TO,
            derive_seed(self.seed, "fact"),
        ).to(self.device)
        self.register(self.main_model, self.learned, self.cfg.OPTIM)
        self._trained = super().trained_parameters()

    def trained_parameters(self) -> int:
        """Return the trained parameters of session 0, the only session that trains."""
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

    def _set_epoch_view(self) -> None:
        """Set the view in session 0 only. Later sessions do not augment their images: see `class_means`."""
        if not self.session:
            super()._set_epoch_view()

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
        """Return the (C, width) mean embeddings of the session's images, without augmentation."""
        session = self.sessions[self.session]
        network = self.learned.network if isinstance(self.learned, ForwardCompatible) else self._network()
        # The batch size affects the last bits. A resume may change the test batch size, but not the training one.
        size = int(self.cfg.DATALOADER.TRAIN_X.BATCH_SIZE)
        loader = loader_over(self.cfg, self._all_test, session.train, train=False, seed=self.seed, batch_size=size)
        parts = [
            (network(self.encode(inputs)), labels - session.labels.start)
            for inputs, labels, _ in self.images.batches(loader, f"train/session{self.session}", self.device)
        ]
        embedded, labels = (torch.cat(side) for side in zip(*parts, strict=True)) if parts else (None, None)
        missing = set(range(len(session.classnames))) - set([] if labels is None else labels.tolist())
        if embedded is None or labels is None or missing:
            raise UserError(
                f"No image of the class {session.classnames[min(missing)]!r} in session {self.session} can be read, so "
                "the class has no prototype. Restore its images."
            )
        return prototypes.class_means(embedded, labels, len(session.classnames))

    # ------------------------------------------------------------------ evaluation

    def _network(self) -> ResidualNetwork:
        """Return the network of session 0."""
        network = ResidualNetwork(self.clip.sizes.embedding, self._hidden(), 0).to(self.device)
        saved = self._saved_state(0)
        state = {key.removeprefix("network."): value for key, value in saved.items() if key[:8] == "network."}
        checkpoints.load_into(network, state, "session 0")
        return network

    def _saved_state(self, session: int) -> dict[str, Tensor]:
        return self.session_models[session][self.main_model]

    def _saved_rows(self, session: int, name: str, count: int | None = None) -> Tensor:
        """Return the prototypes that a session saved as `name`, after checking their width and number."""
        rows, width = self._saved_state(session).get(name), self.clip.sizes.embedding
        if rows is None or rows.dim() != 2 or rows.shape[1] != width or len(rows) != (count or len(rows)):
            raise UserError(
                f"Session {session} has no {name} of {self.clip.name}'s width, or not one for each class: its file was "
                "altered. Restore it."
            )
        return rows.to(self.device)

    def scorer(self, session: int, names: Sequence[str] = ()) -> Scorer:
        """Return the function from features to logits. From session 1 on, the logits are mixed log-probabilities."""
        network, settings = self._network(), self.settings
        seen = self.sessions[: session + 1]
        saved = [self._saved_rows(one.number, "prototypes", len(one.classnames)) for one in seen]
        rows, virtual = torch.cat(saved), self._saved_rows(0, "virtual")
        if names:
            rows = rows[self._rows_of(names, self.seen_classes(session))]
        if not session:
            return lambda features: settings.TEMPERATURE * prototypes.cosine(network(features), rows)
        return lambda features: prototypes.mixed_log_probabilities(
            network(features), rows, virtual, settings.TEMPERATURE, settings.ETA
        )

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

    def why_not_exported(self) -> str:
        return "its logits come from a network on image features, so no fixed matrix gives them"
