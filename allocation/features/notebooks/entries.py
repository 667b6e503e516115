"""Who is let into a notebook: its owner's browser, and the tunnels of its node.

The portal gives a browser a ticket for one use within half a minute, in the address to which it sends
it. The proxy changes it into a cookie of the notebook's own host. Ticket and cookie begin with the
tenant, behind whose wall everything is read.
"""

import hashlib
import hmac
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings

from allocation.features.notebooks.models import Notebook, NotebookEntry
from allocation.features.notebooks.services import RUNNING, notebook_of, notebook_own
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tenants.services.sign_in.sessions import readers_of

ENTER = "/.gpu-portal/enter"
TICKET_SECONDS = 30
MOST_ENTRIES = 20
_SECRET_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Visit:
    """A browser that is in a notebook, or a node's tunnel to it."""

    notebook: UUID
    person: int


def ticket_make(*, actor: Actor, reference: str, session: bytes, now: datetime) -> str:
    """Returns the address that lets a browser into the actor's own notebook, once and soon.

    Raises:
        Refused: `not_found`, `not_allowed`, `notebooks_off` or `notebook_not_ready`.
    """
    booking = notebook_own(actor, reference)
    row = notebook_of(booking)
    if row is None or not _is_open(row):
        raise Refused("notebook_not_ready", refusal_text("notebook_not_ready", label=booking.label))
    ticket = _secret(row.tenant_id)
    # The oldest browsers are forgotten.
    kept = NotebookEntry.objects.filter(notebook=row).order_by("-ticket_until", "id")
    kept.exclude(id__in=list(kept.values_list("id", flat=True)[: MOST_ENTRIES - 1])).delete()
    NotebookEntry.objects.create(
        tenant_id=row.tenant_id,
        notebook=row,
        session=session,
        ticket=_digest(ticket),
        ticket_until=now + timedelta(seconds=TICKET_SECONDS),
    )
    return f"{origin_of(row.label)}{ENTER}?ticket={ticket}"


def origin_of(label: str) -> str:
    """Returns the origin of a notebook."""
    parts = urlsplit(settings.NOTEBOOK_URL)
    return f"{parts.scheme}://{label}.{parts.netloc}"


def ticket_take(ticket: str, label: str, now: datetime) -> str | None:
    """Changes a ticket into the value of a cookie; None: it is none, is old, or was used."""
    tenant_id = _tenant_of(ticket)
    if tenant_id is None:
        return None
    cookie = _secret(tenant_id)
    with tenant_tx(tenant_id):
        rows = NotebookEntry.objects.filter(
            ticket=_digest(ticket), notebook__label=label, ticket_until__gt=now, cookie=None
        )
        taken = rows.update(cookie=_digest(cookie))
    return cookie if taken else None


def visit_of(cookie: str, label: str, now: datetime) -> Visit | None:
    """Returns who is behind a cookie; None unless the notebook and its booking run, and the owner is
    signed in and a member in the session from which they came."""
    tenant_id = _tenant_of(cookie)
    if tenant_id is None:
        return None
    with tenant_tx(tenant_id):
        rows = NotebookEntry.objects.select_related("notebook__booking", "tenant")
        entry = rows.filter(cookie=_digest(cookie), notebook__label=label).first()
        if entry is None or not _is_open(entry.notebook):
            return None
        place = (bytes(entry.session), entry.tenant.slug)
        if place not in readers_of({place[0]}, now=now):
            return None
    return Visit(entry.notebook_id, entry.notebook.owner_id)


def tunnel_of(address: str, secret: str) -> Visit | None:
    """Returns the notebook of a tunnel; None unless it runs and the secret is that of its node."""
    tenant_id = _tenant_of(address)
    if tenant_id is None:
        return None
    with tenant_tx(tenant_id):
        rows = Notebook.objects.select_related("booking")
        row = rows.filter(label=address.partition(".")[2]).first()
        if row is None or not row.key or not _is_open(row, ("starting", "ready")):
            return None
        said = hashlib.sha256(secret.encode()).hexdigest()
        return Visit(row.id, row.owner_id) if hmac.compare_digest(said, row.key) else None


def _is_open(row: Notebook, states: Collection[str] = ("ready",)) -> bool:
    booking = row.booking
    is_its_run = booking.state in RUNNING and booking.ready_at == row.run
    return row.state in states and is_its_run and booking.owner_id == row.owner_id


def _secret(tenant_id: UUID) -> str:
    return f"{tenant_id.hex}.{secrets.token_urlsafe(32)}"


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _tenant_of(secret: str) -> UUID | None:
    """The tenant with which a secret begins. What does not exist behind its wall is not found."""
    head, dot, rest = secret.partition(".")
    is_whole = dot and rest and len(secret) <= _SECRET_LENGTH and secret.isascii() and len(head) == 32
    if not is_whole or not set(head) <= set("0123456789abcdef"):
        return None
    return UUID(head)
