"""Latents that another program encoded, chosen for a work in place of encoding its pictures."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from latentmill.cache.files import write_json
from latentmill.cache.fingerprints import imported_key
from latentmill.cache.index import sealed, unsealed
from latentmill.cache.kohya_latents import KohyaError, KohyaLatent, LatentShape, read_kohya
from latentmill.datasets.buckets import Placement
from latentmill.datasets.errors import DataError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command
from latentmill.datasets.records import Record


@dataclass(frozen=True, slots=True)
class Imported:
    """A picture's latent in a file of kohya's: one draw, no spread.

    It stands for the picture with these `pixels`, in this bucket, under the VAE with this hash:
    if one of them changes, the picture is encoded. `shape` is channels, height, width in cells.
    """

    file: str
    digest: str
    pixels: str
    bucket: str
    vae: str
    shape: tuple[int, int, int]
    crop: tuple[int, ...]
    is_flipped_too: bool

    def fits(self, record: Record, placement: Placement, vae: str) -> bool:
        """Whether it still is the latent of this picture in this bucket."""
        wanted = (record.pixels, placement.bucket.label, vae)
        return (self.pixels, self.bucket, self.vae) == wanted

    def keys(self, dtype: str, flip: bool) -> list[str]:
        """Name the latents: the picture's, and its mirror's if that is wanted and there."""
        both = (False, True) if flip and self.is_flipped_too else (False,)
        return [imported_key(self.digest, dtype, is_flipped) for is_flipped in both]

    def details(self) -> dict[str, object]:
        """What `ID.json` says about where it is from."""
        return {"draws": 1, "imported_from": "kohya", "crop_ltrb": list(self.crop)}

    def read(self) -> KohyaLatent:
        """Read the file; raises DataError when it is gone or another than the one imported."""
        try:
            latent = read_kohya(Path(self.file), LatentShape(*self.shape))
        except KohyaError as error:
            raise self._changed(str(error)) from error
        if latent.digest != self.digest:
            raise self._changed("other values than when it was imported")
        return latent

    def _changed(self, message: str) -> DataError:
        return DataError(
            f"an imported latent is not there any more: {message}",
            where=self.file,
            expected="the file that `cache import-kohya` read, until it is in a shard",
            fix="put it back, or import again: pictures without a fitting file are encoded",
            run=(Command("cache", ("import-kohya", "DIR")),),
        )


def write_imported(layout: Layout, latents: Mapping[str, Imported]) -> None:
    """Choose these latents, by picture id, for the work; none undoes the choice."""
    values = {"latents": {name: asdict(one) for name, one in latents.items()}}
    write_json(_file(layout), sealed(values))


def read_imported(layout: Layout) -> dict[str, Imported]:
    """The latents chosen for a work, by picture id. DataError when the file is damaged."""
    if not _file(layout).is_file():
        return {}
    try:
        values = unsealed(_file(layout)) or {"latents": {}}
    except DataError as error:
        raise DataError(
            "the list of imported latents is damaged",
            where=str(_file(layout)),
            expected="the file as `cache import-kohya` wrote it",
            fix="import again, or delete the file: the pictures are encoded then",
            run=(Command("cache", ("import-kohya", "DIR")),),
        ) from error
    return {
        name: Imported(**{**one, "shape": tuple(one["shape"]), "crop": tuple(one["crop"])})
        for name, one in values["latents"].items()
    }


def _file(layout: Layout) -> Path:
    return layout.stage("cache") / "imported.json"
