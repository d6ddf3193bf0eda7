"""Write the model of a run to a file that works without this package.

cocoamix export RUN --to classes.safetensors    class vectors, for open_clip or OpenAI's clip
cocoamix export RUN --to classifier.onnx        the whole classifier: image in, probabilities out
"""

from __future__ import annotations

import argparse
import copy
import json
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cocoamix import __version__
from cocoamix.errors import UserError, encodable, run_command
from cocoamix.io.files import write_atomically
from cocoamix.io.paths import expand_home
from cocoamix.parser import Parser
from cocoamix.predict import add_model_arguments, open_model

if TYPE_CHECKING:  # they import torch
    from cocoamix.model import Matrices
    from cocoamix.trained import TrainedModel

_ENDINGS = (".safetensors", ".onnx")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = Parser(prog="cocoamix export", description=__doc__)
    add_arguments(parser)
    return run_command(partial(_run, parser.parse_args(argv)), "Stopped. Nothing was written.")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_model_arguments(parser)
    parser.add_argument("--to", required=True, metavar="FILE", help="file to write, .safetensors or .onnx")


def _run(args: argparse.Namespace) -> None:
    path = expand_home(args.to)
    _check_ending(path)
    model = open_model(args, store=False)
    export(model, path)
    print(f"{len(model.classes)} classes of {model.record.trainer} written to {path}")


def _check_ending(path: Path) -> None:
    if path.suffix.lower() not in _ENDINGS:
        raise UserError(f"--to names {path}. It must end in .safetensors or .onnx, which sets the format.")


def export(model: TrainedModel, path: Path) -> None:
    """Write a model to a file in the format of its ending, .safetensors or .onnx."""
    _check_ending(path)
    matrices, trainer, clips = model.classifier.matrices, model.record.trainer, len(model.model.clip.each())
    if isinstance(matrices, str):
        raise UserError(f"{trainer} cannot be exported: {matrices}. Use `cocoamix predict`.")
    if clips > 1:
        raise UserError(f"{trainer} uses {clips} CLIP models, but an export contains one. Train on one backbone.")
    write = _to_onnx if path.suffix.lower() == ".onnx" else _to_safetensors
    content = write(model, matrices, path)
    write_atomically(path, lambda file: file.write(content))


def _describe(model: TrainedModel) -> dict[str, str]:
    """Return the metadata of an exported file. Both formats allow strings only."""
    clip, keys = model.model.clip, model.cfg.INPUT
    preprocessing = {
        "exif_orientation": "applied" if model.upright else "ignored",
        "bits": "values of more than 8 bits are scaled to 0 to 255, those of 16 bits from 0 to 65535",
        "mode": "RGB",
        "size": list(keys.SIZE),
        "resize": "shorter side, then centre crop",
        "interpolation": keys.INTERPOLATION,
        "mean": list(keys.PIXEL_MEAN),
        "std": list(keys.PIXEL_STD),
    }
    return {
        "trainer": model.record.trainer,
        "backbone": clip.name,
        "weights_sha256": clip.weights_hash,
        "activation": clip.activation,
        "cocoamix": __version__,
        "classes": _quoted([encodable(name) for name in model.classes]),
        "trained_classes": _quoted([encodable(name) for name in model.trained_classes]),
        "calibrated": json.dumps(model.calibrated),
        "preprocessing": json.dumps(preprocessing),
    }


# ---------------------------------------------------------------------------------------- formats


def _to_safetensors(model: TrainedModel, matrices: Matrices, path: Path) -> bytes:
    """Return a file with the class matrix and everything else that the logits need."""
    import torch
    from safetensors.torch import save

    if model.classifier.vision_prompts:
        trainer = model.record.trainer
        raise UserError(f"{trainer} also tunes the image encoder, which a class matrix does not contain: use .onnx.")
    scale = torch.tensor(float(model.model.clip.logit_scale))
    parts = {"matrix": matrices.unit.cpu() / scale, "raw": matrices.raw, "bias": matrices.bias}
    tensors = {name: part.float().cpu().contiguous() for name, part in parts.items() if part is not None}
    about = {**_describe(model), "README": _write_readme(model, matrices, path.name)}
    content: bytes = save({**tensors, "scale": scale}, about)
    return content


def _to_onnx(model: TrainedModel, matrices: Matrices, _: Path) -> bytes:
    """Return the whole classifier, written by torch's exporter."""
    try:
        import onnx
        import onnxscript  # noqa: F401  (torch's exporter needs it)
    except ImportError as error:
        raise UserError(f"ONNX files need the package {error.name}: pip install onnx onnxscript.") from error
    import torch

    if model.model.clip.precision != "fp32":
        used = model.model.clip.precision
        raise UserError(f"The model runs in {used}, but an ONNX file is written in fp32. Train with PREC fp32.")
    example = torch.rand(2, 3, *model.cfg.INPUT.SIZE)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # from the exporter's own code
        program = torch.onnx.export(
            _deployed(model, matrices).eval().cpu(),
            (example,),
            input_names=["pixels"],
            output_names=["probabilities"],
            dynamic_shapes={"pixels": {0: torch.export.Dim("batch", min=1)}},
            dynamo=True,
            verbose=False,
        )
    assert program is not None, "the exporter returns a program"
    written = program.model_proto  # a new one each time
    onnx.helper.set_model_props(written, _describe(model))
    content: bytes = written.SerializeToString()
    return content


def _deployed(model: TrainedModel, matrices: Matrices) -> Any:
    """Return a model as one module: (B, 3, H, W) pixels from 0 to 1 in, (B, C) probabilities out."""
    import torch
    from torch import Tensor, nn

    from cocoamix.clip.vision import encode_with_prompts

    class Deployed(nn.Module):
        mean: Tensor
        std: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.visual = copy.deepcopy(model.model.clip.each()[0].visual)  # the model stays where it is
            self.prompts = [tokens.cpu() for tokens in model.classifier.vision_prompts]
            for name, values in (("mean", model.cfg.INPUT.PIXEL_MEAN), ("std", model.cfg.INPUT.PIXEL_STD)):
                self.register_buffer(name, torch.tensor(values).view(1, 3, 1, 1))
            self.matrices = matrices.to("cpu")

        def forward(self, pixels: Tensor) -> Tensor:
            images = (pixels - self.mean) / self.std
            features = encode_with_prompts(self.visual, images, self.prompts) if self.prompts else self.visual(images)
            return self.matrices.logits(features.float()).softmax(dim=-1)

    return Deployed()


# ---------------------------------------------------------------------------------------- README


def _write_readme(model: TrainedModel, matrices: Matrices, name: str) -> str:
    """Return the README inside an exported file: the lines of code that use it with its CLIP."""
    clip = model.model.clip
    parts = [f"Class vectors for {clip.name}, trained by {model.record.trainer} (cocoamix {__version__})."]
    for package, imports, lines, encode in _loadings(clip, str(model.cfg.MODEL.BACKBONE.WEIGHTS)):
        code = _code(model, matrices, name, imports, lines, encode)
        parts += [f"With {package}:", "\n".join(f"    {line}" for line in code)]
    parts.append("`preprocessing` in the metadata lists the steps of `preprocess` and the treatment of 16-bit images.")
    return encodable("\n\n".join(parts)) + "\n"


def _loadings(clip: Any, weights: str) -> list[tuple[str, str, list[str], str]]:
    """Return how to load a CLIP: the package, its import, the code, and the method that encodes images."""
    if weights or clip.name == "tiny" or clip.activation != "quick_gelu":
        file = weights if weights in ("", "random") else str(expand_home(weights).absolute())
        arguments = f"{_quoted(clip.name)}, {_quoted(file)}, activation={_quoted(clip.activation)}"
        lines = [f"model = cocoamix.load_clip({arguments})", "preprocess = model.transform"]
        return [("cocoamix", "cocoamix", lines, "model.encode_image_raw")]
    other = f'{_quoted(clip.name.replace("/", "-").replace("@336px", "-336") + "-quickgelu")}, pretrained="openai"'
    create = f"model, _, preprocess = open_clip.create_model_and_transforms({other})"
    load, encode = f'model, preprocess = clip.load({_quoted(clip.name)}, "cpu")', "model.encode_image"
    return [("OpenAI's clip", "clip", [load], encode), ("open_clip", "open_clip", [create, "model.eval()"], encode)]


def _code(
    model: TrainedModel, matrices: Matrices, name: str, imports: str, loading: Sequence[str], encode: str
) -> list[str]:
    """Return the lines that label an image with an exported file."""
    image = 'ImageOps.exif_transpose(Image.open("photo.jpg"))' if model.upright else 'Image.open("photo.jpg")'
    lines = [
        f"import json, torch, {imports}",
        f"from PIL import Image{', ImageOps' if model.upright else ''}",
        "from safetensors import safe_open",
        f'file = safe_open({_quoted(name)}, "pt")',
        *loading,
        *_own_preprocessing(model),
        f'image = {image}.convert("RGB")',
        "with torch.no_grad():",
        f"    features = {encode}(preprocess(image)[None]).float()",
        "unit = torch.nn.functional.normalize(features, dim=-1)",
        'logits = unit @ file.get_tensor("matrix").T * file.get_tensor("scale")',
    ]
    lines += ['logits += features @ file.get_tensor("raw").T'] * (matrices.raw is not None)
    lines += ['logits += file.get_tensor("bias")'] * (matrices.bias is not None)
    return [*lines, 'print(json.loads(file.metadata()["classes"])[logits.argmax()], logits.softmax(-1).max())']


def _own_preprocessing(model: TrainedModel) -> list[str]:
    """Return the lines for preprocessing that differs from CLIP's."""
    from cocoamix.clip.preprocess import MEAN, STD

    keys, side = model.cfg.INPUT, model.model.clip.sizes.resolution
    size, mean, std = tuple(keys.SIZE), tuple(keys.PIXEL_MEAN), tuple(keys.PIXEL_STD)
    if (size, keys.INTERPOLATION, mean, std) == ((side, side), "bicubic", MEAN, STD):
        return []
    return [
        "from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Normalize, Resize, ToTensor",
        f'resize = Resize({max(size)}, InterpolationMode("{keys.INTERPOLATION}"))',
        f"preprocess = Compose([resize, CenterCrop({size}), ToTensor(), Normalize({mean}, {std})])",
    ]


def _quoted(text: str | list[str]) -> str:
    """Return a string, or a list of strings, as a literal."""
    return json.dumps(text, ensure_ascii=False)
