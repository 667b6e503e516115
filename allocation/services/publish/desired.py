"""Desired states of nodes as whole documents, read in the same few statements for any number of
nodes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.db.models import Count

import wire
from allocation.models import Allocation, Gpu, MigPlacement, Node, Pause
from allocation.models.bookings import booking_node_name
from allocation.points import more_cores, nodes_with_data, notebooks_ordered, slices_ahead
from allocation.points.bookings import scripts_ordered
from allocation.services.nodes.fleet import agent_supports, node_key
from allocation.services.nodes.unbooked_use import escalation_of
from allocation.services.record.open_pauses import OPEN
from allocation.services.runs.resume import (
    EVER_STARTED,
    NO_SUSPENDED_WORK,
    ON_NODE,
    SuspendedWork,
    suspended_work_on,
)

_METHODS: dict[str, wire.PauseMethod] = {"stop": "stop", "signal": "signal", "suspend": "suspend"}
_ROW = (
    "state",
    "booking_id",
    "gpu_id",
    "model_id",
    "profile",
    "start",
    "size",
    "share",
    "period",
    "leased",
    "abandoned",
    "booking__number",
    "booking__array",
    "booking__array_index",
    "booking__ask",
    "booking__owner__username",
    "booking__project__slug",
    "tenant__slug",
)

# A run of a booking: allocations that started together.
_Run = tuple[UUID, datetime]


@dataclass(frozen=True, slots=True)
class _Site:
    """Data of all the nodes: GPUs in order, allocations, suspended work and gangs by node; open
    pauses by booking; profile numbers by model and name; notebooks by node; slices to make ahead by GPU;
    nodes that list data sets; cores that may be lent by booking; scripts by node."""

    gpus: Mapping[UUID, Sequence[Gpu]]
    allocations: Mapping[UUID, Sequence[Allocation]]
    pauses: Mapping[UUID, Pause]
    frozen: Mapping[UUID, SuspendedWork]
    gangs: Mapping[UUID, tuple[wire.Gang, ...]]
    profiles: Mapping[tuple[str, str], int]
    notebooks: Mapping[UUID, tuple[wire.DesiredNotebook, ...]]
    prepared: Mapping[UUID, tuple[wire.DesiredSlice, ...]]
    with_data: frozenset[UUID]
    more_cores: Mapping[UUID, int]
    scripts: Mapping[UUID, tuple[wire.DesiredScript, ...]]


def desired_documents(nodes: Sequence[Node], epoch: int) -> list[wire.Desired]:
    """The current document of each node, in order.

    Callers have locked the nodes, so that one generation always has the same document.
    """
    site = _read(nodes)
    return [_document(node, epoch, site) for node in nodes]


def _read(nodes: Sequence[Node]) -> _Site:
    gpus: dict[UUID, list[Gpu]] = defaultdict(list)
    allocations: dict[UUID, list[Allocation]] = defaultdict(list)
    for gpu in Gpu.objects.filter(node__in=nodes).order_by("index"):
        gpus[gpu.node_id].append(gpu)
    node_of = {gpu.id: node for node, found in gpus.items() for gpu in found}
    rows = Allocation.objects.filter(gpu__node__in=nodes, state__in=ON_NODE)
    rows = rows.select_related("booking__owner", "booking__project", "tenant").only(*_ROW)
    for row in rows.order_by("start", "id"):
        allocations[node_of[row.gpu_id]].append(row)
    bookings = {row.booking_id for found in allocations.values() for row in found}
    pauses = Pause.objects.filter(OPEN, booking__in=bookings, emptied_at=None)
    profiles = MigPlacement.objects.values_list("model_id", "profile", "profile_id")
    return _Site(
        gpus=gpus,
        allocations=allocations,
        pauses={pause.booking_id: pause for pause in pauses},
        frozen=suspended_work_on(nodes),
        gangs=gangs_on(allocations),
        profiles={(model, profile): number for model, profile, number in profiles},
        notebooks=notebooks_ordered([node.id for node in nodes]),
        prepared=slices_ahead([node.id for node in nodes]),
        with_data=nodes_with_data([node.id for node in nodes]),
        more_cores=more_cores(bookings),
        scripts=scripts_ordered([node.id for node in nodes if _runs_scripts(node)]),
    )


def _runs_scripts(node: Node) -> bool:
    return node.engine == Node.Engine.SLURM and agent_supports(node, wire.SCRIPTS_SINCE)


def _document(node: Node, epoch: int, site: _Site) -> wire.Desired:
    knows_pauses = agent_supports(node, wire.PAUSES_SINCE)
    frozen = site.frozen.get(node.id, NO_SUSPENDED_WORK) if knows_pauses else NO_SUSPENDED_WORK
    desired: dict[UUID, list[wire.DesiredAllocation]] = defaultdict(list)
    for row in site.allocations.get(node.id, ()):
        # Older agents release the GPUs in time by the end in the document alone.
        pause = site.pauses.get(row.booking_id) if knows_pauses else None
        wanted = _allocation(row, pause, frozen.resumes.get(row.id), site)
        if agent_supports(node, wire.HOST_SINCE):
            ask = row.booking.ask
            cores, memory_mb = ask.get("cores", 0), ask.get("memory", 0) * 1_024
            more = site.more_cores.get(row.booking_id, 0) if row.state == Allocation.State.ACTIVE else 0
            wanted = replace(wanted, cores=cores, memory_mb=memory_mb, more_cores=more)
        if node.id in site.with_data:
            wanted = replace(wanted, data=tuple(row.booking.ask.get("data", ())))
        if node.engine != Node.Engine.DEVICE:
            wanted = replace(wanted, project=row.booking.project.slug)
        desired[row.gpu_id].append(wanted)
    ahead = site.prepared if agent_supports(node, wire.PREPARES_SINCE) else {}
    return wire.Desired(
        node=node.name,
        epoch=epoch,
        generation=node.generation,
        gpus=tuple(
            _desired_gpu(gpu.uuid, gpu.mode_wanted or gpu.mode, desired[gpu.id], ahead.get(gpu.id, ()))
            for gpu in site.gpus.get(node.id, ())
        ),
        gangs=site.gangs.get(node.id, ()) if agent_supports(node, wire.ADDED_FIELDS_SINCE) else (),
        rotation=_rotation(node),
        suspended=frozen.kept if knows_pauses else None,
        ladder=escalation_of(node),
        notebooks=site.notebooks.get(node.id, ()),
        scripts=site.scripts.get(node.id, ()),
    )


def gangs_on(
    allocations: Mapping[UUID, Iterable[Allocation]],
) -> dict[UUID, tuple[wire.Gang, ...]]:
    """Bookings that span several nodes, by node.

    The members of a run are fixed from its start, whatever becomes of them, so that one generation
    always has the same document. Allocations from before a pause do not count.
    """
    runs: dict[UUID, set[_Run]] = {
        node: {(row.booking_id, row.period.lower) for row in rows if not row.abandoned}
        for node, rows in allocations.items()
    }
    devices: dict[_Run, dict[tuple[str, str, str], int]] = defaultdict(dict)
    begun = Allocation.objects.filter(
        booking__in={booking for found in runs.values() for booking, _ in found},
        state__in=EVER_STARTED,
        abandoned=False,
    )
    for booking, begins, tenant, number, index, name, count in begun.values_list(
        "booking_id",
        "period__startswith",
        "tenant__slug",
        "booking__number",
        "booking__array_index",
        "gpu__node__name",
    ).annotate(devices=Count("id")):
        devices[booking, begins][tenant, booking_node_name(number, index), name] = count
    return {node: _gangs(devices[run] for run in found) for node, found in runs.items()}


def _gangs(runs: Iterable[Mapping[tuple[str, str, str], int]]) -> tuple[wire.Gang, ...]:
    together: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for run in runs:
        for (tenant, booking, name), count in run.items():
            together[tenant, booking][name] += count
    return tuple(
        wire.Gang(
            tenant=tenant,
            booking=booking,
            members=tuple(wire.Member(node=n, devices=c) for n, c in sorted(members.items())),
        )
        for (tenant, booking), members in sorted(together.items())
        if len(members) > 1
    )


def _rotation(node: Node) -> wire.Rotation | None:
    """The new key that the agent has not signed with yet, encrypted with its old one."""
    if node.key_confirmed == node.key_version:
        return None
    old, new, version = node_key(node, node.key_confirmed), node_key(node), node.key_version
    hidden = wire.key_wrap(old=old, new=new, node=node.name, version=version)
    return wire.Rotation(version=version, hidden=hidden)


def _allocation(
    row: Allocation, pause: Pause | None, resumes: str | None, site: _Site
) -> wire.DesiredAllocation:
    return wire.DesiredAllocation(
        id=row.id.hex,
        booking=row.booking.node_name,
        tenant=row.tenant.slug,
        owner=row.booking.owner.username,
        profile=row.profile,
        profile_id=site.profiles[row.model_id, row.profile] if row.profile else None,
        slot=row.start,
        size=row.size,
        starts=int(row.period.lower.timestamp()),
        ends=int(row.period.upper.timestamp()),
        state="release" if row.state == Allocation.State.RELEASING else "run",
        notice=_notice(row, pause),
        resumes=resumes,
        lease=row.leased,
        share=row.share,
    )


def _notice(row: Allocation, pause: Pause | None) -> wire.Notice | None:
    if pause is None or row.abandoned:
        # Leftovers of a broken run are not resumed.
        return None
    return wire.Notice(
        id=pause.id.hex,
        told=int(pause.notified_at.timestamp()),
        # Earlier than the deadline once everything is saved.
        at=int(row.period.upper.timestamp()),
        method=_METHODS[pause.method],
    )


def _desired_gpu(
    uuid: str,
    mode: str,
    allocations: list[wire.DesiredAllocation],
    prepared: tuple[wire.DesiredSlice, ...],
) -> wire.DesiredGpu:
    """A GPU's desired mode and allocations; running allocations determine the mode, then slices that are
    made ahead."""
    running = [item for item in allocations if item.state == "run"] or allocations
    wanted: wire.Mode = "sliced" if mode == "sliced" or prepared else "whole"
    if running:
        wanted = "sliced" if running[0].profile else "whole"
        wanted = "shared" if running[0].share is not None else wanted
    ahead = prepared if wanted == "sliced" else ()
    return wire.DesiredGpu(uuid=uuid, mode=wanted, allocations=tuple(allocations), prepared=ahead)
