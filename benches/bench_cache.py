"""Times `cache` against its bare parts and a naive loop, side by side in one process.

    make bench-cache [ARGS=64]

Processor seconds of the whole stage should be at most 1.10 of the sum of the bare parts.
"""

import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from PIL import Image

from latentmill.cache.files import write_text
from latentmill.cache.models.weights import load_text_encoder, load_tokenizer, load_vae, resolve
from latentmill.datasets.buckets import fit, place
from latentmill.datasets.images import LoadRules, load_picture, pixel_hash
from latentmill.datasets.layout import Layout
from latentmill.datasets.records import Record, record_to_json
from latentmill.datasets.sources import record_id
from latentmill.pipeline.tinysd.architecture import write_random_model
from latentmill.stages.cache import Cache
from latentmill.stages.encoding.survey import bucket_rules
from latentmill.stages.settings import (
    BucketSettings,
    CacheSettings,
    CaptionSettings,
    ModelSettings,
    SampleSettings,
    Source,
    ValidateSettings,
)

BUCKETS = BucketSettings(area=192, step=32, min=96, max=384)
SIZES = ((1200, 900), (900, 1200), (1000, 1000), (1600, 800))


@dataclass(frozen=True, slots=True)
class Cost:
    """What something took, in seconds: of the clock, and of all processors together."""

    clock: float
    processor: float


def main() -> None:
    """Make pictures and a small model, run the contestants, print the table."""
    logging.disable(logging.WARNING)
    num = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_random_model(folder / "model")
        records = [draw(folder / "data", number) for number in range(num)]
        layout = Layout(folder / "work")
        write_text(layout.manifest, "".join(record_to_json(one) + "\n" for one in records))
        costs = compare(records, layout, folder)
    report(costs, num)


def draw(folder: Path, number: int) -> Record:
    """Write a smooth noisy JPEG; return its record as `validate` makes it."""
    folder.mkdir(exist_ok=True)
    generator = numpy.random.default_rng(number)
    width, height = SIZES[number % len(SIZES)]
    small = generator.integers(0, 256, (height // 20, width // 20, 3), dtype=numpy.uint8)
    path = folder / f"{number}.jpg"
    Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC).save(path, quality=92)
    image, stat = load_picture(path, LoadRules()).image, path.stat()
    return Record(
        id=record_id(path.name),
        source=0,
        path=path.name,
        file=str(path),
        bytes=stat.st_size,
        modified_ns=stat.st_mtime_ns,
        format="JPEG",
        width=width,
        height=height,
        pixels=pixel_hash(image),
        caption=f"a picture of {number} things, in colour",
    )


def compare(records: Sequence[Record], layout: Layout, folder: Path) -> dict[str, Cost]:
    """Time the bare parts, the naive loop, the stage, and the stage with nothing to do."""
    import torch

    torch.set_num_threads(1)
    model = str(folder / "model")
    files = resolve(model)
    vae: Any = load_vae(files)
    text_encoder: Any = load_text_encoder(files)
    tokenizer: Any = load_tokenizer(files)

    def pixels(image: Image.Image) -> torch.Tensor:
        array = numpy.asarray(image, dtype=numpy.float32)
        return torch.from_numpy(array / 127.5 - 1).permute(2, 0, 1)[None]

    def decode(record: Record) -> Image.Image:
        rules = bucket_rules(BUCKETS)
        image = load_picture(Path(record.file), LoadRules()).image
        return fit(image, place(record.width, record.height, rules))

    def encode_text(record: Record) -> torch.Tensor:
        ids = tokenizer(record.caption, padding="max_length", max_length=77, return_tensors="pt")
        return text_encoder(ids.input_ids).last_hidden_state

    def naive(record: Record) -> None:
        mean = vae.encode(pixels(decode(record))).latent_dist.mean
        numpy.savez(
            folder / f"{record.id}.npz", latents=mean.numpy(), text=encode_text(record).numpy()
        )

    stage = Cache(
        layout,
        (Source(path=str(folder / "data")),),
        CacheSettings(device="cpu"),
        BUCKETS,
        ValidateSettings(),
        CaptionSettings(),
        ModelSettings(id=model),
        SampleSettings(prompts=("a prompt",)),
    )

    def run_stage() -> None:
        stage.finish([stage.work(unit, lambda _: None) for unit in stage.prepare()])

    with torch.inference_mode():
        images: list[Image.Image] = []
        costs = {
            "decode and resize": timed(lambda: images.extend(decode(one) for one in records)),
            "VAE": timed(lambda: [vae.encode(pixels(one)).latent_dist.mean for one in images]),
            "text encoder": timed(lambda: [encode_text(one) for one in records]),
            "naive loop": timed(lambda: [naive(one) for one in records]),
        }
    torch.set_num_threads(os.cpu_count() or 1)
    costs["latentmill cache"] = timed(run_stage)
    costs["latentmill cache, again"] = timed(run_stage)
    return costs


def timed(work: Callable[[], Any]) -> Cost:
    """Run `work` once."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return Cost(time.perf_counter() - clock, time.process_time() - processor)


def report(costs: dict[str, Cost], num: int) -> None:
    """Print the table and the ratios."""
    print(f"{num} pictures, {os.cpu_count()} cores")
    for name, cost in costs.items():
        print(f"  {name:<26}{cost.clock:8.2f} s elapsed {cost.processor:8.2f} s of processors")
    bare = sum(costs[name].processor for name in ("decode and resize", "VAE", "text encoder"))
    whole, naive = costs["latentmill cache"], costs["naive loop"]
    print(f"  processor seconds: {whole.processor / bare:.2f} of the bare parts together (to 1.10)")
    print(f"  elapsed: {whole.clock / naive.clock:.2f} of the naive loop")


if __name__ == "__main__":
    main()
