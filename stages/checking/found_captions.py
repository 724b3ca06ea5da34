"""Caption files and tables of one source -> the caption of each picture, and what is odd in them.

Of several captions for a picture the first that is not empty counts, in this order: `.txt`,
`.caption`, table. A difference between them is reported.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from latentmill.datasets.captions import (
    LONGEST,
    MAX_BYTES,
    Caption,
    Reading,
    clean_caption,
    read_texts,
)
from latentmill.datasets.metadata import TABLE_NAMES, may_be_table, read_table
from latentmill.datasets.records import Problem
from latentmill.datasets.sources import Scan, stem_twins
from latentmill.stages.checking.findings import Subject, problem

MAX_TABLE_BYTES = 1 << 28


@dataclass(slots=True)
class FoundCaption:
    """The caption of one picture; `messages` say more about some of the codes and checks."""

    text: str | None = None
    file: str = ""
    encoding: str = ""
    codes: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    messages: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceCaptions:
    """Captions by the path of their picture; `unused` counts tables that hold none."""

    by_picture: Mapping[str, FoundCaption]
    problems: tuple[Problem, ...]
    unused: int


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One text meant for a picture."""

    file: str
    reading: Reading
    caption: Caption


def find_captions(scan: Scan, encoding: str) -> SourceCaptions:
    """Read all captions of a source anew; nothing is raised for what cannot be read."""
    contents: dict[str, bytes] = {}
    problems = [problem("caption-orphan", Subject("", path)) for path in scan.pairing.orphans]
    for path in sorted({path for paths in scan.pairing.captions.values() for path in paths}):
        data = _read(scan, path, MAX_BYTES)
        if data is None:
            problems.append(problem("caption-unreadable", Subject("", path)))
        elif len(data) > MAX_BYTES:
            problems.append(_too_long(path, "More than 1 MiB: no caption"))
        else:
            contents[path] = data
    tables = _table_contents(scan, problems)
    readings = read_texts({**contents, **tables}, encoding)
    rows = _table_rows(scan, {path: readings[path] for path in tables}, problems)
    problems += _misnamed_tables(scan)
    cleaned = {path: clean_caption(readings[path].text) for path in contents}
    found: dict[str, FoundCaption] = {}
    for picture in scan.pictures:
        sidecars = [
            _Candidate(path, readings[path], cleaned[path])
            for path in scan.pairing.captions.get(picture.path, ())
            if path in contents
        ]
        candidates = [*sidecars, *rows.get(picture.path, ())]
        fitting = [one for one in candidates if len(one.caption.text or "") <= LONGEST]
        for one in candidates:
            if one not in fitting:
                size = f"{len(one.caption.text or ''):,} characters; at most {LONGEST:,} are used"
                problems.append(_too_long(one.file, f"The caption of {picture.path} has {size}"))
        found[picture.path] = _choose(fitting)
    _report_shared(scan, found)
    return SourceCaptions(found, tuple(problems), len(scan.tables) - len(tables))


def _too_long(path: str, message: str) -> Problem:
    fix = "Shorten it; CLIP reads 77 tokens, some 300 letters."
    return replace(problem("caption-unreadable", Subject("", path), message), fix=fix)


def _read(scan: Scan, path: str, limit: int) -> bytes | None:
    """The file's bytes, one more than `limit` of a longer one; None when it cannot be read."""
    try:
        with (scan.folder / path).open("rb") as file:
            return file.read(limit + 1)
    except OSError:
        return None


def _table_contents(scan: Scan, problems: list[Problem]) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    for path in scan.tables:
        try:
            with (scan.folder / path).open("rb") as file:
                meant = may_be_table(path, file.read(4096))
        except OSError:
            meant = True
        data = _read(scan, path, MAX_TABLE_BYTES) if meant else b""
        if data is None:
            problems.append(problem("caption-unreadable", Subject("", path)))
        elif len(data) > MAX_TABLE_BYTES:
            what = f"A table above {MAX_TABLE_BYTES >> 20} MiB"
            large = problem("caption-unreadable", Subject("", path), what)
            problems.append(replace(large, fix="Divide it into several tables, one per folder."))
        elif meant:
            contents[path] = data
    return contents


def _table_rows(
    scan: Scan, readings: Mapping[str, Reading], problems: list[Problem]
) -> dict[str, list[_Candidate]]:
    pictures = [picture.path for picture in scan.pictures]
    rows: dict[str, list[_Candidate]] = {}
    for path, reading in readings.items():
        table = read_table(path, reading.text, pictures)
        for finding in table.findings:
            problems.append(problem(finding.code, Subject("", path), finding.message))
        for picture, text in table.captions.items():
            rows.setdefault(picture, []).append(_Candidate(path, reading, clean_caption(text)))
    return rows


def _misnamed_tables(scan: Scan) -> Iterator[Problem]:
    """Name files such as metadata.json: a typing slip there costs all captions without a word."""
    names = (*scan.tables, *scan.others)
    for path in names:
        name = path.rpartition("/")[2].casefold()
        if name.startswith("metadata.") and name not in TABLE_NAMES:
            yield problem("metadata-name", Subject("", path))


def _choose(candidates: list[_Candidate]) -> FoundCaption:
    found = FoundCaption()
    filled = [one for one in candidates if one.caption.text is not None]
    if not candidates:
        return found
    if not filled:
        found.file = candidates[0].file
        found.codes.append("caption-empty")
        return found
    chosen = filled[0]
    found.text, found.file = chosen.caption.text, chosen.file
    found.encoding = chosen.reading.encoding
    found.codes += chosen.caption.codes
    found.checks += chosen.caption.checks
    if chosen.reading.check and _concerns(chosen):
        found.checks.insert(0, chosen.reading.check)
        found.messages[chosen.reading.check] = f"{chosen.file}: {chosen.reading.message}"
    other = next((one for one in filled if one.caption.text != found.text), None)
    if other is not None:
        found.codes.append("caption-conflict")
        found.messages["caption-conflict"] = f"{chosen.file} is used, {other.file} says otherwise"
    return found


def _concerns(chosen: _Candidate) -> bool:
    """Tell whether a doubt about a file touches this caption: plain ASCII in a table is clear."""
    text = chosen.caption.text or ""
    return not (text.isascii() and text != clean_caption(chosen.reading.text).text)


def _report_shared(scan: Scan, found: Mapping[str, FoundCaption]) -> None:
    for group in stem_twins(picture.path for picture in scan.pictures):
        for path in group:
            file = found[path].file
            others = ", ".join(one for one in group if one != path and found[one].file == file)
            if others and found[path].text is not None and path in scan.pairing.captions:
                found[path].codes.append("caption-shared")
                found[path].messages["caption-shared"] = f"Shares {file} with {others}"
