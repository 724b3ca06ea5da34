"""The rows of `review.csv` to the caption stage's report."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path

from latentmill.datasets.next_steps import Command, NextStep, step
from latentmill.datasets.records import Problem, Report
from latentmill.datasets.review import ReviewRow
from latentmill.datasets.review_fresh import TEXT_FLAGS
from latentmill.datasets.review_memory import NOT_DRAFTED
from latentmill.datasets.words import counted

_DRAFT_MESSAGES: Mapping[str, str] = {
    "draft-empty": "the captioner found no words",
    "not-drafted": "no captioner could be asked",
    "repetition": "the draft goes round in a loop",
    "short": "the draft has few words",
}
_TEXT_MESSAGES: Mapping[str, str] = {
    "vague": "the caption names no attribute",
    "repeated": "many pictures have this caption",
    "quality-words": "the caption holds words of quality, which belong into prompts",
    "mismatch": "the caption hardly fits its picture",
    "long": "the text encoder reads 77 tokens and cuts the rest",
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
    """Counts close: `usable = ok + waiting + set_aside`.

    Of those that wait, `waiting_without_text` have no row, or an empty one that no captioner was
    asked for. `drafted` were drafted now.
    """
    states: Counter[str] = Counter(row.status for row in rows)
    without_row = num_records - len(rows)
    counts = {
        "drafted": drafted,
        "from_files": sum(row.source == "file" for row in rows),
        "usable": num_records,
        "ok": states["ok"],
        "waiting": states["draft"] + states["check"] + without_row,
        "set_aside": states["skip"],
        "waiting_without_text": without_row + sum(NOT_DRAFTED in row.flags for row in rows),
    }
    found = (*problems, *_row_problems(rows))
    steps = _next_steps(review, rows, without_row)
    account = _account(num_records, counts)
    return Report("caption", True, counts, found, next_steps=steps, account=account)


def _account(num_records: int, counts: Mapping[str, int]) -> str:
    """Every picture once by its status, then where the captions came from."""
    names = {"ok": "ok", "waiting": "waiting", "set_aside": "set aside"}
    parts = [f"{counts[name]} {word}" for name, word in names.items() if counts[name]]
    sums = f"{counted(num_records, 'picture')} = {' + '.join(parts) or '0'}"
    return f"{sums}; {counts['from_files']} from caption files, {counts['drafted']} drafted now"


def _row_problems(rows: Sequence[ReviewRow]) -> Iterator[Problem]:
    for row in rows:
        if row.status == "check":
            message = row.note or "its caption is in doubt"
            fix = "in review.csv correct the caption, or set the status to `ok` or `skip`"
            reasons = [flag for flag in row.flags if flag not in TEXT_FLAGS]
            for code in reasons[:1] or ("caption-in-doubt",):
                yield Problem(row.id, row.image, code, message, fix, "check")
        elif row.status == "draft":
            flags = set(row.flags) - ({"draft-empty"} if NOT_DRAFTED in row.flags else set())
            yield from _flag_problems(row, flags, _DRAFT_MESSAGES)
        if row.status in ("draft", "ok"):
            yield from _flag_problems(row, set(row.flags), _TEXT_MESSAGES)


def _flag_problems(
    row: ReviewRow, flags: Set[str], messages: Mapping[str, str]
) -> Iterator[Problem]:
    better = "a better caption" if row.caption.strip() else "its caption"
    fix = f"write {better} into review.csv, or set the row to `skip`"
    if messages is _TEXT_MESSAGES and row.status == "ok":
        fix = "nothing, if it is meant so; else edit the caption in review.csv"
    for code, message in messages.items():
        if code in flags:
            yield Problem(row.id, row.image, code, message, fix)


def _next_steps(review: Path, rows: Sequence[ReviewRow], without_row: int) -> tuple[NextStep, ...]:
    steps = []
    empty = sum(NOT_DRAFTED in row.flags for row in rows)
    if without_row:
        what = f"draft the {counted(without_row, 'picture')} without a draft"
        steps.append(step(what, Command("validate"), Command("caption")))
    if empty:
        other = Command("caption", settings=("caption.model=DIR",))
        captions = counted(empty, "missing caption")
        steps.append(step(f"write {captions} into {review}"))
        steps.append(step("or beside the pictures as .txt", Command("validate")))
        steps.append(step("or give a captioner", other))
    if any(row.status in ("draft", "check") for row in rows):
        sheet = review.parent / "caption" / "contact-sheet.html"
        steps.append(
            step(
                f"look at {sheet}, open {review} in a spreadsheet: edit captions, or set their "
                "status to `ok` or `skip`"
            )
        )
    if any(row.status == "draft" and row.caption.strip() for row in rows):
        all_drafts = Command("approve", ("--all-drafts",))
        steps.append(step("or approve all drafts at once", all_drafts))
        unseen = Command("cache", settings=("caption.accept_drafts=true",))
        steps.append(step("or train on them unseen, which the LoRA records", unseen))
    then = "then encode" if steps else "encode"
    return (*steps, step(f"{then} pictures and captions", Command("cache")))
