"""What to ask a limit's owner for, so that a booking that waits for quota can start."""

from allocation.models import Booking
from tenants.services.input_values import gpus_text


def more_for(booking: Booking) -> dict[str, str]:
    """Returns the fields of a request for more quota for this booking; empty if it waits for
    something else."""
    first = booking.reasons[0] if booking.reasons else {}
    if first.get("code") not in ("project_quota", "tenant_quota"):
        return {}
    facts = first["numbers"]
    short = min(facts["asked"], facts["asked"] + facts.get("used", 0) - facts["limit"])
    if short <= 0:
        return {}
    wanted = {
        "kind": "quota",
        "gpu_class": facts["gpu_class"],
        "amount": gpus_text(short),
        "booking": booking.label,
    }
    if first["code"] == "project_quota":
        wanted["project"] = booking.project.slug
    return wanted
