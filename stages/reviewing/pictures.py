"""Ids to small and large copies of their pictures, made when first asked for and kept."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from latentmill.datasets.images import LoadRules, PictureError, load_picture, pixel_hash
from latentmill.datasets.records import Problem, Record
from latentmill.stages.captioning.contact_sheet import (
    THUMBNAIL_PX,
    keep_thumbnail,
    thumbnail_file,
)
from latentmill.stages.captioning.undrafted import not_validated, unreadable

SIDES_PX: Final = {"small": THUMBNAIL_PX, "large": 1280}
_AT_ONCE = 2
"""Pictures decoded at a time: each may take a gigabyte."""


class NoPictureError(Exception):
    """There is none to show, for the reason it carries."""


@dataclass(frozen=True, slots=True)
class Pictures:
    """The copies of a set's pictures in one folder."""

    folder: Path
    records: Mapping[str, Record]
    rules: LoadRules
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_AT_ONCE))

    def show(self, identity: str, size: str) -> Path:
        """The JPEG of a picture, at most `SIDES_PX[size]` wide and high.

        Raises NoPictureError for an unknown id or size, a picture that cannot be read, and one
        that is not what was validated.
        """
        record, side_px = self.records.get(identity), SIDES_PX.get(size)
        if record is None or side_px is None:
            raise NoPictureError("no such picture in the set")
        path = thumbnail_file(self.folder, record, side_px)
        if not path.is_file():
            with self.turn:
                self._make(record, side_px)
        return path

    def _make(self, record: Record, side_px: int) -> None:
        try:
            image = load_picture(Path(record.file), self.rules).image
        except PictureError as error:
            raise _no_picture(unreadable(record, error)) from error
        if pixel_hash(image) != record.pixels:
            raise _no_picture(not_validated(record))
        for side in {side_px, THUMBNAIL_PX}:
            keep_thumbnail(self.folder, record, image, side)


def _no_picture(problem: Problem) -> NoPictureError:
    reason = problem.message.removeprefix("no draft: ")
    return NoPictureError(f"{problem.path}: {reason}; {problem.fix}")
