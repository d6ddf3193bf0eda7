"""Which tests are marked fast: unit tests that neither train nor start processes, by folder and by what they use."""

from __future__ import annotations

from types import FunctionType
from typing import Any

FOLDERS = ("clip", "coa", "config", "dassl_interface", "data", "datasets", "features", "fscil", "io", "prompts")
FOLDERS += ("report", "run")
FIXTURES = {"run", "shared_run", "start", "wheel", "browser"}  # they train, build or start something
# Measured at more than a second each.
LONG = {
    "clip/test_model.py": ("test_true_sizes", "test_true_widths"),
    "clip/test_text.py": ("test_features_and_gradients_are_those_of_the_plain_path",),
    "clip/test_tiny.py": ("test_pretraining_resumes_exactly",),
    "clip/test_tokens.py": ("test_tokens_are_openais",),
}


def is_fast(folder: str, file: str, name: str, function: Any, fixtures: set[str]) -> bool:
    """Say whether a test in `folder`/`file`, below tests, is a unit test that takes moments."""
    if folder not in FOLDERS or name in LONG.get(f"{folder}/{file}", ()):
        return False
    return not fixtures & FIXTURES and not starts_processes(function)


def starts_processes(function: Any, depth: int = 2) -> bool:
    """Say whether a function of a test module uses `subprocess`, itself or through functions that it names."""
    if not isinstance(function, FunctionType):
        return False
    names = function.__code__.co_names
    if {"subprocess", "Browser"} & set(names):
        return True
    return depth > 0 and any(starts_processes(function.__globals__.get(name), depth - 1) for name in names)
