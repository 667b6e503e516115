"""What REST says and asks about limits that are lowered: the answer, the effect, and dry runs."""

from collections.abc import Callable
from typing import Any

from django.db import transaction
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.platform.rest.fields import Strict
from tenants.services.limit_changes import Cut, CutAnswer

DRY_RUN = OpenApiParameter(
    "Prefer",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="`dry-run` returns what would be, with `cut`, and writes nothing.",
)


class AboveOut(serializers.Serializer[Any]):
    """A booking that does not fit the limit next to those that go first."""

    booking = serializers.CharField(source="label")
    owner = serializers.CharField()
    units = serializers.IntegerField()
    starts = serializers.DateTimeField()
    ends = serializers.DateTimeField()
    is_planned = serializers.BooleanField(help_text="It has not begun, or is paused.")
    can_pause = serializers.BooleanField(help_text="It runs in a tier that can be paused.")


class CutOut(serializers.Serializer[Any]):
    """What of the bookings is above a limit that is lowered."""

    used_units = serializers.IntegerField(source="used", help_text="In use now, of what the limit counts.")
    limit_units = serializers.IntegerField(source="after.units", allow_null=True)
    cap_gpu_hours = serializers.IntegerField(source="after.gpu_hours", allow_null=True)
    of_guarantee = serializers.BooleanField(
        source="is_guarantee", help_text="`limit_units` is what the tenant is guaranteed."
    )
    above = AboveOut(source="rows", many=True)


class RemovalOut(serializers.Serializer[Any]):
    """What a removal would leave above the limit that then applies."""

    cut = CutOut(allow_null=True, help_text="Null: nothing is above the limit.")


def cut_field() -> serializers.ChoiceField:
    """Returns the field of a request that says what happens to bookings above the limit."""
    return serializers.ChoiceField(
        choices=[str(each) for each in CutAnswer],
        required=False,
        help_text=(
            "What happens to bookings above the limit. `keep`: what runs and is booked stays; `drain` (as "
            "without this field): what runs stays, planned starts above it wait; `pause`: what runs above "
            "it is also paused, by the notice of its tier."
        ),
    )


class CutAnswerIn(Strict):
    """The query of a request that may lower a limit and has no body."""

    bookings = cut_field()


def cut_of(answer: str | None) -> Cut:
    """Returns the answer of a request."""
    return Cut(CutAnswer(answer) if answer else None)


def cut_data(cut: Cut) -> dict[str, Any] | None:
    """Returns what is above the limit; None: nothing."""
    return dict(CutOut(cut.effects[0]).data) if cut.effects else None


def is_dry(request: Request) -> bool:
    """Returns whether the caller asks what would be, and wants nothing to be written."""
    words = [word.strip().lower() for word in request.META.get("HTTP_PREFER", "").split(",")]
    return "dry-run" in words


def dry_or_not(request: Request, work: Callable[[], Response]) -> Response:
    """Returns the answer of `work`, whose writes are rolled back in a dry run. In a transaction."""
    if not is_dry(request):
        return work()
    with transaction.atomic():
        answer = work()
        transaction.set_rollback(True)
    answer["Preference-Applied"] = "dry-run"
    return answer
