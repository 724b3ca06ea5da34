"""Chooses the latents that kohya's sd-scripts cached, where they fit, in place of encoding."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from latentmill.cache.fingerprints import digest
from latentmill.cache.kohya_latents import (
    KohyaError,
    KohyaLatent,
    LatentShape,
    kohya_file,
    read_kohya,
)
from latentmill.cache.models.part_configs import VaeConfig
from latentmill.cache.models.weight_hashes import encoder_hashes
from latentmill.cache.models.weights import read_part_config, resolve
from latentmill.datasets.buckets import place
from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command, step
from latentmill.datasets.records import Problem, Record, Report, count_codes
from latentmill.stages.encoding.geometry import require_fitting_step
from latentmill.stages.encoding.imported import Imported, write_imported
from latentmill.stages.encoding.survey import bucket_rules, read_records
from latentmill.stages.settings import BucketSettings, ModelSettings, Source

_FEW = 5
_FIX = "none is needed: the picture itself is encoded"


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """The work that latents are imported for, and the settings that they must fit."""

    layout: Layout
    sources: tuple[Source, ...]
    bucket: BucketSettings
    model: ModelSettings


@dataclass(frozen=True, slots=True)
class _Model:
    """What latents must be like."""

    vae: str
    channels: int
    factor: int


def import_kohya(
    plan: ImportPlan, folder: Path, tick: Callable[[int], None] = lambda _: None
) -> Report:
    """Check the `.npz` of each picture in `folder`, paired by name, and choose those that fit.

    `folder` has the sub-folders of the data. The choice replaces an earlier one; pictures without
    a fitting file are encoded. Each latent is one draw, without spread. Raises UsageError when the
    folder has no `.npz`.
    """
    files = _npz_files(folder)
    records = read_records(plan.layout, len(plan.sources))
    model = _read_model(plan)
    paired = {record.id: _file_of(folder, record) for record in records}
    owners = Counter(file for file in paired.values() if file is not None)
    chosen: dict[str, Imported] = {}
    problems: list[Problem] = []
    for record in records:
        file = paired[record.id]
        if file is not None:
            try:
                _require_one_owner(record, owners[file])
                chosen[record.id] = _imported(record, file, plan, model)
            except KohyaError as error:
                problems.append(_problem(record, file, error))
        tick(1)
    problems += _orphans(folder, sorted(files - set(owners)))
    write_imported(plan.layout, chosen)
    return _report(records, chosen, problems, paired)


def _npz_files(folder: Path) -> set[Path]:
    files = {path for path in folder.rglob("*") if path.suffix == ".npz" and path.is_file()}
    if not files:
        raise UsageError(
            "no file of cached latents is there",
            where=str(folder),
            expected="the folder of pictures that kohya's sd-scripts cached latents in, with "
            "NAME.npz or NAME_0512x0768_sd.npz beside the pictures",
            fix="name that folder",
        )
    return files


def _read_model(plan: ImportPlan) -> _Model:
    files = resolve(plan.model.id, plan.model.revision)
    require_fitting_step(plan.bucket.step, files)
    vae = read_part_config(files, VaeConfig)
    hashes = encoder_hashes(files, plan.layout.stage("cache") / "weights.json")
    return _Model(hashes.vae, vae.latent_channels, vae.factor)


def _file_of(folder: Path, record: Record) -> Path | None:
    """Find by name; kohya named files after the stored size, of a turned picture the other way."""
    for width, height in ((record.width, record.height), (record.height, record.width)):
        file = kohya_file(folder, record.path, width, height)
        if file is not None:
            return file
    return None


def _require_one_owner(record: Record, num_owners: int) -> None:
    if num_owners > 1:
        raise KohyaError("pictures of the same name share it: whose latent it is, nobody knows")
    if "turned-upright" in record.codes:
        raise KohyaError("the picture is turned by its EXIF tag, which sd-scripts does not read")


def _imported(record: Record, file: Path, plan: ImportPlan, model: _Model) -> Imported:
    anchor = plan.sources[record.source].crop_anchor
    bucket = place(record.width, record.height, bucket_rules(plan.bucket), anchor).bucket
    cells = (bucket.height // model.factor, bucket.width // model.factor)
    latent = read_kohya(file, LatentShape(model.channels, *cells))
    _require_size(latent, record)
    return Imported(
        file=str(file.absolute()),
        digest=latent.digest,
        pixels=record.pixels,
        bucket=bucket.label,
        vae=model.vae,
        shape=(model.channels, *cells),
        crop=tuple(latent.crop),
        is_flipped_too=latent.flipped is not None,
    )


def _require_size(latent: KohyaLatent, record: Record) -> None:
    width, height = latent.original_size
    if (width, height) != (record.width, record.height):
        raise KohyaError(
            f"it was made of a picture of {width}x{height}, this one has "
            f"{record.width}x{record.height}"
        )


def _problem(record: Record, file: Path, error: KohyaError) -> Problem:
    return Problem(
        id=record.id,
        path=record.path,
        code="kohya-not-taken",
        message=f"{file.name}: {error}",
        fix=_FIX,
    )


def _orphans(folder: Path, files: Sequence[Path]) -> Iterator[Problem]:
    if files:
        names = ", ".join(str(file.relative_to(folder)) for file in files[:_FEW])
        more = f" and {len(files) - _FEW} more" if len(files) > _FEW else ""
        yield Problem(
            id="",
            path="",
            code="kohya-without-picture",
            message=f"{len(files)} files belong to no picture of the set: {names}{more}",
            fix="",
            level="advice",
        )


def _report(
    records: Sequence[Record],
    chosen: dict[str, Imported],
    problems: list[Problem],
    paired: dict[str, Path | None],
) -> Report:
    codes = count_codes(problems)
    return Report(
        stage="cache import-kohya",
        ok=True,
        counts={
            "pictures": len(records),
            "imported": len(chosen),
            "not_taken": codes.get("kohya-not-taken", 0),
            "without_file": sum(file is None for file in paired.values()),
        },
        problems=tuple(problems),
        fingerprint=digest("imported", [[name, one.digest] for name, one in chosen.items()]),
        next_steps=(
            step(
                "take these latents over, each one draw without spread, and encode the captions "
                "and the other pictures (the files may go after that)",
                Command("cache"),
            ),
        ),
    )
