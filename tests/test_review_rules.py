import pytest
from pydantic import ValidationError

from latentmill.datasets.review_rules import rewrite
from latentmill.stages.settings import ReplaceRule


def rule(find, by="", regex=False):
    return ReplaceRule(find=find, by=by, regex=regex)


@pytest.mark.parametrize(
    ("text", "rules", "expected"),
    [
        ("a man in a hat", [rule("a man", "zwx man")], "zwx man in a hat"),
        ("A Man in a hat", [rule("a man", "zwx man")], "zwx man in a hat"),
        ("a mandolin", [rule("a man", "zwx man")], "a mandolin"),
        ("woman, a man", [rule("man", "person")], "woman, a person"),
        ("1girl, solo, red hair", [rule("solo")], "1girl, red hair"),
        ("solo, red hair, solo", [rule("solo")], "red hair"),
        ("a very big dog", [rule("very")], "a big dog"),
        ("a (big) dog", [rule("(big)", r"\1")], r"a \1 dog"),
        ("a cat", [rule("cat", "dog"), rule("dog", "wolf")], "a wolf"),
        ("img 12 of a dog", [rule(r"img (\d+) of", r"no \1,", True)], "no 12, a dog"),
        ("红色的猫", [rule("猫", "狗")], "红色的狗"),
        ("a  dog ,left  alone", [rule("cat", "x")], "a  dog ,left  alone"),
        ("a dog", [], "a dog"),
        ("solo", [rule("solo")], ""),
    ],
)
def test_rules_replace_whole_words_in_their_order(text, rules, expected):
    assert rewrite(text, rules) == expected


@pytest.mark.parametrize(("find", "by"), [("(", ""), ("a", r"\1"), ("[", ""), ("a", r"\g<x>")])
def test_a_bad_pattern_is_refused(find, by):
    with pytest.raises(ValidationError, match="no regular expression"):
        rule(find, by, True)
    assert rewrite(f"b {find}", [rule(find, by)]) == f"b {by}".strip()


def test_a_rule_that_finds_nothing_at_all_is_refused():
    with pytest.raises(ValidationError):
        rule("")
