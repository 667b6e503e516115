"""The fleet at one instant: nodes, GPUs, bookings on them, and utilisation.

A tenant's view has anonymous blocks for other tenants and utilisation only for its own bookings.
The operator's view has everything. Values that were not measured are None, never 0.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection
from django.db.models import Max, Min

from allocation.models import Allocation, Gpu, GpuSample, MigPlacement, Node
from allocation.queries.fleet.nodes import no_new_work_reason
from allocation.queries.fleet.telemetry import FRESH
from allocation.rules.ask.line.text import gigabytes_text
from billing.rules import UNITS_PER_GPU

SLOTS = 8
UNREACHABLE_AFTER = timedelta(seconds=30)
UNUSED_WINDOW = timedelta(minutes=15)
# The readings must span this much of the window.
UNUSED_MIN_SPAN = timedelta(minutes=10)
UNUSED_BELOW_PERCENT = 5
Computes = Mapping[tuple[str, int, int], Mapping[str, int]]
"""(model, start, size) -> profile -> compute slices, as listed by NVML."""


@dataclass(frozen=True, slots=True)
class Block:
    """Slots [start, start + size) of a GPU that are booked now.

    `compute` is the number of compute slices, None if it is ambiguous (other tenants' blocks have
    no profile). `busy` is the utilisation in the last 90 s in percent. `unused`: measured for the
    last 15 min and always below 5 %. `thousandths` is set for a share. `label`, `title` and
    `tenant` are empty unless the reader may see them.
    """

    allocation: UUID | None
    start: int
    size: int
    profile: str | None
    whole: bool
    compute: int | None
    starts: datetime
    ends: datetime
    mine: bool
    label: str = ""
    title: str = ""
    tenant: str = ""
    busy: int | None = None
    unused: bool = False
    thousandths: int | None = None
    units: int = 0
    """What quotas count, 0 where the reader may not see it."""

    @property
    def share(self) -> float:
        """The size of the block in GPUs, by memory or by share."""
        return self.size / SLOTS if self.thousandths is None else self.thousandths / 1000


@dataclass(frozen=True, slots=True)
class GpuNow:
    """One device with its blocks in slot order."""

    id: UUID
    index: int
    model: str
    gpu_class: str
    memory_slots: int
    compute_slices: int
    can_slice: bool
    health: str
    health_reason: str
    sliced: bool
    blocks: tuple[Block, ...]
    mode_wanted: str = ""
    mode_pinned: str = ""
    label: str = ""
    """The label of its class."""
    noun: str = "GPU"
    """What it is called: `GPU`, or `core` of a host."""

    @property
    def usable(self) -> bool:
        """Whether the device can be booked."""
        return self.health == Gpu.Health.OK

    @property
    def is_core(self) -> bool:
        """Whether it is a core of a host, which counts as no GPU."""
        return self.noun == "core"

    @property
    def booked(self) -> float:
        """What of it is booked: a slice or a share is a part."""
        return sum(block.share for block in self.blocks)

    @property
    def free_slots(self) -> int:
        """The number of memory slots without a booking."""
        return SLOTS - sum(block.size for block in self.blocks)


@dataclass(frozen=True, slots=True)
class NodeNow:
    """One node.

    `is_unreachable`: no message for 30 s. `unreachable_since`: its last answer, if it got no new
    work because it does not answer. `behind`: number of assignments not applied yet.
    `enrolled`: it has an agent. `is_locked_out`: it had one, whose account is gone. `rotating`: the
    agent has a new key and has not used it yet.
    `no_new_work_reason`: why a node in service gets no new work.
    """

    id: UUID
    name: str
    rack: str
    state: str
    state_reason: str
    cores: int
    memory_mb: int
    driver: str
    agent_version: str
    last_seen: datetime | None
    is_unreachable: bool
    behind: int
    gpus: tuple[GpuNow, ...]
    enrolled: bool = True
    is_locked_out: bool = False
    rotating: bool = False
    no_new_work_reason: str = ""
    unreachable_since: datetime | None = None
    drain_by: datetime | None = None
    is_restored: bool = False
    limits: str = "counted, not enforced"
    engine: str = "Agent"
    limits_note: str = ""
    zone: str = ""
    storage: str = ""
    """In words; empty: not known."""

    @property
    def cores_given(self) -> int:
        """The number of its cores that work without a GPU can have; of a node with GPUs none."""
        return sum(gpu.is_core for gpu in self.gpus)

    @property
    def in_service(self) -> bool:
        """Whether the solver can use its healthy GPUs."""
        return self.state == Node.State.READY and not self.no_new_work_reason

    @property
    def booked(self) -> float:
        """What is booked in GPUs: a slice or a share is a part of one."""
        return sum(gpu.booked for gpu in self.gpus)

    @property
    def booked_text(self) -> str:
        """The same as text: `5.375`."""
        return gpus_text(self.booked)


@dataclass(frozen=True, slots=True)
class Totals:
    """The figures of the fleet, in GPUs by memory slots. `busy` is in percent, None if not
    measured. `counted` is in GPUs by units, as quotas count what the reader may see: a slice of three
    sevenths of the compute has four eighths of the memory.

    `free_whole` can be booked now as whole GPUs. `idle` have no booking now, but are reserved for
    one soon, under maintenance, or pinned to slices.

    `busy`, `measured` and `unused` cover the blocks whose use the reader may see (`known`).
    """

    gpus: int
    in_service: int
    booked: float
    counted: float
    free_whole: int
    idle: int
    free_slots: int
    known: float
    measured: float
    busy: int | None
    unused: float

    @property
    def booked_text(self) -> str:
        """All that is booked; the texts of the nodes add up to it."""
        return gpus_text(self.booked)

    @property
    def counted_text(self) -> str:
        """What quotas count of it: of all tenants for operators, else of the reader's."""
        return gpus_text(self.counted)

    @property
    def known_text(self) -> str:
        """What is booked of which the reader may see the use."""
        return gpus_text(self.known)

    @property
    def measured_text(self) -> str:
        """What of it was measured."""
        return gpus_text(self.measured)

    @property
    def out(self) -> int:
        """The number of GPUs that can't be booked."""
        return self.gpus - self.in_service


def gpus_text(gpus: float) -> str:
    """Returns a number of GPUs: `8`, `5.375`. Slots are eighths and shares are thousandths of one,
    so three places round nothing and sums of texts hold."""
    return f"{gpus:.3f}".rstrip("0").rstrip(".")


def fleet_now(*, tenant_id: UUID | None, now: datetime, node: str | None = None) -> list[NodeNow]:
    """Nodes by rack and name. `tenant_id` None is the operator's view, inside `operator_tx`."""
    nodes = Node.objects.select_related("rack").order_by("rack__name", "name")
    if node is not None:
        nodes = nodes.filter(name=node)
    gpus = list(
        Gpu.objects.filter(node__in=nodes.order_by()).select_related("model", "gpu_class").order_by("index")
    )
    computes = _computes(gpus)
    blocks = _blocks(tenant_id=tenant_id, gpus=gpus, computes=computes, now=now)
    sliceable = {model for model, _, _ in computes}
    by_node: dict[UUID, list[GpuNow]] = defaultdict(list)
    for gpu in gpus:
        by_node[gpu.node_id].append(
            GpuNow(
                id=gpu.id,
                index=gpu.index,
                model=gpu.model_id,
                gpu_class=gpu.gpu_class_id,
                memory_slots=gpu.model.memory_slots,
                compute_slices=gpu.model.compute_slices,
                can_slice=gpu.model_id in sliceable,
                health=gpu.health,
                health_reason=gpu.health_words,
                sliced=gpu.mode == Gpu.Mode.SLICED,
                blocks=tuple(sorted(blocks[gpu.id], key=lambda block: block.start)),
                mode_wanted=gpu.mode_wanted,
                mode_pinned=gpu.mode_pinned,
                label=gpu.gpu_class.label,
                noun=gpu.gpu_class.noun,
            )
        )
    return [_node(row, by_node[row.id], now) for row in nodes]


def totals_of(nodes: Iterable[NodeNow], free: Collection[UUID]) -> Totals:
    """The figures of these nodes' GPUs. `free` are those that can be booked whole. Cores are none."""
    nodes = [node for node in nodes if not node.cores_given]
    everything = [gpu for node in nodes for gpu in node.gpus]
    serving = [gpu for node in nodes if node.in_service for gpu in node.gpus if gpu.usable]
    blocks = [block for gpu in everything for block in gpu.blocks]
    known = [block for block in blocks if block.allocation is not None]
    measured = [(block.busy, block.share) for block in known if block.busy is not None]
    weight = sum(share for _, share in measured)
    return Totals(
        gpus=len(everything),
        in_service=len(serving),
        booked=sum(node.booked for node in nodes),
        counted=sum(block.units for block in blocks) / UNITS_PER_GPU,
        free_whole=sum(gpu.id in free for gpu in serving),
        idle=sum(not gpu.blocks and gpu.id not in free for gpu in serving),
        free_slots=sum(gpu.free_slots for gpu in serving if gpu.blocks),
        known=sum(block.share for block in known),
        measured=weight,
        busy=round(sum(busy * share for busy, share in measured) / weight) if weight else None,
        unused=sum(block.share for block in known if block.unused),
    )


def _node(row: Node, gpus: list[GpuNow], now: datetime) -> NodeNow:
    return NodeNow(
        id=row.id,
        name=row.name,
        rack=row.rack.name,
        state=row.state,
        state_reason=row.state_words,
        cores=row.cores,
        memory_mb=row.memory_mb,
        driver=row.driver,
        agent_version=row.agent_version,
        last_seen=row.last_seen,
        is_unreachable=row.last_seen is not None and now - row.last_seen > UNREACHABLE_AFTER,
        behind=max(0, row.generation - row.observed_generation) if row.last_seen else 0,
        gpus=tuple(gpus),
        enrolled=row.link_digest is not None,
        is_locked_out=row.is_locked_out,
        rotating=row.key_confirmed < row.key_version,
        no_new_work_reason=no_new_work_reason(row),
        unreachable_since=row.unreachable_since,
        drain_by=row.drain_by,
        is_restored=row.ahead_epoch is not None,
        limits=host_limits_text(row),
        engine=_engine(row),
        limits_note=row.host_note,
        zone=row.rack.zone_id or "",
        storage=storage_text(row),
    )


def _engine(row: Node) -> str:
    """The engine for people, such as `Slurm, main, slot of the pool portal`."""
    pool = f"slot of the pool {row.engine_pool}" if row.engine_pool else ""
    return ", ".join(filter(None, (row.get_engine_display(), row.engine_agent_id, pool)))


def storage_text(node: Node) -> str:
    """What storage a node has: `local NVMe, 2 TB`, `shared`, `none`; empty: not known."""
    return storage_words(node.storage, node.scratch_gb)


def storage_words(storage: str, scratch_gb: int) -> str:
    """The words for a kind of storage and its local space in GB."""
    if storage != Node.Storage.LOCAL:
        return str(storage)
    return f"local NVMe, {gigabytes_text(scratch_gb)}" if scratch_gb else "local NVMe"


def host_limits_text(node: Node) -> str:
    """Whether the node enforces host cores and memory, in words."""
    if node.host_limits == "enforced":
        return "enforced"
    return "counted, not enforced"


def _blocks(
    *, tenant_id: UUID | None, gpus: Sequence[Gpu], computes: Computes, now: datetime
) -> dict[UUID, list[Block]]:
    """Blocks by GPU: the reader's own with their names, all others anonymous."""
    models = {gpu.id: gpu.model_id for gpu in gpus}
    whole = {gpu.model_id: gpu.model.compute_slices for gpu in gpus}
    rows = Allocation.objects.filter(
        state__in=Allocation.LIVE, period__contains=now, gpu_id__in=models
    ).select_related("booking", "tenant")
    if tenant_id is not None:
        rows = rows.filter(tenant_id=tenant_id)
    found: dict[UUID, list[Block]] = defaultdict(list)
    own = list(rows)
    busy = _latest([row.id for row in own], now)
    unused_ids = _unused([row.id for row in own], now)
    for row in own:
        legal = computes.get((row.model_id, row.start, row.size), {})
        found[row.gpu_id].append(
            Block(
                allocation=row.id,
                start=row.start,
                size=row.size,
                profile=row.profile,
                whole=row.mode != Gpu.Mode.SLICED,
                thousandths=row.share,
                units=row.units,
                compute=whole[row.model_id] if row.profile is None else legal.get(row.profile),
                starts=row.period.lower,
                ends=row.period.upper,
                mine=tenant_id is not None,
                label=row.booking.label,
                title=row.booking.name,
                tenant="" if tenant_id is not None else row.tenant.name,
                busy=busy.get(row.id),
                unused=row.id in unused_ids,
            )
        )
    if tenant_id is not None:
        for gpu_id, block in _foreign(now):
            if gpu_id in models:
                found[gpu_id].append(_with_compute(block, models[gpu_id], whole, computes))
    return found


def _with_compute(block: Block, model: str, whole: Mapping[str, int], computes: Computes) -> Block:
    """Another tenant's block with its compute slices, if its place allows only one value."""
    legal = set(computes.get((model, block.start, block.size), {}).values())
    only = legal.pop() if len(legal) == 1 else None
    return replace(block, compute=whole[model] if block.whole else only)


def _foreign(now: datetime) -> list[tuple[UUID, Block]]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT gpu_id, profile, start, size, period_start, period_end, share"
            " FROM portal_taken(%s, %s) WHERE NOT mine AND NOT planned",
            [now, now + timedelta(seconds=1)],
        )
        return [
            (
                gpu_id,
                Block(
                    None,
                    start,
                    size,
                    None,
                    profile is None,
                    None,
                    since,
                    until,
                    mine=False,
                    thousandths=share,
                ),
            )
            for gpu_id, profile, start, size, since, until, share in cursor.fetchall()
            if since <= now < until
        ]


def _computes(gpus: Sequence[Gpu]) -> Computes:
    legal: dict[tuple[str, int, int], dict[str, int]] = defaultdict(dict)
    for place in MigPlacement.objects.filter(model_id__in={gpu.model_id for gpu in gpus}):
        legal[place.model_id, place.start, place.size][place.profile] = place.compute
    return legal


def _latest(allocations: Sequence[UUID], now: datetime) -> dict[UUID, int]:
    rows = (
        GpuSample.objects.filter(allocation_id__in=allocations, at__gt=now - FRESH)
        .order_by("allocation_id", "-at")
        .distinct("allocation_id")
        .values_list("allocation_id", "utilisation")
    )
    return {key: busy for key, busy in rows if key is not None and busy is not None}


def _unused(allocations: Sequence[UUID], now: datetime) -> set[UUID]:
    """Allocations that were measured through the window and never busy in it."""
    rows = (
        GpuSample.objects.filter(
            allocation_id__in=allocations, at__gt=now - UNUSED_WINDOW, utilisation__isnull=False
        )
        .values("allocation_id")
        .annotate(top=Max("utilisation"), first=Min("at"), last=Max("at"))
    )
    return {
        key
        for row in rows
        if (key := row["allocation_id"]) is not None
        and row["top"] < UNUSED_BELOW_PERCENT
        and row["last"] - row["first"] >= UNUSED_MIN_SPAN
        and now - row["last"] < FRESH
    }
