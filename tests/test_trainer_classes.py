"""Structural rules that the import contract does not cover."""

from __future__ import annotations

import cocoamix.trainers

# isort: split
from dassl.engine import TRAINER_REGISTRY

from cocoamix.registry import PREFIX
from cocoamix.trainer import CLIPTrainer
from tests.conftest import ROOT

PACKAGE = cocoamix.trainers.__name__


def test_no_trainer_has_more_than_three_ancestors() -> None:
    names = [name for name in TRAINER_REGISTRY.registered_names() if not name.startswith(PREFIX)]
    ours = [TRAINER_REGISTRY.get(name) for name in names]
    ours = [trainer for trainer in ours if trainer.__module__.startswith(PACKAGE)]
    assert len(ours) > 10
    for trainer in ours:
        ancestors = [one.__name__ for one in trainer.__mro__[1:] if one.__module__.startswith(PACKAGE)]
        assert len(ancestors) <= 3, f"{trainer.__name__}: {ancestors}"


def test_no_trainer_base_class_has_a_single_child() -> None:
    """A class that is not itself registered has several children, or is the base of all."""
    names = TRAINER_REGISTRY.registered_names()
    for file in (ROOT / "trainers").rglob("*.py"):
        module = ".".join((PACKAGE, *file.relative_to(ROOT / "trainers").with_suffix("").parts))
        for one in vars(__import__(module, fromlist=["x"])).values():
            is_trainer = isinstance(one, type) and issubclass(one, CLIPTrainer)
            if is_trainer and one.__module__ == module and one.__name__ not in names:
                children = [child for child in one.__subclasses__() if not child.__name__.startswith(PREFIX)]
                assert len(children) > 1, f"{one.__name__} has {len(children)} child"


def test_every_name_exported_by_trainers_exists() -> None:
    for name in cocoamix.trainers.__all__:
        assert hasattr(cocoamix.trainers, name), name
