"""The report of `validate` and its records -> one page of HTML that needs nothing beside it."""

import base64
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from latentmill.datasets.records import Problem, Record, Report
from latentmill.stages.checking.findings import LEVELS

MAX_PICTURES = 200
THUMBNAILS = "thumbnails"
"""Folder of small copies, `ID.jpg`, beside the report."""
MAX_PROBLEMS = 200  # Of one code; report.json has all.
SIDES_PX = (256, 512, 768, 1024, 2048)
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --bad: #c0392b; --odd: #b7791f; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 70rem; padding: 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.ledger, .grid { display: grid; gap: .75rem; }
.ledger { grid-template-columns: repeat(auto-fill, minmax(7rem, 1fr)); }
.grid { grid-template-columns: repeat(auto-fill, minmax(10rem, 1fr)); }
.ledger div, figure { border: 1px solid var(--line); border-radius: .5rem; padding: .5rem; }
.ledger b { display: block; font-size: 1.5rem; }
figure { margin: 0; overflow-wrap: anywhere; font-size: .85rem; }
figure img { display: block; margin: 0 auto .5rem; max-width: 100%; max-height: 10rem; }
details { border-bottom: 1px solid var(--line); padding: .4rem 0; overflow-wrap: anywhere; }
summary { cursor: pointer; } summary b { font-family: ui-monospace, monospace; }
.reject { color: var(--bad); } .check, .warning { color: var(--odd); }
.bar { background: var(--soft); border-radius: .25rem; padding: 0 .4rem; white-space: nowrap; }
small { opacity: .75; }
"""


def render(report: Report, records: Sequence[Record], thumbnails: Path) -> str:
    """Return the page. `thumbnails` is a folder of `ID.jpg`; one that is missing is left out."""
    body = [
        "<h1>latentmill validate</h1>",
        _ledger(report),
        "<h2>Problems</h2>",
        *_problems(report.problems),
        "<h2>Sizes (shorter side)</h2>",
        *_sizes(records),
        "<h2>Pictures and captions</h2>",
        *_pictures(records, thumbnails),
    ]
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>latentmill validate</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


def _ledger(report: Report) -> str:
    cells = (
        f"<div><b>{count}</b>{escape(name)}</div>"
        for name, count in report.counts.items()
        if name != "decoded"
    )
    return f'<div class="ledger">{"".join(cells)}</div>'


def _problems(problems: Sequence[Problem]) -> Iterator[str]:
    if not problems:
        yield "<p>None.</p>"
    for level in LEVELS:
        by_code: dict[str, list[Problem]] = {}
        for one in problems:
            if one.level == level:
                by_code.setdefault(one.code, []).append(one)
        for code, group in sorted(by_code.items(), key=lambda item: (-len(item[1]), item[0])):
            lines = "".join(_problem_line(one) for one in group[:MAX_PROBLEMS])
            more = len(group) - MAX_PROBLEMS
            lines += f"<p>and {more} more, in report.json</p>" if more > 0 else ""
            opened = " open" if level in ("reject", "check") else ""
            yield (
                f'<details{opened}><summary><span class="{level}">{level}</span> '
                f"<b>{escape(code)}</b> {len(group)}</summary>{lines}</details>"
            )


def _problem_line(one: Problem) -> str:
    return f"<p>{escape(one.path)}<br>{escape(one.message)}<br><small>{escape(one.fix)}</small></p>"


def _sizes(records: Sequence[Record]) -> Iterator[str]:
    counts = [0] * (len(SIDES_PX) + 1)
    for record in records:
        side = min(record.width, record.height)
        counts[sum(side >= limit for limit in SIDES_PX)] += 1
    limits = (0, *SIDES_PX)
    for position, count in enumerate(counts):
        below = f"to {SIDES_PX[position] - 1}" if position < len(SIDES_PX) else "and more"
        share = 100 * count / max(1, len(records))
        yield (
            f'<div class="bar" style="width:{share:.1f}%">'
            f"{limits[position]} {below} px: {count}</div>"
        )


def _pictures(records: Sequence[Record], thumbnails: Path) -> Iterator[str]:
    drawn = set(sorted(record.id for record in records)[:MAX_PICTURES])
    files = {name: thumbnails / f"{name}.jpg" for name in drawn}
    shown = [record for record in records if record.id in drawn and files[record.id].is_file()]
    if len(shown) < len(records):
        yield f"<p>{len(shown)} of {len(records)}, drawn at random; the manifest has all.</p>"
    yield '<div class="grid">'
    yield from (_figure(record, files[record.id]) for record in shown)
    yield "</div>"


def _figure(record: Record, thumbnail: Path) -> str:
    data = base64.b64encode(thumbnail.read_bytes()).decode("ascii")
    caption = escape(record.caption) if record.caption is not None else "<small>no caption</small>"
    odd = " ".join((*record.checks, *record.codes))
    return (
        f'<figure><img alt="" loading="lazy" src="data:image/jpeg;base64,{data}">'
        f"<figcaption>{caption}<br><small>{escape(record.path)}, "
        f"{record.width} x {record.height} px</small>"
        f'<br><small class="warning">{escape(odd)}</small></figcaption></figure>'
    )
