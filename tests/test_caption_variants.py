from hypothesis import given
from hypothesis import strategies as st

from latentmill.datasets.caption_variants import VariantRules, caption_variants, prompt_weights

TAGS = st.lists(st.text("abcdefg ", min_size=1).map(str.strip).filter(bool), max_size=8)


@given(TAGS, st.integers(1, 9), st.integers(0, 4))
def test_variants_keep_every_tag_and_the_first_in_place(
    tags: list[str], count: int, keep: int
) -> None:
    caption = ", ".join(tags)
    texts = caption_variants(caption, "", VariantRules(count, keep))
    assert texts[0] == caption
    assert 1 <= len(texts) <= count
    assert len(set(texts)) == len(texts)
    for text in texts[1:]:
        assert sorted(text.split(", ")) == sorted(tags)
        assert text.split(", ")[:keep] == tags[:keep]
    assert texts == caption_variants(caption, "", VariantRules(count, keep))
    assert set(texts) <= set(caption_variants(caption, "", VariantRules(count + 3, keep)))


def test_known_variants_stay_what_they_are() -> None:
    rules = VariantRules(count=3, keep=1)
    assert caption_variants("zwx, a, b, c, d", "", rules) == (
        "zwx, a, b, c, d",
        "zwx, c, a, b, d",
        "zwx, a, d, c, b",
    )


def test_the_trigger_stays_in_front() -> None:
    texts = caption_variants("zwx, dog, a, b, c, d", "zwx, dog", VariantRules(20, 0))
    assert len(texts) > 10
    assert all(text.startswith("zwx, dog, ") for text in texts)


def test_dropout_leaves_out_its_share_and_never_the_first() -> None:
    tags = [f"t{number}" for number in range(40)]
    texts = caption_variants(", ".join(tags), "", VariantRules(60, 2, 0.25))
    assert texts[0] == ", ".join(tags)
    lengths = [len(text.split(", ")) for text in texts[1:]]
    assert 0.7 < (sum(lengths) / len(lengths) - 2) / 38 < 0.8
    assert all(text.startswith("t0, t1") for text in texts)


def test_alternatives_each_get_the_trigger() -> None:
    rules = VariantRules(separator="|")
    texts = caption_variants("zwx, a dog | a brown dog || zwx, asleep", "zwx", rules)
    assert texts == ("zwx, a dog", "zwx, a brown dog", "zwx, asleep")
    assert caption_variants("", "", rules) == ("",)
    assert caption_variants("a | b", "", VariantRules()) == ("a | b",)


def test_prompt_weights_are_found_and_nothing_else() -> None:
    assert prompt_weights("a (red:1.3) car, (a big dog:0.8), (b:-.5)") == [
        "(red:1.3)",
        "(a big dog:0.8)",
        "(b:-.5)",
    ]
    assert prompt_weights("fate (series), re:zero, ratio 3:4, (a: b), (at 12:30 today)") == []
