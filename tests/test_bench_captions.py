"""A slice of `make bench-captions`: no caption is silently wrong in a folder of five and more."""

import random
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benches"))
from bench_captions import KINDS, MIXES, SEED, Cell, count_outcomes, draw_folder
from caption_words import HELD_OUT, TUNED, words


@pytest.mark.parametrize(("language", "encoding"), KINDS)
def test_no_caption_of_a_folder_is_silently_wrong(language: str, encoding: str) -> None:
    chance = random.Random(SEED)
    counts: Counter[str] = Counter()
    for mix in MIXES:
        for tags in ((1, 1), (2, 4), (5, 10)):
            cell = Cell(language, encoding, tags, 10, mix)
            counts += count_outcomes(draw_folder(cell, TUNED, chance))
            counts += count_outcomes(draw_folder(cell, HELD_OUT, chance))
    assert counts["wrong"] == 0
    assert counts["right"] > counts["asked"]


def test_the_generator_is_pinned() -> None:
    cell = Cell("French", "cp1252", (2, 4), 5, "half UTF-8")
    drawn = [draw_folder(cell, TUNED, random.Random(SEED)) for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert [truth.encode("cp1252") == data for truth, data in drawn[0]][::2] == [True] * 3


def test_the_held_out_words_are_others() -> None:
    for language in TUNED:
        shared = set(words(TUNED, language)) & set(words(HELD_OUT, language))
        assert len(words(TUNED, language)) > 100
        assert len(shared) < 3
