"""REST of progress: what programs send."""

from typing import Any

from allocation.features.progress.points import ProgressOut, progress_shown
from allocation.features.progress.services import ProgressTerms, progress_set
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope

rest = Endpoints(Scope.BOOK, in_project=True)


@rest.put("bookings/<str:reference>/progress", "Say how far a run is", ProgressOut, terms=ProgressTerms)
def put_booking_progress(call: ApiView, terms: ProgressTerms, reference: str) -> dict[str, Any]:
    """Keeps the last report of a running booking, from its owner's account only. The answer has the
    rate, the expected end, and what a step costs."""
    row = progress_set(actor=call.actor, reference=reference, terms=terms, now=call.now)
    return progress_shown(row.booking, row)


urlpatterns = rest.urls
