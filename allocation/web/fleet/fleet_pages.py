"""Fleet and node pages for members of a tenant and for operators."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from allocation.models import Maintenance, Node
from allocation.points import NODE_CARDS
from allocation.queries.fleet.fleet import (
    Block,
    GpuNow,
    NodeNow,
    fleet_now,
    totals_of,
)
from allocation.queries.fleet.maintenance import maintenance_of_node, node_events
from allocation.queries.fleet.nodes import (
    agent_status_of,
    examination_of,
    gpu_links_of,
)
from allocation.queries.fleet.telemetry import (
    GpuReading,
    UtilisationTrace,
    gpu_readings,
    utilisation_traces,
)
from allocation.services.decide.self_check import self_check_read
from allocation.services.nodes.clock import clock_accept
from allocation.services.nodes.fleet import (
    node_approve,
    node_key_rotate,
    node_revoke,
)
from allocation.services.nodes.reach import nodes_check
from allocation.services.operate.drain import node_drain
from allocation.services.operate.impact import clock_impact, drain_impact
from allocation.services.quotes.free_times import MIN_FREE_TIME, free_times_read
from allocation.web.fleet.attention import Alarms, alarms_read, work_here
from allocation.web.fleet.confirmations import (
    clock_question,
    drain_question,
    revoke_question,
)
from allocation.web.fleet.reach import page_nodes
from allocation.web.fleet.tiles import (
    Geometry,
    NodeTile,
    geometry,
    node_tile,
    trace_paths,
    trace_text,
)
from allocation.web.site.site_setup import site_steps
from allocation.words.refusals import refusal_text
from tenants.access import Actor, PlatformActor
from tenants.models import User
from tenants.platform.costly import costly
from tenants.platform.errors import invalid, missing
from tenants.platform.forms.confirm import CONFIRMED_FIELD, confirm_page
from tenants.platform.forms.local_times import LocalTimeField
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page, tenant_page
from tenants.web.list_menu import list_menus

NO_ZONE = "-"
"""The filter for nodes in no zone; no zone has this name."""
TRACE_SPAN = timedelta(hours=1)
TRACE_STEP = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class BlockRow:
    """An allocation in a node's table."""

    block: Block
    paths: Sequence[str]
    trace: str

    @property
    def part(self) -> str:
        """Returns the part of the GPU: a share or slice if the reader may know it, else slots."""
        block = self.block
        if block.thousandths:
            return f"{block.share} of it, shared" if block.label else "a share"
        if block.whole:
            return "whole GPU"
        if block.label:
            return block.profile or ""
        if block.size == 1:
            return f"slot {block.start}"
        return f"slots {block.start} to {block.start + block.size - 1}"


@dataclass(frozen=True, slots=True)
class GpuCard:
    """A GPU on its node's page."""

    gpu: GpuNow
    geometry: Geometry | None
    rows: Sequence[BlockRow]
    reading: GpuReading | None
    away: Sequence[Maintenance] = ()
    is_bookable: bool = True

    @property
    def model(self) -> str:
        """Returns the label of its class with its current or next mode."""
        words = [self.gpu.label]
        words += ["sliced"] * self.gpu.sliced
        if self.gpu.mode_wanted:
            words.append(f"switching to {'slices' if self.gpu.mode_wanted == 'sliced' else 'whole'}")
        elif self.gpu.mode_pinned:
            words.append("pinned")
        return ", ".join(words)

    @property
    def measured(self) -> str:
        """Returns power and temperature as far as measured."""
        words = []
        if self.reading is not None and self.reading.power_mw is not None:
            words.append(f"{round(self.reading.power_mw / 1000)} W")
        if self.reading is not None and self.reading.temperature_c is not None:
            words.append(f"{self.reading.temperature_c} °C")
        return " · ".join(words)


class DrainForm(forms.Form):
    """The reason of a drain and the deadline for running work."""

    reason = forms.CharField(max_length=120, required=False)
    by = LocalTimeField(required=False)


@costly("fleet")
@require_GET
@tenant_page
def fleet(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows all nodes, with utilisation for the tenant's own allocations."""
    now = timezone.now()
    nodes = fleet_now(tenant_id=actor.tenant_id, now=now)
    return _fleet(request, nodes, now, reader=actor, base=f"/t/{actor.tenant_slug}/fleet")


@require_GET
@tenant_page
def node(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    """Shows one node: geometry, the tenant's own bookings with utilisation, others as busy."""
    now = timezone.now()
    nodes = fleet_now(tenant_id=actor.tenant_id, now=now, node=name)
    return _node(request, nodes, now, operator=False, base=f"/t/{actor.tenant_slug}/fleet")


@costly("fleet")
@require_GET
@operator_page(Area.NODES)
def ops_fleet(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows all nodes with all allocations and operator actions."""
    now = timezone.now()
    nodes = fleet_now(tenant_id=None, now=now)
    return _fleet(request, nodes, now, reader=PlatformActor.of(operator), base="/ops/fleet")


@require_GET
@operator_page(Area.NODES)
def ops_node(request: HttpRequest, operator: User, name: str) -> HttpResponse:
    """Shows one node with all allocations, power and temperature."""
    now = timezone.now()
    nodes = fleet_now(tenant_id=None, now=now, node=name)
    page_nodes(request, operator, Node.objects.filter(name=name))
    return _node(request, nodes, now, operator=True, base="/ops/fleet")


@require_POST
@operator_page(Area.NODES)
def ops_drain(request: HttpRequest, operator: User, name: str) -> HttpResponse:
    """Drains a node; asks for confirmation when it has bookings."""
    form = DrainForm(request.POST)
    if not form.is_valid():
        raise invalid("bad_time", refusal_text("deadline_form"), "by")
    reason, by = form.cleaned_data["reason"] or "Maintenance", form.cleaned_data["by"]
    node, now = _find(operator, name), timezone.now()
    if CONFIRMED_FIELD not in request.POST:
        losses = drain_impact(operator=operator, node=node, by=by, now=now)
        if losses.is_any:
            return confirm_page(request, drain_question(node, losses, by, now))
    node_drain(operator=operator, node=node, reason=reason, now=now, by=by)
    messages.success(request, f"{name} is draining: no new work is placed on it.")
    return redirect("ops-fleet")


@require_POST
@operator_page(Area.NODES)
def ops_ready(request: HttpRequest, operator: User, name: str) -> HttpResponse:
    """Returns a drained node to service, or approves a quarantined one."""
    node_approve(operator=operator, node=_find(operator, name), now=timezone.now())
    messages.success(request, f"{name} takes bookings again.")
    return redirect("ops-fleet")


@require_POST
@operator_page(Area.NODES)
def ops_revoke(request: HttpRequest, operator: User, name: str) -> HttpResponse:
    """Revokes the access of a node's agent, after a confirmation."""
    node, now = _find(operator, name), timezone.now()
    if CONFIRMED_FIELD not in request.POST and node.link_digest is not None:
        losses = drain_impact(operator=operator, node=node, by=None, now=now)
        return confirm_page(request, revoke_question(node, losses, now))
    node_revoke(operator=operator, node=node, now=now)
    messages.success(
        request, f"Access of the agent of {name} revoked. Enrol the node again to bring it back."
    )
    return redirect("ops-node", name=name)


@require_POST
@operator_page(Area.NODES)
def ops_rotate_key(request: HttpRequest, operator: User, name: str) -> HttpResponse:
    """Rotates the signing key of a node's agent."""
    node_key_rotate(operator=operator, node=_find(operator, name), now=timezone.now())
    messages.success(
        request,
        f"Key rotation of {name} started. The old key expires when the agent signs with the new one.",
    )
    return redirect("ops-node", name=name)


@require_POST
@operator_page(Area.SYSTEM)
def ops_clock(request: HttpRequest, operator: User) -> HttpResponse:
    """Confirms that the portal's clock is right; asks first when runs would end."""
    now = timezone.now()
    if CONFIRMED_FIELD not in request.POST and (runs := clock_impact(now)):
        return confirm_page(request, clock_question(runs))
    jump = clock_accept(operator=operator, now=now)
    seconds = round(jump.total_seconds())
    messages.success(request, f"Clock confirmed; it had jumped by {seconds} s.")
    return redirect("ops-fleet")


def _fleet(
    request: HttpRequest, nodes: list[NodeNow], now: datetime, *, reader: Actor | PlatformActor, base: str
) -> HttpResponse:
    operator = isinstance(reader, PlatformActor)
    zones = sorted({each.zone for each in nodes if each.zone})
    asked = request.GET.get("zone", "")
    nodes = [each for each in nodes if asked in ("", each.zone or NO_ZONE)]
    tiles = [node_tile(each, now) for each in nodes]
    free = free_times_read(is_operator=operator, since=now, until=now + MIN_FREE_TIME, now=now)
    totals = totals_of(nodes, free.during(now, now + MIN_FREE_TIME))
    racks: dict[str, list[NodeTile]] = {}
    for tile in tiles:
        racks.setdefault(tile.node.rack, []).append(tile)
    watch = self_check_read(now) if operator else None
    alarms = alarms_read(watch, now) if watch is not None else Alarms()
    trouble = [tile for tile in tiles if tile.tone in ("risk", "wait")]
    if alarms.is_deaf:
        trouble = [each for each in trouble if each.node.is_locked_out or not each.node.is_unreachable]
    context = {
        "racks": racks,
        "tiles": tiles,
        "totals": totals,
        "cores": sum(each.cores_given for each in nodes),
        "sliced": sum(gpu.sliced for each in nodes for gpu in each.gpus),
        "unused": [
            (each, gpu, block) for each in nodes for gpu in each.gpus for block in gpu.blocks if block.unused
        ],
        "dark_count": sum(block.unused for each in nodes for gpu in each.gpus for block in gpu.blocks),
        "trouble": trouble,
        "alarms": alarms.items,
        "alarm_count": len(alarms.items),
        "as_table": request.GET.get("view") == "table",
        "operator": operator,
        "base": base,
        "zones": [*zones, NO_ZONE] if zones else [],
        "asked_zone": asked,
        "watch": watch,
        "site_steps": site_steps() if operator else (),
        "list_menus": list_menus(request, reader, "fleet"),
    }
    return render(request, "allocation/fleet.html", context)


def _node(
    request: HttpRequest, nodes: list[NodeNow], now: datetime, *, operator: bool, base: str
) -> HttpResponse:
    if not nodes:
        raise missing("node")
    found = nodes[0]
    allocations = [block.allocation for gpu in found.gpus for block in gpu.blocks if block.allocation]
    lines = utilisation_traces(allocations=allocations, now=now, span=TRACE_SPAN, step=TRACE_STEP)
    readings = gpu_readings(gpus=[gpu.id for gpu in found.gpus], now=now) if operator else {}
    away = maintenance_of_node(node=found.id, now=now)
    context = {
        "tile": node_tile(found, now),
        "away": [each for each in away if each.gpu_id is None],
        "events": node_events(node=found.id) if operator else (),
        "node": found,
        "cards": [
            GpuCard(
                gpu=gpu,
                geometry=geometry(gpu) if gpu.can_slice and _is_cut(gpu) else None,
                rows=[_row(block, lines) for block in gpu.blocks],
                reading=readings.get(gpu.id),
                away=[each for each in away if each.gpu_id == gpu.id],
                is_bookable=gpu.usable and found.in_service,
            )
            for gpu in found.gpus
        ],
        "work": work_here(found, now) if operator and not found.in_service else None,
        "operator": operator,
        "base": base,
        "agent_status": agent_status_of(found.id) if operator else None,
        "examined": examination_of(found.id) if operator else None,
        "gpu_links": gpu_links_of(found.id),
        "node_cards": [each for card in NODE_CARDS if (each := card(found.id, now))] if operator else (),
    }
    return render(request, "allocation/node.html", context)


def _is_cut(gpu: GpuNow) -> bool:
    """Whether a drawing of its slots says more than that it is whole or free."""
    return gpu.sliced or any(not block.whole for block in gpu.blocks)


def _row(block: Block, lines: dict[Any, UtilisationTrace]) -> BlockRow:
    trace = lines.get(block.allocation)
    return BlockRow(
        block=block,
        paths=trace_paths(trace) if trace else (),
        trace=trace_text(trace) if trace else "",
    )


def _find(operator: User, name: str) -> Node:
    """The node. Raises Refused, also unless it is among those of the operator's roles."""
    found = Node.objects.select_for_update().filter(name=name).first()
    if found is None:
        raise missing("node")
    nodes_check(operator, Node.objects.filter(id=found.id))
    return found


urlpatterns = [
    path("t/<slug:tenant>/fleet", fleet, name="fleet"),
    path("t/<slug:tenant>/fleet/<slug:name>", node, name="node"),
    path("ops/fleet", ops_fleet, name="ops-fleet"),
    path("ops/fleet/<slug:name>", ops_node, name="ops-node"),
    path("ops/fleet/<slug:name>/drain", ops_drain, name="ops-drain"),
    path("ops/fleet/<slug:name>/ready", ops_ready, name="ops-ready"),
    path("ops/fleet/<slug:name>/revoke", ops_revoke, name="ops-revoke"),
    path("ops/fleet/<slug:name>/rotate-key", ops_rotate_key, name="ops-rotate-key"),
    path("ops/clock", ops_clock, name="ops-clock"),
]
