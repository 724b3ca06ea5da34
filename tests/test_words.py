"""Numbers and their nouns agree."""

import pytest

from latentmill.datasets.words import count_phrases, counted


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 pictures"), (1, "1 picture"), (2, "2 pictures")]
)
def test_a_noun_goes_with_its_number(number: int, words: str) -> None:
    assert counted(number, "picture") == words


def test_large_numbers_are_grouped_and_odd_plurals_given() -> None:
    assert counted(12_345, "entry", "entries") == "12,345 entries"


def test_counts_of_reports_read_as_people_say_them() -> None:
    ones = {"samples": 1, "encoded_latents": 1, "shards_written": 1, "rank": 8, "waiting": 0}
    assert count_phrases(ones) == ["1 sample", "1 encoded latent", "1 shard written", "rank 8"]
    many = {"optimizer_steps": 2, "samples_seen": 4, "held_out": 1}
    assert count_phrases(many) == ["2 optimiser steps", "4 samples seen", "1 held out"]
    assert count_phrases({"optimizer_steps": 1}) == ["1 optimiser step"]
