import hashlib
import json

import torch
from safetensors.torch import load, save

from latentmill.stages.lora.kohya_file import kohya_bytes
from latentmill.stages.lora.layouts import LoraLayer, LoraWeights

NAME = "mid_block.attentions.0.proj_in"


def lora_of(width: int) -> LoraWeights:
    generator = torch.Generator().manual_seed(width)
    down = torch.randn(8, width, generator=generator)
    up = torch.randn(width, 8, generator=generator)
    return LoraWeights({NAME: LoraLayer(down, up, 4.0)})


def header_of(content: bytes) -> dict[str, str]:
    fields = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return dict(fields["__metadata__"])


def test_the_model_hash_is_that_of_everything_behind_the_header() -> None:
    content = kohya_bytes(lora_of(16), {"ss_seed": "1", "latentmill.train": "{}"})
    data = content[8 + int.from_bytes(content[:8], "little") :]
    wanted = hashlib.sha256(data).hexdigest()
    header = header_of(content)
    assert header["sshs_model_hash"] == wanted
    assert header["modelspec.hash_sha256"] == f"0x{wanted}"
    assert (header["ss_seed"], header["latentmill.train"]) == ("1", "{}")


def test_the_model_hash_is_what_the_plain_library_gives_with_training_fields_only() -> None:
    content = kohya_bytes(lora_of(16), {"ss_seed": "1", "modelspec.title": "x"})
    plain = save(load(content), {"ss_seed": "1"})
    data = plain[8 + int.from_bytes(plain[:8], "little") :]
    assert header_of(content)["sshs_model_hash"] == hashlib.sha256(data).hexdigest()


def test_the_legacy_hash_reads_64_kib_from_the_second_mebibyte() -> None:
    lora = lora_of(20_000)
    content = kohya_bytes(lora, {"ss_seed": "1", "modelspec.title": "x"})
    plain = save(load(content), {"ss_seed": "1"})
    assert len(plain) > 0x110000
    wanted = hashlib.sha256(plain[0x100000:0x110000]).hexdigest()[:8]
    assert header_of(content)["sshs_legacy_hash"] == wanted


def test_what_is_no_training_field_changes_no_hash() -> None:
    one, other = (kohya_bytes(lora_of(16), {"modelspec.title": text}) for text in ("a", "b"))
    fields = ("sshs_model_hash", "sshs_legacy_hash")
    assert [header_of(one)[field] for field in fields] == [
        header_of(other)[field] for field in fields
    ]
