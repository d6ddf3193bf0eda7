"""The facts in the path of a run: CoOp's output layout, KgCoOp's weight behind the shots, DePT's order of folders."""

from __future__ import annotations

import re
from typing import Any

_DATASET, _TRAINER, _CONFIG = "(?P<dataset>[^/]+)", "(?P<trainer>[^/]+)", "(?P<config>[^/]+)"
_VARIANT = "(?:/(?P<variant>.+))?"  # such as nctx16_cscFalse_ctpend
_PART = "(?:train|test|eval)_(?P<subset>base|new|novel|all)"
_SHOTS = r"shots?_?(?P<shots>\d+)(?:_(?P<weight>[^/]+))?"  # shots_16, shots16, KgCoOp's shots_16_8.0
_CONFIG_SHOTS = rf"{_CONFIG}_(?P<shots>\d+)shots?"  # vit_b16_16shots
_LAYOUTS = {
    f"{_PART}/{_DATASET}/{_SHOTS}/{_TRAINER}(?:/{_CONFIG}{_VARIANT})?": "base2new",
    f"{_PART}/{_TRAINER}/{_DATASET}/{_SHOTS}/{_CONFIG}{_VARIANT}": "base2new",  # DePT
    f"evaluation/{_TRAINER}/{_CONFIG_SHOTS}{_VARIANT}/{_DATASET}": "transfer",
    f"fscil/{_DATASET}/{_TRAINER}/{_CONFIG}": "few-shot",
    f"{_DATASET}/{_TRAINER}/{_CONFIG_SHOTS}{_VARIANT}": "few-shot",
    f"(?P<trainer>ZeroshotCLIP[^/]*)/{_CONFIG}/{_DATASET}": "few-shot",
}
_PATTERNS = {re.compile(f"(?P<rest>.*)/{layout}", re.IGNORECASE): task for layout, task in _LAYOUTS.items()}
_SEED = re.compile(r"/seed[_-]?(\d+)$", re.IGNORECASE)
_TEXTS = ("task", "dataset", "subset", "trainer", "config", "variant", "weight")


def read_path(path: str) -> dict[str, Any]:
    """Return the facts in the path of a run of any known code base; "" or None for those that it does not state.

    They are task, dataset, subset (base, new, all), trainer, config (its name), variant (whatever else distinguishes
    the run), shots, seed, and rest: the folders above, of unknown meaning.
    """
    seed, path = _SEED.search(path), _SEED.sub("", path)
    matches = ((pattern.fullmatch("/" + path), task) for pattern, task in _PATTERNS.items())
    match, task = next(((match, task) for match, task in matches if match), (None, ""))
    stated = {key: text for key, text in (match.groupdict() if match else {"rest": path}).items() if text}
    facts: dict[str, Any] = {**dict.fromkeys(_TEXTS, ""), **stated, "task": task}
    facts["subset"] = facts["subset"].lower().replace("novel", "new")
    facts["variant"] = "/".join(filter(None, (facts.pop("weight"), facts["variant"])))
    facts["rest"] = stated.get("rest", "").strip("/").removesuffix("/base2new")
    return facts | {"shots": int(stated["shots"]) if "shots" in stated else None, "seed": seed and int(seed[1])}
