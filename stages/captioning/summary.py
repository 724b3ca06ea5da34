"""The rows of `review.csv` to the caption stage's report."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from latentmill.datasets.records import Problem, Report
from latentmill.datasets.review import ReviewRow

_DRAFT_MESSAGES: Mapping[str, str] = {
    "draft-empty": "the captioner found no words",
    "repetition": "the draft goes round in a loop",
    "short": "the draft has few words",
}


def explanations(validate_report: Path) -> dict[str, str]:
    """Why `validate` wants a person to look at a caption, by id; empty without its report."""
    try:
        problems = json.loads(validate_report.read_bytes())["problems"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    found: dict[str, list[str]] = {}
    for problem in problems:
        if problem.get("level") == "check" and problem.get("id"):
            found.setdefault(problem["id"], []).append(problem["message"])
    return {identity: "; ".join(messages) for identity, messages in found.items()}


def caption_report(
    review: Path,
    rows: Sequence[ReviewRow],
    num_records: int,
    drafted: int,
    problems: Iterable[Problem],
) -> Report:
    """Counts close: `ok + waiting + set_aside + undrafted` is the number of usable pictures."""
    states: Counter[str] = Counter(row.status for row in rows)
    counts = {
        "drafted": drafted,
        "from_files": sum(row.source == "file" for row in rows),
        "waiting": states["draft"] + states["check"],
        "ok": states["ok"],
        "set_aside": states["skip"],
        "undrafted": num_records - len(rows),
    }
    found = (*problems, *_row_problems(rows))
    return Report("caption", True, counts, found, next_steps=_next_steps(review, states, counts))


def _row_problems(rows: Sequence[ReviewRow]) -> Iterator[Problem]:
    for row in rows:
        if row.status == "check":
            message = row.note or "its caption is in doubt"
            fix = "in review.csv correct the caption, or set the status to `ok` or `skip`"
            for code in row.flags[:1] or ("caption-in-doubt",):
                yield Problem(row.id, row.image, code, message, fix, "check")
        elif row.status == "draft":
            for code in row.flags:
                if code in _DRAFT_MESSAGES:
                    fix = "write a better caption into review.csv, or set the row to `skip`"
                    yield Problem(row.id, row.image, code, _DRAFT_MESSAGES[code], fix)


def _next_steps(
    review: Path, states: Mapping[str, int], counts: Mapping[str, int]
) -> tuple[str, ...]:
    steps = []
    if counts["undrafted"]:
        steps.append(
            f"{counts['undrafted']} pictures have no draft: run `latentmill validate`, then "
            "`latentmill caption` again"
        )
    if counts["waiting"]:
        steps.append(
            f"look at {review.parent / 'caption' / 'contact-sheet.html'}, open {review} in a "
            "spreadsheet: edit captions, or set their status to `ok` or `skip`"
        )
    if states["draft"]:
        steps.append(
            "or approve all drafts: `latentmill approve --all-drafts`; or train on them unseen: "
            "`--set caption.accept_drafts=true`"
        )
    return (*steps, "then run `latentmill cache`") if steps else ("run `latentmill cache`",)
