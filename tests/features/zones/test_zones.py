"""Zones: operators set and end them, requests name them, and the next decision keeps to them."""

import dataclasses
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import DatabaseError, transaction
from django.test import Client
from django.utils import timezone

import wire
from allocation.features.zones.services import ZoneTerms, zone_end, zone_set
from allocation.models import Node, Rack, Zone
from allocation.services.nodes.inventories import inventory_apply
from allocation.services.snapshot.hardware import gpus_read, offsets_of
from allocation.services.snapshot.snapshot import rules_read
from allocation.words.reasons import stored_sentence
from tenants.access import PlatformActor
from tenants.platform.errors import Refused
from tests.api.builders import Site, said
from tests.roles import as_owner, as_role, as_system
from tests.services.reported import an_inventory
from tests.web.flat import flat

BASEL = {"zone": "basel", "name": "Basel", "time_zone": "Europe/Zurich", "price": ["0.31"], "racks": []}
ENERGY = {"tier": "standard", "prefers": "price", "hours": 6}
NODE = "gpu-a1-01"


def actor(site: Site) -> PlatformActor:
    return PlatformActor(site.people["operator"].pk, "Olaf")


def made(site: Site, **changed: Any) -> Zone:  # noqa: ANN401 (fields of terms)
    values = {"zone": "basel", "name": "Basel", "time_zone": "Europe/Zurich", **changed}
    with as_role("portal_ops"):
        return zone_set(actor=actor(site), terms=ZoneTerms(**values), now=timezone.now())


def racks() -> list[str]:
    with as_system():
        return list(Rack.objects.order_by("name").values_list("name", flat=True))


def reader(site: Site, who: str) -> Client:
    client = Client()
    client.force_login(site.people[who])
    return client


def booked(site: Site, **ask: Any) -> Any:  # noqa: ANN401 (the test client's response)
    body = {"project": "folding", "ask": {"classes": ["h100"], "duration": 3600, **ask}}
    return site.researcher.post("bookings", body)


def test_an_operator_sets_a_zone_and_all_nodes_of_its_racks_are_in_it(site: Site) -> None:
    names = racks()
    client = site.operator
    answer = client.put("platform-zones", {**BASEL, "racks": names, "grams": [str(n) for n in range(24)]})
    assert answer.status_code == 200, said(answer)
    assert said(answer)["price"] == ["0.3100"] * 24
    assert said(answer)["grams"] == list(range(24))
    with as_system():
        assert {gpu.zone for gpu in gpus_read()} == {"basel"}
    listed = said(site.viewer.get("zones"))["items"]
    assert [(row["slug"], row["racks"]) for row in listed] == [("basel", names)]
    nodes = said(site.viewer.get("fleet/nodes", zone="basel"))["items"]
    assert nodes
    assert {row["zone"] for row in nodes} == {"basel"}
    assert said(site.viewer.get("fleet/nodes", zone="bern"))["items"] == []


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"zone": "Basel 1"}, "zone"),
        ({"zone": "9"}, "zone"),
        ({"time_zone": "Mars/Base"}, "time_zone"),
        ({"price": ["0.1"] * 23}, "price"),
        ({"price": ["-1"]}, "price"),
        ({"grams": ["99999"]}, "grams"),
        ({"racks": ["no-such"]}, "racks"),
        ({"name": ""}, "name"),
    ],
)
def test_what_is_no_zone_is_refused_at_its_field(site: Site, changed: dict[str, Any], param: str) -> None:
    answer = site.operator.put("platform-zones", BASEL | changed)
    assert answer.status_code in (400, 404, 422), answer.content
    assert said(answer)["param"].startswith(param)


def test_members_set_no_zones(site: Site) -> None:
    for who in (site.admin, site.researcher, site.viewer):
        assert who.put("platform-zones", BASEL).status_code in (403, 404)


def test_a_rack_stands_in_one_zone_and_a_zone_with_racks_does_not_end(site: Site) -> None:
    first = racks()[0]
    made(site, racks=[first])
    with pytest.raises(Refused, match="in_other_zone"):
        made(site, zone="bern", name="Bern", racks=[first])
    with as_role("portal_ops"), pytest.raises(Refused, match="zone_has_racks"):
        zone_end(actor=actor(site), slug="basel", now=timezone.now())
    made(site, racks=[])
    with as_role("portal_ops"):
        assert zone_end(actor=actor(site), slug="basel", now=timezone.now()).ended is not None
        assert zone_end(actor=actor(site), slug="basel", now=timezone.now()).ended is not None
    assert made(site).ended is None


def test_the_database_lets_no_rack_stand_in_an_ended_zone(site: Site) -> None:
    made(site, racks=racks()[:1])
    with as_owner(), transaction.atomic(), pytest.raises(DatabaseError, match="has racks"):
        Zone.objects.filter(slug="basel").update(ended=timezone.now())
    made(site, racks=[])
    with as_owner():
        Zone.objects.filter(slug="basel").update(ended=timezone.now())
    with as_owner(), transaction.atomic(), pytest.raises(DatabaseError, match="is no more"):
        Rack.objects.update(zone="basel")


@pytest.mark.parametrize("column", ["price", "grams"])
def test_the_database_takes_24_amounts_or_none(site: Site, column: str) -> None:
    made(site)
    for wrong in ([Decimal(1)], [Decimal(-1)] * 24):
        with as_owner(), transaction.atomic(), pytest.raises(DatabaseError):
            Zone.objects.filter(slug="basel").update(**{column: wrong})


def test_a_request_for_an_unknown_zone_is_refused_by_name(site: Site) -> None:
    answer = booked(site, zones=["oslo"])
    assert (answer.status_code, said(answer)["code"]) == (422, "no_such_zone")
    assert "oslo" in said(answer)["detail"]
    assert said(booked(site, not_zones=["oslo"]))["code"] == "no_such_zone"


def test_a_request_for_an_empty_zone_is_refused_and_says_what_would_work(site: Site) -> None:
    made(site)
    answer = booked(site, zones=["basel"])
    assert (answer.status_code, said(answer)["code"]) == (422, "where_elsewhere")
    assert said(answer)["alternatives"][0]["zones"] == []
    assert "in Basel" in said(answer)["detail"], "as pages name it"
    assert booked(site, not_zones=["basel"]).status_code in (201, 202)


def test_a_line_names_a_zone_and_the_booking_keeps_it(site: Site) -> None:
    made(site, racks=racks())
    body = {"project": "folding", "request": "1 h100 2h in basel"}
    answer = site.researcher.post("bookings", body)
    assert answer.status_code in (201, 202), said(answer)
    assert said(answer)["ask"]["zones"] == ["basel"]
    page = reader(site, "researcher").get(f"/t/helix/bookings/{said(answer)['number']}")
    assert "in Basel" in flat(page.content.decode())


def test_storage_of_a_node_can_be_demanded(site: Site) -> None:
    assert said(booked(site, scratch=500))["code"] == "where_elsewhere"
    wrong = site.operator.put(f"fleet/nodes/{NODE}/storage", {"storage": "shared", "scratch_gb": 5})
    assert (wrong.status_code, said(wrong)["param"]) == (422, "scratch_gb")
    given = {"storage": "local", "scratch_gb": 2_000}
    assert said(site.operator.put(f"fleet/nodes/{NODE}/storage", given)) == {
        "node": NODE,
        **given,
        "storage_by_operator": True,
        "reported_storage": "",
        "reported_scratch_gb": 0,
    }
    assert said(booked(site, scratch=2_001))["code"] == "where_elsewhere"
    assert booked(site, scratch=2_000).status_code in (201, 202)
    with as_owner(), transaction.atomic(), pytest.raises(DatabaseError):
        Node.objects.filter(name=NODE).update(storage="none")


def reports(storage: wire.NodeStorage | None) -> Node:
    """The node's agent reports the hardware that is known, and this storage."""
    with as_system():
        node = Node.objects.get(name=NODE)
        gpus = tuple(
            wire.InventoryGpu(
                index=gpu.index,
                uuid=gpu.uuid,
                name=gpu.model.product_name,
                memory_mb=gpu.model.memory_mb,
                mig_capable=False,
                mode="whole",
                numa=gpu.numa,
                pci="",
                nvlink_domain=gpu.domain,
            )
            for gpu in node.gpus.select_related("model").order_by("index")
        )
        found = dataclasses.replace(an_inventory(*gpus), cores=node.cores, storage=storage)
        inventory_apply(node=node, inventory=found, now=timezone.now())
        return Node.objects.get(name=NODE)


def test_an_agent_reports_the_storage_and_what_an_operator_sets_wins(site: Site) -> None:
    operator = reader(site, "operator")

    def card() -> str:
        return flat(operator.get(f"/ops/fleet/{NODE}").content.decode())

    assert "Its storage is not known." in card()
    node = reports(wire.NodeStorage(local_gb=4_000, shared=("/home",)))
    assert (node.storage, node.scratch_gb, node.storage_by_operator) == ("local", 4_000, False)
    assert "Its storage, as its agent finds it: local NVMe, 4 TB." in card()
    assert "<code>/home</code>" in card()
    assert booked(site, scratch=3_000).status_code in (201, 202)
    # Less than there is contradicts nothing.
    site.operator.put(f"fleet/nodes/{NODE}/storage", {"storage": "local", "scratch_gb": 2_000})
    assert "as an operator has set it: local NVMe, 2 TB" in card()
    assert said(booked(site, scratch=3_000))["code"] == "where_elsewhere"
    node = reports(wire.NodeStorage(local_gb=0, shared=("/home",)))
    assert (node.storage, node.scratch_gb, node.reported_storage) == ("local", 2_000, "shared")
    assert "An operator has set local NVMe, 2 TB, and its agent finds shared." in card()
    answer = site.operator.put(f"fleet/nodes/{NODE}/storage", {"storage": ""})
    assert (said(answer)["storage"], said(answer)["storage_by_operator"]) == ("shared", False)
    assert "An operator has set" not in card()
    form = flat(operator.get(f"/ops/nodes/{NODE}/storage").content.decode())
    assert "Its storage, as its agent finds it: shared." in form
    node = reports(wire.NodeStorage(local_gb=0))
    assert (node.storage, node.scratch_gb) == ("none", 0)


def test_an_older_agent_leaves_the_storage_as_it_is(site: Site) -> None:
    reports(wire.NodeStorage(local_gb=500))
    node = reports(None)
    assert (node.storage, node.reported_scratch_gb) == ("local", 500)


def test_pages_show_the_fleet_by_zone(site: Site) -> None:
    made(site, racks=racks(), price=[Decimal("0.31")], grams=[Decimal(40)])
    page = flat(reader(site, "viewer").get("/t/helix/zones").content.decode())
    assert "Basel" in page
    assert "€0.31" in page
    assert "40 g" in page
    assert NODE in flat(reader(site, "viewer").get("/t/helix/fleet?zone=basel").content.decode())
    nowhere = flat(reader(site, "viewer").get("/t/helix/fleet?zone=-").content.decode())
    assert "No nodes here" in nowhere


def test_an_operator_changes_and_ends_a_zone_on_its_page(site: Site) -> None:
    operator = reader(site, "operator")
    form = {"act": "add", "zone": "basel", "name": "Basel", "time_zone": "Europe/Zurich", "price": "0.2 0.3"}
    assert "one price or 24" in flat(operator.post("/ops/zones", form).content.decode())
    assert operator.post("/ops/zones", form | {"price": "0.25"}).status_code == 302
    shown = flat(operator.get("/ops/zones/basel").content.decode())
    assert 'value="0.25"' in shown
    racks_now = ", ".join(racks())
    energy = {"act": "energy", "tier": "standard", "prefers": "0001-01-01", "hours": "6"}
    assert "Choose one of: none, price, carbon." in flat(operator.post("/ops/zones", energy).content.decode())
    change = form | {"act": "change", "price": "", "racks": racks_now}
    assert operator.post("/ops/zones/basel", change).status_code == 302
    assert operator.post("/ops/zones/basel", {"act": "end"}).status_code == 422
    assert operator.post("/ops/zones/basel", change | {"racks": ""}).status_code == 302
    assert operator.post("/ops/zones/basel", {"act": "end"}).status_code == 302
    assert operator.get("/ops/zones/basel").status_code == 404


def test_hours_are_those_of_the_zone() -> None:
    zone = Zone(slug="x", name="X", time_zone="Asia/Tokyo", price=[Decimal(n) for n in range(24)], grams=[])
    noon = timezone.now().replace(hour=12, minute=0)
    assert zone.price_at(noon) == 21
    assert zone.price_at(noon + timedelta(hours=3)) == 0
    assert zone.grams_at(noon) is None


def test_a_tier_waits_for_energy_and_the_next_decision_knows_it(site: Site) -> None:
    made(site, racks=racks(), price=[Decimal("0.31"), *[Decimal("0.12")] * 23])
    with as_system():
        assert (rules_read(timezone.now())["energy"], site.tenant.slug) == ((), "helix")
    for wrong, param in (({"prefers": "sun"}, "prefers"), ({"hours": 49}, "hours"), ({"tier": "no"}, "tier")):
        answer = site.operator.put("platform-tier-energy", ENERGY | wrong)
        assert (answer.status_code in (404, 422), said(answer)["param"]) == (True, param)
    assert site.operator.put("platform-tier-energy", ENERGY).status_code == 200
    assert said(site.viewer.get("tier-energy"))["items"] == [ENERGY]
    with as_system():
        found = rules_read(timezone.now())
    (row,) = found["energy"]
    assert (row.zone, row.price[:2], row.grams) == ("basel", (3_100, 1_200), ())
    tiers = {tier.slug: (tier.prefers, tier.shift) for tier in found["tiers"]}
    assert tiers["standard"] == ("price", 6 * 3_600)
    assert "cheap energy, for at most 6 hours" in flat(
        reader(site, "viewer").get("/t/helix/zones").content.decode()
    )
    site.operator.put("platform-tier-energy", ENERGY | {"prefers": "none"})
    with as_system():
        assert rules_read(timezone.now())["energy"] == ()


def test_members_do_not_say_what_tiers_wait_for(site: Site) -> None:
    assert site.admin.put("platform-tier-energy", ENERGY).status_code in (403, 404)


def test_clocks_change_in_the_zone_of_energy() -> None:
    spring = datetime(2027, 3, 28, 1, tzinfo=UTC)
    rows = dict(offsets_of("Europe/Zurich"))
    assert (rows[0], rows[int(spring.timestamp())]) == (3_600, 7_200)
    assert offsets_of("UTC") == ((0, 0),)


def test_the_reason_says_the_numbers() -> None:
    facts = {"prefers": "price", "cost": 1_200, "cost_before": 3_100, "zone": "basel", "zone_before": "bern"}
    facts |= {"clock": "02:00", "clock_before": "22:00"}
    assert stored_sentence({"code": "energy", "numbers": facts}) == (
        "It starts at 02:00 in basel instead of 22:00 in bern, for cheaper energy: 0.12 instead of 0.31 "
        "per kWh."
    )
    same = facts | {"zone_before": "basel"}
    assert stored_sentence({"code": "energy", "numbers": same}) == (
        "It starts at 02:00 instead of 22:00, for cheaper energy in basel: 0.12 instead of 0.31 per kWh."
    )
    clean = facts | {"prefers": "carbon", "cost": 24, "cost_before": 62}
    assert "24 instead of 62 g of CO2 per kWh." in stored_sentence({"code": "energy", "numbers": clean})


@pytest.mark.parametrize(
    ("changed", "param", "works"),
    [
        ({"zone": "morning"}, "zone", "hall-morning"),
        ({"zone": "march"}, "zone", "hall-march"),
        ({"zone": "same"}, "zone", "hall-same"),
        ({"zone": "spot"}, "zone", "hall-spot"),
        ({"zone": "h100"}, "zone", "hall-h100"),
        ({"zone": "morgen"}, "zone", "hall-6"),
        ({"name": "2 hours"}, "name", "Hall basel"),
        ({"name": "Nord und Süd"}, "name", "Hall basel"),
        ({"name": "Bern 2"}, "name", "Hall basel"),
    ],
)
def test_a_zone_has_no_name_that_a_line_reads_as_something_else(
    site: Site, changed: dict[str, str], param: str, works: str
) -> None:
    made(site, zone="bern-2", name="Bern")
    with pytest.raises(Refused) as caught:
        made(site, **changed)
    refusal = caught.value
    assert (refusal.code, refusal.param) == ("word_of_requests", param)
    assert refusal.alternatives == [{param: works}]
    assert works in refusal.sentence
    made(site, **{**changed, param: works})


def test_a_zone_that_has_such_a_name_already_can_still_be_changed(site: Site) -> None:
    with as_role("portal_ops"):
        Zone.objects.create(slug="march", name="March", time_zone="UTC", created=timezone.now())
    assert made(site, zone="march", name="March").time_zone == "Europe/Zurich"
    with pytest.raises(Refused, match="April"):
        made(site, zone="march", name="April")
