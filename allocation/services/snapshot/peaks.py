"""The peaks of a snapshot: hours in which the policy keeps GPUs free."""

from collections.abc import Mapping
from datetime import datetime

from allocation.models import PolicyVersion
from allocation.points import peak_hours
from solver.model.inner_limits import Peak


def peaks_read(now: datetime, kept: Mapping[str, int] | None = None) -> tuple[Peak, ...]:
    """Reads the peaks from now on of classes of which so many GPUs are kept free; without `kept` those
    of the live policy."""
    if kept is None:
        live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
        kept = live.document.get("headroom", {})
    some = {name: gpus for name, gpus in kept.items() if gpus}
    return tuple(
        Peak(name, int(starts.timestamp()), int(ends.timestamp()))
        for name, starts, ends in (peak_hours(some, now) if some else ())
    )
