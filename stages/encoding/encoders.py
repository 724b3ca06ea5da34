"""Turns pictures into latents and captions into embeddings, in bits that repeat."""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from latentmill.cache.models.part_configs import VaeConfig
from latentmill.cache.models.weights import (
    ModelFiles,
    load_text_encoder,
    load_tokenizer,
    load_vae,
    read_part_config,
)
from latentmill.datasets.errors import OutOfMemoryError
from latentmill.datasets.words import counted
from latentmill.stages.device import choose_device

if TYPE_CHECKING:
    import torch
    from diffusers import AutoencoderKL
    from PIL.Image import Image

_log = logging.getLogger(__name__)
_REMEMBERED_TEXTS = 256
_BYTES_PER_VALUE = 4
_MAPS_ALIVE = 6


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """Which encoders, where and how."""

    files: ModelFiles
    device: str
    dtype: str
    clip_skip: int
    text_chunks: int = 1


@dataclass(frozen=True, slots=True)
class Latent:
    """The posterior of a picture [4, h, w], unscaled, on the CPU in the stored dtype.

    `std` is None for a single draw of it, which another program made.
    """

    mean: "torch.Tensor"
    std: "torch.Tensor | None"

    @property
    def is_finite(self) -> bool:
        """False when the VAE overflowed or its weights are broken."""
        return all(bool(one.isfinite().all()) for one in (self.mean, self.std) if one is not None)


@dataclass(frozen=True, slots=True)
class EncodedText:
    """A caption's embedding [tokens, width] on the CPU; `cut` is what did not fit in."""

    embedding: "torch.Tensor"
    cut: str


@lru_cache(maxsize=1)
def load_encoders(settings: EncoderSettings) -> "Encoders":
    """Return this process's encoders; each loads its weights when it is first used."""
    return Encoders(settings)


class Encoders:
    """A VAE and a text encoder on one device.

    On a CPU each picture is encoded alone by one thread: more threads, or neighbours in a batch,
    change the last bits. Run several pictures side by side instead (`encode_latents` may be
    called from any thread inside `repeatable`).
    """

    def __init__(self, settings: EncoderSettings) -> None:
        self.settings = settings
        self.device = choose_device(settings.device, "cache.device")
        self._tokenizer_lock = threading.Lock()
        self.encode_text = lru_cache(maxsize=_REMEMBERED_TEXTS)(self._encode_text)

    @property
    def is_cpu(self) -> bool:
        """Whether pictures are encoded one by one."""
        return self.device.type == "cpu"

    def load(self, vae: bool, text: bool) -> None:
        """Load weights now, in one thread, rather than at first use in several."""
        if vae:
            _ = self._vae
        if text:
            _ = self._text_encoder, self._tokenizer

    def memory_bytes(self, num_px: int) -> int:
        """Estimate what encoding one picture takes: a few full-size maps of the first block."""
        width = read_part_config(self.settings.files, VaeConfig).block_out_channels[0]
        return num_px * width * _BYTES_PER_VALUE * _MAPS_ALIVE

    def encode_latents(self, pictures: "Sequence[Image]") -> list[Latent]:
        """Encode pictures of one size; halves the batch while the GPU's memory is too small."""
        import torch

        try:
            return self._encode_batch(pictures)
        except torch.OutOfMemoryError as error:
            if len(pictures) == 1:
                width, height = pictures[0].size
                raise OutOfMemoryError(
                    f"the GPU has no room to encode one picture of {width}x{height}",
                    fix="end other programs on it, lower bucket.area, or set cache.device=cpu",
                ) from error
        torch.cuda.empty_cache()
        half = len(pictures) // 2
        _log.info(
            "GPU memory is short: %s at once, not %d", counted(half, "picture"), len(pictures)
        )
        return self.encode_latents(pictures[:half]) + self.encode_latents(pictures[half:])

    def _encode_batch(self, pictures: "Sequence[Image]") -> list[Latent]:
        import torch

        pixels = torch.stack([_pixels(picture) for picture in pictures])
        latents = self._posterior(self._vae, pixels)
        if self._runs_half and not all(latent.is_finite for latent in latents):
            self._say_overflow()
            latents = self._posterior(self._exact_vae, pixels)
        return latents

    def _posterior(self, vae: "AutoencoderKL", pixels: "torch.Tensor") -> list[Latent]:
        import torch

        stored = getattr(torch, self.settings.dtype)
        with torch.inference_mode():
            posterior = vae.encode(pixels.to(self.device, vae.dtype)).latent_dist
            means = posterior.mean.to("cpu", stored)
            stds = posterior.std.to("cpu", stored)
        return [Latent(mean.clone(), std.clone()) for mean, std in zip(means, stds, strict=True)]

    def _encode_text(self, caption: str) -> EncodedText:
        """Encode one caption in fp32, chunk by chunk, alone: its bits do not depend on others."""
        import torch

        chunks, cut = self._tokenize(caption)
        with torch.inference_mode():
            embedding = torch.cat([self._encode_ids(ids) for ids in chunks])
        return EncodedText(embedding.clone(), cut)

    def _encode_ids(self, ids: list[int]) -> "torch.Tensor":
        """Return the embedding [tokens, width] of one chunk, in the stored dtype."""
        import torch

        skip = self.settings.clip_skip
        output = self._text_encoder(
            torch.tensor([ids], device=self.device), output_hidden_states=skip > 1
        )
        hidden = output.last_hidden_state
        if skip > 1:
            hidden = self._final_norm(output.hidden_states[-skip])
        stored: torch.Tensor = hidden[0].to("cpu", getattr(torch, self.settings.dtype))
        return stored

    def _tokenize(self, caption: str) -> tuple[list[list[int]], str]:
        """Return the ids of each chunk, padded to the encoder's length, and the text cut off.

        Each chunk has a start and an end of its own, as user interfaces send long prompts.
        """
        length, num_chunks = self._num_tokens, self.settings.text_chunks
        with self._tokenizer_lock:  # "Already borrowed", it says to a second thread.
            whole = self._tokenizer(caption, verbose=False, return_offsets_mapping=True)
        start, *inner, end = whole.input_ids
        room = length - 2
        cut = ""
        if len(inner) > room * num_chunks:
            cut = caption[whole.offset_mapping[1 + room * num_chunks][0] :].strip()
        chunks = []
        for number in range(num_chunks):
            ids = [start, *inner[number * room : (number + 1) * room], end]
            chunks.append(ids + [self._tokenizer.pad_token_id] * (length - len(ids)))
        return chunks, cut

    @cached_property
    def _runs_half(self) -> bool:
        """Half precision on CUDA, unless the VAE's configuration says that it overflows."""
        upcast = read_part_config(self.settings.files, VaeConfig).force_upcast
        return self.device.type == "cuda" and not upcast

    @cached_property
    def _vae(self) -> "AutoencoderKL":
        import torch

        if not self._runs_half:
            return self._exact_vae
        return load_vae(self.settings.files, torch.float16).to(self.device)

    @cached_property
    def _exact_vae(self) -> "AutoencoderKL":
        return load_vae(self.settings.files).to(self.device)

    @cached_property
    def _text_encoder(self) -> Any:
        return load_text_encoder(self.settings.files).to(self.device)

    @property
    def _final_norm(self) -> Any:
        """The last layer's norm; transformers moved it up in 5.6."""
        return getattr(self._text_encoder, "text_model", self._text_encoder).final_layer_norm

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self.settings.files)

    @property
    def _num_tokens(self) -> int:
        positions: int = self._text_encoder.config.max_position_embeddings
        return min(positions, int(self._tokenizer.model_max_length))

    def _say_overflow(self) -> None:
        if "_exact_vae" not in self.__dict__:
            _log.warning(
                "the VAE overflows in half precision: such pictures are encoded in single precision"
            )


@contextmanager
def repeatable() -> Iterator[int]:
    """Make bits independent of the number of threads; yield how many may run side by side."""
    import torch

    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=False
        ):
            yield num_threads
    finally:
        torch.set_num_threads(num_threads)


def _pixels(picture: "Image") -> "torch.Tensor":
    """Return a picture as [3, h, w] in -1 to 1."""
    import torch

    flat = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
    return flat.reshape(picture.height, picture.width, 3).permute(2, 0, 1) / 127.5 - 1
