"""The data sets of nodes that some open booking names, as the solver reads them."""

from typing import Any

from django.db.models import QuerySet

from allocation.models import Booking, BookingChange
from allocation.points import data_near
from allocation.rules.states import OPEN
from solver import Cache


def bookings_with_data() -> "QuerySet[Booking]":
    """Returns the open bookings that name data."""
    return Booking.objects.filter(state__in=OPEN, ask__has_key="data")


def changes_with_data() -> "QuerySet[BookingChange]":
    """Returns the changes that wait for a decision and name data."""
    return BookingChange.objects.filter(state=BookingChange.State.ASKED, target__ask__has_key="data")


def caches_read() -> tuple[Cache, ...]:
    """Reads which nodes have some of the data that is named."""
    asked: list[Any] = list(bookings_with_data().values_list("ask__data", flat=True))
    asked += changes_with_data().values_list("target__ask__data", flat=True)
    names = {name for each in asked for name in each}
    return tuple(Cache(node, sets) for node, sets in sorted(data_near(names).items()))
