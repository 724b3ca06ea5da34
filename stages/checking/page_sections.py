"""What was found -> the sections of the report that show pictures, each limited in number."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

from latentmill.datasets.records import Problem, Record
from latentmill.stages.checking.facts import Histogram
from latentmill.stages.checking.groups import Group
from latentmill.stages.checking.page_parts import chart, figure, grid, group_lines, repair, shown
from latentmill.stages.checking.repairs import Repair
from latentmill.stages.checking.thumbnails import Thumbnails

MOST_ASKED = 40
MOST_GROUPED = 80
MOST_REPAIRS = 24


@dataclass(frozen=True, slots=True)
class Found:
    """What the page shows, beside the report.

    `unsure` are the records whose caption waits for a person, `originals` the user's files by id,
    `sample` the ids of pictures drawn at random, rejected ones among them.
    """

    records: tuple[Record, ...]
    unsure: tuple[Record, ...]
    groups: tuple[Group, ...]
    repairs: tuple[Repair, ...]
    originals: Mapping[str, Path]
    sample: frozenset[str]
    histograms: tuple[Histogram, ...]

    def facts(self) -> dict[str, object]:
        """The same for `report.json`; the manifest has the records."""
        return {
            "groups": [asdict(one) for one in self.groups],
            "repairs": [asdict(one) for one in self.repairs],
            "histograms": [asdict(one) for one in self.histograms],
        }


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page; without `parts` it is left out."""

    name: str
    title: str
    parts: tuple[str, ...]


def picture_sections(
    problems: Sequence[Problem], found: Found, thumbnails: Thumbnails
) -> tuple[Section, ...]:
    """Make the thumbnails that are missing, show them, and put away those not shown any more."""
    by_id = {record.id: record for record in found.records}
    asked = found.unsure[:MOST_ASKED]
    groups = _first_groups(found.groups)
    repairs = found.repairs[:MOST_REPAIRS]
    chosen = {*found.sample, *(one.id for one in asked), *(one.id for one in repairs)}
    chosen |= {member for group in groups for member in group.ids}
    drawn = [record for record in found.records if record.id in chosen]
    pictures = thumbnails.show(drawn, found.sample)
    before = thumbnails.show_before([by_id[one.id] for one in repairs], found.originals)
    thumbnails.keep_only(drawn, found.sample)
    return (
        Section("captions", "Captions to confirm", tuple(_asked(asked, found, pictures, problems))),
        Section("alike", "Pictures that are alike", tuple(_alike(groups, found, by_id, pictures))),
        Section("repairs", "Repairs", tuple(_repairs(repairs, found, before, pictures))),
        Section("spread", "Sizes, shapes, captions", _charts(found)),
        Section("sample", "Pictures and captions", tuple(_sample(found, pictures))),
    )


def _first_groups(groups: Sequence[Group]) -> list[Group]:
    chosen: list[Group] = []
    for group in groups:
        if sum(len(one.ids) for one in chosen) + len(group.ids) > MOST_GROUPED:
            return chosen or [Group(group.kind, group.ids[:MOST_GROUPED], group.best)]
        chosen.append(group)
    return chosen


def _asked(
    asked: Sequence[Record],
    found: Found,
    pictures: Mapping[str, str],
    problems: Sequence[Problem],
) -> Iterator[str]:
    if not asked:
        return
    messages = {one.id: one.message for one in problems if one.level == "check"}
    yield _limit(len(asked), len(found.unsure))
    yield grid(
        figure(
            record, pictures.get(record.id), f"<small>{shown(messages.get(record.id, ''))}</small>"
        )
        for record in asked
    )


def _alike(
    groups: Sequence[Group],
    found: Found,
    records: Mapping[str, Record],
    pictures: Mapping[str, str],
) -> Iterator[str]:
    if not groups:
        return
    yield _limit(len(groups), len(found.groups), "groups")
    yield from group_lines(groups, records, pictures)


def _repairs(
    repairs: Sequence[Repair],
    found: Found,
    before: Mapping[str, str],
    after: Mapping[str, str],
) -> Iterator[str]:
    if not repairs:
        return
    yield _limit(len(repairs), len(found.repairs), "repairs")
    yield (
        '<p class="quiet">Before: as other programs read the file. After: the copy in '
        "<code>fixed/</code>. Your own files are unchanged.</p>"
    )
    pairs = (repair(one, before, after) for one in repairs)
    yield f'<div class="pairs">{"".join(pairs)}</div>'


def _charts(found: Found) -> tuple[str, ...]:
    if not found.records:
        return ()
    return (f'<div class="charts">{"".join(chart(one) for one in found.histograms)}</div>',)


def _sample(found: Found, pictures: Mapping[str, str]) -> Iterator[str]:
    drawn = [record for record in found.records if record.id in found.sample]
    if not drawn:
        return
    yield '<p class="quiet">Does each caption say what its picture shows?</p>'
    yield _limit(len(drawn), len(found.records), "pictures, drawn at random")
    yield grid(figure(record, pictures.get(record.id)) for record in drawn)


def _limit(num_shown: int, total: int, what: str = "captions") -> str:
    if num_shown == total:
        return ""
    return f'<p class="quiet">{num_shown} of {total} {escape(what)}; report.json has all.</p>'
