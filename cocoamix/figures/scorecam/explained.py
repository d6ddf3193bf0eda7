"""Wrap a classifier for grad-cam, and compute ScoreCAM's map of a class.

ScoreCAM masks the image by each channel of the activations in turn, and weights the channels by the scores of the
masked images. The image tower dominates the cost. Methods that share a frozen tower share its passes; for each method
only the logits are computed again, from text features that are computed once.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cocoamix.compat import import_grad_cam
from cocoamix.config.settings import flatten
from cocoamix.errors import UserError, brief
from cocoamix.predict.classifier import Classifier
from cocoamix.run.recorded import RecordedRun

Array = np.ndarray[Any, np.dtype[np.float32]]
Kept = dict[tuple[str, ...], Tensor]  # raw features of batches, by tower and pixels


class Explanation(NamedTuple):
    """The prediction of a classifier for an image, and the map of a class.

    Attributes:
        predicted: The number of the most probable class.
        probability: The probability of that class.
        explained: The number of the class that the map explains.
        values: The (rows, columns) map, scaled to a maximum of 1; all 0 if no channel supports the class.
    """

    predicted: int
    probability: float
    explained: int
    values: Array


def check_package() -> None:
    """Raise UserError if grad-cam is missing, before any long computation."""
    try:
        import_grad_cam()
    except ImportError as error:
        if error.name == "pytorch_grad_cam":
            raise UserError(
                "Class activation maps need the package grad-cam, which is not installed: pip install grad-cam."
            ) from error
        raise UserError(
            f"The package grad-cam is installed, but cannot be imported: {brief(str(error))}. If OpenCV lacks a "
            "desktop library, such as libGL: pip uninstall opencv-python, then pip install opencv-python-headless."
        ) from error


def refuse_several_towers(runs: Iterable[RecordedRun]) -> None:
    """Refuse runs on several CLIP models."""
    for run in runs:
        section = {"TuneEn": "ENLEARN", "CoCoAMix": "COCOAMIX", "CoCoAMixFSCIL": "COCOAMIX"}.get(run.trainer)
        models = flatten(run.config).get(f"TRAINER.{section}.BACKBONES") or ()
        if len(models) > 1:
            raise UserError(
                f"The run in {run.folder} uses {run.trainer} with {len(models)} CLIP models, but a map "
                "needs a single image tower. Leave it out."
            )


class Explained(nn.Module):
    """A classifier as a module that maps (B, 3, H, W) images to (B, C) probabilities.

    Args:
        classifier: The classifier.
        kept: A cache of the features of frozen towers, which several classifiers may share.
    """

    def __init__(self, classifier: Classifier, kept: Kept) -> None:
        super().__init__()
        self._trainer, self._kept = classifier.trainer, kept
        (self.clip,) = self._trainer.clip.each()  # see `refuse_several_towers`
        self.prompts = [one.detach() for one in self._trainer.vision_prompts()]
        self._tower = (self.clip.weights_hash, self.clip.precision, self.clip.source, self.clip.activation)

    @torch.no_grad()
    def look(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the (B, C) probabilities of images and the (B, channels, rows, columns) activations."""
        features, activations = self.clip.encode_image_watched(images, self.prompts)
        return self._probabilities(features), activations

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Return the probabilities of images."""
        if self.prompts:  # the method has its own tower
            return self._probabilities(self.clip.encode_image_watched(images, self.prompts)[0])
        digest = hashlib.blake2b(images.cpu().numpy().tobytes(), digest_size=16).hexdigest()
        key = (*self._tower, digest)
        if key not in self._kept:
            self._kept[key] = self.clip.encode_image_watched(images)[0].cpu()
        return self._probabilities(self._kept[key].to(self.clip.device))

    def _probabilities(self, features: Tensor) -> Tensor:
        given = features if self._trainer.raw_images else F.normalize(features, dim=-1)
        found = self._trainer.infer(given).double().softmax(dim=1)
        if not torch.isfinite(found).all():
            raise UserError("The logits of some images are not finite. Evaluate the run to see why.")
        return found


def explain(model: Explained, image: Tensor, target: int | None, batch_size: int) -> Explanation:
    """Return ScoreCAM's map of one image.

    Args:
        model: The classifier.
        image: The (1, 3, H, W) image.
        target: The number of the class to explain; None for the predicted one.
        batch_size: The number of masked images that go through the tower at a time.
    """
    package = import_grad_cam()
    probabilities, activations = model.look(image)
    predicted = int(probabilities[0].argmax())
    explained = predicted if target is None else target
    cam = package.ScoreCAM(model, [])  # no layers to hook, because the activations are known
    cam.batch_size = batch_size
    targets = [package.utils.model_targets.ClassifierOutputTarget(explained)]
    with contextlib.redirect_stderr(io.StringIO()):  # hides a progress bar for every image
        weighted = cam.get_cam_image(image.to(model.clip.device), None, targets, activations.cpu().numpy(), None)
    values = package.utils.image.scale_cam_image(np.maximum(weighted, 0))[0]
    return Explanation(predicted, float(probabilities[0, predicted]), explained, values)
