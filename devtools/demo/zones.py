"""The demo's zones: Basel is cheap at night, Bern is clean at noon; their nodes have storage."""

from datetime import datetime
from decimal import Decimal

from allocation.features.zones.services import (
    EnergyTerms,
    StorageTerms,
    ZoneTerms,
    energy_set,
    storage_set,
    zone_set,
)
from allocation.models import Node, Zone
from tenants.access import PlatformActor
from tenants.models import User

_NIGHT, _DAY, _EVENING = Decimal("0.12"), Decimal("0.24"), Decimal("0.31")
BASEL = ZoneTerms(
    zone="basel",
    name="Basel",
    time_zone="Europe/Zurich",
    price=[*[_NIGHT] * 6, *[_DAY] * 12, *[_EVENING] * 5, _NIGHT],
    grams=[Decimal(each) for each in (*[38] * 7, *[45] * 10, *[62] * 5, *[40] * 2)],
    racks=["a1", "a2", "c1"],
)
BERN = ZoneTerms(
    zone="bern",
    name="Bern",
    time_zone="Europe/Zurich",
    price=[Decimal("0.21")],
    grams=[Decimal(each) for each in (*[52] * 9, *[24] * 7, *[48] * 8)],
    racks=["b1"],
)
STORAGE = {
    "gpu-a1-01": StorageTerms(storage="local", scratch_gb=14_000),
    "gpu-a2-01": StorageTerms(storage="local", scratch_gb=7_000),
    "gpu-b1-01": StorageTerms(storage="shared"),
    "gpu-c1-01": StorageTerms(storage="local", scratch_gb=1_900),
}


def zones_seed(now: datetime) -> None:
    """Makes the zones, once."""
    if Zone.objects.exists():
        return
    actor = _actor()
    for terms in (BASEL, BERN):
        zone_set(actor=actor, terms=terms, now=now)
    for node in Node.objects.filter(name__in=STORAGE).order_by("name"):
        storage_set(actor=actor, node=node.name, terms=STORAGE[node.name], now=now)


def energy_seed(now: datetime) -> None:
    """Lets spot work wait for cheap energy."""
    energy_set(actor=_actor(), terms=EnergyTerms(tier="spot", prefers="price", hours=12), now=now)


def _actor() -> PlatformActor:
    operator = User.objects.get(username="olaf")
    return PlatformActor(operator.pk, operator.display_name)
