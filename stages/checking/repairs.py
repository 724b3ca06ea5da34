"""A record and what decoding told of it -> what was repaired in picture and caption, in words."""

import codecs
from dataclasses import dataclass
from pathlib import Path

from latentmill.datasets.records import Record
from latentmill.stages.checking.copies import Copy, copy_reasons
from latentmill.stages.checking.decoded import Decoded

SHOWN_CHARACTERS = 300
_UTF8 = frozenset({"", "ascii", "utf-8"})
_TABLES = (".csv", ".jsonl")


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that was repaired: `reasons` are words, `before` and `after` what was and is.

    `file` is the repaired file, relative to the folder of `validate`.
    """

    id: str
    path: str
    file: str
    reasons: tuple[str, ...]
    before: str
    after: str


def picture_repair(record: Record, entry: Decoded, copy: Copy, file: str) -> Repair:
    """Say how the picture was stored, and how its copy is."""
    reasons = copy_reasons(record.path, entry.format, entry.stored, entry.notes)
    kept_as, mode, size = (*entry.stored.split(), "", "", "")[:3]
    before = f"{kept_as or entry.format} ({mode}), {size.replace('x', ' x ')} px"
    after = f"{copy.format} (RGB), {entry.width} x {entry.height} px"
    return Repair(record.id, record.path, file, tuple(reasons), before, after)


def sure_caption(record: Record) -> str | None:
    """Return the caption unless there is none, or its reading must be asked first."""
    return None if record.checks else record.caption


def caption_repair(record: Record, source: Path, file: str) -> Repair | None:
    """Say how the caption file differs from the text; None when every program reads that text."""
    caption = sure_caption(record)
    if caption is None:
        return None
    in_table = record.caption_file.casefold().endswith(_TABLES)
    try:
        data = b"" if in_table else (source / record.caption_file).read_bytes()
    except OSError:
        return None
    if not in_table and data.rstrip(b" \n") == caption.encode("utf-8"):
        return None
    reasons = _caption_reasons(record, data, in_table)
    if not reasons:
        return None
    before = data.decode("utf-8", "replace")[:SHOWN_CHARACTERS] or f"in {record.caption_file}"
    after = caption[:SHOWN_CHARACTERS]
    return Repair(record.id, record.caption_file, file, reasons, before, after)


def _caption_reasons(record: Record, data: bytes, in_table: bool) -> tuple[str, ...]:
    reasons = []
    if record.caption_encoding not in _UTF8:
        marked = data.startswith(codecs.BOM_UTF8)
        reasons.append("byte-order-mark" if marked else f"encoding-{record.caption_encoding}")
    reasons += [
        code for code in ("caption-multiline", "caption-control-characters") if code in record.codes
    ]
    if not in_table and b"\r" in data:
        reasons.append("line-ends")
    return tuple(reasons or (() if in_table else ("blanks",)))
