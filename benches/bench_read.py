"""Times reading batches from shards against copying memory and against kohya's files.

    make bench-read [ARGS=512]

Batches of 8 should come at 0.5 of the rate of copying the same bytes, and at 10 times the
samples per second of one `.npz` and one `.npy` a picture. Files are read once before: all is warm.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy
import torch

from latentmill.cache.fingerprints import SampleKeys
from latentmill.cache.index import (
    CachedSample,
    FileStamp,
    SetIndex,
    TextVariant,
    file_sha256,
    write_set_index,
)
from latentmill.cache.mapped import MappedCache, SampleTensors
from latentmill.cache.shards import EncodedSample, write_shard
from latentmill.cache.tensor_file import tensor_bytes

BATCH = 8
SHARD = 64
ROUNDS = 5


def main() -> None:
    """Write the same samples both ways, read them, print the table."""
    num = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        samples = [encoded(number) for number in range(num)]
        cache = written(folder, samples)
        write_kohya(folder / "kohya", samples)
        names = [sample.keys.id for sample in samples]
        batches = [names[at : at + BATCH] for at in range(0, num, BATCH)]
        report(cache, folder / "kohya", batches)


def encoded(number: int) -> EncodedSample:
    """A sample of SD 1.x at 512 px: latent mean and std [4, 64, 64], text [1, 77, 768], fp16."""
    generator = torch.Generator().manual_seed(number)
    tensors = {
        "latent_mean": torch.randn(4, 64, 64, generator=generator).half(),
        "latent_std": torch.rand(4, 64, 64, generator=generator).half(),
        "text": torch.randn(1, 77, 768, generator=generator).half(),
    }
    keys = SampleKeys(f"p{number:015x}", f"latent {number}", f"text {number}")
    return EncodedSample(keys, tensors, {"captions": [f"{number}"]}, (TextVariant(keys.text_key),))


def written(folder: Path, samples: Sequence[EncodedSample]) -> MappedCache:
    """Write shards and the index of a set."""
    stamps, cached = [], []
    for at in range(0, len(samples), SHARD):
        chunk = samples[at : at + SHARD]
        shard = write_shard(folder / "shards", f"512x512-{at:012x}", "512x512", chunk)
        stamps.append(FileStamp(shard.name, shard.bytes, shard.sha256))
        cached += [
            CachedSample(one.keys.id, shard.name, "512x512", 1, 1.0, False, "file") for one in chunk
        ]
    text = samples[0].tensors["text"][0]
    extras = {"empty_text": text, "negative": text, "prompts": text[None]}
    extras |= {"rgb_weight": torch.zeros(3, 4), "rgb_bias": torch.zeros(3)}
    extras |= {"rgb_error": torch.zeros(())}
    (folder / "extras.safetensors").write_bytes(tensor_bytes(extras, {}))
    size, sha256 = 0, file_sha256(folder / "extras.safetensors")
    stamp = FileStamp("extras.safetensors", size, sha256)
    index = SetIndex(
        "", False, 0.18215, 0.0, {}, {}, ("",), "", stamp, tuple(stamps), tuple(cached)
    )
    write_set_index(folder / "index.json", index)
    return MappedCache.open(folder / "index.json", folder / "shards")


def write_kohya(folder: Path, samples: Sequence[EncodedSample]) -> None:
    """Write one `.npz` of a latent in fp32 and one `.npy` of a text for each sample."""
    folder.mkdir()
    for sample in samples:
        numpy.savez(
            folder / f"{sample.keys.id}.npz",
            latents=sample.tensors["latent_mean"].float().numpy(),
            original_size=numpy.array([512, 512]),
            crop_ltrb=numpy.array([0, 0, 512, 512]),
        )
        numpy.save(folder / f"{sample.keys.id}.npy", sample.tensors["text"].numpy())


def report(cache: MappedCache, folder: Path, batches: Sequence[Sequence[str]]) -> None:
    """Read everything in each way and print rates and ratios."""

    def from_shards() -> None:
        for batch in batches:
            read = [cache.read(name) for name in batch]
            for kind in ("latent_mean", "latent_std", "text"):
                torch.stack([getattr(one, kind) for one in read])

    def from_kohya() -> None:
        for batch in batches:
            latents, texts = [], []
            for name in batch:
                with numpy.load(folder / f"{name}.npz", allow_pickle=False) as arrays:
                    latents.append(torch.from_numpy(arrays["latents"]))
                texts.append(torch.from_numpy(numpy.load(folder / f"{name}.npy")))
            torch.stack(latents)
            torch.stack(texts)

    sample: SampleTensors = cache.read(batches[0][0])
    parts = (sample.latent_mean, sample.latent_std, sample.text)
    sources = [[torch.randn(BATCH, *one.shape).half() for one in parts] for _ in batches]

    def copies() -> None:
        for group in sources:
            for source in group:
                torch.empty_like(source).copy_(source)

    num = sum(len(batch) for batch in batches)
    rates = {
        "copying memory": best(copies, num),
        "shards": best(from_shards, num),
        "npz and npy": best(from_kohya, num),
    }
    print(f"{num} samples in batches of {BATCH}, {os.cpu_count()} cores, warm, one thread")
    for name, rate in rates.items():
        print(f"  {name:<16}{rate:10,.0f} samples/s")
    print(f"  shards: {rates['shards'] / rates['copying memory']:.2f} of copying (from 0.50)")
    print(f"  shards: {rates['shards'] / rates['npz and npy']:.1f} times npz and npy (from 10)")


def best(work: Callable[[], None], num: int) -> float:
    """The best rate of some rounds after one to warm up, in samples per second."""
    work()
    fastest = min(_seconds(work) for _ in range(ROUNDS))
    return num / fastest


def _seconds(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
