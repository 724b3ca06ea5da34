"""The bytes of a saved `review.csv` to text: BOM, UTF-8, or the encoding its own texts prove."""

import codecs
import re
import unicodedata
from collections.abc import Collection

from latentmill.datasets.errors import DataError

SPREADSHEET_ENCODINGS = (
    *("gb18030", "big5hkscs", "cp932", "cp949"),
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "mac_roman"),
)
"""What spreadsheet programs save as "CSV" or "ANSI", by locale."""
START_OVER = "move it away and run `latentmill caption`, which writes it as it last was"
MOST_EVIDENCE = 200
"""About how many texts are looked for: enough to decide, and quick on 10,000 rows."""

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def decode_review(data: bytes, where: str, known: Collection[str], encoding: str) -> str:
    """The text of `review.csv`, without a byte-order mark.

    A file without a mark is read in the one encoding in which texts that latentmill wrote before
    (`known`) stand in it; else in the `encoding` that a person named (`auto` is none); else as
    UTF-8. Raises DataError when none of these decides.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return _decode_as(data[len(mark) :], name, where)
    if b"\0" in data[:2]:
        return _decode_as(data, "utf-16-be" if data[0] == 0 else "utf-16-le", where)
    foreign = [text for text in known if not text.isascii()]
    proven = _prove(data, foreign[:: 1 + len(foreign) // MOST_EVIDENCE])
    if proven is not None:
        return proven
    if encoding != "auto":
        return _decode_as(data, encoding, where)
    return _decode_unproven(data, where)


def _decode_as(data: bytes, encoding: str, where: str) -> str:
    try:
        return data.decode(encoding)
    except (UnicodeError, LookupError) as error:
        line = data[: getattr(error, "start", 0)].count(b"\n") + 1
        raise DataError(
            f"review.csv cannot be read as {encoding}",
            where=f"{where}, line {line}: {error}",
            expected="text in one encoding from beginning to end",
            fix=f"save it again as `CSV UTF-8`, or {START_OVER}",
        ) from error


def _prove(data: bytes, known: Collection[str]) -> str | None:
    """The one reading with the most known texts in it; None when there is not one."""
    readings = _readings(data)
    if data.isascii() or any(text in readings.get("utf-8", "") for text in known):
        return readings["utf-8"]
    scores = {text: sum(expected in text for expected in known) for text in readings.values()}
    best = max(scores.values(), default=0)
    winners = [text for text, score in scores.items() if score == best]
    return winners[0] if best and len(winners) == 1 else None


def _decode_unproven(data: bytes, where: str) -> str:
    text = _readings(data).get("utf-8")
    if text is not None and not _may_be_gbk(text):
        return text
    raise DataError(
        "nothing in review.csv proves which encoding it was saved in",
        where=f"{where}, {_first_foreign_line(data)}",
        expected="UTF-8 with its mark, as latentmill wrote it",
        fix="in the spreadsheet save as `CSV UTF-8`; or name the encoding, for instance "
        "`--set caption.review_encoding=gb18030` (or utf-8)",
    )


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


def _readings(data: bytes) -> dict[str, str]:
    """Every encoding in which the whole file decodes, with its text."""
    readings = {}
    for name in ("utf-8", *SPREADSHEET_ENCODINGS):
        try:
            readings[name] = data.decode(name)
        except UnicodeDecodeError:
            continue
    return readings


def _first_foreign_line(data: bytes) -> str:
    lines = data.splitlines()
    number = next(n for n, line in enumerate(lines, 1) if not line.isascii())
    shown = [
        f"{name} {lines[number - 1].decode(name, 'replace')[:60]!r}"
        for name in ("gb18030", "cp1252", "utf-8")
    ]
    return f"line {number}: as " + ", as ".join(shown)
