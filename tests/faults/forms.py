"""Forms of files: how a valid sample becomes the bytes of a damaged file."""

from __future__ import annotations

import copy
import io
import json
import pickle
from random import Random
from typing import Any

import numpy as np
import torch
import yaml
from safetensors.torch import save

from .mutators import VALUES, damage_bytes, damage_text, damage_value, places_of


class Form:
    """A form whose samples are bytes."""

    replacements: tuple[Any, ...] = VALUES

    def write(self, value: Any) -> bytes:
        """Return the file of a sample."""
        return bytes(value)

    def damage(self, random: Random, sample: Any) -> bytes:
        """Return a damaged file."""
        return damage_bytes(random, self.write(sample))


class Text(Form):
    """Samples are texts."""

    def write(self, value: Any) -> bytes:
        return str(value).encode("utf-8", "surrogatepass")

    def damage(self, random: Random, sample: Any) -> bytes:
        whole = self.write(sample)
        return damage_bytes(random, whole) if random.random() < 0.4 else damage_text(random, whole.decode())


class _Structured(Form):
    """Samples are nested values."""

    def damage(self, random: Random, sample: Any) -> bytes:
        way = random.random()
        if way < 0.7:
            try:
                return self.write(damage_value(random, sample, self.replacements))
            except Exception:  # a value that the form cannot hold
                pass
        return self.damage_file(random, self.write(sample))

    def damage_file(self, random: Random, content: bytes) -> bytes:
        return damage_bytes(random, content)


class Json(_Structured):
    def write(self, value: Any) -> bytes:
        return json.dumps(value, indent=1).encode()

    def damage_file(self, random: Random, content: bytes) -> bytes:
        return damage_text(random, content.decode()) if random.random() < 0.6 else damage_bytes(random, content)


class Yaml(Json):
    def write(self, value: Any) -> bytes:
        written: bytes = yaml.safe_dump(value, allow_unicode=True, encoding="utf-8")
        return written


class Pickle(_Structured):
    def write(self, value: Any) -> bytes:
        return pickle.dumps(value, protocol=4)


_TENSORS = (
    *(torch.zeros(0), torch.zeros(()), torch.zeros(3, 2), torch.zeros(1, 2, 3, 4, 5), torch.ones(4, dtype=torch.int8)),
    *(torch.full((4,), float("nan")), torch.zeros(2, dtype=torch.complex64), torch.zeros(2, dtype=torch.bool)),
    *(torch.zeros(3).to_sparse(), torch.zeros(1).expand(1000), torch.zeros(4, dtype=torch.float64)),
    *(torch.zeros(4, dtype=torch.bfloat16), torch.nn.Parameter(torch.zeros(2))),
)


_DTYPES = (
    *(torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int64, torch.uint8, torch.bool, torch.complex64),
    *(torch.uint16, torch.float8_e4m3fn),
)


class _Tensors(_Structured):
    """Samples contain tensors, which may get another type or shape."""

    def damage(self, random: Random, sample: Any) -> bytes:
        if random.random() < 0.25:
            try:
                return self.write(self._alter(random, sample))
            except Exception:  # a type that the form cannot hold
                pass
        return super().damage(random, sample)

    def _alter(self, random: Random, sample: Any) -> Any:
        """Return a sample with one of its tensors cast, cut, transposed or flattened."""
        altered = copy.deepcopy(sample)
        places = [(one, key) for one, key in places_of(altered) if isinstance(one[key], torch.Tensor)]
        container, key = random.choice(places)
        tensor = container[key].detach()
        ways = (
            tensor.to(random.choice(_DTYPES)),
            tensor[:0],
            tensor[:1],
            tensor[..., :1],
            tensor.reshape(-1),
            tensor[None],
        )
        container[key] = random.choice((ways[0], ways[0], *ways)).contiguous()
        return altered


class Torch(_Tensors):
    """Checkpoints. They may contain objects of other classes, as in a file re-saved by other code."""

    replacements = (
        *(*VALUES, *_TENSORS, *_TENSORS),
        *(np.zeros(3), np.float64(1), range(3), {1, 2}, b"bytes", complex(1), torch.Size([1])),
    )

    def write(self, value: Any) -> bytes:
        file = io.BytesIO()
        torch.save(value, file)
        return file.getvalue()


class Safetensors(_Tensors):
    """Samples are tensors by name."""

    replacements = _TENSORS

    def write(self, value: Any) -> bytes:
        return bytes(save(value))
