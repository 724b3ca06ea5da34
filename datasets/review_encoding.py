"""The bytes of a saved `review.csv` to text: BOM, UTF-8, or the encoding its own rows prove."""

import codecs
import re
import unicodedata
from collections.abc import Mapping, Sequence

from latentmill.datasets.encodings import bits_in
from latentmill.datasets.errors import DataError
from latentmill.datasets.next_steps import Command

SPREADSHEET_ENCODINGS = (
    *("gb18030", "big5hkscs", "cp932", "cp949"),
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "mac_roman"),
)
"""What spreadsheet programs save as "CSV" or "ANSI", by locale."""
START_OVER = "move it away, and it is written as it last was"
WRITE_ANEW = Command("caption")
MOST_EVIDENCE = 200
"""About how many rows are looked for: enough to decide, and quick on 10,000 rows."""

Known = Mapping[str, Sequence[str]]
"""Texts that stood in a row when it was last known, by the row's id."""

ROW_ID = re.compile(r"p[0-9a-f]{15}")

_MARKS = (  # UTF-32 first: its little-endian mark begins like that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CUT_OFF = ("unexpected end of data", "truncated data", "incomplete multibyte sequence")
_LINE_END = re.compile(r"\r\n|\r|\n")
_SHOWN_READINGS = 4
_SHOWN_ROWS = 2
_SHOWN_CHARACTERS = 30


def decode_review(data: bytes, where: str, known: Known, encoding: str) -> str:
    """The text of `review.csv`, without a byte-order mark.

    A file without a mark is read in the one encoding in which rows say what they said before
    (`known`); else in the `encoding` that a person named (`auto` is none); else as UTF-8. Raises
    DataError when none of these decides.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return _decode_as(data[len(mark) :], name, where)
    if b"\0" in data[:2]:
        return _decode_as(data, "utf-16-be" if data[0] == 0 else "utf-16-le", where)
    if data.isascii():
        return data.decode("ascii")
    readings = _readings(data)
    proven = _prove(readings, known)
    if proven is not None:
        return proven
    if encoding != "auto":
        return _decode_as(data, encoding, where)
    if "utf-8" in readings and not _may_be_gbk(readings["utf-8"]):
        return readings["utf-8"]
    raise _ask(data, readings, where)


def _decode_as(data: bytes, encoding: str, where: str) -> str:
    try:
        return _decoded(data, encoding)
    except (UnicodeError, LookupError) as error:
        line = data[: getattr(error, "start", 0)].count(b"\n") + 1
        raise DataError(
            f"review.csv cannot be read as {encoding}",
            where=f"{where}, line {line}: {error}",
            expected="text in one encoding from beginning to end",
            fix=f"save it again as `CSV UTF-8`, or {START_OVER}",
            run=(WRITE_ANEW,),
        ) from error


def _decoded(data: bytes, encoding: str) -> str:
    """The text; where the last character is cut off NUL stands for it, which ends no whole file."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        if error.reason not in _CUT_OFF or error.end < len(data):
            raise
        return data[: error.start].decode(encoding) + "\0"


def _readings(data: bytes) -> dict[str, str]:
    """Every encoding in which the whole file decodes, with its text; UTF-8 first."""
    readings = {}
    for name in ("utf-8", *SPREADSHEET_ENCODINGS):
        try:
            readings[name] = _decoded(data, name)
        except UnicodeDecodeError:
            continue
    return readings


def _prove(readings: Mapping[str, str], known: Known) -> str | None:
    """The one reading in which the most rows hold a text they held before; None without one.

    UTF-8 holds against others that do as well: hardly any other text is valid UTF-8.
    """
    evidence = _evidence(known)
    scores = {text: _num_unchanged(text, evidence) for text in readings.values()}
    best = max(scores.values(), default=0)
    winners = [text for text, score in scores.items() if score == best]
    if best == 0 or (len(winners) > 1 and winners[0] != readings.get("utf-8")):
        return None
    return winners[0]


def _evidence(known: Known) -> dict[str, list[str]]:
    """Texts beyond ASCII by row, in pieces that a CSV file holds as they are."""
    pieces = {
        identity: [
            piece for text in texts for piece in re.split(r'["\r\n]', text) if not piece.isascii()
        ]
        for identity, texts in known.items()
    }
    foreign = [identity for identity, found in pieces.items() if found]
    return {
        identity: pieces[identity] for identity in foreign[:: 1 + len(foreign) // MOST_EVIDENCE]
    }


def _num_unchanged(text: str, evidence: Mapping[str, Sequence[str]]) -> int:
    """In how many rows a piece stands; before the id too where it is not the first column."""
    ids = list(ROW_ID.finditer(text))
    ends = [match.start() for match in ids[1:]] + [len(text)]
    found = set()
    before = 0
    for match, end in zip(ids, ends, strict=False):
        is_first = text[before : match.start()].rstrip("\"'")[-1:] in ("\n", "\r")
        row = text[match.end() if is_first else before : end] if match.group() in evidence else ""
        if any(piece in row for piece in evidence.get(match.group(), ())):
            found.add(match.group())
        before = match.end()
    return len(found)


def _may_be_gbk(text: str) -> bool:
    """Whether valid UTF-8 reads as no language: 1,920 Chinese signs in GBK are valid UTF-8 too.

    They come out below U+0800, and not inside words such as `café`, nor words of one script.
    """
    words = [word for word in re.findall(r"[^\W\d_]+", text) if not word.isascii()]
    below = all(sign < "\u0800" for sign in text)
    return below and bool(words) and not any(_is_plausible(word) for word in words)


def _is_plausible(word: str) -> bool:
    scripts = {unicodedata.name(sign, "?").split(" ")[0] for sign in word}
    if scripts == {"LATIN"}:
        return any(sign.isascii() for sign in word)
    return len(scripts) == 1 and len(word) > 1


def _ask(data: bytes, readings: Mapping[str, str], where: str) -> DataError:
    lines = [n for n, line in enumerate(re.split(rb"\r\n|\r|\n", data)) if not line.isascii()]
    shown: dict[tuple[str, ...], str] = {}
    for name in sorted(readings, key=lambda name: _rank(name, readings[name])):
        texts = _LINE_END.split(readings[name])
        shown.setdefault(tuple(_foreign_part(texts[n]) for n in lines[:_SHOWN_ROWS]), name)
    ways = list(shown.items())[:_SHOWN_READINGS]
    if not ways:
        return DataError(
            "review.csv is in no one encoding from beginning to end: it is damaged",
            where=f"{where}, line {lines[0] + 1}",
            expected="UTF-8 with its mark, as latentmill wrote it",
            fix=f"in the spreadsheet save it again as `CSV UTF-8`, or {START_OVER}",
            run=(WRITE_ANEW,),
        )
    names = [name for _, name in ways]
    rows = [
        f"  as {name}: "
        + "; ".join(f"line {n + 1} {text!r}" for n, text in zip(lines, texts, strict=False))
        for texts, name in ways
    ]
    return DataError(
        "nothing in review.csv proves which encoding it was saved in:\n" + "\n".join(rows),
        where=where,
        expected="UTF-8 with its mark, as latentmill wrote it",
        fix="in the spreadsheet save as `CSV UTF-8`; or name the encoding that reads right",
        run=tuple(Command(settings=(f"caption.review_encoding={name}",)) for name in names),
    )


def _rank(name: str, text: str) -> tuple[bool, float]:
    """UTF-8 first, then by how likely a person wrote such a text."""
    foreign = [line for line in text.split("\n") if not line.isascii()]
    return name != "utf-8", bits_in("\n".join(foreign[:MOST_EVIDENCE]), name)


def _foreign_part(line: str) -> str:
    """The part of a line where its first sign beyond ASCII stands."""
    first = next((at for at, sign in enumerate(line) if not sign.isascii()), 0)
    return line[max(0, first - 10) : first + _SHOWN_CHARACTERS].strip()
