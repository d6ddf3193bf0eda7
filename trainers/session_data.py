"""A dataset cut into sessions, of which a trainer sees one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader
from yacs.config import CfgNode

from cocoamix.clip.precision import make_scaler
from cocoamix.encoding import Source
from cocoamix.errors import UserError
from cocoamix.sessions import Cut, choose_split, cut_into_sessions

from . import config, protocol
from .base import CLIPTrainer
from .loaders import loader_over


class SessionData(CLIPTrainer):
    """A trainer whose training images and classes are those of the present session."""

    session = 0

    def check_cfg(self, cfg: CfgNode) -> None:
        super().check_cfg(cfg)
        config.check_sessions(cfg)

    def build_data_loader(self) -> None:
        """Cut the dataset into sessions and show the first."""
        super().build_data_loader()
        # Loaders of sessions are made after those of all items, which are only lists: nothing is read for them.
        self._whole_train, self._whole_test = self.train_loader_x, self.test_loader
        self.cut_sessions()

    def cut_sessions(self) -> None:
        """Cut the dataset as FSCIL.* says, and show the present session."""
        data, keys = self.dm.dataset, self.cfg.FSCIL
        items = data.val if self.cfg.TEST.SPLIT == "val" else data.test
        if not items:
            raise UserError(f"The dataset {self.cfg.DATASET.NAME} has no {self.cfg.TEST.SPLIT} images.")
        cut = Cut(keys.BASE, keys.WAY, keys.SHOTS, keys.SPLIT, self.seed, self.cfg.DATASET.FEWER_SHOTS)
        self.sessions = cut_into_sessions(data, items, cut)
        self.split = choose_split(data, keys.SPLIT)
        if len(self.sessions) <= keys.LAST_SESSION:
            raise UserError(
                f"FSCIL.LAST_SESSION is {keys.LAST_SESSION}, but {self.cfg.DATASET.NAME} has the sessions 0 to "
                f"{len(self.sessions) - 1}."
            )
        self.last_session = keys.LAST_SESSION if keys.LAST_SESSION >= 0 else len(self.sessions) - 1
        first = self.sessions[0]
        print(
            f"Sessions: {len(first.classnames)} base classes with {len(first.train):,} images, then "
            f"{len(self.sessions) - 1} x {keys.WAY} classes with {keys.SHOTS} images each "
            f"({'the published ones' if self.split == 'cec' else f'drawn with seed {self.seed}'})"
        )
        self._tests = [self._loader_over(session.test, train=False) for session in self.sessions]
        self._show_session()

    def _loader_over(self, items: Sequence[Any], train: bool) -> DataLoader[Any]:
        """Return a loader like that of all items, over some of them."""
        return loader_over(self.cfg, self._whole_train if train else self._whole_test, items, train, self.seed)

    def _show_session(self) -> None:
        """Train on the present session's images from now on; those of the one before are let go, features and all."""
        self.train_loader_x = self._loader_over(self.sessions[self.session].train, train=True)

    def build_session(self) -> None:
        """Build what the present session trains, anew."""
        for registered in (self._models, self._optims, self._scheds):
            registered.clear()
        self.start_epoch = self.epoch = self.trained_epochs = 0
        self.max_epoch = self.cfg.OPTIM.MAX_EPOCH
        self.scaler = make_scaler(self.clip.precision, self.device)  # of one session, so that a resume needs no other
        self.trained_classes = self.classnames
        self.build_prompts()

    def describe_protocol(self) -> dict[str, Any]:
        keys, told = self.cfg.FSCIL, super().describe_protocol()
        shown = [item for session in self.sessions for item in session.train]
        told["splits"]["train"] = protocol.items_hash(shown)
        told["views"] = protocol.views(self.cfg, self.longest())
        told["fscil"] = {"base": keys.BASE, "way": keys.WAY, "shots": keys.SHOTS, "split": self.split}
        return told

    @property
    def classnames(self) -> list[str]:
        """The classes that the present session trains on."""
        return self.sessions[self.session].classnames

    @property
    def first_label(self) -> int:
        """The label, among all classes, of the first of `classnames`."""
        return self.sessions[self.session].labels.start

    def classnames_of(self, session: int) -> list[str]:
        """Return the classes that a session trains on."""
        return self.sessions[session].classnames

    def parse_batch_train(self, batch: Any) -> tuple[Tensor, Tensor]:
        inputs, labels = super().parse_batch_train(batch)
        return inputs, labels - self.first_label

    def parse_batch_test(self, batch: Any) -> tuple[Tensor, Tensor]:
        return super().parse_batch_train(batch)

    def _source(self, loader: DataLoader[Any], split: str) -> Source:
        source = super()._source(loader, split)
        if split.startswith("train"):
            source.bucket += f"/session{self.session}"  # so that later sessions never look through its files
        return source
