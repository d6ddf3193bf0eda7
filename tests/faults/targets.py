"""Texts that the project reads: configurations, plans, lists, tables, results, logs; and command lines."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import yaml

import cocoamix.trainers  # noqa: F401  (before dassl is used)

# isort: split
from cocoamix import cli
from cocoamix.data import manifest
from cocoamix.data.building import name_in
from cocoamix.data.unpack import unpack
from cocoamix.datasets import cub200_fscil, mini_imagenet_fscil
from cocoamix.datasets.common.imagenet_folders import read_classnames
from cocoamix.datasets.common.splits import read_split
from cocoamix.datasets.own.class_names import read_names
from cocoamix.datasets.own.csv_file import _classes, read_table
from cocoamix.errors import UserError
from cocoamix.experiments import plots, render
from cocoamix.experiments.figures import source
from cocoamix.experiments.plan import load_plan, shipped
from cocoamix.experiments.report import build
from cocoamix.features.store import FeatureStore
from cocoamix.features.stored import info
from cocoamix.run.arguments import parse_arguments
from cocoamix.run.checkpointer import newest
from cocoamix.run.predictions import read_predictions
from cocoamix.run.results import Results
from cocoamix.run.state import STAMP, Folders, Request
from cocoamix.train import setup_cfg
from parse_test_res import main as parse_test_res
from tests.conftest import ROOT
from tests.experiments import trees

from .forms import Form, Json, Text, Yaml
from .fuzz import Target
from .mutators import FRAGMENTS, TEXTS

EUROSAT = str(ROOT / "configs" / "datasets" / "eurosat.yaml")


class TrainerConfig(Target):
    name, file, form = "trainer config", "trainer.yaml", Yaml()
    chosen = "trainers/*/tiny.yaml"

    def samples(self) -> Sequence[Any]:
        if not hasattr(self, "_samples"):
            self._samples = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "configs").glob(self.chosen))]
        return self._samples

    def read(self, path: Path) -> object:
        return setup_cfg(
            parse_arguments(["--dataset-config-file", EUROSAT, "--config-file", str(path), "--trainer", "CoCoAMix"])
        )


class TrainerText(TrainerConfig):
    name, form = "trainer config text", Text()

    def samples(self) -> Sequence[Any]:
        return [yaml.safe_dump(one) for one in super().samples()]


class DatasetConfig(TrainerConfig):
    name, file, chosen = "dataset config", "dataset.yaml", "datasets/*.yaml"

    def read(self, path: Path) -> object:
        name_in(str(path))
        return setup_cfg(parse_arguments(["--dataset-config-file", str(path), "--trainer", "CoCoAMix"]))


class PlanFile(TrainerConfig):
    name, file = "plan", "plan.yaml"

    def samples(self) -> Sequence[Any]:
        if not hasattr(self, "_samples"):
            self._samples = [yaml.safe_load(path.read_text()) for path in shipped().values()]
        return self._samples

    def read(self, path: Path) -> object:
        return replace(load_plan(str(path)), overrides={"OPTIM.MAX_EPOCH": 3})


class PlanText(PlanFile):
    name, form = "plan text", Text()

    def samples(self) -> Sequence[Any]:
        return [yaml.safe_dump(one) for one in super().samples()]


class Manifest(Target):
    name, file, form = "manifest", "draw.json", Json()

    def samples(self) -> Sequence[Any]:
        head = {"format": manifest.FORMAT, "version": 1, "dataset": "EuroSAT", "shots": 2, "seed": 1}
        rows = [[f"a/{number}.png", number % 2, "0" * 64] for number in range(4)]
        return [{**head, "classnames": ["one", "two"], "train": rows, "val": [["b/1.png", 0, "f" * 64]]}]

    def read(self, path: Path) -> object:
        return manifest.read_manifest(path)


class ClassNames(Target):
    name, file = "class names", "names.txt"
    classes = ("n01440764", "cat", "a b", "3")

    def samples(self) -> Sequence[Any]:
        return ['n01440764\ttench\ncat, house cat\na b; "x, y"\n3 three\n']

    def read(self, path: Path) -> object:
        return read_names(path, self.classes, "folder")


class ClassNamesJson(ClassNames):
    name, file, form = "class names JSON", "names.json", Json()

    def samples(self) -> Sequence[Any]:
        return [{"n01440764": "tench", "cat": "house cat", "a b": "x", "3": "three"}]


class Table(Target):
    name, file = "CSV table", "table.csv"

    def samples(self) -> Sequence[Any]:
        return [
            "path,label,classname,split\na.png,0,cat,train\nb.png,1,dog,test\n",
            "path;label\na.png;3\nb.png;10\n",
            'file\tclass\n"a, b.png"\tcat\nc.png\t"dog\nbig"\n',
        ]

    def read(self, path: Path) -> object:
        return _classes(path, read_table(path))


class Split(Target):
    name, file, form = "split file", "split.json", Json()

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "a").mkdir()
        for number in range(6):
            (folder / "a" / f"{number}.png").touch()

    def samples(self) -> Sequence[Any]:
        rows = [[f"a/{number}.png", number % 2, ("one", "two")[number % 2]] for number in range(6)]
        return [{"train": rows[:2], "val": rows[2:4], "test": rows[4:]}]

    def read(self, path: Path) -> object:
        return read_split(path, self.folder)


class Pointer(Target):
    name, file = "checkpoint pointer", "checkpoint"

    def samples(self) -> Sequence[Any]:
        return ["model.pth.tar-50\n"]

    def read(self, path: Path) -> object:
        found = newest(path.parent)
        if not found.is_file():
            raise UserError("There is no such file.")
        return found


# ---------------------------------------------------------------------- archives


class _Members(Form):
    """Samples are lists of (name, content); unusual names replace some, or the archive's bytes are damaged."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def write(self, value: Any) -> bytes:
        file = io.BytesIO()
        if self.kind == "zip":
            with zipfile.ZipFile(file, "w") as archive:
                for name, content in value:
                    archive.writestr(zipfile.ZipInfo(name), content)
        else:
            with tarfile.open(fileobj=file, mode="w:gz" if self.kind == "tgz" else "w") as packed:
                for name, content in value:
                    info = tarfile.TarInfo(name)
                    info.size = len(content)
                    packed.addfile(info, io.BytesIO(content))
        return file.getvalue()

    def damage(self, random: Random, sample: Any) -> bytes:
        if random.random() < 0.5:
            return super().damage(random, sample)
        renamed = list(sample)
        place = random.randrange(len(renamed))
        name = random.choice((*TEXTS, *FRAGMENTS, ".", "./", "a/", "data", "data/a.png/x", "//", "C:x", "con"))
        with contextlib.suppress(Exception):  # a name that no archive can have
            return self.write([*renamed[:place], (name, renamed[place][1]), *renamed[place + 1 :]])
        return super().damage(random, sample)


class Zip(Target):
    name, file, form = "zip archive", "images.zip", _Members("zip")

    def samples(self) -> Sequence[Any]:
        return [[("data/a.png", b"a" * 200), ("data/b/c.png", b"c" * 99), ("data/d.txt", b"")]]

    def read(self, path: Path) -> object:
        return unpack(path, path.parent / "target", take="data")


class Tar(Zip):
    name, file, form = "tar archive", "images.tar", _Members("tar")


class Tgz(Zip):
    name, file, form = "tar.gz archive", "images.tgz", _Members("tgz")


# ---------------------------------------------------------------------- results and the report


def valid_results() -> list[Any]:
    """Return results of several kinds."""
    stored = sorted((ROOT / "tests" / "run" / "results_v1").glob("*.json"))
    return [json.loads(path.read_text()) for path in stored]


class ResultsFile(Target):
    name, file, form = "results.json", "results.json", Json()

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._samples = valid_results()

    def samples(self) -> Sequence[Any]:
        return self._samples

    def read(self, path: Path) -> object:
        return Results.read(path)


class PredictionsTable(Target):
    name, file = "table of predictions", "predictions.csv"

    def samples(self) -> Sequence[Any]:
        head = "image,label,predicted,confidence,label_probability,class_1,probability_1,class_2,probability_2"
        rows = "a.png,cat,cat,0.9,0.9,cat,0.9,dog,0.1,\n\"b, c.png\",,'=dog,0.6,,'=dog,0.6,cat,0.4,\n"
        return [f"{head},error\n{rows}d.png,cat,,,,,,,,it is no image\n", f"{head}\na.png,cat,cat,1,1,cat,1,dog,0\n"]

    def read(self, path: Path) -> object:
        return read_predictions(path)


class Stamp(Target):
    name, file, form = "runner's stamp", STAMP, Json()

    def samples(self) -> Sequence[Any]:
        return [{"start": "a", "code": "0" * 64, "models": {"model": "0" * 64, ".": ""}, "seconds": 3.5}]

    def read(self, path: Path) -> object:
        request = Request(None, trains=False, needs=(path.parent, path.parent / "model"), code="1")
        return Folders(setup_cfg).state(path.parent, request)


class Report(Target):
    """A damaged run among good ones: the report must show the good ones, whatever is wrong with the other."""

    name, file, form, share = "run in a report", "results.json", Json(), 2.0
    page = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        trees.write_pair(folder / "good", 90.0, 70.0, config={"TRAINER": {"NAME": "CoOp", "COOP": {"W": 1.0}}})
        trees.write_pair(folder / "good", 91.0, 71.0, seed=2, config={"TRAINER": {"NAME": "CoOp", "COOP": {"W": 2.0}}})
        trees.write_results(folder / "good" / "fscil/cifar100/CoOpFSCIL/x/seed1", 50.0, sessions=[60.0, 50.0])
        self._samples = [*self._written(folder), *valid_results()]

    def _written(self, folder: Path) -> list[Any]:
        return [json.loads(path.read_text()) for path in sorted((folder / "good").rglob("results.json"))]

    def samples(self) -> Sequence[Any]:
        return self._samples

    def place(self, random: Random, path: Path, sample: Any) -> None:
        # Placed by CoOp's layout, so that it is in the same tables.
        run = path.parent / "base2new/train_base/eurosat/shots_4/CoOp/vit_b16/seed3"
        run.mkdir(parents=True)
        super().place(random, run / self.file, sample)

    def read(self, path: Path) -> object:
        report = build([self.folder / "good", path.parent])
        runs = report.frame.runs["folder"]
        good = [run for run in runs if "good" in Path(run).parts]
        if len(good) != 5:
            raise AssertionError(f"{len(good)} of 5 good runs are in the report")
        there = any(not one.is_dir() for one in path.parent.rglob(f"{self.file}*"))
        if there and len(good) == len(runs) and not report.frame.left_out:
            raise AssertionError("a run is left out without a reason")
        for form in (render.markdown, render.latex, render.csv):
            form(report).encode()
        if re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", render.markdown(report)):
            raise AssertionError("control characters are printed")
        json.dumps(render.json(report), ensure_ascii=False).encode()
        if self.page:
            render.html(report, plots.to_svg(plots.draw(report))).encode()
        return report


class ReportLog(Report):
    name, file, form, share = "log in a report", "log.txt", Text(), 1.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        start = trees.head("CoOp", "EuroSAT", subset="base", seed=3, shots=4)
        self._samples = [start + trees.training() + trees.result(857)]


class ReportPage(Report):
    name, share, page = "run on a page", 0.05, True
    patience = 6.0  # figures take a second or more


class PeerLog(Target):
    name, file = "log for parse_test_res", "log.txt"

    def samples(self) -> Sequence[Any]:
        return [trees.head("CoOp", "EuroSAT") + trees.training() + trees.result(857)]

    def place(self, random: Random, path: Path, sample: Any) -> None:
        run = path.parent / "seed1"
        run.mkdir()
        super().place(random, run / self.file, sample)

    def read(self, path: Path) -> object:
        if parse_test_res([str(path.parent)]):
            raise UserError("It is refused.")
        return None


# ---------------------------------------------------------------------- command lines


class _Words(Form):
    """Samples are lists of words."""

    def write(self, value: Any) -> bytes:
        return json.dumps(value).encode()

    def damage(self, random: Random, sample: Any) -> bytes:
        words, replacements = (
            list(sample),
            [one for one in (*TEXTS, *FRAGMENTS) if one not in ("/", "..")],
        )  # all of the disk
        for _ in range(random.choice((1, 1, 2))):
            place = random.randrange(len(words))
            way = random.randrange(4)
            if way < 2:
                words[place] = random.choice(replacements)
            elif way == 2:
                del words[place]
            else:
                words.insert(place, random.choice((*replacements, *sample)))
            words = words or [""]
        return self.write(words)


class Options(Target):
    name, form = "command line", _Words()

    def samples(self) -> Sequence[Any]:
        flags = ["--root", "data", "--trainer", "CoCoAMix", "--seed", "1", "--backbone", "tiny"]
        pairs = ["OPTIM.LR", "0.002", "DATASET.NUM_SHOTS", "16", "TRAINER.COCOAMIX.N_CTX", "4"]
        return [["--dataset-config-file", EUROSAT, *flags, *pairs, "INPUT.SIZE", "(32, 32)"]]

    def read(self, path: Path) -> object:
        if not path.is_file() or not path.stat().st_size:
            return None
        printed = io.StringIO()
        try:
            with contextlib.redirect_stderr(printed):
                arguments = parse_arguments(json.loads(path.read_bytes()))
        except SystemExit:  # how argparse refuses
            raise UserError(printed.getvalue().strip()) from None
        return setup_cfg(arguments)


class Commands(Options):
    """Command lines of the other commands, run in their own folder. None of them trains or downloads."""

    name, share = "other command lines", 0.4

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        method = {"trainer": "CoOp", "config": "tiny"}
        plan = {"task": "base2new", "methods": [method], "datasets": ["eurosat"], "seeds": [1], "shots": 4}
        (folder / "plan.yaml").write_text(yaml.safe_dump(plan))

    def samples(self) -> Sequence[Any]:
        return [
            ["data", "check", "EuroSAT", "--root", "data", "--fast", "DATASET.NUM_SHOTS", "4"],
            ["data", "export", "EuroSAT", "--root", "data", "--shots", "2", "--seed", "1", "--out", "draw.json"],
            ["data", "import", "draw.json", "--root", "data", "--force"],
            ["report", "runs", "--baseline", "CoOp", "--name", "CoOp=x"],
            ["bench", "run", str(self.folder / "plan.yaml"), "--seeds", "1", "-j", "2", "--set", "OPTIM.LR", "0.1"],
            ["figures", "weights", "run", "--output", "figures"],
        ]

    def read(self, path: Path) -> object:
        if not path.is_file() or not path.stat().st_size:
            return None
        words = json.loads(path.read_bytes())
        printed, before = io.StringIO(), Path.cwd()
        os.chdir(path.parent)
        try:
            with contextlib.redirect_stderr(printed), _no_runs():
                status = cli.main([*words, "--dry-run"] if "bench" in words else words)
        except SystemExit as end:  # how argparse refuses
            status = int(end.code or 0)
        finally:
            os.chdir(before)
        if status == 2:
            raise UserError(printed.getvalue().strip())
        if status not in (0, 1):
            raise AssertionError(f"the exit status is {status}")
        return None


def _no_runs() -> contextlib.AbstractContextManager[object]:
    """Refuse to train the runs of a figure whose command line has lost its folder of runs."""
    return mock.patch.object(source, "_run_plan", side_effect=UserError("The runs of the figure are missing."))


class Lines(Target):
    name, file = "ImageNet's class names", "classnames.txt"

    def samples(self) -> Sequence[Any]:
        return ["n01440764 tench\nn01443537 goldfish\n"]

    def read(self, path: Path) -> object:
        return read_classnames(path)


class MiniImageNetTable(Target):
    name, file = "miniImageNet's table", "train.csv"

    def samples(self) -> Sequence[Any]:
        return ["filename,label\nn0153282900000005.jpg,n01532829\nn0153282900000006.jpg,n01532829\n"]

    def read(self, path: Path) -> object:
        return mini_imagenet_fscil.read_table(path)


class CubTable(Target):
    name, file = "CUB's table", "images.txt"

    def samples(self) -> Sequence[Any]:
        return ["1 001.Ani/Ani_0001_7.jpg\n2 002.Least_Auklet/Least_Auklet_0002_8.jpg\n"]

    def read(self, path: Path) -> object:
        return cub200_fscil.read_table(path, r"[^/\\]+/[^/\\]+", "a number and class folder/file name")


class StoreAbout(Target):
    name, file, form = "about.json of a store", "about.json", Json()

    def samples(self) -> Sequence[Any]:
        return [{"model": "tiny", "weights": "0" * 64, "transform": "Resize(32)"}]

    def place(self, random: Random, path: Path, sample: Any) -> None:
        store = FeatureStore(path.parent, sample).folder
        store.mkdir()
        super().place(random, store / self.file, sample)

    def read(self, path: Path) -> object:
        return info(path.parent)


TARGETS = (
    *(TrainerConfig, TrainerText, DatasetConfig, PlanFile, PlanText, Manifest, ClassNames, ClassNamesJson, Table),
    *(Split, Pointer, Zip, Tar, Tgz, ResultsFile, PredictionsTable, Stamp, Report, ReportLog, ReportPage),
    *(PeerLog, Options, Commands, Lines, MiniImageNetTable, CubTable, StoreAbout),
)
