"""Small copies of pictures for the report: few, made when missing, put away when not shown."""

import base64
import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageOps

from latentmill.cache.files import remove_leftovers, write_bytes
from latentmill.datasets.images import LoadRules, PictureError, load_picture
from latentmill.datasets.records import Record

THUMBNAIL_PX = 160
SAMPLE = 96
"""Pictures shown at random: ids are hashes, so the first by id are a steady draw."""
_OURS = re.compile(r"p[0-9a-f]{15}(-[0-9a-f]{12})?(-before)?\.jpg")


def sample_ids(ids: Iterable[str]) -> frozenset[str]:
    """Return the ids of the pictures that are shown at random."""
    return frozenset(sorted(ids)[:SAMPLE])


@dataclass(frozen=True, slots=True)
class Thumbnails:
    """The small copies of a report, in one folder."""

    folder: Path
    rules: LoadRules

    def file(self, record_id: str) -> Path:
        """Where the thumbnail of a picture of the random sample lies."""
        return self.folder / f"{record_id}.jpg"

    def show(self, records: Sequence[Record], sample: Collection[str]) -> dict[str, str]:
        """Return the thumbnails of `records` as data URLs by id, made where they are missing."""
        found = {}
        for record in records:
            path = self._path(record, sample)
            if path.is_file() or self._make(record, path):
                found[record.id] = data_url(path)
        return found

    def show_before(
        self, records: Sequence[Record], originals: Mapping[str, Path]
    ) -> dict[str, str]:
        """Return by id how another program shows files: unturned, unscaled, without background."""
        found = {}
        for record in records:
            path = self._path_before(record)
            original = originals.get(record.id)
            if original is not None and (path.is_file() or _make_plain(original, path)):
                found[record.id] = data_url(path)
        return found

    def keep_only(self, records: Sequence[Record], sample: Collection[str]) -> None:
        """Delete our thumbnails of what is not shown any more."""
        wanted = {self.file(one).name for one in sample}
        wanted |= {self._path(record, sample).name for record in records}
        wanted |= {self._path_before(record).name for record in records}
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if path.name not in wanted and _OURS.fullmatch(path.name):
                path.unlink()
        remove_leftovers(self.folder)

    def _path(self, record: Record, sample: Collection[str]) -> Path:
        if record.id in sample:
            return self.file(record.id)
        return self.folder / f"{record.id}-{record.pixels[:12]}.jpg"

    def _path_before(self, record: Record) -> Path:
        return self.folder / f"{record.id}-{record.pixels[:12]}-before.jpg"

    def _make(self, record: Record, path: Path) -> bool:
        try:
            image = load_picture(Path(record.file), self.rules).image
        except PictureError:
            return False
        write_thumbnail(image, path)
        return True


def write_thumbnail(image: Image.Image, path: Path) -> None:
    """Write a small JPEG of an RGB picture, at most THUMBNAIL_PX wide and high."""
    small = ImageOps.contain(image, (THUMBNAIL_PX, THUMBNAIL_PX), Image.Resampling.BILINEAR)
    stream = io.BytesIO()
    small.save(stream, "JPEG", quality=80)
    write_bytes(path, stream.getvalue())


def data_url(path: Path) -> str:
    """Return a JPEG as it stands in a page."""
    return "data:image/jpeg;base64," + base64.b64encode(path.read_bytes()).decode("ascii")


def _make_plain(original: Path, path: Path) -> bool:
    try:
        with Image.open(original) as image:
            plain = image.convert("RGB")
        write_thumbnail(plain, path)
    except Exception:  # noqa: BLE001 - other programs cannot read it at all; the report says so.
        return False
    return True
