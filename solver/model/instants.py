"""The next second at which time alone may change a plan."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from solver.model.inputs import Request, Snapshot
from solver.model.policy import Policy

_DAY = 86_400
_SMALL = ("extensions", "changes", "pending", "entries", "idle", "orders")
_SMALL_RULES = ("unneeded", "notices", "overrides", "caps", "cooling", "blackouts", "peaks")


def next_instant(snapshot: Snapshot, policy: Policy, until: int) -> int:
    """The first second after the snapshot's, `until` at most, at which the plan for the same rows
    may be another.

    These are the seconds of starts, ends, notices, resumes, protections, cool-downs, deadlines,
    and windows, and those at which the order is read anew. What moves with each second is not
    among them: booked use in the fair share, the use that counts in caps, the end of the horizon,
    the rounding of ends, and starts that are tried one notice from now. `until` bounds these.
    """
    now = snapshot.now
    found = (time if time > now else time + 1 for time in _times(snapshot, policy) if time >= now)
    return min(until, min(found, default=until))


def _times(snapshot: Snapshot, policy: Policy) -> Iterator[int]:
    now = snapshot.now
    for every in (policy.epoch, _DAY):
        yield (now // every + 1) * every
    notices = {tier.grace + policy.notice_margin for tier in snapshot.tiers if tier.pausable}
    modes = {0, *(model.switch_seconds for model in snapshot.models)}
    leads = (0, *notices, *(policy.freeze_horizon + each for each in modes))
    yield from _of_held(snapshot, policy, leads)
    waiting = (*snapshot.requests, *snapshot.pending, *(each.target for each in snapshot.changes))
    for request in waiting:
        yield from _of_request(request, policy, leads)
    for row in snapshot.guarantees:
        for lead in leads:
            # Who has notice leaves as the guarantee begins.
            yield from (row.starts - lead, row.ends - lead)
    for section in (*_SMALL, *_SMALL_RULES):
        for row in getattr(snapshot, section):
            yield from _numbers(row)


def _of_held(snapshot: Snapshot, policy: Policy, leads: tuple[int, ...]) -> Iterator[int]:
    rests = {tier.slug: tier.protected for tier in snapshot.tiers if tier.pausable}
    for row in snapshot.held:
        yield row.starts
        if row.starts > snapshot.now:
            # From then on it counts as begun in the order of the queue.
            yield from (row.starts - lead for lead in leads)
        yield row.ends
        if row.since is not None and row.tier in rests:
            yield row.since + rests[row.tier]
            yield from (row.since + each.cool_down for each in policy.variants)


def _of_request(request: Request, policy: Policy, leads: tuple[int, ...]) -> Iterator[int]:
    yield request.earliest
    yield request.earliest - policy.horizon
    since = max(request.submitted, request.earliest)
    yield from (since + each.patience for each in policy.variants)
    if request.latest is not None:
        yield request.latest
        yield request.latest - policy.horizon
        for length in {request.duration, *(length for _, length in request.durations)}:
            yield request.latest - length
    if request.planned is not None:
        for lead in leads:
            yield request.planned.starts - lead
        yield request.planned.starts - policy.horizon // 2


def _numbers(value: object) -> Iterator[int]:
    """All numbers of a row: which of them are times is not asked."""
    if isinstance(value, int):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from _numbers(each)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _numbers(getattr(value, field.name))
