"""What becomes of a picture that cannot be drafted: a problem, or a row in which to write."""

from latentmill.datasets.errors import ModelError
from latentmill.datasets.images import PictureError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command
from latentmill.datasets.records import Problem, Record
from latentmill.datasets.review_fresh import Draft
from latentmill.datasets.review_memory import NOT_DRAFTED
from latentmill.stages.captioning.draft_flags import DRAFT_EMPTY


def empty_draft(record: Record) -> Draft:
    """The draft of a picture that no captioner was asked for."""
    return Draft(record.id, record.pixels, "", (DRAFT_EMPTY, NOT_DRAFTED))


def without_captioner(error: ModelError, layout: Layout) -> ModelError:
    """The same error, with the ways on for a person who writes captions by hand."""
    return ModelError(
        error.what,
        where=error.where,
        expected=error.expected,
        fix=f"{error.fix}; or write the captions yourself, into {layout.review}, which has a row "
        "for each picture without one now, or into .txt files beside the pictures (then validate "
        "again), and ask for no captioner",
        run=(*error.run, Command("caption", settings=("caption.model=none",))),
    )


def unreadable(record: Record, error: PictureError) -> Problem:
    """The problem of a picture that the loader refused."""
    return _failed(record, f"{error.message} ({error.code})")


def not_validated(record: Record) -> Problem:
    """The problem of a picture whose pixels are not those that were validated."""
    return _failed(record, "the picture, or how it is loaded, changed since it was validated")


def _failed(record: Record, reason: str) -> Problem:
    return Problem(
        record.id,
        record.path,
        "draft-failed",
        f"no draft: {reason}",
        "run `latentmill validate` again, then `latentmill caption`",
    )
