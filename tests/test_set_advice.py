from dataclasses import replace

import pytest

from latentmill.datasets.records import Record
from latentmill.stages.checking.set_advice import Plan, set_advice, suggest
from latentmill.stages.settings import Source

SUBJECT = Source(path="subject")


def records(texts: list[str], source: int = 0, size: tuple[int, int] = (700, 500)) -> list[Record]:
    """One picture a caption, of alternating shapes."""
    made = []
    for number, text in enumerate(texts):
        width, height = size if number % 2 else size[::-1]
        name = f"{source}-{number}.png"
        made.append(
            Record(name, source, name, name, 1, 1, "PNG", width, height, name, text or None)
        )
    return made


def said(found: list[Record], *sources: Source, plan: Plan = Plan()) -> dict[str, str]:  # noqa: B008
    problems = set_advice(found, sources or (SUBJECT,), plan)
    assert {one.level for one in problems} <= {"advice"}
    return {one.code: one.message for one in problems}


def many(count: int) -> list[str]:
    return [f"a dog with {number} balls on grass" for number in range(count)]


@pytest.mark.parametrize(
    ("count", "code"),
    [
        (1, "few-pictures"),
        (29, "few-pictures"),
        (30, "some-pictures"),
        (80, "some-pictures"),
        (81, ""),
        (100, ""),
        (101, "many-pictures"),
    ],
)
def test_the_size_of_the_set(count: int, code: str) -> None:
    assert set(said(records(many(count)))) == ({code} if code else set())


def test_the_advice_on_size_is_a_setting() -> None:
    message = said(records(many(20)))["few-pictures"]
    assert message == (
        "20 pictures, 20 samples an epoch, 4 a step: `--set train.epochs=160 --set train.rank=8` "
        "comes to 800 optimiser steps"
    )


@pytest.mark.parametrize("count", [1, 7, 29, 30, 80, 101, 400, 1000])
@pytest.mark.parametrize("a_step", [1, 4, 16])
def test_the_steps_come_to_some_800_to_2000(count: int, a_step: int) -> None:
    chosen = suggest(count, count, a_step)
    assert chosen.epochs >= 1
    assert 700 <= chosen.steps <= 2500
    assert chosen.rank == (8 if count < 30 else 16 if count <= 80 else 32)


def test_a_very_large_set_is_seen_once() -> None:
    assert suggest(40_000, 40_000, 4).epochs == 1


def test_repeats_count_as_samples() -> None:
    source = Source(path="subject", repeats=10)
    assert "200 samples an epoch" in said(records(many(20)), source)["few-pictures"]


def test_captions_that_many_pictures_share() -> None:
    found = said(records(["a dog"] * 60 + many(40)))
    assert (
        found["few-distinct-captions"] == '41 different captions for 100 pictures; 60 times "a dog"'
    )


def test_underscores() -> None:
    found = said(records([f"1girl, long_hair, {n} cats" for n in range(90)]))
    assert found["captions-with-underscores"] == "90 of 90 captions, such as long_hair"


def test_chinese_captions_and_their_tokens() -> None:
    chinese = [f"红色连衣裙, 长发, 微笑 {n}" for n in range(45)]
    found = said(records([*chinese, *many(45)]))
    assert found["captions-not-english"].startswith("45 of 90 captions (50%)")
    assert "45 of them East Asian" in found["captions-not-english"]
    assert "captions-in-several-languages" in found
    assert "captions-in-several-languages" not in said(records(chinese * 2))


def test_a_trigger_that_stands_further_on() -> None:
    texts = [f"a photo of zwx dog {n}" for n in range(85)] + many(4)
    found = said(records(texts), Source(path="s", trigger="zwx"))
    assert found["trigger-twice"].startswith('85 of 89 captions hold "zwx" further on')
    assert found["trigger-added"].startswith('4 of 89 captions lack "zwx"')


def test_a_trigger_in_front_of_all_or_none_is_fine() -> None:
    triggered = Source(path="s", trigger="zwx dog")
    assert said(records([f"zwx dog, {text}" for text in many(90)]), triggered) == {}
    assert said(records(many(90)), triggered) == {}


@pytest.mark.parametrize(("missing", "end"), [(0, ""), (9, ", 9 lack it")])
def test_a_made_up_word_in_nearly_all_captions(missing: int, end: str) -> None:
    texts = [f"photo of ohwx dog {n}" for n in range(90 - missing)] + many(missing)
    found = said(records(texts))
    assert found["trigger-unset"] == f'"ohwx" stands in {90 - missing} of 90 captions{end}'
    assert "trigger-unset" not in said(records([f"a brown dog {n}" for n in range(90)]))


def test_small_pictures() -> None:
    small = [replace(one, width=128, height=128) for one in records(many(40))]
    found = said([*small, *records(many(45))])
    assert found["small-pictures"] == (
        "40 of 85 pictures have less than half the pixels of 512 x 512; the smallest, "
        "128 x 128 px, is enlarged 4.0 times"
    )
    assert "small-pictures" not in said(small + records(many(45)), plan=Plan(128, 4))


def test_one_aspect_ratio() -> None:
    square = records(many(90), size=(600, 600))
    assert said(square) == {"one-aspect-ratio": "90 of 90 pictures are about 1.00 wide to high"}


def test_many_duplicates() -> None:
    alike = [replace(one, codes=("near-duplicate",)) for one in records(many(30))]
    found = said([*alike, *records(many(60))])
    assert found == {"many-duplicates": "30 of 90 pictures are (nearly) like another one"}


def test_unbalanced_sources() -> None:
    sources = Source(path="one", repeats=2), Source(path="two")
    found = said([*records(many(80)), *records(many(10), source=1)], *sources)
    assert found == {
        "sources-unbalanced": "one brings 160 samples an epoch, two 10; repeats = 16 for the "
        "latter would bring as many"
    }


def test_regularisation_names_its_class() -> None:
    classes = Source(path="class", is_regularisation=True)
    subject = records(many(90))
    mixed = records([f"{word}" for word in ("cat", "tree", "red hat", "boat", "sky")], source=1)
    found = said([*subject, *mixed], SUBJECT, classes)
    assert found["regularisation-without-class"].endswith("in more than 1 of 5 captions")
    assert said([*subject, *records(["a dog", "one dog"], source=1)], SUBJECT, classes) == {}


def test_no_pictures_need_no_advice() -> None:
    assert said([]) == {}
