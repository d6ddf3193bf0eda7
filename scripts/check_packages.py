"""Check the imports and types of the packages in their installed layout: the contract of .importlinter, then mypy.

    python scripts/check_packages.py

In a source tree `trainers` and `datasets` are next to `cocoamix`; installed, they are inside it, and they import each
other by those names. Both checks therefore use a copy in the installed layout, below build/.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / "build" / "packages"


def make_copy() -> None:
    """Copy the code with the times of the files, so that mypy can use its cache."""
    shutil.rmtree(COPY, ignore_errors=True)
    code_only = shutil.ignore_patterns("__pycache__", "*.safetensors", "*.yaml")
    shutil.copytree(ROOT / "cocoamix", COPY / "cocoamix", ignore=code_only)
    for folder in ("trainers", "datasets"):
        shutil.copytree(ROOT / folder, COPY / "cocoamix" / folder, ignore=code_only)
    shutil.move(COPY / "cocoamix" / "fallback" / "dassl", COPY / "dassl")  # checked as the package that it replaces
    for script in ("train.py", "parse_test_res.py"):
        shutil.copy2(ROOT / script, COPY)


def main() -> int:
    """Run both checks; return the exit status of the first that fails."""
    make_copy()
    environment = {**os.environ, "PYTHONPATH": str(COPY)}
    layers = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    layers += ["--config", str(ROOT / ".importlinter"), "--no-cache", "--no-logo"]
    types = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    types += ["--cache-dir", str(ROOT / ".mypy_cache")]
    for command in (layers, types):
        status = subprocess.call(command, cwd=COPY, env=environment)
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
