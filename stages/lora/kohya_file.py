"""A LoRA and its header -> the bytes of a kohya file, with the hashes that A1111 lists it by."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from latentmill.cache.tensor_file import tensor_bytes
from latentmill.stages.lora.layouts import LoraWeights, to_kohya

HASH_FIELDS: Final = ("sshs_model_hash", "sshs_legacy_hash", "modelspec.hash_sha256")
_LEGACY_START: Final = 0x100000
_LEGACY_BYTES: Final = 0x10000


def kohya_bytes(lora: LoraWeights, header: Mapping[str, str]) -> bytes:
    """Serialise a LoRA; the same weights and header give the same bytes.

    `sshs_model_hash` is the SHA-256 of all that follows the header, as A1111 computes it from the
    file; the legacy hash is that of 64 KiB from 1 MiB on, of a file with the `ss_*` fields only.
    """
    tensors = to_kohya(lora)
    training = {key: text for key, text in header.items() if key.startswith("ss_")}
    content = tensor_bytes(tensors, training)
    model_hash = sha256(content[8 + int.from_bytes(content[:8], "little") :]).hexdigest()
    legacy = content[_LEGACY_START : _LEGACY_START + _LEGACY_BYTES]
    values = (model_hash, sha256(legacy).hexdigest()[:8], f"0x{model_hash}")
    return tensor_bytes(tensors, {**header, **dict(zip(HASH_FIELDS, values, strict=True))})
