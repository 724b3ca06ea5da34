"""The names of the files in a work folder, written once."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths below `work`; nothing here touches the disk."""

    work: Path
    shared_cache: Path | None = None

    def stage(self, name: str) -> Path:
        """The folder of one stage."""
        return self.work / name

    def report(self, stage: str) -> Path:
        """The machine-readable report of one stage."""
        return self.work / stage / "report.json"

    @property
    def manifest(self) -> Path:
        """Usable pictures, written by `validate`."""
        return self.work / "validate" / "manifest.jsonl"

    @property
    def rejects(self) -> Path:
        """Pictures that cannot be used, each with its reason."""
        return self.work / "validate" / "rejects.jsonl"

    @property
    def review(self) -> Path:
        """The captions as people see and edit them."""
        return self.work / "review.csv"

    @property
    def buckets(self) -> Path:
        """Which picture goes to which bucket."""
        return self.work / "bucket" / "buckets.jsonl"

    @property
    def cache_folder(self) -> Path:
        """The folder of shards and of the records of works that use them."""
        return self.shared_cache or self.work / "cache"

    @property
    def shards(self) -> Path:
        """Encoded samples; may be shared by many works (`cache.dir`)."""
        return self.cache_folder / "shards"

    @property
    def cache_index(self) -> Path:
        """The shards and samples that this work trains on, written last by `cache`."""
        return self.work / "cache" / "index.json"

    @property
    def runs(self) -> Path:
        """One folder per training run."""
        return self.work / "runs"
