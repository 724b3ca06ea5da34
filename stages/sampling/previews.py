"""The latent previews of a run -> pictures, by the VAE that training did without."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from latentmill.cache.files import write_bytes
from latentmill.cache.index import file_sha256
from latentmill.cache.models.weights import load_vae, resolve
from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command, step
from latentmill.datasets.records import Report
from latentmill.stages.device import choose_device
from latentmill.stages.settings import ModelSettings, SampleSettings
from latentmill.stages.training.preview import read_previews, saved_previews
from latentmill.stages.training.run_folder import find_run

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

log = logging.getLogger(__name__)

STRIP: Final = "strip-decoded.png"
STAMP: Final = "latentmill"
"""The PNG text field with the hash of the latents that a picture was decoded from."""
_GAP_PX: Final = 4


@dataclass(frozen=True, slots=True)
class PreviewUnit:
    """The latents of one step, and the picture to make of them: a row, one column a prompt."""

    file: Path
    digest: str
    size: int = 1

    @property
    def label(self) -> str:
        """The step."""
        return self.file.stem

    @property
    def picture(self) -> Path:
        """Where the decoded row goes."""
        return self.file.with_suffix(".png")


@dataclass(frozen=True, slots=True)
class DecodePreviews:
    """Decodes what `train.preview_every` kept: what is decoded already is left alone."""

    layout: Layout
    settings: SampleSettings
    model: ModelSettings
    run: Path | None

    @property
    def name(self) -> str:
        """The folder of the report; the command is `sample --decode`."""
        return "previews"

    def plan(self) -> Sequence[PreviewUnit]:
        """One unit for each step that has no picture yet; UsageError for a run without previews."""
        return [unit for unit in self._units() if _stamp(unit.picture) != unit.digest]

    def work(self, unit: PreviewUnit, tick: Callable[[int], None]) -> PreviewUnit:
        """Decode one step's latents into one row."""
        device = choose_device(self.settings.device, "sample.device")
        vae = _vae(self.model.id, self.model.revision, device)
        row = _side_by_side([_decode(vae, latent, device) for latent in read_previews(unit.file)])
        write_bytes(unit.picture, _png(row, unit.digest))
        tick(1)
        return unit

    def finish(self, results: Sequence[PreviewUnit]) -> Report:
        """Put the rows of all steps below one another."""
        from PIL import Image

        units = self._units()
        rows = []
        for unit in units:
            with Image.open(unit.picture) as opened:
                rows.append(opened.convert("RGB"))
        strip = units[0].file.parent / STRIP
        write_bytes(strip, _png(_below(rows), ""))
        return Report(
            stage=self.name,
            ok=True,
            counts={"previews": len(units), "decoded": len(results)},
            fingerprint=units[-1].digest,
            next_steps=(step(f"look at {strip}: a row for each step, a column for each prompt"),),
        )

    def _units(self) -> list[PreviewUnit]:
        run = find_run(self.layout, self.run)
        files = saved_previews(run)
        if not files:
            raise UsageError(
                f"{run.name} kept no previews",
                where=str(run),
                expected="a run that was trained with train.preview_every above 0",
                fix="train with previews, or make pictures with the finished LoRA",
                run=(Command("train", (), ("train.preview_every=100",)), Command("sample")),
            )
        return [PreviewUnit(file, file_sha256(file)) for file in files]


@lru_cache(maxsize=1)
def _vae(model_id: str, revision: str, device: "torch.device") -> Any:
    return load_vae(resolve(model_id, revision)).to(device)


def _decode(vae: Any, latent: "torch.Tensor", device: "torch.device") -> "Image":
    """Decode an unscaled latent [4, h, w] in fp32."""
    import torch
    from PIL import Image

    with torch.inference_mode():
        pixels = vae.decode(latent[None].to(device, torch.float32), return_dict=False)[0][0]
    levels = ((pixels / 2 + 0.5).clamp(0, 1) * 255).round().byte().permute(1, 2, 0).cpu()
    height, width, _ = levels.shape
    return Image.frombytes("RGB", (width, height), levels.contiguous().numpy().tobytes())


def _side_by_side(pictures: "Sequence[Image]") -> "Image":
    from PIL import Image

    width = sum(one.width + _GAP_PX for one in pictures)
    row = Image.new("RGB", (width, max(one.height for one in pictures)), "white")
    left = 0
    for one in pictures:
        row.paste(one, (left, 0))
        left += one.width + _GAP_PX
    return row


def _below(rows: "Sequence[Image]") -> "Image":
    from PIL import Image

    height = sum(row.height + _GAP_PX for row in rows)
    whole = Image.new("RGB", (max(row.width for row in rows), height), "white")
    top = 0
    for row in rows:
        whole.paste(row, (0, top))
        top += row.height + _GAP_PX
    return whole


def _png(image: "Image", digest: str) -> bytes:
    from PIL.PngImagePlugin import PngInfo

    info, stream = PngInfo(), BytesIO()
    info.add_text(STAMP, digest)
    image.save(stream, "PNG", pnginfo=info)
    return stream.getvalue()


def _stamp(path: Path) -> str:
    """The stamp of a picture made before; empty when it is not there or cannot be read."""
    from PIL import Image

    try:
        with Image.open(path) as opened:
            return str(opened.info.get(STAMP, ""))
    except OSError:
        return ""
