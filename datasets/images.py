"""A picture file -> upright 8-bit sRGB pixels: the one loader of every stage."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, cast

import PIL
import xxhash
from PIL import Image, ImageChops, ImageFile, PngImagePlugin

from latentmill.datasets.blockiness import quality_of
from latentmill.datasets.colour import to_srgb
from latentmill.datasets.colour_key import scale_key
from latentmill.datasets.filekinds import (
    HEAD_BYTES,
    PICTURE_SUFFIXES,
    content_kind,
    describe_content,
    special_kind,
    suffix_of,
)
from latentmill.datasets.orientation import read_turn
from latentmill.datasets.picture_error import PictureError, explain_decoder_error, too_large

__all__ = [
    "LoadRules",
    "Picture",
    "PictureError",
    "installed_decoders",
    "load_picture",
    "pixel_hash",
]

LOADER_VERSION = 4
"""Raise when the same file would give other pixels than before."""

_STILLS = frozenset({"JPEG", "MPO", "HEIF"})  # Several images inside, but one photograph.
_MAX_TEXT_BYTES = 64 * 2**20  # Prompts and workflows in PNG chunks grow beyond Pillow's 1 MB.
_NO_LIMIT = 1e9  # Megapixels; `inf` is a setting, but no whole number.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


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
    """A decoded picture: `image` is RGB, 8-bit, upright; `notes` are codes of warnings.

    `stored` is how the file keeps it, before anything was converted, such as `MPO RGB 4000x3000`.
    `quality` is that of a JPEG (1..100, by its tables), 0 for other formats.
    """

    image: Image.Image
    format: str
    notes: tuple[str, ...]
    stored: str = ""
    quality: int = 0


def load_picture(path: Path, rules: LoadRules) -> Picture:
    """Decode every pixel of `path`; raise PictureError for whatever a decoder may raise."""
    with _open_file(path) as file:
        head = _read_head(file, path)
        kind = content_kind(head) or _kind_by_name(path.name)
        formats = _decoders(kind, head)
        try:
            with _quiet(rules), Image.open(file, formats=formats) as image:
                return _decode(image, path, kind, rules)
        except PictureError:
            raise
        except Exception as error:  # Decoders raise any class; each costs this one picture only.
            raise explain_decoder_error(error, kind) from error


def pixel_hash(image: Image.Image) -> str:
    """Return the XXH3-128 of the size and the RGB bytes: equal pixels, equal hash.

    It tells pictures apart, not forgeries: SHA-256 would add a third to the time of decoding.
    """
    stream = _Hashing(xxhash.xxh3_128())
    rgb = image if image.mode == "RGB" else image.convert("RGB")
    rgb.save(cast(IO[bytes], stream), "PPM")
    return stream.digest.hexdigest()


@dataclass(frozen=True, slots=True)
class _Hashing:
    """A file to write to that keeps the hash alone: no second copy of a large picture."""

    digest: xxhash.xxh3_128

    def write(self, content: bytes) -> int:
        self.digest.update(content)
        return len(content)


def _open_file(path: Path) -> IO[bytes]:
    """Open a regular file once, so that all is read from what was looked at first.

    A file, not its name, is given to Pillow: of a name it maps some formats into memory, and a
    file that is cut short meanwhile then ends the process (SIGBUS).
    """
    try:
        _require_regular(path.stat().st_mode)
        file = os.fdopen(os.open(path, _READ), "rb")
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        _require_regular(os.fstat(file.fileno()).st_mode)
    except PictureError:
        file.close()
        raise
    return file


def _require_regular(mode: int) -> None:
    if kind := special_kind(mode):
        what = f"A {kind}, not a file; it is not opened"
        raise PictureError("not-a-file", what, "Remove it, or put the picture in its place.")


def _unreadable(path: Path, error: OSError) -> PictureError:
    if isinstance(error, FileNotFoundError) and path.is_symlink():
        what, fix = "A link whose target is missing", "Put the target back, or remove the link."
        return PictureError("unreadable", what, fix)
    what = f"The file cannot be read: {error.strerror or error}"
    return PictureError("unreadable", what, "Check the file and its permissions.")


def _read_head(file: IO[bytes], path: Path) -> bytes:
    try:
        head = file.read(HEAD_BYTES)
        file.seek(0)
    except OSError as error:
        raise _unreadable(path, error) from error
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


def _kind_by_name(name: str) -> str:
    """Take TGA at its word: its content has no mark of its own."""
    return "TGA" if suffix_of(name) == ".tga" else ""


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
    stored = f"{image.format} {image.mode} {image.width}x{image.height}"
    notes = [*_name_notes(path.name, kind), *_frame_notes(image, rules), *_depth_notes(image)]
    if image.format == "TIFF":  # Turned while it is loaded, and the tag is gone then.
        notes += read_turn(image).notes
    scale_key(image)
    image.load()
    turn = read_turn(image)
    coloured = to_srgb(_plain(image), rules.background)
    upright = coloured.image if turn.method is None else coloured.image.transpose(turn.method)
    upright.info.clear()
    notes += [*turn.notes, *coloured.notes]
    name = "JPEG" if kind == "JPEG" else image.format or kind
    quality = quality_of(getattr(image, "quantization", {}))
    return Picture(upright, name, tuple(dict.fromkeys(notes)), stored, quality)


def _plain(image: ImageFile.ImageFile) -> Image.Image:
    """Return the pixels without the file they came from; a CMYK JPEG as its file stores it.

    Pillow inverts every CMYK JPEG, but only those with Adobe's mark are stored inverted.
    """
    if image.mode == "CMYK" and image.format in ("JPEG", "MPO") and "adobe" not in image.info:
        return ImageChops.invert(image)
    return image._new(image.im)  # Uncopied.


def _check_size(image: Image.Image, rules: LoadRules) -> None:
    megapixels = image.width * image.height / 1e6
    if megapixels > rules.max_megapixels:
        raise too_large(f"{image.width} x {image.height} px ({megapixels:.0f} megapixels)")


def _name_notes(name: str, kind: str) -> tuple[str, ...]:
    promised = PICTURE_SUFFIXES.get(suffix_of(name))
    return ("name-does-not-match",) if promised not in (None, kind) else ()


def _depth_notes(image: ImageFile.ImageFile) -> tuple[str, ...]:
    """Tell 16 bits per colour, of which Pillow reads the upper 8."""
    return ("depth-reduced",) if any(";16" in str(tile.args) for tile in image.tile) else ()


def _frame_notes(image: ImageFile.ImageFile, rules: LoadRules) -> tuple[str, ...]:
    """Tell several frames; they are not counted, for that reads the whole file."""
    if image.format in _STILLS or not getattr(image, "is_animated", False):
        return ()
    if rules.animated == "first-frame":
        image.seek(0)
        return ("first-frame",)
    raise PictureError(
        "animated",
        "Several frames or pages in one file",
        'Keep one of them, or set `validate.animated = "first-frame"`.',
    )
