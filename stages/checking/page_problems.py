"""The problems of a report, by kind and code, as HTML: how many, what to do, and where."""

from collections.abc import Iterator, Sequence
from html import escape

from latentmill.datasets.records import Problem, count_codes
from latentmill.stages.checking.findings import FINDINGS, LEVELS
from latentmill.stages.checking.page_parts import shown

MOST_OF_A_CODE = 50
"""Lines on the page; report.json has all."""
_TITLES = {
    "reject": "Rejected: not used",
    "check": "To confirm by a person",
    "warning": "Used, but look",
    "advice": "About the whole set",
}


def problem_list(problems: Sequence[Problem]) -> Iterator[str]:
    """One block per code, worst kind first, then the most frequent."""
    if not problems:
        yield '<p class="good">None.</p>'
    for level in LEVELS:
        chosen = [one for one in problems if one.level == level]
        if chosen:
            yield f'<h3 class="{level}">{_TITLES[level]} ({len(chosen)})</h3>'
        for code in count_codes(chosen):
            yield _block([one for one in chosen if one.code == code], level)


def _block(group: Sequence[Problem], level: str) -> str:
    fixes = list(dict.fromkeys(one.fix for one in group if one.fix))
    common = fixes[0] if len(fixes) == 1 else ""
    kind = FINDINGS.get(group[0].code)
    meaning = f"{kind.message}. " if kind else ""
    lines = "".join(_line(one, not common) for one in group[:MOST_OF_A_CODE])
    more = len(group) - MOST_OF_A_CODE
    lines += f"<p>and {more} more, in report.json</p>" if more > 0 else ""
    opened = " open" if level in ("reject", "check") else ""
    return (
        f'<details{opened}><summary><span class="count">{len(group)}</span>'
        f'<b class="code {level}">{escape(group[0].code)}</b>'
        f"<br>{escape(meaning)}<small>{shown(common)}</small></summary>"
        f'<div class="where">{lines}</div></details>'
    )


def _line(one: Problem, with_fix: bool) -> str:
    name = f"<b>{shown(one.path)}</b> " if one.path else ""
    fix = f"<br><small>{shown(one.fix)}</small>" if with_fix and one.fix else ""
    return f"<p>{name}{shown(one.message)}{fix}</p>"
