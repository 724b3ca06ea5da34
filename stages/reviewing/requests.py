"""What the page sends, checked: changes, captions to count, words to replace."""

from typing import Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request

from latentmill.datasets.review import LONGEST_CELL
from latentmill.datasets.review_change import Change
from latentmill.stages.reviewing.store import Wish
from latentmill.stages.settings import ReplaceRule

MOST_BYTES: Final = 32 * 2**20
"""Of one request: the captions of a large set, replaced at once."""
_STRICT = ConfigDict(extra="forbid", frozen=True)

Body = TypeVar("Body", bound=BaseModel)


class ChangeBody(BaseModel):
    """A change of one row."""

    model_config = _STRICT

    id: str
    version: str
    caption: str | None = Field(None, max_length=2 * LONGEST_CELL)
    status: Literal["ok", "skip"] | None = None
    reword: bool = False
    goes_on: bool = False

    def wish(self) -> Wish:
        """The change as the store takes it."""
        change = Change(self.id, self.caption, self.status, self.reword)
        return Wish(change, self.version, self.goes_on)


class ChangesBody(BaseModel):
    """The changes of one step."""

    model_config = _STRICT

    changes: tuple[ChangeBody, ...]


class CountBody(BaseModel):
    """A caption to count, of the row `id`."""

    model_config = _STRICT

    id: str
    caption: str = Field(max_length=2 * LONGEST_CELL)


class ReplaceBody(BaseModel):
    """A rule, and the rows in whose captions it is tried."""

    model_config = _STRICT

    rule: ReplaceRule
    ids: frozenset[str]


async def read_body(request: Request, kind: type[Body]) -> Body:
    """The request's JSON as `kind`; raises HTTPException 413, ValidationError for anything else."""
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > MOST_BYTES:
            raise HTTPException(413, "more than one request may hold")
    return kind.model_validate_json(bytes(data))
