"""Builds a BLIP captioner of toy size with random weights, in Hugging Face layout."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from latentmill.pipeline.tinysd.architecture import PICTURE_PX
from latentmill.pipeline.tinysd.drawing import COLOURS, SHAPES, TRIGGER

if TYPE_CHECKING:
    from transformers import BlipForConditionalGeneration, BlipProcessor

WIDTH: Final = 96
PATCH_PX: Final = 8
NUM_POSITIONS: Final = 32
START: Final = "[DEC]"
_SPECIAL: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", START, "[ENC]")
_WORDS: Final = ("a", "an", "on", "of", "background", "picture", "photo", "drawing", TRIGGER)
VOCABULARY: Final = (*_SPECIAL, *_WORDS, *COLOURS, *SHAPES)


def write_random_captioner(folder: Path, seed: int = 0) -> None:
    """Write an untrained captioner that loads offline: its captions are arbitrary words."""
    write_blip(build_captioner(seed), folder)


def write_blip(captioner: "BlipForConditionalGeneration", folder: Path) -> None:
    """Write a model with the tokenizer and picture settings that `BlipProcessor` loads."""
    from latentmill.cache.models.weights import quiet

    with quiet():
        captioner.save_pretrained(folder, safe_serialization=True)
    (folder / "vocab.txt").write_text("\n".join([*VOCABULARY, ""]), encoding="utf-8")
    _write_json(folder / "tokenizer_config.json", _tokenizer_settings())
    _write_json(folder / "preprocessor_config.json", _picture_settings())


def build_captioner(seed: int = 0) -> "BlipForConditionalGeneration":
    """Build a three-layer vision and a two-layer text half whose weights depend on the seed."""
    import torch
    from transformers import BlipConfig, BlipForConditionalGeneration

    layer = {"hidden_size": WIDTH, "intermediate_size": 3 * WIDTH, "num_attention_heads": 4}
    text = {
        "vocab_size": len(VOCABULARY),
        "max_position_embeddings": NUM_POSITIONS,
        "num_hidden_layers": 2,
        "bos_token_id": VOCABULARY.index(START),
        "eos_token_id": VOCABULARY.index("[SEP]"),
        "sep_token_id": VOCABULARY.index("[SEP]"),
        "pad_token_id": VOCABULARY.index("[PAD]"),
    }
    vision = {"image_size": PICTURE_PX, "patch_size": PATCH_PX, "num_hidden_layers": 3}
    spread = {"initializer_range": 0.05}  # BLIP's own 1e-10 leaves the vision half asleep
    config = BlipConfig(text_config=layer | text | spread, vision_config=layer | vision | spread)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BlipForConditionalGeneration(config).eval()


def build_processor() -> "BlipProcessor":
    """Load the processor from a folder written for the moment."""
    from tempfile import TemporaryDirectory

    from transformers import BlipProcessor

    with TemporaryDirectory() as folder:
        write_random_captioner(Path(folder))
        return BlipProcessor.from_pretrained(folder)


def _tokenizer_settings() -> dict[str, object]:
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": True,
        "model_max_length": NUM_POSITIONS,
        "model_input_names": ["input_ids", "attention_mask"],
        "additional_special_tokens": [START, "[ENC]"],
    }


def _picture_settings() -> dict[str, object]:
    return {
        "image_processor_type": "BlipImageProcessor",
        "processor_class": "BlipProcessor",
        "size": {"height": PICTURE_PX, "width": PICTURE_PX},
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "do_resize": True,
        "do_rescale": True,
        "do_normalize": True,
        "do_convert_rgb": True,
        "resample": 3,
    }


def _write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
