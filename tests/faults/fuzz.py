"""A seeded fuzzer over every kind of file that the project reads, and its command lines.

    python -m tests.faults.fuzz --seed 0 --inputs 20000

damages valid files and reads each as the project does. Bad input must end in a UserError of few words: any other
exception, a reader that does not end, and a message of pages are faults. It prints a line for each target and the first
faults, and ends with status 1 if there is one. `--only NAME --input NUMBER` runs one input again, with its traceback.
To add a target, add a class to targets.py or torch_targets.py: a name, a form, samples and `read`.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import io
import os
import re
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from cocoamix.errors import UserError

from .forms import Form, Text

SECONDS = 10.0  # a reader that takes longer hangs
MOST_LETTERS = 500  # of a message
_KINDS = ("missing", "folder", "pipe", "empty", "loop", "valid")  # inputs that are not just damaged content


class Target:
    """A kind of file, and how the project reads it."""

    name = ""
    file = "input"  # its name, which readers may interpret
    form: Form = Text()
    share = 1.0  # share of the inputs, relative to other targets
    patience = 1.0  # factor on the time limit

    def __init__(self, folder: Path) -> None:
        """Prepare what all inputs share, in a folder that exists as long as the target."""
        self.folder = folder

    def samples(self) -> Sequence[Any]:
        """Return valid contents."""
        raise NotImplementedError

    def read(self, path: Path) -> object:
        """Read a file as the project does."""
        raise NotImplementedError

    def place(self, random: Random, path: Path, sample: Any) -> None:
        """Write an input at `path`."""
        if random.random() < 0.98:
            path.write_bytes(self.form.damage(random, sample))
            return
        kind = random.choice(_KINDS)
        if kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "loop":
            path.symlink_to(path)
        elif kind in ("empty", "valid"):
            path.write_bytes(b"" if kind == "empty" else self.form.write(sample))


class HangError(BaseException):
    """A reader hangs. Not an Exception, which the reader might catch."""


@contextlib.contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raise HangError after some seconds."""

    def ring(*_: object) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    # Native code does not react to signals: then the whole process ends here, with a traceback.
    faulthandler.dump_traceback_later(3 * seconds, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_input(target: Target, seed: int, number: int, tell: bool = False) -> tuple[str, str]:
    """Create one input and read it. Returns accepted, refused or fault, and a description of the fault."""
    random = Random(f"{seed}:{target.name}:{number}")
    folder = Path(tempfile.mkdtemp(dir=target.folder))
    path = folder / target.file
    quiet = contextlib.ExitStack()
    try:
        samples = target.samples()
        target.place(random, path, samples[random.randrange(len(samples))])
        if not tell:
            quiet.enter_context(contextlib.redirect_stdout(io.StringIO()))
            quiet.enter_context(contextlib.redirect_stderr(io.StringIO()))
            quiet.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
        with quiet, limit(SECONDS * target.patience):
            target.read(path)
        return "accepted", ""
    except UserError as error:
        message = str(error).replace(str(folder), "")
        if tell:
            print(f"refused: {message}")
        if len(message) > MOST_LETTERS:
            return "fault", f"a message of {len(message)} letters: {message[:150]!r}"
        if re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", message):
            return "fault", f"a message of control characters: {message[:150]!r}"
        return "refused", ""
    except HangError:
        return "fault", f"no end within {SECONDS:g} s\n{_place(sys.exc_info()[2])}"
    except (Exception, SystemExit) as error:
        if tell:
            traceback.print_exc()
        return "fault", f"{type(error).__name__}: {str(error)[:150]!r} {_place(error.__traceback__)}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _place(trace: Any) -> str:
    """Return the last line of the project's own code in a traceback."""
    frames = [one for one in traceback.extract_tb(trace) if "/tests/faults/" not in one.filename]
    ours = [one for one in frames if "site-packages" not in one.filename and "/lib/python" not in one.filename]
    return f"at {Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""


def fuzz(targets: Sequence[Target], seed: int, inputs: int) -> tuple[dict[str, Counter[str]], list[str]]:
    """Run this many inputs over all targets. Returns the counts of each, and the faults, each kind once per target."""
    counts: dict[str, Counter[str]] = {}
    faults: dict[str, str] = {}
    whole = sum(target.share for target in targets)
    for target in targets:
        counter = counts[target.name] = Counter()
        for number in range(round(inputs * target.share / whole)):
            kind, fault = run_input(target, seed, number)
            counter[kind] += 1
            if fault:
                where = fault.rsplit(" at ", 1)[-1] if " at " in fault else fault[:40]
                faults.setdefault(f"{target.name}{where}", f"{target.name} --input {number}: {fault}")
    return counts, list(faults.values())


def table(counts: dict[str, Counter[str]]) -> str:
    """Return the counts as a table."""
    kinds = ("inputs", "accepted", "refused", "fault")
    lines = [f"{'target':<24}" + "".join(f"{kind:>10}" for kind in kinds)]
    for name, counter in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        numbers = [counter.total(), *(counter[kind] for kind in kinds[1:])]
        lines.append(f"{name:<24}" + "".join(f"{number:>10}" for number in numbers))
    return "\n".join(lines)


@contextlib.contextmanager
def all_targets(only: str = "") -> Iterator[list[Target]]:
    """Yield every target, or one, each in its own folder."""
    from . import targets, torch_targets

    kinds = [one for module in (targets, torch_targets) for one in module.TARGETS if only in ("", one.name)]
    with tempfile.TemporaryDirectory(prefix="cocoamix-fuzz-") as folder:
        found = []
        for kind in kinds:
            own = Path(folder, kind.name.replace(" ", "-"))
            own.mkdir()
            with contextlib.redirect_stdout(io.StringIO()):
                found.append(kind(own))
        yield found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the fuzzer and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--inputs", type=int, default=20000, help="over all targets")
    parser.add_argument("--only", default="", metavar="NAME", help="one target")
    parser.add_argument("--input", type=int, metavar="NUMBER", help="with --only: one input, with its traceback")
    args = parser.parse_args(argv)
    with all_targets(args.only) as targets:
        if not targets:
            parser.error(f"there is no target {args.only!r}")
        if args.input is not None:
            print(*run_input(targets[0], args.seed, args.input, tell=True))
            return 0
        counts, faults = fuzz(targets, args.seed, args.inputs)
    print(table(counts))
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
