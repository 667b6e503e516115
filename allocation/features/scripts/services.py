"""Scripts that come with bookings: which are taken, what nodes get, and what they say."""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

import wire
from allocation.features.scripts.models import BookingScript
from allocation.models import Allocation, Booking, Node
from allocation.queries.fleet.catalogue import class_labels
from allocation.rules.states import State
from allocation.services.nodes.fleet import agent_supports
from allocation.words.refusals import refusal_text
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid

TASK = "scripts.ended"
RUNNING = (State.ACTIVE, State.PAUSING)
_ON_NODE = (Allocation.State.STARTING, Allocation.State.ACTIVE, Allocation.State.RELEASING)
_CONTROLS = re.compile(f"[{wire.NOT_IN_TEXT}]")


def script_add(booking: Booking, text: str) -> BookingScript:
    """Gives a new booking its script, in the transaction in which it is written.

    Raises:
        Refused: `script_empty`, `script_too_long`, `script_characters`, `script_no_array`,
            `script_one_node` or `script_not_run`.
    """
    text = text.replace("\r\n", "\n")
    if not text.strip():
        raise invalid("script_empty", refusal_text("script_empty"), "script")
    if len(text.encode(errors="replace")) > wire.SCRIPT_MAX_BYTES:
        most = wire.SCRIPT_MAX_BYTES // 1_024
        raise invalid("script_too_long", refusal_text("script_too_long", most=most), "script")
    if _CONTROLS.search(text):
        raise invalid("script_characters", refusal_text("script_characters"), "script")
    if booking.array_id is not None:
        raise invalid("script_no_array", refusal_text("script_no_array"), "script")
    _place_check(booking)
    return BookingScript.objects.create(booking=booking, tenant_id=booking.tenant_id, text=text)


def _is_on_one(ask: Mapping[str, Any]) -> bool:
    """Whether it is pinned to one node, or to GPUs of one by their numbers."""
    return len({each.partition("/")[0] for each in ask.get("pin") or ()}) == 1


def _place_check(booking: Booking) -> None:
    """Raises Refused unless the booking runs on one node, of those that run scripts."""
    ask = booking.ask
    is_one = ask["count"] == 1 or (ask["together"] == "node" and ask["required"]) or _is_on_one(ask)
    if ask.get("groups") or not is_one:
        raise invalid("script_one_node", refusal_text("script_one_node"), "script")
    serving = (Node.State.READY, Node.State.DRAINING)
    nodes = Node.objects.filter(gpus__gpu_class__in=ask["classes"], pool=booking.pool, state__in=serving)
    nodes = nodes.distinct()
    if ask.get("pin"):
        names = Q(name__in=[each.partition("/")[0] for each in ask["pin"]])
        gpus = [each for each in ask["pin"] if _is_uuid(each)]
        nodes = nodes.filter(names | Q(gpus__in=gpus))
    others = [node.name for node in nodes.order_by("name") if not runs_scripts(node)]
    if others:
        labels = class_labels()
        classes = " or ".join(labels.get(name, name) for name in ask["classes"])
        text = refusal_text("script_not_run", classes=classes, node=others[0])
        raise Refused("script_not_run", text, "conflict")


def runs_scripts(node: Node) -> bool:
    """Whether the engine of a node runs the scripts of bookings."""
    return node.engine == Node.Engine.SLURM and agent_supports(node, wire.SCRIPTS_SINCE)


def _is_uuid(text: str) -> bool:
    try:
        return bool(UUID(text))
    except ValueError:
        return False


# What nodes get and say.


def scripts_of(nodes: Collection[UUID]) -> dict[UUID, tuple[wire.DesiredScript, ...]]:
    """Returns the scripts that stand in the documents of nodes: those of bookings that have devices there.
    A script never changes, so this changes only with the generation of the node."""
    rows = Allocation.objects.filter(gpu__node__in=nodes, state__in=_ON_NODE, booking__script__isnull=False)
    places = set(rows.values_list("gpu__node_id", "booking_id"))
    scripts = BookingScript.objects.defer(None).filter(booking__in={booking for _, booking in places})
    texts = {
        script.booking_id: wire.DesiredScript(
            booking=script.booking.node_name, tenant=script.tenant.slug, text=script.text
        )
        for script in scripts.select_related("booking", "tenant")
    }
    found: dict[UUID, list[wire.DesiredScript]] = {}
    for node, booking in sorted(places):
        found.setdefault(node, []).append(texts[booking])
    return {node: tuple(each) for node, each in found.items()}


def scripts_keep(node: Node, said: Sequence[wire.ReportedAllocation], now: datetime) -> None:
    """Keeps what a node says of scripts. The first end counts; a task then ends the booking."""
    items = {UUID(each.id): each.script for each in said if each.script is not None and _is_uuid(each.id)}
    if not items:
        return
    rows = Allocation.objects.filter(id__in=items, gpu__node=node, state__in=_ON_NODE, abandoned=False)
    reported = {booking: items[key] for key, booking in rows.values_list("id", "booking_id")}
    scripts = BookingScript.objects.select_for_update().filter(booking__in=reported, ended_at=None)
    for script in scripts.order_by("booking_id"):
        if _said(script, reported[script.booking_id], now):
            task_request(TASK)


def _said(script: BookingScript, said: wire.ReportedScript, now: datetime) -> bool:
    """Returns True when it has ended."""
    if said.exit_code is None and said.file == script.log_file:
        return False
    script.log_file = said.file
    if said.exit_code is not None:
        script.exit_code, script.ended, script.log = said.exit_code, said.ended, said.log
        script.ended_at = now
    script.save(update_fields=["log_file", "exit_code", "ended", "log", "ended_at"])
    return script.ended_at is not None


def scripts_ended() -> "QuerySet[BookingScript]":
    """Returns the scripts whose bookings are to end: they have ended, or can't run where it started."""
    elsewhere = Allocation.objects.filter(state=Allocation.State.ACTIVE, abandoned=False)
    elsewhere = elsewhere.exclude(gpu__node__engine=Node.Engine.SLURM)
    never = Q(ended_at=None, booking__state=State.ACTIVE, booking__allocations__in=elsewhere)
    ended = Q(ended_at__isnull=False, booking__state__in=RUNNING)
    return BookingScript.objects.filter(ended | never).distinct()


def script_of(booking: Booking) -> BookingScript | None:
    """Returns the script of a booking, with its text and output."""
    return BookingScript.objects.defer(None).filter(booking=booking).first()
