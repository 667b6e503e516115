"""Starting and ending notebooks, and what nodes say of them."""

import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet

import wire
from allocation.access import access_booking
from allocation.features.notebooks.models import NodeNotebooks, Notebook
from allocation.models import Allocation, Booking, Node
from allocation.rules.states import State
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.audit import actor_record
from tenants.failures import each_apart
from tenants.outbox import task_request
from tenants.platform.errors import Refused, denied, invalid, missing
from tenants.platform.terms import term, terms

TASK = "notebooks.orders"
RUNNING = (State.ACTIVE, State.PAUSING)
STARTS_WITHIN = timedelta(minutes=3)
_LABEL_BYTES = 10


@terms
class NotebookTerms:
    """What to start."""

    program: str = term(
        "Program",
        says="A name of the list of the booking's node. Empty: the first one.",
        max_length=40,
        default="",
    )


def notebook_start(*, actor: Actor, reference: str, terms: NotebookTerms, now: datetime) -> Notebook:
    """Starts a notebook on a running booking of the actor. Returns the open one if there is one.

    Raises:
        Refused: `not_found`, `not_allowed`, `notebooks_off`, `notebook_not_running`,
            `notebook_not_offered` or `notebook_program`.
    """
    booking = notebook_own(actor, reference)
    if booking.state not in RUNNING or booking.ready_at is None:
        raise Refused("notebook_not_running", refusal_text("notebook_not_running", label=booking.label))
    node, programs = _place(booking)
    if terms.program and terms.program not in programs:
        sentence = refusal_text("notebook_program", node=node.name, programs=", ".join(programs))
        raise invalid("notebook_program", sentence, "program")
    with transaction.atomic():
        # Two first ones at once: the later one waits here.
        Booking.objects.select_for_update(no_key=True).get(id=booking.id)
        found = notebook_of(booking)
        if found is not None and found.ended_at is None:
            return found
        row = Notebook.objects.create(
            tenant_id=booking.tenant_id,
            booking=booking,
            owner_id=actor.user_id,
            node=node,
            program=terms.program or programs[0],
            label=secrets.token_hex(_LABEL_BYTES),
            run=booking.ready_at,
            asked_at=now,
        )
        _logged(actor, "notebook.started", row, now)
        task_request(TASK)
    return row


def notebook_end(*, actor: Actor, reference: str, now: datetime) -> Notebook:
    """Ends the notebook of a booking of the actor. Its programs end within seconds.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    booking = notebook_own(actor, reference)
    with transaction.atomic():
        row = Notebook.objects.select_for_update(of=("self",)).filter(booking=booking).first()
        if row is None:
            raise missing("notebook")
        if row.ended_at is None:
            _over(row, "ended", "Its owner ended it.", now)
            _logged(actor, "notebook.ended", row, now)
            task_request(TASK)
    return row


def notebook_of(booking: Booking) -> Notebook | None:
    """Returns the newest notebook of a booking."""
    return Notebook.objects.filter(booking=booking).select_related("node", "booking").first()


def programs_offered(booking: Booking) -> list[str]:
    """Returns what can be started on a booking's nodes; nothing where the site has none."""
    try:
        return _place(booking)[1]
    except Refused:
        return []


def notebook_own(actor: Actor, reference: str) -> Booking:
    """Returns a booking of the actor. Raises Refused."""
    booking = access_booking(actor, reference)
    if booking.owner_id != actor.user_id:
        raise denied(refusal_text("notebook_owner"))
    if not settings.NOTEBOOK_URL:
        raise Refused("notebooks_off", refusal_text("notebooks_off"))
    return booking


def _place(booking: Booking) -> tuple[Node, list[str]]:
    """The first node of the booking, in the order of ranks, that offers programs; and their names."""
    states = (Allocation.State.ACTIVE, Allocation.State.STARTING)
    nodes = Node.objects.filter(gpus__allocation__booking=booking, gpus__allocation__state__in=states)
    offers = NodeNotebooks.objects.filter(node__in=nodes).select_related("node").order_by("node__name")
    found = next((each for each in offers if each.programs), None)
    if found is None:
        raise Refused("notebook_not_offered", refusal_text("notebook_not_offered"))
    return found.node, found.programs


def _logged(actor: Actor, action: str, row: Notebook, now: datetime) -> None:
    detail = {"booking": row.booking.label, "program": row.program, "node": row.node.name}
    actor_record(actor, action, ("notebook", row.pk), now, detail)


def _over(row: Notebook, state: str, reason: str, now: datetime) -> None:
    row.state, row.reason, row.ended_at = state, reason[:300], now
    row.save(update_fields=["state", "reason", "ended_at"])
    row.entries.all().delete()


# What nodes get and say.


def notebooks_unordered(now: datetime) -> QuerySet[Notebook]:
    """Returns the notebooks about which something has to be done."""
    due = Q(ended_at=None, is_ordered=False) | Q(ended_at__isnull=False, is_ordered=True)
    late = Q(ended_at=None, state__in=("asked", "starting"), asked_at__lte=now - STARTS_WITHIN)
    return Notebook.objects.filter(due | late | _left_behind())


def _left_behind() -> Q:
    """Open ones whose booking, or whose run of it, is over."""
    return Q(ended_at=None) & (~Q(booking__state__in=RUNNING) | ~Q(booking__ready_at=F("run")))


def orders_turn(now: datetime) -> None:
    """Ends what is over, and puts into documents and takes from them what has changed."""
    nodes = Node.objects.filter(id__in=notebooks_unordered(now).values("node")).order_by("id")
    each_apart("notebooks", nodes, lambda node: _node_turn(node.id, now), now)


@transaction.atomic
def _node_turn(node_id: UUID, now: datetime) -> int:
    # Nodes before notebooks, as where their messages are taken in.
    Node.objects.select_for_update(no_key=True).get(id=node_id)
    rows = notebooks_unordered(now).filter(node=node_id).select_for_update(of=("self",)).order_by("id")
    for row in rows:
        _turn(row, now)
    return Node.objects.filter(id=node_id).update(generation=F("generation") + 1)


def _turn(row: Notebook, now: datetime) -> None:
    if Notebook.objects.filter(_left_behind(), id=row.id).exists():
        _over(row, "ended", "The booking has ended, or was paused.", now)
    elif row.ended_at is None and row.state != "ready" and row.asked_at <= now - STARTS_WITHIN:
        _over(row, "failed", "Its node did not start it within three minutes.", now)
    row.is_ordered = row.ended_at is None
    row.save(update_fields=["is_ordered"])


def orders_of(nodes: Iterable[UUID]) -> dict[UUID, tuple[wire.DesiredNotebook, ...]]:
    """Returns what stands in the documents of nodes."""
    found: dict[UUID, tuple[wire.DesiredNotebook, ...]] = {}
    rows = Notebook.objects.filter(node__in=list(nodes), is_ordered=True)
    for row in rows.select_related("booking", "tenant").order_by("id"):
        order = wire.DesiredNotebook(
            id=row.id.hex,
            booking=row.booking.node_name,
            tenant=row.tenant.slug,
            program=row.program,
            address=f"{row.tenant_id.hex}.{row.label}",
        )
        found[row.node_id] = (*found.get(row.node_id, ()), order)
    return found


def message_keep(node: Node, message: wire.Notebooks, now: datetime) -> bool:
    """Takes in what a node says. Returns False if it said something newer before."""
    offer, is_new = NodeNotebooks.objects.get_or_create(
        node=node, defaults={"programs": list(message.programs), "seq": message.seq}
    )
    if not is_new:
        if message.seq <= offer.seq:
            return False
        offer.programs, offer.seq = list(message.programs)[: wire.NOTEBOOK_PROGRAMS_MAX], message.seq
        offer.save(update_fields=["programs", "seq"])
    said = {each.id: each for each in message.notebooks[: wire.NOTEBOOKS_MAX]}
    rows = Notebook.objects.filter(node=node, ended_at=None, is_ordered=True)
    for row in rows.select_for_update(of=("self",)).order_by("id"):
        if row.id.hex in said:
            _said(row, said[row.id.hex], now)
    return True


def _said(row: Notebook, said: wire.ReportedNotebook, now: datetime) -> None:
    if said.state in ("ended", "failed"):
        _over(row, said.state, said.error, now)
        task_request(TASK)
        return
    row.state, row.key = said.state, said.key or ""
    if said.state == "ready" and row.ready_at is None:
        row.ready_at = now
    row.save(update_fields=["state", "key", "ready_at"])
