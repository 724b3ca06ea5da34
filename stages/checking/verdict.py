"""What was found and decoded -> records of usable pictures, and every problem; nothing is lost."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from latentmill.datasets.images import LoadRules
from latentmill.datasets.pairing import DEFAULT_SUFFIXES
from latentmill.datasets.records import Problem, Record
from latentmill.datasets.sources import FoundPicture, Scan, assign_ids, name_twins
from latentmill.datasets.words import counted
from latentmill.stages.checking.decoded import Decoded
from latentmill.stages.checking.duplicates import (
    DUPLICATE_CODES,
    Candidate,
    Group,
    find_groups,
)
from latentmill.stages.checking.findings import Subject, problem, worst_first
from latentmill.stages.checking.found_captions import FoundCaption, SourceCaptions, find_captions
from latentmill.stages.checking.quality import quality_messages
from latentmill.stages.settings import Source, ValidateSettings


@dataclass(frozen=True, slots=True)
class Verdict:
    """Usable pictures in (source, path) order, problems worst first, ledger, groups of copies."""

    records: tuple[Record, ...]
    problems: tuple[Problem, ...]
    counts: Mapping[str, int]
    groups: tuple[Group, ...] = ()

    @property
    def rejects(self) -> tuple[Problem, ...]:
        """Why pictures are not used, one problem each."""
        return tuple(one for one in self.problems if one.level == "reject")


@dataclass(frozen=True, slots=True)
class _Usable:
    """A record, with messages that say more about some of its codes."""

    record: Record
    messages: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Bench:
    """What every picture is judged by."""

    known: Mapping[str, Decoded]
    rules: LoadRules
    settings: ValidateSettings
    ids: Mapping[tuple[int, str], str]
    folders: Sequence[str]


def judge(
    scans: Sequence[Scan],
    known: Mapping[str, Decoded],
    rules: LoadRules,
    settings: ValidateSettings,
    folders: Sequence[str],
    sources: Sequence[Source] = (),
) -> Verdict:
    """Make each found picture either a record or a reject. `folders` precede paths in problems."""
    ids = assign_ids(picture for one in scans for picture in one.pictures)
    bench = _Bench(known, rules, settings, ids, folders)
    usable: list[_Usable] = []
    problems: list[Problem] = []
    ignored = 0
    for one in scans:
        source = sources[one.source] if sources else Source(path=str(one.folder))
        encoding = settings.encoding if source.encoding == "auto" else source.encoding
        captions = find_captions(one, encoding, source.trigger)
        prefix = folders[one.source]
        problems += [replace(each, path=prefix + each.path) for each in captions.problems]
        problems += _folder_problems(one, prefix)
        ignored += sum(one.ignored.values()) + captions.unused
        for picture in one.pictures:
            reject = _reject(picture, bench)
            if reject is not None:
                problems.append(reject)
            else:
                usable.append(_usable(picture, captions, bench))
    groups = _groups(usable, bench)
    usable = _with_set_codes(usable, scans, groups)
    problems += [each for one in usable for each in _record_problems(one, folders)]
    problems += _no_captions(usable, scans)
    records = tuple(one.record for one in usable)
    counts = _counts(records, problems, ignored)
    return Verdict(records, worst_first(problems), counts, groups)


def _reject(picture: FoundPicture, bench: _Bench) -> Problem | None:
    subject = Subject(
        bench.ids[picture.source, picture.path], bench.folders[picture.source] + picture.path
    )
    seen = bench.known.get(picture.file)
    if seen is None or (seen.bytes, seen.modified_ns) != (picture.bytes, picture.modified_ns):
        return problem("changed-during-run", subject)
    if seen.code:
        return Problem(subject.id, subject.path, seen.code, seen.message, seen.fix, "reject")
    return unfit(seen, subject, bench.settings)


def unfit(seen: Decoded, subject: Subject, settings: ValidateSettings) -> Problem | None:
    """Tell what makes a picture that can be decoded unfit for training, if anything does."""
    size = f"{seen.width} x {seen.height} px"
    short, long = sorted((seen.width, seen.height))
    if short < settings.min_side:
        least = f"a side is shorter than `validate.min_side` ({settings.min_side} px)"
        return problem("too-small", subject, f"{size}: {least}")
    if long / short > settings.max_aspect:
        cut = 1 - settings.max_aspect * short / long
        limit = f"longer than {settings.max_aspect:g}:1 (`validate.max_aspect`)"
        what = f"{size}: {limit}; {cut:.0%} and more of it would be cropped away"
        return problem("extreme-aspect", subject, what)
    if seen.colour:
        return problem("single-colour", subject, f"All pixels are {seen.colour}")
    return None


def _usable(picture: FoundPicture, captions: SourceCaptions, bench: _Bench) -> _Usable:
    seen, caption = bench.known[picture.file], captions.by_picture[picture.path]
    quality = quality_messages(seen, bench.settings)
    record = Record(
        bench.ids[picture.source, picture.path],
        picture.source,
        picture.path,
        picture.file,
        picture.bytes,
        picture.modified_ns,
        seen.format,
        seen.width,
        seen.height,
        seen.pixels,
        caption.text,
        caption.file,
        caption.encoding,
        (*seen.notes, *quality, *caption.codes),
        tuple(caption.checks),
    )
    return _Usable(record, {**_messages(seen, picture, caption), **quality})


def _messages(seen: Decoded, picture: FoundPicture, caption: FoundCaption) -> dict[str, str]:
    messages = dict(caption.messages)
    if "name-does-not-match" in seen.notes:
        ending = picture.path.rpartition(".")[2]
        messages["name-does-not-match"] = f"The content is {seen.format}, the name says .{ending}"
    return messages


def _groups(usable: Sequence[_Usable], bench: _Bench) -> tuple[Group, ...]:
    candidates = [
        Candidate(one.record, bench.folders[one.record.source] + one.record.path, measures)
        for one in usable
        if (measures := bench.known[one.record.file].measures) is not None
    ]
    return find_groups(candidates, bench.settings.near_distance)


def _with_set_codes(
    usable: Sequence[_Usable], scans: Sequence[Scan], groups: Sequence[Group]
) -> list[_Usable]:
    """Add the codes that show only when pictures are compared with one another."""
    copies = {one.id: one for group in groups for one in group.members}
    twins = {
        (one.source, path): ", ".join(other for other in group if other != path)
        for one in scans
        for group in name_twins(picture.path for picture in one.pictures)
        for path in group
    }
    captioned = any(one.record.caption is not None for one in usable)
    result = []
    for one in usable:
        record, added = one.record, dict[str, str]()
        copy = copies.get(record.id)
        if copy is not None and copy.relation != "best":
            added[DUPLICATE_CODES[copy.relation]] = copy.message
        if (record.source, record.path) in twins:
            others = twins[record.source, record.path]
            added["name-twins"] = f"Differs only in letter case or Unicode form from {others}"
        if captioned and record.caption is None and "caption-empty" not in record.codes:
            added["caption-missing"] = ""
        changed = replace(record, codes=(*record.codes, *added))
        result.append(_Usable(changed, {**one.messages, **added}))
    return result


def _record_problems(one: _Usable, folders: Sequence[str]) -> Iterator[Problem]:
    record = one.record
    subject = Subject(record.id, folders[record.source] + record.path)
    for code in (*record.checks, *record.codes):
        yield problem(code, subject, one.messages.get(code, ""))


def _folder_problems(found: Scan, prefix: str) -> Iterator[Problem]:
    for path in found.unreadable:
        yield problem("folder-unreadable", Subject("", prefix + path))
    for path, count in found.hidden.items():
        what = "A hidden picture is" if count == 1 else f"{count} hidden pictures are"
        yield problem("hidden-pictures", Subject("", prefix + path), f"{what} passed over")


def _no_captions(usable: Sequence[_Usable], scans: Sequence[Scan]) -> Iterator[Problem]:
    """Say where captions were looked for, and which endings lie there instead."""
    if not usable or any(one.record.caption is not None for one in usable):
        return
    endings: dict[str, int] = {}
    for one in scans:
        for ending, count in one.suffixes.items():
            endings[ending] = endings.get(ending, 0) + count
    found = ", ".join(f"{ending} ({count})" for ending, count in list(endings.items())[:8])
    looked = f"{', '.join(DEFAULT_SUFFIXES)} or the source's `caption_extension` beside pictures"
    yield problem(
        "no-captions",
        Subject("", ""),
        f"None of {counted(len(usable), 'picture')} has a caption. Looked for {looked}, "
        "metadata.jsonl, metadata.csv and tables of filename,prompt; "
        f"other files here: {found or 'none'}",
    )


def _counts(records: Sequence[Record], problems: Sequence[Problem], ignored: int) -> dict[str, int]:
    rejected = sum(one.level == "reject" for one in problems)
    captioned = sum(record.caption is not None for record in records)
    return {
        "found": len(records) + rejected,
        "usable": len(records),
        "rejected": rejected,
        "ignored": ignored,
        "repaired": 0,
        "warned": sum(bool(record.codes or record.checks) for record in records),
        "captioned": captioned,
        "uncaptioned": len(records) - captioned,
        "unsure": sum(bool(record.checks) for record in records),
    }
