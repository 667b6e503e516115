"""The REST representation of a change."""

from typing import Any
from uuid import UUID

from rest_framework import serializers

from allocation.models import BookingChange
from tenants.platform.fields import Money


class BookingChangeOut(serializers.Serializer[Any]):
    """The latest change of a booking that needed a decision."""

    id = serializers.SerializerMethodField()
    state = serializers.ChoiceField(choices=BookingChange.State.choices)
    asked_at = serializers.DateTimeField()
    decided_at = serializers.DateTimeField(allow_null=True)
    differences = serializers.DictField(help_text="Before and after, by field.")
    start_by = serializers.DateTimeField(allow_null=True)
    held = Money(max_digits=20, source="delta_held", help_text="Held for the added cost.")
    reasons = serializers.ListField(child=serializers.DictField())
    alternatives = serializers.ListField(child=serializers.DictField())

    def get_id(self, change: BookingChange) -> str:
        """The change's `ch_…` id."""
        return f"ch_{UUID(str(change.id)).hex}"
