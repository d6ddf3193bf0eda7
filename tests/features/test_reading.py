"""Images as RGB: bit depth, orientation, and a reason if they cannot be read."""

from __future__ import annotations

import errno
import io
import os
import struct
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import EpsImagePlugin, Image, features

from cocoamix.clip import FrozenCLIP
from cocoamix.features import reading
from cocoamix.features.extract import FrozenFeatures, Source
from cocoamix.features.images import UNREADABLE, ImageItems
from cocoamix.features.reading import UnreadableError, image_identity, read_image, why_unreadable

RAMP = np.linspace(0, 65535, 64).round()
EIGHT_BITS = np.rint(RAMP / 257).astype(np.uint8)
HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"


def shades(path: Path, **how: Any) -> list[int]:
    pixels = np.asarray(read_image(str(path), **how))
    assert pixels.dtype == np.uint8
    assert (pixels == pixels[..., :1]).all()
    return [int(shade) for shade in pixels[..., 0].ravel()]


# ---------------------------------------------------------------------- depth


@pytest.mark.parametrize("name", ["a.png", "a.tif", "big.tif", "a.pgm", "a.jp2"])
def test_sixteen_bits_are_scaled_by_their_range(tmp_path: Path, name: str) -> None:
    values = RAMP.reshape(8, 8).astype(np.uint16)
    if name.endswith(".pgm"):
        (tmp_path / name).write_bytes(b"P5 8 8 65535\n" + values.astype(">u2").tobytes())
    else:
        mode = "I;16B" if name == "big.tif" else "I;16"
        raw = values.astype(">u2" if name == "big.tif" else "<u2").tobytes()
        Image.frombytes(mode, (8, 8), raw).save(tmp_path / name)
    assert shades(tmp_path / name) == EIGHT_BITS.tolist()


@pytest.mark.parametrize(
    ("mode", "values", "wanted"),
    [
        ("I", [0, 100, 255], [0, 100, 255]),  # 8-bit values in a 32-bit file
        ("I", [0, 257, 65535], [0, 1, 255]),
        ("I", [-1000, 0, 1000], [0, 128, 255]),  # no known range: that of the values is used
        ("I", [0, 1_000_000, 2_000_000], [0, 128, 255]),
        ("F", [0.0, 0.5, 1.0], [0, 128, 255]),
        ("F", [0.0, 7.0, 255.0], [0, 7, 255]),
        ("F", [-3.0, 0.0, 3.0], [0, 128, 255]),
        ("F", [300.0, 300.0, 300.0], [0, 0, 0]),
    ],
)
def test_thirty_two_bit_images_are_scaled(tmp_path: Path, mode: str, values: list[float], wanted: list[int]) -> None:
    kind = np.int32 if mode == "I" else np.float32
    Image.fromarray(np.array([values], dtype=kind)).save(tmp_path / "a.tif")
    assert shades(tmp_path / "a.tif") == wanted


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr"])
def test_eight_bit_images_match_pillow(tmp_path: Path, mode: str) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (9, 7, 3), dtype=np.uint8))
    path = tmp_path / ("a.tif" if mode in ("CMYK", "YCbCr") else "a.png")
    noise.convert(mode).save(path)
    with Image.open(path) as image:
        wanted = np.asarray(image.convert("RGB"))
    for upright in (False, True):
        assert (np.asarray(read_image(str(path), upright)) == wanted).all()


# ---------------------------------------------------------------------- orientation


@pytest.mark.parametrize("ending", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_matches_pillow(tmp_path: Path, ending: str, orientation: int) -> None:
    """Checked against Pillow's own function."""
    from PIL import ImageOps

    pixels = np.zeros((16, 32, 3), dtype=np.uint8)
    pixels[:8, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"a.{ending}"
    Image.fromarray(pixels).save(path, exif=exif)
    with Image.open(path) as image:
        as_stored, turned = image.convert("RGB"), ImageOps.exif_transpose(image).convert("RGB")
    assert (np.asarray(read_image(str(path), upright=True)) == np.asarray(turned)).all()
    assert (np.asarray(read_image(str(path))) == np.asarray(as_stored)).all()


def test_damaged_exif_data_is_ignored(tmp_path: Path) -> None:
    Image.new("RGB", (4, 2), (200, 10, 10)).save(tmp_path / "a.jpg", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert read_image(str(tmp_path / "a.jpg"), upright=True).size == (4, 2)


# ---------------------------------------------------------------------- unreadable files


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(kind: int, width: int, *chunks: bytes) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, width, 8, kind, 0, 0, 0))
    rows = chunk(b"IDAT", zlib.compress(bytes(min(width, 4) * (min(width, 4) + 1))))
    return b"".join([b"\x89PNG\r\n\x1a\n", header, *chunks, rows, chunk(b"IEND", b"")])


def avif_without_its_image() -> bytes:
    if not features.check("avif"):
        return b"AVIF"
    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, "AVIF")
    return file.getvalue().replace(b"pitm\0\0\0\0\0\x01", b"pitm\0\0\0\0\0\x07")


BAD = {
    "palette.png": (png(3, 4), "its palette is missing"),
    "clear.png": (png(3, 4, chunk(b"tRNS", b"\0")), "its palette is missing"),
    "texture.jpg": (b"DDS " + struct.pack("<I", 124) + bytes(120), "NotImplementedError: Unknown pixel format"),
    "broken.avif": (avif_without_its_image(), "Failed to decode"),
    "phone.heic": (HEIC, "it is a HEIC image: pip install pillow-heif"),
    "phone.jpg": (HEIC, "it is a HEIC image: pip install pillow-heif"),
    "empty.png": (b"", "the file is empty"),
    "text.png": (b"hello", "it is not an image, or its format is not read: save it as PNG or JPEG"),
    "bomb.png": (png(0, 20_000), "it has more than 178,956,970 pixels"),
}


@pytest.mark.parametrize("name", ["photo.jpg", "photo.eps"])
def test_a_postscript_file_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    program = tmp_path / "gs"
    program.write_text(f"#!/bin/sh\necho started >> '{tmp_path}/started'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # looked for once in a process
    Image.new("RGB", (8, 8), "red").save(tmp_path / name, "EPS")
    reason = why_unreadable(str(tmp_path / name))
    assert not (tmp_path / "started").exists()
    assert "PostScript" in reason


SAVED = ["AVIF", "BMP", "DIB", "GIF", "ICO", "JPEG", "JPEG2000", "MPO", "PCX", "PNG", "PPM", "TGA", "TIFF", "WEBP"]


@pytest.mark.parametrize("kind", SAVED)
def test_every_usual_format_is_read_under_any_name(tmp_path: Path, kind: str) -> None:
    Image.init()
    if kind not in Image.SAVE:
        pytest.skip(f"this Pillow has no {kind}")
    Image.new("RGB", (16, 16), "red").save(tmp_path / "a.jpg", kind)
    red, green, _ = read_image(str(tmp_path / "a.jpg")).getpixel((8, 8))  # type: ignore[misc]
    assert (red > 200, green < 50) == (True, True)


@pytest.mark.parametrize("name", BAD)
def test_check_and_training_give_the_same_reason(tmp_path: Path, name: str) -> None:
    if name == "broken.avif" and not features.check("avif"):
        pytest.skip("this Pillow does not read AVIF")
    content, reason = BAD[name]
    path = tmp_path / name
    path.write_bytes(content)
    assert reason in why_unreadable(str(path))
    items = ImageItems(None, [SimpleNamespace(impath=str(path), label=0, domain=0)])
    where, message = items[0][UNREADABLE]
    assert (where, reason in message) == (str(path), True)
    assert "\n" not in message
    assert "BytesIO" not in message


def test_image_bombs_are_refused_even_without_pillows_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    (tmp_path / "bomb.png").write_bytes(png(0, 20_000))
    assert "it has 400,000,000 pixels, more than 178,956,970" in why_unreadable(str(tmp_path / "bomb.png"))


def test_images_with_non_finite_values_are_unreadable(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0.0, np.nan]], dtype=np.float32)).save(tmp_path / "a.tif")
    assert why_unreadable(str(tmp_path / "a.tif")) == "some of its values are not finite"


def test_heic_package_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    stand_in = SimpleNamespace(register_heif_opener=lambda: called.append(True))
    monkeypatch.setitem(sys.modules, "pillow_heif", stand_in)
    (tmp_path / "a.heic").write_bytes(HEIC)
    with pytest.raises(UnreadableError):  # the stand-in reads nothing
        read_image(str(tmp_path / "a.heic"))
    assert called


# ---------------------------------------------------------------------- files that change


def test_store_keys_include_the_reading_method_only_where_it_changed(tmp_path: Path) -> None:
    """Features of images whose pixels are read as before stay in the store."""
    jpeg, deep = str(tmp_path / "a.jpg"), str(tmp_path / "a.png")
    for path in (jpeg, deep):
        Image.new("RGB", (2, 2)).save(path)
    status = os.stat(jpeg)
    assert image_identity(jpeg, upright=False) == f"{jpeg}|{status.st_size}|{status.st_mtime_ns}"
    assert len({image_identity(path, upright) for path in (jpeg, deep) for upright in (False, True)}) == 4
    assert image_identity(deep, upright=False) != reading.file_identity(deep)


def mean(image: Image.Image) -> torch.Tensor:
    return torch.full((3, 32, 32), float(np.asarray(image).mean()) / 255)


def test_changed_image_is_not_stored_under_its_old_key(
    tmp_path: Path, tiny_clip: FrozenCLIP, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is listed while black, replaced by a white one before it is read, and then the black one is restored."""
    path = tmp_path / "a.jpg"
    Image.new("RGB", (8, 8)).save(path)
    black, time = path.read_bytes(), os.stat(path).st_mtime_ns

    def load() -> torch.Tensor:
        items = ImageItems(None, [SimpleNamespace(impath=str(path), label=0, domain=0)], transform=mean)
        FrozenFeatures([tiny_clip], tmp_path / "store").load(Source(items, "Set/split", 1, 0), 0, 0)
        assert items.features is not None
        return items.features

    listed = Source.keys

    def replaced_afterwards(self: Source, view: int) -> list[bytes]:
        keys = listed(self, view)
        Image.new("RGB", (8, 8), "white").save(path)
        return keys

    with monkeypatch.context() as patched:
        patched.setattr(Source, "keys", replaced_afterwards)
        white = load()
    assert "1 images changed after this run listed them" in capsys.readouterr().out
    path.write_bytes(black)
    os.utime(path, ns=(time, time))
    first = load()
    assert not torch.equal(first, white)
    assert torch.equal(load(), first)
    assert "changed" not in capsys.readouterr().out


def test_a_file_that_is_being_written_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    Image.new("L", (2, 2), 9).save(path)
    real, calls = os.fstat, []

    def changing(descriptor: int) -> Any:
        calls.append(descriptor)
        status = real(descriptor)
        late = len(calls) <= limit
        return SimpleNamespace(st_size=len(calls) if late else status.st_size, st_mtime_ns=status.st_mtime_ns)

    monkeypatch.setattr(reading.os, "fstat", changing)
    limit = 2
    assert read_image(str(path)).getpixel((0, 0)) == (9, 9, 9)
    assert len(calls) == 4
    limit = 1000
    assert why_unreadable(str(path)) == "it changes while it is read"


def test_named_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    assert why_unreadable(str(tmp_path / "pipe.png")) == "it is not a file"


def test_system_errors_are_not_blamed_on_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With BAD_IMAGES skip, a healthy image would be skipped."""
    path = str(tmp_path / "a.png")
    Image.new("RGB", (4, 4)).save(path)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", refuse)
        for read in (why_unreadable, read_image):
            with pytest.raises(OSError, match="Too many open files"):
                read(path)
    monkeypatch.setattr(Image.Image, "load", lambda self: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(MemoryError):
        read_image(path)


def test_an_image_too_elongated_to_be_resized_is_unreadable(tmp_path: Path) -> None:
    Image.new("L", (1, 60_000)).save(tmp_path / "long.png")
    assert "too elongated to be resized" in why_unreadable(str(tmp_path / "long.png"))
