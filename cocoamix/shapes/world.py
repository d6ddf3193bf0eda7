"""What there is to draw: colours, textures, shapes, and the domains that images are taken in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

SIZE = 32  # pixels

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (214, 38, 40),
    "orange": (247, 138, 24),
    "yellow": (243, 220, 46),
    "green": (48, 158, 62),
    "blue": (38, 78, 205),
    "purple": (132, 54, 168),
    "pink": (246, 140, 190),
    "white": (245, 245, 245),
    "black": (22, 22, 24),
    "gray": (128, 128, 130),
    "cyan": (46, 205, 214),
    "brown": (120, 72, 34),
}
TEXTURES = ("plain", "striped", "checkered", "hollow", "dotted")
SHAPES = (
    *("circle", "square", "triangle", "diamond", "star", "cross", "heart", "arrow"),
    *("house", "tree", "fish", "crown", "drop", "moon", "flower", "bolt"),
)


@dataclass(frozen=True, order=True)
class Composition:
    """What an image shows."""

    colour: str
    texture: str
    shape: str

    @property
    def name(self) -> str:
        """The class name, such as "red striped star"."""
        return f"{self.colour} {self.texture} {self.shape}"

    @property
    def indices(self) -> tuple[int, int, int]:
        return list(COLOURS).index(self.colour), TEXTURES.index(self.texture), SHAPES.index(self.shape)

    @property
    def held_out(self) -> bool:
        """Whether pre-training never sees it.

        One texture of every pair of colour and shape, so that each colour, texture, shape and pair of them
        is known and only the whole is new.
        """
        colour, texture, shape = self.indices
        return (2 * colour + 3 * texture + shape) % len(TEXTURES) == 0


@lru_cache(maxsize=1)
def compositions() -> tuple[Composition, ...]:
    """Return every composition of the world."""
    return tuple(Composition(*parts) for parts in product(COLOURS, TEXTURES, SHAPES))


@dataclass(frozen=True)
class Domain:
    """How an image is taken, at severity 1.

    Severity scales tilt, clutter, occluders, noise, blur, cast, tint and haze; size, place, light and the look of a
    sketch stay.
    With clutter it goes up to 1.5, which is as much as an image holds.
    """

    name: str
    radius: tuple[float, float] = (11.0, 13.5)  # of the shape, in pixels
    shift: float = 1.5  # of its centre, in pixels
    tilt: float = 4.0  # degrees
    clutter: int = 0  # pieces behind the shape
    occluders: int = 0  # thin pieces in front of it
    noise: float = 2.0  # standard deviation in grey levels
    blur: float = 0.0  # radius in pixels
    cast: float = 0.0  # share by which a channel may be weakened
    light: tuple[float, float] = (0.95, 1.05)  # brightness
    sketch: bool = False
    tint: tuple[float, float, float] = (1.0, 1.0, 1.0)  # a colour filter, the same for every image
    haze: float = 0.0  # share of pale grey in every pixel
    pretrained: bool = True  # whether pre-training draws it


DOMAINS: dict[str, Domain] = {
    domain.name: domain
    for domain in (
        Domain("clean"),
        Domain("cluttered", radius=(9.5, 12.5), shift=3, tilt=8, clutter=9, noise=5),
        Domain("noisy", radius=(10, 13), shift=2, tilt=6, noise=38),
        Domain("blurry", radius=(10, 13), shift=2, tilt=6, noise=3, blur=2.0),
        Domain("tinted", radius=(10, 13), shift=2, tilt=6, noise=4, cast=0.55, light=(0.8, 1.15)),
        Domain("tilted", radius=(9.5, 12.5), shift=2.5, tilt=28, noise=4),
        Domain("sketch", radius=(10, 13.5), shift=2, tilt=8, noise=6, sketch=True),
        Domain("dark", radius=(10, 13), shift=2, tilt=8, noise=8, cast=0.15, light=(0.22, 0.45)),
        Domain(
            "street",
            radius=(9.5, 12.5),
            shift=3,
            tilt=18,
            clutter=8,
            occluders=2,
            noise=15,
            blur=0.9,
            cast=0.35,
            light=(0.6, 1.2),
        ),
        # Datasets are drawn in these. Pre-training draws none of them, and no caption calls an image by one.
        Domain(
            "evening",
            radius=(9.5, 12.5),
            shift=3,
            tilt=18,
            clutter=8,
            occluders=2,
            noise=24,
            blur=0.9,
            light=(0.6, 1.1),
            tint=(1.0, 0.75, 0.5),
            pretrained=False,
        ),
        Domain("sunset", radius=(10, 13), shift=2, tilt=8, noise=40, tint=(1.0, 0.66, 0.4), pretrained=False),
        Domain(
            "underwater",
            radius=(10, 13),
            shift=2,
            tilt=8,
            noise=44,
            blur=0.6,
            tint=(0.4, 0.85, 1.0),
            haze=0.2,
            pretrained=False,
        ),
    )
}
PRETRAINED = tuple(name for name, domain in DOMAINS.items() if domain.pretrained)
