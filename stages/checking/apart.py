"""Decode pictures in a process of their own: what breaks a decoder is that picture's reject."""

import atexit
import json
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from latentmill.datasets.images import LoadRules, PictureError
from latentmill.datasets.isolation import Failure, Isolated, Limits
from latentmill.datasets.sources import FoundPicture
from latentmill.stages.checking.copies import CopyOrder
from latentmill.stages.checking.decoded import (
    Decoded,
    decode,
    decoded_from_json,
    decoded_to_json,
    rejected,
)
from latentmill.stages.checking.repair import Copier
from latentmill.stages.settings import ValidateSettings

_DECODED_AS = frozenset({"decoder-error", "truncated"})  # What a decoder may have commented on.
_SUSPECT = frozenset({"decoder-crashed", "out-of-memory"})
_FIXES = {
    "decoder-crashed": "Open it in an image editor and save it again, or remove it.",
    "out-of-memory": "Scale the picture down, free some memory, or raise "
    "`validate.max_gigabytes`; it is tried again in the next run.",
    "too-slow": "Save the picture again, or raise `validate.max_seconds`; it is tried again in the "
    "next run.",
}


def decode_apart(
    found: FoundPicture, copier: Copier, thumbnail: Path | None, limits: Limits
) -> Decoded:
    """Decode a picture as `decode` does; its crash, its hang and its hunger are its reject."""
    answer = _decoder(limits)(_request(found, copier, thumbnail))
    if isinstance(answer, Failure):
        error = PictureError(answer.code, answer.message, _FIXES[answer.code])
        return rejected(found, copier.rules, error)
    entry = decoded_from_json(answer.text)
    if entry.code in _DECODED_AS and answer.printed and answer.printed not in entry.message:
        return replace(entry, message=f"{entry.message}; the decoder said: {answer.printed}")
    return entry


def is_suspect(entry: Decoded) -> bool:
    """Tell whether another picture or the machine may be to blame for the outcome."""
    return entry.code in _SUSPECT


def decode_alone(
    found: FoundPicture, copier: Copier, thumbnail: Path | None, limits: Limits
) -> Decoded:
    """Decode as `decode_apart`, in a fresh process: for a caller with no other picture at work."""
    _decoder(limits).close()
    return decode_apart(found, copier, thumbnail, limits)


def answer_request(line: str) -> str:
    """Decode what `decode_apart` asks for: one JSON line each way."""
    task = json.loads(line)
    thumbnail = Path(task["thumbnail"]) if task["thumbnail"] else None
    copier = Copier(
        CopyOrder(Path(task["folder"]), task["stem"], task["format"]),
        ValidateSettings(**task["settings"]),
        LoadRules(**task["rules"]),
    )
    entry = decode(FoundPicture(**task["found"]), copier.rules, thumbnail, copier)
    return decoded_to_json(entry)


def _request(found: FoundPicture, copier: Copier, thumbnail: Path | None) -> str:
    task = {
        "found": asdict(found),
        "thumbnail": str(thumbnail.absolute()) if thumbnail else "",
        "folder": str(copier.order.folder.absolute()),
        "stem": copier.order.stem,
        "format": copier.order.format,
        "settings": copier.settings.model_dump(mode="json"),
        "rules": asdict(copier.rules),
    }
    return json.dumps(task)


@cache
def _decoder(limits: Limits) -> Isolated:
    """One child per process and limits, kept until the process ends."""
    decoder = Isolated(answer_request, limits)
    atexit.register(decoder.close)
    return decoder
