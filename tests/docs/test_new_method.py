"""The method that CONTRIBUTING.md shows trains, and is evaluated on other classes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_shown_method_trains_and_is_evaluated(tmp_path: Path) -> None:
    section = PAGE[PAGE.index("### A new method") : PAGE.index("### A new key")]
    (tmp_path / "adapter.py").write_text(re.findall(r"```python\n(.*?)```", section, re.S)[0])
    flags = re.findall(r"```bash[^\n]*\npython train\.py (.*?)```", section, re.S)[0].replace("\\\n", " ").split()
    end = flags.index("--output-dir")
    quick = ["DATASET.NUM_SHOTS", "1", "OPTIM.MAX_EPOCH", "2", "OPTIM.WARMUP_EPOCH", "0", "DATASET.SUBSAMPLE_CLASSES"]
    shown = [str(ROOT / part) if part.startswith("configs/") else part for part in flags[:end]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COCOAMIX_CACHE": str(tmp_path / "cache")}

    def run(name: str, subset: str, *more: str) -> float:
        command = [*shown, "--output-dir", name, *more, *quick, subset]
        done = subprocess.run(
            [sys.executable, str(ROOT / "train.py"), *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return float(json.loads((tmp_path / name / "results.json").read_text())["metrics"]["accuracy"])

    assert run("base", "base") > 60  # zero-shot CLIP has about 75
    assert (tmp_path / "base" / "adapter" / "model.pth.tar-2").is_file()
    assert run("new", "new", "--eval-only", "--model-dir", "base") > 60
