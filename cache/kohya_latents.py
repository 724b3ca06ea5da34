"""Reads the latents that kohya's sd-scripts cached: one `.npz` a picture, never a pickle."""

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy
    import torch

_MOST_BYTES_PER_VALUE = 8
_HEADER_BYTES = 4096


class KohyaError(ValueError):
    """A file that cannot be taken; its text says why."""


@dataclass(frozen=True, slots=True)
class LatentShape:
    """What a latent must be: channels, and cells down and across."""

    channels: int
    height: int
    width: int


@dataclass(frozen=True, slots=True)
class KohyaLatent:
    """One draw of a picture's latent [c, h, w], unscaled, and of its mirror image if it is there.

    `original_size` is (width, height) in px, `crop` left, top, right, bottom as kohya notes them.
    """

    draw: "torch.Tensor"
    flipped: "torch.Tensor | None"
    original_size: list[int]
    crop: list[int]

    @property
    def digest(self) -> str:
        """Name the content, whatever the file is called and however it is packed."""
        total = hashlib.sha256(str((tuple(self.draw.shape), self.crop)).encode())
        for tensor in (self.draw, self.flipped):
            total.update(b"none" if tensor is None else tensor.numpy().tobytes())
        return total.hexdigest()


def kohya_file(folder: Path, picture: str, width: int, height: int) -> Path | None:
    """Find a picture's file by name as kohya does: `NAME.npz`, else `NAME_0512x0768_sd.npz`.

    `picture` is its path below its source, with `/`; None when neither file exists.
    """
    path = folder / PurePosixPath(picture)
    for name in (f"{path.stem}.npz", f"{path.stem}_{width:04d}x{height:04d}_sd.npz"):
        if (path.parent / name).is_file():
            return path.parent / name
    return None


def read_kohya(path: Path, shape: LatentShape) -> KohyaLatent:
    """Read the latent of this shape from a file.

    Raises KohyaError for a broken file, another shape, values that are not finite, a pickle.
    """
    import numpy
    import torch

    try:
        with zipfile.ZipFile(path) as archive:
            names = {Path(info.filename).stem: info.file_size for info in archive.infolist()}
        with numpy.load(path, allow_pickle=False) as arrays:
            suffix = _suffix(names, shape)
            draw = _latent(arrays, names, f"latents{suffix}", shape)
            flipped_name = f"latents_flipped{suffix}"
            flipped = _latent(arrays, names, flipped_name, shape) if flipped_name in names else None
            return KohyaLatent(
                draw=torch.from_numpy(draw),
                flipped=None if flipped is None else torch.from_numpy(flipped),
                original_size=_numbers(arrays, names, f"original_size{suffix}", 2),
                crop=_numbers(arrays, names, f"crop_ltrb{suffix}", 4),
            )
    except KohyaError:
        raise
    except Exception as error:  # Archives and arrays of others raise any class; one file each.
        raise KohyaError(f"cannot be read: {error}") from error


def _suffix(names: dict[str, int], shape: LatentShape) -> str:
    """Newer files hold several sizes, each under its own ending; older ones have one, without."""
    suffix = f"_{shape.height}x{shape.width}"
    if f"latents{suffix}" in names:
        return suffix
    if "latents" in names:
        return ""
    others = sorted(name.partition("_")[2] for name in names if name.startswith("latents_"))
    sizes = [name for name in others if not name.startswith("flipped")]
    raise KohyaError(
        f"no latent of {shape.width}x{shape.height} cells; found (height x width): "
        + (", ".join(sizes) or "none")
    )


def _latent(
    arrays: Any, names: dict[str, int], name: str, shape: LatentShape
) -> "numpy.ndarray[Any, Any]":
    import numpy

    wanted = (shape.channels, shape.height, shape.width)
    most_bytes = shape.channels * shape.height * shape.width * _MOST_BYTES_PER_VALUE
    if names[name] > most_bytes + _HEADER_BYTES:
        raise KohyaError(f"{name} has {names[name]:,} bytes; expected a latent of {wanted}")
    values = arrays[name]
    if values.shape != wanted or values.dtype.kind != "f":
        raise KohyaError(f"{name} is {values.dtype} of {values.shape}; expected {wanted}")
    if not numpy.isfinite(values).all():
        raise KohyaError(f"{name} has values that are not finite")
    return numpy.ascontiguousarray(values, dtype=numpy.float32)


def _numbers(arrays: Any, names: dict[str, int], name: str, count: int) -> list[int]:
    if names.get(name, 0) > count * _MOST_BYTES_PER_VALUE + _HEADER_BYTES:
        raise KohyaError(f"{name} is too large")
    values = arrays[name]
    if values.shape != (count,) or values.dtype.kind not in "iuf":
        raise KohyaError(f"{name} is {values.dtype} of {values.shape}; expected {count} numbers")
    return [int(value) for value in values]
