import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmill.datasets.display import shortened, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a cat, 猫 🐈 é", "a cat, 猫 🐈 é"),
        ("👩\u200d🚀", "👩\u200d🚀"),
        ("a\nb\tc\x00", r"a\nb\tc\x00"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("photo\u202egnp.exe", r"photo\u202egnp.exe"),
        ("\udcff", r"\udcff"),
        ("\ufeffa", r"\ufeffa"),
        ("a\u2028b", r"a\u2028b"),
        ("<b> & [red]", "<b> & [red]"),
    ],
)
def test_what_disturbs_is_spelt_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_the_result_is_one_line_of_valid_text(text: str) -> None:
    shown = visible(text)
    shown.encode("utf-8")
    assert len(shown.splitlines()) <= 1
    assert not any(unicodedata.category(char) in ("Cc", "Cs") for char in shown)


def test_texts_are_cut_at_their_end() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abcde…"
