"""Read a log of CoOp or of code derived from it: arguments, configuration, results."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from cocoamix.config.settings import literal
from cocoamix.io.texts import read_bytes

FINISHED = re.compile(rb"^[^\S\n]*Finish(?:ed)? training[^\S\n]*\r?$", re.MULTILINE)
RESULT = re.compile(rb"^[^\S\n]*=> result", re.MULTILINE)

_METRIC = re.compile(rb"^[^\S\n]*\* ?(\w+): ([-+.,\deE]+|[-+]?(?:nan|inf))(%?)[^\S\n]*\r?$", re.MULTILINE)
_EPOCH = re.compile(rb"epoch:? \[(\d+)/(\d+)\]")
# CoOp's print_args writes each heading between two lines of stars; the content begins below the second.
_ARGUMENTS = re.compile(rb"^\*+ ?Arguments ?\*+[^\S\n]*\n(?:\*+[^\S\n]*\n)?", re.MULTILINE)
_CONFIG = re.compile(rb"^\*+ ?Config ?\*+[^\S\n]*\n(?:\*+[^\S\n]*\n)?", re.MULTILINE)
_AFTER = re.compile(rb"^(?:\*|Collecting env)", re.MULTILINE)
_KEY = re.compile(r"^( *)([A-Za-z_][\w.]*):(?: (.*))?$")


@dataclass
class Log:
    """The content of a log."""

    arguments: dict[str, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)  # dotted keys
    metrics: dict[str, float] = field(default_factory=dict)
    unfinished: str = ""  # why there is no result

    @property
    def evaluates_only(self) -> bool:
        """Whether the run only evaluated a trained model."""
        return self.arguments.get("eval_only") == "True"


def list_logs(folder: Path, names: list[str]) -> list[Path]:
    """Return the logs of a run, oldest first: Dassl writes log.txt, and log.txt-<time> when that exists."""
    return [folder / name for name in sorted(names) if re.match(r"^log\.txt(?:-[\d\-_:T]+)?$", name)]


def read_log(path: Path) -> Log:
    """Read a log. The last results after the end of training count, as in CoOp's parser."""
    content = read_bytes(path)
    log = Log(_arguments(content), _config(content))
    likely = content.find(b"Finish")  # much faster than a pattern on a log of several megabytes
    finished = FINISHED.search(content, likely) if likely >= 0 else None
    epochs = _EPOCH.findall(content) if finished is None and not log.evaluates_only else []
    if epochs:
        epoch, last = (int(number) for number in epochs[-1])
        log.unfinished = f"training stopped in epoch {epoch} of {last}"
        return log
    # A log without epochs, end of training and arguments may be that of an evaluation: a result follows `=> result`.
    metrics = _last_results(content, finished.end() if finished else 0)
    if "accuracy" not in metrics:
        log.unfinished = _why_unfinished(content, finished is not None)
    elif not finished and log.arguments.get("eval_only") == "False":
        # They may be from any step: validation, or the sessions of class-incremental learning.
        log.unfinished = (
            "the line 'Finish training' is missing, so its results are from an unknown step of the training"
        )
    else:
        log.metrics = metrics
    return log


def _why_unfinished(content: bytes, trained: bool) -> str:
    if trained:
        return "training finished, but the evaluation did not"
    return "the log ends before the first epoch or result" if content.strip() else "the log is empty"


def _last_results(content: bytes, start: int) -> dict[str, float]:
    """Return the metrics after the last `=> result` from `start` on."""
    marks = [match.end() for match in RESULT.finditer(content, start)]
    metrics: dict[str, float] = {}
    for match in _METRIC.finditer(content, marks[-1] if marks else start):
        if match.group(1) == b"accuracy" and not match.group(3):
            continue  # the log was cut within the number
        try:
            metrics[match.group(1).decode()] = float(match.group(2).replace(b",", b""))
        except ValueError:
            continue
    return _exact(metrics)


def _exact(metrics: dict[str, float]) -> dict[str, float]:
    """Replace a rounded accuracy by the quotient of the printed counts."""
    total, correct, printed = (metrics.get(key) for key in ("total", "correct", "accuracy"))
    if total and correct is not None and printed is not None:
        exact = 100 * correct / total
        if abs(exact - printed) <= 0.051:  # otherwise the counts belong to something else
            metrics["accuracy"] = exact
    return metrics


def _arguments(content: bytes) -> dict[str, str]:
    lines = _below(content, _ARGUMENTS, 20_000).splitlines()
    matches = [match for line in lines if (match := _KEY.match(line)) and not match.group(1)]
    return {match.group(2): (match.group(3) or "").strip() for match in matches}


def _config(content: bytes) -> dict[str, Any]:
    """Return the printed configuration with dotted keys. yacs prints a plain subset of YAML."""
    flat: dict[str, Any] = {}
    above: list[tuple[int, str]] = []  # indents and keys of the sections around a line
    # Dassl's own configuration has about 4,000 characters.
    for line in _below(content, _CONFIG, 60_000).splitlines():
        match = _KEY.match(line)
        if match is None:
            continue
        indent, key, value = len(match.group(1)), match.group(2), match.group(3)
        while above and above[-1][0] >= indent:
            above.pop()
        if value is None:
            above.append((indent, key))
        else:
            flat[".".join([*(name for _, name in above), key])] = parse_value(value.strip())
    return flat


def _below(content: bytes, heading: re.Pattern[bytes], most: int) -> str:
    """Return the text below a heading, up to the next one."""
    mark = heading.search(content)
    if mark is None:
        return ""
    end = _AFTER.search(content, mark.end(), mark.end() + most)
    return content[mark.end() : end.start() if end else mark.end() + most].decode(errors="replace")


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
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf  # a number of hundreds of digits, which the reader refuses
    return value
