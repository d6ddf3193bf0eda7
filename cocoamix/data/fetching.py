"""Download one file: resume an interrupted download, and check the checksum before the file gets its name."""

from __future__ import annotations

import hashlib
import http.client
import importlib
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from cocoamix.errors import UserError
from cocoamix.io.files import write_json
from cocoamix.io.progress import progress

CHUNK = 1 << 20
TRIES = 5  # in a row without receiving a single byte
WAIT = 1.0  # seconds after the first of these; doubled each time
TIMEOUT = 60.0
_INTERRUPTIONS = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)


def kind_of(checksum: str) -> str:
    """Return the kind of a checksum: SHA-256 or MD5."""
    return "SHA-256" if len(checksum) == 64 else "MD5"


def checksum_of(path: Path, kind: str) -> str:
    """Return the MD5 or SHA-256 of a file."""
    digest = hashlib.sha256() if kind == "SHA-256" else hashlib.md5(usedforsecurity=False)
    size = path.stat().st_size
    with path.open("rb") as file:
        chunks = iter(lambda: file.read(CHUNK), b"")
        for chunk in progress(chunks, max(1, -(-size // CHUNK)), f"checking {path.name}, MB"):
            digest.update(chunk)
    return digest.hexdigest()


def verify(path: Path, checksum: str, name: str) -> None:
    """Compare the checksum of a file, if one is published. A file with another checksum is renamed and refused."""
    kind = kind_of(checksum)
    found = checksum_of(path, kind) if checksum else ""
    if found != checksum:
        aside = path.with_name(f"{name}.wrong")
        os.replace(path, aside)
        raise UserError(
            f"{name} has the {kind} {found}, but {checksum} is published. It is kept as {aside} and not used: "
            "delete it, and try again or get the file elsewhere."
        )


def size_of(url: str) -> int:
    """Return the size that the server reports, or 0 if it reports none."""
    with suppress(OSError, http.client.HTTPException, ValueError):
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.headers.get("Content-Length", 0))
    return 0


def fetch(url: str, target: Path, checksum: str = "") -> None:
    """Download a file. An interrupted download, even of an earlier command, resumes where it ended."""
    if not url.startswith(("http://", "https://")):
        raise UserError(f"{url} is not an HTTP address.")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    failures = 0
    while True:
        before = _size(part)
        try:
            if _receive(url, part):
                break
            reason = "the connection was interrupted"
        except urllib.error.HTTPError as error:
            raise UserError(f"{url} returned {error.code} {error.reason}. See the dataset's home page.") from error
        except _INTERRUPTIONS as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        failures = 0 if _size(part) > before else failures + 1
        if failures == TRIES:
            raise UserError(
                f"{url} cannot be downloaded: {reason}. {_size(part):,} bytes are kept in {part}; "
                "the same command resumes from there."
            )
        if failures:
            time.sleep(WAIT * 2 ** (failures - 1))
    _marker(part).unlink(missing_ok=True)
    verify(part, checksum, target.name)
    os.replace(part, target)


def _receive(url: str, part: Path) -> bool:
    """Request the missing rest of a file and append it; return whether the file is complete."""
    have = _size(part)
    stamp = _stamp_of(part, url) if have else ""
    request = urllib.request.Request(url, headers={"User-Agent": "cocoamix", "Accept-Encoding": "identity"})
    if stamp:
        # A server that does not support this, or whose file has changed, sends the whole file.
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", stamp)
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416 and stamp:  # nothing is left to send, or the file is shorter now
            if error.headers.get("Content-Range", "").endswith(f"/{have}"):
                return True
            part.unlink()
            return False
        raise
    with answer:
        resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        start = have if resumed else 0
        length = answer.headers.get("Content-Length")
        whole = start + int(length) if length else 0
        write_json(_marker(part), {"url": url, "stamp": _stamp(answer.headers)})
        with part.open("ab" if resumed else "wb") as file:
            _copy(answer, file, whole - start, part.name.removesuffix(".part"))
        return not whole or _size(part) >= whole


def _copy(answer: Any, file: IO[bytes], length: int, name: str) -> None:
    def megabytes() -> Iterator[None]:
        received = 0
        while chunk := answer.read1(CHUNK):  # returns what has arrived, so that an interruption loses nothing
            file.write(chunk)
            received += len(chunk)
            while received >= CHUNK:
                received -= CHUNK
                yield

    for _ in progress(megabytes(), max(1, length // CHUNK), f"downloading {name}, MB"):
        pass


def _marker(part: Path) -> Path:
    """Return the file that records the address and the version of a partial download."""
    return part.with_name(f"{part.name}.json")


def _stamp(headers: Any) -> str:
    """Return a header that identifies this version of the file. A weak ETag is not valid for a part of a file."""
    tag = headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified", "")


def _stamp_of(part: Path, url: str) -> str:
    """Return the recorded version of a partial download; empty if it is unknown or of another address."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        marker = json.loads(_marker(part).read_text(encoding="utf-8"))
        if marker["url"] == url:
            return str(marker["stamp"])
    return ""


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def fetch_drive(identity: str, target: Path, checksum: str = "") -> None:
    """Download a file from Google Drive, through gdown."""
    try:
        gdown = importlib.import_module("gdown")
    except ImportError as error:
        raise UserError(
            f"{target.name} is on Google Drive, which needs the package gdown: pip install gdown. Or download "
            f"https://drive.google.com/file/d/{identity} in a browser and save it as {target}."
        ) from error
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    try:
        done = gdown.download(id=identity, output=str(part), resume=True)
    except Exception as error:  # gdown's own exceptions differ between its versions
        raise UserError(_drive_failed(identity, target, str(error))) from error
    if not done or not part.is_file():
        raise UserError(_drive_failed(identity, target, "see above"))
    verify(part, checksum, target.name)
    os.replace(part, target)


def _drive_failed(identity: str, target: Path, why: str) -> str:
    return (
        f"gdown could not download {target.name} ({why}). Google limits how often a file is downloaded: try later, or "
        f"download https://drive.google.com/file/d/{identity} in a browser and save it as {target}."
    )
