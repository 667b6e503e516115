"""How much longer a booking that has GPUs may get, by the rules that need no calendar."""

from datetime import datetime, timedelta
from decimal import Decimal

from allocation.models import Booking
from allocation.rules.states import State
from allocation.services.bookings.admission import length_text
from allocation.services.bookings.terms import longer_terms
from allocation.services.record.refusals import refusal
from allocation.words.refusals import refusal_text
from billing.queries import tightest_figures
from billing.rules import money_text
from tenants.access import Actor
from tenants.platform.errors import Refused


def extension_check(actor: Actor, booking: Booking, until: datetime, now: datetime) -> None:
    """Checks the length that the tier allows, and the budget.

    Raises:
        Refused: `too_long`, `budget_exceeded`.
    """
    length_check(actor, booking, until)
    seconds = int((until - planned_end_of(booking)).total_seconds())
    extra = longer_terms(booking, seconds, now).hold_amount - booking.hold_amount
    _budget_check(booking, extra, now)


def length_check(actor: Actor, booking: Booking, until: datetime) -> None:
    """Raises Refused `too_long` if its tier allows no run until then."""
    longest = timedelta(seconds=booking.tier.max_duration_seconds)
    if booking.planned_starts is None or until - booking.planned_starts <= longest:
        return
    latest = booking.planned_starts + longest
    sentence = refusal_text(
        "extension_too_long",
        tier=booking.tier.name,
        longest=length_text(longest),
        latest=actor.clock(latest),
    )
    raise refusal(
        "too_long", sentence, "invalid", "duration", alternatives=[{"until": latest.isoformat()}]
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


def _budget_check(booking: Booking, extra: Decimal, now: datetime) -> None:
    effect = tightest_figures(
        project_id=booking.project_id,
        person_id=booking.owner_id,
        campaign_id=booking.campaign_id,
        at=planned_end_of(booking),
    )
    if effect is not None and effect.is_hard and effect.left < extra:
        needs = money_text(extra, booking.currency)
        left = money_text(effect.left, effect.currency)
        raise Refused(
            "budget_exceeded",
            refusal_text("budget_exceeded", needs=needs, left=left),
            "budget",
            "until",
            rule="R10",
            owner="tenant_admin",
            numbers={"needs": str(extra), "left": str(effect.left)},
        )
