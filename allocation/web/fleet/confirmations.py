"""The confirmations before operator actions that end or move work."""

from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo

from django.utils import timezone

from allocation.models import Booking, Gpu, Maintenance, Node
from allocation.services.operate.impact import (
    DrainImpact,
    FenceImpact,
    MaintenanceEndImpact,
)
from allocation.services.operate.maintenance.plan import Moved
from allocation.web.parts.times import moment_words
from allocation.words.fleet import MODE_WORDS
from tenants.platform.forms.confirm import Confirmation
from tenants.web.parts import counted

MOST_NAMED = 5


def drain_question(node: Node, losses: DrainImpact, by: datetime | None, now: datetime) -> Confirmation:
    """Returns the confirmation before a drain."""
    effects = [f"move {counted(len(losses.soon), 'start')}"] if losses.soon else []
    if losses.broken:
        effects.append(f"interrupt {counted(len(losses.broken), 'run')}")
    return Confirmation(
        title=f"Drain {node.name}?",
        lost=(
            *_out_of_planning(node, losses, by, now),
            "To undo this, return the node to service.",
        ),
        button=", ".join([f"Drain {node.name}", *effects]),
        back=f"/ops/fleet/{node.name}",
        keep="Keep in service",
    )


def revoke_question(node: Node, losses: DrainImpact, now: datetime) -> Confirmation:
    """Returns the confirmation before an agent's access is revoked."""
    runs = len(losses.unaffected)
    return Confirmation(
        title=f"Revoke the access of {node.name}'s agent?",
        lost=(
            "Its connections are closed, and its key and Redis account are revoked.",
            *_out_of_planning(node, losses, None, now),
            "Running work there can't be stopped, paused or extended until you enrol an agent "
            f"again or confirm that {node.name} is powered off.",
            "This can't be undone. To bring the node back, enrol and approve it again.",
        ),
        button=f"Revoke access of {node.name}"
        + (f", {counted(runs, 'run')} without control" if runs else ""),
        back=f"/ops/fleet/{node.name}",
        keep="Keep its access",
    )


def fence_question(node: Node, gpu: Gpu | None, losses: FenceImpact, now: datetime) -> Confirmation:
    """Returns the confirmation before hardware counts as powered off."""
    where = node.name if gpu is None else f"GPU {gpu.index} of {node.name}"
    tenants = len({run.tenant_id for run in losses.runs})
    runs = counted(len(losses.runs), "run")
    ended = (
        (
            f"{runs} of {counted(tenants, 'organisation')} will end at once and restart elsewhere. "
            "Unsaved work is lost and not charged.",
            *_named(losses.runs, now),
        )
        if losses.runs
        else ("The portal has no record of running work there.",)
    )
    return Confirmation(
        title=f"Is {where} powered off?",
        lost=(
            *ended,
            f"{counted(losses.places, 'allocation')} on it count{'s' * (losses.places == 1)} as "
            "empty. Confirm only if this is true.",
            "This can't be undone.",
        ),
        button=f"Confirm powered off, end {runs}",
        back=f"/ops/fleet/{node.name}",
        keep="It is not powered off",
    )


def end_question(maintenance: Maintenance, losses: MaintenanceEndImpact, now: datetime) -> Confirmation:
    """Returns the confirmation before maintenance ends early or is cancelled."""
    is_planned = maintenance.starts > now
    gpus = counted(losses.gpus, "GPU")
    when = moment_words(maintenance.starts if is_planned else maintenance.ends, _zone(), now)
    first = (
        f"{gpus} of {maintenance.where} stay bookable from {when}."
        if is_planned
        else (
            f"{gpus} of {maintenance.where} take bookings now instead of from {when}. End "
            "maintenance only when the work is done."
        )
    )
    later = (f"{counted(losses.later, 'later date')} of its series: cancelled too.",) if losses.later else ()
    verb = "Cancel" if is_planned else "End"
    more = f" and {counted(losses.later, 'later date')}" if losses.later else ""
    return Confirmation(
        title=f"{verb} maintenance of {maintenance.where}?",
        lost=(
            first,
            *later,
            "Bookings that moved for it keep their new start unless an earlier one fits.",
            "To undo this, plan the maintenance again.",
        ),
        button=f"{verb} maintenance{more}, return {gpus}",
        back="/ops/maintenance",
    )


def clock_question(runs: int) -> Confirmation:
    """Returns the confirmation before the portal's clock is accepted."""
    return Confirmation(
        title="Is the portal's clock right?",
        lost=(
            f"According to it, {counted(runs, 'run')} reached the end. They end now, and unsaved "
            "work is lost.",
            "Due bookings start. This can't be undone.",
        ),
        button=f"The clock is right, end {counted(runs, 'run')}",
        back="/ops/fleet",
        keep="Keep it unconfirmed",
    )


def pin_question(gpu: Gpu, mode: str, planned: int) -> Confirmation:
    """Returns the confirmation before a GPU is pinned against planned bookings."""
    where = f"GPU {gpu.index} of {gpu.node.name}"
    return Confirmation(
        title=f"Pin {where} to {MODE_WORDS[mode]}?",
        lost=(
            f"{counted(planned, 'booking')} planned in the other mode: moved, possibly to a later start.",
            "Running work continues until it ends. To undo this, unpin the GPU.",
        ),
        button=f"Pin to {MODE_WORDS[mode]}, move {counted(planned, 'booking')}",
        back=f"/ops/fleet/{gpu.node.name}/{gpu.index}",
        keep="Keep its mode",
    )


def _out_of_planning(node: Node, losses: DrainImpact, by: datetime | None, now: datetime) -> Iterator[str]:
    yield f"No new work is placed on {node.name}."
    if losses.unaffected:
        last = max((run.planned_ends for run in losses.unaffected if run.planned_ends), default=None)
        until = f", the last until {moment_words(last, _zone(), now)}" if last else ""
        runs = _runs(losses.unaffected, "continues until it ends", "continue until they end")
        yield f"{runs}{until}."
        yield from _named(losses.unaffected, now)
    if losses.broken and by is not None:
        yield (
            f"{_runs(losses.broken, 'is interrupted', 'are interrupted')} at"
            f" {moment_words(by, _zone(), now)} and restart elsewhere. Unsaved work is lost and "
            "not charged."
        )
        yield from _named(losses.broken, now)
    if losses.soon:
        yield f"{counted(len(losses.soon), 'start')} within the next hour: moved."
        yield from _moved(losses.soon, now)
    if losses.later:
        yield (
            f"{counted(losses.later, 'later start')}: kept until an hour before, in case the node returns."
        )
    if not losses.is_any:
        yield "No bookings on it."


def _runs(found: Sequence[Booking], one: str, many: str) -> str:
    return f"{counted(len(found), 'run')} {one if len(found) == 1 else many}"


def _named(bookings: Sequence[Booking], now: datetime) -> Iterator[str]:
    for each in bookings[:MOST_NAMED]:
        until = f", until {moment_words(each.planned_ends, _zone(), now)}" if each.planned_ends else ""
        yield f"{each.label} of {each.tenant.name}{until}"
    if len(bookings) > MOST_NAMED:
        yield f"and {len(bookings) - MOST_NAMED} more"


def _moved(starts: Sequence[Moved], now: datetime) -> Iterator[str]:
    for each in starts[:MOST_NAMED]:
        before = moment_words(each.before, _zone(), now) if each.before else "no start yet"
        after = (
            moment_words(each.after, _zone(), now)
            if each.after
            else "cannot move: will be cancelled, the owner is offered other times"
        )
        yield f"{each.label} of {each.tenant}: {before} → {after}"
    if len(starts) > MOST_NAMED:
        yield f"and {len(starts) - MOST_NAMED} more"


def _zone() -> tzinfo:
    return timezone.get_current_timezone()
