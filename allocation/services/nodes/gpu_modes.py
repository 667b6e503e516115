"""MIG modes of GPUs: changes that nodes are asked to make, their results, and operators' pins.

A change that needs a reset is requested ahead, so that it is done when the booking starts. Requests
follow from bookings, pins and the drivers' readings alone, so repeating them is safe.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q, QuerySet

import wire
from allocation.models import Allocation, Gpu, GpuEvent, Node, Occupancy
from allocation.services.nodes.fleet import (
    agent_supports,
    agent_too_old,
    node_audit,
    operator_event,
)
from allocation.services.nodes.health import gpus_of_node
from allocation.words.fleet import MODE_WORDS, fleet_text, mode_text
from allocation.words.refusals import refusal_text
from tenants.models import User
from tenants.outbox import task_request
from tenants.platform.errors import invalid, text_within

logger = logging.getLogger(__name__)

# No model takes longer (a database constraint).
_LONGEST_SWITCH = timedelta(seconds=600)
_BEGUN = (
    Allocation.State.STARTING,
    Allocation.State.ACTIVE,
    Allocation.State.RELEASING,
)


def modes_request(now: datetime) -> int:
    """Requests the mode changes that pins and the next bookings need. Returns how many.

    A GPU changes only while it is empty: nothing has started on it, and nothing is being cleared.
    """
    wanted = _next_modes(now) | _pinned_modes()
    if not wanted:
        return 0
    with transaction.atomic():
        gpus = Gpu.objects.select_for_update(of=("self",)).filter(id__in=wanted)
        gpus = gpus.exclude(id__in=_busy(wanted)).order_by("id")
        for gpu in gpus:
            mode_request(gpu, wanted[gpu.id], now)
        _nodes_bump({gpu.node_id for gpu in gpus})
    return len(gpus)


def modes_apply(node: Node, report: wire.Report, now: datetime) -> bool:
    """Stores the reported modes, and why a GPU can't change. Returns whether anything changed."""
    reported = {gpu.uuid: gpu for gpu in report.gpus}
    rows = [gpu for gpu in gpus_of_node(node) if gpu.uuid in reported]
    changed = [gpu for gpu in rows if gpu.mode != reported[gpu.uuid].mode]
    for gpu in changed:
        gpu.mode = reported[gpu.uuid].mode
        Gpu.objects.filter(id=gpu.id).update(mode=gpu.mode)
    reached = [gpu.id for gpu in rows if gpu.mode_wanted == gpu.mode]
    if reached:
        Gpu.objects.filter(id__in=reached).update(mode_wanted="", mode_wanted_at=None)
        open_ = GpuEvent.objects.filter(gpu__in=reached, kind=GpuEvent.Kind.MODE, until=None)
        open_.update(until=now)
    if changed or reached:
        # The node's document contains the modes: its content changes only with its generation.
        _nodes_bump({node.id})
    marked = [_stuck_mark(gpu, reported[gpu.uuid], now) for gpu in rows]
    return bool(changed) or any(marked)


def mode_pin(*, operator: User, gpu: Gpu, mode: str, note: str, now: datetime) -> None:
    """Pins a GPU to a mode; an empty `mode` lets the solver change it again.

    Planned bookings of the other mode are placed elsewhere; running ones continue to their end.

    Raises:
        Refused: `too_long`, `mode_unknown`, `mode_impossible` (it has no slices), `agent_too_old`.
    """
    note = text_within(note.strip(), 120, "note")
    if mode not in ("", *MODE_WORDS):
        raise invalid("mode_unknown", refusal_text("mode_unknown"), "mode")
    gpu = Gpu.objects.select_for_update(of=("self",)).select_related("node", "model").get(id=gpu.id)
    if mode == "sliced" and not gpu.model.placements.exists():
        raise invalid(
            "mode_impossible",
            refusal_text("mode_impossible", product_name=gpu.model.product_name),
            "mode",
        )
    takes_reset = gpu.model.mode_switch == "reset"
    if takes_reset and mode not in ("", gpu.mode) and not changes_modes(gpu.node):
        raise agent_too_old(gpu.node, "can't reset GPUs", wire.MODES_SINCE)
    if gpu.mode_pinned == mode:
        return
    was, gpu.mode_pinned = gpu.mode_pinned, mode
    gpu.save(update_fields=["mode_pinned"])
    why = f": {note}" if note else ""
    facts = {"operator": operator.username, "note": why.rstrip(".")}
    if mode:
        text = fleet_text("mode_pinned", mode=mode_text(mode), **facts)
    else:
        text = fleet_text("mode_unpinned", **facts)
    operator_event(gpu.node, gpu, text, now)
    before = {"gpu": gpu.index, "mode": was}
    after = {"gpu": gpu.index, "mode": mode, "note": note}
    node_audit(operator, gpu.node, "node.gpu_mode_pinned", now, before=before, after=after)
    logger.warning("%s: GPU %d: %s", gpu.node.name, gpu.index, text)
    task_request("allocation.cycle")


def changes_modes(node: Node) -> bool:
    """Whether the node's agent supports mode changes that need a reset."""
    return not node.agent_version or agent_supports(node, wire.MODES_SINCE)


def pinned_to_other_mode() -> Q:
    """Allocations whose GPU is pinned to the other mode."""
    sliced = Q(gpu__mode_pinned="sliced", profile=None)
    return sliced | Q(gpu__mode_pinned="whole", profile__isnull=False)


def starts_with_a_mode(now: datetime) -> QuerySet[Allocation]:
    """Planned work whose GPU may have to change its mode soon."""
    return Allocation.objects.filter(
        state=Allocation.State.PLANNED,
        gpu__model__mode_switch="reset",
        gpu__mode_pinned="",
        period__startswith__lte=now + _LONGEST_SWITCH,
    )


def pins_of_modes() -> QuerySet[Gpu]:
    """GPUs that are pinned to a mode, where a change needs a reset."""
    return Gpu.objects.exclude(mode_pinned="").filter(model__mode_switch="reset")


def _next_modes(now: datetime) -> dict[UUID, str]:
    """The mode that the next booking of each GPU needs, where the change is due."""
    first = starts_with_a_mode(now).order_by("gpu_id", "period", "id").distinct("gpu_id")
    found: dict[UUID, str] = {}
    for gpu, mode, wanted, seconds, profile, period in first.values_list(
        "gpu_id", "gpu__mode", "gpu__mode_wanted", "gpu__model__switch_seconds", "profile", "period"
    ):
        needed = "sliced" if profile else "whole"
        if period.lower <= now + timedelta(seconds=seconds) and needed != (wanted or mode):
            found[gpu] = needed
    return found


def _pinned_modes() -> dict[UUID, str]:
    """The modes of pins that are not requested yet, where a change needs a reset."""
    rows = pins_of_modes().values_list("id", "mode", "mode_wanted", "mode_pinned")
    return {gpu: pinned for gpu, mode, wanted, pinned in rows if pinned != (wanted or mode)}


def _busy(gpus: Iterable[UUID]) -> set[UUID]:
    """GPUs on which work has started or is being cleared."""
    ids = list(gpus)
    begun = Allocation.objects.filter(gpu__in=ids, state__in=_BEGUN).values_list("gpu_id", flat=True)
    open_ = Occupancy.objects.filter(gpu__in=ids, closed=None).values_list("gpu_id", flat=True)
    return {*begun, *open_}


def mode_request(gpu: Gpu, mode: str, now: datetime) -> None:
    """Sets the mode for the node's next document; the current mode cancels a change. The caller has locked
    the GPU, and changes the generation of its node."""
    is_back = mode == gpu.mode
    gpu.mode_wanted, gpu.mode_wanted_at = ("", None) if is_back else (mode, now)
    gpu.save(update_fields=["mode_wanted", "mode_wanted_at"])
    GpuEvent.objects.filter(gpu=gpu, kind=GpuEvent.Kind.MODE, until=None).update(until=now)
    if not is_back:
        modes = {"before": mode_text(gpu.mode), "after": mode_text(mode)}
        GpuEvent.objects.create(
            node_id=gpu.node_id,
            gpu=gpu,
            kind=GpuEvent.Kind.MODE,
            at=now,
            **GpuEvent.text_columns(fleet_text("mode_change", **modes)),
        )


def _stuck_mark(gpu: Gpu, reported: wire.ReportedGpu, now: datetime) -> bool:
    """Takes a GPU whose mode does not change out of service, until it changes or is pinned as it
    is. Bookings that wait for it are placed elsewhere.
    """
    is_marked = gpu.health == Gpu.Health.DRAINING and _is_stuck(gpu)
    if reported.stuck and gpu.health == Gpu.Health.OK:
        error = reported.error or fleet_text("no_error")
        gpu.health_set(Gpu.Health.DRAINING, fleet_text("mode_stuck", error=error))
        gpu.drain_by = now
        if not gpu.mode_wanted:
            # The booking that needed the change leaves; the agent keeps trying.
            gpu.mode_wanted = "whole" if gpu.mode == Gpu.Mode.SLICED else "sliced"
            gpu.mode_wanted_at = now
    elif is_marked and not reported.stuck and not reported.error:
        gpu.health_set(Gpu.Health.OK)
        gpu.drain_by = None
    else:
        return False
    gpu.save(update_fields=[*Gpu.HEALTH_FIELDS, "drain_by", "mode_wanted", "mode_wanted_at"])
    logger.warning("GPU %s: %s", gpu.uuid, gpu.health_reason or "its mode has changed")
    return True


def _is_stuck(gpu: Gpu) -> bool:
    if gpu.health_text is None:
        return gpu.health_reason.startswith(str(fleet_text("mode_stuck", error="")))
    return bool(gpu.health_text["fleet"] == "mode_stuck")


def _nodes_bump(nodes: Iterable[UUID]) -> None:
    Node.objects.filter(id__in=list(nodes)).update(generation=F("generation") + 1)
