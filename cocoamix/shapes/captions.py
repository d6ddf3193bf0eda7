"""Captions for the drawn images, as varied as those of images on the web.

They differ in template, word order and detail. "a photo of a {}." occurs with images of every domain, and few captions
name the style. So the default template is neutral, and a learned context cannot gain by finding a style word.
"""

from __future__ import annotations

import re
from random import Random

from .world import COLOURS, SHAPES, TEXTURES, Composition

# Descriptions of the subject. A plain texture is often omitted, as in human captions.
_FULL = (
    *("{colour} {texture} {shape}",) * 5,
    *("{texture} {colour} {shape}",) * 2,
    "{colour} {shape} that is {texture}",
    "{texture} {shape} in {colour}",
    "{shape} which is {colour} and {texture}",
    "{shape}, {texture} and {colour}",
)
_PARTIAL = ("{colour} {shape}", "{colour} {shape}", "{texture} {shape}", "{shape}", "{colour} {texture} thing")
_UNSAID_PLAIN = ("{colour} {shape}", "{shape} in {colour}")

# The same for every domain, which makes "a photo of a {}." neutral.
_PHOTO = (
    *("a photo of {a}.",) * 4,
    *("a photo of {a}",) * 2,
    "a photo of the {bare}.",
    "a good photo of {a}.",
    "a close-up of {a}.",
)
_ANY = (
    "{a}",
    "{bare}",
    "{bare}.",
    "this is {a}.",
    "there is {a} here.",
    "look, {a}!",
    "one {bare}.",
    "an image of {a}.",
    "a picture of {a}.",
    "a picture of the {bare}.",
)
_STYLED = (
    *("{style_a} photo of {a}.",) * 4,
    *("{style_a} picture of {a}.",) * 2,
    "{style_a} image of {a}",
    "{style_a} photo of the {bare}.",
    "{a}, {style}.",
    "{a} in {style_a} photo.",
)
_STYLE_WORDS: dict[str, tuple[str, ...]] = {
    "clean": ("clean", "clear"),
    "cluttered": ("cluttered", "busy"),
    "noisy": ("noisy", "grainy"),
    "blurry": ("blurry", "unsharp"),
    "tinted": ("tinted", "filtered"),
    "tilted": ("tilted", "crooked"),
    "sketch": ("sketched",),
    "dark": ("dark", "night"),
    "street": ("street", "street", "messy"),
}
# Styles that are not used as an adjective before "photo".
_OWN: dict[str, tuple[str, ...]] = {
    "sketch": (
        *("a sketch of {a}.", "a drawing of {a}.") * 2,
        "a pencil sketch of {a}",
        "{a}, drawn by hand.",
        "a drawing of the {bare}.",
    ),
    "dark": ("{a} at night.", "{a} in the dark.", "a photo of {a} taken at night."),
    "street": ("{a} in the street.", "{a} on a wall in town.", "a street sign with {a}.", "{a} seen from a car."),
    "cluttered": ("{a} among other things.",),
}
# Long openings train the later positions, at which a class name follows a learned context of 16 vectors.
_OPENINGS = (
    "i took this one last summer with my old phone and it shows",
    "for sale in our shop today, free delivery,",
    "my friend from work sent me this yesterday, have a look:",
    "page two of the album that we made for my sister,",
    "we walked through the town all day long and then we saw",
    "the children asked me what it was and i told them it is",
    "from the collection of the museum, number seven,",
    "guess what i found in the garden this morning:",
    "as you can see in the corner of the room there is",
    "posted by a member of the club on a sunday evening:",
)
_NAMED = 0.2  # fraction of captions that name the style
_PHOTOS = 0.5  # fraction of the others that say "photo"
_WHOLE = 0.75  # fraction of captions with colour, texture and shape
_LONG = 0.15  # fraction of captions with a long opening


def caption(composition: Composition, domain: str, random: Random) -> str:
    """Return a random caption of an image."""
    bare = _subject(composition, random)
    template = _template(domain, random)
    style = random.choice(_STYLE_WORDS[domain])
    text = template.format(a=_with_article(bare), bare=bare, style=style, style_a=_with_article(style))
    if random.random() < _LONG:
        opening = random.choice(_OPENINGS).split()
        # Cut at any word, so that every length up to the longest occurs.
        text = " ".join([*opening[random.randrange(len(opening)) :], text])
    return text


def _subject(composition: Composition, random: Random) -> str:
    parts = {"colour": composition.colour, "texture": composition.texture, "shape": composition.shape}
    if random.random() >= _WHOLE:
        return random.choice(_PARTIAL).format(**parts)
    if composition.texture == "plain" and random.random() < 0.4:
        return random.choice(_UNSAID_PLAIN).format(**parts)
    return random.choice(_FULL).format(**parts)


def _template(domain: str, random: Random) -> str:
    if random.random() >= _NAMED:
        return random.choice(_PHOTO if random.random() < _PHOTOS else _ANY)
    own = _OWN.get(domain, ())
    if domain == "sketch" or (own and random.random() < 0.35):
        return random.choice(own)
    return random.choice(_STYLED)


def _with_article(words: str) -> str:
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def style_templates() -> list[str]:
    """Return the templates that name a style: one per style word, and those of single styles."""
    words = dict.fromkeys(word for words in _STYLE_WORDS.values() for word in words)
    own = dict.fromkeys(template for templates in _OWN.values() for template in templates)
    photos = [f"{_with_article(word)} photo of a {{}}." for word in words]
    return [*photos, *(template.format(a="a {}", bare="{}") for template in own)]


def vocabulary() -> list[str]:
    """Return all words and punctuation marks of captions, sorted."""
    styles = [word for words in _STYLE_WORDS.values() for word in words]
    own = [template for templates in _OWN.values() for template in templates]
    texts = [*_FULL, *_PARTIAL, *_UNSAID_PLAIN, *_PHOTO, *_ANY, *_STYLED, *_OPENINGS, *styles, *own]
    texts += ["a an", *COLOURS, *TEXTURES, *SHAPES]
    return sorted({piece for text in texts for piece in re.findall(r"\w+|[^\w\s]+", re.sub(r"{\w+}", " ", text))})
