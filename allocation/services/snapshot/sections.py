"""Which of the small sections of a snapshot may have rows, asked in one statement."""

from allocation.models import (
    Booking,
    BookingChange,
    CompactionOrder,
    Maintenance,
    Override,
    WaitEntry,
)
from allocation.rules.states import WAITING, State
from allocation.services.record.open_pauses import open_pauses
from tenants.models import LabQuota, PersonQuota, QuotaWindow
from tenants.platform.database.look import Look

INNER_LIMITS = frozenset({"labs", "persons", "windows"})

sections_present = Look(
    {
        "labs": lambda _: LabQuota.objects.all(),
        "persons": lambda _: PersonQuota.objects.all(),
        "windows": lambda _: QuotaWindow.objects.all(),
        "blackouts": lambda now: Maintenance.objects.filter(ended_at=None, ends__gt=now),
        "cooling": lambda now: Booking.objects.filter(cooling_until__gt=now),
        "overrides": lambda _: Override.objects.filter(state=Override.State.GRANTED),
        "pauses": lambda _: open_pauses(),
        # Extensions and other changes that wait for a decision.
        "asked": lambda _: BookingChange.objects.filter(state=BookingChange.State.ASKED),
        "orders": lambda _: CompactionOrder.objects.filter(decided_at=None),
        "pending": lambda now: Booking.objects.filter(
            state=State.AWAITING_APPROVAL, place_until__gt=now
        ),
        "entries": lambda _: WaitEntry.objects.filter(slot__isnull=False),
        "idle": lambda _: Booking.objects.filter(state=State.ACTIVE, idle_veto_until__isnull=False),
        # Bookings that wait for the rest of their time.
        "replaced": lambda _: Booking.objects.filter(state__in=WAITING, replacement_count__gt=0),
        "used": lambda _: Booking.objects.filter(state__in=WAITING, used_seconds__gt=0),
    }
)
"""The names of the sections, and of what else time changes in one, that may have rows."""
