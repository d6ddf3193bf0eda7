"""Generated out-classes (Section 3.4, Appendix F): class names that represent classes a prompt was not trained on."""

from __future__ import annotations

import random
import string
from collections.abc import Iterable
from functools import lru_cache

from cocoamix.choices import OUT_CLASSES
from cocoamix.clip.class_names import plain_class
from cocoamix.errors import UserError, check_choice

_LETTERS = (4, 10)  # shortest and longest random string


def make_outclasses(kind: str, count: int, avoid: Iterable[str], seed: int) -> list[str]:
    """Return `count` distinct names that are not in `avoid`.

    The result depends only on the arguments and is the same on every machine.

    Args:
        kind: `OUT_CLASSES`: `word` for nouns, `string` for random strings, `both` for half of each, `none` for none.
        count: Number of names.
        avoid: Names of the training classes.
        seed: Seed of the draw.
    """
    check_choice("OUT_CLASSES", kind, OUT_CLASSES)
    if kind == "none":
        return []
    generator = random.Random(seed)
    taken = set(map(plain_class, avoid))
    words = {"word": count, "string": 0, "both": count - count // 2}[kind]
    names = _words(words, taken, generator)
    taken.update(names)
    while len(names) < count:
        length = generator.randint(*_LETTERS)
        name = "".join(generator.choice(string.ascii_lowercase) for _ in range(length))
        if name not in taken:
            taken.add(name)
            names.append(name)
    return names


@lru_cache(maxsize=1)
def _nouns() -> tuple[str, ...]:
    """Return the nouns of wonderwords, sorted, because the package guarantees no order."""
    from wonderwords import RandomWord

    return tuple(sorted(set(RandomWord().filter(include_categories=["noun"]))))


def _words(count: int, taken: set[str], generator: random.Random) -> list[str]:
    if not count:
        return []
    try:
        nouns = _nouns()
    except ImportError as error:
        raise UserError(
            "OUT_CLASSES word needs the package wonderwords: `pip install wonderwords`, or use OUT_CLASSES string."
        ) from error
    free = [noun for noun in nouns if plain_class(noun) not in taken]
    if len(free) < count:
        raise UserError(
            f"OUT_CLASSES word has {len(free)} unused nouns, but {count} are needed. Use `both` or `string`."
        )
    return generator.sample(free, count)
