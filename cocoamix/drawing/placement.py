"""Place names next to the points of a figure, so that no name covers another or a point."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Point = tuple[float, float]
Segment = tuple[Point, Point]

_DISTANCES = (6.5, 10.0, 16.0, 24.0, 33.0, 44.0)  # to try between a name and its point
_ANGLES = 16
_NEAR = 12.0  # a name that is farther away gets a thin line (leader) to its point
_MARGIN = 3.0  # by which a name should be nearer to its point than to others
_CROSSED, _COVERED = 14.0, 1e4  # costs of a name on a line, and on another name
_SWEEPS = 12  # over all names, at most


@dataclass(frozen=True)
class Box:
    """An upright rectangle."""

    left: float
    bottom: float
    right: float
    top: float

    @staticmethod
    def around(centre: Point, width: float, height: float) -> Box:
        """Return a box by its centre and size."""
        x, y = centre
        return Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)

    def grown(self, by: float) -> Box:
        """Return the box, larger on each side."""
        return Box(self.left - by, self.bottom - by, self.right + by, self.top + by)

    def overlaps(self, other: Box) -> bool:
        """Return whether two boxes share an area."""
        across = self.left < other.right and other.left < self.right
        return across and self.bottom < other.top and other.bottom < self.top

    def inside(self, frame: Box) -> bool:
        """Return whether the box lies within another."""
        wide = frame.left <= self.left and self.right <= frame.right
        return wide and frame.bottom <= self.bottom and self.top <= frame.top

    def contains(self, point: Point) -> bool:
        """Return whether a point is in the box."""
        return self.left <= point[0] <= self.right and self.bottom <= point[1] <= self.top

    def nearest(self, point: Point) -> Point:
        """Return the point of the box nearest to a point."""
        return min(max(point[0], self.left), self.right), min(max(point[1], self.bottom), self.top)

    def crosses(self, segment: Segment) -> bool:
        """Return whether a straight line between two points crosses the box."""
        (x, y), (end_x, end_y) = segment
        enter, leave = 0.0, 1.0
        for start, way, low, high in ((x, end_x - x, self.left, self.right), (y, end_y - y, self.bottom, self.top)):
            if way == 0:
                if not low < start < high:
                    return False
                continue
            ends = sorted(((low - start) / way, (high - start) / way))
            enter, leave = max(enter, ends[0]), min(leave, ends[1])
        return enter < leave


@dataclass(frozen=True)
class Scene:
    """A figure without names. A name must not leave the frame or cover a box, and should not cross a line."""

    frame: Box
    boxes: tuple[Box, ...]
    lines: tuple[Segment, ...] = ()


@dataclass(frozen=True)
class Place:
    """A place for a name; `leader` is the line to its point, if that is far away."""

    box: Box
    leader: Segment | None
    cost: float


def place_names(points: Sequence[Point], sizes: Sequence[tuple[float, float]], scene: Scene) -> list[Place] | None:
    """Return a place for each name, or None if there is no room for all.

    Each name in turn takes the best place given the others, until no name moves.
    """
    choices = []
    for number, (point, size) in enumerate(zip(points, sizes, strict=True)):
        rivals = [other for place, other in enumerate(points) if place != number]
        choices.append(sorted(_choices(point, size, rivals, scene), key=lambda place: place.cost))
    if not all(choices):
        return None
    chosen = [places[0] for places in choices]
    for _ in range(_SWEEPS):
        before = list(chosen)
        for number, places in enumerate(choices):
            chosen[number] = _best(places, [place for other, place in enumerate(chosen) if other != number])
        if chosen == before:
            break
    clear = all(_overlap_cost(one, chosen[:number]) < _COVERED for number, one in enumerate(chosen))
    return chosen if clear else None


def _best(places: Iterable[Place], others: Sequence[Place]) -> Place:
    """Return the cheapest place given the others; the places are sorted by their own cost."""
    best, least = None, math.inf
    for place in places:
        if place.cost >= least:
            break
        cost = place.cost + _overlap_cost(place, others)
        if cost < least:
            best, least = place, cost
    assert best is not None
    return best


def _choices(point: Point, size: tuple[float, float], rivals: Sequence[Point], scene: Scene) -> list[Place]:
    """Return the places around a point that are free, apart from other names."""
    found = []
    for distance in _DISTANCES:
        for number in range(_ANGLES):
            angle = 2 * math.pi * number / _ANGLES
            x = point[0] + math.cos(angle) * (distance + size[0] / 2)
            y = point[1] + math.sin(angle) * (distance + size[1] / 2)
            box = Box.around((x, y), *size)
            if box.inside(scene.frame) and not any(box.overlaps(other) for other in scene.boxes):
                leader = (point, box.nearest(point)) if math.dist(point, box.nearest(point)) > _NEAR else None
                # Readers look to the right of a point first.
                cost = distance + 2 * (1 - math.cos(angle)) + _CROSSED * _count_flaws(point, box, leader, rivals, scene)
                found.append(Place(box, leader, cost))
    return found


def _count_flaws(point: Point, box: Box, leader: Segment | None, rivals: Sequence[Point], scene: Scene) -> int:
    """Count what makes a name hard to read or to match to its point: lines below it, points near it or its leader."""
    below = sum(box.crosses(line) for line in scene.lines)
    passed = sum(other.crosses(leader) for other in scene.boxes if not other.contains(point)) if leader else 0
    own = min(math.dist(point, box.nearest(point)), _NEAR - _MARGIN)
    return below + passed + sum(math.dist(rival, box.nearest(rival)) < own + _MARGIN for rival in rivals)


def _overlap_cost(place: Place, others: Iterable[Place]) -> float:
    """Return the cost of a place that overlaps other names, or whose leader crosses names or other leaders."""
    cost = 0.0
    for other in others:
        cost += _COVERED * place.box.overlaps(other.box)
        if other.leader:
            cost += 4 * _CROSSED * place.box.crosses(other.leader)
        if place.leader:
            cost += 4 * _CROSSED * other.box.crosses(place.leader)
        if place.leader and other.leader:
            cost += 2 * _CROSSED * segments_cross(place.leader, other.leader)
    return cost


def segments_cross(one: Segment, two: Segment) -> bool:
    """Return whether two segments cross."""
    return _are_on_both_sides(one, two) and _are_on_both_sides(two, one)


def _are_on_both_sides(line: Segment, ends: Segment) -> bool:
    """Return whether two points are on different sides of a line."""
    (x, y), (end_x, end_y) = line
    first, second = ((end_x - x) * (b - y) - (end_y - y) * (a - x) for a, b in ends)
    return first * second < 0
