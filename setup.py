"""List the packages to install. The metadata is in pyproject.toml.

The folders `trainers`, `datasets` and `configs` are installed as `cocoamix.<folder>`, because a CoOp tree has top-level
packages `trainers` and `datasets` too. pyproject.toml cannot express this mapping together with a search for packages.
"""

from setuptools import find_namespace_packages, find_packages, setup

folders = ["trainers", "datasets", "configs"]
mapped = [*folders, *(f"{folder}.{name}" for folder in folders for name in find_packages(folder))]

setup(
    packages=[*find_namespace_packages(include=["cocoamix", "cocoamix.*"]), *(f"cocoamix.{name}" for name in mapped)],
    package_dir={f"cocoamix.{name}": name.replace(".", "/") for name in mapped},
)
