"""Draw the overview of the method, for light and dark pages: `python scripts/draw_overview.py docs/images`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

WIDTH, HEIGHT = 880, 350


class Palette(NamedTuple):
    """Colours of one kind of page."""

    text: str
    line: str
    frozen: str
    learned: str
    loss: str


# The background is transparent, so a palette must suit the page it is shown on.
PALETTES = {
    "": Palette(text="#1d2733", line="#55606e", frozen="#e8edf3", learned="#fde3c4", loss="#dcefdc"),
    "-dark": Palette(text="#e6edf3", line="#9aa7b5", frozen="#2b3440", learned="#5f431f", loss="#254a2c"),
}


def text(colours: Palette, x: float, y: float, words: str, size: int = 12, style: str = "") -> str:
    """Return a centred line of text. What follows ^ or _ is raised or lowered."""
    for mark, shift in (("^", -0.36), ("_", 0.24)):
        down, up, small = f"{shift * size:.1f}", f"{-shift * size:.1f}", f"{0.78 * size:.1f}"
        index = rf'<tspan dy="{down}" font-size="{small}">\1</tspan><tspan dy="{up}">\2</tspan>'
        words = re.sub(rf"\{mark}(\w+)([^\w^_]?)", index, words)
    return f'<text x="{x}" y="{y}" text-anchor="middle" font-size="{size}" fill="{colours.text}"{style}>{words}</text>'


def box(colours: Palette, x: int, y: int, w: int, h: int, fill: str, *lines: str) -> str:
    """Return a box with centred lines, the first one bold."""
    shape = f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="8" fill="{fill}" stroke="{colours.line}"/>'
    top = y + h / 2 - 10 * (len(lines) - 1) + 4
    parts = [text(colours, x + w / 2, top, lines[0], 14, ' font-weight="bold"')]
    parts += [text(colours, x + w / 2, top + 20 * number, line) for number, line in enumerate(lines[1:], 1)]
    return "\n".join([shape, *parts])


def arrow(colours: Palette, *points: tuple[int, int], dashed: bool = False) -> str:
    """Return an arrow through the points."""
    style = ' stroke-dasharray="5 4"' if dashed else ""
    path = " L".join(f"{x} {y}" for x, y in points)
    return f'<path d="M{path}" stroke="{colours.line}" stroke-width="1.5" fill="none" marker-end="url(#tip)"{style}/>'


def overview(colours: Palette) -> str:
    """Return the overview as SVG."""
    c = colours
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{c.line}"/></marker></defs>',
        box(c, 20, 14, 200, 56, c.frozen, "hand-crafted prompt t_0", "“a photo of a {class}.”"),
        box(c, 20, 96, 200, 56, c.frozen, "image", "encoded by the frozen CLIP"),
        box(c, 20, 178, 200, 56, c.learned, "learned prompt t_1", "[ctx_1 … ctx_M] {class}."),
        box(c, 280, 24, 140, 46, c.frozen, "similarities s_0"),
        box(c, 280, 178, 140, 46, c.frozen, "similarities s_1"),
        box(
            c, 480, 68, 250, 104, c.learned,
            "mixture",
            "trained classes: (1 - π^in) s_0 + π^in s_1",
            "other classes: (1 - π^out) s_0 + π^out s_1",
        ),
        box(c, 774, 96, 90, 48, c.frozen, "prediction"),
        box(c, 230, 278, 220, 58, c.loss, "CoA-loss", "cross-entropy + w (1 - p(label))"),
        box(
            c, 480, 258, 384, 78, c.loss,
            "CoA-weights",
            "π^in: cross-entropy of the mixture",
            "π^out: less confident than t_0 about out-classes",
        ),
        arrow(c, (220, 45), (278, 45)),
        arrow(c, (220, 114), (302, 72)),
        arrow(c, (220, 134), (302, 176)),
        arrow(c, (220, 204), (278, 204)),
        arrow(c, (420, 47), (478, 92)),
        arrow(c, (420, 201), (478, 150)),
        arrow(c, (730, 120), (772, 120)),
        arrow(c, (350, 224), (350, 276)),
        arrow(c, (230, 307), (120, 307), (120, 236), dashed=True),
        arrow(c, (605, 258), (605, 174), dashed=True),
        text(c, 175, 298, "trains", style=' font-style="italic"'),
        text(c, 628, 220, "trains", style=' font-style="italic"'),
        "</svg>",
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    for suffix, palette in PALETTES.items():
        Path(sys.argv[1], f"overview{suffix}.svg").write_text(overview(palette), encoding="utf-8")
