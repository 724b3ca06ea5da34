"""Names of pictures and caption files in a folder -> which caption belongs to which picture."""

from collections.abc import Collection, Mapping, Sequence
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

    A caption file named as the picture to the letter comes first and is no other picture's, then
    `.txt` comes before `.caption`. Pictures that share a stem share the caption.
    """
    rank = {suffix: position for position, suffix in enumerate(suffixes)}
    by_key: dict[tuple[str, str], list[str]] = {}
    for path in sorted(sidecars, key=lambda one: (rank[suffix_of(_name(one))], one)):
        by_key.setdefault(_key(path), []).append(path)
    stems = {_stem(path) for path in pictures}
    captions = {
        path: _nearest(path, by_key[_key(path)], stems)
        for path in sorted(pictures)
        if _key(path) in by_key
    }
    paired = {_key(path) for path in captions}
    orphans = sorted(path for key, paths in by_key.items() if key not in paired for path in paths)
    return Pairing(captions, tuple(orphans))


def _nearest(
    picture: str, sidecars: Sequence[str], stems: Collection[tuple[str, str]]
) -> tuple[str, ...]:
    """Caption files named exactly as the picture, then those named so for none; else all."""
    exact = [path for path in sidecars if _stem(path) == _stem(picture)]
    free = [path for path in sidecars if _stem(path) not in stems]
    return tuple([*exact, *free] or sidecars)


def _stem(path: str) -> tuple[str, str]:
    """Folder and name without its ending, in the Unicode form that they have on disk."""
    folder, _, name = path.rpartition("/")
    stem, dot, _ = name.rpartition(".")
    return folder, stem if dot and stem else name


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _key(path: str) -> tuple[str, str]:
    return path.rpartition("/")[0], stem_key(_name(path))
