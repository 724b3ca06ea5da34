"""What `validate` found -> one page of HTML that needs nothing beside it, and no script."""

from html import escape

from latentmill.datasets.next_steps import step_lines
from latentmill.datasets.records import Report
from latentmill.stages.checking.page_parts import shown
from latentmill.stages.checking.page_problems import problem_list
from latentmill.stages.checking.page_sections import Found, Section, picture_sections
from latentmill.stages.checking.page_style import STYLE
from latentmill.stages.checking.thumbnails import Thumbnails

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_COUNT_NAMES = {
    "captioned": "with a caption",
    "uncaptioned": "without a caption",
    "unsure": "captions to confirm",
    "repaired": "repaired",
    "warned": "with a warning",
    "ignored": "other files",
}


def render(report: Report, found: Found, thumbnails: Thumbnails) -> str:
    """Return the page; thumbnails that are missing are made, those not shown are put away."""
    problems = Section("problems", "Problems", tuple(problem_list(report.problems)))
    sections = [
        one
        for one in (problems, *picture_sections(report.problems, found, thumbnails))
        if one.parts
    ]
    links = "".join(f'<a href="#{one.name}">{escape(one.title)}</a>' for one in sections)
    body = "\n".join(
        f'<section id="{one.name}"><h2>{escape(one.title)}</h2>\n'
        + "\n".join(one.parts)
        + "\n</section>"
        for one in sections
    )
    head = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>latentmill validate</title><style>{STYLE}</style></head>\n<body>\n"
    )
    return f"{head}{_ledger(report)}<nav>{links}</nav>\n{body}\n</body></html>\n"


def _ledger(report: Report) -> str:
    counts = report.counts
    found, usable, rejected = (counts[name] for name in ("found", "usable", "rejected"))
    share = 100 * usable / max(1, found)
    state = '<b class="good">Done</b>' if report.ok else '<b class="check">Needs a person</b>'
    good = f'<i class="fill-good" style="width:{share:.2f}%"></i>' if usable else ""
    bad = f'<i class="fill-reject" style="width:{100 - share:.2f}%"></i>' if rejected else ""
    cells = "".join(
        f"<div><b>{counts[name]}</b>{escape(words)}</div>"
        for name, words in _COUNT_NAMES.items()
        if name in counts
    )
    steps = "".join(
        f"<li>{_step(*step_lines(step.text, step.commands))}</li>" for step in report.next_steps[1:]
    )
    return (
        f"<header><h1>latentmill validate</h1><p>{state}</p>"
        f'<p class="sum"><b>{found}</b> found = <b class="good">{usable}</b> usable + '
        f'<b class="reject">{rejected}</b> rejected</p>'
        f'<div class="parts">{good}{bad}</div><div class="cells">{cells}</div>'
        f"<ul>{steps}</ul></header>\n"
    )


def _step(words: str, *commands: str) -> str:
    """The words of a step, and below them its commands as code."""
    return shown(words) + "".join(f"<br><code>{shown(line.strip())}</code>" for line in commands)
