"""Hardware in a snapshot: models, GPUs, hosts and maintenance."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q

import wire
from allocation.models import Gpu, GpuModel, Maintenance, MigPlacement, Node
from allocation.queries.fleet.maintenance import maintenance_by_gpu, maintenance_open
from allocation.rules.pools import pooled
from allocation.services.nodes.fleet import agent_supports
from allocation.services.nodes.gpu_modes import changes_modes
from solver import Gpu as SolverGpu
from solver import Host, Model, Placement
from solver import Maintenance as SolverBlackout
from solver.model.inputs import Mode

EVERYWHERE = Q()


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
        )
        for model in GpuModel.objects.order_by("slug")
    )


def gpus_read(where: Q = EVERYWHERE) -> tuple[SolverGpu, ...]:
    """GPUs; usable if they are healthy and their node takes work."""
    nodes = {node.id: _NodeFacts.of(node) for node in Node.objects.select_related("rack")}
    rows = Gpu.objects.filter(where).values_list(
        *("id", "number", "node_id", "index", "gpu_class_id", "model_id", "domain", "health"),
        *("mode", "mode_pinned", "model__mode_switch"),
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
        shares = divides and (not node.agent_version or agent_supports(node, wire.SHARES_SINCE))
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
