"""The one transparent colour of a PNG -> what it is in the pixels that Pillow decodes."""

from PIL import Image, ImageFile

_GREY_STEPS = {"L;2": 85, "L;4": 17}
"""Pillow widens grey of 2 and 4 bits to 8 and leaves the key as it stands in the file."""


def scale_key(image: ImageFile.ImageFile) -> None:
    """Bring the key in `image.info` to the depth of the pixels; call before they are loaded.

    Of 16-bit colours Pillow keeps the upper 8 bits, so the key's neighbours are transparent too.
    """
    key = image.info.get("transparency")
    if image.format != "PNG" or key is None or isinstance(key, bytes):
        return
    stored = next((str(tile.args) for tile in image.tile), "")
    if stored in _GREY_STEPS:
        image.info["transparency"] = key * _GREY_STEPS[stored]
    elif stored == "RGB;16B":
        image.info["transparency"] = tuple(value >> 8 for value in key)


def opaque_part(image: Image.Image) -> Image.Image | None:
    """Return the alpha of a deep grey picture with a key, or None without one."""
    import numpy as np

    key = image.info.get("transparency")
    if not isinstance(key, int):
        return None
    return Image.fromarray((np.asarray(image) != key) * np.uint8(255))
