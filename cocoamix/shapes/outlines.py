"""The outlines of the shapes, as corners in a unit disc with y downwards."""

from __future__ import annotations

import math

Points = tuple[tuple[float, float], ...]


def _ellipse(width: float, height: float, steps: int = 28, x: float = 0.0, y: float = 0.0) -> Points:
    angles = (2 * math.pi * step / steps for step in range(steps))
    return tuple((x + width * math.cos(angle), y + height * math.sin(angle)) for angle in angles)


def _star(points: int, inner: float) -> Points:
    radii = (1.0, inner)
    angles = [math.pi * step / points - math.pi / 2 for step in range(2 * points)]
    return tuple((radii[i % 2] * math.cos(a), radii[i % 2] * math.sin(a)) for i, a in enumerate(angles))


def _heart() -> Points:
    points = []
    for step in range(30):
        t = 2 * math.pi * step / 30
        x = 16 * math.sin(t) ** 3
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        points.append((x / 16.5, -(y + 2) / 15))
    return tuple(points)


def _drop() -> Points:
    bow = [(math.cos(a), math.sin(a)) for a in (math.pi * (-0.12 + 1.24 * step / 16) for step in range(17))]
    return ((0.0, -1.0), *((0.66 * x, 0.34 + 0.66 * y) for x, y in bow))


def _moon() -> Points:
    outer = [math.pi * (0.28 + 1.44 * step / 20) for step in range(21)]
    inner = [math.pi * (1.62 - 1.24 * step / 16) for step in range(17)]
    return (
        *((0.2 + math.cos(a), math.sin(a)) for a in outer),
        *((0.62 + 0.78 * math.cos(a), 0.78 * math.sin(a)) for a in inner),
    )


def _flower() -> Points:
    points = []
    for step in range(50):
        angle = 2 * math.pi * step / 50
        radius = 0.66 + 0.34 * math.cos(5 * angle)
        points.append((radius * math.sin(angle), -radius * math.cos(angle)))
    return tuple(points)


def _fish() -> Points:
    body = _ellipse(0.68, 0.55, x=-0.3)
    # The body runs from its right end round to its right end; the tail closes the gap.
    return (*body[2:-1], (0.2, -0.22), (1.0, -0.62), (0.8, 0.0), (1.0, 0.62), (0.2, 0.22))


OUTLINES: dict[str, Points] = {
    "circle": _ellipse(0.92, 0.92),
    "square": ((-0.82, -0.82), (0.82, -0.82), (0.82, 0.82), (-0.82, 0.82)),
    "triangle": ((0, -0.95), (1.0, 0.8), (-1.0, 0.8)),
    "diamond": ((0, -1.05), (0.64, 0), (0, 1.05), (-0.64, 0)),
    "star": _star(5, 0.42),
    "cross": (
        *((-0.34, -1.0), (0.34, -1.0), (0.34, -0.34), (1.0, -0.34), (1.0, 0.34), (0.34, 0.34)),
        *((0.34, 1.0), (-0.34, 1.0), (-0.34, 0.34), (-1.0, 0.34), (-1.0, -0.34), (-0.34, -0.34)),
    ),
    "heart": _heart(),
    "arrow": ((-1.0, -0.3), (0.1, -0.3), (0.1, -0.85), (1.0, 0), (0.1, 0.85), (0.1, 0.3), (-1.0, 0.3)),
    "house": ((0, -1.0), (1.0, -0.15), (0.72, -0.15), (0.72, 0.9), (-0.72, 0.9), (-0.72, -0.15), (-1.0, -0.15)),
    "tree": (
        *((0, -1.05), (0.55, -0.3), (0.32, -0.3), (0.85, 0.5), (0.2, 0.5), (0.2, 1.0)),
        *((-0.2, 1.0), (-0.2, 0.5), (-0.85, 0.5), (-0.32, -0.3), (-0.55, -0.3)),
    ),
    "fish": _fish(),
    "crown": ((-1.0, -0.75), (-0.5, -0.05), (0, -0.95), (0.5, -0.05), (1.0, -0.75), (0.85, 0.8), (-0.85, 0.8)),
    "drop": _drop(),
    "moon": _moon(),
    "flower": _flower(),
    "bolt": ((0.3, -1.05), (-0.7, 0.2), (-0.08, 0.2), (-0.35, 1.05), (0.7, -0.3), (0.1, -0.3), (0.62, -1.05)),
}
