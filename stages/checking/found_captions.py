"""Caption files and tables of one source -> the caption of each picture, and what is odd in them.

Of several captions for a picture the first that is not empty counts, in this order: `.txt`,
`.caption`, table. A difference between them is reported.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from latentmill.cache.clip_tokens import LONGEST as LONGEST_INPUT
from latentmill.cache.clip_tokens import count_tokens, may_be_too_long, unread_part
from latentmill.datasets.caption_content import Caption, clean_caption, is_file_name, quoted
from latentmill.datasets.captions import LONGEST, MAX_BYTES, Reading, read_texts
from latentmill.datasets.filekinds import content_kind, is_picture_content
from latentmill.datasets.metadata import TABLE_NAMES, may_be_table, read_table
from latentmill.datasets.records import Problem
from latentmill.datasets.selection import with_trigger
from latentmill.datasets.sources import Scan, stem_twins
from latentmill.stages.checking.findings import Subject, problem

MAX_TABLE_BYTES = 1 << 28
_NO_CAPTIONS = frozenset(
    {"readme", "read me", "license", "licence", "copying", "notice", "changelog", "credits"}
    | {"source", "sources", "urls", "links", "index", "notes", "todo", "classes", "requirements"}
)
"""Stems of text files that come with data sets and are no one's caption."""


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


def find_captions(scan: Scan, encoding: str, trigger: str = "") -> SourceCaptions:
    """Read all captions of a source anew; nothing is raised for what cannot be read.

    The `trigger` counts when a caption is too long for CLIP.
    """
    contents: dict[str, bytes] = {}
    orphans = [path for path in scan.pairing.orphans if not _is_no_caption(path)]
    problems = list(_orphan_problems(orphans, scan))
    for path in sorted({path for paths in scan.pairing.captions.values() for path in paths}):
        data = _read(scan, path, MAX_BYTES)
        if data is None:
            problems.append(problem("caption-unreadable", Subject("", path)))
        elif len(data) > MAX_BYTES:
            problems.append(_too_long(path, "More than 1 MiB: no caption"))
        elif is_picture_content(data):
            what = f"A {content_kind(data)} picture under the name of a caption"
            misnamed = problem("caption-unreadable", Subject("", path), what)
            problems.append(replace(misnamed, fix="Put the caption's text in its place."))
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
        _compare_with_name(found[picture.path], picture.path)
        _measure(found[picture.path], trigger)
    _report_shared(scan, found)
    problems += _marks(contents)
    unused = len(scan.tables) - len(tables) + len(scan.pairing.orphans) - len(orphans)
    return SourceCaptions(found, tuple(problems), unused)


def _is_no_caption(path: str) -> bool:
    return path.rpartition("/")[2].rpartition(".")[0].casefold() in _NO_CAPTIONS


def _orphan_problems(orphans: list[str], scan: Scan) -> Iterator[Problem]:
    """Name the picture that an orphan is probably meant for: only case or blanks differ."""
    loose = {_loose(picture.path): picture.path for picture in scan.pictures} if orphans else {}
    for path in orphans:
        near = loose.get(_loose(path))
        message = f"No picture is named so; is it meant for {near}?" if near else ""
        yield problem("caption-orphan", Subject("", path), message)


def _loose(path: str) -> str:
    stem = path.rpartition(".")[0]
    return "".join(char for char in stem.casefold() if char not in " _-")


def _marks(contents: Mapping[str, bytes]) -> Iterator[Problem]:
    """Count what is read right here, but not by other trainers."""
    marks = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
    counts = {
        "captions-with-mark": [path for path, data in contents.items() if data.startswith(marks)],
        "captions-with-crlf": [
            path for path, data in contents.items() if b"\r\n" in data and data.strip()
        ],
    }
    for code, paths in counts.items():
        if paths:
            message = f"{len(paths)} of {len(contents)} caption files, such as {paths[0]}"
            yield problem(code, Subject("", ""), message)


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
        if candidates[0].reading.text:
            found.messages["caption-empty"] = f"{found.file} holds only white space"
        return found
    chosen = filled[0]
    found.text, found.file = chosen.caption.text, chosen.file
    found.encoding = chosen.reading.encoding
    reading = chosen.reading
    if _concerns(chosen):
        found.codes += [reading.code] if reading.code else []
        found.checks += [reading.check] if reading.check else []
        found.messages[reading.check or reading.code] = f"{chosen.file}: {reading.message}"
    found.codes += chosen.caption.codes
    found.checks += [one.code for one in chosen.caption.checks]
    for one in (*chosen.caption.doubts, *chosen.caption.checks):
        found.messages[one.code] = f"{chosen.file}: {one.message}" if one.message else ""
    other = next((one for one in filled if one.caption.text != found.text), None)
    if other is not None:
        said = f"{chosen.file} is used: {quoted(found.text or '')}; {other.file} says otherwise: "
        found.codes.append("caption-conflict")
        found.messages["caption-conflict"] = said + quoted(other.caption.text or "")
    return found


def _compare_with_name(found: FoundCaption, picture: str) -> None:
    if found.text is not None and is_file_name(found.text, picture):
        found.codes.append("caption-file-name")


def _measure(found: FoundCaption, trigger: str) -> None:
    """Show the part of a caption that the text encoder does not read."""
    text = with_trigger(found.text or "", trigger)
    if found.text is None or not may_be_too_long(text):
        return
    (tokens,) = count_tokens([text])
    if tokens > LONGEST_INPUT:
        said = f"{tokens} CLIP tokens, {LONGEST_INPUT} are read; cut off: "
        found.codes.append("long")
        found.messages["long"] = said + quoted(unread_part(text))


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
