"""What nodes say of their hardware's health: written down once, and acted on by one table."""

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Q

from allocation import wire
from allocation.models import Allocation, Gpu, GpuEvent, Node
from allocation.rules.nodes.health import Action, error_name, finding_of
from allocation.services.nodes.driver_hangs import hangs_apply
from tenants.outbox import task_request

logger = logging.getLogger(__name__)

RUNNING = (Allocation.State.STARTING, Allocation.State.ACTIVE)
# A node's clock may be a little ahead of ours; what it dates later than that happened now.
CLOCK_TOLERANCE = timedelta(minutes=5)
# One node can't fill the history: of drift and foreign processes a report may open so many.
UNBOOKED_AT_ONCE = 64
UNBOOKED_REASON = "Processes without a booking are on it."
UnbookedUse = tuple[UUID | None, str, int | None]
"""A GPU, the kind of event, and the slot."""


def errors_apply(node: Node, report: wire.Report, now: datetime) -> dict[UUID, str]:
    """Writes down errors not heard of before and marks the hardware they break.

    Returns the allocations of which only the run is broken, with why; their hardware serves on.
    """
    if not report.errors:
        return {}
    gpus = {gpu.uuid: gpu for gpu in node.gpus.filter(uuid__in=[e.gpu for e in report.errors])}
    broken: dict[UUID, str] = {}
    for error in report.errors:
        gpu = gpus.get(error.gpu)
        if gpu is None or not _is_news(node, gpu, error, now):
            continue
        finding = finding_of(error.kind, error.code, error.recovery)
        why = f"{error_name(error.kind, error.code)}: {finding.words}"
        logger.warning("%s GPU %d: %s (%s)", node.name, gpu.index, why, finding.action)
        if finding.action is Action.INSTANCE:
            broken |= dict.fromkeys(_runs_hit(gpu, error.instance), why)
        else:
            _mark(node, gpu, finding.action, why, now)
    return broken


def missing_gpus_apply(node: Node, report: wire.Report, now: datetime) -> set[str]:
    """Marks GPUs that an agent failed work on because they are not there any more.

    Returns the ids, as agents say them, of allocations whose failure is their hardware's: those
    bookings start again and have not failed. A GPU that does not answer is not in `report.gpus`,
    and named in its `error`.
    """
    failed = [item.id for item in report.allocations if item.state == "failed"]
    if not failed:
        return set()
    rows = Allocation.objects.filter(gpu__node=node, state__in=RUNNING).select_related("gpu")
    answering = {gpu.uuid for gpu in report.gpus}
    for row in rows:
        is_gone = row.gpu.uuid not in answering and row.gpu.uuid in (report.error or "")
        if row.id.hex in failed and is_gone:
            gpus_lost([row.gpu], now)
    leaving = Q(gpu__drain_by__lte=now) | Q(gpu__node__drain_by__lte=now)
    return {identifier.hex for identifier in rows.filter(leaving).values_list("id", flat=True)}


def gpus_lost(gpus: Iterable[Gpu], now: datetime) -> None:
    """The agent can't find them: their work starts again elsewhere. They are back when found."""
    for gpu in gpus:
        if gpu.health == Gpu.Health.LOST:
            continue
        gpu.health, gpu.health_reason, gpu.drain_by = (
            Gpu.Health.LOST, "The agent no longer finds it.", now,
        )  # fmt: skip
        gpu.save(update_fields=["health", "health_reason", "drain_by"])
        GpuEvent.objects.create(
            node_id=gpu.node_id, gpu=gpu, kind=GpuEvent.Kind.LOST, at=now,
            sentence=gpu.health_reason,
        )  # fmt: skip
        task_request("allocation.cycle")


def gpu_found(gpu: Gpu) -> None:
    """The agent finds it: it is well, unless an operator has to say so. Not saved."""
    if gpu.health == Gpu.Health.LOST and not gpu.needs_operator:
        gpu.health, gpu.health_reason, gpu.drain_by = Gpu.Health.OK, "", None


def unbooked_use_apply(node: Node, report: wire.Report, now: datetime) -> None:
    """Keeps the list of slices made by hand and of processes of nobody as long as they are there.

    A GPU that did not answer keeps what was known of it.
    """
    answering = {gpu.uuid for gpu in report.gpus}
    gpus = {gpu.uuid: gpu for gpu in node.gpus.filter(uuid__in=answering)}
    found: dict[UnbookedUse, str] = {
        (gpus[uuid].id, kind, slot): sentence
        for uuid, kind, slot, sentence in _unbooked_uses(report)
        if uuid in gpus
    }
    known = GpuEvent.objects.filter(
        node=node, kind__in=GpuEvent.TROUBLES, until=None, gpu__uuid__in=answering
    )
    for event in known:
        sentence = found.pop((event.gpu_id, event.kind, event.slot), None)
        if sentence is None:
            event.until = now
            event.save(update_fields=["until"])
        elif event.sentence != sentence:
            event.sentence = sentence
            event.save(update_fields=["sentence"])
    if found:
        _unbooked_use_open(node, found, now)
    if report.foreign or any(gpu.health_reason == UNBOOKED_REASON for gpu in gpus.values()):
        _unbooked_use_mark(node, answering)
    hangs_apply(node, report, now)


def _unbooked_use_open(node: Node, found: Mapping[UnbookedUse, str], now: datetime) -> None:
    GpuEvent.objects.bulk_create(
        [
            GpuEvent(node=node, gpu_id=gpu, kind=kind, slot=slot, at=now, sentence=sentence)
            for (gpu, kind, slot), sentence in list(found.items())[:UNBOOKED_AT_ONCE]
        ],
        ignore_conflicts=True,
    )


def _unbooked_use_mark(node: Node, answering: set[str]) -> None:
    """A GPU with processes of nobody takes no new work until they are gone: it would not start."""
    foreign = GpuEvent.objects.filter(node=node, kind=GpuEvent.Kind.FOREIGN, until=None)
    used = foreign.values("gpu_id")
    gpus = node.gpus.filter(uuid__in=answering, needs_operator=False, drain_by=None)
    marked = gpus.filter(health=Gpu.Health.OK, id__in=used).update(
        health=Gpu.Health.DRAINING, health_reason=UNBOOKED_REASON
    )
    marked += (
        gpus.filter(health=Gpu.Health.DRAINING, health_reason=UNBOOKED_REASON)
        .exclude(id__in=used)
        .update(health=Gpu.Health.OK, health_reason="")
    )
    if marked:
        task_request("allocation.cycle")


def _unbooked_uses(report: wire.Report) -> Iterable[tuple[str, str, int | None, str]]:
    for gpu in report.gpus:
        for made in gpu.instances:
            if made.allocation is None:
                sentence = (
                    f"A slice {made.profile} from slot {made.slot} that no booking asked for."
                )
                yield gpu.uuid, GpuEvent.Kind.DRIFT.value, made.slot, sentence[:300]
    for item in report.foreign:
        users = ", ".join(item.users) or "users not known"
        plural = "es" if item.processes != 1 else ""
        what = "beside the booking" if item.booked else "without a booking"
        sentence = f"{item.processes} process{plural} {what}: {users}."
        kind = GpuEvent.Kind.INTRUDER if item.booked else GpuEvent.Kind.FOREIGN
        yield item.gpu, kind.value, item.slot, sentence[:300]


def _is_news(node: Node, gpu: Gpu, error: wire.HardwareError, now: datetime) -> bool:
    """Writes it down; False when it was known. The agent says its latest in every report."""
    happened = datetime.fromtimestamp(min(max(error.at, 0), _latest(now)), now.tzinfo)
    finding = finding_of(error.kind, error.code, error.recovery)
    event = GpuEvent(
        node=node,
        gpu=gpu,
        kind=error.kind,
        code=error.code,
        instance=(error.instance or "")[:80],
        at=happened,
        sentence=f"{error_name(error.kind, error.code)}: {finding.words}.",
    )
    key = {"gpu": gpu, "kind": event.kind, "code": event.code, "at": event.at}
    if GpuEvent.objects.filter(**key, instance=event.instance).exists():
        return False
    event.save(force_insert=True)
    return True


def _latest(now: datetime) -> int:
    return int((now + CLOCK_TOLERANCE).timestamp())


def _runs_hit(gpu: Gpu, instance: str | None) -> list[UUID]:
    """What runs on the slice; when the driver named none, all that runs on the GPU."""
    rows = Allocation.objects.filter(gpu=gpu, state__in=RUNNING)
    if instance is not None:
        rows = rows.filter(devices__contains=[instance])
    return list(rows.values_list("id", flat=True))


def _mark(node: Node, gpu: Gpu, action: Action, why: str, now: datetime) -> None:
    """Takes hardware out, never back in: that is the operator's word."""
    if action is Action.NOTE:
        return
    broken = list(node.gpus.all()) if action is Action.NODE else [gpu]
    for each in broken:
        if action is Action.FINISH and each.health != Gpu.Health.OK:
            continue
        is_lost = Gpu.Health.LOST in (each.health, "lost" if action is Action.LOST else "")
        each.health = Gpu.Health.LOST if is_lost else Gpu.Health.DRAINING
        each.health_reason = why[:200]
        each.needs_operator = True
        if action is not Action.FINISH:
            each.drain_by = min(each.drain_by or now, now)
        each.save(update_fields=["health", "health_reason", "needs_operator", "drain_by"])
    task_request("allocation.cycle")
