"""Ways to damage a file: its bytes, its text, and the values in it. All draw from one generator."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

NESTED: Any = []
for _ in range(300):
    NESTED = [NESTED]

TEXTS = (
    *("", " ", "x" * 300, "é" * 300, "\0", "\x1b[31mred\x1b[0m\x07", "\ud800", "\u202e", "a\nb", "\r", "\t"),
    *("..", "/", "../../x", "~nobody-here/x", "=1+1", "@x", "nan", "inf", "1e999", "2024-13-99", "12:61:99"),
    *("{}", "{{}}", "{0.x}", "$\\frac$", "%s", "*", "[", "9" * 400, "-1", "1_000", "0x", "True", "null", "auto"),
)
NUMBERS = (
    *(0, -1, 1, 2, 2**31, 2**63, 2**64, 10**30, 10**399, -(10**399), True, False),
    *(0.5, -0.0, 1e-320, 1e308, float("nan"), float("inf"), float("-inf")),
)
VALUES: tuple[Any, ...] = (*TEXTS, *NUMBERS, None, [], {}, [[]], {"": None}, [1, "a", None], NESTED)

# Text that a reader may interpret as something other than text.
FRAGMENTS = (
    *("2024-99-99", "2024-01-01", "12:61:99", "!!timestamp x", "!!int ''", "!!float x", "!!binary x", "!!set {a}"),
    *("&a [*a]", "<<: 3", "? [1]\n: 2\n", "{a: " * 200, "[" * 500, "- " * 300, "!!python/object:os.system x"),
    *("0o9", "1:99", "NaN", "Infinity", "-Infinity", "1e999", "9" * 400, "9" * 5000, "x" * 300, "\\ud800"),
    *("\0", "\x1b[2J", "\ud800", "\u2028", "\ufeff", '"', "'", ",,,,", ";", "\t", "\r", "\n\n", "---\n", "..."),
)


def flip(random: Random, content: bytes) -> bytes:
    """Flip some bits."""
    damaged = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 8))):
        if damaged:
            damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
    return bytes(damaged)


def cut(random: Random, content: bytes) -> bytes:
    """Cut the file short."""
    return content[: random.randrange(len(content) + 1)]


def drop(random: Random, content: bytes) -> bytes:
    """Remove a part."""
    start, end = _span(random, content)
    return content[:start] + content[end:]


def repeat(random: Random, content: bytes) -> bytes:
    """Write a part twice."""
    start, end = _span(random, content)
    return content[:end] + content[start:]


def splice(random: Random, content: bytes) -> bytes:
    """Overwrite a part with another."""
    start, end = _span(random, content)
    place = random.randrange(len(content) + 1)
    return content[:place] + content[start:end] + content[place + end - start :]


def zero(random: Random, content: bytes) -> bytes:
    """Overwrite a part with zeros, as a file system after a crash does."""
    start, end = _span(random, content)
    return content[:start] + bytes(end - start) + content[end:]


def _span(random: Random, content: bytes) -> tuple[int, int]:
    start = random.randrange(len(content) + 1)
    return start, min(len(content), start + random.choice((1, 4, 16, 64, 1024)))


BYTES: tuple[Callable[[Random, bytes], bytes], ...] = (flip, flip, cut, drop, repeat, splice, zero)


def damage_bytes(random: Random, content: bytes) -> bytes:
    """Damage bytes in one or two ways."""
    for _ in range(random.choice((1, 1, 2))):
        content = random.choice(BYTES)(random, content)
    return content


def damage_text(random: Random, text: str) -> bytes:
    """Replace numbers and words with unusual ones, insert fragments, or write it in another encoding."""
    way = random.randrange(5)
    if way == 0:
        return text.encode(random.choice(("utf-16", "utf-8-sig", "cp1252", "utf-32")), "replace")
    if way == 1:
        place = random.randrange(len(text) + 1)
        text = text[:place] + random.choice(FRAGMENTS) + text[place:]
    else:
        found = list(re.finditer(r"-?\d+(?:\.\d+)?" if way < 3 else r"[\w./-]+", text))
        if found:
            spot = random.choice(found)
            replacement = random.choice(FRAGMENTS if random.random() < 0.5 else TEXTS)
            text = text[: spot.start()] + replacement + text[spot.end() :]
    return text.encode("utf-8", "surrogatepass")


def damage_value(random: Random, value: Any, replacements: Sequence[Any] = VALUES) -> Any:
    """Return a copy of nested lists and mappings with one or two places replaced, removed, renamed or wrapped."""
    value = copy.deepcopy(value)
    for _ in range(random.choice((1, 1, 2))):
        value = _damage_once(random, value, replacements)
    return value


def _damage_once(random: Random, value: Any, replacements: Sequence[Any]) -> Any:
    places = list(places_of(value))
    if not places or random.random() < 0.03:
        return random.choice(replacements)
    container, key = random.choice(places)
    way = random.randrange(8)
    if way < 4:
        container[key] = random.choice(replacements)
    elif way == 4:
        del container[key]
    elif way == 5:
        other, place = random.choice(places)
        container[key] = copy.deepcopy(other[place])
    elif way == 6:
        container[key] = random.choice(([container[key]], {"x": container[key]}, [container[key]] * 3))
    elif isinstance(container, dict):
        container[random.choice((*TEXTS, *NUMBERS, None))] = container.pop(key)
    else:
        container.append(copy.deepcopy(container[key]))
    return value


def places_of(value: Any, depth: int = 0) -> Any:
    """Yield every (container, key) below a value."""
    if depth > 12:
        return
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(pairs):
        yield value, key
        yield from places_of(item, depth + 1)
