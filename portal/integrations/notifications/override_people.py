"""Recipients of messages about exceptions from limits, and what they read."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from allocation.features.overrides.amounts import amount_words
from allocation.models import Override
from tenants.models import Membership, OutboxMessage, Role, User
from tenants.queries import operators_acting
from tenants.rules.operator_roles import Area

ASKED = "override.asked"
_TITLES = {
    ASKED: "{name} asks for more than a limit allows",
    "override.granted": "Your request for more is granted",
    "override.declined": "Your request for more is declined",
    "override.ending": "An exception from a limit ends within a week",
}
KINDS = frozenset(_TITLES)


@dataclass(frozen=True, slots=True)
class OverrideNote:
    """A message about an override, in words. `until`: when it ends."""

    row: Override
    title: str
    text: str
    until: datetime | None


def note_of(message: OutboxMessage) -> OverrideNote | None:
    """Returns the note; None for a request that was decided or withdrawn meanwhile."""
    rows = Override.objects.select_related(
        "tenant", "project", "gpu_class", "tier", "booking", "asked_by", "person", "budget"
    )
    row = rows.filter(id=message.payload["override"]).first()
    if row is None or (message.kind == ASKED and row.state != Override.State.ASKED):
        return None
    asker = row.asked_by
    name = asker.display_name if asker else "Somebody"
    whose = row.project.name if row.project else row.tenant.name
    text = f"{amount_words(row)}, for {whose}."
    said = row.reason if message.kind == ASKED else row.answer
    if said and message.kind != "override.ending":
        text += f" {said}"
    title = _TITLES[message.kind].format(name=name)
    return OverrideNote(row, title, text, row.until)


def people_of_note(kind: str, row: Override) -> Iterator[int]:
    """Yields the members of the organisation that a note concerns."""
    mine = {each for each in (row.asked_by_id, row.person_id) if each is not None}
    if kind in ("override.granted", "override.declined"):
        yield from mine
        return
    found = set() if kind == ASKED else mine
    if row.decider != Override.Decider.OPERATOR:
        roles = Membership.objects.filter(tenant=row.tenant_id, role=Role.TENANT_ADMIN)
        if row.decider == Override.Decider.LEAD:
            roles = Membership.objects.filter(tenant=row.tenant_id, role=Role.LEAD, project=row.project_id)
        found |= set(roles.values_list("user_id", flat=True))
    yield from sorted(found - {row.asked_by_id} if kind == ASKED else found)


def operators_of_note(kind: str, row: Override) -> Iterator[User]:
    """Yields the operators who may decide a request."""
    if kind == ASKED and row.decider == Override.Decider.OPERATOR:
        yield from operators_acting(Area.RULES).exclude(id=row.asked_by_id or 0)
