"""Lists what no work refers to in a cache, and deletes it when told to."""

from collections.abc import Iterator, Sequence

from latentmill.cache.fingerprints import digest
from latentmill.cache.garbage import Unused, delete, unused_extras, unused_shards
from latentmill.cache.index import read_set_index
from latentmill.cache.works import User, Users, users_of
from latentmill.datasets.errors import DataError, UsageError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command, NextStep, step
from latentmill.datasets.records import Problem, Report

_MIB = 2**20


def collect_garbage(layout: Layout, is_meant: bool) -> Report:
    """List the files that no work uses; delete them when `is_meant`.

    The caller holds the locks of both folders. Raises DataError when a record is damaged: what
    that work uses is not known.
    """
    users = users_of(layout)
    _require_records(users)
    used = {name for user in users.works for name in user.shards}
    unused = list(_unused(layout, used))
    if is_meant:
        delete(unused)
    num_bytes = sum(one.bytes for one in unused)
    return Report(
        stage="cache gc",
        ok=True,
        counts={
            "files": len(unused),
            "shards": sum(one.path.suffix == ".tar" for one in unused),
            "bytes": num_bytes,
            "deleted": len(unused) if is_meant else 0,
            "works": len(users.works),
        },
        problems=tuple(_problem(one) for one in unused),
        fingerprint=digest("garbage", [one.path.name for one in unused]),
        next_steps=tuple(_next_steps(users.works, unused, is_meant)),
    )


def _require_records(users: Users) -> None:
    if not users.works and not users.damaged:
        raise UsageError(
            "no work is known that uses this cache, so nothing is deleted",
            expected="a cache that this or another work was encoded into",
            fix="encode each work that uses it, or name the work and its cache",
            run=(Command("cache"), Command(flags=("--work", "DIR"), settings=("cache.dir=DIR",))),
        )
    if users.damaged:
        raise DataError(
            "the record of a work that uses this cache is damaged, or of another version: what "
            "that work uses is not known, so nothing is deleted",
            where=", ".join(map(str, users.damaged)),
            expected="the file as `cache` wrote it",
            fix="encode each work that uses this cache; delete the file if that helps not",
            run=(Command("cache"),),
        )


def _unused(layout: Layout, used: set[str]) -> Iterator[Unused]:
    yield from unused_shards(layout.shards, used)
    try:
        index = read_set_index(layout.cache_index)
    except (UsageError, DataError):
        index = None
    yield from unused_extras(layout.cache_index.parent, index)


def _problem(one: Unused) -> Problem:
    return Problem(
        id="",
        path=str(one.path),
        code="cache-unused",
        message=f"{one.bytes:,} bytes; {one.reason}",
        fix="",
        level="advice",
    )


def _next_steps(
    works: Sequence[User], unused: Sequence[Unused], is_meant: bool
) -> Iterator[NextStep]:
    for user in works:
        if user.index is None:
            yield step(
                f"{user.work} cannot be read, so all that it recorded is kept; if that work is "
                f"gone for good, delete {user.record}"
            )
    if unused and not is_meant:
        size = sum(one.bytes for one in unused) / _MIB
        text = f"nothing was deleted; free these {size:,.1f} MiB"
        yield step(text, Command("cache", ("gc", "--yes")))
