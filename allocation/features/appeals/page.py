"""Pages of appeals: contesting a pause, and the answers of admins and operators."""

from datetime import datetime
from typing import Any
from uuid import UUID

from allocation.access import access_booking, may_give_back
from allocation.features.appeals.models import PauseAppeal
from allocation.features.appeals.services import (
    AppealAnswerTerms,
    AppealTerms,
    appeal_answer,
    appeal_answer_by_operator,
    appeal_raise,
    appeals_to_answer,
    appeals_visible,
    pauses_to_contest,
)
from allocation.models import Booking
from allocation.points import BOOKING_CARDS, BookingCard
from tenants.access import Actor, PlatformActor
from tenants.platform.errors import missing
from tenants.rules.operator_roles import Area
from tenants.web.form_page import Act, form_page, operator_form_page

MOST_SHOWN = 50
_OUTCOMES = [("accepted", "The objection is right"), ("declined", "The pause was right")]


def appeal_card(actor: Actor, booking: Booking, now: datetime) -> BookingCard | None:
    """Returns the appeals of a booking, and the pauses that its reader can contest."""
    if not booking.pause_count:
        return None
    rows = list(appeals_visible(actor).filter(booking=booking))
    may = may_give_back(actor, booking)
    pauses = pauses_to_contest(booking, now) if may else []
    if not rows and not pauses:
        return None
    return BookingCard("appeals/card.html", {"booking": booking, "rows": rows, "pauses": pauses, "now": now})


def _contest(actor: Actor, now: datetime, reference: str, number: int) -> dict[str, Any]:
    booking = access_booking(actor, reference)
    pauses = {each.number: each for each in pauses_to_contest(booking, now)}
    rows = appeals_visible(actor).filter(booking=booking, pause__number=number)
    row = rows.first()
    if row is None and (number not in pauses or not may_give_back(actor, booking)):
        raise missing("pause")
    return {"booking": booking, "pause": pauses.get(number), "row": row}


def _all(actor: Actor, now: datetime) -> dict[str, Any]:
    return {"open": appeals_to_answer(actor), "rows": appeals_visible(actor)[:MOST_SHOWN]}


def _one(actor: Actor, now: datetime, appeal_id: UUID) -> dict[str, Any]:
    row = appeals_visible(actor).filter(id=appeal_id).first()
    if row is None:
        raise missing("appeal")
    return {"row": row, "may_answer": appeals_to_answer(actor).filter(id=row.id).exists()}


def _all_of_site(actor: PlatformActor, now: datetime) -> dict[str, Any]:
    rows = PauseAppeal.objects.filter(decider=PauseAppeal.Decider.OPERATOR)
    rows = rows.select_related("tenant", "booking", "pause", "raised_by", "answered_by")
    return {"open": appeals_to_answer(None), "rows": rows[:MOST_SHOWN], "is_operator": True}


def _one_of_site(actor: PlatformActor, now: datetime, appeal_id: UUID) -> dict[str, Any]:
    rows = PauseAppeal.objects.select_related("tenant", "booking", "pause", "raised_by", "answered_by")
    row = rows.filter(id=appeal_id, decider=PauseAppeal.Decider.OPERATOR).first()
    if row is None:
        raise missing("appeal")
    may_answer = row.state == PauseAppeal.State.OPEN and row.raised_by_id != actor.user_id
    return {"row": row, "may_answer": may_answer, "is_operator": True}


def _said(row: PauseAppeal) -> str:
    return f"{row.raised_by.display_name} reads your answer."


BOOKING_CARDS.append(appeal_card)
_CHOICES = {"outcome": lambda _: _OUTCOMES}
urlpatterns = [
    form_page(
        "bookings/<str:reference>/pauses/<int:number>/contest",
        "appeal-raise",
        "appeals/contest.html",
        _contest,
        Act("raise", appeal_raise, "Your objection is on its way. You get an answer.", terms=AppealTerms),
    ),
    form_page("appeals", "appeals", "appeals/page.html", _all),
    form_page(
        "appeals/<uuid:appeal_id>",
        "appeal",
        "appeals/one.html",
        _one,
        Act("answer", appeal_answer, _said, terms=AppealAnswerTerms, choices=_CHOICES),
    ),
    operator_form_page(
        "appeals",
        "ops-appeals",
        "appeals/page.html",
        _all_of_site,
        area=Area.APPEALS,
    ),
    operator_form_page(
        "appeals/<uuid:appeal_id>",
        "ops-appeal",
        "appeals/one.html",
        _one_of_site,
        Act("answer", appeal_answer_by_operator, _said, terms=AppealAnswerTerms, choices=_CHOICES),
        area=Area.APPEALS,
    ),
]
