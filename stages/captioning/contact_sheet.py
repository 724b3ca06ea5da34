"""Rows of the review to one self-contained page of thumbnails, captions, flags and ids."""

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from latentmill.cache.files import write_bytes, write_text
from latentmill.datasets.images import LoadRules, PictureError, load_picture
from latentmill.datasets.records import Record
from latentmill.datasets.review import ReviewRow, printable
from latentmill.datasets.words import counted

if TYPE_CHECKING:
    from PIL.Image import Image

THUMBNAIL_PX = 192
MOST_PICTURES = 200
"""More make a page of many megabytes; rows that wait come first, the others follow as text."""

_STYLE = """
body{font:15px/1.4 system-ui,sans-serif;margin:2em;color:#222;background:#fff}
main{display:grid;grid-template-columns:repeat(auto-fill,minmax(210px,1fr));gap:18px}
figure{margin:0;padding:9px;border:1px solid #ccc;border-radius:6px;break-inside:avoid}
figure.draft,figure.check{border-color:#c60}figure.skip{opacity:.5}
img{display:block;max-width:100%;max-height:192px;margin:0 auto 6px}
small{color:#666;overflow-wrap:anywhere}b.draft,b.check{color:#c60}
i{background:#fd6;font-style:normal;padding:0 4px;border-radius:3px}
"""


def write_contact_sheet(
    page: Path, rows: Sequence[ReviewRow], records: Mapping[str, Record], rules: LoadRules
) -> None:
    """Write the page; thumbnails are made once and kept in `thumbnails/` beside it."""
    shown = sorted(rows, key=lambda row: row.status not in ("draft", "check"))
    figures = []
    for number, row in enumerate(shown):
        thumbnail = None
        if number < MOST_PICTURES and row.id in records:
            thumbnail = _thumbnail(page.parent, records[row.id], rules)
        figures.append(_figure(row, thumbnail))
    html = _page(rows, figures)
    if not page.exists() or page.read_bytes() != html.encode("utf-8"):
        write_text(page, html)


def keep_thumbnail(
    folder: Path, record: Record, image: "Image", side_px: int = THUMBNAIL_PX
) -> None:
    """Make the thumbnail of a picture that is loaded anyway, at most `side_px` wide and high."""
    path = thumbnail_file(folder, record, side_px)
    if path.exists():
        return
    small = image.copy()
    small.thumbnail((side_px, side_px))
    data = io.BytesIO()
    small.save(data, "JPEG", quality=80)
    write_bytes(path, data.getvalue())


def _thumbnail(folder: Path, record: Record, rules: LoadRules) -> bytes | None:
    path = thumbnail_file(folder, record)
    if not path.exists():
        try:
            picture = load_picture(Path(record.file), rules)
        except PictureError:
            return None
        keep_thumbnail(folder, record, picture.image)
    return path.read_bytes()


def thumbnail_file(folder: Path, record: Record, side_px: int = THUMBNAIL_PX) -> Path:
    """Where the thumbnail of a picture lies; other pixels have another name."""
    size = "" if side_px == THUMBNAIL_PX else f"-{side_px}"
    return folder / "thumbnails" / f"{record.id}-{record.pixels[:16]}{size}.jpg"


def _figure(row: ReviewRow, thumbnail: bytes | None) -> str:
    picture = ""
    if thumbnail is not None:
        data = base64.b64encode(thumbnail).decode("ascii")
        picture = f'<img alt="" src="data:image/jpeg;base64,{data}">'
    flags = " ".join(f"<i>{escape(flag)}</i>" for flag in row.flags)
    note = f"<br><small>{escape(printable(row.note))}</small>" if row.note else ""
    return (
        f'<figure class="{row.status}">{picture}'
        f"<figcaption>{escape(printable(row.caption)) or '<em>no caption</em>'}<br>"
        f'<b class="{row.status}">{row.status}</b> {flags}{note}<br>'
        f"<small>{escape(printable(row.image))}<br>{escape(row.id)}</small></figcaption></figure>"
    )


def _page(rows: Sequence[ReviewRow], figures: Sequence[str]) -> str:
    waiting = sum(row.status in ("draft", "check") for row in rows)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
        f"<title>Contact sheet</title><style>{_STYLE}</style></head><body>"
        f"<h1>Contact sheet</h1><p>{counted(len(rows), 'picture')}, {waiting} waiting. "
        "Edit captions in review.csv.</p><main>\n"
        + "\n".join(figures)
        + "\n</main></body></html>\n"
    )
