"""What a run was trained on becomes the size of its samples and the layer of the text encoder."""

import logging
import tomllib
from collections import Counter
from pathlib import Path

from latentmill.cache.index import read_set_index
from latentmill.datasets.errors import DataError
from latentmill.datasets.layout import Layout

log = logging.getLogger(__name__)


def usual_size(layout: Layout) -> tuple[int, int]:
    """Return the bucket that most training pictures have, in px; zeros when nothing is cached.

    The sides are rounded to multiples of 8, which diffusers asks for.
    """
    if not layout.cache_index.is_file():
        return 0, 0
    try:
        samples = read_set_index(layout.cache_index).samples
    except DataError as error:
        log.warning("%s; pictures get the model's own size", error.what)
        return 0, 0
    subjects = [sample for sample in samples if not sample.is_regularisation]
    counts = Counter(sample.bucket for sample in subjects or samples)
    if not counts:
        return 0, 0
    label = min(counts, key=lambda bucket: (-counts[bucket], bucket))
    width, height = (round(int(side) / 8) * 8 for side in label.split("x"))
    return width, height


def trained_clip_skip(run: Path | None) -> int:
    """Return the text encoder's layer that the run was trained on, as its configuration says."""
    config = run / "config.toml" if run else None
    if config is None or not config.is_file():
        return 1
    try:
        return int(tomllib.loads(config.read_text("utf-8"))["cache"]["clip_skip"])
    except (ValueError, KeyError, TypeError):
        log.warning("%s names no cache.clip_skip; the last layer is used", config)
        return 1
