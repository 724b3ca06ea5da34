"""A picture file -> upright 8-bit sRGB pixels: the one loader of every stage."""

import hashlib
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import PIL
from PIL import Image, ImageFile, PngImagePlugin, UnidentifiedImageError

from latentmill.datasets.colour import to_srgb
from latentmill.datasets.filekinds import (
    HEAD_BYTES,
    PICTURE_SUFFIXES,
    content_kind,
    describe_content,
    suffix_of,
)
from latentmill.datasets.orientation import read_turn

LOADER_VERSION = 1
"""Raise when the same file would give other pixels than before."""

_STILLS = frozenset({"JPEG", "MPO", "HEIF"})  # Several images inside, but one photograph.
_MAX_TEXT_BYTES = 64 * 2**20  # Prompts and workflows in PNG chunks grow beyond Pillow's 1 MB.
_NO_LIMIT = 1e9  # Megapixels; `inf` is a setting, but no whole number.
_TRUNCATED = ("truncated", "broken data stream", "unexpected end", "not enough", "premature")


@dataclass(frozen=True, slots=True)
class LoadRules:
    """The settings that change what a file decodes to."""

    background: str = "#ffffff"
    max_megapixels: float = 178.0
    animated: str = "reject"

    @property
    def fingerprint(self) -> str:
        """Equal for equal pixels: rules, loader and Pillow in one line."""
        rules = f"{self.background} {self.max_megapixels:g} {self.animated}"
        return f"loader {LOADER_VERSION}, Pillow {PIL.__version__}, {rules}"


def installed_decoders() -> str:
    """Name the optional decoders at hand: with another answer, try unsupported files again."""
    return " ".join(name for name in ("pillow_heif", "pillow_jxl") if find_spec(name))


@dataclass(frozen=True, slots=True)
class Picture:
    """A decoded picture: `image` is RGB, 8-bit, upright; `notes` are codes of warnings."""

    image: Image.Image
    format: str
    notes: tuple[str, ...]


class PictureError(Exception):
    """A file that cannot be used as a picture: code, message and what to do."""

    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(code, message, fix)
        self.code = code
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message} ({self.code}): {self.fix}"


def load_picture(path: Path, rules: LoadRules) -> Picture:
    """Decode every pixel of `path`; raise PictureError for whatever a decoder may raise."""
    head = _read_head(path)
    kind = content_kind(head)
    formats = _decoders(kind, head)
    try:
        with _quiet(rules), Image.open(path, formats=formats) as image:
            return _decode(image, path, kind, rules)
    except PictureError:
        raise
    except Exception as error:  # Decoders raise any class; each costs this one picture only.
        raise _explain(error, kind) from error


def pixel_hash(image: Image.Image) -> str:
    """Return the SHA-256 of the size and the RGB bytes: equal pixels, equal hash."""
    digest = hashlib.sha256(f"{image.width}x{image.height} RGB\n".encode())
    digest.update((image if image.mode == "RGB" else image.convert("RGB")).tobytes())
    return digest.hexdigest()


def _read_head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        what = f"The file cannot be read: {error.strerror or error}"
        raise PictureError("unreadable", what, "Check the file and its permissions.") from error
    if not head:
        raise PictureError("zero-bytes", "The file is empty (0 bytes)", "Copy or fetch it again.")
    if suffix_of(path.name) in PICTURE_SUFFIXES and _is_raw(path.name, head):
        raise PictureError(
            "unsupported-format",
            "A camera's raw file, which has no fixed look yet",
            "Develop it and save it as JPEG, PNG or TIFF.",
        )
    return head


def _is_raw(name: str, head: bytes) -> bool:
    raw = PICTURE_SUFFIXES[suffix_of(name)] == "RAW"
    return raw and content_kind(head) in ("", "TIFF")


def _decoders(kind: str, head: bytes) -> tuple[str, ...]:
    """Return Pillow's names for what may open this content; an optional one is loaded here."""
    if kind == "HEIC":
        return ("HEIF",) if _has_heif() else _missing("HEIC", 'pip install "latentmill[heif]"')
    if kind == "JXL":
        return ("JXL",) if _has_jxl() else _missing("JPEG XL", "pip install pillow-jxl-plugin")
    if not kind:
        found = describe_content(head)
        raise PictureError(
            "not-a-picture", f"The content is {found}", "Replace the file or remove it."
        )
    return ("BMP", "DIB") if kind == "BMP" else (kind,)  # Pillow's JPEG opens MPO too.


def _missing(name: str, command: str) -> tuple[str, ...]:
    raise PictureError(
        "unsupported-format",
        f"The content is {name}, whose decoder is not installed",
        f"Run `{command}`, or convert the picture to PNG or JPEG.",
    )


def _has_heif() -> bool:
    try:
        import pillow_heif
    except ImportError:
        return False
    pillow_heif.register_heif_opener()
    return True


def _has_jxl() -> bool:
    try:
        # Optional, without types, and imported for the decoder that it registers.
        import pillow_jxl  # type: ignore[import-not-found, unused-ignore]  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def _quiet(rules: LoadRules) -> Iterator[None]:
    """Hold Pillow's warnings back and its limits at ours; put both back afterwards."""
    pixels, text = Image.MAX_IMAGE_PIXELS, PngImagePlugin.MAX_TEXT_CHUNK
    Image.MAX_IMAGE_PIXELS = int(min(rules.max_megapixels, _NO_LIMIT) * 1e6)
    PngImagePlugin.MAX_TEXT_CHUNK = _MAX_TEXT_BYTES
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        Image.MAX_IMAGE_PIXELS, PngImagePlugin.MAX_TEXT_CHUNK = pixels, text


def _decode(image: ImageFile.ImageFile, path: Path, kind: str, rules: LoadRules) -> Picture:
    _check_size(image, rules)
    notes = [*_name_notes(path.name, kind), *_frame_notes(image, rules)]
    image.load()
    turn = read_turn(image)
    coloured = to_srgb(image, rules.background)
    upright = coloured.image if turn.method is None else coloured.image.transpose(turn.method)
    upright.info.clear()
    notes += [*turn.notes, *coloured.notes]
    return Picture(upright, "JPEG" if kind == "JPEG" else image.format or kind, tuple(notes))


def _check_size(image: Image.Image, rules: LoadRules) -> None:
    megapixels = image.width * image.height / 1e6
    if megapixels > rules.max_megapixels:
        raise _too_large(f"{image.width} x {image.height} px ({megapixels:.0f} megapixels)")


def _too_large(size: str) -> PictureError:
    return PictureError(
        "too-many-pixels",
        f"{size} are above the limit of `validate.max_megapixels`",
        "Scale the picture down, or raise the limit if the size is meant.",
    )


def _name_notes(name: str, kind: str) -> tuple[str, ...]:
    promised = PICTURE_SUFFIXES.get(suffix_of(name))
    return ("name-does-not-match",) if promised not in (None, kind) else ()


def _frame_notes(image: ImageFile.ImageFile, rules: LoadRules) -> tuple[str, ...]:
    frames = 1 if image.format in _STILLS else getattr(image, "n_frames", 1)
    if frames == 1:
        return ()
    if rules.animated == "first-frame":
        image.seek(0)
        return ("first-frame",)
    raise PictureError(
        "animated",
        f"{frames} frames or pages in one file",
        'Keep one of them, or set `validate.animated = "first-frame"`.',
    )


def _explain(error: Exception, kind: str) -> PictureError:
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
        return _too_large("The pixels that the header declares")
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
