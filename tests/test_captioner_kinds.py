import json
import shutil

import pytest
from PIL import Image

from latentmill.datasets.errors import ModelError, OutOfMemoryError, UsageError
from latentmill.stages.captioning import captioner as captioner_module
from latentmill.stages.captioning.captioner import describe, load_captioner
from latentmill.stages.captioning.captioner_folder import find_model
from latentmill.stages.captioning.generation import Search, after
from latentmill.stages.captioning.kinds import KINDS, class_of

pytestmark = pytest.mark.slow

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>", "<image>")
WORDS = (
    *("a", "photo", "of", "cat", "dog", "red", "blue", "green", "on", "sofa", "grass"),
    *("What", "does", "the", "image", "describe", "?"),
)
VOCABULARY = {word: place for place, word in enumerate((*SPECIAL, *WORDS))}
SIZE = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
VISION = {**SIZE, "image_size": 32, "patch_size": 16, "num_hidden_layers": 1}
IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
IMAGES = [Image.new("RGB", (40, 60), colour) for colour in ("red", "#00ff40", "#123456")]


def write_tokenizer(folder, start=True):
    """A tokenizer that knows whole words; every text begins with `<s>` where it says so."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    template = "<s> $A" if start else "$A </s>"
    pairs = [("<s>", 1), ("</s>", 2)]
    words.post_processor = processors.TemplateProcessing(single=template, special_tokens=pairs)
    PreTrainedTokenizerFast(
        tokenizer_object=words,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        cls_token="<s>",
        extra_special_tokens={"image_token": "<image>"},
    ).save_pretrained(folder)


def write_pictures(folder, kind, **values):
    settings = {"image_processor_type": kind, "size": {"height": 32, "width": 32}, **values}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))


def opt():
    return {
        **{"model_type": "opt", "vocab_size": len(VOCABULARY), "hidden_size": 16, "ffn_dim": 32},
        **{"num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 24},
        **{"word_embed_proj_dim": 16, "init_std": 0.5, **IDS},
    }


def t5():
    return {
        **{"model_type": "t5", "vocab_size": len(VOCABULARY), "d_model": 16, "d_kv": 8},
        **{"d_ff": 32, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 0},
        **{"pad_token_id": 0, "eos_token_id": 2, "bos_token_id": 1},
    }


def write_blip2(folder, language):
    from transformers import Blip2Config, Blip2ForConditionalGeneration

    query = {**SIZE, "num_hidden_layers": 1, "encoder_hidden_size": 16, "vocab_size": 9}
    config = Blip2Config(
        vision_config={**VISION, "initializer_range": 0.5},
        qformer_config={**query, "initializer_range": 0.5},
        text_config=language,
        num_query_tokens=3,
        image_token_index=4,
    )
    save(Blip2ForConditionalGeneration, config, folder)
    write_tokenizer(folder, start=language["model_type"] == "opt")
    write_pictures(folder, "BlipImageProcessor")
    (folder / "processor_config.json").write_text(
        json.dumps({"processor_class": "Blip2Processor", "num_query_tokens": 3})
    )


def write_git(folder):
    from transformers import GitConfig, GitForCausalLM

    config = GitConfig(
        vision_config={**VISION, "initializer_range": 0.5},
        vocab_size=len(VOCABULARY),
        **SIZE,
        **IDS,
        num_hidden_layers=1,
        max_position_embeddings=24,
        initializer_range=0.5,
    )
    save(GitForCausalLM, config, folder)
    write_tokenizer(folder)
    write_pictures(folder, "CLIPImageProcessor", do_center_crop=False)


def write_florence2(folder):
    from transformers import Florence2Config, Florence2ForConditionalGeneration

    vision = {
        **{"depths": [1, 1], "embed_dim": [8, 16], "num_heads": [1, 2], "num_groups": [1, 2]},
        **{"patch_size": [7, 3], "patch_stride": [4, 2], "patch_padding": [3, 1]},
        **{"patch_prenorm": [False, True], "window_size": 4, "projection_dim": 16},
        **{"initializer_range": 0.5},
    }
    text = {
        **{"model_type": "bart", "vocab_size": len(VOCABULARY), "d_model": 16},
        **{"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32},
        **{"encoder_attention_heads": 2, "decoder_attention_heads": 2, "init_std": 0.5},
        **{"max_position_embeddings": 64, "decoder_start_token_id": 2, "forced_bos_token_id": 1},
        **IDS,
    }
    config = Florence2Config(
        vision_config=vision, text_config=text, image_token_id=4, **IDS, decoder_start_token_id=2
    )
    save(Florence2ForConditionalGeneration, config, folder)
    write_tokenizer(folder)
    write_pictures(
        folder, "CLIPImageProcessor", do_center_crop=False, crop_size=32, image_seq_length=17
    )


def save(model_class, config, folder):
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model_class(config).save_pretrained(folder)


WRITERS = {
    "blip-2 opt": lambda folder: write_blip2(folder, opt()),
    "blip-2 t5": lambda folder: write_blip2(folder, t5()),
    "git": write_git,
    "florence2": write_florence2,
}


@pytest.fixture(scope="module", params=WRITERS)
def folder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "small 图"
    folder.mkdir()
    WRITERS[request.param](folder)
    return folder


@pytest.fixture
def captioner(folder):
    return load_captioner(str(folder), "auto", "cpu")


def test_each_kind_is_known_by_its_configuration(folder):
    kind = json.loads((folder / "config.json").read_text())["model_type"]
    assert find_model(str(folder), "auto") == (folder, kind)
    assert kind in KINDS


@pytest.mark.parametrize("num_beams", [1, 3])
def test_a_picture_s_text_does_not_depend_on_its_batch(captioner, num_beams):
    search = Search("", num_beams, 6)
    together = describe(captioner, IMAGES, search)
    assert together == [describe(captioner, [image], search)[0] for image in IMAGES]
    assert set(" ".join(together).split()) <= {*WORDS, "<unk>"}
    assert all(len(text.split()) <= 6 for text in together)


def test_the_picture_decides_the_text(captioner):
    noise = Image.effect_noise((40, 60), 90).convert("RGB")
    pixels = captioner.pixels([*IMAGES, noise])
    assert pixels.shape == (4, 3, 32, 32)
    texts = describe(captioner, [*IMAGES, noise], Search("", 1, 12))
    assert any(texts)
    assert len(set(texts)) > 1


def test_the_prefix_begins_each_draft_once(captioner):
    texts = describe(captioner, IMAGES, Search("a photo of", 2, 5))
    plain = describe(captioner, IMAGES, Search("", 2, 5))
    assert all(text.startswith("a photo of") for text in texts)
    assert not any(text.startswith("a photo of a photo of") for text in texts)
    assert texts != [f"a photo of {text}" for text in plain]


def test_a_prefix_longer_than_the_model_is_a_usage_error(captioner):
    if "t5" in type(captioner.model.config).__name__.lower() or not positions(captioner):
        pytest.skip("T5 has no longest text")
    with pytest.raises(UsageError, match="too long"):
        describe(captioner, IMAGES[:1], Search("a " * 70, 1, 5))


def positions(captioner):
    config = captioner.model.config
    return getattr(getattr(config, "text_config", config), "max_position_embeddings", None)


def test_out_of_memory_halves_the_batch_and_gives_up_at_one(captioner, monkeypatch):
    generate = type(captioner.model).generate

    def short_of_memory(self, *, pixel_values, most=1, **named):
        if len(pixel_values) > most:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return generate(self, pixel_values=pixel_values, **named)

    whole = describe(captioner, IMAGES, Search("", 1, 4))
    monkeypatch.setattr(type(captioner.model), "generate", short_of_memory)
    assert describe(captioner, IMAGES, Search("", 1, 4)) == whole
    monkeypatch.setattr(
        type(captioner.model),
        "generate",
        lambda self, **named: short_of_memory(self, most=0, **named),
    )
    with pytest.raises(OutOfMemoryError, match="does not fit"):
        describe(captioner, IMAGES, Search("", 1, 4))


@pytest.mark.parametrize("change", ["drop", "add"])
def test_weights_that_do_not_fit_are_an_error(folder, tmp_path, change):
    from safetensors.torch import load_file, save_file

    copy = tmp_path / "broken"
    shutil.copytree(folder, copy)
    weights = load_file(copy / "model.safetensors")
    name = next(name for name in sorted(weights) if "layers.0" in name or "layer.0" in name)
    if change == "drop":
        del weights[name]
    else:
        weights["other.weight"] = weights[name].clone()
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"not those of|cannot be read"):
        load_captioner(str(copy), "auto", "cpu")


def test_pickles_are_refused_with_the_reason(folder, tmp_path):
    copy = tmp_path / "pickled"
    shutil.copytree(folder, copy)
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    with pytest.raises(ModelError, match="can run any code"):
        load_captioner(str(copy), "auto", "cpu")


def test_an_unknown_kind_is_refused_with_the_known_ones(folder, tmp_path):
    copy = tmp_path / "other"
    shutil.copytree(folder, copy)
    (copy / "config.json").write_text('{"model_type": "llava"}')
    with pytest.raises(ModelError, match="a 'llava' model") as caught:
        find_model(str(copy), "auto")
    assert caught.value.expected == "model_type `blip`, `blip-2`, `git`, `florence2`"


def test_a_florence_with_its_own_code_is_refused(folder, tmp_path):
    copy = tmp_path / "own code"
    shutil.copytree(folder, copy)
    (copy / "config.json").write_text('{"model_type": "florence2", "auto_map": {}}')
    with pytest.raises(ModelError, match="its own code, which is not run"):
        find_model(str(copy), "auto")


def test_a_blip2_without_a_token_for_the_picture_is_refused(captioner, monkeypatch):
    if captioner.kind != "blip-2":
        pytest.skip("BLIP-2 only")
    monkeypatch.setattr(captioner.model.config, "image_token_index", None)
    with pytest.raises(ModelError, match="no token for the picture"):
        describe(captioner, IMAGES, Search("", 1, 4))


def test_only_settings_are_fetched_of_an_unknown_kind(tmp_path, monkeypatch):
    asked = []

    def snapshot(model, revision, patterns, is_local):
        asked.append(tuple(patterns))
        (tmp_path / "config.json").write_text('{"model_type": "llava"}')
        return None if is_local else tmp_path

    monkeypatch.setattr("latentmill.stages.captioning.captioner_folder._snapshot", snapshot)
    with pytest.raises(ModelError, match="llava"):
        find_model("owner/model", "auto")
    assert "*.safetensors" not in asked[-1]
    assert len(asked) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_transformers_too_old_for_a_kind_is_named(kind, monkeypatch):
    import transformers

    assert class_of(KINDS[kind].model_class, KINDS[kind]).__name__ == KINDS[kind].model_class
    monkeypatch.setattr(transformers, "__version__", "4.48.0")
    with pytest.raises(ModelError, match=r"transformers 4\.48\.0 cannot load"):
        class_of("NoSuchClass", KINDS[kind])


def test_a_prompt_that_is_given_back_is_cut_off_and_any_other_start_is_kept():
    import torch

    tokens = torch.tensor([[4, 4, 1, 7], [4, 4, 1, 8]])
    assert after(tokens, [4, 4, 1]).tolist() == [[7], [8]]
    assert after(tokens, [4, 5]).tolist() == tokens.tolist()
    assert after(tokens, []).tolist() == tokens.tolist()


def test_kinds_are_told_apart_in_one_process(tmp_path):
    for name in ("git", "florence2"):
        (tmp_path / name).mkdir()
        WRITERS[name](tmp_path / name)
        loaded = captioner_module.load_captioner(str(tmp_path / name), "auto", "cpu")
        assert loaded.kind == name
