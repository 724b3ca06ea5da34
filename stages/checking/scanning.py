"""The data sources -> what lies in each; a source without pictures is refused in words."""

from collections.abc import Sequence
from pathlib import Path

from latentmill.datasets.errors import DataError
from latentmill.datasets.sources import Scan, scan
from latentmill.datasets.words import counted
from latentmill.stages.settings import Source


def scan_sources(sources: Sequence[Source], work: Path) -> list[Scan]:
    """List all sources; raise UsageError or DataError for one that holds no picture."""
    scans = []
    for position, source in enumerate(sources):
        folder = Path(source.path).expanduser()
        found = scan(folder, position, source.caption_extension, (work,))
        if not found.pictures:
            raise _no_pictures(found, source)
        scans.append(found)
    return scans


def _no_pictures(found: Scan, source: Source) -> DataError:
    num_files = len(found.others) + len(found.tables) + len(found.pairing.orphans)
    if not num_files:
        passed = ", ".join(f"{count} {why}" for why, count in sorted(found.ignored.items()))
        what = "the data folder is empty" + (f" (passed over: {passed})" if passed else "")
    else:
        endings = ", ".join(list(found.suffixes)[:8]) or "captions only"
        what = f"{counted(num_files, 'file')} and no picture: {endings}"
    return DataError(
        what,
        where=source.path,
        expected="pictures such as .jpg, .png or .webp, in the folder or in folders below it",
        fix="Check the path, or copy the pictures there.",
    )
