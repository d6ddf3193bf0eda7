"""Pre-train the tiny CLIP from scratch on synthetic images with captions.

    python scripts/pretrain_tiny.py --output cocoamix/assets/tiny.safetensors

Training is contrastive, as in CLIP: match each image of a batch to its caption, and each caption to its image. No image
is used twice: a second process draws the next round while this one trains. If the script is stopped at any moment, the
same command resumes after the last complete round, and the result is the same as without the stop.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import lru_cache
from multiprocessing import get_context, parent_process
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for a clone without installation

import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import Tensor, nn

from cocoamix.clip import Layout, Prompts, tiny
from cocoamix.clip.backbones import BACKBONES, VOCABULARY
from cocoamix.clip.openai import build_openai
from cocoamix.clip.text_encoder import TextEncoder
from cocoamix.clip.tokens import EOT, SOS, encode
from cocoamix.io.files import write_atomically
from cocoamix.shapes import COLOURS, PRETRAINED, SHAPES, TEXTURES, compositions, draw
from cocoamix.shapes.captions import caption, vocabulary

PIXEL_MEAN = (0.48145466, 0.4578275, 0.40821073)  # CLIP's own, which every CoOp configuration sets
PIXEL_STD = (0.26862954, 0.26130258, 0.27577711)
ROUND = 8192  # images between two checkpoints
MAX_SCALE = math.log(100)
# Clean images are the most frequent. "street" is rare and mild here: a dataset drawn from it is a shifted domain.
SHARES = {domain: {"clean": 3.0, "street": 0.7}.get(domain, 1.0) for domain in PRETRAINED}
SEVERITY = {domain: (0.2, 0.8 if domain == "street" else 1.0) for domain in PRETRAINED}


class Round(NamedTuple):
    """Pixels (N, 32, 32, 3) of images, and captions (N, L) as rows of the small vocabulary, padded with zeros."""

    pixels: np.ndarray
    captions: np.ndarray


@lru_cache(maxsize=1)
def trained_ids() -> tuple[int, ...]:
    """Return the tokens that captions are made of, sorted, so that the end token stays the largest."""
    return tuple(sorted({SOS, EOT, *(token for word in vocabulary() for token in encode(word))}))


def content_ids() -> tuple[int, ...]:
    """Return the tokens that name a colour, a texture or a shape."""
    return tuple(sorted({token for name in (*COLOURS, *TEXTURES, *SHAPES) for token in encode(name)}))


def draw_round(seed: int, number: int) -> Round:
    """Draw the images and captions of one round. The result depends only on the arguments."""
    random = Random(f"{seed} {number}")
    seen = [one for one in compositions() if not one.held_out]
    rows = {token: row for row, token in enumerate(trained_ids())}
    pixels, captions = [], []
    for position, domain in enumerate(random.choices(list(SHARES), list(SHARES.values()), k=ROUND)):
        one = random.choice(seen)
        pixels.append(draw(one, domain, seed, number * ROUND + position, random.uniform(*SEVERITY[domain])))
        captions.append([rows[token] for token in (SOS, *encode(caption(one, domain, random)), EOT)])
    table = np.zeros((ROUND, max(map(len, captions))), dtype=np.int64)
    for row, tokens in zip(table, captions, strict=True):
        row[: len(tokens)] = tokens
    return Round(np.stack(pixels), table)


def _end_with_parent() -> None:
    """Make the drawing process exit when the training process is killed; otherwise it would wait forever."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def rounds(seed: int, first: int, count: int) -> Iterator[Round]:
    """Yield the rounds from `first` to `count` - 1, each drawn by another process while the previous one is used."""
    with ProcessPoolExecutor(1, get_context("spawn"), _end_with_parent) as pool:
        following = pool.submit(draw_round, seed, first)
        for number in range(first, count):
            current = following.result()
            if number + 1 < count:
                following = pool.submit(draw_round, seed, number + 1)
            yield current


def build_model(seed: int) -> Any:
    """Return OpenAI's CLIP in the tiny size, with a token embedding of only the trained rows."""
    torch.manual_seed(seed)
    return build_openai(replace(BACKBONES["tiny"].sizes, vocabulary=len(trained_ids()))).float()


def to_images(pixels: np.ndarray) -> Tensor:
    """Turn (N, 32, 32, 3) bytes into the (N, 3, 32, 32) normalised images that CLIP expects."""
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    return (images - torch.tensor(PIXEL_MEAN).view(3, 1, 1)) / torch.tensor(PIXEL_STD).view(3, 1, 1)


def encode_captions(text: TextEncoder, captions: Tensor) -> Tensor:
    """Encode (N, L) captions as (N, embedding)."""
    layout = Layout.of_tokens(captions, captions.device)
    features: Tensor = text(Prompts.of_embeddings(text.embed(captions), layout))
    return features


def step(model: Any, text: TextEncoder, images: Tensor, captions: Tensor) -> tuple[Tensor, Tensor]:
    """Return the contrastive loss of a batch, and the fraction of images matched to their caption."""
    image_features = F.normalize(model.visual(images), dim=1)
    text_features = F.normalize(encode_captions(text, captions), dim=1)
    logits = model.logit_scale.exp() * image_features @ text_features.T
    target = torch.arange(len(logits))
    loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
    return loss, (logits.argmax(dim=1) == target).float().mean()


def make_optimizer(model: nn.Module, decay: float) -> torch.optim.AdamW:
    """Return AdamW; as usual, vectors and the logit scale do not decay."""
    matrices = [p for name, p in model.named_parameters() if p.ndim > 1 and "embedding" not in name]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-6)


def learning_rate(done: float, peak: float) -> float:
    """Return the rate after the fraction `done` of training: a linear warm-up over 3 %, then a cosine to zero."""
    return peak * min(done / 0.03, 0.5 * (1 + math.cos(math.pi * done)))


def save_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, number: int, settings: str) -> None:
    """Write a checkpoint atomically, because the process may be killed at any moment."""
    states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    content = {**states, "round": number, "settings": settings}
    write_atomically(path, lambda file: torch.save(content, file))


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, settings: str) -> int:
    """Restore the last checkpoint and return its number of rounds; 0 if there is none."""
    if not path.is_file():
        return 0
    saved = torch.load(path, weights_only=True)
    if saved["settings"] != settings:
        raise SystemExit(
            f"{path} belongs to a run with {saved['settings']}, not {settings}. "
            "Give the same options to resume it, or delete it to start again."
        )
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    print(f"Resuming after round {saved['round']}, from {path}", flush=True)
    return int(saved["round"])


def pack_model(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors to store for a model whose token embedding has only the trained rows."""
    state = {key: value.detach() for key, value in model.state_dict().items()}
    rows = state["token_embedding.weight"]
    table = torch.zeros(VOCABULARY, rows.shape[1])
    table[list(trained_ids())] = rows
    full = {**state, "token_embedding.weight": table}
    return tiny.pack(full, torch.tensor(trained_ids()), torch.tensor(content_ids()))


def train(options: argparse.Namespace) -> None:
    """Train from the last checkpoint, or from the start, and write the weights."""
    torch.set_num_threads(options.threads)
    if options.images < ROUND or options.images % ROUND or ROUND % options.batch:
        raise SystemExit(f"--images must be a multiple of {ROUND}, and --batch a divisor of it.")
    count = options.images // ROUND
    steps = ROUND // options.batch
    model = build_model(options.seed)
    text = TextEncoder(model)
    optimizer = make_optimizer(model, options.decay)
    checkpoint = options.output.with_suffix(".checkpoint.pt")
    settings = ", ".join(f"{name} {getattr(options, name)}" for name in ("seed", "images", "batch", "rate", "decay"))
    first = load_checkpoint(checkpoint, model, optimizer, settings)
    started = time.monotonic()
    for number, (pixels, captions) in enumerate(rounds(options.seed, first, count), start=first):
        images, tokens = to_images(pixels), torch.from_numpy(captions)
        losses, hits = 0.0, 0.0
        for i in range(steps):
            batch = slice(i * options.batch, (i + 1) * options.batch)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate((number + (i + 1) / steps) / count, options.rate)
            loss, hit = step(model, text, images[batch], tokens[batch])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            with torch.no_grad():
                model.logit_scale.clamp_(max=MAX_SCALE)
            losses, hits = losses + loss.item() / steps, hits + hit.item() / steps
        save_checkpoint(checkpoint, model, optimizer, number + 1, settings)
        spent = time.monotonic() - started
        left = spent / (number + 1 - first) * (count - number - 1)
        print(
            f"round {number + 1}/{count} loss {losses:.3f} acc {100 * hits:.1f}% "
            f"scale {model.logit_scale.exp().item():.1f} "
            f"images/s {(number + 1 - first) * ROUND / spent:.0f} eta {left / 60:.1f} min",
            flush=True,
        )
    origin = f"pretrain_tiny.py, torch {torch.__version__}, {settings}"
    # A single entry, because the order of several is random, and equal weights must give equal files.
    content = save(pack_model(model), metadata={"origin": origin})
    write_atomically(options.output, lambda file: file.write(content))
    checkpoint.unlink(missing_ok=True)
    print(f"Wrote {options.output}, {options.output.stat().st_size / 2**20:.2f} MB")


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="the .safetensors file to write")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--images", type=int, default=48 * ROUND, help="total number of images")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=1e-3, help="peak learning rate")
    parser.add_argument("--decay", type=float, default=0.05, help="weight decay")
    parser.add_argument("--threads", type=int, default=2)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
