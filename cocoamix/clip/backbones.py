"""The supported CLIP models, their sizes, and where their weights come from."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from cocoamix.errors import UserError, known_names
from cocoamix.io.paths import expand_home

CONTEXT_LENGTH = 77
VOCABULARY = 49408
ASSETS = Path(__file__).resolve().parent.parent / "assets"
HEAD_WIDTH = 64  # of every attention head in OpenAI's models


@dataclass(frozen=True)
class Sizes:
    """The sizes of a CLIP model, in OpenAI's terms.

    `vision_layers` is one number for a ViT and four for a ResNet, whose `patch` is None.
    """

    embedding: int
    resolution: int
    vision_layers: int | tuple[int, ...]
    vision_width: int
    patch: int | None
    text_width: int
    text_layers: int
    context_length: int = CONTEXT_LENGTH
    vocabulary: int = VOCABULARY

    @property
    def text_heads(self) -> int:
        """Attention heads of the text encoder."""
        return self.text_width // HEAD_WIDTH

    @classmethod
    def of(cls, state: Mapping[str, torch.Tensor]) -> Sizes:
        """Return the sizes of the model that a state dict with OpenAI's key names belongs to."""
        text_width = state["ln_final.weight"].shape[0]
        if "visual.proj" in state:
            patch = state["visual.conv1.weight"].shape[-1]
            layers: int | tuple[int, ...] = _count(state, "visual.transformer.resblocks.")
            width = state["visual.conv1.weight"].shape[0]
            resolution = patch * _side(state["visual.positional_embedding"])
        else:
            patch = None
            layers = tuple(_count(state, f"visual.layer{stage}.") for stage in (1, 2, 3, 4))
            width = state["visual.layer1.0.conv1.weight"].shape[0]
            resolution = 32 * _side(state["visual.attnpool.positional_embedding"])
        return cls(
            embedding=state["text_projection"].shape[1],
            resolution=resolution,
            vision_layers=layers,
            vision_width=width,
            patch=patch,
            text_width=text_width,
            text_layers=_count(state, "transformer.resblocks."),
            context_length=state["positional_embedding"].shape[0],
            vocabulary=state["token_embedding.weight"].shape[0],
        )


def _side(positions: torch.Tensor) -> int:
    """Return the patches per side of an image, from the positions of all patches and [CLS]."""
    return round(max(0, positions.shape[0] - 1) ** 0.5)


def _count(state: Mapping[str, torch.Tensor], prefix: str) -> int:
    return len({key[len(prefix) :].split(".")[0] for key in state if key.startswith(prefix)})


@dataclass(frozen=True)
class Backbone:
    """A named model: its sizes and its file of weights, either OpenAI's (with a SHA-256) or in this package."""

    sizes: Sizes
    file: str
    sha256: str = ""

    @property
    def url(self) -> str:
        """URL of OpenAI's file."""
        return f"https://openaipublic.azureedge.net/clip/models/{self.sha256}/{self.file}"


BACKBONES: dict[str, Backbone] = {
    "RN50": Backbone(
        Sizes(1024, 224, (3, 4, 6, 3), 64, None, 512, 12),
        "RN50.pt",
        "afeb0e10f9e5a86da6080e35cf09123aca3b358a0c3e3b6c78a7b63bc04b6762",
    ),
    "RN101": Backbone(
        Sizes(512, 224, (3, 4, 23, 3), 64, None, 512, 12),
        "RN101.pt",
        "8fa8567bab74a42d41c5915025a8e4538c3bdbe8804a470a72f30b0d94fab599",
    ),
    "ViT-B/32": Backbone(
        Sizes(512, 224, 12, 768, 32, 512, 12),
        "ViT-B-32.pt",
        "40d365715913c9da98579312b702a82c18be219cc2a73407c4526f58eba950af",
    ),
    "ViT-B/16": Backbone(
        Sizes(512, 224, 12, 768, 16, 512, 12),
        "ViT-B-16.pt",
        "5806e77cd80f8b59890b7e101eabd078d9fb84e6937f9e85e4ecb61988df416f",
    ),
    "ViT-L/14": Backbone(
        Sizes(768, 224, 24, 1024, 14, 768, 12),
        "ViT-L-14.pt",
        "b8cca3fd41ae0c99ba7e8951adf17d267cdb84cd88be6f7c2e0eca1737a03836",
    ),
    "tiny": Backbone(Sizes(128, 32, 4, 128, 8, 128, 4), "tiny.safetensors"),
}


def find_backbone(name: str) -> Backbone:
    """Return the backbone with the name MODEL.BACKBONE.NAME."""
    if name not in BACKBONES:
        raise UserError(f"MODEL.BACKBONE.NAME is {name!r}, which is not known.{known_names(name, BACKBONES)}")
    return BACKBONES[name]


def cache_folder() -> Path:
    """Return the folder of OpenAI's files, by default the one that OpenAI's package uses."""
    return expand_home(os.environ.get("COCOAMIX_CLIP_CACHE", "~/.cache/clip"), "Set HOME or COCOAMIX_CLIP_CACHE.")


def fetch_weights(name: str) -> Path:
    """Return the local file with the weights of `name`. OpenAI's files are downloaded on first use."""
    backbone = find_backbone(name)
    if not backbone.sha256:
        return ASSETS / backbone.file
    path = cache_folder() / backbone.file
    if path.is_file():
        _verify(path, backbone)
        return path
    print(f"Downloading the weights of {name} to {path}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Checks the hash and moves the file into place only when it is complete.
        torch.hub.download_url_to_file(backbone.url, str(path), hash_prefix=backbone.sha256)
    except (OSError, RuntimeError) as error:
        raise UserError(
            f"The weights of {name} are not at {path} and could not be downloaded ({error}). "
            f"Download {backbone.url} on a machine with access and put it there, "
            "or set MODEL.BACKBONE.WEIGHTS to a file that you have. "
            "To try the commands without weights, use a configuration `tiny` (synthetic images only)."
        ) from error
    return path


def _verify(path: Path, backbone: Backbone) -> None:
    """Raise a UserError if a file is not OpenAI's. Success is recorded next to it, because hashing takes seconds."""
    stat = path.stat()
    stamp = f"{backbone.sha256} {stat.st_size} {stat.st_mtime_ns}"
    note = path.with_name(path.name + ".verified")
    if note.is_file() and note.read_text() == stamp:
        return
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 22), b""):
            digest.update(block)
    if digest.hexdigest() != backbone.sha256:
        raise UserError(
            f"{path} is not OpenAI's {backbone.file}: its SHA-256 differs, so it is truncated or altered. "
            "Delete it to download it again, or name another file in MODEL.BACKBONE.WEIGHTS."
        )
    with suppress(OSError):  # a read-only cache is verified again next time
        note.write_text(stamp)
