"""Encodes the samples of one shard: pictures are decoded ahead while others are encoded."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from latentmill.cache.library import read_origin
from latentmill.cache.shards import EncodedSample
from latentmill.datasets.buckets import fit
from latentmill.datasets.errors import DataError
from latentmill.datasets.images import LoadRules, PictureError, load_picture, pixel_hash
from latentmill.stages.encoding.encoders import EncodedText, Encoders, Latent
from latentmill.stages.encoding.survey import ShardUnit, Task, changed, details

if TYPE_CHECKING:
    from PIL.Image import Image

_DECODERS = 4
_MEMORY_SHARE = 0.5
ItemT = TypeVar("ItemT")
DoneT = TypeVar("DoneT")


@dataclass(frozen=True, slots=True)
class Workbench:
    """What every sample of a run is encoded with; `num_threads` may work side by side."""

    encoders: Encoders
    shards: Path
    rules: LoadRules
    batch_size: int
    num_threads: int


def encode_unit(unit: ShardUnit, bench: Workbench) -> Iterator[EncodedSample]:
    """Yield the samples of a shard in order; few pictures are in memory at a time.

    Raises DataError naming a picture that changed since validation or has no finite latent.
    """
    new_latents = any(task.latent_from is None for task in unit.tasks)
    bench.encoders.load(vae=new_latents, text=any(task.text_from is None for task in unit.tasks))
    with ThreadPoolExecutor(_num_workers(unit, bench)) as pool:
        texts = _encode_texts(unit.tasks, bench, pool)
        latents = _encode_latents(unit.tasks, bench, pool)
        for task, latent in zip(unit.tasks, latents, strict=True):
            _require_finite(task, latent)
            text = texts[task.wanted.keys.text_key]
            tensors = {
                "latent_mean": latent.mean,
                "latent_std": latent.std,
                "text": text.embedding[None],
            }
            yield EncodedSample(task.wanted.keys, tensors, details(task.wanted), text.cut)


def _require_finite(task: Task, latent: Latent) -> None:
    if not latent.is_finite:
        raise DataError(
            "the VAE gives values that are not finite",
            where=task.wanted.sample.record.path,
            expected="finite latents, also in single precision",
            fix="check the model's VAE with another picture; set the picture aside (`skip` in "
            "review.csv), or set cache.dtype=float32",
        )


def _num_workers(unit: ShardUnit, bench: Workbench) -> int:
    """On a CPU each worker encodes, and half of the free memory must hold them all."""
    import psutil

    if not bench.encoders.is_cpu:
        return _DECODERS
    bucket = unit.tasks[0].wanted.placement.bucket
    each_bytes = bench.encoders.memory_bytes(bucket.width * bucket.height)
    room = int(psutil.virtual_memory().available * _MEMORY_SHARE / each_bytes)
    return max(1, min(bench.num_threads, room))


def _encode_texts(
    tasks: Sequence[Task], bench: Workbench, pool: Executor
) -> dict[str, EncodedText]:
    """Return the embeddings by text key; equal captions are encoded once."""
    distinct = {task.wanted.keys.text_key: task for task in tasks}
    # On a GPU threads would only queue up.
    run = pool.map if bench.encoders.is_cpu else map
    return dict(zip(distinct, run(lambda task: _text(task, bench), distinct.values()), strict=True))


def _text(task: Task, bench: Workbench) -> EncodedText:
    if task.text_from is not None:
        tensors = read_origin(bench.shards, task.text_from)
        return EncodedText(tensors["text"][0], task.text_from.cut)
    encoded = bench.encoders.encode_text(task.wanted.sample.caption)
    if not encoded.embedding.isfinite().all():
        raise DataError(
            "the text encoder gives values that are not finite",
            where=f"the caption of {task.wanted.sample.record.path}",
            fix="check the model's text_encoder, or set cache.dtype=float32",
        )
    return encoded


def _encode_latents(tasks: Sequence[Task], bench: Workbench, pool: Executor) -> Iterator[Latent]:
    size = 1 if bench.encoders.is_cpu else bench.batch_size
    prepared = _ahead(
        lambda task: _prepare(task, bench), tasks, pool, num_ahead=2 * size + bench.num_threads
    )
    for group in _groups(prepared, size):
        pictures = [one for one in group if not isinstance(one, Latent)]
        fresh = iter(bench.encoders.encode_latents(pictures) if pictures else ())
        for one in group:
            yield one if isinstance(one, Latent) else next(fresh)


def _prepare(task: Task, bench: Workbench) -> "Latent | Image":
    """Copy the latent if there is one; else read the picture and, on a CPU, encode it."""
    if task.latent_from is not None:
        tensors = read_origin(bench.shards, task.latent_from)
        return Latent(tensors["latent_mean"], tensors["latent_std"])
    picture = _read_picture(task, bench.rules)
    return bench.encoders.encode_latents([picture])[0] if bench.encoders.is_cpu else picture


def _read_picture(task: Task, rules: LoadRules) -> "Image":
    record = task.wanted.sample.record
    try:
        picture = load_picture(Path(record.file), rules)
    except PictureError as error:
        raise changed([f"{record.path} ({error.message})"]) from error
    if pixel_hash(picture.image) != record.pixels:
        raise changed([f"{record.path} (other pixels)"])
    return fit(picture.image, task.wanted.placement)


def _ahead(
    function: Callable[[ItemT], DoneT], items: Iterable[ItemT], pool: Executor, num_ahead: int
) -> Iterator[DoneT]:
    """Map in order with at most `num_ahead` results waiting."""
    waiting: deque[Future[DoneT]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > num_ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _groups(items: Iterable[ItemT], size: int) -> Iterator[list[ItemT]]:
    group: list[ItemT] = []
    for item in items:
        group.append(item)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group
