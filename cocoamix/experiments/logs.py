"""Read a log of CoOp or of code derived from it: arguments, configuration, results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from cocoamix.config.settings import literal
from cocoamix.io.texts import read_bytes

# Patterns that begin with fixed text are fast on a log of several megabytes.
FINISHED = re.compile(rb"Finish(?:ed)? training[^\S\n]*$", re.MULTILINE)
RESULT = re.compile(rb"=> result")

_METRIC = re.compile(rb"^[^\S\n]*\* ?(\w+): ([-+.,\deE]+|[-+]?(?:nan|inf))(?:%|[^\S\n]*\n)", re.MULTILINE)
_EPOCH = re.compile(rb"epoch:? \[(\d+)/(\d+)\]")
_KEY = re.compile(r"( *)([A-Za-z_][\w.]*):(?: (.*))?")
_HEAD = 80_000  # bytes that hold the arguments and the configuration, which is about 4,000 characters


@dataclass
class Log:
    """The content of a log."""

    arguments: dict[str, Any]
    config: dict[str, Any]  # dotted keys
    metrics: dict[str, float]
    unfinished: str = ""  # why there is no result

    @property
    def evaluates_only(self) -> bool:
        """Whether the run only evaluated a trained model."""
        return self.arguments.get("eval_only") is True


def list_logs(folder: Path, names: list[str]) -> list[Path]:
    """Return the logs of a run, oldest first: Dassl writes log.txt, and log.txt-<time> when that exists."""
    return [folder / name for name in sorted(names) if re.fullmatch(r"log\.txt(-[\d\-_:T]+)?", name)]


def read_log(path: Path) -> Log:
    """Read a log. The last results after the end of training count, as in CoOp's parser."""
    content = read_bytes(path)
    settings = _settings(content[:_HEAD].decode(errors="replace"))
    finished = FINISHED.search(content)
    start = max(content.rfind(b"=> result"), finished.end() if finished else 0)
    log = Log(settings["Arguments"], settings["Config"], _metrics(content[start:]))
    epochs = _EPOCH.findall(content) if finished is None and not log.evaluates_only else []
    if epochs:
        epoch, last = (int(number) for number in epochs[-1])
        log.unfinished = f"training stopped in epoch {epoch} of {last}"
    elif "accuracy" not in log.metrics:
        before = "training finished, but" if finished else "it ends before the first epoch, or"
        log.unfinished = f"{before} the evaluation did not finish"
    elif not finished and log.arguments.get("eval_only") is False:
        # They may be from any step: validation, or the sessions of class-incremental learning.
        log.unfinished = "the line 'Finish training' is missing, so its results may be from any step of the training"
    return log


def _metrics(content: bytes) -> dict[str, float]:
    """Return the last value of each metric. A number at the very end of a log may be cut."""
    metrics: dict[str, float] = {}
    for name, number in _METRIC.findall(content):
        try:
            metrics[name.decode()] = float(number.replace(b",", b""))
        except ValueError:
            continue
    if metrics.get("total") and {"correct", "accuracy"} <= metrics.keys():
        exact = 100 * metrics["correct"] / metrics["total"]
        if abs(exact - metrics["accuracy"]) <= 0.051:  # otherwise the counts belong to something else
            metrics["accuracy"] = exact  # logs round it to one decimal
    return metrics


def _settings(text: str) -> dict[str, dict[str, Any]]:
    """Return the printed arguments and configuration with dotted keys. yacs prints a plain subset of YAML."""
    sections: dict[str, dict[str, Any]] = {"Arguments": {}, "Config": {}}
    current: dict[str, Any] = {}
    above: list[tuple[int, str]] = []  # indents and keys of the nodes around a line
    for line in text.splitlines():
        if line.startswith("Collecting env"):
            break
        if heading := line.strip("* ") if line.startswith("*") else "":  # between two lines of stars
            current = sections.get(heading, {})
        match = _KEY.fullmatch(line)
        if match is None:
            continue
        indent, key, value = len(match[1]), match[2], match[3]
        above = [(other, name) for other, name in above if other < indent]
        if value is None:
            above.append((indent, key))
        else:
            current[".".join([*(name for _, name in above), key])] = parse_value(value.strip())
    return sections


@lru_cache(maxsize=4096)
def parse_value(text: str) -> Any:
    """Parse a value of a printed configuration: a number, a boolean, a list or a word."""
    return canonical(literal(text))


def canonical(value: Any) -> Any:
    """Return a value in a form in which values from logs and from JSON compare equal."""
    if isinstance(value, (list, tuple)):
        return tuple(canonical(item) for item in value)
    if isinstance(value, set):
        return tuple(sorted(map(str, value)))
    if isinstance(value, Mapping):
        return tuple(sorted((str(key), canonical(item)) for key, item in value.items()))
    return value
