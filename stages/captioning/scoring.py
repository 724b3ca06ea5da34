"""Pictures and captions of the review to CLIP scores, and to the pairs that do not fit."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from latentmill.cache.fingerprints import digest
from latentmill.datasets.errors import ModelError, OutOfMemoryError
from latentmill.datasets.images import LoadRules, PictureError, load_picture, pixel_hash
from latentmill.datasets.records import Problem, Record
from latentmill.datasets.review import printable
from latentmill.datasets.review_mismatch import Agreement, Pair, agreement_of
from latentmill.datasets.words import counted
from latentmill.stages.captioning.embeddings import Embeddings, read_embeddings, write_embeddings
from latentmill.stages.captioning.scorer_files import find_scorer
from latentmill.stages.captioning.units import ScoreUnit
from latentmill.stages.settings import AUTO_SCORER, NO_SCORER, CaptionSettings

if TYPE_CHECKING:
    from PIL.Image import Image

    from latentmill.stages.captioning.scorer import Scorer

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Scored:
    """What is known of every pair, and what is to be said about it."""

    agreement: Agreement
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class _Ready:
    """A loaded model and the identity of its files."""

    scorer: "Scorer"
    identity: str


@dataclass(frozen=True, slots=True)
class Scoring:
    """Compares pictures with captions; vectors are remembered below `folder`."""

    folder: Path
    settings: CaptionSettings
    rules: LoadRules

    @property
    def is_off(self) -> bool:
        """Whether nothing is to be compared."""
        return self.settings.score_model == NO_SCORER

    def pending(self, pairs: Sequence[Pair]) -> list[Pair]:
        """The pairs without vectors that can be compared: none while the model is on the hub.

        Raises ModelError when the setting names no model.
        """
        if self.is_off or not pairs or find_scorer(self.settings.score_model, False) is None:
            return []
        return _lacking(pairs, self._known())

    def fetch(self, pairs: Sequence[Pair]) -> None:
        """Have the model here if it is needed; raises ModelError when one was named in vain."""
        if not self.is_off and _lacking(pairs, self._known()):
            _attempt(self.settings.score_model, self.settings.device)

    def work(self, unit: ScoreUnit) -> None:
        """Make the vectors of one unit and commit them; nothing where the model cannot be had."""
        pairs = [Pair(*pair) for pair in zip(unit.records, unit.captions, strict=True)]
        self._make(pairs, [])

    def keep(self, images: "Sequence[tuple[Record, Image]]", captions: Sequence[str]) -> None:
        """Make and commit the vectors of pictures that are loaded anyway."""
        if self.is_off:
            return
        pictures = {record.pixels: image for record, image in images}
        try:
            self._embed(pictures, [caption for caption in captions if caption.strip()])
        except (ModelError, OutOfMemoryError):
            if not self._is_optional:
                raise

    def settle(self, pairs: Sequence[Pair]) -> Scored:
        """Make what vectors are lacking, keep those in use in one file, and judge all pairs."""
        if self.is_off or not pairs:
            return Scored(Agreement())
        problems: list[Problem] = []
        lacking = _lacking(pairs, self._known())
        if lacking:
            _log.info("comparing %s with their captions", counted(len(lacking), "picture"))
            reason = self._make(lacking, problems)
            if reason:
                problems.append(_is_off(reason))
        known = self._known()
        self._keep_used(known, pairs)
        return Scored(agreement_of(pairs, known.pictures, known.texts), tuple(problems))

    def _make(self, pairs: Sequence[Pair], problems: list[Problem]) -> str:
        """Embed pairs batch by batch; return why the model cannot be had, or nothing."""
        size = self.settings.batch_size
        try:
            if isinstance(found := _attempt(self.settings.score_model, self.settings.device), str):
                return found
            for start in range(0, len(pairs), size):
                batch = pairs[start : start + size]
                self._embed(self._load(batch, problems), [pair.caption for pair in batch])
        except (ModelError, OutOfMemoryError) as error:
            if not self._is_optional:
                raise
            return error.what
        return ""

    def _load(self, pairs: Iterable[Pair], problems: list[Problem]) -> "dict[str, Image]":
        images = {}
        for pair in pairs:
            record = pair.record
            try:
                image = load_picture(Path(record.file), self.rules).image
            except PictureError as error:
                problems.append(_not_scored(record, f"{error.message} ({error.code})"))
                continue
            if pixel_hash(image) == record.pixels:
                images[record.pixels] = image
            else:
                problems.append(_not_scored(record, "the picture changed since it was validated"))
        return images

    def _embed(self, images: "Mapping[str, Image]", captions: Sequence[str]) -> None:
        """Commit a part with what of these has no vector yet."""
        from latentmill.stages.captioning.scorer import embed_pictures, embed_texts

        found = _attempt(self.settings.score_model, self.settings.device)
        if isinstance(found, str):
            return
        texts = list(dict.fromkeys(captions))
        part = Embeddings(
            found.identity,
            self.settings.score_model,
            dict(zip(images, embed_pictures(found.scorer, list(images.values())), strict=True)),
            dict(zip(texts, embed_texts(found.scorer, texts), strict=True)),
        )
        name = digest("embeddings", [found.identity, sorted(images), texts])[:24]
        write_embeddings(self._parts / f"{name}.safetensors", part)

    def _known(self) -> Embeddings:
        """All remembered vectors of the model; of any that the setting named, while it is away."""
        files = find_scorer(self.settings.score_model, may_fetch=False)
        known = read_embeddings(self._file)
        if files is not None:
            identity = files.identity()
            if known.scorer != identity:
                known = Embeddings(identity, self.settings.score_model)
        elif known.reference != self.settings.score_model:
            return Embeddings()
        for path in self._part_files():
            part = read_embeddings(path)
            if part.scorer == known.scorer:
                known = known.with_those_of(part)
        return known

    def _keep_used(self, known: Embeddings, pairs: Sequence[Pair]) -> None:
        used = {pair.record.pixels for pair in pairs}
        captions = {pair.caption for pair in pairs}
        kept = replace(
            known,
            pictures={key: known.pictures[key] for key in known.pictures if key in used},
            texts={key: known.texts[key] for key in known.texts if key in captions},
        )
        before = read_embeddings(self._file)
        same = (kept.scorer, set(kept.pictures), set(kept.texts)) == (
            before.scorer,
            set(before.pictures),
            set(before.texts),
        )
        if kept.scorer and not same:
            write_embeddings(self._file, kept)
        for path in self._part_files():
            path.unlink(missing_ok=True)

    @property
    def _is_optional(self) -> bool:
        return self.settings.score_model == AUTO_SCORER

    @property
    def _file(self) -> Path:
        return self.folder / "clip-vectors.safetensors"

    @property
    def _parts(self) -> Path:
        return self.folder / "parts"

    def _part_files(self) -> Sequence[Path]:
        return sorted(self._parts.glob("*.safetensors")) if self._parts.is_dir() else []


@lru_cache(maxsize=1)
def _attempt(model: str, device: str) -> _Ready | str:
    """Load the model once per process; why it cannot be had where it is the optional one."""
    from latentmill.stages.captioning.scorer import load_scorer

    try:
        files = find_scorer(model, may_fetch=True)
        assert files is not None  # With the network allowed a failure raises.
        return _Ready(load_scorer(files, device), files.identity())
    except ModelError as error:
        if model != AUTO_SCORER:
            raise
        return error.what


def _lacking(pairs: Sequence[Pair], known: Embeddings) -> list[Pair]:
    return [
        pair
        for pair in pairs
        if pair.record.pixels not in known.pictures or pair.caption not in known.texts
    ]


def _is_off(reason: str) -> Problem:
    return Problem(
        "",
        "review.csv",
        "clip-score-off",
        f"pictures and captions were not compared: {reason}",
        "name a local CLIP model with caption.score_model=DIR, or `none` for no comparison",
        "advice",
    )


def _not_scored(record: Record, reason: str) -> Problem:
    return Problem(
        record.id,
        printable(record.path),
        "score-failed",
        f"picture and caption were not compared: {reason}",
        "run `latentmill validate` again, then `latentmill caption`",
    )
