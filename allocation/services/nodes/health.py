"""Hardware health that nodes report: each finding is recorded once and handled by one table."""

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Q, QuerySet

import wire
from allocation.models import Allocation, Gpu, GpuEvent, Node
from allocation.rules.nodes.health import Action, finding_of
from allocation.services.record.site_events import gpu_event
from allocation.words.fleet import FleetText, fleet_text
from tenants.outbox import task_request
from tenants.platform.database.compiled import Compiled
from tenants.platform.database.look import ASKED_AT

logger = logging.getLogger(__name__)

RUNNING = (Allocation.State.STARTING, Allocation.State.ACTIVE)
# A node's clock may be this far ahead; later times count as now.
CLOCK_TOLERANCE = timedelta(minutes=5)
# New entries of drift and unbooked processes per report, so that a node can't fill the history.
UNBOOKED_AT_ONCE = 64
UNBOOKED_REASON = fleet_text("unbooked_use")
HANG_REASON = fleet_text("no_answer")
UnbookedUse = tuple[UUID | None, str, int | None]
"""GPU, kind of event, and slot."""
_gpus = Compiled(lambda _, keys: Gpu.objects.filter(node__in=keys))
_open_uses = Compiled(
    lambda _, keys: GpuEvent.objects.filter(
        node__in=keys, kind__in=(*GpuEvent.UNBOOKED_USE, GpuEvent.Kind.HANG), until=None
    )
)


def errors_apply(node: Node, report: wire.Report, now: datetime) -> dict[UUID, FleetText]:
    """Records new errors and takes the hardware that they break out of service.

    Returns the allocations of which only the run is broken, with the reason; their hardware stays
    in service.
    """
    if not report.errors:
        return {}
    gpus = {gpu.uuid: gpu for gpu in node.gpus.filter(uuid__in=[e.gpu for e in report.errors])}
    broken: dict[UUID, FleetText] = {}
    for error in report.errors:
        gpu = gpus.get(error.gpu)
        if gpu is None or not _is_news(node, gpu, error, now):
            continue
        finding = finding_of(error.kind, error.code, error.recovery)
        why = _error_text(error)
        logger.warning("%s GPU %d: %s (%s)", node.name, gpu.index, why, finding.action)
        if finding.action is Action.INSTANCE:
            broken |= dict.fromkeys(_runs_hit(gpu, error.instance), why)
        else:
            _mark(node, gpu, finding.action, why, now)
    return broken


def missing_gpus_apply(node: Node, report: wire.Report, now: datetime) -> set[str]:
    """Marks GPUs as lost on which work failed because they are missing.

    Returns the reported ids of allocations that failed with their hardware: those bookings start
    again and have not failed. A missing GPU is not in `report.gpus` and is named in the `error`.
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
    """Marks GPUs that the agent can't find: their work starts again elsewhere."""
    for gpu in gpus:
        if gpu.health == Gpu.Health.LOST:
            continue
        why = fleet_text("gpu_lost")
        gpu.health_set(Gpu.Health.LOST, why)
        gpu.drain_by = now
        gpu.save(update_fields=[*Gpu.HEALTH_FIELDS, "drain_by"])
        GpuEvent.objects.create(
            node_id=gpu.node_id,
            gpu=gpu,
            kind=GpuEvent.Kind.LOST,
            at=now,
            **GpuEvent.text_columns(why),
        )
        gpu_event("unhealthy", gpu, gpu.node, gpu.health_reason, now)
        task_request("allocation.cycle")


def gpu_found(gpu: Gpu) -> None:
    """Marks a lost GPU as healthy, unless an operator has to approve it. Not saved."""
    if gpu.health == Gpu.Health.LOST and not gpu.needs_operator:
        gpu.health_set(Gpu.Health.OK)
        gpu.drain_by = None


def unbooked_use_apply(node: Node, report: wire.Report, now: datetime) -> None:
    """Updates the open entries of slices made by hand and of unbooked processes.

    A GPU that did not answer keeps its entries.
    """
    answering = {gpu.uuid for gpu in report.gpus}
    gpus = {gpu.uuid: gpu for gpu in gpus_of_node(node) if gpu.uuid in answering}
    found: dict[UnbookedUse, FleetText] = {
        (gpus[uuid].id, kind, slot): text for uuid, kind, slot, text in _unbooked_uses(report) if uuid in gpus
    }
    known, ids = _open_uses(now, [node.id]), {gpu.id for gpu in gpus.values()}
    for event in known:
        if event.kind == GpuEvent.Kind.HANG or event.gpu_id not in ids:
            continue
        text = found.pop((event.gpu_id, event.kind, event.slot), None)
        if text is None:
            event.until = now
            event.save(update_fields=["until"])
        elif event.text != text.data():
            event.sentence, event.text = str(text)[:300], text.data()
            event.save(update_fields=["sentence", "text"])
    if found:
        _unbooked_use_open(node, found, now)
    if report.foreign or any(gpu.health_words == str(UNBOOKED_REASON) for gpu in gpus.values()):
        _unbooked_use_mark(node, answering)
    if report.hanging or any(event.kind == GpuEvent.Kind.HANG for event in known):
        hangs_apply(node, report, now)


def withheld_apply(node: Node, report: wire.Report) -> None:
    """Takes GPUs out of service on which the node's engine starts nothing new, and returns them when
    it does again. Running work continues."""
    gpus_withhold(node, {gpu.uuid: gpu.withheld for gpu in report.gpus})


def gpus_withhold(node: Node, reported: Mapping[str, str | None]) -> None:
    """As `withheld_apply`, for GPUs by their UUIDs: why nothing new starts there, None: it does."""
    changed = []
    for gpu in gpus_of_node(node):
        why = reported.get(gpu.uuid)
        if gpu.uuid not in reported or gpu.needs_operator or gpu.drain_by is not None:
            continue
        is_marked = (gpu.health_text or {}).get("fleet") == "withheld"
        if why is not None and (is_marked or gpu.health == Gpu.Health.OK):
            text = fleet_text("withheld", why=why.rstrip("."))
            if gpu.health_text != text.data():
                gpu.health_set(Gpu.Health.DRAINING, text)
                changed.append(gpu)
        elif why is None and is_marked:
            gpu.health_set(Gpu.Health.OK)
            changed.append(gpu)
    for gpu in changed:
        gpu.save(update_fields=Gpu.HEALTH_FIELDS)
        logger.warning("%s GPU %d: %s", node.name, gpu.index, gpu.health_reason or "given again")
    if changed:
        task_request("allocation.cycle")


def gpus_of_node(node: Node) -> list[Gpu]:
    """The GPUs of a node."""
    return _gpus(ASKED_AT, [node.id])


def _unbooked_use_open(node: Node, found: Mapping[UnbookedUse, FleetText], now: datetime) -> None:
    GpuEvent.objects.bulk_create(
        [
            GpuEvent(node=node, gpu_id=gpu, kind=kind, slot=slot, at=now, **GpuEvent.text_columns(text))
            for (gpu, kind, slot), text in list(found.items())[:UNBOOKED_AT_ONCE]
        ],
        ignore_conflicts=True,
    )


def _unbooked_use_mark(node: Node, answering: set[str]) -> None:
    """Takes GPUs with unbooked processes out of service until these end: no work would start."""
    foreign = GpuEvent.objects.filter(node=node, kind=GpuEvent.Kind.UNBOOKED, until=None)
    used = foreign.values("gpu_id")
    gpus = node.gpus.filter(uuid__in=answering, needs_operator=False, drain_by=None)
    _reason_follow(gpus, Q(id__in=used), UNBOOKED_REASON)


def _reason_follow(gpus: QuerySet[Gpu], affected: Q, reason: FleetText) -> bool:
    """Takes affected healthy GPUs out of service for a reason, and returns the others that are out
    for it. Whether any GPU changed."""
    changed = gpus.filter(affected, health=Gpu.Health.OK).update(
        **Gpu.health_columns(Gpu.Health.DRAINING, reason)
    )
    is_its = Q(health_text=reason.data()) | Q(health_text__isnull=True, health_reason=str(reason))
    out = gpus.filter(~affected, is_its, health=Gpu.Health.DRAINING)
    changed += out.update(**Gpu.health_columns(Gpu.Health.OK))
    if changed:
        task_request("allocation.cycle")
    return bool(changed)


def hangs_apply(node: Node, report: wire.Report, now: datetime) -> None:
    """Takes GPUs whose driver hangs out of service until it answers. Running work continues."""
    known = GpuEvent.objects.filter(node=node, kind=GpuEvent.Kind.HANG, until=None)
    was = set(known.values_list("gpu__uuid", flat=True))
    new = node.gpus.filter(uuid__in=set(report.hanging) - was)
    text = GpuEvent.text_columns(fleet_text("driver_hang"))
    GpuEvent.objects.bulk_create(
        [GpuEvent(node=node, gpu=gpu, kind="hang", at=now, **text) for gpu in new],
        ignore_conflicts=True,
    )
    back = was & {gpu.uuid for gpu in report.gpus}
    known.filter(gpu__uuid__in=back).update(until=now)
    gpus = node.gpus.filter(uuid__in={*report.hanging, *back})
    if _reason_follow(gpus, Q(uuid__in=report.hanging), HANG_REASON):
        logger.warning("%s: driver hangs about %s", node.name, ", ".join(report.hanging) or "none")


def _unbooked_uses(report: wire.Report) -> Iterable[tuple[str, str, int | None, FleetText]]:
    for gpu in report.gpus:
        for made in gpu.instances:
            if made.allocation is None:
                text = fleet_text("slice_without_booking", profile=made.profile, slot=made.slot)
                yield gpu.uuid, GpuEvent.Kind.DRIFT.value, made.slot, text
    for item in report.foreign:
        facts = {
            "processes": item.processes,
            "users": ", ".join(item.users) or fleet_text("unknown_users"),
        }
        if item.booked:
            kind, code = GpuEvent.Kind.OUTSIDE, "processes_outside_booking"
        else:
            kind, code = GpuEvent.Kind.UNBOOKED, "processes_without_booking"
        yield item.gpu, kind.value, item.slot, fleet_text(code, **facts)


def _is_news(node: Node, gpu: Gpu, error: wire.HardwareError, now: datetime) -> bool:
    """Records an error; False if it was known. Every report repeats the latest errors."""
    happened = datetime.fromtimestamp(min(max(error.at, 0), _latest(now)), now.tzinfo)
    event = GpuEvent(
        node=node,
        gpu=gpu,
        kind=error.kind,
        code=error.code,
        instance=(error.instance or "")[:80],
        at=happened,
        **GpuEvent.text_columns(_error_text(error)),
    )
    key = {"gpu": gpu, "kind": event.kind, "code": event.code, "at": event.at}
    if GpuEvent.objects.filter(**key, instance=event.instance).exists():
        return False
    event.save(force_insert=True)
    return True


def _error_text(error: wire.HardwareError) -> FleetText:
    """`Xid 79: the GPU has fallen off the bus.`"""
    finding = finding_of(error.kind, error.code, error.recovery)
    if error.kind == "xid":
        name = fleet_text("xid", number=error.code)
    else:
        name = fleet_text("ecc", bits=error.code)
    return fleet_text("hardware_error", error=name, cause=fleet_text(finding.cause))


def _latest(now: datetime) -> int:
    return int((now + CLOCK_TOLERANCE).timestamp())


def _runs_hit(gpu: Gpu, instance: str | None) -> list[UUID]:
    """Running allocations on the slice; on the whole GPU if the driver named no slice."""
    rows = Allocation.objects.filter(gpu=gpu, state__in=RUNNING)
    if instance is not None:
        rows = rows.filter(devices__contains=[instance])
    return list(rows.values_list("id", flat=True))


def _mark(node: Node, gpu: Gpu, action: Action, why: FleetText, now: datetime) -> None:
    """Takes hardware out of service. Only an operator puts it back."""
    if action is Action.NOTE:
        return
    broken = list(node.gpus.all()) if action is Action.NODE else [gpu]
    for each in broken:
        if action is Action.FINISH and each.health != Gpu.Health.OK:
            continue
        was_fine = each.health == Gpu.Health.OK
        is_lost = Gpu.Health.LOST in (each.health, "lost" if action is Action.LOST else "")
        each.health_set(Gpu.Health.LOST if is_lost else Gpu.Health.DRAINING, why)
        each.needs_operator = True
        if action is not Action.FINISH:
            each.drain_by = min(each.drain_by or now, now)
        each.save(update_fields=[*Gpu.HEALTH_FIELDS, "needs_operator", "drain_by"])
        if was_fine:
            gpu_event("unhealthy", each, node, each.health_reason, now)
    task_request("allocation.cycle")
