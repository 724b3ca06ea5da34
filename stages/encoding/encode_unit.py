"""Encodes the samples of one shard: pictures are decoded ahead while others are encoded."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from latentmill.cache.index import TextVariant
from latentmill.cache.library import Origin, read_origin
from latentmill.cache.shards import LATENT_SUFFIXES, EncodedSample
from latentmill.datasets.buckets import fit
from latentmill.datasets.errors import DataError
from latentmill.datasets.images import LoadRules, PictureError, load_picture, pixel_hash
from latentmill.stages.encoding.encoders import EncodedText, Encoders, Latent
from latentmill.stages.encoding.geometry import loss_mask
from latentmill.stages.encoding.imported import Imported
from latentmill.stages.encoding.survey import ShardUnit, Task, Wanted, details
from latentmill.stages.encoding.unchanged import changed

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
    bench.encoders.load(
        vae=any(_is_to_encode(task) for task in unit.tasks),
        text=any(None in task.texts_from for task in unit.tasks),
    )
    with ThreadPoolExecutor(_num_workers(unit, bench)) as pool:
        texts = _encode_texts(unit.tasks, bench, pool)
        latents = _encode_latents(unit.tasks, bench, pool)
        for task in unit.tasks:
            own = list(islice(latents, len(task.latents_from)))
            _require_finite(task, own)
            yield _sample(task.wanted, own, [texts[key] for key in task.wanted.text_keys])


def _sample(
    wanted: Wanted, latents: Sequence[Latent], texts: Sequence[EncodedText]
) -> EncodedSample:
    import torch

    tensors = {"text": torch.stack([text.embedding for text in texts])}
    for latent, suffix in zip(latents, LATENT_SUFFIXES, strict=False):
        tensors[f"latent_mean{suffix}"] = latent.mean
        if latent.std is not None:
            tensors[f"latent_std{suffix}"] = latent.std
    if wanted.placement.is_padded and wanted.imported is None:
        tensors["loss_mask"] = loss_mask(wanted.placement, latents[0].mean)
    cuts = zip(wanted.text_keys, texts, strict=True)
    variants = tuple(TextVariant(key, text.cut) for key, text in cuts)
    return EncodedSample(wanted.keys, tensors, details(wanted), variants)


def _is_to_encode(task: Task) -> bool:
    return None in task.latents_from and task.wanted.imported is None


def _require_finite(task: Task, latents: Sequence[Latent]) -> None:
    if not all(latent.is_finite for latent in latents):
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
    jobs: dict[str, _TextJob] = {}
    for task in tasks:
        one = task.wanted
        for key, text, origin in zip(one.text_keys, one.texts, task.texts_from, strict=True):
            jobs.setdefault(key, _TextJob(text, origin, one.sample.record.path))
    # On a GPU threads would only queue up.
    run = pool.map if bench.encoders.is_cpu else map
    return dict(zip(jobs, run(lambda job: _text(job, bench), jobs.values()), strict=True))


@dataclass(frozen=True, slots=True)
class _TextJob:
    """A text, where it is encoded already, and a picture that it belongs to."""

    text: str
    origin: Origin | None
    path: str


def _text(job: _TextJob, bench: Workbench) -> EncodedText:
    if job.origin is not None:
        tensors = read_origin(bench.shards, job.origin)
        return EncodedText(tensors["text"][job.origin.variant], job.origin.cut)
    encoded = bench.encoders.encode_text(job.text)
    if not encoded.embedding.isfinite().all():
        raise DataError(
            "the text encoder gives values that are not finite",
            where=f"the caption of {job.path}",
            fix="check the model's text_encoder, or set cache.dtype=float32",
        )
    return encoded


def _encode_latents(tasks: Sequence[Task], bench: Workbench, pool: Executor) -> Iterator[Latent]:
    """Yield the latents of each task, the picture's before its mirror's."""
    size = 1 if bench.encoders.is_cpu else bench.batch_size
    prepared = _ahead(
        lambda task: _prepare(task, bench), tasks, pool, num_ahead=2 * size + bench.num_threads
    )
    for group in _groups((one for several in prepared for one in several), size):
        pictures = [one for one in group if not isinstance(one, Latent)]
        fresh = iter(bench.encoders.encode_latents(pictures) if pictures else ())
        for one in group:
            yield one if isinstance(one, Latent) else next(fresh)


def _prepare(task: Task, bench: Workbench) -> "list[Latent | Image]":
    """Copy the latents that exist; read the picture for others and, on a CPU, encode it."""
    from PIL.Image import Transpose

    if None in task.latents_from and task.wanted.imported is not None:
        return list(_read_imported(task.wanted.imported, bench)[: len(task.latents_from)])
    picture = _read_picture(task, bench.rules) if None in task.latents_from else None
    prepared: list[Latent | Image] = []
    for number, origin in enumerate(task.latents_from):
        if origin is not None:
            tensors = read_origin(bench.shards, origin)
            mean, std = (tensors.get(f"latent_{kind}{origin.suffix}") for kind in ("mean", "std"))
            assert mean is not None
            prepared.append(Latent(mean, std))
        elif picture is not None:
            turned = picture.transpose(Transpose.FLIP_LEFT_RIGHT) if number else picture
            is_cpu = bench.encoders.is_cpu
            prepared.append(bench.encoders.encode_latents([turned])[0] if is_cpu else turned)
    return prepared


def _read_imported(imported: Imported, bench: Workbench) -> list[Latent]:
    import torch

    latent = imported.read()
    stored = getattr(torch, bench.encoders.settings.dtype)
    both = (latent.draw, latent.flipped)
    return [Latent(draw.to(stored), None) for draw in both if draw is not None]


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
