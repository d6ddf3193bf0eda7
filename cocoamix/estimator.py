"""Few-shot prompt tuning with scikit-learn's interface and the code of train.py."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cocoamix.clip.class_names import tidy_class
from cocoamix.config import keys, shipped
from cocoamix.config.settings import flatten
from cocoamix.errors import UserError
from cocoamix.features.memory import AnyImage, Item, as_item
from cocoamix.io.files import write_json
from cocoamix.io.paths import expand_home
from cocoamix.io.texts import read_json
from cocoamix.loading import default_configuration, find_trainer
from cocoamix.seeding import set_random_seed
from cocoamix.trained import TrainedModel, check_different
from cocoamix.trained import load as load_model

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
except ImportError:  # scikit-learn is optional

    class ClassifierMixin:  # type: ignore[no-redef]
        """Marks a classifier."""

    class BaseEstimator:  # type: ignore[no-redef]
        """What scikit-learn's base class does for an estimator without nested ones."""

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """Return the parameters by name."""
            names = inspect.signature(type(self).__init__).parameters
            return {name: getattr(self, name) for name in names if name != "self"}

        def set_params(self, **parameters: Any) -> Any:
            """Change parameters; return the estimator."""
            for name, value in parameters.items():
                if name not in self.get_params():
                    raise ValueError(f"Invalid parameter {name!r}: it has {', '.join(self.get_params())}.")
                setattr(self, name, value)
            return self


_LABELS = "labels.json"  # in a saved model: its labels in the order of the classes, and its parameters
Labels = Sequence[Any] | np.ndarray[Any, Any]


class PromptClassifier(ClassifierMixin, BaseEstimator):
    """A CLIP whose prompt is tuned on a few labelled images.

    It follows scikit-learn's conventions: `fit` does not change parameters and returns the estimator, and the names of
    learned attributes end in an underscore.

    Attributes:
        classes_: The sorted labels, in the order of the columns of `predict_proba`.
        classifier_: The trained model, with more methods: see `cocoamix.load`.
    """

    classes_: np.ndarray[Any, Any]
    classifier_: TrainedModel

    def __init__(
        self,
        backbone: str = "ViT-B/16",
        method: str = "CoCoAMix",
        shots: int | None = None,
        *,
        epochs: int | None = None,
        seed: int = 1,
        class_names: Mapping[Any, str] | None = None,
        config: str | None = None,
        settings: Mapping[str, Any] | None = None,
        output: str | os.PathLike[str] | None = None,
        verbose: bool = False,
    ) -> None:
        """Set the parameters; nothing is loaded before `fit`.

        Args:
            backbone: Name of a CLIP, such as ViT-B/16; `tiny` is the one in this package.
            method: Name of a trainer, as `--trainer` takes it.
            shots: Training images to draw per class; by default all.
            epochs: Number of training epochs; by default that of the configuration.
            seed: Seed of the draw, the augmentation and the context.
            class_names: The class name of each label for prompts; by default the labels themselves.
            config: A configuration of the method, by name (`cocoamix:CoOp/vit_b16.yaml`) or file; by default the
                shipped one for the backbone.
            settings: Further keys of the configuration with their values, such as `{"OPTIM.LR": 0.01}`.
            output: Folder for checkpoints and the log; by default a temporary one.
            verbose: Whether the log is printed.
        """
        self.backbone, self.method, self.shots = backbone, method, shots
        self.epochs, self.seed, self.class_names = epochs, seed, class_names
        self.config, self.settings, self.output, self.verbose = config, settings, output, verbose

    # ------------------------------------------------------------------ training

    def fit(self, images: Sequence[AnyImage], labels: Labels) -> PromptClassifier:
        """Tune the prompt.

        Args:
            images: Paths, PIL images, arrays or tensors.
            labels: The class of each image: its name, or a key of `class_names`.

        Returns:
            The estimator.
        """
        labels = list(np.asarray(labels).tolist())
        if len(images) != len(labels):
            raise ValueError(f"There are {len(images)} images, but {len(labels)} labels.")
        classes = sorted(set(labels))
        names = [self._name_of(label) for label in classes]
        check_different(names)
        if len(classes) < 2:
            raise UserError(f"The labels have {len(classes)} classes. A classifier needs at least two.")
        number = {label: place for place, label in enumerate(classes)}
        items = [
            as_item(image, place, True, number[label], names[number[label]])
            for place, (image, label) in enumerate(zip(images, labels, strict=True))
        ]
        # Deleted with the model, which may outlive the estimator.
        temporary = tempfile.TemporaryDirectory(prefix="cocoamix-") if self.output is None else None
        folder = Path(temporary.name) if temporary else self._own_folder()
        with contextlib.nullcontext() if self.verbose else contextlib.redirect_stdout(io.StringIO()):
            self._train(items, folder)
        parameters = {name: getattr(self, name) for name in ("backbone", "method", "shots", "epochs", "seed", "config")}
        parameters["settings"] = dict(self.settings) if self.settings else None
        write_json(folder / _LABELS, {"labels": classes, "parameters": parameters})
        self.classifier_, self.classes_ = load_model(folder), np.asarray(classes)
        self.classifier_.kept_alive = temporary
        return self

    def _name_of(self, label: Any) -> str:
        if self.class_names is not None:
            if label not in self.class_names:
                raise UserError(f"class_names has no name for the label {label!r}.")
            return tidy_class(self.class_names[label])
        if not isinstance(label, str):
            raise UserError(
                f"The label {label!r} is not a name, and prompts need names: give class_names={{{label!r}: 'name'}} "
                "with every label."
            )
        return tidy_class(label)

    def _own_folder(self) -> Path:
        folder = expand_home(str(self.output))
        if folder.is_dir() and any(folder.iterdir()):
            raise UserError(f"The output folder {folder} is not empty. Name another, or delete it.")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _train(self, items: Sequence[Item], folder: Path) -> None:
        trainer_class = find_trainer(self.method)

        from cocoamix.datasets.own.listed import ListedDataset  # registers itself with Dassl's

        cfg = default_configuration()
        keys.merge_file(cfg, self.config or self._shipped())
        values = {
            "TRAINER.NAME": self.method,
            "MODEL.BACKBONE.NAME": self.backbone,
            "SEED": self.seed,
            "OUTPUT_DIR": str(folder),
            "DATASET.NAME": "ImageFolderDataset",  # the user's own images, with the template for them
            "DATASET.NUM_SHOTS": -1 if self.shots is None else self.shots,
            "TEST.NO_TEST": True,
            **({"OPTIM.MAX_EPOCH": self.epochs} if self.epochs is not None else {}),
            **flatten(self.settings or {}),
        }
        keys.merge_settings(cfg, values)
        keys.check_common(cfg)
        cfg.freeze()
        if cfg.SEED >= 0:
            set_random_seed(cfg.SEED)
        trainer = trainer_class(cfg, ListedDataset(cfg, items))
        if not trainer.get_model_names():
            raise UserError(f"{self.method} has nothing to train. Use a method that is trained.")
        trainer.train()

    def _shipped(self) -> str:
        """Return the shipped configuration of the method, the one for the backbone if there is one."""
        slug = self.backbone.lower().replace("-", "_").replace("/", "").replace("@", "_")
        known = [name for name in shipped.names() if name.startswith(f"trainers/{self.method}/")]
        if not known:
            raise UserError(f"There is no configuration for the method {self.method!r}. Give config=FILE.")
        wanted = [f"trainers/{self.method}/{name}.yaml" for name in (f"{slug}_ep50", slug, "vit_b16_ep50", "vit_b16")]
        return shipped.PREFIX + next((name for name in wanted if name in known), known[0])

    # ------------------------------------------------------------------ use

    def _fitted(self) -> TrainedModel:
        if not hasattr(self, "classifier_"):
            raise UserError("This PromptClassifier is not fitted yet. Call fit(images, labels) first.")
        return self.classifier_

    def predict_proba(self, images: Sequence[AnyImage]) -> np.ndarray[Any, Any]:
        """Return the (N, C) probabilities of images."""
        return self._fitted().probabilities(images).numpy()

    def predict(self, images: Sequence[AnyImage]) -> np.ndarray[Any, Any]:
        """Return the label of each image."""
        numbers = self.predict_proba(images).argmax(axis=1)
        return self.classes_[numbers]

    def score(self, images: Sequence[AnyImage], labels: Labels) -> float:
        """Return the accuracy, between 0 and 1."""
        return float(np.mean(self.predict(images) == np.asarray(labels)))

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Copy the run to a new folder, for `load` and the commands of the package."""
        target = expand_home(folder)
        if target.exists():
            raise UserError(f"{target} already exists. Choose another folder.")
        shutil.copytree(self._fitted().record.folder, target)
        return target

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> PromptClassifier:
        """Return the estimator of a run that `save` or train.py wrote."""
        model = load_model(folder)
        parameters: dict[str, Any] = {"backbone": model.cfg.MODEL.BACKBONE.NAME, "method": model.record.trainer}
        labels: list[Any] = list(model.record.classnames)  # in a run of train.py, the names are the labels
        path = model.record.folder / _LABELS
        if path.is_file():
            kept = read_json(path)
            if not isinstance(kept, dict) or len(kept.get("labels", ())) != len(labels):
                raise UserError(f"{path} does not list the labels of the model: it was altered. Restore it.")
            labels, parameters = kept["labels"], {**parameters, **kept.get("parameters", {})}
        estimator = cls(**parameters)
        estimator.classifier_, estimator.classes_ = model, np.asarray(labels)
        return estimator
