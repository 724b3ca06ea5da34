"""Names the VAE, the text encoder and the tokenizer by their content.

The same weights in a folder, in a single file or on the hub have the same name.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from latentmill.cache import clip_tokenizer
from latentmill.cache.files import write_json
from latentmill.cache.fingerprints import FORMAT, digest, tensors_hash
from latentmill.cache.models import model_folder
from latentmill.cache.models.weights import (
    ModelFiles,
    load_text_encoder,
    load_vae,
    part_files,
    part_folder,
)

if TYPE_CHECKING:
    import torch

Encoder = Literal["vae", "text_encoder"]

# What of a configuration changes the result without changing the shape of a tensor.
_SETTINGS = {
    "vae": ("act_fn", "norm_num_groups", "down_block_types", "layers_per_block"),
    "text_encoder": ("hidden_act", "num_attention_heads", "layer_norm_eps"),
}
_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")
_MODEL_PREFIX = "text_model."  # In front of CLIP's names until transformers 5.6.


@dataclass(frozen=True, slots=True)
class EncoderHashes:
    """The three parts of a model that turn pictures and captions into what is cached."""

    vae: str
    text_encoder: str
    tokenizer: str


def encoder_hashes(files: ModelFiles, memo: Path) -> EncoderHashes:
    """Hash the encoders; `memo` remembers it by path, size and time, so that no weights load."""
    return EncoderHashes(
        vae=_remembered(files, "vae", memo),
        text_encoder=_remembered(files, "text_encoder", memo),
        tokenizer=tokenizer_hash(files),
    )


def tokenizer_hash(files: ModelFiles) -> str:
    """Hash a tokenizer's vocabulary, merge rules, special tokens and length."""
    if files.single_file:
        merges = clip_tokenizer.read_merges()
        vocabulary = clip_tokenizer.build_vocabulary(merges)
        start, end = clip_tokenizer.START, clip_tokenizer.END
        special = dict.fromkeys(_SPECIAL_TOKENS, end) | {"bos_token": start}
        length = clip_tokenizer.NUM_POSITIONS
    else:
        folder = part_folder(files, "tokenizer")
        vocabulary, merges = _vocabulary(folder)
        settings = _settings(folder)
        special = {name: _text(settings.get(name)) for name in _SPECIAL_TOKENS}
        length = settings.get("model_max_length", 0)
    return digest("tokenizer", [vocabulary, merges, special, length])


def _remembered(files: ModelFiles, part: Encoder, memo: Path) -> str:
    stats = [(path, path.stat()) for path in part_files(files, part)]
    stamps = [[str(path.absolute()), stat.st_size, stat.st_mtime_ns] for path, stat in stats]
    key = digest("weights stamp", [FORMAT, part, stamps])
    known = _read_memo(memo)
    if key not in known:
        known[key] = _hash_weights(files, part)
        write_json(memo, known)
    return known[key]


def _read_memo(memo: Path) -> dict[str, str]:
    """Read what is remembered; a damaged memo is forgotten, it only saves time."""
    try:
        values = json.loads(memo.read_bytes())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _hash_weights(files: ModelFiles, part: Encoder) -> str:
    """Hash the weights as they are run: in fp32, under the library's own names."""
    loaders: Mapping[Encoder, Callable[[ModelFiles], torch.nn.Module]]
    loaders = {"vae": load_vae, "text_encoder": load_text_encoder}
    model: Any = loaders[part](files)
    settings = {name: getattr(model.config, name) for name in _SETTINGS[part]}
    tensors = model.state_dict()
    return tensors_hash(
        {name.removeprefix(_MODEL_PREFIX): tensors[name] for name in tensors}, settings
    )


def _vocabulary(folder: Path) -> tuple[dict[str, int], list[str]]:
    """Read tokens and merge rules from the two plain files, or else from `tokenizer.json`."""
    if (folder / "vocab.json").is_file():
        vocabulary = model_folder.read_json(folder / "vocab.json")
        try:
            lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
        except (OSError, ValueError) as error:
            raise model_folder.unreadable(folder / "merges.txt", error) from error
        return vocabulary, [line for line in lines if line and not line.startswith("#version")]
    path = folder / "tokenizer.json"
    try:
        model = model_folder.read_json(path)["model"]
        merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
        return dict(model["vocab"]), merges
    except (KeyError, TypeError, ValueError) as error:
        raise model_folder.unreadable(path, error) from error


def _settings(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            values |= model_folder.read_json(folder / name)
    return values


def _text(token: Any) -> str:
    """A special token is a text, or an object that holds it."""
    return str(token["content"]) if isinstance(token, dict) else str(token)
