"""File format of the tiny CLIP: a state dict with OpenAI's names, but only the trained token embeddings.

All but 162 of the 49,408 tokens never occur in a caption. Only the embeddings of those that do are stored; the others
are generated on loading.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

_TABLE = "token_embedding.weight"
_ROWS, _IDS, _CONTENT = "token_embedding.rows", "token_embedding.ids", "token_embedding.content"
_SEED = 49408
_BLENDED = 3


def generated_rows(content: Tensor, count: int) -> Tensor:
    """Return `count` embeddings for tokens outside pre-training, each the sum of three of `content` (K, width).

    A text encoder trained on 162 tokens ignores random embeddings, so that all unknown words would have the
    same features. Sums of known words keep unknown words apart, which out-classes need. The indices come from raw bits,
    which numpy guarantees not to change, and a sum of three is the same on every platform.
    """
    raw = np.random.PCG64(_SEED).random_raw(count * _BLENDED)
    chosen = torch.from_numpy((raw % len(content)).astype(np.int64)).view(count, _BLENDED)
    first, second, third = (content[column] for column in chosen.unbind(dim=1))
    return first + second + third


def pack(state: Mapping[str, Tensor], ids: Tensor, content: Tensor) -> dict[str, Tensor]:
    """Return the packed form of a full state dict, in fp16 except for the logit scale.

    `ids` (K,) are the trained tokens, `content` those of them that name the content of an image.
    """
    packed = {
        key: (value.half() if value.ndim else value.float()).detach().contiguous()
        for key, value in state.items()
        if key != _TABLE
    }
    packed[_ROWS] = state[_TABLE][ids].detach().half().contiguous()
    packed[_IDS], packed[_CONTENT] = ids.to(torch.int32), content.to(torch.int32)
    return packed


def unpack(packed: Mapping[str, Tensor], vocabulary: int = 49408) -> dict[str, Tensor]:
    """Return the full state dict, in fp32."""
    state = {key: value.float() for key, value in packed.items() if key not in (_ROWS, _IDS, _CONTENT)}
    rows, ids = packed[_ROWS].float(), packed[_IDS].long()
    content = rows[torch.isin(ids, packed[_CONTENT].long())]
    table = generated_rows(content, vocabulary)
    table[ids] = rows
    state[_TABLE] = table
    return state


def is_packed(state: Mapping[str, Tensor]) -> bool:
    """Return whether a state dict is packed."""
    return _ROWS in state
