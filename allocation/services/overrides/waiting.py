"""What to ask a limit's owner for, so that a booking that waits for quota can start."""

from collections.abc import Mapping
from typing import Any

from allocation.models import Booking
from allocation.rules.ask import AskDocument
from tenants.services.input_values import gpus_enough

# What is asked for, by the code of the limit.
_KINDS = {
    "tenant_quota": "quota",
    "project_quota": "quota",
    "lab_quota": "lab_quota",
    "person_quota": "person_quota",
}


def more_for(booking: Booking) -> dict[str, str]:
    """Returns the fields of a request for more quota for this booking, or for more GPU-hours of its
    project or organisation; empty if it waits for something else."""
    first = booking.reasons[0] if booking.reasons else {}
    code, facts = first.get("code"), first.get("numbers", {})
    # Reasons that were stored before they had numbers name nothing to ask for.
    if "asked" not in facts:
        return {}
    if code == "gpu_hours":
        return _hours_for(booking, facts)
    if code not in _KINDS:
        return {}
    short = min(facts["asked"], facts["asked"] + facts.get("used", 0) - facts["limit"])
    if short <= 0:
        return {}
    wanted = {
        "kind": _KINDS[code],
        "gpu_class": facts["gpu_class"],
        "amount": gpus_enough(short),
        "booking": booking.label,
    }
    if code != "tenant_quota" and facts.get("whose") != "tenant":
        wanted["project"] = booking.project.slug
    return wanted


def _hours_for(booking: Booking, facts: Mapping[str, Any]) -> dict[str, str]:
    """An exception from a cap of GPU-hours is always dated, never for one booking."""
    short = facts["asked"] + facts.get("used", 0) - facts["limit"]
    classes = AskDocument.from_json(booking.ask).all_classes
    # The reason does not name the class of the cap.
    if short <= 0 or len(classes) != 1 or facts.get("whose") == "lab":
        return {}
    wanted = {"kind": "gpu_hours", "gpu_class": classes[0], "amount": str(short)}
    if facts.get("whose") != "tenant":
        wanted["project"] = booking.project.slug
    return wanted
