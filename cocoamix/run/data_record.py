"""Which images a run used, as hashes: whether a result is of the data that is there now.

Names are relative to the data root, so the same images under another root are the same data. Where only the times of
files differ, their contents decide. This module imports neither torch nor the datasets.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cocoamix.errors import UserError
from cocoamix.io.digest_cache import DigestCache
from cocoamix.io.plain import MismatchError, read_fields
from cocoamix.io.progress import progress

_READERS = 4  # threads that read files
_AT_ONCE = 512  # files whose digests are kept together: what a killed run loses
_BLOCK = 1 << 20


def _about(words: str) -> dict[str, str]:
    return {"about": words}


@dataclass(frozen=True)
class DataRecord:
    """The images of a split. Each hash covers all of them, in the order of their paths relative to the data root."""

    images: int = field(metadata=_about("number of images"))
    labels: str = field(metadata=_about("hash of their paths, labels and class names"))
    sizes: str = field(metadata=_about("hash of the sizes of their files"))
    times: str = field(metadata=_about("hash of the modification times of their files"))
    contents: str = field(metadata=_about("hash of the contents of their files, or of what drawn images depend on"))


@dataclass(frozen=True)
class RunData:
    """`data`: the images of the run, to see whether they have changed since. It is not part of the fingerprint."""

    evaluated: DataRecord = field(metadata=_about("the evaluated images"))
    training: DataRecord | None = field(
        default=None,
        metadata=_about(
            "the training images after the few-shot draw, with the validation images of `best_val`; in an evaluation, "
            "those of the checkpoint"
        ),
    )


class Scan:
    """The statuses and digests of files, each looked up once for all runs of a plan."""

    def __init__(self) -> None:
        self._statuses: dict[str, tuple[int, int]] = {}
        self._digests: dict[str, str] = {}
        self._cache = DigestCache()

    def status(self, path: str) -> tuple[int, int]:
        """Return the size and the modification time of a file, in nanoseconds; -1 and 0 if it is not a file."""
        found = self._statuses.get(path)
        if found is None:
            try:
                status = os.stat(path)
                found = (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else (-1, 0)
            except (OSError, ValueError):  # missing; the run itself reports it
                found = (-1, 0)
            self._statuses[path] = found
        return found

    def digests(self, paths: Sequence[str]) -> list[str]:
        """Return a hash of the content of each file. A file is read once on this machine until it changes."""
        unknown = [path for path in dict.fromkeys(paths) if path not in self._digests]
        self._digests.update(self._cache.read({path: self.status(path) for path in unknown}))
        missing = [path for path in unknown if path not in self._digests]
        parts = [missing[start : start + _AT_ONCE] for start in range(0, len(missing), _AT_ONCE)]
        with ThreadPoolExecutor(_READERS) as pool:
            for part in progress(parts, len(parts), "hashing images"):
                digests = dict(zip(part, pool.map(_digest, part), strict=True))
                self._digests.update(digests)
                self._cache.write({path: (self.status(path), digest) for path, digest in digests.items() if digest})
        return [self._digests[path] for path in paths]


def _digest(path: str) -> str:
    """Return a hash of a file's content; empty if it cannot be read."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a named pipe would wait for a writer
            return ""
        with open(path, "rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except (OSError, ValueError):
        return ""
    return digest.hexdigest()


class _Now:
    """A record of items that computes each of its values when it is needed, because reading files is slow."""

    def __init__(self, items: Sequence[Any], root: str, scan: Scan | None) -> None:
        self.images, self._scan = len(items), scan or Scan()
        above = os.path.join(os.path.abspath(os.path.expanduser(root)), "") if root else ""
        rows = sorted(_describe(item, above) for item in items)
        self._names = [name for name, _, _ in rows]
        self._files = [file for _, file, _ in rows]
        self._identities = [identity for _, _, identity in rows if identity]

    @cached_property
    def labels(self) -> str:
        return _hash(self._names)

    @cached_property
    def sizes(self) -> str:
        return _hash(map(str, (size for size, _ in self._statuses)))

    @cached_property
    def times(self) -> str:
        return _hash([*map(str, (time for _, time in self._statuses)), *self._identities])

    @cached_property
    def contents(self) -> str:
        files = list(filter(None, self._files))
        return _hash([*self._scan.digests(files), *self._identities])

    @cached_property
    def _statuses(self) -> list[tuple[int, int]]:
        return [self._scan.status(file) for file in self._files if file]

    def record(self) -> DataRecord:
        return DataRecord(self.images, self.labels, self.sizes, self.times, self.contents)


def _describe(item: Any, above: str) -> tuple[str, str, str]:
    """Return the name and label of an item, the file that holds its image, and the identity of a drawn image.

    Args:
        item: The item.
        above: The data root with a separator at its end.
    """
    path = str(item.impath)
    name = path[len(above) :] if above and path.startswith(above) else path
    name = f"{name.replace(os.sep, '/')}\0{item.label}\0{item.classname}"
    archive = getattr(item, "archive", None)
    if archive is not None:  # one of many images in a file
        return name, str(archive), ""
    identity = getattr(item, "identity", None)
    return (name, path, "") if identity is None else (name, "", str(identity))


def _hash(lines: Iterable[str]) -> str:
    # Names of files may hold bytes that are not UTF-8.
    return hashlib.blake2b("\n".join(lines).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


# ---------------------------------------------------------------------- records and their comparison


def record(items: Sequence[Any], root: str, scan: Scan | None = None) -> DataRecord:
    """Return the record of some items.

    Args:
        items: The items, as Dassl's `Datum`. One that draws its image has an `identity`; one of the images in a larger
            file has that file as its `archive`.
        root: The data root, DATASET.ROOT.
        scan: What other records of the same plan have looked up.
    """
    return _Now(items, root, scan).record()


def difference(then: DataRecord, items: Sequence[Any], root: str, scan: Scan | None = None) -> str:
    """Describe how items differ from those of a record in a few words; empty if they are the same data.

    Files are only read if their times alone differ. The arguments are as in `record`.
    """
    return _difference(then, _Now(items, root, scan))


def _difference(then: DataRecord, now: DataRecord | _Now) -> str:
    if then.images != now.images:
        return f"{then.images:,} images then, {now.images:,} now"
    if then.labels != now.labels:
        return "images of other names or labels"
    if then.sizes != now.sizes:
        return "images of other sizes"
    if then.times != now.times and then.contents != now.contents:
        return "images of other contents"
    return ""


# ---------------------------------------------------------------------- the data of a run


def record_run(cfg: Any, dataset: Any, trains: bool) -> RunData:
    """Return the data of a run.

    Args:
        cfg: Its configuration.
        dataset: Its dataset, with the attributes of Dassl's `DatasetBase`.
        trains: Whether it trains, rather than only evaluates.
    """
    scan, root = Scan(), cfg.DATASET.ROOT
    training = record(_training_items(cfg, dataset), root, scan) if trains else None
    return RunData(record(_evaluated_items(cfg, dataset), root, scan), training)


def run_difference(then: RunData, cfg: Any, dataset: Any, scan: Scan | None = None, trains: bool = True) -> str:
    """Describe how the data of a run differ from those of results; empty if they are the same.

    Args:
        then: The data of the results.
        cfg: The configuration of the run.
        dataset: Its dataset.
        scan: What has been looked up for other runs.
        trains: Whether it trains. The training images of an evaluation are those of its checkpoint.
    """
    scan, root = scan or Scan(), cfg.DATASET.ROOT
    evaluated = difference(then.evaluated, _evaluated_items(cfg, dataset), root, scan)
    if evaluated or not trains or then.training is None:
        return evaluated and f"evaluation: {evaluated}"
    training = difference(then.training, _training_items(cfg, dataset), root, scan)
    return training and f"training: {training}"


def check_same(then: RunData | None, now: RunData, folder: str) -> None:
    """Refuse to go on in a folder whose run is of other data: its result would belong to neither.

    Args:
        then: The data of the run in the folder; None if they are not recorded.
        now: The data of this run.
        folder: The folder.
    """
    if then is None:
        return
    pairs = {"evaluation": (then.evaluated, now.evaluated), "training": (then.training, now.training)}
    for part, (before, after) in pairs.items():
        other = _difference(before, after) if before and after else ""
        if other:
            raise UserError(
                f"{folder} holds a run on other data ({part}: {other}). Choose another --output-dir, or delete that "
                "folder to start again."
            )


def parse(node: object, path: Path | str) -> RunData | None:
    """Return the data in a plain object of a file; None if there is none. `path` is the file, for messages."""
    try:
        return None if node is None else RunData(**read_fields(RunData, node, "data"))
    except MismatchError as error:
        raise UserError(f"{path} is damaged: {error}. Restore it, or delete it to start again.") from error


def _evaluated_items(cfg: Any, dataset: Any) -> list[Any]:
    return list((dataset.val if cfg.TEST.SPLIT == "val" else dataset.test) or ())


def _training_items(cfg: Any, dataset: Any) -> list[Any]:
    selecting = dataset.val if cfg.TEST.FINAL_MODEL == "best_val" else ()
    return [*dataset.train_x, *(selecting or ())]
