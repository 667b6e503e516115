"""What operators are asked before an act that ends or moves people's work, with its numbers."""

from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo

from django.utils import timezone

from allocation.models import Booking, Gpu, Maintenance, Node
from allocation.services.nodes.gpu_modes import MODE_WORDS
from allocation.services.operate.impact import (
    DrainImpact,
    FenceImpact,
    MaintenanceEndImpact,
)
from allocation.services.operate.maintenance import Moved
from allocation.web.parts.times import moment_words
from tenants.platform.confirm import Confirmation

MOST_NAMED = 5


def drain_question(
    node: Node, losses: DrainImpact, by: datetime | None, now: datetime
) -> Confirmation:
    """Before a node takes no new work."""
    effects = [f"move {_count(len(losses.soon), 'start')}"] if losses.soon else []
    if losses.broken:
        effects.append(f"break off {_count(len(losses.broken), 'run')}")
    return Confirmation(
        title=f"Drain {node.name}?",
        lost=(*_out_of_planning(node, losses, by, now), "Put it back into service to undo this."),
        button=", ".join([f"Drain {node.name}", *effects]),
        back=f"/ops/fleet/{node.name}",
        keep="Keep it in service",
    )


def revoke_question(node: Node, losses: DrainImpact, now: datetime) -> Confirmation:
    """Before a node's agent is locked out."""
    runs = len(losses.unaffected)
    return Confirmation(
        title=f"Lock the agent of {node.name} out?",
        lost=(
            "Its connections end now; its key and its account at Redis are worthless.",
            *_out_of_planning(node, losses, None, now),
            "Nobody can stop, pause or extend what runs there: its end is proven when an agent is"
            f" enrolled anew, or you state that {node.name} is switched off.",
            "Nobody can undo this: the node comes back by a new enrolment and your approval.",
        ),
        button=f"Lock {node.name} out"
        + (f", {_count(runs, 'run')} without control" if runs else ""),
        back=f"/ops/fleet/{node.name}",
        keep="Keep its access",
    )


def fence_question(node: Node, gpu: Gpu | None, losses: FenceImpact, now: datetime) -> Confirmation:
    """Before hardware counts as switched off."""
    where = node.name if gpu is None else f"GPU {gpu.index} of {node.name}"
    tenants = len({run.tenant_id for run in losses.runs})
    runs = _count(len(losses.runs), "run")
    ended = (
        (
            f"{runs} of {_count(tenants, 'tenant')} end at once, to start again elsewhere; what"
            " was not saved is lost, and is not charged.",
            *_named(losses.runs, now),
        )
        if losses.runs
        else ("Nothing runs there by the portal's record.",)
    )
    return Confirmation(
        title=f"Is {where} switched off?",
        lost=(
            *ended,
            f"{_count(losses.places, 'place')} on it count{'s' * (losses.places == 1)} as empty."
            " Say this only when it is true.",
            "Nobody can undo this.",
        ),
        button=f"Fence {where}, ends {runs}",
        back=f"/ops/fleet/{node.name}",
        keep="It is not off",
    )


def end_question(
    blackout: Maintenance, losses: MaintenanceEndImpact, now: datetime
) -> Confirmation:
    """Before maintenance ends early, or is called off."""
    is_planned = blackout.starts > now
    gpus = _count(losses.gpus, "GPU")
    when = moment_words(blackout.starts if is_planned else blackout.ends, _zone(), now)
    first = (
        f"{gpus} of {blackout.where} take bookings from {when} on, as if it had never been planned."
        if is_planned
        else f"{gpus} of {blackout.where} take bookings now instead of from {when} on: end it only"
        " when the work there is done."
    )
    later = (
        (f"Of its series {_count(losses.later, 'later date')}: called off, too.",)
        if losses.later
        else ()
    )
    verb = "Call off" if is_planned else "End"
    more = f" and {_count(losses.later, 'later date')}" if losses.later else ""
    return Confirmation(
        title=f"{verb} maintenance of {blackout.where}?",
        lost=(
            first,
            *later,
            "Starts that moved for it stay where they are, unless an earlier place suits them.",
            "To undo this, plan the maintenance again.",
        ),
        button=f"{verb} maintenance{more}, {gpus} back",
        back="/ops/maintenance",
    )


def clock_question(runs: int) -> Confirmation:
    """Before the portal's clock counts again as it is."""
    return Confirmation(
        title="Is the portal's clock right?",
        lost=(
            f"By it the time of {_count(runs, 'run')} is over: what runs ends now, and what is not"
            " saved is lost.",
            "Starts whose time has come begin. Nobody can undo this.",
        ),
        button=f"The clock is right, end {_count(runs, 'run')}",
        back="/ops/fleet",
        keep="Leave it in doubt",
    )


def pin_question(gpu: Gpu, mode: str, planned: int) -> Confirmation:
    """Before a GPU is kept in a mode in which something else was planned."""
    where = f"GPU {gpu.index} of {gpu.node.name}"
    return Confirmation(
        title=f"Pin {where} to {MODE_WORDS[mode]}?",
        lost=(
            f"{_count(planned, 'booking')} planned in the other mode: placed elsewhere, perhaps"
            " later.",
            "What runs goes on to its end. Unpin it to undo this.",
        ),
        button=f"Pin to {MODE_WORDS[mode]}, move {_count(planned, 'booking')}",
        back=f"/ops/fleet/{gpu.node.name}/{gpu.index}",
        keep="Leave its mode",
    )


def _out_of_planning(
    node: Node, losses: DrainImpact, by: datetime | None, now: datetime
) -> Iterator[str]:
    yield f"Nothing new is planned on {node.name}."
    if losses.unaffected:
        last = max(
            (run.planned_ends for run in losses.unaffected if run.planned_ends), default=None
        )
        until = f", the last until {moment_words(last, _zone(), now)}" if last else ""
        yield f"{_runs(losses.unaffected, 'goes on to its end', 'go on to their end')}{until}."
        yield from _named(losses.unaffected, now)
    if losses.broken and by is not None:
        yield (
            f"{_runs(losses.broken, 'is broken off', 'are broken off')} at"
            f" {moment_words(by, _zone(), now)}, to start again elsewhere; what was not saved is"
            " lost, and is not charged."
        )
        yield from _named(losses.broken, now)
    if losses.soon:
        yield f"{_count(len(losses.soon), 'start')} within the next hour: placed anew."
        yield from _moved(losses.soon, now)
    if losses.later:
        yield (
            f"{_count(losses.later, 'later start')}: the place is kept until an hour before, in"
            " case the node is back."
        )
    if not losses.is_any:
        yield "Nobody has anything on it."


def _runs(found: Sequence[Booking], one: str, many: str) -> str:
    return f"{_count(len(found), 'run')} {one if len(found) == 1 else many}"


def _named(bookings: Sequence[Booking], now: datetime) -> Iterator[str]:
    for each in bookings[:MOST_NAMED]:
        until = (
            f", until {moment_words(each.planned_ends, _zone(), now)}" if each.planned_ends else ""
        )
        yield f"{each.label} of {each.tenant.name}{until}"
    if len(bookings) > MOST_NAMED:
        yield f"and {len(bookings) - MOST_NAMED} more"


def _moved(starts: Sequence[Moved], now: datetime) -> Iterator[str]:
    for each in starts[:MOST_NAMED]:
        before = moment_words(each.before, _zone(), now) if each.before else "no start yet"
        after = (
            moment_words(each.after, _zone(), now)
            if each.after
            else "no other place: it is cancelled, its owner is offered other times"
        )
        yield f"{each.label} of {each.tenant}: {before} → {after}"
    if len(starts) > MOST_NAMED:
        yield f"and {len(starts) - MOST_NAMED} more"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _zone() -> tzinfo:
    return timezone.get_current_timezone()
