"""Loading a frozen CLIP with OpenAI's `clip` or `open_clip`, behind one small interface."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cocoamix import compat
from cocoamix.choices import ACTIVATIONS, SOURCES
from cocoamix.errors import UserError, check_choice, some_of
from cocoamix.io.paths import expand_home

from . import precision as prec
from .backbones import Sizes, fetch_weights, find_backbone
from .class_names import class_words
from .openai import build_openai
from .packing import Layout, Prompts
from .preprocess import make_transform
from .text_encoder import TextEncoder
from .tokens import tokenize
from .vision import encode_with_prompts
from .weights import hash_weights, read_weights


class FrozenCLIP(nn.Module):
    """A CLIP with frozen weights. Features are fp32; they are L2-normalised, except from methods named `..._raw`."""

    def __init__(
        self, model: Any, sizes: Sizes, name: str, source: str, precision: str, activation: str = "quick_gelu"
    ) -> None:
        super().__init__()
        self.activation = activation
        self.name, self.source, self.precision, self.sizes = name, source, precision, sizes
        prec.convert_weights(model, prec.WEIGHT_DTYPES[precision])
        model.requires_grad_(False).eval()
        self.visual: nn.Module = model.visual
        self.text = TextEncoder(model)
        self.logit_scale = float(model.logit_scale.detach().exp())
        self.weights_hash = ""
        self.is_random = False  # whether the weights are random

    def train(self, mode: bool = True) -> FrozenCLIP:
        """Stay in evaluation mode: nothing is trained, and batch statistics must not change."""
        return super().train(False)

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return self.text.positional_embedding.device

    def autocast(self) -> Any:
        """Return the autocast context in which the encoders run."""
        return prec.autocast(self.precision, self.device)

    @cached_property
    def _visual_dtype(self) -> torch.dtype:
        return next(m.weight.dtype for m in self.visual.modules() if isinstance(m, nn.Conv2d))

    @cached_property
    def transform(self) -> Any:
        """Transform of an RGB image for `encode_image`."""
        return make_transform(self.sizes.resolution)

    @torch.no_grad()
    def encode_image(self, images: Tensor) -> Tensor:
        """Encode (B, 3, H, W) images as (B, embedding) unit vectors."""
        return F.normalize(self.encode_image_raw(images), dim=-1)

    @torch.no_grad()
    def encode_image_raw(self, images: Tensor) -> Tensor:
        """Encode (B, 3, H, W) images as (B, embedding) features that are not normalised."""
        with self.autocast():
            features: Tensor = self.visual(images.to(self.device, self._visual_dtype))
        return features.float()

    def encode_image_with(self, images: Tensor, prompts: Sequence[Tensor]) -> Tensor:
        """Encode images as unit vectors, with learned tokens in the ViT. Keeps the gradients of the tokens.

        Args:
            images: (B, 3, H, W) images.
            prompts: (M, vision width) tokens for each of the first layers; see `cocoamix.clip.vision`.
        """
        with self.autocast():
            features = encode_with_prompts(self.visual, images.to(self.device, self._visual_dtype), prompts)
        return F.normalize(features.float(), dim=-1)

    @torch.no_grad()
    def encode_image_watched(self, images: Tensor, prompts: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor]:
        """Return the raw features of images and the (B, channels, rows, columns) activations before them.

        The activations are the patches that the last layer of a ViT attends to, or the last stage of a ResNet.

        Args:
            images: (B, 3, H, W) images.
            prompts: (M, vision width) tokens for each of the first layers of a ViT.
        """
        images, found = images.to(self.device, self._visual_dtype), list[Tensor]()
        with self.autocast():
            if self.sizes.patch is None:
                features = _encode_resnet(self.visual, images, found.append)
                activations = found[0]
            else:
                features = encode_with_prompts(self.visual, images, prompts, found.append)
                side = self.sizes.resolution // self.sizes.patch
                activations = found[0][:, 1 : 1 + side * side].transpose(1, 2).unflatten(2, (side, side))
        return features.float(), activations.float()

    def encode_prompts(self, prompts: Prompts) -> Tensor:
        """Encode prompts as (N, embedding) unit vectors, or (G, N, embedding) for G sets. Keeps gradients."""
        return F.normalize(self.encode_prompts_raw(prompts), dim=-1)

    def each(self) -> list[FrozenCLIP]:
        """Return a list of this model alone. See `cocoamix.clip.interface`."""
        return [self]

    def encode_each(self, prompts: Sequence[Prompts]) -> Tensor:
        """Encode the prompts of this model."""
        (own,) = prompts
        return self.encode_prompts(own)

    def encode_prompts_raw(self, prompts: Prompts) -> Tensor:
        """Encode prompts as features that are not normalised. Keeps gradients."""
        with self.autocast():
            features: Tensor = self.text(prompts)
        return features.float()

    @torch.no_grad()
    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Encode written prompts as (N, embedding) unit vectors."""
        tokens = tokenize(texts, self.text.context_length)
        layout = Layout.of_tokens(tokens, self.device)
        length = layout.shared + max(layout.lengths)
        embeddings = self.text.embed(tokens[:, :length].to(self.device))
        return self.encode_prompts(Prompts.of_embeddings(embeddings, layout))

    def encode_classes(self, classnames: Sequence[str], templates: Sequence[str]) -> Tensor:
        """Return one (C, embedding) unit vector per class: the re-normalised mean over the templates."""
        names = [class_words(name) for name in classnames]
        per_template = [self.encode_texts([template.format(name) for name in names]) for template in templates]
        if len(per_template) == 1:
            return per_template[0]
        return F.normalize(torch.stack(per_template).mean(dim=0), dim=-1)


def load_clip(
    name: str,
    weights: str = "",
    source: str = "auto",
    precision: str = "auto",
    device: torch.device | str = "cpu",
    activation: str = "quick_gelu",
) -> FrozenCLIP:
    """Load a frozen CLIP.

    Args:
        name: Name of the backbone, as in `MODEL.BACKBONE.NAME`.
        weights: A file (OpenAI's archive, a state dict, an open_clip checkpoint or safetensors), `random` for random
            weights of the same sizes, or empty for OpenAI's weights, downloaded on first use.
        source: The package whose code runs the model: `clip`, `open_clip`, or `auto` (`clip` if it is installed).
        precision: `fp32`, `fp16`, `bf16`, `amp`, or `auto` (fp32 on a CPU, fp16 on a GPU).
        device: The device.
        activation: OpenAI's `quick_gelu`, or `gelu` for weights trained with it, as many of open_clip's are. A file
            does not record it, and only `open_clip` supports `gelu`.
    """
    check_choice("MODEL.BACKBONE.SOURCE", source, SOURCES)
    check_choice("MODEL.BACKBONE.ACTIVATION", activation, ACTIVATIONS)
    if activation == "gelu":
        if source == "clip":
            raise UserError("MODEL.BACKBONE.ACTIVATION gelu needs MODEL.BACKBONE.SOURCE open_clip (or auto).")
        source = "open_clip"
    device = torch.device(device)
    backbone = find_backbone(name)
    if weights == "random":
        sizes, state = backbone.sizes, None
    else:
        path = expand_home(weights) if weights else fetch_weights(name)
        state = read_weights(path)
        sizes = _sizes_of(state, path)
        if sizes != backbone.sizes:
            raise UserError(
                f"{path} is not a model of MODEL.BACKBONE.NAME {name}: {_difference(sizes, backbone.sizes)}."
            )
    resolved = prec.resolve(precision, device)
    prec.check_cpu(resolved, device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # the same random weights every time; other draws are not affected
        model, used = _build(sizes, source, prec.WEIGHT_DTYPES[resolved], activation)
    if state is not None:
        missing, unexpected = _load(model, state, str(weights or name))
        # Batch norm's counter is never read in evaluation.
        missing = [key for key in missing if not key.endswith("num_batches_tracked")]
        if missing or unexpected:
            lacking, more = some_of(missing, 150) or "nothing", some_of(unexpected, 150) or "nothing"
            raise UserError(f"{weights or name} does not fit {name}: missing {lacking}, unexpected {more}.")
    else:
        nn.init.constant_(model.logit_scale, math.log(100))  # its value after CLIP's training
    digest = hash_weights(model.state_dict())
    frozen = FrozenCLIP(model, sizes, name, used, resolved, activation).to(device)
    frozen.weights_hash, frozen.is_random = digest, state is None
    return frozen


def _encode_resnet(visual: Any, images: Tensor, watch: Callable[[Tensor], None]) -> Tensor:
    """Run a ResNet; `watch` is called with the output of its last stage."""
    handle = visual.layer4.register_forward_hook(lambda module, inputs, output: watch(output))
    try:
        features: Tensor = visual(images)
    finally:
        handle.remove()
    return features


def _sizes_of(state: Mapping[str, Tensor], path: Path) -> Sizes:
    try:
        return Sizes.of(state)
    except (KeyError, IndexError) as error:
        what = f"it has no {error.args[0]}" if isinstance(error, KeyError) else "a tensor has an unexpected shape"
        raise UserError(f"{path} is not a CLIP model of OpenAI's architecture: {what}.") from error


def _load(model: nn.Module, state: Mapping[str, Tensor], origin: str) -> tuple[list[str], list[str]]:
    """Load weights, and return the missing and the unexpected keys; raise a UserError if shapes differ."""
    own = model.state_dict()
    for key, tensor in state.items():
        if key in own and tensor.shape != own[key].shape:
            here, there = ("x".join(map(str, one.shape)) or "one number" for one in (own[key], tensor))
            raise UserError(f"{origin} does not fit: its {key} is {there}, but this model's is {here}.")
    try:
        missing, unexpected = model.load_state_dict(state, strict=False)
    except RuntimeError as error:  # for example from sparse tensors
        raise UserError(f"{origin} cannot be loaded: its tensors are not plain numbers.") from error
    return list(missing), list(unexpected)


def _difference(found: Sizes, wanted: Sizes) -> str:
    return ", ".join(
        f"{field} {getattr(found, field)} instead of {getattr(wanted, field)}"
        for field in wanted.__dataclass_fields__
        if getattr(found, field) != getattr(wanted, field)
    )


def _build(sizes: Sizes, source: str, dtype: torch.dtype, activation: str) -> tuple[Any, str]:
    """Return a model with random weights, and the package it comes from."""
    reasons = []
    for package in ("clip", "open_clip") if source == "auto" else (source,):
        try:
            if package == "clip":
                return build_openai(sizes), package
            return _build_open_clip(sizes, dtype, activation), package
        except ImportError as error:
            reasons.append(f"{package}: {error}")
    # If another `clip` was imported, such as a folder of the tree, it would hide an installed one.
    openai = "" if source == "open_clip" or "clip" in sys.modules else "`pip install clip-anytorch` or "
    aside = " and set MODEL.BACKBONE.SOURCE auto" if source == "clip" and not openai else ""
    raise UserError(
        f"No CLIP package can be used ({'; '.join(reasons)}). {openai}`pip install open_clip_torch`{aside}."
    )


def _build_open_clip(sizes: Sizes, dtype: torch.dtype, activation: str) -> Any:
    open_clip = compat.import_open_clip()
    return open_clip.CLIP(
        embed_dim=sizes.embedding,
        vision_cfg=open_clip.CLIPVisionCfg(
            layers=sizes.vision_layers,
            width=sizes.vision_width,
            patch_size=sizes.patch,
            image_size=sizes.resolution,
        ),
        text_cfg=open_clip.CLIPTextCfg(
            context_length=sizes.context_length,
            vocab_size=sizes.vocabulary,
            width=sizes.text_width,
            heads=sizes.text_heads,
            layers=sizes.text_layers,
        ),
        quick_gelu=activation == "quick_gelu",
        # Tells open_clip to run its norms in fp32 on half-precision inputs.
        cast_dtype=None if dtype == torch.float32 else dtype,
    )
