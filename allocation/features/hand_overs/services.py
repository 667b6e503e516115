"""Offering a booking to a colleague, and the answers."""

from collections.abc import Collection
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from allocation.access import access_booking, access_booking_to_change, may_change
from allocation.features.hand_overs.checks import (
    NOT_BEGUN,
    hand_over_check,
    limits_check,
    money_move,
)
from allocation.features.hand_overs.models import HandOver
from allocation.models import Booking
from allocation.services.record.history import Event, event_add
from allocation.services.runs.transition import booking_change, booking_lock
from allocation.words.events import event_text
from allocation.words.refusals import refusal_text
from tenants.access import Actor, acting_members, may_still_book
from tenants.audit import audit_record
from tenants.failures import each_apart
from tenants.models import KnownPerson, Membership, Role, User, set_by_valid_token
from tenants.outbox import outbox_add, task_request
from tenants.platform.errors import Refused, denied, invalid, missing
from tenants.platform.terms import term, terms
from tenants.services.input_values import name_read

TASK = "hand_overs.expire"
LONGEST_DAYS = 14
MOST_AT_ONCE = 200
_PARTS = ("project", "tier", "owner", "campaign")
_State = HandOver.State


@terms
class HandOverTerms:
    """The colleague who is offered a booking."""

    person: str = term(
        "Colleague", says="Sign-in name of somebody who may book in the project.", max_length=150
    )
    note: str = term(
        "Note (optional)",
        "Your colleague reads it.",
        says="What the colleague reads.",
        default="",
        max_length=200,
    )
    days: int = term(
        "Days to answer",
        f"From 1 to {LONGEST_DAYS}; never longer than until a fixed start.",
        says="After which the offer expires; a fixed start ends it earlier.",
        default=3,
        min_value=1,
        max_value=LONGEST_DAYS,
    )


def hand_over_offer(*, actor: Actor, reference: str, terms: HandOverTerms, now: datetime) -> HandOver:
    """Offers a booking that has not begun to a colleague. An open offer of it is replaced.

    Raises:
        Refused: `not_found`, `not_allowed`, `hand_over_taker`, `hand_over_self`, `bad_name`,
            `hand_over_days`, or as `hand_over_check`.
    """
    found = access_booking_to_change(actor, reference)
    if not 1 <= terms.days <= LONGEST_DAYS:
        raise invalid("hand_over_days", refusal_text("hand_over_days", most=LONGEST_DAYS), "days")
    note = name_read(terms.note, param="note", longest=200) if terms.note.strip() else ""
    with transaction.atomic():
        booking = booking_lock(found.id, *_PARTS)
        if not may_change(actor, booking):
            # It has got another owner meanwhile.
            raise denied(refusal_text("booking_not_yours"))
        hand_over_check(booking)
        taker = _taker_of(actor, booking, terms.person)
        old = _open_of(booking)
        if old is not None:
            _close(old, booking, _State.WITHDRAWN, actor, now)
        until = now + timedelta(days=terms.days)
        if booking.starts is not None:
            until = min(until, booking.starts)
        if until <= now:
            raise Refused("hand_over_begun", refusal_text("hand_over_begun", label=booking.label))
        row = HandOver.objects.create(
            tenant_id=actor.tenant_id,
            booking=booking,
            revision=booking.revision,
            giver=booking.owner,
            taker=taker,
            note=note,
            created=now,
            created_by_id=actor.user_id,
            made_with_id=actor.token_id,
            until=until,
        )
        _written(row, booking, "offered", actor, now)
    return row


def hand_over_accept(*, actor: Actor, reference: str, now: datetime) -> HandOver:
    """Makes the actor the owner of a booking that is offered to them, by the limits that a new
    booking of theirs would meet. Project, price and place stay.

    Raises:
        Refused: `not_found`, `not_allowed`, `hand_over_none`, `hand_over_changed`, or as
            `hand_over_check`, `limits_check` and `money_move`.
    """
    with transaction.atomic():
        booking, row = _open_locked(actor, reference, now)
        if row.taker_id != actor.user_id or not actor.may_book(booking.project_id):
            raise denied(refusal_text("hand_over_not_yours"))
        hand_over_check(booking)
        if row.revision != booking.revision:
            raise Refused("hand_over_changed", refusal_text("hand_over_changed", label=booking.label))
        limits_check(actor, booking, now)
        money_move(booking, actor.user_id, now)
        row.state, row.answered, row.answered_by_id = _State.ACCEPTED, now, actor.user_id
        row.save(update_fields=["state", "answered", "answered_by"])
        names = {"giver": row.giver.display_name, "taker": row.taker.display_name}
        event = Event("handed_over", event_text("handed_over", **names), actor.user_id)
        booking_change(booking, event=event, now=now, owner=row.taker)
        _logged(row, booking, "accepted", actor.user_id, now)
        _notify(row, booking, "accepted", actor.user_id, now)
        task_request("allocation.cycle")
    return row


def hand_over_decline(*, actor: Actor, reference: str, now: datetime) -> HandOver:
    """Declines an offer to the actor; the booking stays as it is.

    Raises:
        Refused: `not_found`, `not_allowed` or `hand_over_none`.
    """
    with transaction.atomic():
        booking, row = _open_locked(actor, reference, now)
        if row.taker_id != actor.user_id:
            raise denied(refusal_text("hand_over_not_yours"))
        _close(row, booking, _State.DECLINED, actor, now)
    return row


def hand_over_withdraw(*, actor: Actor, reference: str, now: datetime) -> HandOver:
    """Withdraws an open offer: by the owner or a lead of the project.

    Raises:
        Refused: `not_found`, `not_allowed` or `hand_over_none`.
    """
    with transaction.atomic():
        booking, row = _open_locked(actor, reference, now)
        if not may_change(actor, booking):
            raise denied(refusal_text("booking_not_yours"))
        _close(row, booking, _State.WITHDRAWN, actor, now)
    return row


def hand_overs_visible(actor: Actor) -> QuerySet[HandOver]:
    """Returns the offers that the actor gave or got, and those of projects that they lead."""
    rows = HandOver.objects.filter(tenant_id=actor.tenant_id)
    rows = rows.select_related("booking", "booking__project", "giver", "taker", "created_by", "answered_by")
    if actor.is_tenant_admin:
        return rows if actor.only_project is None else rows.filter(booking__project=actor.only_project)
    led = [project for project in actor.roles if actor.may_lead(project)]
    mine = Q(giver=actor.user_id) | Q(taker=actor.user_id) | Q(booking__project__in=led)
    return rows.filter(mine, booking__project__in=list(actor.roles))


def hand_over_shown(actor: Actor, booking: Booking) -> HandOver | None:
    """Returns the newest offer of a booking that the actor may see; None: there is none."""
    return hand_overs_visible(actor).filter(booking=booking).first()


def is_open(row: HandOver, now: datetime) -> bool:
    """Returns whether an offer can be answered: in time, and its token is still valid."""
    return HandOver.objects.filter(_in_force(now), id=row.id).exists()


def takers_of(booking: Booking) -> list[tuple[str, str]]:
    """Returns the sign-in names and names of the people who can get a booking, by name."""
    people = User.objects.filter(id__in=_bookers(booking).values("user")).exclude(id=booking.owner_id)
    rows = people.order_by("first_name", "last_name", "username")
    return [(each.username, each.display_name) for each in rows]


def hand_overs_over(now: datetime) -> QuerySet[HandOver]:
    """Returns the open offers that nobody can accept any more."""
    begun = ~Q(booking__state__in=NOT_BEGUN)
    return HandOver.objects.filter(state=_State.OPEN).filter(~_in_force(now) | begun | ~Q(_taker_stays()))


def hand_overs_expire(now: datetime) -> int:
    """Closes the offers that are over; returns how many."""
    rows = hand_overs_over(now).order_by("until", "id")[:MOST_AT_ONCE]
    return each_apart("hand-overs", rows, lambda row: _expire(row.id, row.booking_id, now), now)


def hand_overs_left(now: datetime) -> QuerySet[HandOver]:
    """Returns the open offers to people who can't book in the project any more."""
    return HandOver.objects.filter(~Q(_taker_stays()), state=_State.OPEN)


def hand_overs_left_close(now: datetime) -> int:
    """Closes the offers of people who have left with the turn after that; no booking ends by it."""
    hand_overs_expire(now)
    return 0


def _expire(row_id: UUID, booking_id: UUID, now: datetime) -> bool:
    with transaction.atomic():
        # The booking before the offer, as everywhere.
        booking = booking_lock(booking_id, *_PARTS)
        row = hand_overs_over(now).select_for_update(of=("self",)).filter(id=row_id).first()
        if row is None:
            return False
        _close(row, booking, _State.EXPIRED, None, now)
    return True


def _in_force(now: datetime) -> Q:
    return Q(state=_State.OPEN, until__gt=now) & set_by_valid_token(now)


def _taker_stays() -> Q:
    """Whether the person who is offered a booking can still book in its project."""
    roles = Q(role=Role.TENANT_ADMIN) | Q(
        project=OuterRef("booking__project"), role__in=(Role.RESEARCHER, Role.LEAD)
    )
    whose = {"tenant": OuterRef("tenant"), "user": OuterRef("taker")}
    disabled = KnownPerson.objects.filter(**whose, disabled__isnull=False)
    return Q(Exists(Membership.objects.filter(roles, **whose, user__is_active=True)), ~Exists(disabled))


def _bookers(booking: Booking) -> QuerySet[Membership]:
    """The memberships of people who may book in the project of a booking."""
    roles = Q(role=Role.TENANT_ADMIN) | Q(project=booking.project_id, role__in=(Role.RESEARCHER, Role.LEAD))
    return acting_members(booking.tenant_id).filter(roles)


def _taker_of(actor: Actor, booking: Booking, username: str) -> User:
    member = acting_members(actor.tenant_id).filter(user__username=username).select_related("user").first()
    if member is None:
        raise missing("person", "person")
    if member.user_id == booking.owner_id:
        raise invalid("hand_over_self", refusal_text("hand_over_self", label=booking.label), "person")
    if not may_still_book(member.user_id, booking.project):
        names = {"person": member.user.display_name, "project": booking.project.name}
        raise invalid("hand_over_taker", refusal_text("hand_over_taker", **names), "person")
    return member.user


def _open_of(booking: Booking) -> HandOver | None:
    rows = HandOver.objects.select_related("giver", "taker").select_for_update(of=("self",))
    return rows.filter(booking=booking, state=_State.OPEN).first()


def _open_locked(actor: Actor, reference: str, now: datetime) -> tuple[Booking, HandOver]:
    """The locked booking and its open offer, for who gives or gets it and for leads."""
    booking = booking_lock(access_booking(actor, reference).id, *_PARTS)
    row = _open_of(booking)
    seen = row is not None and (actor.user_id in row.parties or actor.may_lead(booking.project_id))
    if row is None or not seen or not is_open(row, now):
        raise Refused("hand_over_none", refusal_text("hand_over_none", label=booking.label))
    return booking, row


def _close(row: HandOver, booking: Booking, state: str, actor: Actor | None, now: datetime) -> None:
    row.state, row.answered = state, now
    row.answered_by_id = actor.user_id if actor is not None else None
    row.save(update_fields=["state", "answered", "answered_by"])
    _written(row, booking, state, actor, now)


def _written(row: HandOver, booking: Booking, what: str, actor: Actor | None, now: datetime) -> None:
    """Writes what happened into the history of the booking and the log, and notifies people."""
    author = actor.user_id if actor is not None else None
    text = event_text(
        f"hand_over_{what}",
        actor=actor.name if actor is not None else "",
        taker=row.taker.display_name,
    )
    event_add(booking, kind="hand_over", sentence=text, now=now, actor_id=author)
    _logged(row, booking, what, author, now)
    _notify(row, booking, what, author, now)


def _logged(row: HandOver, booking: Booking, what: str, author: int | None, now: datetime) -> None:
    detail = {
        "booking": booking.label,
        "giver": row.giver.username,
        "taker": row.taker.username,
        "until": row.until.isoformat(),
    }
    audit_record(
        tenant_id=row.tenant_id,
        actor_id=author,
        action=f"hand_over.{what}",
        target=("hand_over", row.pk),
        now=now,
        detail=detail,
    )


def _notify(row: HandOver, booking: Booking, what: str, author: int | None, now: datetime) -> None:
    """Notifies the others: who gives the booking, who offered it, and who gets it."""
    people: Collection[int] = row.parties - {author}
    if not people:
        return
    name = booking.name or booking.label
    names = {"giver": row.giver.display_name, "taker": row.taker.display_name, "booking": name}
    payload = {
        "audience": "people",
        "people": sorted(people),
        "title": str(TITLES[what]) % names,
        "text": row.note if what == "offered" and row.note else f"{booking.label} in {booking.project.name}.",
        "path": f"bookings/{booking.label}",
        "until": row.until.isoformat() if what == "offered" else None,
    }
    outbox_add(tenant_id=row.tenant_id, kind=f"hand_over.{what}", payload=payload, now=now)


TITLES = {
    "offered": "%(giver)s offers %(taker)s the booking %(booking)s",
    "accepted": "%(taker)s has taken over the booking %(booking)s",
    "declined": "%(taker)s declined the booking %(booking)s",
    "withdrawn": "The booking %(booking)s is not offered to %(taker)s any more",
    "expired": "The offer of the booking %(booking)s to %(taker)s has expired",
}
