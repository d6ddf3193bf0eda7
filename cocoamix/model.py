"""What a method is: a module on a frozen CLIP that gives a loss for its training and a classifier for any classes.

A `PromptModel` knows no files, loaders, epochs or printed lines, so it works in any training loop:

    model = cocoamix.build_model("CoCoAMix", clip, classnames)
    optimizer = torch.optim.SGD(model.parts.parameters(), lr=0.002)
    losses = model.loss(clip.encode_image(images), labels)
    losses.backward()

The registered trainers (`cocoamix.trainers`) run the phases of a model in Dassl's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from yacs.config import CfgNode

from cocoamix.clip.interface import AnyCLIP
from cocoamix.errors import UserError
from cocoamix.io.checkpoints import dead_in_kgcoop
from cocoamix.prompts.hand_crafted import HandCraftedPrompt

FEATURES, RAW_FEATURES, IMAGES = "features", "raw features", "images"  # what a model reads


@dataclass(frozen=True)
class Task:
    """What a model is trained for.

    Attributes:
        classnames: The classes of its loss, in the order of the labels.
        dataset: The name of the dataset, whose own template some methods use.
        images: The names of the training images.
        labels: Their labels.
        synsets: ImageNet's identifiers of the classes; empty for other datasets.
        prompts: Trained prompts of other runs that the method builds on.
    """

    classnames: tuple[str, ...]
    dataset: str = ""
    images: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()
    synsets: tuple[str, ...] = ()
    prompts: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Phase:
    """Some epochs of training.

    Attributes:
        name: What it trains, for the log.
        epochs: The number of epochs; the largest number, if it ends when the model says so.
        optim: A node like OPTIM for each part that it trains, by the part's name.
        first_view: Augmentation of the images in its first epoch; each epoch has the next one.
        views: Number of augmentations that it cycles through; 0 if each epoch has its own.
        number: Its place among phases of one name, such as folds.
        images: Indices of the training images that it uses; None for all.
    """

    name: str
    epochs: int
    optim: Mapping[str, CfgNode]
    first_view: int = 0
    views: int = 0
    number: int = 0
    images: tuple[int, ...] | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the model that it trains."""
        return tuple(self.optim)

    def view(self, epoch: int) -> int:
        """Return the augmentation of one of its epochs, counted from 0."""
        return self.first_view + (epoch % self.views if self.views else epoch)


@dataclass
class Losses:
    """The loss of a batch.

    Attributes:
        total: What is minimised.
        logits: (B, C) logits of the prompt in training.
        terms: The parts of the loss, and other values for the log, by name.
    """

    total: Tensor
    logits: Tensor
    terms: dict[str, Tensor] = field(default_factory=dict)

    clips: ClassVar[bool] = False  # whether gradients are clipped

    def backward(self, scaled: Callable[[Tensor], Tensor] | None = None) -> None:
        """Compute the gradients.

        Args:
            scaled: Multiplies a loss by the scale of mixed precision. The caller then calls `clip` without the scale.
        """
        if scaled is not None:
            scaled(self.total).backward()
            return
        self.total.backward()
        self.clip()

    def clip(self) -> None:
        """Clip the gradients, if the method does."""

    def values(self, labels: Tensor) -> dict[str, float]:
        """Return the loss, its terms and the accuracy in percent, for the log."""
        accuracy = (self.logits.detach().argmax(dim=1) == labels).float().mean() * 100
        named = {"loss": self.total, **self.terms, "acc": accuracy}
        values = torch.stack([value.detach().float() for value in named.values()]).tolist()
        return dict(zip(named, values, strict=True))


@dataclass(frozen=True)
class Matrices:
    """Logits in closed form: unit features @ unit.T + features that are not normalised @ raw.T + bias.

    Attributes:
        unit: (C, embedding).
        raw: (C, embedding), or None.
        bias: (C,), or None.
    """

    unit: Tensor
    raw: Tensor | None = None
    bias: Tensor | None = None

    def to(self, device: str) -> Matrices:
        """Return the matrices on a device."""
        return Matrices(*(None if part is None else part.to(device) for part in (self.unit, self.raw, self.bias)))  # type: ignore[arg-type]

    def averaged(self, other: Matrices) -> Matrices:
        """Return the matrices of the mean of both logits. `other` has only unit features."""
        halves = (None if part is None else part / 2 for part in (self.raw, self.bias))
        return Matrices((self.unit + other.unit) / 2, *halves)

    def logits(self, features: Tensor) -> Tensor:
        """Return the (B, C) logits of (B, embedding) features that are not normalised."""
        logits = F.normalize(features, dim=-1) @ self.unit.t()
        if self.raw is not None:
            logits = logits + features @ self.raw.t()
        return logits if self.bias is None else logits + self.bias


@dataclass
class Classifier:
    """A trained model on some classes. Their text features are computed once.

    Attributes:
        classnames: The classes.
        logits: Returns the (B, C) logits of (B, embedding) features.
        encode: Returns the features of (B, 3, H, W) images.
        matrices: The same logits in closed form, or why there is none.
        facts: What the protocol of its evaluation states besides that of training.
        notes: Sentences for the log.
    """

    classnames: list[str]
    logits: Callable[[Tensor], Tensor]
    encode: Callable[[Tensor], Tensor]
    matrices: Matrices | str = "each image has prompts of its own, so no fixed matrix gives its logits"
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    vision_prompts: Sequence[Tensor] = ()  # learned tokens of the image encoder


class PromptModel(nn.Module):
    """A method on a frozen CLIP, for the classes of a task.

    Attributes:
        section: The method's node of the configuration, below TRAINER.
        ensembles: The values of ENSEMBLE that it supports; empty if it has no such key.
        templates_of: The method whose dataset templates it uses; CoOp's by default.
        trains_with_template: Whether the loss, and not only the classifier, needs the hand-crafted prompt.
        hand_crafted: The hand-crafted prompt, if the loss or the classifier needs one.
        reads: What `loss` reads: `FEATURES`, `RAW_FEATURES` (not normalised) or `IMAGES`.
        parts: The trained modules, by the names of their checkpoint folders.
    """

    section: ClassVar[str] = "COOP"
    ensembles: ClassVar[tuple[str, ...]] = ()
    templates_of: ClassVar[str] = ""
    trains_with_template: ClassVar[bool] = False
    several: ClassVar[bool] = False  # whether it may use several CLIPs
    reads: str = FEATURES
    hand_crafted: HandCraftedPrompt | None = None

    def __init__(self, clip: AnyCLIP, task: Task, settings: CfgNode, seed: int) -> None:
        super().__init__()
        self.clip, self.task, self.settings, self.seed = clip, task, settings, seed
        self.parts = nn.ModuleDict()
        self.notes: list[str] = []  # for the log

    # ------------------------------------------------------------------ what a method defines

    @classmethod
    def settings_of(cls, cfg: CfgNode) -> CfgNode:
        """Return the settings of the method in a configuration."""
        return cfg.TRAINER[cls.section]

    @classmethod
    def check(cls, cfg: CfgNode) -> None:
        """Raise a UserError for a configuration that the method does not support."""

    @classmethod
    def most_epochs(cls, cfg: CfgNode) -> int:
        """Return the most epochs that the method may train one model for; 0 for OPTIM.MAX_EPOCH."""
        return 0

    @classmethod
    def complete(cls, task: Task, clip: AnyCLIP, settings: CfgNode, dataset: CfgNode) -> Task:
        """Return a task with the prompts of other runs that the settings name. `dataset` is the node DATASET."""
        return task

    def phases(self, optim: CfgNode, steps: int) -> list[Phase]:
        """Return the phases of training.

        Args:
            optim: OPTIM of the configuration.
            steps: Steps of an epoch over all training images.
        """
        return [Phase("train", optim.MAX_EPOCH, dict.fromkeys(self.parts, optim))] if self.parts else []

    def loss(self, inputs: Tensor, labels: Tensor, training: Collection[str] = ()) -> Losses:
        """Return the loss of a batch of what the method `reads`.

        Args:
            inputs: Features, or images.
            labels: (B,) labels.
            training: The parts that are trained; by default all.
        """
        raise UserError(f"{type(self).__name__} has nothing to train. Add --eval-only.")

    def classifier(self, classnames: Sequence[str] | None = None, synsets: Sequence[str] = ()) -> Classifier:
        """Return the classifier of some classes; by default those of the task.

        Args:
            classnames: The classes.
            synsets: Their identifiers in ImageNet, which tell classes of one name apart.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no classifier")

    # ------------------------------------------------------------------ optional

    def begin(self, phase: Phase) -> None:
        """Begin a phase, also one that is resumed: add the parts that only it has."""

    def ends(self, phase: Phase, epoch: int, steps: int) -> bool:
        """Return whether a phase ends with an epoch, counted from 0, of `steps` steps."""
        return epoch + 1 == phase.epochs

    def end(self, phase: Phase, images: Callable[[], tuple[Tensor, Tensor, Tensor]]) -> None:
        """End a phase. `images` returns features, labels and indices of all training images, not augmented."""

    def state(self) -> dict[str, Any]:
        """Return what a resume needs besides the parts."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""

    def facts(self) -> dict[str, Any]:
        """Return what an evaluation needs besides the parts; a checkpoint records it."""
        return {}

    def adopt(self, facts: Mapping[str, Any]) -> None:
        """Adopt what `facts` returned, from a checkpoint."""

    def identity(self) -> dict[str, Any]:
        """Return what a resumed run must share besides its settings."""
        return {}

    def protocol(self) -> dict[str, Any]:
        """Return what the protocol of a run states because of the method."""
        return {}

    def results(self) -> dict[str, Any]:
        """Return what the method adds to results.json."""
        return {}

    def resize(self, name: str, state: Mapping[str, Tensor]) -> None:
        """Resize a part to fit the checkpoint of another code base, which does not record its classes."""

    def unused_keys(self, state: Mapping[str, Tensor]) -> tuple[str, ...]:
        """Return the prefixes of keys in checkpoints of other code bases that the method ignores."""
        return dead_in_kgcoop(state)

    @property
    def templates(self) -> Sequence[str]:
        """The hand-crafted templates that results depend on."""
        return self.hand_crafted.templates if self.hand_crafted else []

    # ------------------------------------------------------------------ for all methods

    @property
    def classnames(self) -> list[str]:
        """The classes of the task."""
        return list(self.task.classnames)

    def encode(self, images: Tensor) -> Tensor:
        """Return the features of (B, 3, H, W) images that the frozen encoder gives the method."""
        return self.clip.encode_image_raw(images) if self.reads == RAW_FEATURES else self.clip.encode_image(images)

    def logits(self, features: Tensor, text: Tensor) -> Tensor:
        """Return cosine similarity times CLIP's logit scale 1/tau, in fp32."""
        return self.clip.logit_scale * features @ text.t()

    def trained_parameters(self) -> int:
        """Return the number of trained parameters."""
        return sum(p.numel() for part in self.parts.values() for p in part.parameters() if p.requires_grad)
