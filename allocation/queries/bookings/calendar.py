"""Calendar feeds: bookings with a time, and the maintenance of a class."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from django.db.models import Max, Q, QuerySet

from allocation.models import Booking, Maintenance
from allocation.rules.states import ON_WAITLIST, STATE_WORDS, State
from tenants.access import Actor
from tenants.models import GpuClass

PAST = timedelta(days=30)
MAX_EVENTS = 2_000
Status = Literal["TENTATIVE", "CONFIRMED", "CANCELLED"]

_NEVER = frozenset({State.CANCELLED, State.REFUSED, State.REJECTED, State.EXPIRED})
_ASKED = frozenset({State.REQUESTED, State.AWAITING_APPROVAL, *ON_WAITLIST, State.QUEUED})


@dataclass(frozen=True, slots=True)
class Event:
    """One calendar entry for [starts, ends). `sequence` rises with every change, `changed` is the
    time of the last one. `path` is the page's path within its tenant."""

    uid: str
    sequence: int
    status: Status
    starts: datetime
    ends: datetime
    changed: datetime
    title: str
    words: str
    path: str = ""


def bookings_in_calendar(
    actor: Actor, project_id: UUID | None, gpu_class: str | None, now: datetime
) -> tuple[Event, ...]:
    """The reader's own bookings, or the visible ones of a project or of a class, from the last 30
    days on."""
    rows = Booking.objects.filter(tenant_id=actor.tenant_id)
    if project_id is not None:
        rows = rows.filter(project_id=project_id)
    elif gpu_class is not None:
        is_mixed = Q(ask__groups__contains=[{"gpu_class": gpu_class}])
        rows = rows.filter(Q(planned_class=gpu_class) | is_mixed)
    else:
        rows = rows.filter(owner_id=actor.user_id)
    if not actor.is_tenant_admin:
        rows = rows.filter(project_id__in=actor.roles)
    recent = Q(planned_ends__gt=now - PAST) | Q(planned_ends=None, not_before__gt=now - PAST)
    return tuple(booking_events(rows.filter(recent).order_by("-submitted", "id")[:MAX_EVENTS]))


def booking_events(rows: QuerySet[Booking]) -> Iterator[Event]:
    """An entry for each booking that has a time, in the order of the rows."""
    found = rows.select_related("project", "owner", "tier").annotate(changed=Max("events__at"))
    labels = dict(GpuClass.objects.values_list("slug", "label"))
    for booking in found:
        window = _window(booking)
        if window is not None:
            yield Event(
                uid=f"bk_{booking.id.hex}",
                sequence=booking.version,
                status=_status(booking),
                starts=window[0],
                ends=window[1],
                changed=max(filter(None, (booking.changed, booking.changed_at, booking.submitted))),
                title=_title(booking, labels),
                words=_words(booking),
                path=f"bookings/{booking.label}",
            )


def maintenance_in_calendar(gpu_class: str, now: datetime) -> Iterator[Event]:
    """An entry for each maintenance of GPUs of a class."""
    reach = (
        Q(gpu__gpu_class=gpu_class)
        | Q(node__gpus__gpu_class=gpu_class)
        | Q(rack__node__gpus__gpu_class=gpu_class)
    )
    ids = Maintenance.objects.filter(reach, ends__gt=now - PAST).values("id")
    rows = Maintenance.objects.filter(id__in=ids).select_related("rack", "node", "gpu__node")
    for row in rows.order_by("starts", "id")[:MAX_EVENTS]:
        ended = row.ended_at
        is_off = ended is not None and ended <= row.starts
        yield Event(
            uid=f"maintenance_{row.id.hex}",
            sequence=row.revision,
            status="CANCELLED" if is_off else "CONFIRMED",
            starts=row.starts,
            ends=row.ends if ended is None or is_off else min(row.ends, ended),
            changed=row.changed_at or row.created,
            title=f"Maintenance of {row.where}",
            words=row.reason,
        )


def by_start(events: Iterable[Event]) -> tuple[Event, ...]:
    """The entries by start and id, so that equal entries make equal files."""
    return tuple(sorted(events, key=lambda event: (event.starts, event.uid)))


def _window(booking: Booking) -> tuple[datetime, datetime] | None:
    """The actual or planned window of a booking, or the fixed window that it requested."""
    starts, ends = booking.planned_starts, booking.planned_ends
    if starts is None or ends is None or booking.is_unplanned:
        starts = booking.starts
        ends = starts and starts + timedelta(seconds=booking.duration_seconds)
    over = booking.released_at or booking.ended_at
    if starts is None or ends is None:
        return None
    return (starts, min(ends, over)) if over is not None and over > starts else (starts, ends)


def _status(booking: Booking) -> Status:
    if booking.state in _NEVER or (booking.state == State.FAILED and booking.ready_at is None):
        return "CANCELLED"
    return "TENTATIVE" if booking.state in _ASKED else "CONFIRMED"


def _title(booking: Booking, labels: Mapping[str, str]) -> str:
    ask, name = booking.ask, booking.name or booking.label
    if ask.get("groups"):
        rows = (
            f"{g['count']} × {g['profile'] or labels.get(g['gpu_class'], g['gpu_class'])}"
            for g in ask["groups"]
        )
        return f"{name}: {' + '.join(rows)}"
    classes = [booking.planned_class] if booking.planned_class else ask["classes"]
    gpu_class = " or ".join(labels.get(each, each) for each in classes)
    if ask.get("share"):
        return f"{name}: {ask['share'] / 1000:g} of one {gpu_class}"
    return f"{name}: {ask['count']} × {ask['profile'] or gpu_class}"


def _words(booking: Booking) -> str:
    state = STATE_WORDS[booking.state].lower()
    if booking.state == State.QUEUED:
        state += ", its planned start can change"
    owner = booking.owner.display_name
    return f"{booking.label}, {state}\n{booking.project.name}, {booking.tier.name}, {owner}"
