"""The bytes of a JPEG -> the same coded picture without what cameras and programs add to it."""

import re

_START, _SCAN, _END = 0xD8, 0xDA, 0xD9
_COMMENT = 0xFE
_APPLICATION = range(0xE0, 0xF0)
_MARKER_IN_SCAN = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")


def without_metadata(data: bytes) -> bytes | None:
    """Return the first picture's coded data alone; None when the segments cannot be followed.

    EXIF, profile, comments and further pictures (MPO) go. JFIF's header and Adobe's mark stay: they
    say how the colours are coded.
    """
    if data[:2] != b"\xff\xd8":
        return None
    kept, at = [data[:2]], 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # A fill byte.
            at += 1
            continue
        if marker == _SCAN:
            end = _picture_end(data, at)
            return None if end is None else b"".join((*kept, data[at:end]))
        end = _segment_end(data, at)
        if _is_needed(marker, data[at + 4 : end]):
            kept.append(data[at:end])
        at = end
    return None


def _is_needed(marker: int, content: bytes) -> bool:
    if marker in _APPLICATION:
        return content.startswith((b"JFIF\0", b"Adobe"))
    return marker != _COMMENT


def _segment_end(data: bytes, at: int) -> int:
    """Where the segment at `at` ends; its length, two bytes, counts itself."""
    return at + 2 + max(2, int.from_bytes(data[at + 2 : at + 4], "big"))


def _picture_end(data: bytes, at: int) -> int | None:
    """Follow scans, and tables between them, to behind the end marker."""
    at = _segment_end(data, at)
    while (found := _MARKER_IN_SCAN.search(data, at)) is not None:
        if data[found.start() + 1] == _END:
            return found.end()
        at = _segment_end(data, found.start())
    return None
