"""Hand-crafted templates: one per dataset, and CLIP's two ensembles for ImageNet."""

from __future__ import annotations

from cocoamix.registry import plain_name

DEFAULT = "a photo of a {}."

# CoOp's template for each dataset, by its registry name. Other datasets use DEFAULT.
PER_DATASET: dict[str, str] = {
    "OxfordPets": "a photo of a {}, a type of pet.",
    "OxfordFlowers": "a photo of a {}, a type of flower.",
    "FGVCAircraft": "a photo of a {}, a type of aircraft.",
    "DescribableTextures": "{} texture.",
    "EuroSAT": "a centered satellite photo of {}.",
    "Food101": "a photo of {}, a type of food.",
    "UCF101": "a photo of a person doing {}.",
    "CUB200FSCIL": "a photo of a {}, a type of bird.",  # CoOp has no template for birds; this follows its others
}

# Templates of methods that differ from CoOp's. ProGrad's end with the class name, so that they can be a context.
VARIANTS: dict[str, dict[str, str]] = {
    "KgCoOp": {"DescribableTextures": "a photo of a {}, a type of texture."},
    "ProGrad": {
        "OxfordPets": "a type of pet, a photo of a {}.",
        "OxfordFlowers": "a type of flower, a photo of a {}.",
        "FGVCAircraft": "a type of aircraft, a photo of a {}.",
        "DescribableTextures": "a texture of {}.",
        "Food101": "a type of food, a photo of {}.",
    },
}

# CLIP's subset of seven, which performs as well as all eighty.
IMAGENET_7: tuple[str, ...] = (
    "itap of a {}.",
    "a bad photo of the {}.",
    "a origami {}.",
    "a photo of the large {}.",
    "a {} in a video game.",
    "art of the {}.",
    "a photo of the small {}.",
)

# CLIP's eighty templates, in its order.
IMAGENET_80: tuple[str, ...] = (
    "a bad photo of a {}.",
    "a photo of many {}.",
    "a sculpture of a {}.",
    "a photo of the hard to see {}.",
    "a low resolution photo of the {}.",
    "a rendering of a {}.",
    "graffiti of a {}.",
    "a bad photo of the {}.",
    "a cropped photo of the {}.",
    "a tattoo of a {}.",
    "the embroidered {}.",
    "a photo of a hard to see {}.",
    "a bright photo of a {}.",
    "a photo of a clean {}.",
    "a photo of a dirty {}.",
    "a dark photo of the {}.",
    "a drawing of a {}.",
    "a photo of my {}.",
    "the plastic {}.",
    "a photo of the cool {}.",
    "a close-up photo of a {}.",
    "a black and white photo of the {}.",
    "a painting of the {}.",
    "a painting of a {}.",
    "a pixelated photo of the {}.",
    "a sculpture of the {}.",
    "a bright photo of the {}.",
    "a cropped photo of a {}.",
    "a plastic {}.",
    "a photo of the dirty {}.",
    "a jpeg corrupted photo of a {}.",
    "a blurry photo of the {}.",
    "a photo of the {}.",
    "a good photo of the {}.",
    "a rendering of the {}.",
    "a {} in a video game.",
    "a photo of one {}.",
    "a doodle of a {}.",
    "a close-up photo of the {}.",
    "a photo of a {}.",
    "the origami {}.",
    "the {} in a video game.",
    "a sketch of a {}.",
    "a doodle of the {}.",
    "a origami {}.",
    "a low resolution photo of a {}.",
    "the toy {}.",
    "a rendition of the {}.",
    "a photo of the clean {}.",
    "a photo of a large {}.",
    "a rendition of a {}.",
    "a photo of a nice {}.",
    "a photo of a weird {}.",
    "a blurry photo of a {}.",
    "a cartoon {}.",
    "art of a {}.",
    "a sketch of the {}.",
    "a embroidered {}.",
    "a pixelated photo of a {}.",
    "itap of the {}.",
    "a jpeg corrupted photo of the {}.",
    "a good photo of a {}.",
    "a plushie {}.",
    "a photo of the nice {}.",
    "a photo of the small {}.",
    "a photo of the weird {}.",
    "the cartoon {}.",
    "art of the {}.",
    "a drawing of the {}.",
    "a photo of the large {}.",
    "a black and white photo of a {}.",
    "the plushie {}.",
    "a dark photo of a {}.",
    "itap of a {}.",
    "graffiti of the {}.",
    "a toy {}.",
    "itap of my {}.",
    "a photo of a cool {}.",
    "a photo of a small {}.",
    "a tattoo of the {}.",
)


def dataset_template(dataset: str, method: str = "") -> str:
    """Return the template of a method for a dataset; CoOp's by default."""
    name = plain_name(dataset)
    return VARIANTS.get(method, {}).get(name) or PER_DATASET.get(name, DEFAULT)


def ensemble_templates(dataset: str, count: int = 7) -> list[str]:
    """Return CoOp's ensemble: CLIP's seven (or eighty) templates and, except for ImageNet, the dataset's own."""
    chosen = IMAGENET_80 if count == 80 else IMAGENET_7
    return [*chosen] if plain_name(dataset) == "ImageNet" else [*chosen, dataset_template(dataset)]
