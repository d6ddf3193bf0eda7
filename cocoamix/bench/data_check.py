"""Check that the datasets of a plan can be read, by loading each once before the first run."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence

from cocoamix.errors import CombinedUserError, UserError

from .runs import SYNTHETIC, Run


def check_data(runs: Sequence[Run]) -> None:
    """Refuse runs whose datasets cannot be read, with a line per dataset. Nothing is written.

    Images are not opened, so missing ones are found but damaged ones are not.
    """
    first = {run.dataset: run for run in reversed(runs) if run.dataset not in SYNTHETIC}
    problems = {name: _problem(run) for name, run in reversed(first.items())}
    missing = [f"{name}: {problem}" for name, problem in problems.items() if problem]
    if missing:
        count = f"{len(missing)} of the {len({run.dataset for run in runs})} datasets"
        raise CombinedUserError(f"Nothing was started, because {count} of the plan cannot be read:", missing)


def _problem(run: Run) -> str:
    """Return why the dataset of a run cannot be read; empty if it can."""
    from cocoamix.train import parse_arguments, setup_cfg

    # isort: split
    from dassl.data.datasets import DATASET_REGISTRY

    from cocoamix.datasets.common.writing import write_nothing

    cfg = setup_cfg(parse_arguments(run.arguments))
    try:
        with write_nothing(), contextlib.redirect_stdout(io.StringIO()):
            DATASET_REGISTRY.get(cfg.DATASET.NAME)(cfg)
    except UserError as error:
        return " ".join(str(error).split())
    except OSError as error:
        return f"{error.strerror or error}: {error.filename}." if error.filename else f"{error}."
    return ""
