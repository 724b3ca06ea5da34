"""Draws how many pictures each bucket holds, as an SVG that needs nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass

from latentmill.datasets.words import counted

_ROW_PX = 44
_TOP_PX = 48
_SHAPE_PX = 34
_BAR_LEFT_PX = 150
_BAR_PX = 330
_WIDTH_PX = 760
_STYLE = """
 text { font: 13px system-ui, sans-serif; fill: #222 }
 .title { font-size: 16px; font-weight: 600 }
 .note { fill: #666 }
 .shape { fill: #dbe7f5; stroke: #3b6ea5 }
 .bar { fill: #3b6ea5 }
"""


@dataclass(frozen=True, slots=True)
class BucketRow:
    """One bucket: its shape in px, its pictures, the batches that they fill in an epoch.

    `cropped` is the mean share of a picture that is cut away, `padded` of the bucket that is grey.
    """

    width: int
    height: int
    count: int
    batches: int
    cropped: float
    padded: float = 0.0

    @property
    def label(self) -> str:
        """The bucket's name."""
        return f"{self.width}x{self.height}"


def draw_chart(rows: Sequence[BucketRow]) -> str:
    """Return the SVG: a row per bucket with its shape, its name, a bar and the numbers."""
    total = sum(row.count for row in rows)
    height = _TOP_PX + _ROW_PX * len(rows) + 12
    title = f"{counted(total, 'picture')} in {counted(len(rows), 'bucket')}"
    most = max((row.count for row in rows), default=1)
    drawn = [_draw_row(row, most, _TOP_PX + _ROW_PX * at) for at, row in enumerate(rows)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH_PX}" height="{height}"'
            f' viewBox="0 0 {_WIDTH_PX} {height}" role="img">',
            f"<title>{title}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect width="{_WIDTH_PX}" height="{height}" fill="#fff"/>',
            f'<text class="title" x="16" y="28">{title}</text>',
            *drawn,
            "</svg>",
            "",
        ]
    )


def _draw_row(row: BucketRow, most: int, top_px: int) -> str:
    scale = _SHAPE_PX / max(row.width, row.height)
    width, height = row.width * scale, row.height * scale
    left, upper = 16 + (_SHAPE_PX - width) / 2, top_px + (_SHAPE_PX - height) / 2
    bar = max(2.0, _BAR_PX * row.count / most)
    line = top_px + _SHAPE_PX / 2 + 5
    return (
        f'<rect class="shape" x="{left:.1f}" y="{upper:.1f}" width="{width:.1f}"'
        f' height="{height:.1f}"/>'
        f'<text x="64" y="{line}">{row.label}</text>'
        f'<rect class="bar" x="{_BAR_LEFT_PX}" y="{top_px + 6}" width="{bar:.1f}" height="22"/>'
        f'<text x="{_BAR_LEFT_PX + bar + 8:.1f}" y="{line}">{row.count}'
        f'<tspan class="note" dx="8">{_notes(row)}</tspan></text>'
    )


def _notes(row: BucketRow) -> str:
    batches = f"{row.batches} batch{'es' if row.batches != 1 else ''}"
    grey = f", {row.padded:.0%} grey" if row.padded else ""
    return f"{batches}, {row.cropped:.0%} cut away{grey}"
