"""Precision of the encoders, by name. Losses and similarities are always fp32."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from cocoamix.errors import UserError

WEIGHT_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "amp": torch.float32}


def resolve(name: str, device: torch.device) -> str:
    """Turn `auto` into a precision: fp32 on CPU, CoOp's fp16 on a GPU."""
    if name != "auto":
        return name
    return "fp16" if device.type == "cuda" else "fp32"


def check_cpu(name: str, device: torch.device) -> None:
    """Raise a UserError for bf16 on a CPU that reports AMX but cannot run it, which would crash the process."""
    if device.type == "cpu" and name in ("bf16", "amp") and not _bf16_runs():
        raise UserError(
            f"This machine's CPU reports AMX instructions but cannot run them, and PREC {name} needs them. "
            "Set the environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16, or use PREC fp32."
        )


@lru_cache(maxsize=1)
def _bf16_runs() -> bool:
    supported = getattr(torch.cpu, "_is_amx_tile_supported", None)
    if supported is None or not supported() or "ONEDNN_MAX_CPU_ISA" in os.environ:
        return True
    # Try it in a separate process, because a failure would kill this one.
    trial = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.functional.linear(x, x)"
    return subprocess.run([sys.executable, "-c", trial], capture_output=True).returncode >= 0


def autocast(name: str, device: torch.device) -> AbstractContextManager[Any]:
    """Return the autocast context in which the encoders run."""
    if name != "amp":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.float16 if device.type == "cuda" else torch.bfloat16)


def make_scaler(name: str, device: torch.device) -> Any | None:
    """Return a gradient scaler for `amp` on a GPU, as in CoOp; None otherwise.

    Plain fp16 has no scaler, as in CoOp: a scaler skips steps until it has found its scale, and few-shot runs have few.
    """
    if name != "amp" or device.type != "cuda":
        return None
    return torch.amp.GradScaler("cuda") if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler()


def convert_weights(model: nn.Module, dtype: torch.dtype) -> None:
    """Cast matrices and convolutions to `dtype`; norms, embeddings and the logit scale stay fp32, as OpenAI's do."""
    model.float()
    if dtype == torch.float32:
        return
    for module in model.modules():
        if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Linear)):
            module.to(dtype)
        elif isinstance(module, nn.MultiheadAttention):
            for name in ("in_proj_weight", "in_proj_bias"):
                getattr(module, name).data = getattr(module, name).data.to(dtype)
        for name in ("text_projection", "proj"):
            parameter = module._parameters.get(name)
            if parameter is not None:
                parameter.data = parameter.data.to(dtype)
