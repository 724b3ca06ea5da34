"""Names of pictures and caption files in a folder -> which caption belongs to which picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from latentmill.datasets.filekinds import stem_key, suffix_of

DEFAULT_SUFFIXES = (".txt", ".caption")


@dataclass(frozen=True, slots=True)
class Pairing:
    """Caption files of each picture in order of precedence, and files that found no picture."""

    captions: Mapping[str, tuple[str, ...]]
    orphans: tuple[str, ...]


def sidecar_suffixes(caption_extension: str) -> tuple[str, ...]:
    """Return the endings of caption files, first choice first, from the source's setting."""
    if caption_extension == "auto":
        return DEFAULT_SUFFIXES
    return ("." + caption_extension.lstrip(".").casefold(),)


def pair_captions(
    pictures: Sequence[str], sidecars: Sequence[str], suffixes: Sequence[str]
) -> Pairing:
    """Pair by folder and stem: only the last ending is taken off, Unicode forms do not matter.

    `.txt` comes before `.caption`. Pictures that share a stem share the caption.
    """
    rank = {suffix: position for position, suffix in enumerate(suffixes)}
    by_key: dict[tuple[str, str], list[str]] = {}
    for path in sorted(sidecars, key=lambda one: (rank[suffix_of(_name(one))], one)):
        by_key.setdefault(_key(path), []).append(path)
    captions = {
        path: tuple(by_key[_key(path)]) for path in sorted(pictures) if _key(path) in by_key
    }
    paired = {_key(path) for path in captions}
    orphans = sorted(path for key, paths in by_key.items() if key not in paired for path in paths)
    return Pairing(captions, tuple(orphans))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _key(path: str) -> tuple[str, str]:
    return path.rpartition("/")[0], stem_key(_name(path))
