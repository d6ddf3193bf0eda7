"""Few-shot prompt tuning with scikit-learn's interface and the code of train.py."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cocoamix.clip.class_names import tidy_class
from cocoamix.config import keys, shipped
from cocoamix.config.settings import flatten
from cocoamix.errors import UserError
from cocoamix.io.files import write_json
from cocoamix.io.paths import expand_home
from cocoamix.io.texts import read_json
from cocoamix.run.given import GivenData, Item, given
from cocoamix.run.recorded import RecordedRun, find_run

from .classifier import Classifier, refuse_same
from .images import AnyImage, as_item

_LABELS = "labels.json"  # in a saved model: its labels in the order of the classes, and its parameters
Labels = Sequence[Any] | np.ndarray[Any, Any]


class TemporaryFolder:
    """A folder that is deleted with the last reference to this object."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="cocoamix-"))
        self._finalizer = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


class PromptClassifier:
    """A CLIP whose prompt is tuned on a few labelled images.

    It follows scikit-learn's conventions without requiring it: `fit` does not change parameters and returns the
    estimator, and the names of learned attributes end in an underscore.

    Attributes:
        classes_: The sorted labels, in the order of the columns of `predict_proba`.
        classifier_: The trained classifier, with more methods: see `cocoamix.load`.
    """

    classes_: np.ndarray[Any, Any]
    classifier_: Classifier

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

    # ------------------------------------------------------------------ scikit-learn's conventions

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        names = [name for name in inspect.signature(type(self).__init__).parameters if name != "self"]
        return {name: getattr(self, name) for name in names}

    def set_params(self, **parameters: Any) -> PromptClassifier:
        """Change parameters; return the estimator."""
        known = self.get_params()
        for name, value in parameters.items():
            if name not in known:
                raise ValueError(f"PromptClassifier has no parameter {name!r}. It has {', '.join(known)}.")
            setattr(self, name, value)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classifier_")

    def __repr__(self) -> str:
        defaults = {name: one.default for name, one in inspect.signature(type(self).__init__).parameters.items()}
        changed = {name: value for name, value in self.get_params().items() if value != defaults[name]}
        return f"PromptClassifier({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

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
        refuse_same(names)
        if len(classes) < 2:
            raise UserError(
                f"There is one class, {names[0]!r}. A classifier needs at least two." if names else "No images."
            )
        number = {label: place for place, label in enumerate(classes)}
        items = [
            as_item(image, place, True, number[label], names[number[label]])
            for place, (image, label) in enumerate(zip(images, labels, strict=True))
        ]
        folder = self._folder()
        with contextlib.nullcontext() if self.verbose else contextlib.redirect_stdout(io.StringIO()):
            self._train(items, folder)
        write_json(folder / _LABELS, {"labels": classes, "parameters": self._plain_parameters()})
        self._use_run(find_run(folder), classes)
        # The folder must exist as long as the classifier, which may outlive this estimator.
        self.classifier_.kept_alive = self._temporary if self.output is None else None
        return self

    def _plain_parameters(self) -> dict[str, Any]:
        """Return the parameters as plain values, for a saved model."""
        names = ("backbone", "method", "shots", "epochs", "seed", "config", "settings")
        found = {name: getattr(self, name) for name in names}
        return {**found, "settings": dict(self.settings) if self.settings else None}

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

    def _folder(self) -> Path:
        if self.output is not None:
            folder = expand_home(self.output)
            if folder.is_dir() and any(folder.iterdir()):
                raise UserError(f"The output folder {folder} is not empty. Name another, or delete it.")
            folder.mkdir(parents=True, exist_ok=True)
            return folder
        self._temporary = TemporaryFolder()
        return self._temporary.path

    def _configuration(self, folder: Path) -> Any:
        from dassl.config import get_cfg_default

        cfg = get_cfg_default()
        keys.extend_cfg(cfg)
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
        for key, value in values.items():
            keys.merge_value(cfg, key, value)
        keys.check_common(keys.complete(cfg))
        cfg.freeze()
        return cfg

    def _shipped(self) -> str:
        """Return the shipped configuration of the method, the one for the backbone if there is one."""
        slug = self.backbone.lower().replace("-", "_").replace("/", "").replace("@", "_")
        known = [name for name in shipped.names() if name.startswith(f"trainers/{self.method}/")]
        if not known:
            raise UserError(f"There is no configuration for the method {self.method!r}. Give config=FILE.")
        for name in (f"{slug}_ep50", slug, "vit_b16_ep50", "vit_b16"):
            if f"trainers/{self.method}/{name}.yaml" in known:
                return f"{shipped.PREFIX}trainers/{self.method}/{name}.yaml"
        return f"{shipped.PREFIX}{known[0]}"

    def _train(self, items: Sequence[Item], folder: Path) -> None:
        # Here, because importing the library must not import the trainers.
        import cocoamix.trainers  # noqa: F401  (before dassl is used)

        # isort: split
        from dassl.engine import TRAINER_REGISTRY, build_trainer
        from dassl.utils import set_random_seed

        from cocoamix.datasets.own.listed import ListedDataset
        from cocoamix.errors import check_choice

        cfg = self._configuration(folder)
        check_choice("method", cfg.TRAINER.NAME, TRAINER_REGISTRY.registered_names())
        if cfg.SEED >= 0:
            set_random_seed(cfg.SEED)
        data = ListedDataset(cfg, items)
        with given(GivenData(list(data.classnames), data.train_x, test=data.train_x)):
            trainer = build_trainer(cfg)
        if not trainer.get_model_names():
            raise UserError(f"{self.method} has nothing to train. Use a method that is trained.")
        trainer.train()

    def _use_run(self, run: RecordedRun, classes: list[Any]) -> None:
        self.classifier_ = Classifier(run)
        self.classes_ = np.asarray(classes)

    # ------------------------------------------------------------------ use

    def _fitted(self) -> Classifier:
        found: Classifier | None = getattr(self, "classifier_", None)
        if found is None:
            raise UserError("This PromptClassifier is not fitted yet. Call fit(images, labels) first.")
        return found

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
        source = self._fitted().run.folder
        shutil.copytree(source, target)
        return target

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> PromptClassifier:
        """Return the estimator of a run that `save` or train.py wrote."""
        run = find_run(expand_home(folder))
        backbone = flatten(run.config).get("MODEL.BACKBONE.NAME", "ViT-B/16")
        known: dict[str, Any] = {"backbone": backbone, "method": run.trainer}
        labels: list[Any] = list(run.classnames)  # in a run of train.py, the names are the labels
        path = run.folder / _LABELS
        if path.is_file():
            kept = read_json(path)
            if not isinstance(kept, dict) or len(kept.get("labels", ())) != len(labels):
                raise UserError(f"{path} does not list the labels of the model: it was altered. Restore it.")
            labels, known = kept["labels"], {**known, **kept.get("parameters", {})}
        found = cls(**known)
        found._use_run(run, labels)
        return found
