"""What is installed. The folders `trainers`, `datasets` and `configs` become `cocoamix.<folder>`."""

import re
from pathlib import Path

from setuptools import find_namespace_packages, find_packages, setup

here = Path(__file__).parent
version = re.search(r'__version__ = "(.+)"', (here / "cocoamix" / "__init__.py").read_text()).group(1)

# A CoOp tree has top-level packages `trainers` and `datasets` of its own; these names must not clash.
mapped = ["trainers", "datasets", "configs"]
mapped += [f"{name}.{inner}" for name in mapped for inner in find_packages(str(here / name))]

extras = {
    "clip": ["clip-anytorch", "packaging"],
    "open_clip": ["open_clip_torch>=2.24"],
    "matlab": ["scipy"],  # to split StanfordCars or OxfordFlowers where CoOp's split file is not there
    "plot": ["matplotlib"],
    "tensorboard": ["tensorboard"],
    "onnx": ["onnx", "onnxscript", "onnxruntime"],
    "torch": ["torch>=2.1", "torchvision>=0.16"],
    "drive": ["gdown"],
    "report": ["matplotlib>=3.8"],
    "cam": ["grad-cam>=1.5", "matplotlib>=3.8"],  # `cocoamix figures scorecam`; brings OpenCV and scikit-learn along
    "slurm": ["submitit>=1.4"],  # to hand benchmarks to a cluster
    "test": ["pytest>=7", "pytest-xdist>=3.2", "hypothesis"],
    "lint": ["ruff", "mypy", "import-linter"],
}

setup(
    name="cocoamix",
    version=version,
    description="CoCoA-Mix: confusion- and confidence-aware prompt tuning of CLIP, in the style of Dassl and CoOp",
    long_description=(here / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.10",
    packages=find_namespace_packages(include=["cocoamix", "cocoamix.*"]) + [f"cocoamix.{name}" for name in mapped],
    package_dir={f"cocoamix.{name}": name.replace(".", "/") for name in mapped},
    package_data={
        "cocoamix.configs": ["**/*.yaml"],
        "cocoamix.datasets": ["*.json"],
        "cocoamix": ["assets/*.safetensors", "assets/README.md", "py.typed"],
        "cocoamix.predict": ["page.css", "page.js"],
        "cocoamix.report": ["paper.json", "render/page.css", "render/page.js"],
        "cocoamix.bench": ["plans/*.yaml"],
    },
    entry_points={"console_scripts": ["cocoamix = cocoamix.cli:main"]},
    # Nothing here depends on torch, and neither torch, torchvision, Dassl nor a clip package is named: installing into
    # somebody's environment must not replace the builds that work there. `cocoamix[torch]` names torch; the oldest that
    # serves is checked when the trainers are imported (cocoamix/compat.py).
    install_requires=["numpy", "pillow", "yacs>=0.1.8", "tqdm", "regex", "ftfy", "safetensors", "wonderwords>=2.2"],
    extras_require={**extras, "all": sorted({package for group in extras.values() for package in group})},
)
