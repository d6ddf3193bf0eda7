"""An mkdocs hook that typesets formulas. Files have them as plain text, such as w_c^zs, as shown on GitHub."""

from __future__ import annotations

import re
from typing import Any

GREEK = "\N{GREEK SMALL LETTER ALPHA}-\N{GREEK SMALL LETTER OMEGA}Σ"
# Names with an index below or above. Keys (N_CTX) have neither.
SYMBOL = re.compile(
    rf"(?<![\w.])(?P<name>[A-Za-z{GREEK}]|ctx|mean|softmax|sum|pi|alpha|tau)"
    r"(?:_(?P<low>CE|CoA|Ent|En|[a-z0-9]{1,6}|[A-Z]))?(?:\^(?P<high>in|out|zs))?(?![\w^])"
)
POWER = re.compile(r"(?<=[)\d])\^(-?\d+|gamma|q)\b")
ENTRY = re.compile(r"(?<=\))_([a-z])\b")  # of a vector: h(f)_c
LETTERS = {
    "alpha": "\N{GREEK SMALL LETTER ALPHA}",
    "gamma": "\N{GREEK SMALL LETTER GAMMA}",
    "pi": "π",
    "sum": "Σ",
    "tau": "τ",
}
# Code that is a formula. Everything else in code is the name of something.
FORMULA = re.compile(rf"[{GREEK}]|\b(?:L_prompt|L_Ent|[st]_[01t]|p_t|ctx_1)\b|\b[fp]\((?:x|y|label)\)")
CODE = re.compile(r"(?<=<code)(?: class=\"(\w+)\")?(?=>)")  # where the tag has its class
# What is no text: tags, blocks of code, names of functions on the API page.
OTHER = re.compile(r"(<pre\b.*?</pre>|<h\d[^>]* class=\"doc .*?</h\d>|<code\b.*?</code>|<[^>]*>)", re.DOTALL)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Typeset a page and its table of contents."""
    for entry in page.toc:
        typeset_entry(entry)
    return typeset(html)


def typeset_entry(entry: Any) -> None:
    """Typeset the title of an entry of the table of contents, and those below it."""
    if "^" in entry.title or "T_En" in entry.title:  # not the name of a function on the API page
        entry.title = typeset(entry.title)
    for child in entry.children:
        typeset_entry(child)


def typeset(html: str) -> str:
    """Return HTML with the formulas in its text."""
    pieces = OTHER.split(html)
    for place, piece in enumerate(pieces):
        if place % 2 == 0:
            pieces[place] = typeset_text(piece)
        elif piece.startswith("<code") and FORMULA.search(piece):
            piece = CODE.sub(lambda kind: f' class="{" ".join(filter(None, ["formula", kind[1]]))}"', piece, count=1)
            pieces[place] = re.sub(r"(?<=>)[^<]+", lambda text: typeset_text(text[0]), piece)
    return "".join(pieces)


def typeset_text(text: str) -> str:
    """Return text with indices below and above, and with Greek letters."""
    text = SYMBOL.sub(_symbol, text)
    text = POWER.sub(lambda match: f"<sup>{LETTERS.get(match[1], match[1])}</sup>", text)
    return ENTRY.sub(r"<sub>\1</sub>", text)


def _symbol(match: re.Match[str]) -> str:
    name = LETTERS.get(match["name"], match["name"])
    if match["name"] == "sum" and not match["low"]:
        return match[0]
    low = f"<sub>{match['low']}</sub>" if match["low"] else ""
    return name + low + (f"<sup>{match['high']}</sup>" if match["high"] else "")
