"""A decoded picture that other programs would read differently -> a plain copy in `fixed/`."""

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from filecmp import cmp
from pathlib import Path

from PIL import Image

from latentmill.cache.files import committed
from latentmill.datasets.filekinds import suffix_of
from latentmill.datasets.images import (
    LoadRules,
    Picture,
    PictureError,
    load_picture,
    pixel_hash,
)
from latentmill.datasets.jpeg_segments import without_metadata

JPEG_QUALITY = 95
_UNSURE = frozenset({"orientation-unreadable", "profile-unreadable", "cmyk-uncertain"})
_CONVERTED = (
    "turned-upright",
    "depth-reduced",
    "transparency-flattened",
    "profile-converted",
    "first-frame",
    "name-does-not-match",
)
_PLAIN_FORMATS = frozenset({"JPEG", "PNG", "WEBP", "BMP"})
_PLAIN_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp"})
_WRAPPING = frozenset({"name-does-not-match", "other-name", "mpo"})
"""Reasons that leave the coded data of a JPEG as it is."""
_LONGEST_STEM = 80
"""Bytes of a readable stem: a file name holds 255, encrypted folders some 140."""


class _UnchangedError(Exception):
    """Leave the file as it is: nothing new was to be written."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A file in `fixed/`, made for the setting `order`, its size and time as they were written."""

    name: str
    order: str
    bytes: int
    modified_ns: int
    format: str
    pixels: str

    def is_there(self, folder: Path) -> bool:
        """Tell whether the file stands as it was written."""
        try:
            status = (folder / self.name).stat()
        except OSError:
            return False
        return (status.st_size, status.st_mtime_ns) == (self.bytes, self.modified_ns)


@dataclass(frozen=True, slots=True)
class CopyOrder:
    """Where a copy goes, how it is called without its ending, and `validate.fix_format`."""

    folder: Path
    stem: str
    format: str


def copy_reasons(path: str, format_name: str, stored: str, notes: tuple[str, ...]) -> list[str]:
    """Say why another program would read other pixels, or none; empty when it would not.

    What is unsure (damaged orientation, unusable profile, CMYK without one) is not repaired.
    """
    if _UNSURE & set(notes):
        return []
    reasons = [code for code in _CONVERTED if code in notes]
    kept_as, mode = (*stored.split(), "", "")[:2]
    if kept_as == "MPO":
        reasons.append("mpo")
    if format_name not in _PLAIN_FORMATS or mode == "LAB":
        reasons.append("other-format")
    elif "name-does-not-match" not in notes and not _is_found_by_name(path):
        reasons.append("other-name")
    return reasons


def copy_stem(record_id: str, path: str) -> str:
    """Return the name of a copy without its ending: the id, then what is safe of the original's.

    The id comes first, so no name begins another one. Underscores go: some trainers cut names
    there.
    """
    stem = unicodedata.normalize("NFC", path.rpartition("/")[2])
    stem = stem.rpartition(".")[0] or stem
    kept = "".join(char if unicodedata.category(char)[0] in "LMN" else "-" for char in stem)
    kept = "-".join(part for part in kept.split("-") if part)
    short = kept.encode("utf-8")[:_LONGEST_STEM].decode("utf-8", "ignore").strip("-")
    return f"{record_id}-{short}" if short else record_id


def write_copy(source: Path, picture: Picture, order: CopyOrder, rules: LoadRules) -> Copy:
    """Write the copy unless the same bytes stand there; raise OSError when the disk is full.

    The pixels stay exactly as the loader gives them, unless a JPEG is coded a second time because
    `order.format` asks for it.
    """
    image, pixels = picture.image, pixel_hash(picture.image)
    reasons = copy_reasons(source.name, picture.format, picture.stored, picture.notes)
    path, kept_as = order.folder / f"{order.stem}.jpg", "JPEG"
    coded = picture.format == "JPEG" and _WRAPPING.issuperset(reasons)
    if not (coded and _unwrap(source, path, pixels, rules)):
        if picture.format == "JPEG" and order.format == "jpeg":
            replace_file(path, lambda file: _save_jpeg(image, file))
            pixels = pixel_hash(load_picture(path, rules).image)
        else:
            path, kept_as = path.with_suffix(".png"), "PNG"
            replace_file(path, lambda file: image.save(file, "PNG", compress_level=1))
    status = path.stat()
    return Copy(path.name, order.format, status.st_size, status.st_mtime_ns, kept_as, pixels)


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file that becomes `path`, unless `path` holds the same bytes."""
    try:
        with committed(path) as temporary:
            write(temporary)
            if path.is_file() and cmp(temporary, path, shallow=False):
                raise _UnchangedError
    except _UnchangedError:
        pass


def _unwrap(source: Path, path: Path, pixels: str, rules: LoadRules) -> bool:
    """Keep a JPEG's coded data without its wrapping, if that gives the same pixels."""
    data = without_metadata(source.read_bytes())
    if data is None:
        return False
    same = False

    def write(file: Path) -> None:
        nonlocal same
        file.write_bytes(data)
        same = pixel_hash(load_picture(file, rules).image) == pixels
        if not same:
            raise _UnchangedError

    try:
        replace_file(path, write)
    except PictureError:
        return False
    return same


def _save_jpeg(image: Image.Image, file: Path) -> None:
    image.save(file, "JPEG", quality=JPEG_QUALITY, subsampling="4:4:4")


def _is_found_by_name(path: str) -> bool:
    """Tell whether programs that look for endings in lower or upper case find this file."""
    ending = path.rpartition(".")[2]
    return suffix_of(path) in _PLAIN_SUFFIXES and (ending.islower() or ending.isupper())
