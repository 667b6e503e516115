"""What the model portal keeps of changes, entries of the waiting list, offers and arrays."""

from dataclasses import dataclass

from tests.simulation.tables.people import UserRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A change as somebody asks for it; None: that part stays as it is. `start_by` bounds the
    start that its owner accepts; one that `waits` stays open until there is room."""

    duration: int | None = None
    count: int | None = None
    starts: int | None = None
    not_before: int | None = None
    start_by: int | None = None
    waits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """How a request waits for its window: `auto` or `offer`, and [since, until) in which its time
    must be; without `windows`, its own window."""

    mode: str
    windows: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """A request as an array of so many elements, of which so many are open at once."""

    count: int
    parallel: int


@dataclass(slots=True, kw_only=True)
class ChangeRow:
    """An open change. See `allocation.models.BookingChange`. A change of a running booking's end
    is `Booking.extension`."""

    id: str
    booking: str
    base: int
    requested: UserRequest
    requested_from: int | None
    not_before: int
    asked_at: int
    start_by: int | None
    strength: str | None
    waits_until: int | None = None
    is_waiting: bool = False


@dataclass(slots=True, kw_only=True)
class EntryRow:
    """An entry of the waiting list. See `allocation.features.waiting_list.models.WaitEntry`."""

    mode: str
    windows: tuple[tuple[int, int], ...]
    until: int
    expired: int = 0


@dataclass(slots=True, kw_only=True)
class OfferRow:
    """An open offer. See `allocation.features.waiting_list.models.WaitOffer`."""

    booking: str
    gpu_class: str
    starts: int
    ends: int
    until: int


@dataclass(slots=True, kw_only=True)
class ArrayRow:
    """An array. See `allocation.models.BookingArray`."""

    id: str
    number: int
    requested: UserRequest
    count: int
    parallel: int
    not_before: int
    following: int = 1
    begun: int = 0
    is_stopped: bool = False
