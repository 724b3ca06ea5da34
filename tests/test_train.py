import errno
import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from latentmill.cache.files import write_bytes
from latentmill.cache.fingerprints import SampleKeys, data_digest
from latentmill.cache.index import (
    CachedSample,
    FileStamp,
    SetIndex,
    TextVariant,
    file_sha256,
    read_set_index,
    write_set_index,
)
from latentmill.cache.shards import EncodedSample, write_shard
from latentmill.cache.tensor_file import tensor_bytes
from latentmill.datasets.errors import (
    DataError,
    DiskFullError,
    DivergedError,
    ModelError,
    OutOfMemoryError,
    UsageError,
)
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command
from latentmill.datasets.records import Record, Report, record_to_json
from latentmill.datasets.selection import Sample
from latentmill.stages.lora.layouts import read_header, read_lora
from latentmill.stages.settings import ModelSettings, Source, TrainSettings
from latentmill.stages.train import Train, TrainResult
from latentmill.stages.training import loop as training_loop
from latentmill.stages.training.run_folder import RunOf, latest_run_of
from latentmill.stages.training.trainee import Trainee

pytestmark = pytest.mark.slow

BUCKETS = ("16x16", "16x16", "16x16", "16x32", "32x16", "24x24", "32x32")
TEXT_WIDTH = 64


@dataclass(frozen=True)
class Work:
    """A work folder that is cached and ready to train, and how."""

    layout: Layout
    sources: tuple[Source, ...]
    settings: TrainSettings
    model: ModelSettings

    def stage(self, resume: bool = False, run: Path | None = None, **changes: Any) -> Train:
        settings = self.settings.model_copy(update=changes)
        return Train(
            self.layout, self.sources, settings, self.model, resume, run, 'name = "as given"\n'
        )

    def run_folder(self, number: int = 1) -> Path:
        return next(self.layout.runs.glob(f"{number:03}-*"))

    def metrics(self, number: int = 1) -> list[dict[str, Any]]:
        lines = (self.run_folder(number) / "metrics.jsonl").read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]


def run_stage(stage: Train, tick: Callable[[int], None] = lambda _: None) -> TrainResult:
    (unit,) = stage.plan()
    return stage.work(unit, tick)


def make_record(number: int) -> Record:
    name = f"p{number:015x}"
    pixels = hashlib.sha256(name.encode()).hexdigest()
    size = (64, 64)
    return Record(
        name, 0, f"{number}.png", f"/nowhere/{number}.png", 1, 1, "PNG", *size, pixels, "a cat"
    )


def encode(record: Record, bucket: str, bad: float | None) -> EncodedSample:
    generator = torch.Generator().manual_seed(int(record.id[1:], 16))
    width, _, height = bucket.partition("x")
    mean = torch.randn(4, int(height) // 4, int(width) // 4, generator=generator).half()
    if bad is not None:
        mean[0, 0, 0] = bad
    text = torch.randn(1, 77, TEXT_WIDTH, generator=generator).half()
    tensors = {"latent_mean": mean, "latent_std": mean.abs() / 10, "text": text}
    return EncodedSample(
        SampleKeys(record.id, record.pixels, "text"), tensors, {}, (TextVariant("text"),)
    )


def make_cache(
    layout: Layout, source: Source, buckets: tuple[str, ...], bad: int | None = None
) -> None:
    records = [make_record(number) for number in range(len(buckets))]
    layout.manifest.parent.mkdir(parents=True, exist_ok=True)
    layout.manifest.write_text("".join(record_to_json(at) + "\n" for at in records))
    shards, cached = [], []
    for bucket in sorted(set(buckets)):
        chosen = [record for record, other in zip(records, buckets, strict=True) if other == bucket]
        encoded = [
            encode(record, bucket, math.nan if bad == int(record.id[1:], 16) else None)
            for record in chosen
        ]
        shard = write_shard(layout.shards, f"{bucket}-test", bucket, encoded)
        shards.append(FileStamp(shard.name, shard.bytes, shard.sha256))
        cached += [
            CachedSample(at.id, shard.name, bucket, source.repeats, source.weight, False, "file")
            for at in chosen
        ]
    row = torch.zeros(77, TEXT_WIDTH)
    extras = {"empty_text": row, "negative": row.clone(), "prompts": row[None].clone()}
    colours = {"rgb_weight": torch.zeros(3, 4), "rgb_bias": torch.zeros(3)}
    content = tensor_bytes({**extras, **colours, "rgb_error": torch.tensor(0.0)}, {})
    write_bytes(layout.cache_index.parent / "extras.safetensors", content)
    extras_file = layout.cache_index.parent / "extras.safetensors"
    samples = [Sample(record, "a cat", "file") for record in records]
    index = SetIndex(
        data_digest=data_digest(samples, [source]),
        accept_drafts=False,
        scaling_factor=1.0,
        shift_factor=0.0,
        model={"id": "tinysd", "vae": "v", "text_encoder": "t"},
        recipe={"clip_skip": 1},
        prompts=("a cat",),
        negative="",
        extras=FileStamp(extras_file.name, len(content), file_sha256(extras_file)),
        shards=tuple(shards),
        samples=tuple(sorted(cached, key=lambda at: at.id)),
    )
    write_set_index(layout.cache_index, index)


@pytest.fixture(scope="session")
def lean_model(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nothing but a UNet and a noise schedule."""
    folder = tmp_path_factory.mktemp("lean") / "模型 tiny"
    for part in ("unet", "scheduler"):
        shutil.copytree(small_model / part, folder / part)
    return folder


@pytest.fixture
def work(tmp_path: Path, lean_model: Path) -> Work:
    layout = Layout(tmp_path / "work 工作 🐕")
    source = Source(path=str(tmp_path / "my dog 狗"))  # type: ignore[call-arg]
    make_cache(layout, source, BUCKETS)
    settings = TrainSettings(  # type: ignore[call-arg]
        rank=2,
        alpha=3.0,
        learning_rate=1e-2,
        batch_size=4,
        gradient_accumulation=3,
        epochs=2,
        save_every=100,
        device="cpu",
        gradient_checkpointing=False,
        caption_dropout=0.3,
    )
    return Work(layout, (source,), settings, ModelSettings(id=str(lean_model)))  # type: ignore[call-arg]


def lora_hash(run: Path) -> str:
    return file_sha256(run / "lora.safetensors")


def timeless(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lines of metrics without what differs from run to run."""
    measured = {"seconds", "images_per_second", "memory_bytes"}
    return [{key: at for key, at in line.items() if key not in measured} for line in lines]


def tensors_of(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "lora.safetensors")


def assert_same_tensors(left: Path, right: Path) -> None:
    one, two = tensors_of(left), tensors_of(right)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_run_has_its_files_and_its_counts(work: Work) -> None:
    stage = work.stage(name="Mon Chien!")
    ticks: list[int] = []
    result = run_stage(stage, ticks.append)
    report = stage.finish([result])
    run = work.run_folder()
    assert run.name == "001-mon-chien"
    assert report.counts == {
        "samples": 7,
        "held_out": 0,
        "optimizer_steps": 4,
        "epochs": 2,
        "samples_seen": 14,
    }
    assert ticks == [1, 1, 1, 1]
    files = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    assert {
        "config.toml",
        "lora.safetensors",
        "metrics.jsonl",
        "report.json",
        "snapshot/cache-index.json",
        "snapshot/environment.json",
        "snapshot/manifest.jsonl",
        "state/step-000004/lora.safetensors",
        "state/step-000004/optimizer.safetensors",
        "state/step-000004/state.json",
    } <= files
    assert any(name.startswith("tensorboard/") for name in files)
    assert (run / "config.toml").read_text() == 'name = "as given"\n'
    assert json.loads((run / "report.json").read_text())["counts"] == report.counts


def test_metrics_have_one_line_a_step(work: Work) -> None:
    run_stage(work.stage())
    lines = work.metrics()
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert [line["epoch"] for line in lines] == [1, 1, 2, 2]
    for line in lines:
        assert line.keys() == {
            *("step", "epoch", "loss", "lr", "grad_norm", "images_per_second", "seconds"),
            "memory_bytes",
        }
        assert 0 < line["loss"] < 100
        assert line["grad_norm"] > 0
    assert [line["lr"] for line in lines] == pytest.approx(
        [1e-2 * (1 + math.cos(math.pi * step / 4)) / 2 for step in range(4)]
    )


def test_every_layer_of_the_lora_moves_in_two_steps(work: Work) -> None:
    result = run_stage(work.stage(steps=2))
    lora = read_lora(result.run / "lora.safetensors")
    assert len(lora.layers) == 84
    assert all(bool(layer.up.abs().max() > 0) for layer in lora.layers.values())
    assert {layer.alpha for layer in lora.layers.values()} == {3.0}


def test_checkpointing_changes_nothing_but_memory(work: Work) -> None:
    plain = run_stage(work.stage(steps=2)).run
    saving = run_stage(work.stage(steps=2, gradient_checkpointing=True)).run
    for name, value in tensors_of(plain).items():
        torch.testing.assert_close(tensors_of(saving)[name], value, atol=1e-4, rtol=1e-3)


def test_the_batch_split_changes_nothing_where_all_samples_are_in_one_step(work: Work) -> None:
    for size in (1, 3):
        run_stage(work.stage(batch_size=size, gradient_accumulation=7, steps=2))
    for one, two in zip(work.metrics(1), work.metrics(2), strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-5)
        assert two["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-4)


def test_the_same_settings_give_the_same_bytes_with_any_number_of_loaders(work: Work) -> None:
    runs = [run_stage(work.stage(workers=workers)).run for workers in (0, 2)]
    assert lora_hash(runs[0]) == lora_hash(runs[1])


def test_only_the_unet_is_read(work: Work) -> None:
    opened: list[str] = []

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event == "open" and isinstance(arguments[0], str):
            opened.append(arguments[0])

    watching = True
    sys.addaudithook(watch)
    run_stage(work.stage(steps=1))
    watching = False
    assert any("模型" in name for name in opened)
    for part in ("vae", "text_encoder", "tokenizer", "my dog"):
        assert not [name for name in opened if f"/{part}/" in name]


def test_the_header_names_the_base_and_no_caption(work: Work) -> None:
    run = run_stage(work.stage(steps=1)).run
    header = read_header(run / "lora.safetensors")
    assert header["ss_base_model_version"] == "sd_v1"
    assert header["ss_v2"] == "False"
    assert header["ss_network_module"] == "networks.lora"
    assert (header["ss_network_dim"], header["ss_network_alpha"]) == ("2", "3")
    assert header["ss_output_name"] == "my-dog-狗"
    assert header["modelspec.architecture"] == "stable-diffusion-v1/lora"
    assert len(header["latentmill.cache_digest"]) == 64
    text = json.dumps(header, ensure_ascii=False)
    assert "a cat" not in text
    assert str(work.layout.work.parent) not in text


def test_a_source_s_weight_is_a_factor_on_its_losses_and_repeats_are_sights(
    work: Work, tmp_path: Path
) -> None:
    source = work.sources[0].model_copy(update={"weight": 2.0, "repeats": 3})
    other = replace(work, layout=Layout(tmp_path / "other"), sources=(source,))
    make_cache(other.layout, source, ("16x16",))
    once = replace(work, layout=Layout(tmp_path / "once"))
    make_cache(once.layout, once.sources[0], ("16x16",))
    changes = {"batch_size": 1, "gradient_accumulation": 1, "epochs": 1}
    assert run_stage(once.stage(**changes)).progress.samples_seen == 1
    assert run_stage(other.stage(**changes)).progress.samples_seen == 3
    first = other.metrics()[0]
    assert first["loss"] == pytest.approx(2 * once.metrics()[0]["loss"], rel=1e-6)


def test_another_model_than_the_cache_s_is_said(
    work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    run_stage(work.stage(steps=1))
    assert "the cache was made with tinysd" in caplog.text


def test_without_a_cache_the_way_is_named(work: Work) -> None:
    work.layout.cache_index.unlink()
    with pytest.raises(UsageError, match="nothing is cached") as raised:
        work.stage().plan()
    assert raised.value.run == (Command("cache"),)


def test_an_edited_caption_makes_the_cache_stale(work: Work) -> None:
    text = work.layout.manifest.read_text()
    work.layout.manifest.write_text(text.replace("a cat", "a dog", 1))
    with pytest.raises(DataError, match="changed since") as raised:
        work.stage().plan()
    assert raised.value.exit_code == 3
    assert raised.value.run == (Command("cache"),)


def test_changed_repeats_make_the_cache_stale(work: Work) -> None:
    source = work.sources[0].model_copy(update={"repeats": 2})
    with pytest.raises(DataError, match="changed since"):
        replace(work, sources=(source,)).stage().plan()


def test_a_shard_cut_short_is_named_before_anything_is_loaded(work: Work) -> None:
    shard = next(work.layout.shards.glob("*.tar"))
    shard.write_bytes(shard.read_bytes()[:-1024])
    with pytest.raises(DataError, match=shard.name):
        work.stage().plan()
    assert not work.layout.runs.exists()


def test_a_flipped_byte_in_a_shard_is_found(work: Work) -> None:
    shard = next(work.layout.shards.glob("*.tar"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(DataError, match=shard.name):
        run_stage(work.stage())


@pytest.mark.parametrize("missing", ["unet", "scheduler"])
def test_a_model_without_a_part_is_refused(work: Work, tmp_path: Path, missing: str) -> None:
    model = tmp_path / "model"
    shutil.copytree(work.model.id, model)
    shutil.rmtree(model / missing)
    settings = work.model.model_copy(update={"id": str(model)})
    with pytest.raises(ModelError):
        run_stage(replace(work, model=settings).stage())
    assert not work.layout.runs.exists()


def test_another_text_width_is_refused_with_both_numbers(
    work: Work, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "TEXT_WIDTH", 48)
    other = replace(work, layout=Layout(tmp_path / "other"))
    make_cache(other.layout, work.sources[0], BUCKETS)
    with pytest.raises(ModelError, match="takes 64 wide text embeddings, the cache has 48"):
        run_stage(other.stage())


def test_targets_without_a_layer_leave_no_run_behind(work: Work) -> None:
    with pytest.raises(UsageError, match="no layer of the UNet"):
        run_stage(work.stage(targets=("to_queue",)))
    assert not work.layout.runs.exists()


def test_fp16_on_a_cpu_is_refused(work: Work) -> None:
    with pytest.raises(UsageError, match="fp16 needs a CUDA card"):
        run_stage(work.stage(precision="fp16"))


def test_bf16_keeps_the_lora_in_fp32(work: Work) -> None:
    run = run_stage(work.stage(precision="bf16", steps=2)).run
    assert {value.dtype for value in tensors_of(run).values()} == {torch.float32}
    assert all(value.isfinite().all() for value in tensors_of(run).values())


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError()])
def test_a_full_memory_is_explained(
    work: Work, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Trainee, "losses", fail)
    with pytest.raises(OutOfMemoryError, match="in the first step") as raised:
        run_stage(work.stage(on_oom="stop"))
    assert "1. close other programs" in raised.value.fix
    assert "2. train.gradient_checkpointing=true; 3. train.batch_size=2" in raised.value.fix


def test_a_full_disk_keeps_the_state_before(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []

    def write_bytes_once(path: Path, content: bytes) -> None:
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(path)
        write_bytes(path, content)

    monkeypatch.setattr(training_loop, "write_bytes", write_bytes_once)
    with pytest.raises(DiskFullError, match="the state after step 2") as raised:
        run_stage(work.stage(save_every=1))
    assert raised.value.exit_code == 5
    assert raised.value.run == (Command("train", ("--resume",)),)
    monkeypatch.undo()
    assert run_stage(work.stage(save_every=1, resume=True)).progress.step == 4
    assert [line["step"] for line in work.metrics()] == [1, 2, 3, 4]


def test_bad_numbers_end_the_run_and_name_the_picture(
    work: Work, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = replace(work, layout=Layout(tmp_path / "other"))
    make_cache(other.layout, work.sources[0], BUCKETS, bad=3)
    stage = other.stage(
        batch_size=1, gradient_accumulation=10, epochs=9, max_bad_steps=2, save_every=1
    )
    with pytest.raises(DivergedError) as raised:
        run_stage(stage)
    assert raised.value.exit_code == 6
    assert "step 2: 3.png (p000000000000003)" in raised.value.where
    assert "0.png" not in raised.value.where
    assert "train.learning_rate" in raised.value.fix
    lora = read_lora(other.run_folder() / "lora.safetensors")
    assert all(bool((layer.up == 0).all()) for layer in lora.layers.values())
    assert [line["loss"] for line in other.metrics()] == [None]


def test_a_bad_step_is_skipped_and_the_next_goes_on(work: Work, tmp_path: Path) -> None:
    other = replace(work, layout=Layout(tmp_path / "other"))
    make_cache(other.layout, work.sources[0], BUCKETS, bad=3)
    result = run_stage(other.stage(batch_size=1, gradient_accumulation=1, epochs=2))
    lines = other.metrics()
    assert [line["step"] for line in lines] == list(range(1, 15))
    assert sum(line["loss"] is None for line in lines) == 2
    assert all(bool(value.isfinite().all()) for value in tensors_of(result.run).values())


def test_logging_less_often_changes_nothing_else(work: Work) -> None:
    often = run_stage(work.stage()).run
    seldom = run_stage(work.stage(log_every=3)).run
    assert_same_tensors(often, seldom)
    losses = [line["loss"] for line in work.metrics(1)]
    lines = work.metrics(2)
    assert [line["step"] for line in lines] == [3, 4]
    sizes = [micro.step_samples for micro in work_plan(work) if micro.ends_step]
    mean = sum(a * b for a, b in zip(losses[:3], sizes[:3], strict=True)) / sum(sizes[:3])
    assert lines[0]["loss"] == pytest.approx(mean, rel=1e-6)


def work_plan(work: Work) -> list[Any]:
    stage = work.stage()
    return list(stage._steps(stage._parting(stage._cache(), None)).micro_batches(0, 4))


@pytest.mark.parametrize("stop_at", [1, 2, 3])
def test_a_run_stopped_by_ctrl_c_goes_on_to_the_same_bytes(work: Work, stop_at: int) -> None:
    whole = run_stage(work.stage(log_every=2)).run
    ticks = iter(range(1, 9))

    def tick(_: int) -> None:
        if next(ticks) == stop_at:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_stage(work.stage(log_every=2), tick)
    broken = work.run_folder(2)
    assert [path.name for path in (broken / "state").iterdir()] == [f"step-{stop_at:06}"]
    stage = work.stage(resume=True, log_every=2)
    (unit,) = stage.plan()
    assert (unit.start, unit.size, unit.label) == (stop_at, 4 - stop_at, broken.name)
    result = stage.work(unit, lambda _: None)
    assert result.progress.samples_seen == 14
    assert lora_hash(whole) == lora_hash(broken)
    for mine, theirs in zip(work.metrics(2), work.metrics(1), strict=True):
        assert {
            mine[key] == theirs[key] for key in ("step", "epoch", "loss", "lr", "grad_norm")
        } == {True}


KILLED = """
import os, signal, sys
from pathlib import Path
from latentmill.datasets.layout import Layout
from latentmill.stages.settings import ModelSettings, Source, TrainSettings
from latentmill.stages.train import Train

work, source, settings, model, resume, kill_after = sys.argv[1:]
ticks = 0

def tick(count):
    global ticks
    ticks += count
    if ticks == int(kill_after):
        os.kill(os.getpid(), signal.SIGKILL)

stage = Train(
    Layout(Path(work)),
    (Source.model_validate_json(source),),
    TrainSettings.model_validate_json(settings),
    ModelSettings(id=model),
    resume == "resume",
    None,
    "",
)
(unit,) = stage.plan()
stage.work(unit, tick)
"""


def test_a_run_killed_twice_ends_in_the_same_bytes(work: Work) -> None:
    changes = {"epochs": 5, "save_every": 2, "keep_states": 1}
    whole = run_stage(work.stage(**changes)).run
    settings = work.settings.model_copy(update=changes)
    for resume, kill_after, killed in (
        ("new", "3", True),
        ("resume", "4", True),
        ("resume", "99", False),
    ):
        values = [
            str(work.layout.work),
            work.sources[0].model_dump_json(),
            settings.model_dump_json(),
        ]
        done = subprocess.run(
            [sys.executable, "-c", KILLED, *values, work.model.id, resume, kill_after],
            check=False,
            capture_output=True,
        )
        assert done.returncode == (-signal.SIGKILL if killed else 0), done.stderr.decode()
    broken = work.run_folder(2)
    assert lora_hash(whole) == lora_hash(broken)
    assert timeless(work.metrics(2)) == timeless(work.metrics(1))
    assert [path.name for path in (broken / "state").iterdir()] == ["step-000010"]


def test_sigterm_saves_the_state_too(work: Work) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_stage(work.stage(), lambda _: os.kill(os.getpid(), signal.SIGTERM))
    assert (work.run_folder() / "state" / "step-000001" / "state.json").is_file()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def interrupted(work: Work, **changes: Any) -> Path:
    def tick(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_stage(work.stage(**changes), tick)
    return work.run_folder()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rank": 4}, "train.rank was 2, is 4"),
        ({"alpha": 2.0}, "train.alpha was 3.0, is 2.0"),
        ({"targets": "attention"}, "train.targets was transformer, is attention"),
        ({"seed": 8}, "train.seed was"),
        ({"batch_size": 1}, "samples a step was 12, is 3"),
    ],
)
def test_resume_refuses_what_would_be_another_run(
    work: Work, changes: dict[str, Any], said: str
) -> None:
    interrupted(work)
    with pytest.raises(UsageError, match=said):
        work.stage(resume=True, **changes).plan()


def test_resume_refuses_other_data(work: Work) -> None:
    interrupted(work)
    make_cache(work.layout, work.sources[0], BUCKETS[:5])
    with pytest.raises(UsageError, match="the data was"):
        work.stage(resume=True).plan()


def test_resume_says_what_it_changes(work: Work, caplog: pytest.LogCaptureFixture) -> None:
    interrupted(work)
    result = run_stage(work.stage(resume=True, epochs=3, learning_rate=1e-3))
    assert result.progress.step == 6
    assert "train.epochs = 3, was 2" in caplog.text
    assert "train.learning_rate = 0.001, was 0.01" in caplog.text


def test_a_resumed_run_may_divide_its_steps_into_other_batches(work: Work) -> None:
    whole = run_stage(work.stage()).run
    interrupted_at = len(list(work.layout.runs.iterdir())) + 1
    interrupted(work)
    rest = run_stage(work.stage(resume=True, batch_size=2, gradient_accumulation=6)).run
    assert rest == work.run_folder(interrupted_at)
    mine, theirs = tensors_of(rest), tensors_of(whole)
    assert all(torch.allclose(mine[name], theirs[name], atol=1e-4) for name in theirs)


def test_a_resumed_run_s_configuration_is_the_one_it_goes_on_with(work: Work) -> None:
    run = interrupted(work)
    run_stage(replace(work.stage(resume=True), config_text='name = "changed"\n'))
    assert (run / "config.toml").read_text() == 'name = "changed"\n'
    before = run / "snapshot" / "config-until-step-000001.toml"
    assert before.read_text() == 'name = "as given"\n'


def test_the_last_run_of_a_cached_set_is_known_however_its_model_is_spelt(work: Work) -> None:
    index = read_set_index(work.layout.cache_index)
    assert latest_run_of(work.layout, index) is None
    run = interrupted(work)
    assert latest_run_of(work.layout, index) == RunOf(run, finished=False)
    stage = work.stage(resume=True)
    stage.finish([run_stage(stage)])
    moved = replace(index, model={**index.model, "id": "elsewhere"})
    assert latest_run_of(work.layout, moved) == RunOf(run, finished=True)
    assert latest_run_of(work.layout, replace(index, data_digest="other")) is None


def test_a_moved_model_is_the_same_and_changed_weights_are_another(
    work: Work, lean_model: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    shutil.copytree(lean_model, own)
    interrupted(replace(work, model=ModelSettings(id=str(own))))
    moved = own.rename(tmp_path / "moved")
    there = replace(work, model=ModelSettings(id=str(moved)))
    (unit,) = there.stage(resume=True).plan()
    assert unit.start == 1
    weights = moved / "unet" / "diffusion_pytorch_model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(UsageError, match="the UNet was"):
        there.stage(resume=True).plan()


def test_a_finished_run_has_nothing_to_resume(work: Work) -> None:
    run_stage(work.stage())
    with pytest.raises(UsageError, match="nothing to do"):
        work.stage(resume=True).plan()


def test_resume_without_a_run_or_a_state_is_refused(work: Work) -> None:
    with pytest.raises(UsageError, match="no run to go on with"):
        work.stage(resume=True).plan()
    (work.layout.runs / "001-dog").mkdir(parents=True)
    with pytest.raises(UsageError, match="001-dog has no saved state"):
        work.stage(resume=True).plan()


def test_a_named_run_is_resumed_and_others_are_left_alone(work: Work) -> None:
    interrupted(work)
    run_stage(work.stage())
    result = run_stage(work.stage(resume=True, run=Path("1")))
    assert result.run == work.run_folder(1)
    assert len(list(work.layout.runs.iterdir())) == 2
    assert_same_tensors(work.run_folder(1), work.run_folder(2))


def test_training_learns_a_picture_by_heart(work: Work, tmp_path: Path) -> None:
    other = replace(work, layout=Layout(tmp_path / "other"))
    make_cache(other.layout, work.sources[0], ("16x16",) * 2)
    run_stage(
        other.stage(epochs=30, batch_size=2, rank=8, caption_dropout=0.0, scheduler="constant")
    )
    losses = [line["loss"] for line in other.metrics()]
    assert sum(losses[-10:]) < 0.9 * sum(losses[:10])


def test_reports_are_the_same_however_often_they_are_made(work: Work) -> None:
    stage = work.stage(steps=1)
    result = run_stage(stage)
    reports: list[Report] = [stage.finish([result]) for _ in range(2)]
    assert reports[0] == reports[1]
