"""Which tests are marked fast: unit tests that neither train nor start processes, by folder and by what they use."""

from __future__ import annotations

from types import FunctionType
from typing import Any

FOLDERS = ("clip", "coa", "config", "dassl", "data", "datasets", "features", "fscil", "io", "methods", "prompts")
FOLDERS += ("report", "run")
FIXTURES = {"run", "shared_run", "start", "wheel", "browser"}  # they train, build or start something
# Measured at about a second or more each, by file; none named means all of the file.
LONG: dict[str, tuple[str, ...]] = {
    "clip/test_model.py": (
        "test_features_match_openai_at_true_sizes",
        "test_features_match_openai_at_true_widths",
        "test_all_file_formats_give_the_same_model",
    ),
    "clip/test_text.py": ("test_features_and_gradients_match_the_plain_path",),
    "clip/test_tiny.py": ("test_pretraining_resumes_exactly", "test_three_code_bases_give_the_same_features"),
    "clip/test_tokens.py": ("test_tokens_match_openai",),
    "coa/test_heldout.py": ("test_fitted_weight_matches_a_grid_search",),
    "data/test_check.py": ("test_real_eurosat_is_complete", "test_coop_split_is_distinguished_from_others"),
    "datasets/test_cifar100_fscil.py": (),
    "datasets/test_coop_hashes.py": ("test_items_of_published_splits_match_coop",),
    "datasets/test_doubts.py": ("test_coops_splits_give_no_warning",),
    "io/test_texts.py": ("test_invalid_yaml_is_refused",),
    "methods/test_classifiers.py": ("test_logits_of_cocoamix", "test_mixture_over_sessions"),
    "methods/test_losses.py": ("test_loss_and_gradient_of_l2p", "test_loss_and_gradient_of_cocoamix"),
    "report/test_ablations.py": (),
    "report/test_command.py": ("test_names_with_dollars_are_drawn", "test_figures_are_written"),
    "report/test_page.py": ("test_page_is_well_formed_with_unique_identifiers",),
    "report/test_plots.py": (),
}


def is_fast(folder: str, file: str, name: str, function: Any, fixtures: set[str]) -> bool:
    """Return whether a test in `folder`/`file`, below tests, is a short unit test."""
    long = LONG.get(f"{folder}/{file}")
    if folder not in FOLDERS or (long is not None and (not long or name in long)):
        return False
    return not fixtures & FIXTURES and not starts_processes(function)


def starts_processes(function: Any, depth: int = 2) -> bool:
    """Return whether a function of a test module uses `subprocess`, directly or through functions that it names."""
    if not isinstance(function, FunctionType):
        return False
    names = function.__code__.co_names
    if {"subprocess", "Browser"} & set(names):
        return True
    return depth > 0 and any(starts_processes(function.__globals__.get(name), depth - 1) for name in names)
