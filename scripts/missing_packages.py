"""Name the packages of requirements.txt that this interpreter lacks. Uses the standard library alone.

python scripts/missing_packages.py                  the missing ones, on one line
python scripts/missing_packages.py --check-torch    fail if the interpreter has no torch, or one that is too old
python scripts/missing_packages.py --hold           constraints that keep its torch and torchvision
python scripts/missing_packages.py --stamp          a line that changes when .venv has to be installed again
"""

from __future__ import annotations

import hashlib
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HELD = ("torch", "torchvision")
OLDEST_TORCH = (2, 1)
# Modules that may come from another distribution, or whose names differ from that of the distribution.
MODULES = {"clip-anytorch": "clip", "open_clip_torch": "open_clip", "pillow": "PIL", "PyYAML": "yaml"}


def installed(package: str) -> str | None:
    """Return the version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def applies(marker: str) -> bool:
    """Evaluate the only kind of marker that requirements.txt uses."""
    match = re.fullmatch(r'python_version (>=|<) "(\d+)\.(\d+)"', marker.strip())
    if match is None:
        return True
    newer = sys.version_info[:2] >= (int(match[2]), int(match[3]))
    return newer if match[1] == ">=" else not newer


def missing() -> list[str]:
    """Return the pinned requirements that are not installed in any version."""
    found = []
    for line in (ROOT / "requirements.txt").read_text().splitlines():
        requirement, _, marker = line.partition("#")[0].partition(";")
        name = re.split(r"[=<>]", requirement.strip())[0]
        if not name or name in HELD or not applies(marker) or installed(name) is not None:
            continue
        if name not in MODULES or find_spec(MODULES[name]) is None:
            found.append(requirement.strip())
    return found


def stamp() -> str:
    """Return what .venv depends on: the version of Python, the folder and the pinned packages."""
    digest = hashlib.sha256((ROOT / "requirements.txt").read_bytes()).hexdigest()
    return f"{sys.version.splitlines()[0]} {ROOT} {digest}"


def main() -> int:
    """Do what the option asks for; return the exit status."""
    if "--stamp" in sys.argv:
        print(stamp())
        return 0
    if "--check-torch" in sys.argv:
        for package in HELD:
            if installed(package) is None:
                print(f"error: {sys.executable} has no {package}. Install one first.", file=sys.stderr)
                return 1
        torch = installed("torch") or ""
        if tuple(int(number) for number in re.findall(r"\d+", torch)[:2]) < OLDEST_TORCH:
            print(f"error: {sys.executable} has torch {torch}; 2.1 or newer is needed.", file=sys.stderr)
            return 1
        return 0
    if "--hold" in sys.argv:
        print("\n".join(f"{package}=={installed(package)}" for package in HELD))
        return 0
    print(" ".join(missing()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
