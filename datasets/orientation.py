"""A decoded picture as stored -> the picture as it was seen, turned once by its EXIF tag."""

from dataclasses import dataclass

from PIL import ExifTags, Image

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True, slots=True)
class Turn:
    """The transposition that makes a picture upright, and the codes of what was found."""

    method: Image.Transpose | None
    notes: tuple[str, ...]


def read_turn(image: Image.Image) -> Turn:
    """Read the orientation of a loaded picture; damaged EXIF costs a note, never the picture.

    Pillow turns TIFF while loading and removes the tag, so this reads after `load`.
    """
    try:
        value = image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # noqa: BLE001 - struct.error, SyntaxError, ZeroDivisionError, TypeError ...
        return Turn(None, ("orientation-unreadable",))
    if value in _TURNS:
        return Turn(_TURNS[value], ("turned-upright",))
    return Turn(None, () if value in (0, 1) else ("orientation-unreadable",))
