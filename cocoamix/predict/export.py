"""Exports a classifier for use without this package: class vectors as safetensors, or the whole model as ONNX."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from cocoamix import __version__
from cocoamix.errors import UserError, encodable
from cocoamix.io.files import write_atomically

from .classifier import Classifier
from .linear import Linear, find_linear
from .readme import write_readme


def check_ending(path: Path) -> None:
    """Raise a UserError if the ending of a file is not that of an export format."""
    if path.suffix.lower() not in (".safetensors", ".onnx"):
        raise UserError(f"--to names {path}. It must end in .safetensors or .onnx, which sets the format.")


def export(classifier: Classifier, path: Path) -> None:
    """Write a classifier to a file in the format of its ending, .safetensors or .onnx."""
    check_ending(path)
    if reason := classifier.trainer.why_not_exported():
        raise UserError(f"{classifier.run.trainer} cannot be exported: {reason}. Use `cocoamix predict`.")
    write = write_onnx if path.suffix.lower() == ".onnx" else write_safetensors
    write(classifier, path)


def describe(classifier: Classifier) -> dict[str, str]:
    """Return the metadata of an exported file. Both formats allow strings only."""
    trainer = classifier.trainer
    keys = trainer.cfg.INPUT
    preprocessing = {
        "exif_orientation": "applied" if classifier.upright else "ignored",
        "bits": "values of more than 8 bits are scaled to 0 to 255, those of 16 bits from 0 to 65535",
        "mode": "RGB",
        "size": list(keys.SIZE),
        "resize": "shorter side, then centre crop",
        "interpolation": keys.INTERPOLATION,
        "mean": list(keys.PIXEL_MEAN),
        "std": list(keys.PIXEL_STD),
    }
    return {
        "trainer": classifier.run.trainer,
        "backbone": trainer.clip.name,
        "weights_sha256": trainer.clip.weights_hash,
        "activation": trainer.clip.activation,
        "cocoamix": __version__,
        "classes": _listed(classifier.classes),
        "trained_classes": _listed(classifier.trained_classes),
        "calibrated": json.dumps(classifier.calibrated),
        "preprocessing": json.dumps(preprocessing),
    }


def _listed(names: Sequence[str]) -> str:
    return json.dumps([encodable(name) for name in names], ensure_ascii=False)


def write_safetensors(classifier: Classifier, path: Path) -> None:
    """Write the class matrix and everything else that the logits need."""
    from safetensors.torch import save

    trainer = classifier.trainer
    if not trainer.frozen_images:
        raise UserError(
            f"{classifier.run.trainer} also tunes the image encoder, which a class matrix does not contain. "
            "Export to .onnx."
        )
    found = find_linear(classifier)
    scale = torch.tensor(trainer.clip.logit_scale)
    tensors: dict[str, Tensor] = {"matrix": (found.matrix / scale).contiguous(), "scale": scale}
    if found.raw is not None:
        tensors["raw"] = found.raw
    if found.bias is not None:
        tensors["bias"] = found.bias
    content = save(tensors, {**describe(classifier), "README": write_readme(classifier, found, path.name)})
    write_atomically(path, lambda file: file.write(content))


class Deployed(nn.Module):
    """A classifier as one module: (B, 3, H, W) pixels from 0 to 1 in, (B, C) probabilities out."""

    mean: Tensor
    std: Tensor

    def __init__(self, classifier: Classifier, linear: Linear) -> None:
        super().__init__()
        trainer = classifier.trainer
        self.visual = trainer.clip.each()[0].visual
        self.prompts = [] if trainer.frozen_images else [one.detach() for one in trainer.vision_prompts()]
        shape = (1, 3, 1, 1)
        self.register_buffer("mean", torch.tensor(trainer.cfg.INPUT.PIXEL_MEAN).view(shape))
        self.register_buffer("std", torch.tensor(trainer.cfg.INPUT.PIXEL_STD).view(shape))
        self.linear = linear

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the probabilities of pixels."""
        from cocoamix.clip.vision import encode_with_prompts

        images = (pixels - self.mean) / self.std
        features = encode_with_prompts(self.visual, images, self.prompts) if self.prompts else self.visual(images)
        return self.linear.logits(features.float()).softmax(dim=-1)


def write_onnx(classifier: Classifier, path: Path) -> None:
    """Write the whole classifier with torch's exporter."""
    try:
        import onnx
        import onnxscript  # noqa: F401  (torch's exporter needs it)
    except ImportError as error:
        raise UserError(f"ONNX files need the package {error.name}: pip install onnx onnxscript.") from error
    trainer = classifier.trainer
    if trainer.clip.precision != "fp32":
        raise UserError(
            f"The classifier runs in {trainer.clip.precision}, but an ONNX file is written in "
            "fp32. Train with PREC fp32."
        )
    module: nn.Module = Deployed(classifier, find_linear(classifier)).eval().cpu()
    height, width = trainer.cfg.INPUT.SIZE
    example = torch.rand(2, 3, height, width)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # from the exporter's own code
        program = torch.onnx.export(
            module,
            (example,),
            input_names=["pixels"],
            output_names=["probabilities"],
            dynamic_shapes={"pixels": {0: torch.export.Dim("batch", min=1)}},
            dynamo=True,
            verbose=False,
        )
    assert program is not None, "the exporter returns a program"
    model = program.model_proto
    onnx.helper.set_model_props(model, describe(classifier))
    content = model.SerializeToString()
    write_atomically(path, lambda file: file.write(content))
