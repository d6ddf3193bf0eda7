"""Draw the overview of the method for the README: `python scripts/draw_overview.py docs/images/overview.svg`."""

from __future__ import annotations

import sys
from pathlib import Path

WIDTH, HEIGHT = 860, 330
BOX = '<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="8" fill="{fill}" stroke="#55606e" stroke-width="1.3"/>'
TEXT = '<text x="{x}" y="{y}" text-anchor="middle" font-size="{size}" fill="#1d2733"{style}>{text}</text>'
WEIGHT_LINES = ("in-classes: CE of the mixture → πⁱⁿ", "made-up classes: entropy → πᵒᵘᵗ")
FROZEN, LEARNED, LOSS = "#e8edf3", "#fde3c4", "#dcefdc"


def box(x: int, y: int, w: int, h: int, fill: str, *lines: str) -> str:
    """Return a box with centred lines, the first one bold."""
    parts = [BOX.format(x=x, y=y, w=w, h=h, fill=fill)]
    top = y + h / 2 - 9 * (len(lines) - 1) + 4
    for number, line in enumerate(lines):
        style = ' font-weight="bold"' if number == 0 else ""
        size = 13 if number == 0 else 12
        parts.append(TEXT.format(x=x + w / 2, y=top + 18 * number, size=size, style=style, text=line))
    return "\n".join(parts)


def arrow(x1: int, y1: int, x2: int, y2: int, dashed: bool = False) -> str:
    """Return an arrow from (x1, y1) to (x2, y2)."""
    style = ' stroke-dasharray="5 4"' if dashed else ""
    line = f'd="M{x1} {y1} L{x2} {y2}" stroke="#55606e" stroke-width="1.5" fill="none"'
    return f'<path {line} marker-end="url(#tip)"{style}/>'


def overview() -> str:
    """Return the overview as SVG."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#55606e"/></marker></defs>',
        box(20, 30, 190, 56, FROZEN, "hand-crafted prompt t₀", "“a photo of a {class}.”"),
        box(20, 140, 190, 56, LEARNED, "learned prompt t₁", "[ctx₁ … ctx_M] {class}."),
        box(20, 250, 190, 56, FROZEN, "picture", "frozen CLIP"),
        box(290, 30, 150, 56, FROZEN, "similarities s₀"),
        box(290, 140, 150, 56, FROZEN, "similarities s₁"),
        box(530, 82, 150, 62, LEARNED, "mixture", "softmax(Σ πᵢ sᵢ / τ)"),
        box(730, 82, 110, 62, FROZEN, "prediction"),
        box(290, 250, 150, 56, LOSS, "CE + w · CoA", "CoA = 1 - p(y)"),
        box(530, 236, 310, 76, LOSS, "CoA-weights", *WEIGHT_LINES),
        arrow(210, 58, 288, 58),
        arrow(210, 168, 288, 168),
        arrow(210, 262, 288, 180),
        arrow(210, 252, 300, 88),
        arrow(440, 58, 528, 102),
        arrow(440, 168, 528, 128),
        arrow(680, 113, 728, 113),
        arrow(365, 196, 365, 248),
        arrow(330, 250, 150, 198, dashed=True),
        arrow(605, 234, 605, 146, dashed=True),
        TEXT.format(x=470, y=226, size=12, style=' font-style="italic"', text="dashed: gradients"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(overview(), encoding="utf-8")
