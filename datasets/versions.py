"""Versions of what results depend on, without importing any of it."""

import platform
from collections.abc import Iterable
from importlib import metadata
from typing import Final

PACKAGES: Final = (
    "latentmill",
    "torch",
    "diffusers",
    "transformers",
    "peft",
    "accelerate",
    "safetensors",
    "pillow",
    "chardet",
    "webdataset",
)


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Python and each of the packages that is installed."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
