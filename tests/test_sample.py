import hashlib
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageChops, ImageFont
from safetensors.torch import save_file

from latentmill.cache.index import CachedSample, FileStamp, SetIndex, write_set_index
from latentmill.datasets.errors import DivergedError, ModelError, UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.prompts import spread
from latentmill.datasets.records import Record, Report, record_to_json
from latentmill.pipeline.tinysd.architecture import build_pipeline, build_unet, write_random_model
from latentmill.stages.lora.layers import LoraShape, attach, take_weights
from latentmill.stages.lora.layouts import LoraLayer, LoraWeights, to_kohya
from latentmill.stages.sample import Sample, SampleUnit
from latentmill.stages.sampling.comparison_picture import note_missing_letters, split_lines
from latentmill.stages.settings import ModelSettings, SampleSettings, Source

pytestmark = pytest.mark.slow

PROMPTS = ("a red circle", "a blue square")
QUICK = {"prompts": PROMPTS, "steps": 2, "width": 32, "height": 24, "device": "cpu"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("tinysd")
    write_random_model(folder)
    return folder


def make_run(work: Path, strength: float = 0.1, name: str = "001-hatched") -> Path:
    unet = build_unet()
    names = attach(unet, LoraShape("transformer", 2, 3.0), torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(2)
    layers = {}
    for key, layer in take_weights(unet, names).layers.items():
        up = strength * torch.randn(layer.up.shape, generator=generator)
        layers[key] = LoraLayer(layer.down, up, layer.alpha)
    run = work / "runs" / name
    run.mkdir(parents=True)
    save_lora(run / "lora.safetensors", LoraWeights(layers))
    return run


def save_lora(path: Path, lora: LoraWeights) -> None:
    save_file({key: at.contiguous() for key, at in to_kohya(lora).items()}, path)


def stage(work: Path, model: Path, run: Path | None = None, **settings: object) -> Sample:
    return Sample(
        Layout(work),
        (Source(path=str(work / "pictures")),),
        SampleSettings.model_validate({**QUICK, **settings}),
        ModelSettings(id=str(model)),
        run,
    )


def sample(made: Sample) -> Report:
    results: list[SampleUnit] = [made.work(unit, lambda _: None) for unit in made.plan()]
    return made.finish(results)


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def same_pixels(one: Path, other: Path) -> bool:
    with Image.open(one) as first, Image.open(other) as second:
        return ImageChops.difference(first, second).getbbox() is None


def test_each_prompt_gives_two_pictures_and_all_stand_in_one(tmp_path: Path, model: Path) -> None:
    run = make_run(tmp_path)
    ticks: list[int] = []
    made = stage(tmp_path, model)
    units = made.plan()
    report = made.finish([made.work(unit, ticks.append) for unit in units])
    assert sum(ticks) == sum(unit.size for unit in units) == 4
    samples = run / "samples"
    assert sorted(path.name for path in samples.iterdir()) == [
        *("001-base.png", "001-lora.png", "002-base.png", "002-lora.png"),
        *("comparison.png", "prompts.txt"),
    ]
    with Image.open(samples / "001-lora.png") as picture:
        assert picture.size == (32, 24)
    assert not same_pixels(samples / "001-base.png", samples / "001-lora.png")
    assert not same_pixels(samples / "001-base.png", samples / "002-base.png")
    assert report.counts == {"prompts": 2, "pictures": 4, "drawn": 4, "reused": 0}
    assert report.ok
    assert report.problems == ()
    assert str(samples / "comparison.png") in report.next_steps[0].text


def test_without_the_lora_the_picture_is_the_base_models(tmp_path: Path, model: Path) -> None:
    run = make_run(tmp_path)
    sample(stage(tmp_path, model))
    from diffusers import DDIMScheduler

    pipeline = build_pipeline(0)
    pipeline.scheduler = DDIMScheduler.from_config(pipeline.scheduler.config)
    pipeline.set_progress_bar_config(disable=True)
    for number, prompt in enumerate(PROMPTS):
        made = pipeline(
            prompt,
            negative_prompt="low quality, blurry, deformed hands",
            width=32,
            height=24,
            num_inference_steps=2,
            guidance_scale=7.0,
            generator=torch.Generator().manual_seed(42 + number),
        )
        made.images[0].save(tmp_path / "wanted.png")
        assert same_pixels(tmp_path / "wanted.png", run / "samples" / f"00{number + 1}-base.png")


def test_what_is_drawn_is_not_drawn_again_and_a_change_draws_it_again(
    tmp_path: Path, model: Path
) -> None:
    run = make_run(tmp_path)
    sample(stage(tmp_path, model))
    before = hashes(run / "samples")
    again = stage(tmp_path, model)
    assert again.plan() == ()
    assert sample(again).counts["reused"] == 4
    assert hashes(run / "samples") == before
    (run / "samples" / "002-lora.png").write_bytes(b"cut")
    assert [unit.number for unit in again.plan()] == [2]
    sample(again)
    assert hashes(run / "samples") == before
    assert len(stage(tmp_path, model, lora_scale=0.5).plan()) == 2
    changed = stage(tmp_path, model, prompts=("a red circle", "a green square"))
    assert [unit.number for unit in changed.plan()] == [2]


def test_another_noise_schedule_in_the_model_folder_draws_it_again(
    tmp_path: Path, model: Path
) -> None:
    copy = Path(shutil.copytree(model, tmp_path / "model"))
    make_run(tmp_path)
    sample(stage(tmp_path, copy))
    config = copy / "scheduler" / "scheduler_config.json"
    text = config.read_text("utf-8").replace('"epsilon"', '"v_prediction"')
    assert text != config.read_text("utf-8")
    config.write_text(text, "utf-8")
    assert [unit.number for unit in stage(tmp_path, copy).plan()] == [1, 2]


def test_zero_strength_draws_the_base_pictures(tmp_path: Path, model: Path) -> None:
    run = make_run(tmp_path)
    sample(stage(tmp_path, model, lora_scale=0.0, prompts=PROMPTS[:1]))
    assert same_pixels(run / "samples" / "001-base.png", run / "samples" / "001-lora.png")


def test_a_lora_without_effect_is_reported(tmp_path: Path, model: Path) -> None:
    make_run(tmp_path, strength=0.0)
    report = sample(stage(tmp_path, model, prompts=PROMPTS[:1]))
    assert [problem.code for problem in report.problems] == ["lora-without-effect"]


def test_a_lora_of_another_model_is_refused_with_the_number_of_layers(
    tmp_path: Path, model: Path
) -> None:
    layers = {
        f"down_blocks.0.attentions.0.transformer_blocks.0.attn1.{name}": LoraLayer(
            torch.ones(2, 320), torch.ones(320, 2), 2.0
        )
        for name in ("to_q", "to_k")
    }
    file = tmp_path / "big.safetensors"
    save_lora(file, LoraWeights(layers))
    made = stage(tmp_path, model, file)
    with pytest.raises(UsageError, match="2 of 2 layers of the LoRA do not fit"):
        sample(made)


def test_a_diverged_lora_is_refused(tmp_path: Path, model: Path) -> None:
    make_run(tmp_path, strength=float("inf"))
    with pytest.raises(DivergedError, match="not finite"):
        sample(stage(tmp_path, model))


def test_a_model_that_is_not_there_is_a_model_error(tmp_path: Path) -> None:
    make_run(tmp_path)
    with pytest.raises(ModelError):
        sample(stage(tmp_path, tmp_path / "no-model"))


def test_the_latest_finished_run_is_taken_unless_one_is_named(tmp_path: Path, model: Path) -> None:
    make_run(tmp_path, name="002-b")
    make_run(tmp_path, name="010-a")
    (tmp_path / "runs" / "011-cut").mkdir()
    file = tmp_path / "elsewhere" / "my LoRA ☂.safetensors"
    file.parent.mkdir()
    file.write_bytes((tmp_path / "runs" / "002-b" / "lora.safetensors").read_bytes())
    folders = {
        None: "runs/010-a/samples",
        Path("002-b"): "runs/002-b/samples",
        Path("2"): "runs/002-b/samples",
        Path("a"): "runs/010-a/samples",
        Path("002"): "runs/002-b/samples",
        tmp_path / "runs" / "002-b": "runs/002-b/samples",
        file: "sample/my LoRA ☂",
    }
    for wanted, folder in folders.items():
        assert stage(tmp_path, model, wanted).plan()[0].base.parent == tmp_path / folder


def test_prompts_are_captions_of_the_set_evenly_spread(tmp_path: Path, model: Path) -> None:
    make_run(tmp_path)
    records = [_record(number, f"caption {number:02d}") for number in range(8)]
    manifest = Layout(tmp_path).manifest
    manifest.parent.mkdir()
    manifest.write_text("".join(record_to_json(record) + "\n" for record in records))
    units = stage(tmp_path, model, prompts=(), num_prompts=3).plan()
    assert [unit.request.prompt for unit in units] == ["caption 00", "caption 02", "caption 05"]
    assert [unit.request.seed for unit in units] == [42, 43, 44]


def test_a_runs_snapshot_gives_prompts_where_the_work_folder_has_none(
    tmp_path: Path, model: Path
) -> None:
    run = make_run(tmp_path)
    (run / "snapshot").mkdir()
    line = record_to_json(_record(0, "a caption of then")) + "\n"
    (run / "snapshot" / "manifest.jsonl").write_text(line)
    (unit,) = stage(tmp_path, model, prompts=()).plan()
    assert unit.request.prompt == "a caption of then"


def test_no_prompt_at_all_is_a_usage_error(tmp_path: Path, model: Path) -> None:
    make_run(tmp_path)
    with pytest.raises(UsageError, match="no prompt"):
        stage(tmp_path, model, prompts=()).plan()


def test_the_size_is_that_of_most_training_pictures(tmp_path: Path, model: Path) -> None:
    make_run(tmp_path)
    buckets = ["64x48", "64x64", "48x64", "64x64"]
    write_set_index(Layout(tmp_path).cache_index, _set_index(buckets))
    (unit, _) = stage(tmp_path, model, width=0, height=0).plan()
    assert (unit.request.width, unit.request.height) == (64, 64)


def test_the_text_encoders_layer_is_the_one_trained_on(tmp_path: Path, model: Path) -> None:
    run = make_run(tmp_path)
    plain = stage(tmp_path, model, prompts=PROMPTS[:1])
    sample(plain)
    before = hashes(run / "samples")["001-base.png"]
    (run / "config.toml").write_text("[cache]\nclip_skip = 2\n")
    assert plain.plan()[0].sampler.clip_skip == 2
    sample(plain)
    assert hashes(run / "samples")["001-base.png"] != before


def test_letters_that_the_font_lacks_are_named_not_drawn_as_boxes() -> None:
    font = ImageFont.load_default(15)
    assert note_missing_letters("a red circle", font, "prompts.txt") == ("a red circle", "")
    text, note = note_missing_letters("红色的圆 circle 🎨\udc80", font, "prompts.txt")
    assert text == "circle"
    assert note == "(6 of 14 characters are not in this picture's font: see prompts.txt)"


def test_prompts_in_any_language_are_drawn_and_written_beside(tmp_path: Path, model: Path) -> None:
    run = make_run(tmp_path)
    sample(stage(tmp_path, model, prompts=("红色的圆形 🎨", "many words " * 60)))
    lines = (run / "samples" / "prompts.txt").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "001\tseed 42\t红色的圆形 🎨"
    with Image.open(run / "samples" / "comparison.png") as picture:
        assert picture.width < 700


def test_a_long_label_ends_in_an_ellipsis_and_keeps_words_whole() -> None:
    font = ImageFont.load_default(15)
    assert split_lines("a red circle", 500, font) == ["a red circle"]
    assert split_lines("", 500, font) == []
    lines = split_lines("word " * 100, 200, font)
    assert len(lines) == 4
    assert lines[-1].endswith("...")
    assert set(" ".join(lines[:3]).split()) == {"word"}
    assert all(font.getlength(line) <= 205 for line in split_lines("w" * 300, 200, font))


def test_spread_takes_each_caption_once() -> None:
    assert spread(["a", "b", "a", " ", "c"], 4) == ("a", "b", "c")
    assert spread([str(number) for number in range(10)], 4) == ("0", "2", "5", "7")
    assert spread([], 4) == ()


def _record(number: int, caption: str) -> Record:
    return Record(
        id=f"p{number:015x}",
        source=0,
        path=f"{number}.png",
        file=f"/nowhere/{number}.png",
        bytes=1,
        modified_ns=0,
        format="PNG",
        width=64,
        height=64,
        pixels="0" * 64,
        caption=caption,
    )


def _set_index(buckets: list[str]) -> SetIndex:
    samples = tuple(
        CachedSample(f"p{number:015x}", "shard", bucket, 1, 1.0, False, "file")
        for number, bucket in enumerate(buckets)
    )
    return SetIndex(
        data_digest="",
        accept_drafts=False,
        scaling_factor=1.0,
        shift_factor=0.0,
        model={},
        recipe={},
        prompts=(),
        negative="",
        extras=FileStamp("extras", 0, ""),
        shards=(),
        samples=samples,
    )
