"""Where names stand beside the points of a figure, so that none covers another or a point."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Point = tuple[float, float]
Segment = tuple[Point, Point]

_DISTANCES = (6.5, 10.0, 16.0, 24.0, 33.0, 44.0)  # of a name from its point
_ANGLES = 16
_NEAR = 12.0  # up to here it is plain which point a name is of; beyond, a thin line leads to it
_MARGIN = 3.0  # a name is so much nearer to its point than to others
_CROSSED, _COVERED = 14.0, 1e4  # costs of a name on a line, and on a point or another name
_SWEEPS = 12


@dataclass(frozen=True)
class Box:
    """An upright rectangle."""

    left: float
    bottom: float
    right: float
    top: float

    @staticmethod
    def around(centre: Point, width: float, height: float) -> Box:
        x, y = centre
        return Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)

    def grown(self, by: float) -> Box:
        return Box(self.left - by, self.bottom - by, self.right + by, self.top + by)

    def overlaps(self, other: Box) -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.bottom < other.top and other.bottom < self.top

    def inside(self, frame: Box) -> bool:
        wide = frame.left <= self.left and self.right <= frame.right
        return wide and frame.bottom <= self.bottom and self.top <= frame.top

    def holds(self, point: Point) -> bool:
        return self.left <= point[0] <= self.right and self.bottom <= point[1] <= self.top

    def nearest(self, point: Point) -> Point:
        """Return the point of the box that is nearest to a point."""
        return min(max(point[0], self.left), self.right), min(max(point[1], self.bottom), self.top)

    def crosses(self, segment: Segment) -> bool:
        """Say whether a straight line between two points goes through the box."""
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
    """What is in a figure before names are: none may leave the frame or cover a box, and few should cross a line."""

    frame: Box
    boxes: tuple[Box, ...]
    lines: tuple[Segment, ...] = ()


@dataclass(frozen=True)
class Place:
    """A place for a name; `leader` is the line to its point where that is far."""

    box: Box
    leader: Segment | None
    cost: float


def place_names(points: Sequence[Point], sizes: Sequence[tuple[float, float]], scene: Scene) -> list[Place] | None:
    """Return a place for each name, or nothing where there is no room for all.

    Each name in turn takes the best place beside where the others are, until none moves.
    """
    choices = []
    for number, (point, size) in enumerate(zip(points, sizes, strict=True)):
        rivals = [other for place, other in enumerate(points) if place != number]
        choices.append(sorted(_choices(point, size, rivals, scene), key=lambda place: place.cost))
    if not all(choices):
        return None
    chosen = [some[0] for some in choices]
    for _ in range(_SWEEPS):
        before = list(chosen)
        for number, some in enumerate(choices):
            chosen[number] = _best(some, [place for other, place in enumerate(chosen) if other != number])
        if chosen == before:
            break
    clear = all(_disturbance(one, chosen[:number]) < _COVERED for number, one in enumerate(chosen))
    return chosen if clear else None


def _best(places: Iterable[Place], others: Sequence[Place]) -> Place:
    """Return the place of least cost beside the others; the places are sorted by their own cost."""
    best, least = None, math.inf
    for place in places:
        if place.cost >= least:
            break
        cost = place.cost + _disturbance(place, others)
        if cost < least:
            best, least = place, cost
    assert best is not None
    return best


def _choices(point: Point, size: tuple[float, float], rivals: Sequence[Point], scene: Scene) -> list[Place]:
    """Return the places around a point that are free but for other names."""
    found = []
    for distance in _DISTANCES:
        for number in range(_ANGLES):
            angle = 2 * math.pi * number / _ANGLES
            x = point[0] + math.cos(angle) * (distance + size[0] / 2)
            y = point[1] + math.sin(angle) * (distance + size[1] / 2)
            box = Box.around((x, y), *size)
            if box.inside(scene.frame) and not any(box.overlaps(other) for other in scene.boxes):
                leader = (point, box.nearest(point)) if math.dist(point, box.nearest(point)) > _NEAR else None
                # Right of the point is where one looks first.
                cost = distance + 2 * (1 - math.cos(angle)) + _CROSSED * _doubts(point, box, leader, rivals, scene)
                found.append(Place(box, leader, cost))
    return found


def _doubts(point: Point, box: Box, leader: Segment | None, rivals: Sequence[Point], scene: Scene) -> int:
    """Count what makes a name hard to read or to ascribe: lines below it, other points nearer to it or on its way."""
    below = sum(box.crosses(line) for line in scene.lines)
    passed = sum(other.crosses(leader) for other in scene.boxes if not other.holds(point)) if leader else 0
    own = min(math.dist(point, box.nearest(point)), _NEAR - _MARGIN)
    return below + passed + sum(math.dist(rival, box.nearest(rival)) < own + _MARGIN for rival in rivals)


def _disturbance(place: Place, others: Iterable[Place]) -> float:
    """Return what it costs that a name covers others, or that lines to points go through names or each other."""
    cost = 0.0
    for other in others:
        cost += _COVERED * place.box.overlaps(other.box)
        if other.leader:
            cost += 4 * _CROSSED * place.box.crosses(other.leader)
        if place.leader:
            cost += 4 * _CROSSED * other.box.crosses(place.leader)
        if place.leader and other.leader:
            cost += 2 * _CROSSED * meet(place.leader, other.leader)
    return cost


def meet(one: Segment, two: Segment) -> bool:
    """Say whether two straight lines between points cross."""
    return _apart(one, two) and _apart(two, one)


def _apart(line: Segment, ends: Segment) -> bool:
    """Say whether two points are on different sides of a line."""
    (x, y), (end_x, end_y) = line
    first, second = ((end_x - x) * (b - y) - (end_y - y) * (a - x) for a, b in ends)
    return first * second < 0
