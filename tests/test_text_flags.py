import pytest

from latentmill.datasets.review import ReviewRow
from latentmill.datasets.review_memory import Memory, Written
from latentmill.stages.captioning.text_flags import flag_texts, is_vague


def flags_of(captions, trigger="", negative="", status="ok"):
    rows = {
        f"p{n}": Written(ReviewRow(f"p{n}", f"{n}.png", text, status), "a" * 64)
        for n, text in enumerate(captions)
    }
    flagged = flag_texts(Memory(rows), Memory(), dict.fromkeys(rows, trigger), negative)
    return [written.row.flags for written in flagged.rows.values()]


@pytest.mark.parametrize(
    "caption",
    [
        *("a person", "a picture of a dog", "this is a photo of the man", "dog", "an image"),
        *("there is a woman", "a cat.", "1girl", "\u4e00\u4e2a\u4eba", "\u732b"),
    ],
)
def test_a_caption_without_an_attribute_is_vague(caption):
    assert is_vague(caption)


@pytest.mark.parametrize(
    "caption",
    [
        *("a wet dog", "a dog in snow", "a dog running", "woman with a hat", "1girl, solo"),
        *("a painting of a cat", "a portrait of a man", "caf\u00e9 \u00e0 Paris"),
        *("\u7ea2\u8272\u7684\u732b", "\u732b, \u7ea2\u8272"),
    ],
)
def test_a_caption_with_an_attribute_is_not_vague(caption):
    assert not is_vague(caption)


def test_the_trigger_counts_as_no_attribute():
    assert flags_of(["zwx dog", "zwx dog, wet fur"], trigger="zwx dog") == [(), ()]
    assert flags_of(["zwx dog, a dog"], trigger="zwx dog") == [("vague",)]


@pytest.mark.parametrize(
    ("same", "others", "expected"),
    [(2, 0, False), (3, 0, True), (3, 57, True), (3, 58, False), (20, 1, True)],
)
def test_captions_of_many_pictures_are_flagged(same, others, expected):
    captions = ["a big dog in snow"] * same + [f"dog number {n}" for n in range(others)]
    flags = flags_of(captions)
    assert flags[:same] == [("repeated",) if expected else ()] * same
    assert flags[same:] == [()] * others


def test_case_punctuation_and_trigger_hide_no_repetition():
    captions = ["A big dog.", "a big dog", "zwx, a big  dog"]
    assert flags_of(captions, trigger="zwx") == [("repeated",)] * 3


def test_rows_set_aside_and_empty_ones_count_for_nothing():
    assert flags_of(["a dog", "a dog", "a dog", ""], status="skip") == [()] * 4
    assert flags_of(["", "", ""]) == [()] * 3


@pytest.mark.parametrize(
    "caption",
    [
        *("a dog, masterpiece", "Best Quality photo of a red dog", "best-quality wet dog"),
        *("score_9, a red dog", "a dog with deformed hands", "a blurry red dog", "a dog, 8K"),
    ],
)
def test_words_of_quality_are_flagged(caption):
    assert flags_of([caption], negative="low quality, blurry, deformed hands") == [
        ("quality-words",)
    ]


@pytest.mark.parametrize("caption", ["a blur of red dogs", "an old master with a dog", "18k gold"])
def test_words_that_only_look_like_quality_are_not_flagged(caption):
    assert flags_of([caption], negative="blurry, ,") == [()]


def test_flags_are_given_anew_and_others_stay():
    row = ReviewRow("p0", "0.png", "a wet dog", "check", flags=("picture-changed", "vague"))
    flagged = flag_texts(Memory({"p0": Written(row, "a")}), Memory(), {"p0": ""}, "")
    assert flagged.rows["p0"].row.flags == ("picture-changed",)
