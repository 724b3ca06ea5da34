"""Pictures with their prompts become one labelled picture, a row for each prompt."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

SMALLEST_CELL_PX: Final = 256
GAP_PX: Final = 12
FONT_PX: Final = 15
LINE_PX: Final = 20
MOST_LINES: Final = 4
MOST_LETTERS: Final = 1000
BACKGROUND: Final = (255, 255, 255)
INK: Final = (20, 20, 20)
PALE_INK: Final = (110, 110, 110)
ABSENT: Final = "\uffff"
"""A code point that no font has: its drawing is the font's box for missing characters."""


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One prompt and its pictures, all of one size."""

    number: int
    prompt: str
    pictures: tuple[Path, ...]


def draw_comparison(
    title: str, columns: Sequence[str], rows: Sequence[ComparisonRow], prompts_file: str
) -> "Image":
    """Draw the pictures side by side below their prompts and the names of the columns.

    Small pictures are enlarged by a whole factor, pixel for pixel. A prompt in letters that the
    built-in font lacks gets a note that sends the reader to `prompts_file`.
    """
    from PIL import ImageFont

    font = ImageFont.load_default(FONT_PX)
    strips = [_draw_row(row, columns, font, prompts_file) for row in rows]
    width = max(strip.width for strip in strips)
    drawable, _ = note_missing_letters(title, font, prompts_file)
    head = split_lines(drawable, width - 2 * GAP_PX, font)
    return _stack([_draw_lines(head, width, font, INK), *strips])


def split_lines(text: str, width_px: float, font: "ImageFont | FreeTypeFont") -> list[str]:
    """Break text into at most four lines that fit; a longer text ends in an ellipsis."""
    lines: list[str] = []
    rest = " ".join(text.split())[:MOST_LETTERS]
    while rest:
        length = _fitting(rest, width_px, font)
        lines.append(rest[:length].strip())
        rest = rest[length:].strip()
    if len(lines) > MOST_LINES:
        last = lines[MOST_LINES - 1]
        return [*lines[: MOST_LINES - 1], last[: max(1, len(last) - 3)].rstrip() + "..."]
    return lines


def note_missing_letters(
    text: str, font: "ImageFont | FreeTypeFont", prompts_file: str
) -> tuple[str, str]:
    """Return what of the text can be drawn, and a note on the rest (empty if all can)."""
    box = bytes(font.getmask(ABSENT))
    missing = {letter for letter in text if not letter.isspace() and not _has(font, letter, box)}
    if not missing:
        return text, ""
    count = sum(letter in missing for letter in text)
    drawable = "".join(" " if letter in missing else letter for letter in text)
    whole = f"{count} of {len(text)} characters are not in this picture's font"
    return " ".join(drawable.split()), f"({whole}: see {prompts_file})"


def _draw_row(
    row: ComparisonRow,
    columns: Sequence[str],
    font: "ImageFont | FreeTypeFont",
    prompts_file: str,
) -> "Image":
    cells = [_read_enlarged(path) for path in row.pictures]
    width = GAP_PX + sum(cell.width + GAP_PX for cell in cells)
    text, note = note_missing_letters(row.prompt, font, prompts_file)
    labels = [
        _draw_lines(split_lines(line, width - 2 * GAP_PX, font), width, font, ink)
        for line, ink in ((f"{row.number}. {text}", INK), (note, PALE_INK))
    ]
    return _stack([*labels, _draw_cells(cells, columns, width, font)])


def _draw_cells(
    cells: Sequence["Image"],
    columns: Sequence[str],
    width: int,
    font: "ImageFont | FreeTypeFont",
) -> "Image":
    strip, pen = _blank(width, LINE_PX + max(cell.height for cell in cells) + GAP_PX)
    left = GAP_PX
    for cell, column in zip(cells, columns, strict=True):
        pen.text((left, 0), column, fill=PALE_INK, font=font)
        strip.paste(cell, (left, LINE_PX))
        left += cell.width + GAP_PX
    return strip


def _draw_lines(
    lines: Sequence[str], width: int, font: "ImageFont | FreeTypeFont", ink: tuple[int, int, int]
) -> "Image":
    strip, pen = _blank(width, LINE_PX * len(lines) + (GAP_PX // 2 if lines else 0))
    for number, line in enumerate(lines):
        pen.text((GAP_PX, GAP_PX // 2 + LINE_PX * number), line, fill=ink, font=font)
    return strip


def _stack(strips: Sequence["Image"]) -> "Image":
    whole, _ = _blank(max(strip.width for strip in strips), sum(strip.height for strip in strips))
    top = 0
    for strip in strips:
        whole.paste(strip, (0, top))
        top += strip.height
    return whole


def _blank(width: int, height: int) -> "tuple[Image, ImageDraw]":
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (width, height), BACKGROUND)
    return image, ImageDraw.Draw(image)


def _read_enlarged(path: Path) -> "Image":
    from PIL import Image

    with Image.open(path) as opened:
        picture = opened.convert("RGB")
    factor = max(1, -(-SMALLEST_CELL_PX // max(picture.size)))
    return picture.resize(
        (picture.width * factor, picture.height * factor), Image.Resampling.NEAREST
    )


def _has(font: "ImageFont | FreeTypeFont", letter: str, box: bytes) -> bool:
    try:
        return bytes(font.getmask(letter)) != box
    except (UnicodeError, ValueError, OSError):
        return False  # A lone surrogate, or Pillow without FreeType: its small font is Latin-1.


def _fitting(text: str, width_px: float, font: "ImageFont | FreeTypeFont") -> int:
    """Count the letters that fit on a line, whole words where there are any; at least one."""
    length = len(text)
    while length > 1 and font.getlength(text[:length]) > width_px:
        length -= 1
    if length < len(text) and " " in text[: length + 1]:
        return text[: length + 1].rindex(" ")
    return length
