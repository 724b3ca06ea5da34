"""Turns the byte-pair file that open_clip_torch installs into CLIP's tokenizer folder."""

import gzip
import importlib.util
import json
from pathlib import Path
from typing import Final

START: Final = "<|startoftext|>"
END: Final = "<|endoftext|>"
NUM_TOKENS: Final = 49408
NUM_POSITIONS: Final = 77
_NUM_BYTES: Final = 256
_NUM_MERGES: Final = NUM_TOKENS - 2 * _NUM_BYTES - 2


def write_tokenizer(folder: Path) -> None:
    """Write `vocab.json`, `merges.txt` and the settings of SD 1.x's tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    merges = read_merges()
    vocabulary = json.dumps(build_vocabulary(merges), ensure_ascii=False)
    (folder / "vocab.json").write_text(vocabulary, encoding="utf-8")
    lines = ["#version: 0.2", *merges, ""]
    (folder / "merges.txt").write_text("\n".join(lines), encoding="utf-8")
    settings = {
        "tokenizer_class": "CLIPTokenizer",
        "model_max_length": NUM_POSITIONS,
        "do_lower_case": True,
        "add_prefix_space": False,
        "errors": "replace",
        **_special_tokens(),
    }
    _write_json(folder / "tokenizer_config.json", settings)
    _write_json(folder / "special_tokens_map.json", _special_tokens())


def read_merges() -> list[str]:
    """Read CLIP's merge rules, best first; the package is found without importing it (seconds)."""
    spec = importlib.util.find_spec("open_clip")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("open_clip_torch is not installed: it carries CLIP's vocabulary")
    path = Path(spec.submodule_search_locations[0]) / "bpe_simple_vocab_16e6.txt.gz"
    lines = gzip.decompress(path.read_bytes()).decode("utf-8").split("\n")
    return lines[1 : 1 + _NUM_MERGES]


def build_vocabulary(merges: list[str]) -> dict[str, int]:
    """Assign CLIP's ids: bytes, bytes that end a word, merged pairs, start, end."""
    letters = _byte_letters()
    pairs = [merge.replace(" ", "") for merge in merges]
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), *pairs, START, END]
    return {token: index for index, token in enumerate(tokens)}


def _byte_letters() -> list[str]:
    """Name the 256 bytes by printable letters, printable bytes first (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    num_others = _NUM_BYTES - len(printable)
    return [chr(byte) for byte in printable] + [chr(_NUM_BYTES + n) for n in range(num_others)]


def _special_tokens() -> dict[str, str]:
    return {"bos_token": START, "eos_token": END, "unk_token": END, "pad_token": END}


def _write_json(path: Path, content: dict[str, object] | dict[str, str]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
