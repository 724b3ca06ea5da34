"""What decoding a picture told, kept beside the manifest so that no pixel is read twice."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import xxhash
from PIL import Image

from latentmill.cache.files import write_text
from latentmill.datasets.images import (
    LoadRules,
    Picture,
    PictureError,
    installed_decoders,
    load_picture,
    pixel_hash,
)
from latentmill.datasets.measures import (
    MEASURES_VERSION,
    SIDES_PX,
    Measures,
    measure,
    measures_from_json,
    reduced,
)
from latentmill.datasets.sources import FoundPicture
from latentmill.stages.checking.copies import Copy
from latentmill.stages.checking.thumbnails import write_thumbnail

_CHUNK_BYTES = 1 << 20
_SAMPLED_PX = 16
_TRIED_AGAIN = frozenset({"unreadable", "out-of-memory", "too-slow"})  # The machine has a part.


@dataclass(frozen=True, slots=True)
class Decoded:
    """One file as it was decoded. `code` is empty for a picture, else it is a reject's.

    `colour` is set when all pixels are of one colour; there is nothing to measure then. `stored`
    is how the file keeps the picture, `copy` its repaired copy, if one was written. `content` is
    the XXH3-128 of the file's bytes; empty when nobody knows that these bytes were decoded.
    """

    file: str
    bytes: int
    modified_ns: int
    rules: str
    format: str = ""
    width: int = 0
    height: int = 0
    pixels: str = ""
    notes: tuple[str, ...] = ()
    colour: str = ""
    measures: Measures | None = None
    code: str = ""
    message: str = ""
    fix: str = ""
    stored: str = ""
    copy: Copy | None = None
    content: str = ""

    def holds_for(self, found: FoundPicture, rules: LoadRules) -> bool:
        """Tell whether decoding the file again would tell the same."""
        same = (self.bytes, self.modified_ns) == (found.bytes, found.modified_ns)
        return same and self._holds_under(rules)

    def may_hold_for(self, found: FoundPicture, rules: LoadRules) -> bool:
        """Tell whether it would if the file, whose time is another one, has the same bytes."""
        return bool(self.content) and self.bytes == found.bytes and self._holds_under(rules)

    def verified(self, found: FoundPicture) -> "Decoded | None":
        """Read the file's bytes: return the entry with its new time, None for other bytes."""
        same = self.content == content_hash(found)
        return replace(self, modified_ns=found.modified_ns) if same else None

    def _holds_under(self, rules: LoadRules) -> bool:
        return self.is_lasting and self.rules == _conditions(rules, self.code)

    @property
    def is_lasting(self) -> bool:
        """Whether the file alone decided the outcome; else it is tried again in each run."""
        return self.code not in _TRIED_AGAIN


Keep = Callable[[Decoded, Picture], Decoded]
"""Keeps something of a picture while it is in memory, and notes it in the entry."""


def decode(
    found: FoundPicture, rules: LoadRules, thumbnail: Path | None, keep: Keep | None = None
) -> Decoded:
    """Decode a picture, and keep a small copy at `thumbnail` if one is asked for."""
    try:
        picture = load_picture(Path(found.file), rules)
    except PictureError as error:
        return rejected(found, rules, error)
    image, small = picture.image, reduced(picture.image, SIDES_PX[-1])
    if thumbnail is not None:
        write_thumbnail(small, thumbnail)
    colour = _single_colour(image, small)
    entry = Decoded(
        found.file,
        found.bytes,
        found.modified_ns,
        _conditions(rules, ""),
        picture.format,
        image.width,
        image.height,
        pixel_hash(image),
        picture.notes,
        colour,
        None if colour else measure(image, small, picture.quality),
        stored=picture.stored,
        content=content_hash(found),
    )
    return entry if keep is None else keep(entry, picture)


def rejected(found: FoundPicture, rules: LoadRules, error: PictureError) -> Decoded:
    """Tell why a file is no usable picture."""
    return Decoded(
        found.file,
        found.bytes,
        found.modified_ns,
        _conditions(rules, error.code),
        code=error.code,
        message=error.message,
        fix=error.fix,
    )


def content_hash(found: FoundPicture) -> str:
    """Return the XXH3-128 of a file's bytes; empty when it is not as it was found any more."""
    digest = xxhash.xxh3_128()
    try:
        with Path(found.file).open("rb") as file:
            while content := file.read(_CHUNK_BYTES):
                digest.update(content)
            status = os.fstat(file.fileno())
    except OSError:
        return ""
    same = (status.st_size, status.st_mtime_ns) == (found.bytes, found.modified_ns)
    return digest.hexdigest() if same else ""


def decoded_to_json(entry: Decoded) -> str:
    """One line, keys sorted."""
    return json.dumps(asdict(entry), sort_keys=True)


def decoded_from_json(line: str) -> Decoded:
    """The entry of one line."""
    values = json.loads(line)
    copy, measures = values.get("copy"), values["measures"]
    nested = {
        "notes": tuple(values["notes"]),
        "copy": copy and Copy(**copy),
        "measures": measures and measures_from_json(measures),
    }
    return Decoded(**{**values, **nested})


def write_decoded(path: Path, entries: Iterable[Decoded]) -> None:
    """Write one JSON line per file, keys sorted."""
    write_text(path, "".join(f"{decoded_to_json(entry)}\n" for entry in entries))


def read_decoded(paths: Sequence[Path]) -> dict[str, Decoded]:
    """Read what is there by file; later paths win, a damaged line costs its own picture only."""
    known: dict[str, Decoded] = {}
    for path in paths:
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        for line in lines:
            try:
                entry = decoded_from_json(line)
            except (ValueError, TypeError, KeyError):
                continue
            known[entry.file] = entry
    return known


def part_name(files: Iterable[str]) -> str:
    """Return the name of the part that holds these files: the same files, the same name."""
    joined = "\0".join(files).encode("utf-8", "surrogateescape")
    return f"{hashlib.sha256(joined).hexdigest()[:16]}.jsonl"


def _conditions(rules: LoadRules, code: str) -> str:
    """Say under which conditions an outcome stands."""
    decoders = f", with {installed_decoders()}" if code == "unsupported-format" else ""
    measured = "" if code else f", measures {MEASURES_VERSION}"
    return rules.fingerprint + decoders + measured


def _single_colour(image: Image.Image, small: Image.Image) -> str:
    """Name the colour that all pixels have, if so; some pixels tell most pictures apart."""
    some = small.resize((_SAMPLED_PX, _SAMPLED_PX), Image.Resampling.NEAREST)
    if any(len(_levels(one)) != 1 for one in (some, small)):
        return ""
    levels = _levels(image)
    return "#" + levels.pop().hex() if len(levels) == 1 else ""


def _levels(image: Image.Image) -> set[bytes]:
    """Return the least and the greatest level of each channel, as one or two colours."""
    bands = [band for band in image.getextrema() if isinstance(band, tuple)]
    return {bytes(int(band[at]) for band in bands) for at in (0, 1)}
