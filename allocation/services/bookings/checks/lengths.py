"""How much longer a booking that has GPUs may get, by the rules that need no calendar."""

import math
from datetime import datetime, timedelta
from decimal import Decimal

from allocation.models import Booking, Override
from allocation.rules.states import State
from allocation.services.bookings.checks.admission import length_text
from allocation.services.bookings.checks.affordable import seconds_within
from allocation.services.bookings.checks.terms import longer_terms
from allocation.services.bookings.checks.tiers import TierUse
from allocation.services.overrides.use import Need, override_for
from allocation.services.record.refusals import refusal
from allocation.words.refusals import refusal_text
from billing.queries import tightest_figures
from billing.rules import ceil_to_cents, floor_to_cents, money_text
from tenants.access import Actor
from tenants.platform.errors import Refused


def extension_check(actor: Actor, booking: Booking, until: datetime, now: datetime) -> None:
    """Checks the length that the tier allows, and the budget.

    Raises:
        Refused: `too_long`, `budget_exceeded`.
    """
    length_check(actor, booking, until, now)
    seconds = int((until - planned_end_of(booking)).total_seconds())
    _budget_check(booking, seconds, now)


def length_check(actor: Actor, booking: Booking, until: datetime, now: datetime) -> None:
    """Raises Refused `too_long` if neither its tier nor an exception allows a run until then."""
    use = TierUse.of(booking.project, booking.tier, booking.owner_id, booking, now)
    limit = use.limits.longest
    most = limit.value or 0
    longest = timedelta(seconds=most)
    if booking.planned_starts is None or until - booking.planned_starts <= longest:
        return
    over = math.ceil((until - booking.planned_starts - longest).total_seconds())
    is_beyond = most + over > (use.limits.bounds.longest or 0)
    need = Need(use.project, use.tier, use.person_id, booking, over, is_beyond)
    if override_for(Override.Kind.LENGTH, need, now) is not None:
        return
    latest = booking.planned_starts + longest
    sentence = refusal_text(
        "extension_too_long",
        tier=booking.tier.name,
        longest=length_text(longest),
        latest=actor.clock(latest, now),
    )
    raise refusal(
        "too_long",
        sentence,
        "invalid",
        "duration",
        owner=limit.owner,
        numbers={"asked": most + over, "limit": most},
        alternatives=[{"until": latest.isoformat()}] if latest > (booking.planned_ends or now) else [],
        more={
            "kind": "length",
            "amount": str(over),
            "tier": booking.tier_id,
            "project": booking.project.slug,
            "booking": booking.label,
        },
    )


def planned_end_of(booking: Booking) -> datetime:
    """Returns the planned end of the booking.

    Raises:
        Refused: `no_place_yet`, `extension_while_paused`.
    """
    if booking.state in (State.PAUSING, State.PAUSED):
        facts = {"label": booking.label, "state": booking.get_state_display().lower()}
        sentence = refusal_text("extension_while_paused", **facts)
        raise Refused("extension_while_paused", sentence, rule="R50", owner="others")
    if booking.planned_ends is None:
        raise Refused("no_place_yet", refusal_text("no_place_yet", label=booking.label))
    return booking.planned_ends


def _extra(booking: Booking, seconds: int, now: datetime) -> Decimal:
    """What so many seconds more add to the hold of a booking."""
    return longer_terms(booking, seconds, now).hold_amount - booking.hold_amount


def _budget_check(booking: Booking, seconds: int, now: datetime) -> None:
    ends, extra = planned_end_of(booking), _extra(booking, seconds, now)
    effect = tightest_figures(
        project_id=booking.project_id,
        person_id=booking.owner_id,
        campaign_id=booking.campaign_id,
        at=ends,
    )
    if effect is not None and effect.is_hard and effect.left < extra:
        needs = money_text(ceil_to_cents(extra), booking.currency)
        left = money_text(floor_to_cents(effect.left), effect.currency)
        lengths = seconds_within(seconds, effect.left, extra)
        shorter = next((each for each in lengths if _extra(booking, each, now) <= effect.left), None)
        until = [] if shorter is None else [{"until": (ends + timedelta(seconds=shorter)).isoformat()}]
        raise Refused(
            "budget_exceeded",
            refusal_text("budget_exceeded", needs=needs, left=left),
            "budget",
            "until",
            rule="R10",
            owner="tenant_admin",
            numbers={"needs": str(extra), "left": str(effect.left)},
            alternatives=until,
            more={
                "kind": "budget",
                "budget": str(effect.budget_id),
                "amount": str(ceil_to_cents(extra - effect.left)),
            },
        )
