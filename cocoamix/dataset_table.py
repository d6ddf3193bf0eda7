"""The table of all datasets: their names, configurations, folders, home pages and licences.

Downloads are in `cocoamix.data.sources`, loaders in `datasets/`. This module imports nothing heavy, because the report
and the data command need no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

VGG = "https://www.robots.ox.ac.uk/~vgg/data"
PUBLISHED, SYNTHETIC, OWN = "published", "synthetic", "own"


@dataclass(frozen=True)
class KnownDataset:
    """The names, folder, home page and licence of a dataset."""

    name: str  # in Dassl's registry, and DATASET.NAME
    config: str  # configs/datasets/<config>.yaml
    folder: str  # below the data root, as in CoOp; empty if any folder is allowed
    title: str  # full name
    homepage: str
    licence: str  # as the source states it, or "not stated"
    shown: str = ""  # name in tables of results, if not `name`
    kind: str = PUBLISHED

    @property
    def table_name(self) -> str:
        """The name that tables of results show."""
        return self.shown or self.name


def _synthetic(name: str, folder: str) -> KnownDataset:
    return KnownDataset(
        name, folder, folder, f"{name} (synthetic)", "docs/TINY.md", "MIT, as this project", kind=SYNTHETIC
    )


def _own(name: str, config: str, title: str) -> KnownDataset:
    return KnownDataset(name, config, "", title, "docs/OWN_IMAGES.md", "your own", kind=OWN)


_CIFAR = ("cifar-100-python", "CIFAR-100", "https://www.cs.toronto.edu/~kriz/cifar.html", "not stated")

# The published datasets are in the order of the papers' tables.
_ALL = (
    KnownDataset(
        "ImageNet",
        "imagenet",
        "imagenet",
        "ImageNet (ILSVRC 2012)",
        "https://image-net.org/download.php",
        "ImageNet's terms of access: non-commercial research and education",
    ),
    KnownDataset(
        "Caltech101",
        "caltech101",
        "caltech-101",
        "Caltech-101",
        "https://data.caltech.edu/records/mzrjq-6wc02",
        "CC BY 4.0",
    ),
    KnownDataset(
        "OxfordPets",
        "oxford_pets",
        "oxford_pets",
        "Oxford-IIIT Pets",
        f"{VGG}/pets/",
        "CC BY-SA 4.0; the copyright of the images stays with their owners",
    ),
    KnownDataset(
        "StanfordCars",
        "stanford_cars",
        "stanford_cars",
        "Stanford Cars",
        "https://ai.stanford.edu/~jkrause/cars/car_dataset.html",
        "not stated",
    ),
    KnownDataset(
        "OxfordFlowers",
        "oxford_flowers",
        "oxford_flowers",
        "Oxford Flowers 102",
        f"{VGG}/flowers/102/",
        "not stated",
        shown="Flowers102",
    ),
    KnownDataset(
        "Food101",
        "food101",
        "food-101",
        "Food-101",
        "https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101/",
        "images from Foodspotting; use beyond scientific fair use must be negotiated with their owners",
    ),
    KnownDataset(
        "FGVCAircraft",
        "fgvc_aircraft",
        "fgvc_aircraft",
        "FGVC-Aircraft",
        f"{VGG}/fgvc-aircraft/",
        "non-commercial research only",
    ),
    KnownDataset(
        "SUN397", "sun397", "sun397", "SUN397", "https://vision.princeton.edu/projects/2010/SUN/", "not stated"
    ),
    KnownDataset(
        "DescribableTextures",
        "dtd",
        "dtd",
        "Describable Textures (DTD)",
        f"{VGG}/dtd/",
        "for research purposes",
        shown="DTD",
    ),
    KnownDataset("EuroSAT", "eurosat", "eurosat", "EuroSAT (RGB)", "https://github.com/phelber/EuroSAT", "MIT"),
    KnownDataset(
        "UCF101",
        "ucf101",
        "ucf101",
        "UCF101 (middle frames)",
        "https://www.crcv.ucf.edu/data/UCF101.php",
        "not stated",
    ),
    KnownDataset(
        "ImageNetV2",
        "imagenetv2",
        "imagenetv2",
        "ImageNetV2 (matched frequency)",
        "https://github.com/modestyachts/ImageNetV2",
        "images from Flickr, to be used like ImageNet's",
    ),
    KnownDataset(
        "ImageNetSketch",
        "imagenet_sketch",
        "imagenet-sketch",
        "ImageNet-Sketch",
        "https://github.com/HaohanWang/ImageNet-Sketch",
        "MIT (of the repository)",
        shown="ImageNet-Sketch",
    ),
    KnownDataset(
        "ImageNetA",
        "imagenet_a",
        "imagenet-adversarial",
        "ImageNet-A",
        "https://github.com/hendrycks/natural-adv-examples",
        "MIT (of the repository)",
        shown="ImageNet-A",
    ),
    KnownDataset(
        "ImageNetR",
        "imagenet_r",
        "imagenet-rendition",
        "ImageNet-R",
        "https://github.com/hendrycks/imagenet-r",
        "not stated",
        shown="ImageNet-R",
    ),
    KnownDataset("CIFAR100", "cifar100", *_CIFAR),
    # The same archive, divided into sessions of classes; its results are shown as CIFAR100's.
    KnownDataset("CIFAR100FSCIL", "cifar100_fscil", *_CIFAR, shown="CIFAR100"),
    KnownDataset(
        "MiniImageNetFSCIL",
        "mini_imagenet_fscil",
        "miniimagenet",
        "miniImageNet in sessions",
        "https://github.com/icoz69/CEC-CVPR2021",
        "ImageNet's terms of access: non-commercial research and education",
        shown="miniImageNet",
    ),
    KnownDataset(
        "CUB200FSCIL",
        "cub200_fscil",
        "CUB_200_2011",
        "CUB-200-2011 in sessions",
        "https://data.caltech.edu/records/65de6-vp158",
        "not stated",
        shown="CUB200",
    ),
    _synthetic("ColourShape", "colour_shape"),
    _synthetic("WarmCool", "warm_cool"),
    _synthetic("RoundAngular", "round_angular"),
    _synthetic("PlainPattern", "plain_pattern"),
    _synthetic("TextureColour", "texture_colour"),
    _synthetic("Shapes", "shapes"),
    _own("ImageFolderDataset", "folder", "A folder of images"),
    _own("CSVDataset", "csv", "Images that a table lists"),
)

DATASETS: dict[str, KnownDataset] = {one.name: one for one in _ALL}


def of_kind(kind: str) -> list[KnownDataset]:
    """Return the datasets of a kind (PUBLISHED, SYNTHETIC or OWN), in the order of the table."""
    return [one for one in DATASETS.values() if one.kind == kind]
