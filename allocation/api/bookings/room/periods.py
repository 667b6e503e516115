"""The period of a query: `from` and `until`."""

from datetime import datetime, timedelta
from typing import Any

from rest_framework import serializers

from allocation.words.refusals import refusal_text
from tenants.platform.errors import invalid
from tenants.platform.rest.fields import Instant, Strict


class PeriodQuery(Strict):
    """A period, with defaults of its own in each operation."""

    starts = Instant(required=False)
    until = Instant(required=False)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Names the field `from`, which is a keyword in Python."""
        fields = super().get_fields()
        fields["from"] = fields.pop("starts")
        return fields


def period_check(since: datetime, until: datetime, longest: timedelta) -> None:
    """Raises Refused `end_before_start` or `span_too_long`."""
    if until <= since:
        raise invalid("end_before_start", refusal_text("until_after_from"), "until")
    if until - since > longest:
        raise invalid("span_too_long", refusal_text("span_too_long", days=longest.days), "until")
