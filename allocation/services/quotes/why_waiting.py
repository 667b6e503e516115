"""Why a booking waits: the bookings ahead of it by each key, who has its GPUs until when, and what
would let it start earlier."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from allocation.models import Booking, PolicyVersion
from allocation.queries.bookings.holders import Holder, holders_of
from allocation.queries.bookings.queue_ahead import Ahead, queue_ahead
from allocation.queries.decisions.seen import ahead_seen, holders_seen
from allocation.rules.states import WAITING, State
from allocation.services.policy.policies import policy_of
from allocation.words.queue import change_text
from solver import Policy
from tenants.access import Actor
from tenants.models import Quota, Tier

DAY = 86_400


@dataclass(frozen=True, slots=True)
class Change:
    """Something that would let the booking start earlier; `at` is when, if the clock does it."""

    code: str
    sentence: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class WhyWaiting:
    """The bookings ahead in the queue, who has the planned GPUs, and what would change it."""

    ahead: tuple[Ahead, ...] = ()
    holders: tuple[Holder, ...] = ()
    changes: tuple[Change, ...] = ()


def why_waiting(booking: Booking, now: datetime) -> WhyWaiting:
    """Returns why a booking with a planned start waits; empty for any other.

    Runs inside a transaction of its tenant.
    """
    is_waiting = booking.state in (*WAITING, State.PAUSED)
    if not is_waiting or booking.expected_start is None or booking.expected_start <= now:
        return WhyWaiting()
    policy = policy_of(PolicyVersion.objects.get(state=PolicyVersion.State.LIVE))
    ahead, holders = queue_ahead(booking, policy.order), tuple(holders_of(booking, now))
    changes = tuple(_changes(booking, policy, ahead, has_holders=bool(holders), now=now))
    return WhyWaiting(ahead, holders, changes)


def waits_seen(actor: Actor, waits: WhyWaiting) -> WhyWaiting:
    """Returns it as the actor may read it: without numbers of bookings that they do not see."""
    ahead, holders = ahead_seen(actor, waits.ahead), holders_seen(actor, waits.holders)
    return replace(waits, ahead=ahead, holders=holders)


def _changes(
    booking: Booking, policy: Policy, ahead: Collection[Ahead], *, has_holders: bool, now: datetime
) -> Iterator[Change]:
    """Yields what would let it start earlier, what people can do first."""
    rules = {each.rule for each in ahead}
    if any(each.is_own for each in ahead):
        yield _change("own")
    if ahead and (tiers := _higher_tiers(booking)):
        yield _change("higher_tier", tiers=", ".join(tiers))
    # On several classes it is behind those of one class, whatever it would have on each.
    is_behind = booking.tier.pausable and bool(booking.ask.get("groups"))
    counts = booking.tier.counts_against_guarantee and not is_behind
    if "guarantee" in rules and counts and booking.has_expected_start:
        quota = Quota.objects.filter(project=None, gpu_class=booking.planned_class).first()
        has_one = quota is not None and quota.guaranteed_units > 0
        code = "guarantee" if has_one else "no_guarantee"
        yield _change(code, gpu_class=booking.planned_class)
    if rules & {"share", "part"}:
        yield _change("share", days=policy.half_life // DAY)
    if rules & {"share", "part", "tier"} and counts and booking.has_expected_start:
        since = max(booking.submitted, booking.not_before)
        aged = since + timedelta(seconds=policy.patience)
        if now < aged < (booking.expected_start or aged):
            yield Change("aged", change_text("aged"), aged)
    if has_holders:
        yield _change("early_end")


def _change(code: str, /, **facts: str | int) -> Change:
    return Change(code, change_text(code, **facts))


def _higher_tiers(booking: Booking) -> list[str]:
    """Returns the tiers that go before the booking's and allow its length."""
    tiers = Tier.objects.filter(
        priority__gt=booking.tier.priority, max_duration_seconds__gte=booking.duration_seconds
    )
    return list(tiers.order_by("priority").values_list("name", flat=True))
