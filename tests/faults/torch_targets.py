"""Files of tensors and pickles that the project reads."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from dassl.data.datasets import Datum
from PIL import Image
from torch import nn

from cocoamix import checkpoint
from cocoamix.clip import backbones, load_clip
from cocoamix.clip.backbones import Backbone, Sizes
from cocoamix.clip.model import build_openai
from cocoamix.datasets.cifar100 import read_images, read_names
from cocoamix.datasets.common.kept_draws import fitting
from cocoamix.datasets.common.pickles import read_items
from cocoamix.errors import UserError
from cocoamix.features import reading
from cocoamix.features.store import FeatureStore, make_key
from cocoamix.fscil.files import read_sessions
from cocoamix.io import checkpoints
from cocoamix.run.origin import check_trainer, check_weights, origin_of
from tests.conftest import CLASSES, TINY, command, write_dataset

from .forms import Form, Pickle, Safetensors, Torch
from .fuzz import Target

ORIGIN = {
    "trainer": "CoOp",
    "weights_sha256": "0" * 64,
    "activation": "quick_gelu",
    "backbone": "tiny",
    "classnames": ["one", "two"],
    "seed": 1,
    "settings": {"OPTIM.LR": 0.002, "TRAINER.COOP.N_CTX": 4},
    "protocol": {"dataset": "EuroSAT", "splits": {"test": "t"}},
}


class Prompt(nn.Module):
    """What a checkpoint is loaded into."""

    def __init__(self) -> None:
        super().__init__()
        self.ctx = nn.Parameter(torch.zeros(4, 8))
        self.register_buffer("token_prefix", torch.zeros(2, 1, 8))
        self.register_buffer("token_suffix", torch.zeros(2, 3, 8))


class Checkpoint(Target):
    name, file, form = "checkpoint", "model.pth.tar-1", Torch()

    def samples(self) -> Sequence[Any]:
        state = dict(Prompt().state_dict())
        whole = {"state_dict": state, "epoch": 1, "optimizer": {"state": {}, "param_groups": [{"lr": 0.1}]}}
        return [{**whole, "cocoamix": ORIGIN, "val_result": 3.0}, whole, state]

    def read(self, path: Path) -> object:
        content = checkpoints.load(path)
        state, origin = checkpoints.weights_of(content, path), origin_of(content, path)
        module = Prompt()
        check_trainer(origin, "CoOp", path)
        check_weights(origin, ORIGIN, state, module, ["one", "two"], path)
        checkpoints.load_into(module, state, str(path), checkpoints.dead_in_kgcoop(state))
        return checkpoints.epochs_of(content)


class Resume(Target):
    """A run of CoCoA-Mix that was stopped after an epoch."""

    name, file, form, share = "resume.pth", "resume.pth", Torch(), 0.5
    trainer = "CoCoAMix"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from dassl.engine import build_trainer

        from cocoamix.train import parse_arguments, setup_cfg

        config = folder / "tiny.yaml"
        config.write_text(TINY)
        data = write_dataset(folder / "data", train=2, val=1, test=1)
        arguments = command(data, folder / "run", config, trainer=self.trainer)
        self.run = build_trainer(setup_cfg(parse_arguments(arguments)))
        self.run.begin_training()
        self._sample = checkpoint.resume_state(self.run, 1)

    def samples(self) -> Sequence[Any]:
        return [self._sample]

    def read(self, path: Path) -> object:
        from cocoamix.run.checkpointer import epochs_in

        return epochs_in(path), checkpoint.resume_file(self.run, path)


class Session(Target):
    name, file, form = "session file", "session-0.pth", Torch()

    def samples(self) -> Sequence[Any]:
        models = {"prompt_learner": {"ctx": torch.zeros(4, 8)}}
        return [{"session": 0, "epoch": 1, "models": models, "unreadable": {}, "cocoamix": ORIGIN}]

    def place(self, random: Random, path: Path, sample: Any) -> None:
        (path.parent / "sessions").mkdir()
        super().place(random, path.parent / "sessions" / path.name, sample)

    def read(self, path: Path) -> object:
        found = read_sessions(str(path.parent), [ORIGIN])
        for one in found:
            checkpoints.load_into(nn.ParameterDict({"ctx": torch.zeros(4, 8)}), one.models["prompt_learner"], "x")
        return found


class StoreFile(Target):
    name, file, form = "store of features", "0" * 32 + ".safetensors", Safetensors()

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from cocoamix.features.store import _to_bytes

        self.keys = [make_key(number) for number in range(3)]
        self._bytes = _to_bytes(self.keys, torch.ones(3, 8))

    def samples(self) -> Sequence[Any]:
        return [{"keys": torch.zeros(3, 16, dtype=torch.uint8), "features": torch.ones(3, 8)}]

    def place(self, random: Random, path: Path, sample: Any) -> None:
        store = FeatureStore(path.parent, {"model": "x"})
        place = store.folder / "test" / path.name
        place.parent.mkdir(parents=True)
        if random.random() < 0.5:
            place.write_bytes(Form().damage(random, self._bytes))
        else:
            super().place(random, place, sample)

    def read(self, path: Path) -> object:
        found = FeatureStore(path.parent, {"model": "x"}).read("test", self.keys)
        if any(not torch.equal(one, torch.ones(8)) for one in found.values()):
            raise AssertionError("a damaged feature was read")
        return found


class Weights(Target):
    """CLIP weights as a state dict, of a minimal model."""

    name, file, form, share = "CLIP weights", "weights.pt", Torch(), 0.7
    sizes = Sizes(16, 16, 1, 64, 8, 64, 1, context_length=8, vocabulary=32)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        backbones.BACKBONES["fuzz"] = Backbone(self.sizes, "")
        with torch.random.fork_rng(devices=[]):
            model = build_openai(self.sizes)
        self._sample = {key: value.detach().clone() for key, value in model.state_dict().items()}

    def samples(self) -> Sequence[Any]:
        return [self._sample, {"state_dict": {f"module.{key}": value for key, value in self._sample.items()}}]

    def read(self, path: Path) -> object:
        return load_clip("fuzz", str(path), precision="fp32")


class SafeWeights(Weights):
    name, file, form = "CLIP safetensors", "weights.safetensors", Safetensors()

    def samples(self) -> Sequence[Any]:
        return super().samples()[:1]


class Draw(Target):
    name, file, form = "few-shot draw", "shot_2-seed_1.pkl", Pickle()

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        write_dataset(folder, train=2, val=1, test=1)
        paths = sorted((folder / "eurosat").rglob("*.png"))
        self.items = [
            Datum(str(path), label=number % 10, classname=CLASSES[number % 10]) for number, path in enumerate(paths)
        ]

    def samples(self) -> Sequence[Any]:
        return [{"train": self.items[:10], "val": self.items[10:20]}]

    def read(self, path: Path) -> object:
        train, val = read_items(path, ("train", "val"), "a few-shot draw")
        return [fitting(items, self.items, 2, "train", path) for items in (train, val)]


class Images(Target):
    """Damaged images are unreadable for the same reason in training and in `data check`."""

    name, file, form = "image", "image.png", Form()

    def samples(self) -> Sequence[Any]:
        pixels = np.random.default_rng(0).integers(0, 256, (12, 9, 3), dtype=np.uint8)
        found = []
        for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"):
            file = io.BytesIO()
            Image.fromarray(pixels).save(file, kind)
            found.append(file.getvalue())
        deep = io.BytesIO()
        Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 257).save(deep, "PNG")
        return [*found, deep.getvalue()]

    def read(self, path: Path) -> object:
        reason = reading.why_unreadable(str(path))
        try:
            image = reading.read_image(str(path), upright=True)
        except reading.UnreadableError as error:
            raise UserError(str(error)) from error
        if reason:  # a truncated JPEG may still be readable at a reduced size
            raise UserError(reason)
        return image


class CifarMeta(Target):
    name, file, form = "CIFAR meta", "meta", Pickle()

    def samples(self) -> Sequence[Any]:
        names = ["apple", "aquarium_fish"]
        return [{"fine_label_names": names}, {b"fine_label_names": [name.encode() for name in names]}]

    def read(self, path: Path) -> object:
        return read_names(path.parent)


class CifarBatch(Target):
    name, file, form = "CIFAR batch", "train", Pickle()

    def samples(self) -> Sequence[Any]:
        pixels = np.arange(2 * 3072, dtype=np.uint64).astype(np.uint8).reshape(2, 3072)
        return [{"fine_labels": [0, 1], "data": pixels}, {b"fine_labels": [1, 1], b"data": pixels}]

    def read(self, path: Path) -> object:
        return [item.draw() for item in read_images(path, ["apple", "bear"])]


TARGETS = (Checkpoint, Resume, Session, StoreFile, Weights, SafeWeights, Draw, CifarMeta, CifarBatch, Images)
