"""Setting and ending zones, and saying what storage nodes have."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal
from zoneinfo import available_timezones

from django.db import transaction
from django.db.models import Count, QuerySet
from rest_framework import serializers

from allocation.features.zones.models import MOST_HOURS, TierEnergy
from allocation.features.zones.names import word_of_lines
from allocation.models import Node, Rack, Zone
from allocation.models.fleet.zones import HOURS, SLUG
from allocation.queries.fleet.catalogue import ask_catalogue
from allocation.queries.fleet.reported import MOST_SCRATCH_GB
from allocation.services.nodes.fleet import node_audit
from allocation.words.refusals import refusal_text
from tenants.access import PlatformActor
from tenants.audit import platform_record
from tenants.models import Tier
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.terms import term, terms
from tenants.services.input_values import number_read

MOST_PRICE, MOST_GRAMS = Decimal(1_000), 10_000
MOST_ZONES, MOST_RACKS = 100, 1_000
_BY_HOUR = "One number, or 24 for the hours of a day from midnight on, separated by spaces."


def hours_read(text: str, *, param: str) -> list[Decimal]:
    """Numbers that are separated by spaces or commas. Raises Refused `bad_number`."""
    return [number_read(each, param=param) for each in text.replace(",", " ").split()]


@terms
class ZoneTerms:
    """A zone as it shall be: what is left out is not known."""

    zone: str = term("Zone", "As requests name it: small letters, digits and dashes.", max_length=40)
    name: str = term("Name", "Shown on pages.", max_length=60)
    time_zone: str = term("Time zone", "Such as Europe/Zurich. Its hours are those of prices.", max_length=50)
    price: Sequence[Decimal] = term(
        "Electricity price (optional)",
        f"Money per kWh in the site's currency. {_BY_HOUR}",
        reads=hours_read,
        says=f"Money per kWh in the site's currency: 1 or {HOURS} numbers, from midnight on.",
        default=(),
        body=serializers.ListField(
            child=serializers.DecimalField(max_digits=8, decimal_places=4), required=False, max_length=HOURS
        ),
    )
    grams: Sequence[Decimal] = term(
        "CO₂ in g per kWh (optional)",
        _BY_HOUR,
        reads=hours_read,
        says=f"CO2 in g per kWh: 1 or {HOURS} whole numbers, from midnight on.",
        default=(),
        body=serializers.ListField(
            child=serializers.DecimalField(max_digits=5, decimal_places=0), required=False, max_length=HOURS
        ),
    )
    racks: Sequence[str] = term(
        "Racks",
        "All racks that stand in it, separated by commas. All GPUs of a booking are in one zone.",
        says="All racks that stand in it.",
        default=(),
    )


@terms
class StorageTerms:
    """What a node's programs write to."""

    storage: Literal["", "local", "shared", "none"] = term(
        "Storage",
        says="`local` (NVMe), `shared`, `none`; empty: what its agent reports.",
        allow_blank=True,
    )
    scratch_gb: int = term(
        "Local space in GB", "Of local NVMe only.", default=0, min_value=0, max_value=MOST_SCRATCH_GB
    )


@terms
class EnergyTerms:
    """What work of a tier waits for."""

    tier: str = term("Tier", max_length=40)
    prefers: Literal["none", "price", "carbon"] = term(
        "Waits for", says="`price`: cheap energy, `carbon`: clean energy, `none`: neither."
    )
    hours: int = term(
        "At most, in hours",
        "From when it could first have run.",
        says="Of waiting, from when it could first have run.",
        default=12,
        min_value=1,
        max_value=MOST_HOURS,
    )


def energy_read() -> QuerySet[TierEnergy]:
    """Returns what tiers wait for; those without a row wait for nothing."""
    return TierEnergy.objects.select_related("tier").order_by("tier")


def energy_set(*, actor: PlatformActor, terms: EnergyTerms, now: datetime) -> Tier:
    """Says what work of a tier waits for. Planned starts never get later for it.

    Raises:
        Refused: `not_found` or `bad_hours`.
    """
    if not 1 <= terms.hours <= MOST_HOURS:
        raise invalid("bad_hours", refusal_text("energy_hours", most=MOST_HOURS), "hours")
    with transaction.atomic():
        tier = Tier.objects.filter(slug=terms.tier).first()
        if tier is None:
            raise missing("tier", "tier")
        row = TierEnergy.objects.select_for_update().filter(tier=tier).first()
        before = {"prefers": row.prefers, "hours": row.hours} if row is not None else {"prefers": "none"}
        after: dict[str, Any] = {"prefers": terms.prefers}
        if terms.prefers == "none":
            TierEnergy.objects.filter(tier=tier).delete()
        else:
            after["hours"] = terms.hours
            TierEnergy.objects.update_or_create(tier=tier, defaults=after)
        if before != after:
            platform_record(
                actor.user_id, "tier.energy_set", ("tier", tier.slug), now, before=before, after=after
            )
    return tier


def zones_read() -> QuerySet[Zone]:
    """Returns the zones that are in use, with the number of their racks."""
    return Zone.objects.filter(ended=None).annotate(rack_count=Count("racks")).order_by("slug")


def zone_one(slug: str) -> Zone:
    """Returns a zone that is in use. Raises Refused: `not_found`."""
    found = zones_read().filter(slug=slug).first()
    if found is None:
        raise missing("zone")
    return found


def zone_set(*, actor: PlatformActor, terms: ZoneTerms, now: datetime) -> Zone:
    """Adds a zone, or gives it these values and racks.

    The next decision keeps gangs that are not yet booked in one zone. Booked ones stay where they are.

    Raises:
        Refused: `bad_zone`, `word_of_requests`, `bad_time_zone`, `bad_amount`, `too_many_zones`, `not_found`,
            or `in_other_zone`.
    """
    values = _values(terms)
    with transaction.atomic():
        zone = Zone.objects.select_for_update().filter(slug=terms.zone).first()
        _check_names(terms, zone)
        if zone is None and zones_read().count() >= MOST_ZONES:
            raise Refused("too_many_zones", refusal_text("too_many_zones", most=MOST_ZONES))
        before = _logged(zone) if zone is not None and zone.ended is None else {}
        zone = zone or Zone(slug=terms.zone, created=now)
        for name, value in {**values, "ended": None}.items():
            setattr(zone, name, value)
        zone.save()
        _racks_set(zone, terms.racks)
        after = _logged(zone)
        if before != after:
            platform_record(actor.user_id, "zone.set", ("zone", zone.slug), now, before=before, after=after)
    return zone_one(zone.slug)


def zone_end(*, actor: PlatformActor, slug: str, now: datetime) -> Zone:
    """Ends a zone without racks. Requests that wait for it are refused by the next decision. Idempotent.

    Raises:
        Refused: `not_found` or `zone_has_racks`.
    """
    with transaction.atomic():
        zone = Zone.objects.select_for_update().filter(slug=slug).first()
        if zone is None:
            raise missing("zone")
        if zone.ended is None:
            racks = _racks_of(zone)
            if racks:
                raise Refused("zone_has_racks", refusal_text("zone_has_racks", racks=", ".join(racks)))
            before = _logged(zone)
            zone.ended = now
            zone.save(update_fields=["ended"])
            platform_record(actor.user_id, "zone.ended", ("zone", slug), now, before=before)
    return zone


def storage_set(*, actor: PlatformActor, node: str, terms: StorageTerms, now: datetime) -> Node:
    """Says what storage a node has, which a request can demand. Reports of its agent don't change it; an
    empty one takes what is reported.

    Raises:
        Refused: `not_found`, `scratch_is_local` or `not_your_nodes`.
    """
    if terms.scratch_gb and terms.storage != "local":
        raise invalid("scratch_is_local", refusal_text("scratch_is_local"), "scratch_gb")
    with transaction.atomic():
        row = Node.objects.select_for_update().filter(name=node).first()
        if row is None:
            raise missing("node")
        names = ("storage", "scratch_gb", "storage_by_operator")
        before = {name: getattr(row, name) for name in names}
        row.storage_by_operator = bool(terms.storage)
        row.storage, row.scratch_gb = terms.storage, terms.scratch_gb
        if not terms.storage:
            row.storage, row.scratch_gb = row.reported_storage, row.reported_scratch_gb
        row.save(update_fields=[*before])
        after = {name: getattr(row, name) for name in before}
        if before != after:
            node_audit(actor, row, "node.storage_set", now, before=before, after=after)
    return row


def _values(terms: ZoneTerms) -> dict[str, Any]:
    if not re.fullmatch(SLUG.removesuffix("$"), terms.zone):
        raise invalid("bad_zone", refusal_text("zone_slug"), "zone")
    if terms.time_zone not in available_timezones():
        raise invalid("bad_time_zone", refusal_text("zone_time_zone"), "time_zone")
    return {
        "name": terms.name,
        "time_zone": terms.time_zone,
        "price": _of_day(terms.price, MOST_PRICE, "price"),
        "grams": _of_day(terms.grams, Decimal(MOST_GRAMS), "grams"),
    }


def _check_names(terms: ZoneTerms, zone: Zone | None) -> None:
    """Raises Refused `word_of_requests`: a line would no longer mean what it says, such as `in the morning`.
    Names that the zone has already stay."""
    site = ask_catalogue()
    others = [pair for pair in site.zones if pair[0] != terms.zone]
    is_kept = zone is not None and zone.ended is None
    for param, name in (("zone", terms.zone), ("name", terms.name)):
        if is_kept and name == getattr(zone, "slug" if param == "zone" else param):
            continue
        word = word_of_lines(name, site, others)
        if word:
            works = [each for each in _names_near(terms.zone, param) if not word_of_lines(each, site, others)]
            offered = [{param: each} for each in works[:1]]
            sentence = refusal_text("zone_word", word=word, works=works[0] if works else "basel-2")
            raise replace(invalid("word_of_requests", sentence, param), alternatives=offered)


def _names_near(slug: str, param: str) -> list[str]:
    """Names to try in place of one that is a word, the nearest first."""
    if param == "zone":
        return [f"hall-{slug}"[:40], f"hall-{len(slug)}"]
    return [f"Hall {slug}"[:60], slug]


def _of_day(amounts: Sequence[Decimal], most: Decimal, param: str) -> list[Decimal]:
    """An amount for each hour. Raises Refused: `bad_amount`."""
    places = 4 if param == "price" else 0
    is_sane = all(0 <= each <= most and each == round(each, places) for each in amounts)
    if len(amounts) not in (0, 1, HOURS) or not is_sane:
        raise invalid("bad_amount", refusal_text(f"zone_{param}", most=most), param)
    return list(amounts) * HOURS if len(amounts) == 1 else list(amounts)


def _racks_set(zone: Zone, names: Sequence[str]) -> None:
    racks = {rack.name: rack for rack in Rack.objects.select_for_update().order_by("name")}
    for name in names:
        if name not in racks:
            raise invalid("not_found", refusal_text("zone_no_rack", rack=name), "racks")
        other = racks[name].zone_id
        if other not in (None, zone.slug):
            raise invalid("in_other_zone", refusal_text("zone_other", rack=name, zone=other), "racks")
    wanted = set(names)
    for name, rack in racks.items():
        zone_id = zone.slug if name in wanted else None
        if rack.zone_id != zone_id and zone.slug in (rack.zone_id, zone_id):
            rack.zone_id = zone_id
            rack.save(update_fields=["zone"])


def _racks_of(zone: Zone) -> list[str]:
    return list(zone.racks.order_by("name").values_list("name", flat=True))


def _logged(zone: Zone) -> dict[str, Any]:
    return {
        "name": zone.name,
        "time_zone": zone.time_zone,
        "price": [format(each.normalize(), "f") for each in zone.price],
        "grams": [int(each) for each in zone.grams],
        "racks": _racks_of(zone),
    }
