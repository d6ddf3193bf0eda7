"""The parts of each dataset's folder, and where to download them: addresses and checksums.

Names, folders, home pages and licences are in `cocoamix.dataset_table`. The ids of the files on Google Drive are those
of CoOp's DATASETS.md. Checksums are those that the source or a widely used loader of it (torchvision, TensorFlow
Datasets, Avalanche) publishes, and those of CoOp's split files that are known byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cocoamix.dataset_table import DATASETS, SYNTHETIC, VGG, of_kind

COOP = "https://github.com/KaiyangZhou/CoOp/blob/main/DATASETS.md"
_CEC = "3a5d335f19349aa2e5fa75c88aa2c701b6e5513d"  # the commit of CEC's repository with the lists


@dataclass(frozen=True)
class Part:
    """A file or folder in the dataset's folder."""

    path: str
    what: str
    required: bool = True
    instead: str = ""  # what happens without an optional part

    @property
    def is_split(self) -> bool:
        """Whether this is CoOp's split file."""
        return self.path.startswith("split_zhou_")


@dataclass(frozen=True)
class Remote:
    """A file to download."""

    name: str  # file name on this machine
    gives: tuple[str, ...]  # the parts that it contains
    url: str = ""
    drive: str = ""  # id of a file on Google Drive, which gdown downloads
    md5: str = ""
    sha256: str = ""  # if that is published instead
    size: int = 0  # bytes, if known
    unpack: bool = True  # an archive; otherwise the file itself is a part
    to: str | None = None  # folder below the data root; by default the dataset's folder
    take: str = ""  # folder in the archive whose content goes to `to`; by default everything does
    inner: str = ""  # archive inside the archive, which is unpacked where it is
    note: str = ""

    @property
    def checksum(self) -> str:
        """The MD5 or SHA-256 of the file; empty if none is published."""
        return self.md5 or self.sha256


@dataclass(frozen=True)
class Source:
    """A dataset: its name, its folder and where to get it."""

    name: str  # in Dassl's registry
    title: str
    config: str  # of configs/datasets
    folder: str
    homepage: str
    licence: str
    parts: tuple[Part, ...] = ()
    files: tuple[Remote, ...] = ()
    by_hand: str = ""  # instructions for files that need an account or are no longer online
    synthetic: bool = False  # needs no files
    other_folder: str = ""  # where the loader looks first, instead of `folder`

    def at(self, root: Path) -> Source:
        """Return the source with the folder that the dataset has below this data root."""
        there = bool(self.other_folder) and (root / self.other_folder).is_dir()
        return replace(self, folder=self.other_folder) if there else self

    def providers(self, path: str) -> list[Remote]:
        """Return the files that contain a part."""
        return [file for file in self.files if path in file.gives]

    def target(self, file: Remote) -> str:
        """Return the folder below the data root for a file or its content."""
        return self.folder if file.to is None else file.to


_OWN_SPLIT = "training draws its own split, and results are not comparable with published ones"


def _split(name: str, drive: str, md5: str = "") -> tuple[Part, Remote]:
    file = f"split_zhou_{name}.json"
    return (
        Part(file, "CoOp's split", required=False, instead=_OWN_SPLIT),
        Remote(file, (file,), drive=drive, md5=md5, unpack=False),
    )


def _class_names() -> tuple[Part, Remote]:
    note = "ImageNet and its four variants use the same file; you can copy it."
    return (
        Part("classnames.txt", "CLIP's class names"),
        Remote(
            "classnames.txt", ("classnames.txt",), drive="1-61f_ol79pViBFDG_IDlUQSwoLcn2XXF", unpack=False, note=note
        ),
    )


def _source(name: str, **more: Any) -> Source:
    """Return a source, with the facts that `dataset_table` has."""
    known = DATASETS[name]
    return Source(name, known.title, known.config, known.folder, known.homepage, known.licence, **more)


def _cifar() -> dict[str, Any]:
    """Return the parts and the archive of CIFAR-100."""
    return {
        "parts": (Part("train", "training images"), Part("test", "test images"), Part("meta", "class names")),
        "files": (
            Remote(
                "cifar-100-python.tar.gz",
                ("train", "test", "meta"),
                url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
                md5="eb9058c3a382ffc7106e4002c42a8d85",
                take="cifar-100-python",
            ),
        ),
        "other_folder": "cifar100/cifar-100-python",
    }


def _table() -> tuple[Source, ...]:
    names_part, names_file = _class_names()
    caltech_split, caltech_file = _split(
        "Caltech101", "1hyarUivQE36mY6jSomru6Fjd-JzwcCzN", "385cabeb25ebeebaa36167d7028ebc52"
    )
    pets_split, pets_file = _split(
        "OxfordPets", "1501r8Ber4nNKvmlFVQZ8SeUHTcdTTEqs", "fadad0caba06c4d0d2baf192015f50b4"
    )
    cars_split, cars_file = _split(
        "StanfordCars", "1ObCFbaAgVu0I-k_Au-gIUcefirdAuizT", "91255fab2e15280e6d9d9d24cc87efdb"
    )
    flowers_split, flowers_file = _split(
        "OxfordFlowers", "1Pp0sRXzZFZq15zVOzKjKBu4A9i01nozT", "cfeaf0508c398ca993bf48ca5f034569"
    )
    food_split, food_file = _split("Food101", "1QK0tGi096I0Ba6kggatX1ee6dJFIcEJl")
    sun_split, sun_file = _split("SUN397", "1y2RD81BYuiyvebdN-JymPfyWYcd8_MUq")
    dtd_split, dtd_file = _split(
        "DescribableTextures", "1u3_QfB467jqHgNXC00UIzbLZRQCg2S7x", "02ff57f1bbd002a43320737a3ecbc113"
    )
    eurosat_split, eurosat_file = _split(
        "EuroSAT", "1Ip7yaCWFi0eaOFUGga0lUdVi_DDQth1o", "989e1eca757dec43cfcee28faf6b28fc"
    )
    ucf_split, ucf_file = _split("UCF101", "1I0S0q91hJfsV9Gf4xDIjgDq4AqBNJb1y", "3a70ae2e43036a21111f3692a43fc839")
    cars_gone = "The official address has been reported dead since 2023."
    return (
        _source(
            "ImageNet",
            parts=(Part("images/train", "training images"), Part("images/val", "validation images"), names_part),
            files=(names_file,),
            by_hand="Create an account at image-net.org, accept the terms, and download ILSVRC2012_img_train.tar (MD5 "
            "1d675b47d978889d74fa0da5fadfb00e) and ILSVRC2012_img_val.tar (MD5 29b22e2961454d5413ddabcf34fc5622). "
            "Unpack them so that images/train and images/val each hold 1,000 folders such as n01440764.",
        ),
        _source(
            "Caltech101",
            parts=(Part("101_ObjectCategories", "images"), caltech_split),
            files=(
                Remote(
                    "caltech-101.zip",
                    ("101_ObjectCategories",),
                    url="https://data.caltech.edu/records/mzrjq-6wc02/files/caltech-101.zip",
                    md5="3138e1922a9193bfa496528edbbc45d0",
                    size=137_414_764,
                    take="caltech-101",
                    inner="101_ObjectCategories.tar.gz",
                ),
                caltech_file,
            ),
        ),
        _source(
            "OxfordPets",
            parts=(
                Part("images", "images"),
                Part("annotations", "labels", required=False, instead="CoOp's split is needed, which has the labels"),
                pets_split,
            ),
            files=(
                Remote(
                    "images.tar.gz",
                    ("images",),
                    url=f"{VGG}/pets/data/images.tar.gz",
                    md5="5c4f3ee8e5d25df40f4fd59a7f44e54c",
                ),
                Remote(
                    "annotations.tar.gz",
                    ("annotations",),
                    url=f"{VGG}/pets/data/annotations.tar.gz",
                    md5="95a8c909bbe2e81eed6a22bccdf3f68f",
                ),
                pets_file,
            ),
        ),
        _source(
            "StanfordCars",
            parts=(
                Part("cars_train", "training images"),
                Part("cars_test", "test images"),
                Part("devkit", "labels", required=False, instead="CoOp's split is needed, which has the labels"),
                Part(
                    "cars_test_annos_withlabels.mat",
                    "labels of the test images",
                    required=False,
                    instead="CoOp's split is needed, which has the labels",
                ),
                cars_split,
            ),
            files=(
                Remote(
                    "cars_train.tgz",
                    ("cars_train",),
                    url="https://ai.stanford.edu/~jkrause/car196/cars_train.tgz",
                    md5="065e5b463ae28d29e77c1b4b166cfe61",
                    note=cars_gone,
                ),
                Remote(
                    "cars_test.tgz",
                    ("cars_test",),
                    url="https://ai.stanford.edu/~jkrause/car196/cars_test.tgz",
                    md5="4ce7ebf6a94d07f1952d94dd34c4d501",
                    note=cars_gone,
                ),
                Remote(
                    "car_devkit.tgz",
                    ("devkit",),
                    url="https://ai.stanford.edu/~jkrause/cars/car_devkit.tgz",
                    md5="c3b158d763b6e2245038c8ad08e45376",
                    note=cars_gone,
                ),
                Remote(
                    "cars_test_annos_withlabels.mat",
                    ("cars_test_annos_withlabels.mat",),
                    url="https://ai.stanford.edu/~jkrause/car196/cars_test_annos_withlabels.mat",
                    md5="b0a2b23655a3edd16d84508592a98d10",
                    unpack=False,
                    note=cars_gone,
                ),
                cars_file,
            ),
        ),
        _source(
            "OxfordFlowers",
            parts=(
                Part("jpg", "images"),
                Part(
                    "imagelabels.mat",
                    "labels",
                    required=False,
                    instead="CoOp's split is needed, which has the labels",
                ),
                Part(
                    "cat_to_name.json",
                    "class names",
                    required=False,
                    instead="CoOp's split is needed, which has the class names",
                ),
                flowers_split,
            ),
            files=(
                Remote(
                    "102flowers.tgz",
                    ("jpg",),
                    url=f"{VGG}/flowers/102/102flowers.tgz",
                    md5="52808999861908f626f3c1f4e79d11fa",
                ),
                Remote(
                    "imagelabels.mat",
                    ("imagelabels.mat",),
                    url=f"{VGG}/flowers/102/imagelabels.mat",
                    md5="e0620be6f572b9609742df49c70aed4d",
                    unpack=False,
                ),
                Remote(
                    "cat_to_name.json",
                    ("cat_to_name.json",),
                    drive="1AkcxCXeK_RCGCEC_GvmWxjcjaNhu-at0",
                    unpack=False,
                ),
                flowers_file,
            ),
        ),
        _source(
            "Food101",
            parts=(Part("images", "images"), food_split),
            files=(
                Remote(
                    "food-101.tar.gz",
                    ("images",),
                    url="https://data.vision.ee.ethz.ch/cvl/food-101.tar.gz",
                    md5="85eeb15f3717b99a5da872d97d918f87",
                    take="food-101",
                ),
                food_file,
            ),
        ),
        _source(
            "FGVCAircraft",
            parts=(
                Part("images", "images"),
                Part("variants.txt", "class names"),
                Part("images_variant_train.txt", "training list"),
                Part("images_variant_val.txt", "validation list"),
                Part("images_variant_test.txt", "test list"),
            ),
            files=(
                Remote(
                    "fgvc-aircraft-2013b.tar.gz",
                    (
                        "images",
                        "variants.txt",
                        "images_variant_train.txt",
                        "images_variant_val.txt",
                        "images_variant_test.txt",
                    ),
                    url=f"{VGG}/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz",
                    sha256="d5f68b1b81d6d7831eb9d5c5517074176b5dfbce6bcb43dc14ed1c66a87b8d75",
                    size=2_750_000_000,
                    take="fgvc-aircraft-2013b/data",
                ),
            ),
        ),
        _source(
            "SUN397",
            parts=(
                Part("SUN397", "images"),
                Part(
                    "ClassName.txt",
                    "class names and lists",
                    required=False,
                    instead="CoOp's split is needed, which has them",
                ),
                sun_split,
            ),
            files=(
                Remote(
                    "SUN397.tar.gz",
                    ("SUN397",),
                    url="https://vision.princeton.edu/projects/2010/SUN/SUN397.tar.gz",
                    md5="8ca2778205c41d23104230ba66911c7a",
                    note="The official address has been reported dead since 2025.",
                ),
                Remote(
                    "Partitions.zip",
                    ("ClassName.txt",),
                    url="https://vision.princeton.edu/projects/2010/SUN/download/Partitions.zip",
                    sha256="e3311ea5f812d4cc6faef194688343d1111f6cd6f70f2c62f393c2b8d6ba1ec9",
                    note="The official address has been reported dead since 2025.",
                ),
                sun_file,
            ),
        ),
        _source(
            "DescribableTextures",
            parts=(Part("images", "images"), dtd_split),
            files=(
                Remote(
                    "dtd-r1.0.1.tar.gz",
                    ("images",),
                    url=f"{VGG}/dtd/download/dtd-r1.0.1.tar.gz",
                    md5="fff73e5086ae6bdbea199a49dfb8a4c1",
                    take="dtd",
                ),
                dtd_file,
            ),
        ),
        _source(
            "EuroSAT",
            parts=(Part("2750", "images"), eurosat_split),
            files=(
                Remote(
                    "EuroSAT_RGB.zip",
                    ("2750",),
                    url="https://zenodo.org/records/7711810/files/EuroSAT_RGB.zip",
                    md5="f46e308c4d50d4bf32fedad2d3d62f3b",
                    size=94_658_721,
                    to="eurosat/2750",
                    take="EuroSAT_RGB",
                ),
                eurosat_file,
            ),
        ),
        _source(
            "UCF101",
            parts=(Part("UCF-101-midframes", "middle frames of the videos"), ucf_split),
            files=(
                Remote("UCF-101-midframes.zip", ("UCF-101-midframes",), drive="10Jqome3vtUA2keJkNanAiFpgbyC9Hc2O"),
                ucf_file,
            ),
        ),
        _source(
            "ImageNetV2",
            parts=(Part("imagenetv2-matched-frequency-format-val", "images"), names_part),
            files=(
                Remote(
                    "imagenetv2-matched-frequency.tar.gz",
                    ("imagenetv2-matched-frequency-format-val",),
                    url="https://huggingface.co/datasets/vaishaal/ImageNetV2/resolve/main/"
                    "imagenetv2-matched-frequency.tar.gz",
                    sha256="f0c37fdf925916b19ea1323cd9a2208cdb6959ba2c32eef2a7fc393835c9ca7c",
                    size=1_264_079_360,
                ),
                names_file,
            ),
        ),
        _source(
            "ImageNetSketch",
            parts=(Part("images", "images"), names_part),
            files=(
                Remote(
                    "ImageNet-Sketch.zip",
                    ("images",),
                    drive="1Mj0i5HBthqH1p_yeXzsg22gZduvgoNeA",
                    size=7_800_000_000,
                    to="imagenet-sketch/images",
                    take="sketch",
                ),
                names_file,
            ),
        ),
        _source(
            "ImageNetA",
            parts=(Part("imagenet-a", "images"), names_part),
            files=(
                Remote(
                    "imagenet-a.tar",
                    ("imagenet-a",),
                    url="https://people.eecs.berkeley.edu/~hendrycks/imagenet-a.tar",
                    md5="c3e55429088dc681f30d81f4726b6595",
                ),
                names_file,
            ),
        ),
        _source(
            "ImageNetR",
            parts=(Part("imagenet-r", "images"), names_part),
            files=(
                Remote(
                    "imagenet-r.tar",
                    ("imagenet-r",),
                    url="https://people.eecs.berkeley.edu/~hendrycks/imagenet-r.tar",
                    md5="a61312130a589d0ca1a8fca1f2bd3337",
                ),
                names_file,
            ),
        ),
        *(_source(name, **_cifar()) for name in ("CIFAR100", "CIFAR100FSCIL")),
        _source(
            "MiniImageNetFSCIL",
            parts=(
                Part("images", "images of 84 pixels"),
                Part("split/train.csv", "training list"),
                Part("split/test.csv", "test list"),
            ),
            files=tuple(
                Remote(
                    f"split/{name}",
                    (f"split/{name}",),
                    url=f"https://raw.githubusercontent.com/icoz69/CEC-CVPR2021/{_CEC}/data/index_list/mini_imagenet/{name}",
                    md5=md5,
                    size=size,
                    unpack=False,
                )
                for name, size, md5 in (
                    ("train.csv", 1_600_015, "f4d601b472316a7f9a4d6c6194680aff"),
                    ("test.csv", 320_015, "6cc86bc117a8a316c435bc83e0d2c391"),
                )
            ),
            by_hand="Download miniimagenet.tar from the folder that the README of "
            "https://github.com/icoz69/CEC-CVPR2021 links to, and unpack it in the data folder.",
        ),
        _source(
            "CUB200FSCIL",
            parts=(
                Part("images", "images"),
                Part("images.txt", "numbers of the images"),
                Part("image_class_labels.txt", "classes of the images"),
                Part("train_test_split.txt", "training and test images"),
            ),
            files=(
                Remote(
                    "CUB_200_2011.tgz",
                    ("images", "images.txt", "image_class_labels.txt", "train_test_split.txt"),
                    url="https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
                    md5="97eceeb196236b17998738112f37df78",
                    take="CUB_200_2011",
                ),
            ),
        ),
        *(_source(one.name, synthetic=True) for one in of_kind(SYNTHETIC)),
    )


SOURCES: dict[str, Source] = {source.name: source for source in _table()}
