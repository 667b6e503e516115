"""REST of arrays: many runs of one request. `POST /bookings` creates one."""

from typing import Any

from django.urls import register_converter
from django.urls.converters import StringConverter
from rest_framework import serializers

from allocation.access import access_array, access_array_to_change
from allocation.features.arrays.queries import ArrayShown, array_shown
from allocation.features.arrays.services import ArrayCancelTerms, array_cancel
from allocation.models import BookingArray
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.platform.labels import Labels
from tenants.platform.rest.fields import Money

rest = Endpoints(Scope.BOOK, in_project=True)


class ArrayConverter(StringConverter):
    """Matches an array's id, `ar_<hex>`, or its number, `BK-2041`."""

    regex = r"ar_[0-9a-f]{32}|[Bb][Kk]-[1-9][0-9]{0,17}"


register_converter(ArrayConverter, "array")


class ArrayCountsOut(serializers.Serializer[Any]):
    """Elements by what happens to them."""

    later = serializers.IntegerField(help_text="Not booked yet.")
    waiting = serializers.IntegerField(help_text="For a decision or for a place.")
    scheduled = serializers.IntegerField(help_text="With a place, not started.")
    running = serializers.IntegerField()
    paused = serializers.IntegerField()
    ended = serializers.IntegerField()
    failed = serializers.IntegerField()
    cancelled = serializers.IntegerField(help_text="Cancelled, refused or expired.")


class ArrayOut(serializers.Serializer[Any]):
    """An array. `GET /bookings?array=` has its elements."""

    id = serializers.CharField(source="reference", help_text="`ar_…`. Unique everywhere.")
    number = serializers.CharField(
        source="array.label", help_text="`BK-2041`; its elements are `BK-2041[1]` and so on."
    )
    project = serializers.CharField(source="array.project.slug")
    owner = serializers.CharField(source="array.owner.username")
    name = serializers.CharField(source="array.name")
    labels = Labels(source="array.labels")
    external_ref = serializers.CharField(source="array.external_ref")
    tier = serializers.CharField(source="array.terms.tier")
    request = serializers.CharField(source="array.terms.request_text")
    submitted = serializers.DateTimeField(source="array.submitted")
    count = serializers.IntegerField(source="array.count")
    parallel = serializers.IntegerField(source="array.parallel")
    hold = serializers.ChoiceField(choices=["all", "rolling"])
    stop_after_failures = serializers.IntegerField(source="array.stop_after_failures", allow_null=True)
    state = serializers.ChoiceField(source="array.state", choices=BookingArray.State.values)
    outcome = serializers.CharField(
        source="array.outcome",
        help_text="Why no further element is booked: `completed`, `cancelled`, `failures`, "
        "`refused`, `rejected`, `deadline` or `owner_left`. Empty: more follow.",
    )
    counts = ArrayCountsOut()
    waiting = serializers.ListField(
        source="array.reasons",
        child=serializers.DictField(),
        help_text="Why the next element is not booked yet.",
    )
    currency = serializers.CharField(source="array.terms.currency")
    held = Money(max_digits=20)
    charged = Money(max_digits=20, help_text="With corrections and refunds.")
    started_at = serializers.DateTimeField(source="array.started_at", allow_null=True)
    ended_at = serializers.DateTimeField(source="array.ended_at", allow_null=True)


@rest.get("arrays/<array:array>", "Retrieve an array", ArrayOut)
def get_array(call: ApiView, array: str) -> ArrayShown:
    """Returns an array by its id (`ar_…`) or its number, with counts of its elements."""
    return array_shown(access_array(call.actor, array))


@rest.post("arrays/<array:array>/cancel", "Cancel an array", ArrayOut, terms=ArrayCancelTerms)
def cancel_array(call: ApiView, terms: ArrayCancelTerms, array: str) -> ArrayShown:
    """Cancels all elements, or those of `elements`, and returns the array. Elements that run
    end; those that have not begun cost nothing."""
    found = access_array_to_change(call.actor, array)
    array_cancel(actor=call.actor, array=found, ranges=terms.ranges(found), now=call.now)
    return array_shown(access_array(call.actor, array))


urlpatterns = rest.urls
