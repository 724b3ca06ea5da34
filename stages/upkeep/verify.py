"""Reads every byte of a cache and says which files are damaged, and how to go on."""

from collections.abc import Callable

from latentmill.cache.fingerprints import digest
from latentmill.cache.verification import Fault, check_shards, check_users, check_work
from latentmill.cache.works import Users, users_of
from latentmill.datasets.errors import DataError
from latentmill.datasets.layout import Layout
from latentmill.datasets.next_steps import Command, NextStep, step
from latentmill.datasets.records import Problem, Report

_AGAIN = "encode again what is damaged; nothing else is encoded"
_DELETE = "no work uses it: delete it"


def verify_cache(layout: Layout, tick: Callable[[int], None] = lambda _: None) -> Report:
    """Check all shards of the folder, and the indexes and extras of this work.

    The exit code is 3 when a byte is wrong or missing. `tick` is told of each shard.
    """
    users = users_of(layout)
    found = check_shards(layout.shards, tick)
    faults = [
        *found.faults,
        *check_users(users, layout.shards, found),
        *check_work(layout.cache_index),
    ]
    problems = tuple(_problem(fault, layout, users) for fault in faults)
    return Report(
        stage="cache verify",
        ok=not faults,
        counts={
            "shards": len(found.sound) + len({one.shard for one in faults if one.shard}),
            "samples": sum(len(index.entries) for index in found.sound),
            "bytes": found.num_bytes,
            "damaged": len(faults),
        },
        problems=problems,
        fingerprint=digest("verified", [[one.name, one.sha256] for one in found.sound]),
        next_steps=tuple(dict.fromkeys(map(_next_step, problems))),
        exit_code=DataError.exit_code if faults else 0,
    )


def _problem(fault: Fault, layout: Layout, users: Users) -> Problem:
    return Problem(
        id="",
        path=str(fault.path),
        code="cache-damaged",
        message=fault.message,
        fix=_way_on(fault, layout, users),
    )


def _way_on(fault: Fault, layout: Layout, users: Users) -> str:
    if fault.path in users.damaged:
        return f"delete {fault.path}, then encode each work that uses this cache"
    in_need = [user.work for user in users.works if fault.shard in user.shards]
    if not fault.shard or layout.work.absolute() in [work.absolute() for work in in_need]:
        return _AGAIN
    return f"{_AGAIN}, for the work {in_need[0]}" if in_need else _DELETE


def _next_step(problem: Problem) -> NextStep:
    if problem.fix == _DELETE:
        return step("delete what is damaged and no work uses", Command("cache", ("gc", "--yes")))
    return step(problem.fix, Command("cache"))
