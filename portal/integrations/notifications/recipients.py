"""The recipients of committed messages, with what each message is about."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q

from allocation.models import Approval, Booking, BookingEvent
from allocation.queries.bookings.approvals import approvers_of
from portal.integrations.notifications.override_people import KINDS, note_of, people_of_note
from portal.integrations.notifications.words_of_payloads import words_of
from tenants.models import Membership, OutboxMessage, Role
from tenants.platform.database.compiled import Compiled
from tenants.rules.notifications import OF_ELEMENTS, OUTCOMES, URGENT, WINDOW

APPROVAL = "booking.approval_requested"
STARTED = "booking.started"
SCHEDULED = "booking.scheduled"
# Offers are answered on their page: to open it changes nothing.
OFFERED = "booking.offered"


# Only what `_owners` needs: a booking has a hundred columns.
_bookings = Compiled(
    lambda _, keys: Booking.objects.filter(id__in=keys).only(
        "number", "array", "array_index", "name", "owner", "project", "starts"
    )
)
_events = Compiled(lambda _, keys: BookingEvent.objects.filter(id__in=keys), keys="bigint")


@dataclass(frozen=True, slots=True)
class Recipient:
    """A person and a message for them. `path` is the page that it is about, in the tenant."""

    message: OutboxMessage
    user_id: int
    title: str
    text: str = ""
    path: str = ""
    until: datetime | None = None
    booking: UUID | None = None
    can_wait: bool = True
    project: UUID | None = None

    @property
    def kind(self) -> str:
        """The kind by which the person chooses: a window from a waiting list is one of its own."""
        is_window = self.message.kind == SCHEDULED and self.message.payload.get("waitlist")
        return WINDOW if is_window else self.message.kind


def recipients_of(messages: Sequence[OutboxMessage], now: datetime) -> Iterator[Recipient]:
    """Yields each person that each message concerns, as long as they belong to its tenant."""
    yield from _owners([each for each in messages if _is_of_owner(each)])
    yield from _approvers([each for each in messages if each.kind == APPROVAL], now)
    for message in messages:
        if message.kind in KINDS:
            yield from _of_override(message)
        yield from _of_payloads(message)
        if "title" in message.payload and message.payload.get("audience", "operators") != "operators":
            yield from _addressed(message)


def _is_of_owner(message: OutboxMessage) -> bool:
    if message.kind == SCHEDULED and message.payload.get("waitlist"):
        # An offer that was accepted is no news.
        return bool(message.payload.get("waitlist") == "auto")
    is_about_one = message.kind.startswith("booking.") and message.kind != APPROVAL
    return is_about_one and message.kind in OUTCOMES


def _owners(messages: Sequence[OutboxMessage]) -> Iterator[Recipient]:
    if not messages:
        return
    now = messages[0].created
    bookings = {row.id: row for row in _bookings(now, set(map(_booking_id, messages)))}
    named = {each.payload["event"] for each in messages if each.payload.get("event")}
    events = {row.id: row for row in (_events(now, named) if named else ())}
    for message in messages:
        booking = bookings.get(_booking_id(message))
        is_element = booking is not None and booking.array_id is not None
        if booking is None or (is_element and message.kind not in OF_ELEMENTS):
            continue
        event = events.get(message.payload.get("event"))
        # People wait for the start of a fixed window, so its mail is late after quiet hours.
        is_fixed_start = message.kind == STARTED and booking.starts is not None
        yield Recipient(
            message=message,
            user_id=booking.owner_id,
            title=f"{_name(booking)} {_outcome(message)}",
            text=event.text if event else "",
            path="offers" if message.kind == OFFERED else f"bookings/{booking.label}",
            until=(event.until or event.latest or event.starts) if event else None,
            booking=booking.id,
            can_wait=message.kind not in URGENT and not is_fixed_start,
            project=booking.project_id,
        )


def _outcome(message: OutboxMessage) -> str:
    is_window = message.kind == SCHEDULED and message.payload.get("waitlist")
    return OUTCOMES[WINDOW if is_window else message.kind]


def _approvers(messages: Iterable[OutboxMessage], now: datetime) -> Iterator[Recipient]:
    """Yields who may decide the present step of a request. A series' dates are one request."""
    asked = {_booking_id(message): message for message in messages}
    if not asked:
        return
    rows = Approval.objects.filter(booking__in=asked, state=Approval.State.OPEN)
    rows = rows.select_related("booking", "booking__project", "asker")
    seen: set[tuple[UUID, datetime]] = set()
    for approval in rows.order_by("booking__number"):
        key = (approval.series_id or approval.id, approval.asked)
        if key in seen:
            continue
        seen.add(key)
        person = approval.asker.display_name
        for user_id in approvers_of(approval, now):
            yield Recipient(
                message=asked[approval.booking_id],
                user_id=user_id,
                title=f"{person} asks for an approval",
                text=f"{_name(approval.booking)} in {approval.booking.project.name}.",
                path=f"approvals/{approval.id}",
                until=approval.decide_by,
                booking=approval.booking_id,
            )


def _of_payloads(message: OutboxMessage) -> Iterator[Recipient]:
    """Yields the recipients of a message that is not about one booking."""
    words = words_of(message.kind, message.payload)
    if words is None:
        return
    for user_id in sorted(_concerned(message)):
        yield Recipient(
            message=message,
            user_id=user_id,
            title=words.headline,
            text=" ".join(words.sentences),
            path=words.path,
            project=UUID(project) if (project := message.payload.get("project")) else None,
        )


def _concerned(message: OutboxMessage) -> set[int]:
    """Leads and admins by the payload's `audience`, and the `people` that it names; of the audience
    `people` only these."""
    said = message.payload
    if "only" in said:
        return {said["only"]}
    project, audience = said.get("project"), said.get("audience", "admins")
    if audience == "people":
        return {*said["people"]}
    roles = Q()
    if audience != "leads" or project is None:
        roles |= Q(role=Role.TENANT_ADMIN)
    if audience != "admins" and project is not None:
        roles |= Q(role=Role.LEAD, project=project)
    holders = Membership.objects.filter(roles, tenant_id=message.owner)
    people = {*holders.values_list("user_id", flat=True), *said.get("people", ())}
    return people - {said.get("author")}


def _of_override(message: OutboxMessage) -> Iterator[Recipient]:
    """Yields who decides a request for more, who asked for it, and who can use it."""
    note = note_of(message)
    if note is None:
        return
    for user_id in people_of_note(message.kind, note.row):
        yield Recipient(
            message=message,
            user_id=user_id,
            title=note.title,
            text=note.text,
            path="overrides",
            until=note.until,
        )


def _addressed(message: OutboxMessage) -> Iterator[Recipient]:
    """Yields the audience of a message that carries its own words."""
    said = message.payload
    rows = Membership.objects.filter(tenant_id=message.owner)
    if said["audience"] == "admins":
        rows = rows.filter(role=Role.TENANT_ADMIN)
    elif said["audience"] == "people":
        rows = rows.filter(user_id__in=said["people"])
    until = datetime.fromisoformat(said["until"]) if said["until"] else None
    for user_id in rows.values_list("user_id", flat=True).order_by("user_id").distinct():
        yield Recipient(
            message=message,
            user_id=user_id,
            title=said["title"],
            text=said["text"],
            path=said["path"],
            until=until,
            can_wait=message.kind not in URGENT,
        )


def _name(booking: Booking) -> str:
    return " ".join((booking.name or booking.label).split())


def _booking_id(message: OutboxMessage) -> UUID:
    return UUID(hex=message.payload["id"].removeprefix("bk_"))
