"""Figures, groups, repairs and charts of the report as HTML; every text is made harmless here."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from latentmill.datasets.display import shortened, visible
from latentmill.datasets.records import Record
from latentmill.stages.checking.facts import Histogram
from latentmill.stages.checking.groups import Group
from latentmill.stages.checking.repairs import Repair

LONGEST_TEXT = 400
"""Characters of a caption or message on the page; the manifest has all."""


def shown(text: str, length: int = LONGEST_TEXT) -> str:
    """Return any text as HTML that shows it and does nothing else."""
    return f"<bdi>{escape(visible(shortened(text, length)))}</bdi>"


def figure(record: Record, thumbnail: str | None, remark: str = "", best: bool = False) -> str:
    """A picture with its caption, name, size and codes."""
    caption = shown(record.caption) if record.caption is not None else "<small>no caption</small>"
    codes = " ".join((*record.checks, *record.codes))
    lines = [caption, f"<small>{shown(record.path)}, {record.width} x {record.height} px</small>"]
    if codes:
        lines.append(f'<span class="warning">{escape(codes)}</span>')
    if remark:
        lines.append(remark)
    style = ' class="best"' if best else ""
    return (
        f"<figure{style}>{_image(thumbnail)}<figcaption>{'<br>'.join(lines)}</figcaption></figure>"
    )


def grid(figures: Iterable[str]) -> str:
    """Figures beside one another."""
    return f'<div class="grid">{"".join(figures)}</div>'


def group_lines(
    chosen: Sequence[Group], records: Mapping[str, Record], thumbnails: Mapping[str, str]
) -> Iterator[str]:
    """Pictures that are alike, side by side, the one to keep first."""
    for group in chosen:
        ids = sorted(group.ids, key=lambda one: one != group.best)
        members = [records[one] for one in ids if one in thumbnails]
        more = len(group.ids) - len(members)
        note = f", {more} more are not shown" if more else ""
        yield f'<div class="group"><h3>{len(group.ids)} pictures: {shown(group.kind)}{note}</h3>'
        yield grid(
            figure(
                record,
                thumbnails[record.id],
                '<b class="good">keep this one</b>' if record.id == group.best else "",
                record.id == group.best,
            )
            for record in members
        )
        yield "</div>"


def repair(one: Repair, before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """A repaired picture or caption, before and after."""
    is_picture = not one.file.endswith(".txt")
    head = f"<p><b>{shown(one.path)}</b> <small>{escape(', '.join(one.reasons))}</small></p>"
    halves = ((one.before, before, "before"), (one.after, after, "after"))
    figures = "".join(
        f"<figure>{_image(pictures.get(one.id)) if is_picture else ''}"
        f"<figcaption><small>{name}</small><br>{shown(text)}</figcaption></figure>"
        for text, pictures, name in halves
    )
    return f'<div class="pair">{head}{figures}<p><small>{shown(one.file)}</small></p></div>'


def chart(histogram: Histogram) -> str:
    """A histogram as bars with labels and counts."""
    most = max((bar.count for bar in histogram.bars), default=0) or 1
    rows = "".join(
        f"<div>{escape(bar.label)}</div>"
        f"<div>{_bar(100 * bar.count / most) if bar.count else ''}</div><span>{bar.count}</span>"
        for bar in histogram.bars
    )
    return f'<div><h3>{escape(histogram.title)}</h3><div class="chart">{rows}</div></div>'


def _bar(percent: float) -> str:
    return f'<i style="width:{max(percent, 1):.1f}%"></i>'


def _image(thumbnail: str | None) -> str:
    if thumbnail is None:
        return '<span class="none">cannot be shown</span>'
    return f'<img alt="" loading="lazy" src="{thumbnail}">'
