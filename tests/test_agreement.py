import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmill.datasets.agreement import Fit, Verdict, fits, is_readable, verdicts


def unit(rows):
    values = numpy.array(rows, dtype=numpy.float32)
    return values / numpy.linalg.norm(values, axis=1, keepdims=True)


def sound_set(num):
    """Pairs that fit at 0.28 to 0.34, each better than any strange one by 0.06 to 0.1."""
    return [
        Fit(0.28 + 0.01 * (place % 7), 0.22 + 0.01 * (place * 3 % 5), 0) for place in range(num)
    ]


def test_a_fit_names_the_best_match_among_rows_of_other_captions():
    pictures = unit([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    texts = unit([[1, 0, 0], [0, 1, 0], [0, 1, 0.001]])
    own, other, wrong = fits(pictures, texts, ["red", "green", "blue"])
    assert own == Fit(1.0, 0.0, own.rival)
    assert other.own == 1.0
    assert wrong.own == pytest.approx(0.001, abs=1e-5)
    assert (wrong.other, wrong.rival) == (pytest.approx(1.0, abs=1e-5), 1)


def test_the_picture_s_own_side_counts_too():
    pictures = unit([[1, 0], [1, 0.1]])
    texts = unit([[1, 0], [0, 1]])
    assert fits(pictures, texts, ["a", "b"])[1].rival == 0
    assert fits(pictures, texts, ["a", "b"])[1].other == pytest.approx(0.995, abs=1e-3)


def test_rows_of_one_caption_are_no_rivals():
    pictures = unit([[1, 0], [0, 1]])
    texts = unit([[1, 0], [1, 0]])
    assert [fit.other for fit in fits(pictures, texts, ["A cat", "a cat"])] == [-1.0, -1.0]


def test_large_sets_are_taken_in_pieces(monkeypatch):
    noise = numpy.random.default_rng(0)
    pictures, texts = unit(noise.normal(size=(50, 8))), unit(noise.normal(size=(50, 8)))
    captions = [f"caption {place % 40}" for place in range(50)]
    whole = fits(pictures, texts, captions)
    monkeypatch.setattr("latentmill.datasets.agreement._ROWS_AT_ONCE", 7)
    pieces = fits(pictures, texts, captions)
    assert [fit.rival for fit in pieces] == [fit.rival for fit in whole]
    assert [fit.gap for fit in pieces] == pytest.approx([fit.gap for fit in whole])


def test_only_a_pair_far_from_the_set_is_strong():
    pairs = [*sound_set(20), Fit(0.24, 0.27, 3), Fit(0.10, 0.30, 5)]
    assert verdicts(pairs) == {20: Verdict(False, 3), 21: Verdict(True, 5)}


@pytest.mark.parametrize(
    ("num", "found"), [(6, {}), (7, {7: Verdict(False, 5)}), (11, {11: Verdict(True, 5)})]
)
def test_a_small_set_proves_less(num, found):
    assert verdicts([*sound_set(num), Fit(0.05, 0.32, 5)]) == found


def test_a_pair_that_fits_badly_but_better_than_all_others_is_left_alone():
    assert verdicts([*sound_set(20), Fit(0.10, 0.09, 0)]) == {}


def test_a_pair_that_fits_as_well_as_the_others_is_left_alone():
    assert verdicts([*sound_set(20), Fit(0.31, 0.45, 0)]) == {}


def test_near_twins_are_not_taken_for_outliers():
    twins = [Fit(0.300 + 0.0001 * place, 0.301, 0) for place in range(30)]
    assert verdicts([*twins, Fit(0.285, 0.306, 0)]) == {}


def test_a_third_of_wrong_pairs_is_still_found():
    wrong = [Fit(0.08, 0.32, 1)] * 8
    found = verdicts([*sound_set(20), *wrong])
    assert sorted(found) == list(range(20, 28))
    assert all(verdict.is_strong for verdict in found.values())


scores = st.floats(-1, 1, width=32)


@given(st.lists(st.builds(Fit, scores, scores, st.integers(0, 9)), max_size=40))
def test_what_is_named_is_always_low_and_beaten(pairs):
    from statistics import median

    found = verdicts(pairs)
    for place, verdict in found.items():
        assert pairs[place].own < median(fit.own for fit in pairs)
        assert pairs[place].gap >= (0.05 if verdict.is_strong else 0.02)
    assert len(found) <= len(pairs) / 2


@given(st.lists(st.builds(Fit, scores, scores, st.just(0)), max_size=25), scores)
def test_a_fit_that_gets_worse_never_clears_itself(pairs, own):
    for place in verdicts(pairs):
        worse = Fit(min(own, pairs[place].own), pairs[place].other, 0)
        assert place in verdicts([*pairs[:place], worse, *pairs[place + 1 :]])


@pytest.mark.parametrize(
    ("caption", "readable"),
    [
        ("a cat on a sofa", True),
        ("ein schöner Hund", True),
        ("一只猫坐在沙发上", False),
        ("кошка", False),
        ("zwx 一只猫坐在沙发上", False),
        ("12 34", False),
    ],
)
def test_captions_in_other_scripts_are_not_judged(caption, readable):
    assert is_readable(caption) is readable
