"""Vectors of pictures and captions, kept so that none is made twice."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from latentmill.cache.files import write_bytes

if TYPE_CHECKING:
    from latentmill.datasets.agreement import Vectors


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Unit vectors `[width]` by the picture's pixel hash and by the caption's text.

    `scorer` is the identity of the model that made them, `reference` the setting that named it.
    """

    scorer: str = ""
    reference: str = ""
    pictures: "Mapping[str, Vectors]" = field(default_factory=dict)
    texts: "Mapping[str, Vectors]" = field(default_factory=dict)

    def with_those_of(self, other: "Embeddings") -> "Embeddings":
        """Both together."""
        pictures = {**self.pictures, **other.pictures}
        return Embeddings(self.scorer, self.reference, pictures, {**self.texts, **other.texts})


def write_embeddings(path: Path, embeddings: Embeddings) -> None:
    """Commit a `.safetensors` file with `pictures` and `texts` `[n, width]` in half precision."""
    import numpy
    from safetensors.numpy import save

    pictures, texts = (
        dict(sorted(embeddings.pictures.items())),
        dict(sorted(embeddings.texts.items())),
    )
    keys = {
        "scorer": embeddings.scorer,
        "reference": embeddings.reference,
        "pictures": list(pictures),
        "texts": list(texts),
    }
    tensors = {
        name: numpy.array(list(vectors.values()), dtype=numpy.float16)
        for name, vectors in (("pictures", pictures), ("texts", texts))
    }
    write_bytes(path, save(tensors, metadata={"keys": json.dumps(keys, sort_keys=True)}))


def read_embeddings(path: Path) -> Embeddings:
    """The vectors in a file; none when it is missing or damaged: they are made again then."""
    import numpy
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            keys = json.loads(file.metadata()["keys"])
            stored = {
                name: dict(
                    zip(keys[name], file.get_tensor(name).astype(numpy.float32), strict=True)
                )
                for name in ("pictures", "texts")
            }
        return Embeddings(keys["scorer"], keys["reference"], stored["pictures"], stored["texts"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return Embeddings()
