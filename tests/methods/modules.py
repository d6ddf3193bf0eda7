"""Modules of methods on the tiny CLIP, without a trainer, a dataset or files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import cocoamix.trainers  # noqa: F401  (registers the methods)

# isort: split
import torch
import torch.nn.functional as F
from dassl.config import get_cfg_default
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor

from benchmarks.plain import PlainPrompts
from cocoamix.clip import FrozenCLIP
from cocoamix.clip.ensemble import SeveralCLIPs
from cocoamix.config import keys
from cocoamix.fscil.model import SessionTask
from cocoamix.model import IMAGES, RAW_FEATURES, PromptModel, Task
from cocoamix.registry import PREFIX
from cocoamix.seeding import derive_seed

NAMES = ["river", "sea or lake", "Forest", "highway_or road"]
OTHERS = ["industrial area", "pasture"]
SESSIONS = (tuple(NAMES), ("industrial area", "pasture"), ("residential area", "annual crop"))
TEMPLATE = "a centered satellite photo of {}."  # of EuroSAT
WIDTH = 128  # of the tiny CLIP's context vectors and of its embeddings
SMALL: dict[str, dict[str, Any]] = {
    "L2PFSCIL": {"POOL_SIZE": 4, "TOP_K": 2, "LENGTH": 2},
    "FSPTFSCIL": {"N_CTX": 2, "F_N_CTX": 2},
    "MaPLe": {"PROMPT_DEPTH": 3},
    "CoCoAMixFSCIL": {"STAGE": "two", "N_CTX": 3},
    "TuneEn": {},
}


def trainers() -> list[str]:
    """Return the names of all registered trainers."""
    return [name for name in TRAINER_REGISTRY.registered_names() if not name.startswith(PREFIX)]


def kind_of(trainer: str) -> type[PromptModel]:
    """Return the class of a trainer's modules."""
    model: type[PromptModel] = TRAINER_REGISTRY.get(trainer).Model
    return model


def settings_of(trainer: str, **values: object) -> Any:
    """Return the settings of a method: its defaults, shortened, and these values."""
    settings = kind_of(trainer).settings_of(keys.complete(get_cfg_default())).clone()
    settings.defrost()
    if "N_CTX" in settings:
        settings.N_CTX = 3
    for key, value in {**SMALL.get(trainer, {}), **values}.items():
        settings[key] = value
    return settings


def session_task(trainer: str, session: int, learned: Sequence[Any] = ()) -> SessionTask:
    """Return the task of a session, after the earlier ones."""
    labels = tuple(range(len(SESSIONS[session]))) * 2
    classes = SESSIONS[session]
    images = tuple(f"{number}.png" for number in range(len(labels)))
    more = {"session": session, "sessions": SESSIONS, "learned": list(learned)}
    return SessionTask(classes, "EuroSAT", images, labels, **more)  # type: ignore[arg-type]


def build(
    clip: Any, trainer: str, names: Sequence[str] = NAMES, task: Task | None = None, seed: int = 1, **values: object
) -> Any:
    """Return an untrained module."""
    if task is None and trainer.endswith("FSCIL"):
        task = session_task(trainer, 0)
    task = task or Task(tuple(names), "EuroSAT", labels=tuple(range(len(names))) * 2)
    settings = settings_of(trainer, **values)
    kind = kind_of(trainer)
    if kind.several and not isinstance(clip, SeveralCLIPs):
        clip = SeveralCLIPs([clip] * (2 if trainer == "TuneEn" else 1))
    return kind(clip, task, settings, seed)


def move(module: PromptModel, by: float = 0.3) -> PromptModel:
    """Change all parameters, so that none has a value at which terms vanish or agree."""
    with torch.no_grad():
        for name, parameter in module.parts.named_parameters():
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(derive_seed(name)))
            parameter.add_(by * parameter.abs().mean().clamp_min(0.1) * noise)
        weights = getattr(module, "weights", None)
        if weights is not None:  # pi^in = 0.69 and pi^out = 0.29 in both stages
            one_stage = module.settings.STAGE == "one"
            weights.inside.fill_(math.log(2.2 * module.clip.logit_scale) if one_stage else 0.8)
            weights.outside.fill_(math.log(0.4 * module.clip.logit_scale) if one_stage else -0.9)
    return module


def finished(module: PromptModel) -> dict[str, dict[str, Tensor]]:
    """Return what a session that ends with this module saves."""
    parts = module.parts.items()
    return {name: {key: p.detach().clone() for key, p in part.named_parameters()} for name, part in parts}


def inputs_of(module: PromptModel, count: int = 8, seed: int = 5) -> Tensor:
    """Return random inputs of what a module reads."""
    generator = torch.Generator().manual_seed(seed)
    if module.reads == IMAGES:
        return torch.randn(count, 3, 32, 32, generator=generator)
    members = len(module.clip.each())
    raw = torch.randn(count, members * WIDTH, generator=generator)
    units = [F.normalize(part, dim=-1) for part in raw.chunk(members, dim=1)]
    return 4 * raw if module.reads == RAW_FEATURES else torch.cat(units, dim=1) / members**0.5


def labels_of(module: PromptModel, count: int = 8) -> Tensor:
    """Return labels of the classes of the task."""
    return (torch.arange(count) * 3) % len(module.classnames)


# ---------------------------------------------------------------------- features, each by the slowest way


def written(clip: FrozenCLIP, names: Sequence[str], template: str = TEMPLATE) -> Tensor:
    """Return the (C, embedding) unit features of a template, class by class."""
    return torch.stack([clip.encode_texts([template.format(name.replace("_", " "))])[0] for name in names])


def learned(clip: FrozenCLIP, names: Sequence[str], context: Tensor) -> Tensor:
    """Return the (C, embedding) unit features of a context before the class names, over all 77 positions."""
    return PlainPrompts(clip, [name.replace("_", " ") for name in names], context).encode()
