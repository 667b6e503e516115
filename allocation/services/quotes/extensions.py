"""The later ends that a booking could have now."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from allocation.models import Booking, PolicyVersion
from allocation.rules.states import EXTENDABLE
from allocation.services.bookings.checks.lengths import extension_check
from allocation.services.policy.policies import policy_of
from allocation.services.quotes.quote_calendar import published_snapshot
from allocation.services.snapshot.snapshot import instant, seconds
from allocation.solver import Availability
from allocation.words.reasons import sentence
from tenants.access import Actor
from tenants.platform.errors import Refused

STEPS = tuple(timedelta(hours=hours) for hours in (1, 2, 6, 24))
SHORTEST = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class LaterEnds:
    """The possible ends in order, and why there is none, or no later one."""

    ends: tuple[datetime, ...]
    limit: str


def later_ends(*, actor: Actor, booking: Booking, now: datetime) -> LaterEnds:
    """Returns the usual steps that are possible, and the latest end before the first that is not.

    Nothing is reserved: the next cycle decides. Run inside the tenant's transaction.
    """
    ends = booking.planned_ends
    if booking.state not in EXTENDABLE or ends is None or booking.extension_until is not None:
        return LaterEnds((), "")
    trial = _Trial(actor, booking, _site(now), now)
    found: list[datetime] = []
    for until in (ends + step for step in STEPS):
        limit, shorter = trial.limit(until)
        if not limit:
            found.append(until)
            continue
        least = (found[-1] if found else ends) + SHORTEST
        minutes = (each.replace(second=0) for each in shorter)
        best = max((each for each in minutes if least <= each < until), default=None)
        if best is not None and not trial.limit(best)[0]:
            found.append(best)
        return LaterEnds(tuple(found), limit)
    return LaterEnds(tuple(found), "")


@dataclass(frozen=True, slots=True)
class _Trial:
    actor: Actor
    booking: Booking
    site: Availability
    now: datetime

    def limit(self, until: datetime) -> tuple[str, Iterable[datetime]]:
        """Returns why the end is not possible, empty if it is, and earlier ends that may be."""
        try:
            extension_check(self.actor, self.booking, until, self.now)
        except Refused as refused:
            untils = (each["until"] for each in refused.alternatives if "until" in each)
            return refused.sentence, tuple(map(datetime.fromisoformat, untils))
        why = self.site.why_not_longer(str(self.booking.id), seconds(until))
        if why is None:
            return "", ()
        possible = dict(why.numbers).get("possible_until")
        return sentence(why), () if possible is None else (instant(int(possible)),)


def _site(now: datetime) -> Availability:
    policy = policy_of(PolicyVersion.objects.get(state=PolicyVersion.State.LIVE))
    return Availability(published_snapshot(now, policy), policy)
