"""Whether pictures still are what `validate` saw."""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from latentmill.datasets.errors import DataError
from latentmill.datasets.images import LoadRules, PictureError, load_picture, pixel_hash
from latentmill.datasets.next_steps import Command
from latentmill.datasets.records import Record
from latentmill.datasets.selection import Sample
from latentmill.datasets.words import counted

_log = logging.getLogger(__name__)


def require_unchanged(samples: Sequence[Sample], rules: LoadRules) -> None:
    """Raise DataError naming every picture that is gone or differs from what was validated.

    A file with its old size and time is not read; one with a new time is decoded and compared.
    """
    touched = [sample.record for sample in samples if _is_touched(sample.record)]
    if touched:
        files = counted(len(touched), "file")
        _log.info("%s touched since validate: pixels are compared", files)
    with ThreadPoolExecutor(4) as pool:
        faults = list(pool.map(lambda record: _fault(record, rules), touched))
    named = [
        f"{record.path} ({fault})" for record, fault in zip(touched, faults, strict=True) if fault
    ]
    if named:
        raise changed(named)


def changed(named: Sequence[str]) -> DataError:
    """The error for pictures that are not what `validate` saw."""
    more = f" and {len(named) - 10} more" if len(named) > 10 else ""
    return DataError(
        f"{counted(len(named), 'picture')} changed since `validate`",
        where=", ".join(named[:10]) + more,
        expected="the pixels that `validate` saw, under the same settings",
        fix="validate again, then encode",
        run=(Command("validate"), Command("cache")),
    )


def _is_touched(record: Record) -> bool:
    try:
        stat = Path(record.file).stat()
    except OSError:
        return True
    return (stat.st_size, stat.st_mtime_ns) != (record.bytes, record.modified_ns)


def _fault(record: Record, rules: LoadRules) -> str:
    """Say what is wrong with a touched file; empty when its pixels are the same."""
    try:
        picture = load_picture(Path(record.file), rules)
    except PictureError as error:
        return "missing" if not Path(record.file).exists() else error.message
    return "" if pixel_hash(picture.image) == record.pixels else "other pixels"
