"""Images and classes that a caller passes to a trainer instead of a dataset in the configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from PIL import Image


@dataclass(frozen=True)
class Item:
    """An image file, with the attributes of Dassl's `Datum`.

    Attributes:
        impath: The file. It is not checked before it is read.
        upright: Whether the EXIF orientation is applied.
    """

    impath: str
    label: int = 0
    classname: str = ""
    domain: int = 0
    upright: bool = False


@dataclass(frozen=True, kw_only=True)
class PixelItem(Item):
    """An image in memory; `impath` is only a name.

    Attributes:
        identity: A string that differs for different pixels.
        draw: Returns the image.
    """

    identity: str
    draw: Callable[[], Image.Image]


@dataclass(frozen=True)
class GivenData:
    """A dataset given by the caller, with the attributes of Dassl's `DatasetBase`.

    Attributes:
        classnames: The classes, in the order of their labels.
        train_x: Training items. Without training, each class has one item, which is never read.
        sessions: The number of classes of each session of a class-incremental run.
        label_space: The classes to predict, if they are not those of the sessions.
    """

    classnames: list[str]
    train_x: list[Item] = field(default_factory=list)
    val: list[Item] = field(default_factory=list)
    test: list[Item] = field(default_factory=list)
    sessions: tuple[int, ...] = ()
    label_space: tuple[str, ...] = ()

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return len(self.classnames)

    @property
    def lab2cname(self) -> dict[int, str]:
        """The class name of each label."""
        return dict(enumerate(self.classnames))


def classes_alone(
    classnames: Sequence[str], sessions: Sequence[int] = (), label_space: Sequence[str] = ()
) -> GivenData:
    """Return data with classes but no images, for a trained model."""
    blanks = [Item(f"{label}/{name}", label, name) for label, name in enumerate(classnames)]
    return GivenData(list(classnames), blanks, test=blanks, sessions=tuple(sessions), label_space=tuple(label_space))


_given: ContextVar[GivenData | None] = ContextVar("given", default=None)


@contextmanager
def given(data: GivenData) -> Iterator[None]:
    """Make trainers that are built in this context use `data` as their dataset."""
    token = _given.set(data)
    try:
        yield
    finally:
        _given.reset(token)


def current() -> GivenData | None:
    """Return the data of the current context, if any."""
    return _given.get()
