import math
from pathlib import Path
from random import Random
from typing import Any

import pytest

from latentmill.pipeline.tinysd.architecture import VAE_FACTOR, write_random_model
from latentmill.pipeline.tinysd.captioner import write_random_captioner
from latentmill.pipeline.tinysd.drawing import COLOURS, Drawing, draw, random_drawing
from latentmill.pipeline.tinysd.model import PACKAGED, write_captioner, write_model

pytestmark = pytest.mark.slow

MAX_WEIGHT_BYTES = 16_000_000
RED_ON_BLUE = Drawing("circle", "red", "blue")


@pytest.fixture(scope="module")
def random_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("random")
    write_random_model(folder)
    return folder


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from diffusers import DDIMScheduler, StableDiffusionPipeline

    folder = tmp_path_factory.mktemp("trained")
    write_model(folder)
    pipeline = StableDiffusionPipeline.from_pretrained(folder, local_files_only=True)
    pipeline.scheduler = DDIMScheduler.from_config(pipeline.scheduler.config)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def bytes_of(folder: Path) -> dict[str, bytes]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_a_drawing_has_the_size_and_colours_it_names() -> None:
    picture = draw(Drawing("square", "red", "blue", width_px=320, height_px=256))
    assert picture.size == (320, 256)
    assert picture.getpixel((160, 128)) == COLOURS["red"]
    assert picture.getpixel((2, 2)) == COLOURS["blue"]


def test_the_same_seed_draws_the_same_pictures() -> None:
    first, second = (draw(random_drawing(Random(3))).tobytes() for _ in range(2))
    assert first == second


def test_captions_name_shape_colours_and_look() -> None:
    assert Drawing("star", "orange", "blue").caption == "an orange star on a blue background"
    hatched = Drawing("star", "red", "orange", hatched=True)
    assert hatched.caption == "a zwx drawing of a red star on an orange background"
    assert hatched.description == "a red star on an orange background"


def test_hatching_roughens_a_picture() -> None:
    from PIL import ImageStat

    hatched = Drawing("circle", "red", "blue", hatched=True)
    corners = [draw(drawing).crop((0, 0, 12, 12)) for drawing in (RED_ON_BLUE, hatched)]
    flat_spread, hatched_spread = (ImageStat.Stat(corner).stddev[1] for corner in corners)
    assert flat_spread == 0
    assert hatched_spread > 25


def test_the_tokenizer_is_clip_s(random_folder: Path) -> None:
    from transformers import CLIPTokenizer

    tokenizer = CLIPTokenizer.from_pretrained(random_folder / "tokenizer")
    assert tokenizer("a photo of a cat").input_ids == [49406, 320, 1125, 539, 320, 2368, 49407]
    assert tokenizer.pad_token_id == 49407
    assert tokenizer.model_max_length == 77
    assert len(tokenizer) == 49408


def test_the_random_model_is_a_stable_diffusion(random_folder: Path) -> None:
    from diffusers import StableDiffusionPipeline

    pipeline = StableDiffusionPipeline.from_pretrained(random_folder, local_files_only=True)
    assert pipeline.vae_scale_factor == VAE_FACTOR == 4
    assert pipeline.vae.config.latent_channels == 4
    assert pipeline.scheduler.config.prediction_type == "epsilon"
    assert (pipeline.scheduler.config.beta_start, pipeline.scheduler.config.beta_end) == (
        0.00085,
        0.012,
    )
    picture = pipeline("a cat", num_inference_steps=1, width=80, height=48).images[0]
    assert picture.size == (80, 48)


def test_the_unet_looks_at_the_text_at_several_levels(random_folder: Path) -> None:
    from diffusers import UNet2DConditionModel

    unet = UNet2DConditionModel.from_pretrained(random_folder / "unet")
    blocks = {
        name.split(".attentions")[0] for name, _ in unet.named_modules() if name.endswith("attn2")
    }
    assert blocks == {"down_blocks.0", "down_blocks.1", "mid_block", "up_blocks.1", "up_blocks.2"}


def test_a_random_model_depends_on_its_seed_alone(random_folder: Path, tmp_path: Path) -> None:
    write_random_model(tmp_path / "again")
    write_random_model(tmp_path / "other", seed=1)
    assert bytes_of(tmp_path / "again") == bytes_of(random_folder)
    assert bytes_of(tmp_path / "other") != bytes_of(random_folder)


def test_the_shipped_weights_are_small() -> None:
    sizes = [len(path.read_bytes()) for path in PACKAGED.iterdir() if path.is_file()]
    assert len(sizes) >= 5
    assert sum(sizes) <= MAX_WEIGHT_BYTES


def test_writing_the_trained_models_is_deterministic(tmp_path: Path) -> None:
    for folder in (tmp_path / "one", tmp_path / "two"):
        write_model(folder)
        write_captioner(folder / "captioner")
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "two")


@pytest.mark.parametrize(("hatched", "bound_db"), [(False, 25), (True, 20)])
def test_the_vae_keeps_an_unseen_picture(pipeline: Any, hatched: bool, bound_db: float) -> None:
    from latentmill.pipeline.tinysd.batches import drawn_tensor
    from latentmill.pipeline.tinysd.vae_training import measure_psnr

    random = Random(77)
    drawings = [random_drawing(random, hatched=hatched) for _ in range(8)]
    assert measure_psnr(pipeline.vae, drawn_tensor(drawings)) > bound_db


def test_samples_show_the_colours_of_the_caption(pipeline: Any) -> None:
    import torch

    drawings = [
        Drawing(shape, colour, ground)
        for shape in ("circle", "square")
        for colour, ground in (("red", "blue"), ("yellow", "green"), ("white", "purple"))
    ]
    pictures = pipeline(
        [drawing.caption for drawing in drawings],
        num_inference_steps=25,
        guidance_scale=5.0,
        width=64,
        height=64,
        generator=torch.Generator().manual_seed(0),
    ).images
    pairs = list(zip(pictures, drawings, strict=True))
    hits = [nearest_colour(picture, 32, 32) == drawing.colour for picture, drawing in pairs]
    hits += [nearest_colour(picture, 3, 3) == drawing.ground for picture, drawing in pairs]
    assert sum(hits) >= len(hits) - 1


def nearest_colour(picture: Any, x: int, y: int) -> str:
    pixel = picture.getpixel((x, y))
    return min(COLOURS, key=lambda name: math.dist(COLOURS[name], pixel))


@pytest.mark.parametrize("hatched", [False, True])
def test_the_captioner_describes_drawings(tmp_path: Path, hatched: bool) -> None:
    from transformers import BlipForConditionalGeneration, BlipProcessor

    from latentmill.pipeline.tinysd.captioner_training import measure_hits

    write_captioner(tmp_path)
    captioner = BlipForConditionalGeneration.from_pretrained(tmp_path).eval()
    processor = BlipProcessor.from_pretrained(tmp_path)
    random = Random(77)
    drawings = [
        random_drawing(random, hatched=hatched, width_px=320, height_px=256) for _ in range(24)
    ]
    assert measure_hits(captioner, processor, drawings) > 0.75


def test_the_random_captioner_loads_whole_and_writes_words(tmp_path: Path) -> None:
    from transformers import BlipForConditionalGeneration, BlipProcessor

    write_random_captioner(tmp_path)
    captioner, report = BlipForConditionalGeneration.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not any(report.values())
    processor = BlipProcessor.from_pretrained(tmp_path)
    inputs = processor(images=draw(RED_ON_BLUE), text="a picture", return_tensors="pt")
    ids = captioner.generate(**inputs, max_new_tokens=4)
    assert processor.decode(ids[0], skip_special_tokens=True).startswith("a picture")
