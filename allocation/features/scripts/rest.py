"""REST of scripts. They are sent with a new booking."""

from typing import Any

from rest_framework import serializers

from allocation.access import access_booking
from allocation.features.scripts.models import BookingScript
from allocation.features.scripts.services import script_of
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.platform.errors import missing

rest = Endpoints(Scope.BOOK, in_project=True)


class ScriptOut(serializers.Serializer[Any]):
    """The script of a booking, and how it ended."""

    text = serializers.CharField()
    exit_code = serializers.IntegerField(
        allow_null=True, help_text="Null: it has not ended. A signal counts as 128 and its number."
    )
    ended = serializers.CharField(help_text="Slurm's word for how it ended, or why it never ran.")
    ended_at = serializers.DateTimeField(allow_null=True)
    log_file = serializers.CharField(help_text="The file of its output on its node; empty before its start.")
    log = serializers.CharField(
        help_text="The last 4,000 characters of its output, once it has ended; empty where the engine can't"
        " read the file."
    )


@rest.get("bookings/<str:reference>/script", "Get the script of a booking", ScriptOut)
def get_script(call: ApiView, reference: str) -> BookingScript:
    """Returns the script that came with a booking, its exit code and the end of its output."""
    row = script_of(access_booking(call.actor, reference))
    if row is None:
        raise missing("script")
    return row


urlpatterns = rest.urls
