from hypothesis import given
from hypothesis import strategies as st

from latentmill.datasets.records import Record
from latentmill.stages.checking.duplicates import Group as Duplicates
from latentmill.stages.checking.duplicates import Member, Relation
from latentmill.stages.checking.facts import histograms
from latentmill.stages.checking.groups import Group, shown_groups


def record(name: str, size: tuple[int, int] = (64, 64), caption: str | None = "x") -> Record:
    return Record(
        name, 0, name, name, 1, 1, "PNG", *size, pixels=name, caption=caption, caption_file=""
    )


def counted(records: list[Record]) -> list[dict[str, int]]:
    return [{bar.label: bar.count for bar in one.bars if bar.count} for one in histograms(records)]


def test_sizes_shapes_and_captions_are_counted() -> None:
    records = [
        record("a", (255, 300)),
        record("b", (256, 256), None),
        record("c", (4096, 5000), "c" * 20),
        record("d", (1920, 1080), "d" * 21),
        record("e", (100, 590), "e" * 400),
    ]
    sides, shapes, captions = counted(records)
    assert sides == {"0 to 255": 2, "256 to 511": 1, "1024 to 1535": 1, "4096 and more": 1}
    assert shapes == {"1:3 and taller": 1, "3:4": 2, "1:1": 1, "16:9": 1}
    assert captions == {"none": 1, "1 to 20": 2, "21 to 40": 1, "321 and more": 1}


@given(st.lists(st.tuples(st.integers(1, 9000), st.integers(1, 9000)), max_size=20))
def test_every_picture_is_in_one_class_of_each(sizes: list[tuple[int, int]]) -> None:
    records = [record(str(number), size) for number, size in enumerate(sizes)]
    for histogram in histograms(records):
        assert sum(bar.count for bar in histogram.bars) == len(sizes)


def test_groups_are_shown_in_the_order_of_the_manifest_with_the_one_to_keep() -> None:
    members: list[tuple[str, Relation]] = [("c", "best"), ("b", "same-pixels"), ("a", "mirrored")]
    found = Duplicates("c", tuple(Member(name, name, kind, 0) for name, kind in members))
    shown = shown_groups([found], [record(name) for name in "abc"])
    assert shown == [Group("the same pixels, mirrored", ("a", "b", "c"), "c")]
