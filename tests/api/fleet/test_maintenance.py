"""Maintenance and failed hardware over REST: operators act, everybody may read what is planned."""

from datetime import timedelta

import pytest
from django.utils import timezone

from allocation.models import Gpu, Node
from tests.api.builders import Site, said
from tests.roles import as_system

NODE = "gpu-a1-01"

NOTHING: dict[str, list[str]] = {"moved": [], "running": [], "skipped": []}


def a_blackout(**values: object) -> dict[str, object]:
    starts = timezone.now() + timedelta(hours=2)
    window = {"starts": starts.isoformat(), "ends": (starts + timedelta(hours=3)).isoformat()}
    return {"node": NODE, "reason": "New fans", **window, **values}


def test_an_operator_plans_maintenance_that_everybody_reads_and_ends_it(site: Site) -> None:
    made = site.operator.post("maintenance", a_blackout())
    assert (made.status_code, said(made)["where"]) == (201, NODE)
    assert said(made)["drain_by"] == said(made)["starts"]
    (read,) = said(site.viewer.get("maintenance"))["items"]
    assert (read["reason"], read["node"], read["gpu"]) == ("New fans", NODE, None)
    ended = site.operator.post(f"maintenance/{read['id']}/end")
    assert said(ended)["ended_at"] is not None
    again = site.operator.post(f"maintenance/{read['id']}/end")
    assert (again.status_code, said(again)["code"]) == (409, "blackout_over")


@pytest.mark.turn
def test_what_repeats_is_a_row_for_each_date_and_ends_with_those_that_follow(site: Site) -> None:
    weekly = a_blackout(rrule="FREQ=WEEKLY;COUNT=3", zone="Europe/Berlin")
    assert said(site.operator.post("maintenance/preview", weekly)) == NOTHING
    made = said(site.operator.post("maintenance", weekly))
    assert (made["rrule"], made["zone"]) == ("FREQ=WEEKLY;COUNT=3", "Europe/Berlin")
    rows = said(site.viewer.get("maintenance"))["items"]
    assert [row["series"] for row in rows] == [made["series"]] * 3
    site.operator.post(f"maintenance/{rows[1]['id']}/end", {"following": True})
    ended = [row["ended_at"] for row in said(site.viewer.get("maintenance"))["items"]]
    assert [each is None for each in ended] == [True, False, False]


def test_an_operator_changes_maintenance_and_nobody_else(site: Site) -> None:
    made = said(site.operator.post("maintenance", a_blackout()))
    address = f"maintenance/{made['id']}"
    later = (timezone.now() + timedelta(hours=9)).isoformat()
    assert said(site.operator.post(f"{address}/preview", {"ends": later}))["running"] == []
    assert said(site.viewer.get(address)) == made
    changed = site.operator.send("PATCH", address, {"ends": later, "reason": "Old fans"})
    assert (changed.status_code, said(changed)["reason"]) == (200, "Old fans")
    assert said(site.viewer.get(address)) == said(changed) != made
    refused = site.operator.send("PATCH", address, {"drain_by": "2026-01-01T00:00:00Z"})
    assert (refused.status_code, said(refused)["param"]) == (422, "drain_by")
    assert site.operator.send("PATCH", address, {"node": NODE}).status_code == 400
    assert site.admin.send("PATCH", address, {"reason": "mine"}).status_code == 403
    assert site.admin.post(f"{address}/preview", {}).status_code == 403


def test_a_preview_names_the_days_that_do_not_exist(site: Site) -> None:
    last = timezone.now() + timedelta(days=150)
    monthly = a_blackout(rrule=f"FREQ=MONTHLY;BYMONTHDAY=31;UNTIL={last:%Y%m%d}", zone="UTC")
    skipped = said(site.operator.post("maintenance/preview", monthly))["skipped"]
    assert skipped
    assert {day[-3:] for day in skipped} == {"-31"}
    made = said(site.operator.post("maintenance", monthly))
    assert made["skipped"] == skipped
    listed = said(site.viewer.get("maintenance"))["items"]
    assert [each["skipped"] for each in listed] == [skipped] * len(listed)
    once = said(site.operator.post("maintenance", a_blackout()))
    assert once["skipped"] == []


def test_a_preview_saves_nothing(site: Site) -> None:
    preview = site.operator.post("maintenance/preview", a_blackout())
    assert (preview.status_code, said(preview)) == (200, NOTHING)
    assert said(site.viewer.get("maintenance"))["items"] == []


def test_maintenance_is_busy_time_in_the_availability(site: Site) -> None:
    until = (timezone.now() + timedelta(hours=8)).isoformat()
    site.operator.post("maintenance", a_blackout())
    found = said(site.viewer.get("availability", gpu_class="h100", until=until))
    assert {block["mode"] for gpu in found["gpus"] for block in gpu["busy"]} == {"maintenance"}
    assert [free["whole_gpus"] for free in found["free"]][1] == 0


@pytest.mark.parametrize(
    ("values", "param"),
    [
        ({"reason": ""}, "reason"),
        ({"rack": "a1"}, "rack"),
        ({"gpu": 63}, "gpu"),
        ({"gpu": "0"}, "gpu"),
        ({"ends": "2026-01-01T00:00:00Z"}, "ends"),
        ({"drain_by": "2026-01-01T00:00:00Z"}, "drain_by"),
        ({"forever": True}, "forever"),
        ({"rrule": "FREQ=SECONDLY"}, "rrule"),
        ({"rrule": "FREQ=DAILY"}, "rrule"),
        ({"rrule": "FREQ=DAILY;COUNT=200"}, "repeat"),
        ({"zone": "Mars"}, "zone"),
    ],
)
def test_bad_maintenance_is_refused_at_its_field(site: Site, values: dict[str, object], param: str) -> None:
    answer = site.operator.post("maintenance", a_blackout(**values))
    assert (answer.status_code // 100, said(answer)["param"]) == (4, param)


def test_an_operator_drains_with_a_deadline(site: Site) -> None:
    by = (timezone.now() + timedelta(hours=1)).replace(microsecond=0).isoformat()
    drained = site.operator.post(f"fleet/nodes/{NODE}/drain", {"reason": "fans", "by": by})
    assert said(drained)["drain_by"] is not None
    past = {"reason": "fans", "by": "2026-01-01T00:00:00Z"}
    answer = site.operator.post(f"fleet/nodes/{NODE}/drain", past)
    assert said(answer)["code"] == "deadline_past"


def test_an_operator_puts_a_gpu_back_and_reads_what_happened(site: Site) -> None:
    with as_system():
        gpu = Gpu.objects.filter(node__name=NODE).order_by("index")[0]
        Gpu.objects.filter(id=gpu.id).update(health="draining", health_reason="Xid 95", needs_operator=True)
    done = site.operator.post(f"fleet/gpus/{gpu.id}/return", {"note": "reset it"})
    assert (done.status_code, said(done)["health"]) == (200, "ok")
    again = site.operator.post(f"fleet/gpus/{gpu.id}/return", {"note": "reset it"})
    assert said(again)["code"] == "gpu_in_service"
    (event,) = said(site.operator.get(f"fleet/nodes/{NODE}/events"))["items"]
    assert (event["kind"], event["gpu"]) == ("operator", gpu.index)
    assert "reset it" in event["sentence"]
    assert "Xid 95" in event["sentence"]


def test_only_hardware_that_is_out_can_be_said_to_be_off(site: Site) -> None:
    busy = site.operator.post(f"fleet/nodes/{NODE}/fence", {"note": "off"})
    assert (busy.status_code, said(busy)["code"]) == (409, "still_in_service")
    with as_system():
        Node.objects.filter(name=NODE).update(state="draining")
    done = site.operator.post(f"fleet/nodes/{NODE}/fence", {"note": "off", "gpu": 0})
    assert said(done) == {"node": NODE, "closed": 0}
    missing = site.operator.post(f"fleet/nodes/{NODE}/fence", {"note": "off", "gpu": 60})
    assert missing.status_code == 422


def test_an_operator_reads_what_could_be_moved_and_a_stale_order_does_nothing(site: Site) -> None:
    found = said(site.operator.get("compaction/proposals"))
    assert found == {"items": []}
    stale = site.operator.post("compaction/orders", {"proposal": "0" * 16})
    assert (stale.status_code, said(stale)["code"], said(stale)["rule"]) == (
        409,
        "order_stale",
        "R82",
    )
    assert said(site.operator.get("compaction/orders"))["items"] == []
    for who in (site.viewer, site.admin):
        assert who.get("compaction/proposals").status_code in (403, 404)
        assert who.post("compaction/orders", {"proposal": "x"}).status_code in (403, 404)
