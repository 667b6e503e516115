"""Orphans: machines that a provider lists under this site's names and that no plan has.

A request that was sent twice leaves one, and a portal that was restored from a backup has forgotten
some. An operator gives them back: nobody else can know what runs on them.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from django.db import transaction

from allocation.features.capacity.models import CapacityMachine
from allocation.features.capacity.providers import Listed, Provider
from allocation.words.refusals import refusal_text
from tenants.audit import platform_record
from tenants.platform.errors import Refused, missing

logger = logging.getLogger(__name__)
State = CapacityMachine.State
UNKNOWN = "No plan knows it."
TWICE = "Its provider has two machines of this name."


def orphans_note(
    by_name: Mapping[str, Provider], listed: Mapping[str, Sequence[Listed]], now: datetime
) -> int:
    """Records new orphans, and forgets those that their provider lists no more; returns the new ones."""
    return sum(_of_provider(by_name[name], found, now) for name, found in listed.items())


@transaction.atomic
def _of_provider(provider: Provider, found: Sequence[Listed], now: datetime) -> int:
    rows = CapacityMachine.objects.filter(provider=provider.name)
    gone = rows.filter(state=State.ORPHAN).exclude(provider_id__in=[each.id for each in found])
    gone.update(state=State.RELEASED, released=now)
    known = set(rows.exclude(provider_id="").values_list("provider_id", flat=True))
    names = set(rows.filter(state__in=CapacityMachine.OPEN).values_list("name", flat=True))
    # A machine that is requested is found by its name in the same turn.
    asked = set(rows.filter(state=State.REQUESTED).values_list("name", flat=True))
    new = [
        each
        for each in found
        if each.name.startswith(provider.prefix) and each.id not in known and each.name not in asked
    ]
    for each in new:
        note = TWICE if each.name in names else UNKNOWN
        logger.error("Orphan at %s: %s (%s). %s", provider.name, each.name, each.id, note)
        CapacityMachine.objects.create(
            provider=provider.name,
            name=each.name,
            provider_id=each.id,
            state=State.ORPHAN,
            note=note,
            requested=now,
            came=now,
        )
    return len(new)


def orphan_release(*, operator_id: int | None, machine_id: UUID, now: datetime) -> CapacityMachine:
    """Has the worker give an orphan back. Runs inside `operator_tx`. Idempotent.

    Raises:
        Refused: `not_found`, or `machine_of_plan` for a machine that a plan has.
    """
    machine = CapacityMachine.objects.select_for_update().filter(id=machine_id).first()
    if machine is None:
        raise missing("machine")
    if machine.plan_id is not None:
        raise Refused("machine_of_plan", refusal_text("machine_of_plan"))
    if machine.state == State.ORPHAN and machine.asked is None:
        machine.asked = now
        machine.save(update_fields=["asked"])
        after = {"machine": machine.name}
        platform_record(operator_id, "machine.released", ("machine", machine.name), now, after=after)
    return machine


def orphans_asked(names: Iterable[str]) -> list[CapacityMachine]:
    """Orphans that an operator gives back."""
    rows = CapacityMachine.objects.filter(state=State.ORPHAN, asked__isnull=False, provider__in=list(names))
    return list(rows.order_by("requested"))
