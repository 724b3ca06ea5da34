"""Pixels of any mode, depth and profile -> 8-bit sRGB on a declared background."""

import io
import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

from PIL import Image, ImageChops, ImageCms, ImageColor

from latentmill.datasets.colour_key import opaque_part

TRANSPARENT_MODES = frozenset({"RGBA", "LA", "PA"})
DEEP_MODES = frozenset({"I", "F", "I;16", "I;16L", "I;16B", "I;16N"})
_SRGB_SHIFT = 3  # Levels that sRGB profiles of several makers differ by, at most.
_PROBE = bytes(v for colour in product(range(0, 256, 15), repeat=3) for v in colour)


@dataclass(frozen=True, slots=True)
class Coloured:
    """An RGB picture and the codes of what was done to its colours."""

    image: Image.Image
    notes: tuple[str, ...]


def to_srgb(image: Image.Image, background: str) -> Coloured:
    """Convert a decoded picture to RGB: depth scaled, profile applied, transparency composited."""
    notes: list[str] = []
    if image.mode in {"RGBa", "La"}:
        image = image.convert(image.mode.upper())
    alpha = _alpha(image)
    if image.mode in DEEP_MODES:
        profile = image.info.get("icc_profile")
        image = scale_depth(image)
        image.info["icc_profile"] = profile
        notes.append("depth-reduced")
    rgb = _apply_profile(image, notes)
    if alpha is not None and alpha.getextrema() != (255, 255):
        ground = Image.new("RGB", rgb.size, ImageColor.getrgb(background)[:3])
        rgb = Image.composite(rgb, ground, alpha)
        notes.append("transparency-flattened")
    return Coloured(rgb, tuple(notes))


def scale_depth(image: Image.Image) -> Image.Image:
    """Scale a deep grey picture to mode L, its range kept.

    16-bit values are divided by 257. Of integers, a range inside 0..65535 is taken as 16-bit; of
    floats, one inside 0..1, 0..255 or 0..65535 as that range. Any other range is stretched to
    0..255 from its own least to its own greatest value. Raise ValueError for non-finite pixels.
    """
    import numpy as np

    stored = np.asarray(image)
    low, high = float(stored.min()), float(stored.max())
    if not math.isfinite(low) or not math.isfinite(high):  # One NaN makes both of them NaN.
        raise ValueError("pixels that are not finite numbers")
    tops = (1.0, 255.0, 65535.0) if image.mode == "F" else (65535.0,)
    top = next((top for top in tops if low >= 0 and high <= top), None)
    base, span = (0.0, top) if top is not None else (low, (high - low) or 1.0)
    scaled = np.empty(stored.shape, np.uint8)
    for row, values in enumerate(stored):  # By rows: as 64-bit numbers all would take 8 bytes each.
        scaled[row] = np.rint((values.astype(np.float64) - base) * (255 / span))
    return Image.fromarray(scaled)


def _alpha(image: Image.Image) -> Image.Image | None:
    if image.mode in DEEP_MODES:
        return opaque_part(image)
    if image.mode in TRANSPARENT_MODES or "transparency" in image.info:
        return image.convert("RGBA").getchannel("A")
    return None


def _apply_profile(image: Image.Image, notes: list[str]) -> Image.Image:
    """Return `image` in sRGB without alpha; a profile that cannot be used costs a note only."""
    data = image.info.get("icc_profile")
    if image.mode == "LAB":
        return _transform(image, ImageCms.createProfile("LAB"))
    if data:
        try:
            profile = ImageCms.ImageCmsProfile(io.BytesIO(data))
            if image.mode != "CMYK" and _is_srgb(data):
                return _opaque(image)
            converted = _transform(_in_space_of(image, profile), profile)
        except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
            notes.append("profile-unreadable")
        else:
            notes.append("profile-converted")
            return converted
    if image.mode == "CMYK":
        notes.append("cmyk-uncertain")
    return _opaque(image)


def _transform(image: Image.Image, profile: Any) -> Image.Image:
    result = ImageCms.profileToProfile(
        image,
        profile,
        ImageCms.createProfile("sRGB"),
        renderingIntent=ImageCms.Intent.RELATIVE_COLORIMETRIC,
        outputMode="RGB",
        flags=ImageCms.Flags.BLACKPOINTCOMPENSATION,
    )
    assert result is not None  # None only for in-place transforms.
    return result


def _in_space_of(image: Image.Image, profile: ImageCms.ImageCmsProfile) -> Image.Image:
    """Bring `image` to the channels that its profile speaks of; ValueError when they differ."""
    space = profile.profile.xcolor_space.strip()
    if space == "CMYK" and image.mode == "CMYK":
        return image
    if space == "RGB" and image.mode != "CMYK":
        return _opaque(image)
    if space == "GRAY" and image.mode in {"L", "LA", "1"}:
        return image.convert("LA").getchannel("L")
    raise ValueError(f"a {space} profile on a {image.mode} picture")


@lru_cache(maxsize=16)
def _is_srgb(data: bytes) -> bool:
    """Tell sRGB by what it does, not by its name: a true one would shift values by one or two.

    Linear profiles too have sRGB in their names, and small ones of sRGB have none.
    """
    profile = ImageCms.ImageCmsProfile(io.BytesIO(data))
    if profile.profile.xcolor_space.strip() != "RGB":
        return False
    colours = Image.frombytes("RGB", (len(_PROBE) // 3, 1), _PROBE)
    shifts = ImageChops.difference(colours, _transform(colours, profile)).tobytes()
    return max(shifts) <= _SRGB_SHIFT


def _opaque(image: Image.Image) -> Image.Image:
    """Return the colours as RGB, whatever the alpha over them says."""
    if image.mode in {"P", "PA"} or "transparency" in image.info:
        image = image.convert("RGBA")
    return image if image.mode == "RGB" else image.convert("RGB")
