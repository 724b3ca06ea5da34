"""Versions of what results depend on, without importing any of it."""

import platform
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


def versions() -> dict[str, str]:
    """Python and each installed package of `PACKAGES`."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
