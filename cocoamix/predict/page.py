"""Predictions as one self-contained HTML page, without network access or other files."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import IO, Any

from cocoamix.errors import printable
from cocoamix.features.reading import read_image
from cocoamix.run.predictions import Record, as_json

from .short_names import short_name

_HERE = Path(__file__).parent
_SIDE = 160  # longest side of a thumbnail, in pixels
# The page may use its inline script, styles and images, and load nothing else.
_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'"
)
_FORM = """<form>
<label>Predicted<select name="predicted"><option value="">all</option></select></label>
<label class="labelled">Label<select name="label"><option value="">all</option></select></label>
<label>Confidence from, %<input name="least" type="number" min="0" max="100" value="0"></label>
<label>to, %<input name="most" type="number" min="0" max="100" value="100"></label>
<label>Order<select name="order"><option value="uncertain">most uncertain first</option>
<option value="certain">most certain first</option><option value="name">by name</option></select></label>
<label class="labelled">Mistakes only<input name="mistakes" type="checkbox"></label>
<button type="reset">Reset</button><output id="shown"></output>
</form>"""


class Page:
    """Writes a page image by image, so that thumbnails do not accumulate in memory."""

    def __init__(self, file: IO[str], title: str, lead: Sequence[str], upright: bool, above: str = "") -> None:
        """Begin the page.

        Args:
            file: The output file.
            title: Heading of the page.
            lead: Lines below the heading.
            upright: Whether to rotate images by their EXIF orientation.
            above: The folder that the shown names of images are relative to; empty for their paths as given.
        """
        self._file, self._separator, self._upright, self._above = file, "\n", upright, above
        self._unreadable: list[dict[str, Any]] = []
        title, lead = printable(title), [printable(line) for line in lead]
        css = (_HERE / "page.css").read_text(encoding="utf-8")
        paragraphs = "\n".join(f'<p class="lead">{escape(line)}</p>' for line in lead)
        file.write(
            f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n<link rel="icon" href="data:,">\n'
            f"<title>{escape(title)}</title>\n<style>\n{css}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
            f'{paragraphs}\n<ul id="summary"></ul>\n<section class="labelled"><h2>Confusion matrix</h2>\n'
            '<div id="matrix" class="scroll" tabindex="0" role="region" aria-label="Confusion matrix"></div>\n'
            "</section>\n"
            f'<h2>Images</h2>\n{_FORM}\n<ul id="images"></ul>\n'
            '<button id="more" type="button" hidden>Show more</button>\n'
            '<section id="unreadable" hidden><h2>Images that cannot be read</h2><ul></ul></section>\n'
            '<script id="data" type="application/json">{"images": ['
        )

    def add(self, record: Record) -> None:
        """Add an image."""
        content = as_json(record, printable)
        if self._above:
            content["name"] = short_name(record.image, self._above)
        if record.error:
            self._unreadable.append(content)
            return
        thumbnail = make_thumbnail(record.image, self._upright)
        if thumbnail:
            content["thumbnail"] = thumbnail
        self._file.write(self._separator + _in_script(content))
        self._separator = ",\n"

    def end(self, lines: Sequence[str]) -> None:
        """Finish the page; `lines` summarise the predictions at its top."""
        script = (_HERE / "page.js").read_text(encoding="utf-8")
        rest = f'"unreadable": {_in_script(self._unreadable)}, "summary": {_in_script(list(lines))}'
        self._file.write(f"\n], {rest}}}</script>\n<script>\n{script}</script>\n</body>\n</html>\n")


def _in_script(content: object) -> str:
    """Return JSON that cannot end the script element around it."""
    return json.dumps(content).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def make_thumbnail(path: str, upright: bool) -> str:
    """Return a thumbnail of an image file as a data URL; empty if it cannot be made."""
    try:
        image = read_image(path, upright)
        image.thumbnail((_SIDE, _SIDE))
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=80)
    except (OSError, ValueError):
        return ""
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
