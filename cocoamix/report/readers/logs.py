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

_EVALUATED = re.compile(rb"Evaluate on the \*(\w+)\* set")
_METRIC = re.compile(rb"^[^\S\n]*\* ?(\w+): ([-+.,\deE]+|[-+]?(?:nan|inf))%?[^\S\n]*\r?$", re.MULTILINE)
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
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)  # by subset: base and new, or "" for all
    unfinished: str = ""  # why there is no result, or what is missing

    @property
    def evaluates_only(self) -> bool:
        """Whether the run only evaluated a trained model."""
        return self.arguments.get("eval_only") == "True"


def list_logs(folder: Path, names: list[str]) -> list[Path]:
    """Return the logs of a run, oldest first: Dassl writes log.txt, and log.txt-<time> when that exists."""
    return [folder / name for name in sorted(n for n in names if re.match(r"^log\.txt(?:-[\d\-_:T]+)?$", n))]


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
    start = finished.end() if finished else 0
    found = _results(content, start, transductive=log.config.get("TRAINER.MODAL") == "base2novel")
    if found and not finished and log.arguments.get("eval_only") == "False":
        # They may be from any step: validation, or the sessions of class-incremental learning.
        count = len(RESULT.findall(content)) or 1
        results = "1 result is" if count == 1 else f"{count} results are"
        log.unfinished = f"the line 'Finish training' is missing, so its {results} from an unknown step of the training"
        return log
    log.metrics = {split: metrics for split, metrics in found.items() if "accuracy" in metrics}
    lacking = [split for split in found if split and split not in log.metrics]
    if log.metrics and lacking:
        log.unfinished = f"the result on {' and '.join(lacking)} classes has no accuracy"
    elif not log.metrics:
        if finished:
            log.unfinished = "training finished, but the evaluation did not"
        elif content.strip():
            log.unfinished = "the log ends before the first epoch or result"
        else:
            log.unfinished = "the log is empty"
    return log


def _results(content: bytes, start: int, transductive: bool) -> dict[str, dict[str, float]]:
    """Return the last metrics from `start` on.

    PromptKD evaluates base classes as *val* and new classes as *test* of one run, base possibly before training ends.
    """
    if not transductive:
        block = _last_block(content, start, len(content))
        return {"": block} if block else {}
    found: dict[str, dict[str, float]] = {}
    marks = list(_EVALUATED.finditer(content))
    for mark, after in zip(marks, [*marks[1:], None], strict=True):
        end = after.start() if after else len(content)
        block = _last_block(content, mark.end(), end)
        if block:
            found["base" if mark.group(1) == b"val" else "new"] = block
    return found


def _last_block(content: bytes, start: int, end: int) -> dict[str, float]:
    """Return the metrics after the last `=> result` in a part of a log."""
    marks = [match.end() for match in RESULT.finditer(content, start, end)]
    metrics: dict[str, float] = {}
    for match in _METRIC.finditer(content, marks[-1] if marks else start, end):
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
    mark = _ARGUMENTS.search(content)
    if mark is None:
        return {}
    arguments = {}
    for line in _below(content, mark, 20_000).splitlines():
        match = _KEY.match(line)
        if match is not None and not match.group(1):
            arguments[match.group(2)] = (match.group(3) or "").strip()
    return arguments


def _below(content: bytes, heading: re.Match[bytes], most: int) -> str:
    """Return the text below a heading, up to the next one."""
    end = _AFTER.search(content, heading.end(), heading.end() + most)
    return content[heading.end() : end.start() if end else heading.end() + most].decode(errors="replace")


def _config(content: bytes) -> dict[str, Any]:
    """Return the printed configuration with dotted keys. yacs prints a plain subset of YAML."""
    mark = _CONFIG.search(content)
    if mark is None:
        return {}
    flat: dict[str, Any] = {}
    above: list[tuple[int, str]] = []  # indents and keys of the sections around a line
    # Dassl's own configuration has about 4,000 characters.
    for line in _below(content, mark, 60_000).splitlines():
        match = _KEY.match(line)
        if match is None:
            continue
        indent, key, value = len(match.group(1)), match.group(2), match.group(3)
        while above and above[-1][0] >= indent:
            above.pop()
        dotted = ".".join([*(name for _, name in above), key])
        if value is None:
            above.append((indent, key))
        else:
            flat[dotted] = parse_value(value.strip())
    return flat


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
            return math.inf  # a number of hundreds of digits, which `refuse_damaged` refuses
    return value
