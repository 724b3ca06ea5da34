"""Names and first bytes of a file -> what kind of file it is."""

import unicodedata
from stat import S_ISBLK, S_ISCHR, S_ISFIFO, S_ISSOCK

PICTURE_SUFFIXES = {
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".jpe": "JPEG",
    ".jfif": "JPEG",
    ".mpo": "JPEG",
    ".png": "PNG",
    ".apng": "PNG",
    ".webp": "WEBP",
    ".gif": "GIF",
    ".bmp": "BMP",
    ".dib": "BMP",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".avif": "AVIF",
    ".heic": "HEIC",
    ".heif": "HEIC",
    ".hif": "HEIC",
    ".jxl": "JXL",
    ".jp2": "JPEG2000",
    ".j2k": "JPEG2000",
    ".pnm": "PPM",
    ".pbm": "PPM",
    ".ppm": "PPM",
    ".pgm": "PPM",
    ".qoi": "QOI",
    ".tga": "TGA",
    ".cr2": "RAW",
    ".cr3": "RAW",
    ".nef": "RAW",
    ".arw": "RAW",
    ".dng": "RAW",
    ".raf": "RAW",
    ".orf": "RAW",
    ".rw2": "RAW",
}
"""Endings that a person expects to be taken for pictures -> the content they promise."""

_SYSTEM_NAMES = {
    ".ds_store": ".DS_Store",
    "thumbs.db": "Thumbs.db",
    "ehthumbs.db": "Thumbs.db",
    "ehthumbs_vista.db": "Thumbs.db",
    "desktop.ini": "desktop.ini",
    "icon\r": "folder icon",
}
_SYSTEM_FOLDERS = frozenset(
    {"__macosx", "@eadir", "$recycle.bin", "system volume information", "lost+found"}
)

_AVIF_BRANDS = frozenset({b"avif", b"avis"})
_HEIC_BRANDS = frozenset(
    {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1"}
)
_MAGIC = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
    (b"II+\x00", "TIFF"),
    (b"MM\x00+", "TIFF"),
    (b"\x00\x00\x00\x0cJXL \r\n\x87\n", "JXL"),
    (b"\xff\x0a", "JXL"),
    (b"\x00\x00\x00\x0cjP  \r\n\x87\n", "JPEG2000"),
    (b"\xff\x4f\xff\x51", "JPEG2000"),
    (b"qoif", "QOI"),
    (b"P1", "PPM"),
    (b"P2", "PPM"),
    (b"P3", "PPM"),
    (b"P4", "PPM"),
    (b"P5", "PPM"),
    (b"P6", "PPM"),
    (b"BM", "BMP"),
)
_OTHER_MAGIC = (  # Lower case.
    (b"<!doctype html", "a web page, as failed downloads leave it"),
    (b"<html", "a web page, as failed downloads leave it"),
    (b"version https://git-lfs", "a Git LFS pointer (`git lfs pull` fetches the picture)"),
    (b"<?xml", "XML or SVG text"),
    (b"<svg", "SVG text"),
    (b"pk\x03\x04", "a ZIP archive"),
    (b"%pdf", "a PDF document"),
    (b"8bps", "a Photoshop document"),
    (b"%!ps", "a PostScript document"),
    (b"icns", "a set of icons (ICNS)"),
    (b"\x00\x00\x01\x00", "a set of icons (ICO)"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"rar!", "a RAR archive"),
    (b"7z\xbc\xaf", "a 7-Zip archive"),
    (b"\x1ae\xdf\xa3", "a Matroska or WebM film"),
)
_WEAK = frozenset({"PPM", "BMP", "JXL"})  # Two bytes prove little without a fitting name.
HEAD_BYTES = 64
"""As many first bytes as `content_kind` and `describe_content` want."""


def suffix_of(name: str) -> str:
    """Return the last ending of a file name, lower case, with its dot; empty without one."""
    stem, dot, ending = name.rpartition(".")
    return f".{ending.casefold()}" if dot and stem else ""


def stem_key(name: str) -> str:
    """Return the name without its last ending, in one Unicode form: what captions pair by."""
    stem, dot, _ = name.rpartition(".")
    return unicodedata.normalize("NFC", stem if dot and stem else name)


def system_file_kind(name: str) -> str:
    """Say what an operating system left here; `hidden file` for other names with a dot in front."""
    if name.startswith("._"):
        return "AppleDouble file (._)"
    return _SYSTEM_NAMES.get(name.casefold(), "hidden file" if name.startswith(".") else "")


def system_folder_kind(name: str) -> str:
    """Say what kind of folder holds no one's pictures: a system's own, or a hidden one."""
    if name.casefold() in _SYSTEM_FOLDERS:
        return "system folder"
    return "hidden folder" if name.startswith(".") else ""


def special_kind(mode: int) -> str:
    """Name what is neither file nor folder by its mode: opening it could wait for ever."""
    tests = {S_ISFIFO: "named pipe", S_ISSOCK: "socket", S_ISCHR: "device", S_ISBLK: "device"}
    return next((name for test, name in tests.items() if test(mode)), "")


def content_kind(head: bytes) -> str:
    """Return the picture format that the first bytes prove, such as `JPEG`; empty when none."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    if head[4:8] == b"ftyp":
        return _brand_kind(head)
    return next((kind for magic, kind in _MAGIC if head.startswith(magic)), "")


def is_picture_content(head: bytes) -> bool:
    """Tell whether a file of unknown ending is certainly a picture."""
    kind = content_kind(head)
    return bool(kind) and kind not in _WEAK


def describe_content(head: bytes) -> str:
    """Say in words what a file that is no picture seems to be."""
    if not any(head):
        return "zeros only, as an interrupted copy leaves it"
    if head[4:8] == b"ftyp":
        return "a film, or a picture format that is not known"
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    known = (words for magic, words in _OTHER_MAGIC if start.startswith(magic))
    return next(known, "not a known picture format")


def _brand_kind(head: bytes) -> str:
    size = min(int.from_bytes(head[:4], "big"), len(head))
    brands = {head[8:12], *(head[at : at + 4] for at in range(16, size - 3, 4))}
    if brands & _AVIF_BRANDS:
        return "AVIF"
    return "HEIC" if brands & _HEIC_BRANDS else ""
