"""Hardware in a snapshot: models, GPUs, hosts, maintenance, and what energy costs and emits by zone."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Q

import wire
from allocation.models import Gpu, GpuModel, Maintenance, MigPlacement, Node, Zone
from allocation.points import energy_waits
from allocation.queries.fleet.maintenance import maintenance_by_gpu, maintenance_open
from allocation.rules.nodes.pcie import pcie_groups
from allocation.rules.pools import pooled
from allocation.services.nodes.fleet import agent_supports
from allocation.services.nodes.gpu_modes import changes_modes
from solver import Energy, Host, Model, Placement, Tier
from solver import Gpu as SolverGpu
from solver import Maintenance as SolverBlackout
from solver.model.inputs import Mode
from tenants.models import GpuClass

EVERYWHERE = Q()
# The changes of clocks of these years are known: no booking is planned outside of them.
_SINCE, _UNTIL = datetime(2020, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC)
_DAY, _MINUTE = timedelta(days=1), timedelta(minutes=1)
_TEN_THOUSANDTHS = 10_000


def models_read() -> tuple[Model, ...]:
    """Every model with its reported geometry."""
    placements: dict[str, list[Placement]] = defaultdict(list)
    for row in MigPlacement.objects.all():
        placements[row.model_id].append(
            Placement(row.profile, row.start, row.size, row.compute, row.profile_id, row.limit)
        )
    return tuple(
        Model(
            slug=model.slug,
            memory_slots=model.memory_slots,
            compute_slices=model.compute_slices,
            mode_switch="reset" if model.mode_switch == "reset" else "online",
            placements=tuple(placements[model.slug]),
            switch_seconds=model.switch_seconds,
            host=model.gpu_class.kind == GpuClass.Kind.HOST,
        )
        for model in GpuModel.objects.select_related("gpu_class").order_by("slug")
    )


def gpus_read(where: Q = EVERYWHERE) -> tuple[SolverGpu, ...]:
    """GPUs; usable if they are healthy and their node takes work."""
    nodes = {node.id: _NodeFacts.of(node) for node in Node.objects.select_related("rack")}
    rows = Gpu.objects.filter(where).values_list(
        *("id", "number", "node_id", "index", "gpu_class_id", "model_id", "domain", "health"),
        *("mode", "mode_pinned", "model__mode_switch", "numa", "peers"),
        named=True,
    )
    return tuple(_gpu_of(row, nodes[row.node_id]) for row in rows)


@dataclass(frozen=True, slots=True)
class _NodeFacts:
    """Facts of a node that apply to all of its GPUs."""

    name: str
    rack: str
    zone: str
    storage: str
    scratch: int
    pool: str
    keeps_planned_work: bool
    shares: bool
    silent: bool
    changes_modes: bool
    divides: bool

    @classmethod
    def of(cls, node: Node) -> "_NodeFacts":
        # An older agent would refuse its whole document because of one share.
        divides = node.engine == Node.Engine.DEVICE
        can_share = divides and not node.driver.startswith(wire.WITHOUT_SHARES)
        shares = can_share and (not node.agent_version or agent_supports(node, wire.SHARES_SINCE))
        return cls(
            name=node.name,
            rack=node.rack.name,
            zone=node.rack.zone_id or "",
            storage=str(node.storage),
            scratch=node.scratch_gb,
            pool=node.pool,
            keeps_planned_work=node.keeps_planned_work,
            shares=shares,
            silent=node.unreachable_since is not None,
            changes_modes=changes_modes(node),
            divides=divides,
        )


def _gpu_of(row: Any, node: _NodeFacts) -> SolverGpu:  # noqa: ANN401 (a row of values)
    takes_reset = row.model__mode_switch == "reset"
    fixed = row.mode_pinned or (row.mode if takes_reset and not node.changes_modes else "")
    if not node.divides:
        # Another scheduler hands out whole GPUs only.
        fixed = "whole"
    return SolverGpu(
        id=str(row.id),
        number=row.number,
        node=node.name,
        rack=node.rack,
        index=row.index,
        gpu_class=pooled(row.gpu_class_id, node.pool),
        model=row.model_id,
        domain=row.domain,
        usable=row.health == Gpu.Health.OK and node.keeps_planned_work,
        mode=_hardware_mode(fixed) if fixed else None,
        shares=node.shares,
        silent=node.silent,
        stands=_hardware_mode(row.mode) if takes_reset else None,
        pinned=bool(row.mode_pinned),
        zone=node.zone,
        storage=node.storage,
        scratch=node.scratch,
        near=pcie_groups(row.index, row.numa, row.peers),
    )


def hosts_read() -> tuple[Host, ...]:
    """Cores and memory of each node that has reported them."""
    return tuple(
        Host(node.name, node.cores * 1_000, node.memory_mb)
        for node in Node.objects.filter(cores__gt=0).order_by("name")
    )


def maintenance_read(now: datetime) -> tuple[SolverBlackout, ...]:
    """Current and planned maintenance, which every tenant may see."""
    return maintenance_rows(maintenance_open(now))


def maintenance_rows(maintenances: Sequence[Maintenance]) -> tuple[SolverBlackout, ...]:
    """The rows of maintenance that may be unsaved."""
    gpus = Gpu.objects.select_related("node").only("node__rack") if maintenances else ()
    return tuple(
        SolverBlackout(
            gpu=str(gpu.id),
            starts=int(maintenance.starts.timestamp()),
            ends=int(maintenance.ends.timestamp()),
        )
        for gpu, maintenance in maintenance_by_gpu(maintenances, gpus)
    )


def _hardware_mode(mode: str) -> Mode:
    return "sliced" if mode == Gpu.Mode.SLICED else "whole"


def energy_sections(tiers: Iterable[Tier]) -> dict[str, Any]:
    """Reads the sections of tiers, with what they prefer, and of energy; without a preference that is
    empty."""
    waits = energy_waits()
    preferring = tuple(
        replace(tier, prefers=waits[tier.slug][0], shift=waits[tier.slug][1]) if tier.slug in waits else tier
        for tier in tiers
    )
    return {"tiers": preferring, "energy": tuple(_energy()) if waits else ()}


def _energy() -> Iterator[Energy]:
    for zone in Zone.objects.filter(ended=None).order_by("slug"):
        if zone.price or zone.grams:
            price = tuple(int(each * _TEN_THOUSANDTHS) for each in zone.price)
            yield Energy(zone.slug, price, tuple(zone.grams), offsets_of(zone.time_zone))


@lru_cache(maxsize=128)
def offsets_of(name: str) -> tuple[tuple[int, int], ...]:
    """Returns (from that second on, seconds east of UTC) of a time zone, rising from 0 on."""
    zone = ZoneInfo(name)
    found, at = [(0, _offset(zone, _SINCE))], _SINCE
    while at < _UNTIL:
        after = at + _DAY
        if _offset(zone, after) != found[-1][1]:
            while _offset(zone, at) == found[-1][1]:
                at += _MINUTE
            found.append((int(at.timestamp()), _offset(zone, at)))
        at = after
    return tuple(found)


def _offset(zone: ZoneInfo, at: datetime) -> int:
    offset = at.astimezone(zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())
