"""The README inside an exported safetensors file: the few lines of code that use it with its CLIP."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from cocoamix import __version__
from cocoamix.clip.preprocess import MEAN, STD
from cocoamix.errors import encodable
from cocoamix.io.paths import expand_home
from cocoamix.io.safe_pickle import is_torchscript

from .classifier import Classifier
from .linear import Linear

_SAFETENSORS = ".safetensors"
_RUNS_CODE = (
    "# weights_only=False loads the file with code execution enabled: use only a file from a source that you trust."
)


@dataclass(frozen=True)
class Loading:
    """How a package loads the CLIP.

    Attributes:
        package: Its name in a sentence.
        imports: Its imports, in addition to those that all packages need.
        lines: Code that defines a `preprocess` for RGB images and a `model`.
        encode: The model's method that encodes images.
    """

    package: str
    imports: str
    lines: Sequence[str]
    encode: str = "model.encode_image"


def write_readme(classifier: Classifier, linear: Linear, name: str) -> str:
    """Return the README of an exported file.

    Args:
        classifier: The exported classifier.
        linear: Its matrices.
        name: Name of the file.
    """
    clip = classifier.trainer.clip
    parts = [f"Class vectors for {clip.name}, trained by {classifier.run.trainer} (cocoamix {__version__})."]
    for loading in find_loadings(clip.name, str(classifier.trainer.cfg.MODEL.BACKBONE.WEIGHTS), clip.activation):
        lines = use_lines(classifier, linear, name, loading)
        parts += [f"With {loading.package}:", "\n".join(f"    {line}" for line in lines)]
    parts.append("`preprocessing` in the metadata lists the steps of `preprocess` and the treatment of 16-bit images.")
    return encodable("\n\n".join(parts)) + "\n"


def find_loadings(backbone: str, weights: str, activation: str) -> list[Loading]:
    """Return how to load a CLIP with each package that supports it, OpenAI's `clip` first.

    Args:
        backbone: Name of the CLIP.
        weights: The file of its weights, as in MODEL.BACKBONE.WEIGHTS.
        activation: `quick_gelu`, or `gelu`, which OpenAI's code does not support.
    """
    if weights == "random" or (backbone == "tiny" and not weights):
        given = f"{_quoted(backbone)}, {_quoted(weights)}" if weights else _quoted(backbone)
        return [
            Loading(
                "cocoamix, the only package with the weights of this CLIP",
                "cocoamix",
                (f"model = cocoamix.load_clip({given})", "preprocess = model.transform"),
                "model.encode_image_raw",
            )
        ]
    file = str(expand_home(weights).absolute()) if weights else ""
    archive = not file or is_torchscript(file)  # as OpenAI publishes its weights
    found = []
    if activation == "quick_gelu":
        imports = "clip, safetensors.torch" if file.endswith(_SAFETENSORS) else "clip"
        found.append(Loading("OpenAI's clip", imports, _by_clip(backbone, file, archive)))
    if backbone != "tiny":  # open_clip knows models by their names
        found.append(Loading("open_clip", "open_clip", _by_open_clip(backbone, file, archive, activation)))
    return found


def _by_clip(backbone: str, file: str, archive: bool) -> Sequence[str]:
    if archive:
        return [f'model, preprocess = clip.load({_quoted(file or backbone)}, "cpu")']
    if file.endswith(_SAFETENSORS):
        reading = [f"state = safetensors.torch.load_file({_quoted(file)})"]
    else:
        reading = [f'state = torch.load({_quoted(file)}, "cpu", weights_only=True)']
        reading += ['state = {key.removeprefix("module."): one for key, one in state.get("state_dict", state).items()}']
    return [
        *reading,
        "model = clip.model.build_model(dict(state)).float()",
        "model.load_state_dict(state, strict=False)  # again, since build_model rounds to fp16",
        "preprocess = clip.clip._transform(model.visual.input_resolution)",
    ]


def _by_open_clip(backbone: str, file: str, archive: bool, activation: str) -> Sequence[str]:
    name = backbone.replace("/", "-").replace("@336px", "-336") + ("-quickgelu" if activation == "quick_gelu" else "")
    given, warning = f"{_quoted(name)}, pretrained={_quoted(file or 'openai')}", []
    if file and archive:  # open_clip reads such an archive in no other way
        given += ", weights_only=False"
        warning = [_RUNS_CODE]
    return [*warning, f"model, _, preprocess = open_clip.create_model_and_transforms({given})", "model.eval()"]


def use_lines(classifier: Classifier, linear: Linear, name: str, loading: Loading) -> list[str]:
    """Return the lines that label an image with an exported file."""
    image = 'Image.open("photo.jpg")'
    if classifier.upright:
        image = f"ImageOps.exif_transpose({image})"
    lines = [
        f"import json, torch, {loading.imports}",
        f"from PIL import Image{', ImageOps' if classifier.upright else ''}",
        "from safetensors import safe_open",
        f'file = safe_open({_quoted(name)}, "pt")',
        *loading.lines,
        *_own_preprocessing(classifier),
        f'image = {image}.convert("RGB")',
        "with torch.no_grad():",
        f"    features = {loading.encode}(preprocess(image)[None]).float()",
        "unit = torch.nn.functional.normalize(features, dim=-1)",
        'logits = unit @ file.get_tensor("matrix").T * file.get_tensor("scale")',
    ]
    if linear.raw is not None:
        lines.append('logits += features @ file.get_tensor("raw").T')
    if linear.bias is not None:
        lines.append('logits += file.get_tensor("bias")')
    return [*lines, 'print(json.loads(file.metadata()["classes"])[logits.argmax()], logits.softmax(-1).max())']


def _quoted(text: str) -> str:
    """Return a string as a quoted literal."""
    return json.dumps(text, ensure_ascii=False)


def _own_preprocessing(classifier: Classifier) -> list[str]:
    """Return the lines for preprocessing that differs from CLIP's."""
    keys, side = classifier.trainer.cfg.INPUT, classifier.trainer.clip.sizes.resolution
    size, mean, std = tuple(keys.SIZE), tuple(keys.PIXEL_MEAN), tuple(keys.PIXEL_STD)
    if (size, keys.INTERPOLATION, mean, std) == ((side, side), "bicubic", MEAN, STD):
        return []
    return [
        "from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Normalize, Resize, ToTensor",
        f'resize = Resize({max(size)}, InterpolationMode("{keys.INTERPOLATION}"))',
        f"preprocess = Compose([resize, CenterCrop({size}), ToTensor(), Normalize({mean}, {std})])",
    ]
