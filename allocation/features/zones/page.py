"""The pages of zones: the fleet by zone, for everybody, and operators' forms."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from allocation.features.zones.models import TierEnergy
from allocation.features.zones.services import (
    EnergyTerms,
    StorageTerms,
    ZoneTerms,
    energy_read,
    energy_set,
    storage_set,
    zone_end,
    zone_one,
    zone_set,
    zones_read,
)
from allocation.models import Node, NodeInventory, Rack, Zone
from allocation.points import NODE_CARDS, BookingCard
from allocation.queries.fleet.fleet import NodeNow, fleet_now, gpus_text, storage_words
from allocation.queries.fleet.reported import inventory_read, storage_contradicts
from billing.price_books import currency_latest
from billing.rules import rate_text
from tenants.access import Actor, PlatformActor
from tenants.models import Tier
from tenants.platform.errors import missing
from tenants.rules.operator_roles import Area
from tenants.web.form_page import Act, form_page, operator_form_page

_STORAGES = (("", "As its agent reports"), *(each for each in Node.Storage.choices if each[0]))
_PREFERS = (("none", "Nothing"), *TierEnergy.Prefers.choices)


@dataclass(frozen=True, slots=True)
class ZoneRow:
    """A zone with its part of the fleet; without a zone for nodes that are in none. `cores` are those of
    hosts that work without a GPU can have; they count as no GPUs."""

    zone: Zone | None
    nodes: int
    classes: tuple[tuple[str, int], ...]
    gpus: int
    booked: str
    cores: int
    cores_booked: str
    storage: tuple[tuple[str, int], ...]
    price: Decimal | None
    price_words: str
    grams: int | None

    @property
    def class_words(self) -> str:
        """`8 × H100 80 GB, 4 × L40S, 32 CPU cores`."""
        words = [f"{count} × {name}" for name, count in self.classes]
        if self.cores:
            words.append(f"{self.cores} CPU core{'' if self.cores == 1 else 's'}")
        return ", ".join(words)

    @property
    def storage_words(self) -> list[str]:
        """`2 nodes: local NVMe, 2 TB`, `1 node: shared`."""
        return [f"{count} node{'' if count == 1 else 's'}: {name}" for name, count in self.storage]

    @property
    def slug(self) -> str:
        """The name by which requests and filters know it."""
        return self.zone.slug if self.zone is not None else ""


def _rows(tenant_id: UUID | None, now: datetime) -> list[ZoneRow]:
    zones: dict[str, Zone | None] = {row.slug: row for row in zones_read()}
    by_zone: dict[str, list[NodeNow]] = {slug: [] for slug in zones}
    for node in fleet_now(tenant_id=tenant_id, now=now):
        by_zone.setdefault(node.zone, []).append(node)
    currency = currency_latest()
    return [_row(zones.get(slug), nodes, now, currency) for slug, nodes in by_zone.items()]


def _row(zone: Zone | None, nodes: Iterable[NodeNow], now: datetime, currency: str) -> ZoneRow:
    nodes = list(nodes)
    devices = [gpu for node in nodes for gpu in node.gpus]
    gpus, cores = ([each for each in devices if each.is_core is kind] for kind in (False, True))
    return ZoneRow(
        zone=zone,
        nodes=len(nodes),
        classes=_counted(gpu.label for gpu in gpus),
        gpus=len(gpus),
        booked=gpus_text(sum(gpu.booked for gpu in gpus)),
        cores=len(cores),
        cores_booked=gpus_text(sum(core.booked for core in cores)),
        storage=_counted(node.storage for node in nodes if node.storage),
        price=(price := zone.price_at(now) if zone is not None else None),
        price_words=rate_text(price, currency) if price is not None else "",
        grams=zone.grams_at(now) if zone is not None else None,
    )


def _counted(names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return tuple(sorted(found.items()))


def _shown(actor: Actor, now: datetime) -> dict[str, Any]:
    return _frame(_rows(actor.tenant_id, now), f"/t/{actor.tenant_slug}/fleet")


def _frame(rows: list[ZoneRow], base: str) -> dict[str, Any]:
    """What both pages show: the zones, where energy is cheapest and cleanest, and which work waits for it."""
    prices = [(row.price, row) for row in rows if row.price is not None]
    grams = [(row.grams, row) for row in rows if row.grams is not None]
    return {
        "rows": rows,
        "base": base,
        "waits": energy_read(),
        "cheapest": min(prices, key=lambda each: each[0])[1] if prices else None,
        "cleanest": min(grams, key=lambda each: each[0])[1] if grams else None,
    }


def _all(actor: PlatformActor, now: datetime) -> dict[str, Any]:
    return {
        **_frame(_rows(None, now), "/ops/fleet"),
        "operator": True,
        "racks": Rack.objects.filter(zone=None).order_by("name"),
    }


def _one(actor: PlatformActor, now: datetime, slug: str) -> dict[str, Any]:
    zone = zone_one(slug)
    return {"row": zone, "racks": zone.racks.order_by("name")}


def _as_set(actor: PlatformActor, slug: str) -> Mapping[str, Any]:
    zone = zone_one(slug)
    return {
        "zone": zone.slug,
        "name": zone.name,
        "time_zone": zone.time_zone,
        "price": _hours(zone.price),
        "grams": _hours(zone.grams),
        "racks": list(zone.racks.order_by("name").values_list("name", flat=True)),
    }


def _hours(amounts: Iterable[Decimal | int]) -> str:
    """The amounts as they are typed: one if all hours have the same."""
    texts = [format(Decimal(each).normalize(), "f") for each in amounts]
    return texts[0] if len(set(texts)) == 1 else " ".join(texts)


def _change(*, actor: PlatformActor, terms: ZoneTerms, now: datetime, slug: str) -> Zone:
    return zone_set(actor=actor, terms=replace(terms, zone=zone_one(slug).slug), now=now)


def _node(actor: PlatformActor, now: datetime, node: str) -> dict[str, Any]:
    row = _node_one(node)
    return {"node": row, "found": _found(row)}


def _node_one(name: str) -> Node:
    found = Node.objects.filter(name=name).select_related("rack").first()
    if found is None:
        raise missing("node")
    return found


def _storage(actor: PlatformActor, node: str) -> Mapping[str, Any]:
    row = _node_one(node)
    if not row.storage_by_operator:
        return {}
    return {"storage": row.storage, "scratch_gb": row.scratch_gb or None}


def _found(node: Node) -> dict[str, Any]:
    """What a node's agent found, and whether an operator says otherwise."""
    kind, space = Node.Storage(node.reported_storage), node.reported_scratch_gb
    stored = NodeInventory.objects.filter(node=node).first()
    inventory = inventory_read(stored) if stored else None
    return {
        "node": node,
        "set": storage_words(node.storage, node.scratch_gb),
        "reported": storage_words(kind, space),
        "mounts": inventory.storage.shared if inventory and inventory.storage else (),
        "contradicts": storage_contradicts(node),
    }


def site_card(node_id: UUID, now: datetime) -> BookingCard | None:
    """Where a node stands and what storage it has."""
    node = Node.objects.select_related("rack__zone").get(id=node_id)
    return BookingCard("zones/card.html", {**_found(node), "zone": node.rack.zone})


NODE_CARDS.append(site_card)
urlpatterns = [
    form_page("zones", "zones", "zones/page.html", _shown),
    operator_form_page(
        "zones",
        "ops-zones",
        "zones/page.html",
        _all,
        Act("add", zone_set, "Zone {row.slug} set.", terms=ZoneTerms),
        Act(
            "energy",
            energy_set,
            "Tier {row.name} set.",
            terms=EnergyTerms,
            choices={
                "tier": lambda _: Tier.objects.values_list("slug", "name"),
                "prefers": lambda _: _PREFERS,
            },
            initial=lambda _: {"hours": "12"},
        ),
        area=Area.FLEET,
    ),
    operator_form_page(
        "zones/<slug:slug>",
        "ops-zone",
        "zones/zone.html",
        _one,
        Act("change", _change, "Zone {row.slug} set.", terms=ZoneTerms, initial=_as_set, to="ops-zones"),
        Act("end", zone_end, "Zone {row.slug} ended.", to="ops-zones"),
        area=Area.FLEET,
    ),
    operator_form_page(
        "nodes/<slug:node>/storage",
        "ops-node-storage",
        "zones/storage.html",
        _node,
        Act(
            "set",
            storage_set,
            "Storage of {row.name} set.",
            terms=StorageTerms,
            choices={"storage": lambda _: _STORAGES},
            initial=_storage,
        ),
        area=Area.NODES,
    ),
]
