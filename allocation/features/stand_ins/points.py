"""What stand-ins add to the core: deputies of approvers, and words."""

from collections.abc import Iterator
from datetime import datetime
from uuid import UUID

from allocation.features.stand_ins.models import StandIn
from allocation.points import DEPUTIES, Deputy
from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS, NAMED_BY


def _deputies(tenant_id: UUID, now: datetime) -> Iterator[Deputy]:
    rows = StandIn.objects.filter(StandIn.in_force(now), tenant=tenant_id).order_by()
    for approver, person, project in rows.values_list("approver_id", "person_id", "project_id"):
        yield Deputy(approver, person, project)


DEPUTIES.append(_deputies)
sentences_add(
    {
        "stand_in_until": "Choose an end in the future, at most %(most)s days after the beginning.",
        "stand_in_self": "Choose somebody else than yourself.",
        "stand_in_approvers": "Only leads and admins decide requests, so only they name a stand-in.",
        "too_many_stand_ins": "You have named %(most)s stand-ins already. End one of them first.",
    }
)
ACTIONS["stand_in.set"] = "named the stand-in {object}"
ACTIONS["stand_in.ended"] = "ended the stand-in {object}"
NAMED_BY["stand_in"] = ("person",)
