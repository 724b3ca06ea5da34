"""Tensors and text fields become the bytes of a .safetensors file, the same bytes each time."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_ALIGNMENT_BYTES = 8


def tensor_bytes(tensors: "Mapping[str, Tensor]", header: Mapping[str, str]) -> bytes:
    """Serialise tensors with text fields in the header; several names may hold the same tensor.

    safetensors keeps the fields in a hash map, whose order differs from process to process: the
    header is written again with sorted keys. Offsets count from its end, so they stay true.
    """
    from safetensors.torch import save

    apart = {name: at.contiguous().clone() for name, at in tensors.items()}
    raw = save(apart, metadata=dict(header))
    length = int.from_bytes(raw[:8], "little")
    fields = json.loads(raw[8 : 8 + length])
    text = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT_BYTES)
    return len(text).to_bytes(8, "little") + text + raw[8 + length :]
