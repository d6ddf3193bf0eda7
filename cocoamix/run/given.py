"""Images and classes that a caller hands to a trainer, in place of a dataset that the configuration names."""

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
        impath: The file. Nothing looks for it before it is read.
        upright: Whether the image is turned as its EXIF orientation says.
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
        identity: Differs for different pixels.
        draw: Returns the image.
    """

    identity: str
    draw: Callable[[], Image.Image]


@dataclass(frozen=True)
class GivenData:
    """What takes the place of a dataset, with the attributes of Dassl's `DatasetBase`.

    Attributes:
        classnames: The classes, in the order of their labels.
        train_x: Labelled items to train on. Where nothing is trained, each class has one item that is never read.
        sessions: How many classes each session of a class-incremental run has.
        label_space: The classes to tell apart, where they are not those of the sessions.
    """

    classnames: list[str]
    train_x: list[Item] = field(default_factory=list)
    val: list[Item] = field(default_factory=list)
    test: list[Item] = field(default_factory=list)
    sessions: tuple[int, ...] = ()
    label_space: tuple[str, ...] = ()

    @property
    def num_classes(self) -> int:
        return len(self.classnames)

    @property
    def lab2cname(self) -> dict[int, str]:
        return dict(enumerate(self.classnames))


def classes_alone(
    classnames: Sequence[str], sessions: Sequence[int] = (), label_space: Sequence[str] = ()
) -> GivenData:
    """Return classes without images, to use a trained model with."""
    blanks = [Item(f"{label}/{name}", label, name) for label, name in enumerate(classnames)]
    return GivenData(list(classnames), blanks, test=blanks, sessions=tuple(sessions), label_space=tuple(label_space))


_given: ContextVar[GivenData | None] = ContextVar("given", default=None)


@contextmanager
def given(data: GivenData) -> Iterator[None]:
    """Let trainers that are built inside take `data` for their dataset."""
    token = _given.set(data)
    try:
        yield
    finally:
        _given.reset(token)


def current() -> GivenData | None:
    """Return what is handed over at present, if anything is."""
    return _given.get()
