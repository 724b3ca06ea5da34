"""The settings of `validate` that pydantic cannot judge: colours, encodings, problem codes."""

import difflib
from collections.abc import Sequence

from latentmill.datasets.errors import UsageError
from latentmill.stages.checking.findings import FINDINGS, LEVELS, LOADER_REJECTS
from latentmill.stages.settings import ValidateSettings


def require_usable(settings: ValidateSettings) -> None:
    """Raise UsageError for a colour, an encoding or a problem code that does not exist."""
    from PIL import ImageColor

    require_known_codes(settings.fail_on)
    try:
        ImageColor.getrgb(settings.background)
    except ValueError as error:
        raise UsageError(
            f'"{settings.background}" is no colour',
            where="validate.background",
            expected="such as #ffffff, white, rgb(255, 255, 255)",
        ) from error
    require_encoding(settings.encoding, "validate.encoding")


def require_encoding(name: str, where: str) -> None:
    """Raise UsageError for the name of an encoding that does not exist; `auto` is none."""
    if name == "auto":
        return
    try:
        b"a ".decode(name, "replace")  # Without bytes no codec is looked up.
    except (LookupError, UnicodeError) as error:
        raise UsageError(
            f'"{name}" is no text encoding',
            where=where,
            expected="auto, gb18030, big5hkscs, cp932, cp949, cp1252, cp1251 or another one",
        ) from error


def require_known_codes(names: Sequence[str]) -> None:
    """Raise UsageError, with the nearest right one, for a name that is no code and no level."""
    known = sorted({*FINDINGS, *LOADER_REJECTS, *LEVELS})
    for name in names:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(
            f'"{name}" is no problem code of validate',
            where="validate.fail_on (--fail-on)",
            expected=f"codes, or a whole kind: {', '.join(LEVELS)}",
            fix=f"{hint}The README lists all codes.",
        )
