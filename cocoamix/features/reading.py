"""Reads image files as RGB: bytes are read once, deep images are scaled, and every failure has a reason.

Pillow converts images with 8 bits per channel. It would clip deeper ones to white, so these are scaled here.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import stat
from typing import IO

import numpy as np
from PIL import Image, UnidentifiedImageError

# The formats that are read, by Pillow's names. Pillow knows others that are no rasters: it would start Ghostscript for
# a PostScript file, whatever the file is called.
RASTER_FORMATS = (
    *("JPEG", "MPO", "PNG", "WEBP", "AVIF", "HEIF", "BMP", "DIB", "GIF", "TIFF", "PPM", "JPEG2000"),
    *("ICO", "ICNS", "CUR", "TGA", "PCX", "DCX", "DDS", "SGI", "SUN", "QOI", "XBM", "XPM", "MSP", "FITS"),
)
MAX_PIXELS = 178_956_970  # Pillow's limit, which a program may have lifted: a small file can expand to far more
MAX_ASPECT = 500  # largest ratio of the sides, because the shorter side is resized to the model's input
# Errors that are not the image's fault: it must not be skipped.
_SYSTEM_ERRNOS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE)
_TRIES = 3  # for a file that is being written
_LONGEST_REASON = 200

_ORIENTATION = 0x0112  # the EXIF tag
_TURNS = {  # the rotation that puts an image upright, by its EXIF orientation
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_MAY_BE_DEEP = (".png", ".tif", ".tiff", ".pgm", ".pnm", ".ppm", ".jp2", ".j2k")
_POSTSCRIPT = (b"%!PS", b"\xc5\xd0\xd3\xc6")
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")


class UnreadableError(ValueError):
    """An image cannot be read. The message is the reason."""


# ---------------------------------------------------------------------- files


def file_identity(path: str, status: os.stat_result | None = None) -> str:
    """Return the path, size and modification time of a file. `status` is its `os.stat`, if known."""
    path = os.path.abspath(path)
    try:
        status = status or os.stat(path)
    except OSError:  # reading the file will report the error
        return path
    return f"{path}|{status.st_size}|{status.st_mtime_ns}"


def image_identity(path: str, upright: bool, status: os.stat_result | None = None) -> str:
    """Return a string that changes with the pixels read from a file: the file and the way it is read.

    Features stored before deep images were scaled and images were rotated are keyed by the file alone. Images that need
    neither are still identified in that way, so that those features stay valid.
    """
    deep = "|scaled" if path.lower().endswith(_MAY_BE_DEEP) else ""
    return file_identity(path, status) + deep + ("|upright" if upright else "")


def read_file(path: str) -> tuple[bytes, os.stat_result]:
    """Return the bytes of a file and its status. A file that changes while it is read is read again."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # opening a named pipe would wait for a writer
        raise UnreadableError("it is not a file")
    for _ in range(_TRIES):
        with open(path, "rb") as file:
            before = os.fstat(file.fileno())
            content = file.read()
            after = os.fstat(file.fileno())
        if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
            return content, after
    raise UnreadableError("it changes while it is read")


# ---------------------------------------------------------------------- images


def read_image(path: str, upright: bool = False) -> Image.Image:
    """Read an image as RGB, or raise UnreadableError. `upright` rotates it by its EXIF orientation."""
    return read_identified(path, upright)[0]


def read_identified(path: str, upright: bool = False) -> tuple[Image.Image, str]:
    """Read an image as RGB, and return it with its identity at that time."""
    try:
        content, status = read_file(path)
    except OSError as error:
        if error.errno in _SYSTEM_ERRNOS:
            raise
        raise UnreadableError(error.strerror or str(error)) from error
    return decode(content, upright), image_identity(path, upright, status)


def why_unreadable(path: str) -> str:
    """Return why an image cannot be read; empty if it can be.

    A JPEG is decoded at an eighth of its size, which still reads the whole file, but in a fraction of the time.
    """
    try:
        decode(read_file(path)[0], small=True)
    except OSError as error:
        if error.errno in _SYSTEM_ERRNOS:
            raise
        return error.strerror or str(error)
    except UnreadableError as error:
        return str(error)
    return ""


def open_image(file: IO[bytes]) -> Image.Image:
    """Open an image of one of the raster formats. Use it instead of `Image.open`, which may start other programs."""
    Image.init()
    return Image.open(file, formats=[name for name in RASTER_FORMATS if name in Image.OPEN])


def decode(content: bytes, upright: bool = False, small: bool = False) -> Image.Image:
    """Return the image in the bytes of a file as RGB, or raise UnreadableError. `small` allows a reduced size."""
    _prepare(content)
    try:
        with open_image(io.BytesIO(content)) as image:
            _refuse_bombs(image)
            if small:
                image.draft("RGB", (32, 32))
            image.load()
            found = to_rgb(image)
            turn = _TURNS.get(_orientation(image)) if upright else None
    except (UnreadableError, MemoryError):
        raise
    except UnidentifiedImageError as error:
        raise UnreadableError(_unidentified(content)) from error
    except Image.DecompressionBombError as error:
        raise UnreadableError(f"it has more than {MAX_PIXELS:,} pixels; make it smaller") from error
    except Exception as error:  # a damaged file may raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        kind = "" if isinstance(error, (OSError, SyntaxError, ValueError)) else f"{type(error).__name__}: "
        raise UnreadableError((kind + reason)[:_LONGEST_REASON]) from error
    return found if turn is None else found.transpose(turn)


def _refuse_bombs(image: Image.Image) -> None:
    pixels = image.width * image.height
    if pixels > MAX_PIXELS:
        raise UnreadableError(f"it has {pixels:,} pixels, more than {MAX_PIXELS:,}; make it smaller")
    if max(image.size) > MAX_ASPECT * min(image.size):
        raise UnreadableError(f"it is {image.width} x {image.height} pixels, too elongated to be resized; crop it")


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged EXIF data are ignored, as in image viewers
        return 1


def to_rgb(image: Image.Image) -> Image.Image:
    """Return an image of any mode as RGB, with deep values scaled to 8 bits."""
    if image.mode.startswith("I;16"):
        return _scaled(image, 0, 65535)
    if image.mode == "P" and image.format == "PNG" and image.palette is None:
        raise UnreadableError("its palette is missing")  # Pillow would make it black
    if image.mode not in ("I", "F"):
        return image.convert("RGB")
    # The range of 32-bit modes is unknown, unless they are 16-bit images that Pillow widened.
    values = np.asarray(image)
    if not np.isfinite(values).all():
        raise UnreadableError("some of its values are not finite")
    low, high = float(values.min()), float(values.max())
    if image.mode == "I" and image.format in ("PNG", "PPM"):
        return _scaled(image, 0, 65535)
    for most in (1, 255) if image.mode == "F" else (255, 65535):
        if low >= 0 and high <= most:
            return image.convert("RGB") if most == 255 else _scaled(image, 0, most)
    return _scaled(image, low, high)


def _scaled(image: Image.Image, low: float, high: float) -> Image.Image:
    """Map values from [low, high] to [0, 255]."""
    values = np.asarray(image).astype(np.float64)
    share = (values - low) / (high - low) if high > low else np.zeros_like(values)
    return Image.fromarray(np.rint(share * 255).astype(np.uint8)).convert("RGB")


# ---------------------------------------------------------------------- formats that Pillow does not support by itself


def _is_heic(content: bytes) -> bool:
    return content[4:8] == b"ftyp" and content[8:12] in _HEIC_BRANDS


def _prepare(content: bytes) -> None:
    """Let Pillow read HEIC if the package for it is installed."""
    if _is_heic(content):
        try:
            importlib.import_module("pillow_heif").register_heif_opener()
        except ImportError:
            return


def _unidentified(content: bytes) -> str:
    if not content:
        return "the file is empty"
    if _is_heic(content):
        return "it is a HEIC image: pip install pillow-heif"
    if content.startswith(_POSTSCRIPT):
        return "it is a PostScript file, which is not read: save it as PNG"
    return "it is not an image, or its format is not read: save it as PNG or JPEG"
