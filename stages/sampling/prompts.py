"""The captions that a LoRA was trained on, to make pictures of."""

from collections.abc import Sequence
from pathlib import Path

from latentmill.datasets.errors import UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command
from latentmill.datasets.records import read_manifest
from latentmill.datasets.review import ReviewRow
from latentmill.datasets.review_memory import read_review
from latentmill.datasets.review_reading import parse_review
from latentmill.datasets.selection import select_samples
from latentmill.stages.settings import Source


def training_captions(
    layout: Layout, sources: Sequence[Source], run: Path | None, encoding: str
) -> list[str]:
    """The captions of the work folder, else of the run's snapshot, in the order of their ids.

    Raises UsageError when there is none of them.
    """
    captions: list[str] = []
    if layout.manifest.is_file():
        captions = _captions(layout.manifest, read_review(layout, encoding), sources)
    if not captions and run is not None and (run / "snapshot" / "manifest.jsonl").is_file():
        captions = _captions_of_snapshot(run / "snapshot", sources)
    if not captions:
        raise UsageError(
            "there is no prompt to make pictures of: none is set and the data has no captions",
            where=str(layout.work),
            fix="give prompts, or validate and caption this data",
            run=(
                Command("sample", settings=('sample.prompts=["a photo of my dog"]',)),
                Command("validate"),
                Command("caption"),
            ),
        )
    return captions


def _captions(
    manifest: Path, rows: Sequence[ReviewRow] | None, sources: Sequence[Source]
) -> list[str]:
    """Captions in the order of their ids; those of regularisation pictures only if all are such."""
    records = [record for record in read_manifest(manifest) if record.source < len(sources)]
    samples = select_samples(records, rows, sources, accept_drafts=True).samples
    subjects = [at for at in samples if not sources[at.record.source].is_regularisation]
    return [sample.caption for sample in subjects or samples]


def _captions_of_snapshot(snapshot: Path, sources: Sequence[Source]) -> list[str]:
    review = snapshot / "review.csv"
    rows = parse_review(review.read_bytes(), str(review)) if review.is_file() else None
    return _captions(snapshot / "manifest.jsonl", rows, sources)
