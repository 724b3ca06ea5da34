"""What a decoder raises -> the reject of one picture: a code, what was found, what to do."""

import re
import struct

from PIL import Image, UnidentifiedImageError

_TRUNCATED = ("truncated", "broken data stream", "unexpected end", "not enough", "premature")


class PictureError(Exception):
    """A file that cannot be used as a picture: code, message and what to do."""

    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(code, message, fix)
        self.code = code
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message} ({self.code}): {self.fix}"


def too_large(size: str) -> PictureError:
    """The reject of a picture that says it is `size`."""
    return PictureError(
        "too-many-pixels",
        f"{size} are above the limit of `validate.max_megapixels`",
        "Scale the picture down, or raise the limit if the size is meant.",
    )


def explain_decoder_error(error: Exception, kind: str) -> PictureError:
    """Turn what a decoder raised into a reject with the decoder's own words."""
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, UnidentifiedImageError):
        said = "its decoder does not recognise it"  # Pillow's words repeat the path.
    words = str(error).casefold()
    if isinstance(error, MemoryError):
        return PictureError(
            "out-of-memory", f"{kind} that does not fit in memory", "Scale it down, or free memory."
        )
    if isinstance(error, Image.DecompressionBombError):
        pixels = re.search(r"\((\d+) pixels\)", str(error))
        size = f"{int(pixels[1]) / 1e6:.0f} megapixels" if pixels else "The pixels"
        return too_large(f"{size} that the header declares")
    if "too large" in words or "max_text" in words:
        return PictureError(
            "metadata-too-large",
            f"{kind} with oversized text or profile ({said})",
            "Save the picture again without its metadata.",
        )
    cut = isinstance(error, EOFError | struct.error) or any(word in words for word in _TRUNCATED)
    if cut and not isinstance(error, UnidentifiedImageError):
        return PictureError(
            "truncated",
            f"{kind} whose end is missing ({said})",
            "Copy or download it again; what is left of it is not used.",
        )
    return PictureError(
        "decoder-error",
        f"{kind} that cannot be decoded ({said})",
        "Open it in an image editor and save it again, or remove it.",
    )
