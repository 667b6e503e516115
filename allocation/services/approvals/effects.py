"""What an approval would do now: when the booking starts, and which others it delays."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from allocation.models import Approval, Booking, PolicyVersion
from allocation.queries.decisions.seen import labels_seen
from allocation.services.bookings.approval.facts import booking_as_asked
from allocation.services.gc_paused import gc_paused
from allocation.services.policy.policies import SOLVER_FAULTS, policy_of
from allocation.services.quotes.moves import (
    MOST_ROWS,
    Delay,
    as_delays,
    delays_between,
    delays_seen,
    labels_of,
    starts_of,
)
from allocation.services.snapshot.published import published_snapshot
from allocation.services.snapshot.snapshot import instant, requests_of, snapshot_read
from solver import Policy, Snapshot, solve
from tenants.access import Actor


@dataclass(frozen=True, slots=True)
class Effect:
    """What would happen if a request was approved now.

    `starts`: its start; None: it has none yet. `pauses` are running bookings that get notice.
    """

    starts: datetime | None
    delays: tuple[Delay, ...] = ()
    pauses: tuple[str, ...] = ()


def approval_effects(
    groups: Sequence[Sequence[Approval]], now: datetime, *, is_system: bool
) -> list[Effect | None]:
    """Returns the effect of each request; None: it is not computed (a later end of a running
    booking, or a site with too many bookings).

    Each group is decided together. The next turn is computed with the request and without it, on
    what its organisation may see; other organisations' bookings stay where they are. Runs inside a
    transaction of the organisation, or with `is_system` as a program that sees every one.
    """
    if all(_has_end(group) for group in groups):
        return [None] * len(groups)
    policy = policy_of(PolicyVersion.objects.get(state=PolicyVersion.State.LIVE))
    site = snapshot_read(now) if is_system else published_snapshot(now, policy)
    if len(site.held) + len(site.requests) > MOST_ROWS:
        return [None] * len(groups)
    return [None if _has_end(each) else _effect(site, policy, each, now) for each in groups]


def _has_end(group: Sequence[Approval]) -> bool:
    """Whether the later end of a running booking is asked for."""
    return any(each.change is not None and each.change.is_only_end for each in group)


def _effect(site: Snapshot, policy: Policy, group: Sequence[Approval], now: datetime) -> Effect | None:
    asked = [_as_asked(each) for each in group]
    mine = {str(row.id) for row in asked}
    without = replace(
        site,
        requests=tuple(each for each in site.requests if each.booking not in mine),
        held=tuple(each for each in site.held if each.booking not in mine),
        pending=tuple(each for each in site.pending if each.booking not in mine),
    )
    added = (*without.requests, *requests_of(asked, now))
    try:
        # What a change is about stands where it is until then; a new request stands nowhere.
        has_change = any(each.change is not None for each in group)
        with gc_paused():
            before = solve(site if has_change else without, policy)
            after = solve(replace(without, requests=added), policy)
    except SOLVER_FAULTS:
        # The cycle reports a fault of its own; here the page shows the rest of the request.
        return None
    starts, tenant = starts_of(after), group[0].tenant_id
    own = [starts[each] for each in mine if each in starts]
    delays = delays_between(starts_of(before), starts, mine)
    pauses = {each.booking for each in after.pauses} - {each.booking for each in before.pauses}
    labels = labels_of(tenant, pauses)
    return Effect(
        instant(min(own)) if own else None,
        as_delays(tenant, delays),
        tuple(sorted(labels[each] for each in pauses if each in labels)),
    )


def _as_asked(approval: Approval) -> Booking:
    """The booking as it would be approved, ranked as the queue would rank it."""
    booking, change = approval.booking, approval.change
    return booking if change is None else booking_as_asked(booking, change)


def effect_seen(actor: Actor | None, effect: Effect | None) -> Effect | None:
    """Returns it without numbers of bookings that the actor may not see; None: whoever gets a mail."""
    if effect is None:
        return None
    if actor is None:
        unnamed = tuple(replace(each, label="") for each in effect.delays)
        return replace(effect, delays=unnamed, pauses=("",) * len(effect.pauses))
    seen = labels_seen(actor, effect.pauses)
    pauses = tuple(each if each in seen else "" for each in effect.pauses)
    return replace(effect, delays=delays_seen(actor, effect.delays), pauses=pauses)
