"""Names a model's UNet by its stored weights and configuration, without loading it."""

import hashlib
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from latentmill.cache.files import write_json
from latentmill.cache.fingerprints import digest
from latentmill.cache.models import model_folder, single_file
from latentmill.cache.models.weights import ModelFiles, part_folder, read_config

_CHUNK_BYTES: Final = 2**22


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies in a .safetensors file, from byte `begin` up to `end`."""

    name: str
    kind: str
    file: Path
    begin: int
    end: int


def unet_hash(files: ModelFiles, memo: Path) -> str:
    """Hash the UNet's tensors as they are stored, and its configuration.

    Where the files lie, how they are divided and what else they hold does not count. `memo`
    remembers the hash by path, size and time, so that gigabytes are read once.
    """
    paths = _weight_files(files)
    stamps = [[str(path.absolute()), at.st_size, at.st_mtime_ns] for path, at in _stats(paths)]
    config = {key: at for key, at in read_config(files, "unet").items() if key[:1] != "_"}
    key = digest("unet stamp", [stamps, config])
    known = _read_memo(memo)
    if key not in known:
        prefix = single_file.PREFIXES["unet"] if files.single_file else ""
        known[key] = _hash_tensors([at for path in paths for at in _stored(path, prefix)], config)
        write_json(memo, known)
    return known[key]


def _weight_files(files: ModelFiles) -> list[Path]:
    """The files that `load_unet` reads: the plain ones, or those of the one variant."""
    if files.single_file:
        return [files.single_file]
    folder = part_folder(files, "unet")
    variant = model_folder.weights_variant(folder, "unet")
    stem = "diffusion_pytorch_model" + (f".{variant}" if variant else "")
    whole = folder / f"{stem}.safetensors"
    if whole.is_file():
        return [whole]
    return sorted(folder.glob(f"{stem}-*.safetensors"))


def _stats(paths: list[Path]) -> Iterator[tuple[Path, Any]]:
    return ((path, path.stat()) for path in paths)


def _stored(path: Path, prefix: str) -> Iterator[StoredTensor]:
    try:
        with path.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(min(length, 10**8)))
        for name, entry in header.items():
            if name.startswith(prefix) and name != "__metadata__":
                begin, end = (8 + length + at for at in entry["data_offsets"])
                kind = f"{entry['dtype']} {entry['shape']}"
                yield StoredTensor(name.removeprefix(prefix), kind, path, begin, end)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise model_folder.unreadable(path, error) from error


def _hash_tensors(tensors: list[StoredTensor], config: dict[str, Any]) -> str:
    total = hashlib.sha256(digest("unet", config).encode())
    for tensor in sorted(tensors, key=lambda one: one.name):
        total.update(json.dumps([tensor.name, tensor.kind]).encode())
        with tensor.file.open("rb") as stream:
            stream.seek(tensor.begin)
            left = tensor.end - tensor.begin
            while left and (chunk := stream.read(min(left, _CHUNK_BYTES))):
                total.update(chunk)
                left -= len(chunk)
    return total.hexdigest()


def _read_memo(memo: Path) -> dict[str, str]:
    """Read what is remembered; a damaged memo is forgotten, it only saves time."""
    try:
        values = json.loads(memo.read_bytes())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
