"""Guarantees between dates: operators set and end them, and limits, quotes and pages know them."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import DatabaseError, IntegrityError, transaction
from django.test import Client
from django.utils import timezone

from allocation.features.dated_guarantees.services import (
    DatedGuaranteeTerms,
    guarantee_end,
    guarantee_set,
)
from allocation.services.snapshot.inner_limit_rows import guarantees_read
from allocation.services.snapshot.published import published_snapshot
from allocation.services.snapshot.snapshot import rules_read
from solver import DatedGuarantee as Dated
from solver import Policy
from tenants.access import PlatformActor
from tenants.lab_queries import guarantees_now
from tenants.models import AuditEntry, DatedGuarantee, QuotaWindow, User
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tenants.services import Share, tenant_quota_set
from tests.api.builders import Site, said
from tests.roles import as_owner, as_role, as_system
from tests.web.flat import flat

GPU = 56_000
NOW = datetime(2026, 12, 1, 8, tzinfo=UTC)
MONDAY, FRIDAY = datetime(2030, 12, 2, tzinfo=UTC), datetime(2030, 12, 6, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def soon(hours: float) -> datetime:
    """A full hour so many hours from now."""
    return timezone.now().replace(minute=0, second=0, microsecond=0) + timedelta(hours=hours)


def body(gpus: int, starts: datetime | None, ends: datetime, tenant: str = "helix") -> dict[str, Any]:
    sent = {"tenant": tenant, "gpu_class": "h100", "guaranteed_units": gpus * GPU, "ends": ends.isoformat()}
    return sent | ({} if starts is None else {"starts": starts.isoformat()})


def put(site: Site, *args: Any) -> Any:  # noqa: ANN401 (the test client's response)
    return site.operator.put("platform/dated-guarantees", body(*args))


def made(site: Site, gpus: int, starts: datetime | None, ends: datetime, now: datetime) -> DatedGuarantee:
    actor = PlatformActor(site.people["operator"].pk, "Olaf")
    terms = DatedGuaranteeTerms(
        tenant="helix", gpu_class="h100", guaranteed_units=gpus * GPU, starts=starts, ends=ends
    )
    with as_role("portal_ops"):
        return guarantee_set(actor=actor, terms=terms, now=now)


def reader(site: Site, who: str) -> Client:
    client = Client()
    client.force_login(site.people[who])
    return client


def test_an_operator_sets_lists_and_ends_one_and_the_organisation_reads_it(site: Site) -> None:
    starts, ends = soon(24), soon(48)
    answer = put(site, 3, starts, ends)
    assert answer.status_code == 200, said(answer)
    row = said(answer)
    assert (row["tenant"], row["guaranteed_units"], row["ended"]) == ("helix", 3 * GPU, None)
    assert said(put(site, 3, starts, ends))["id"] == row["id"]
    assert [each["id"] for each in said(site.viewer.get("dated-guarantees"))["items"]] == [row["id"]]
    assert said(site.outsider.get("dated-guarantees"))["items"] == []
    listed = said(site.operator.get("platform/dated-guarantees"))["items"]
    assert [each["id"] for each in listed] == [row["id"]]
    with as_system():
        assert rules_read(timezone.now())["guarantees"] == (
            Dated(str(site.tenant.id), "h100", int(starts.timestamp()), int(ends.timestamp()), 3 * GPU),
        )
    ended = site.operator.post(f"platform/dated-guarantees/{row['id']}/end", {})
    assert said(ended)["ended"] is not None
    again = site.operator.post(f"platform/dated-guarantees/{row['id']}/end", {})
    assert said(again)["ended"] == said(ended)["ended"]
    with as_system():
        assert guarantees_read(timezone.now()) == ()
        logged = AuditEntry.objects.filter(object_kind="dated_guarantee").order_by("id")
        assert sorted({(each.tenant_id is None, each.action) for each in logged}) == [
            (False, "dated_guarantee.ended"),
            (False, "dated_guarantee.set"),
            (True, "dated_guarantee.ended"),
            (True, "dated_guarantee.set"),
        ]


@pytest.mark.parametrize(
    ("sent", "code", "param"),
    [
        ({"tenant": "nobody"}, "not_found", "tenant"),
        ({"gpu_class": "b300"}, "not_found", "gpu_class"),
        ({"ends": "2020-01-01T00:00:00Z"}, "bad_dates", "ends"),
        ({"ends": "2033-01-01T00:00:00Z"}, "bad_dates", "ends"),
        ({"ends": "2026-12-31T00:00:07Z"}, "bad_dates", "ends"),
        ({"starts": "2020-01-01T00:00:00Z"}, "bad_dates", "starts"),
        ({"guaranteed_units": 1 * GPU}, "guarantees_promised", "guaranteed_units"),
        ({"guaranteed_units": 5 * GPU}, "guarantees_above_site", "guaranteed_units"),
        ({"guaranteed_units": -1}, "out_of_range", "guaranteed_units"),
        ({"guaranteed_units": 10**13}, "out_of_range", "guaranteed_units"),
    ],
)
def test_what_cannot_be_is_refused_and_says_why(
    site: Site, sent: dict[str, Any], code: str, param: str
) -> None:
    answer = site.operator.put("platform/dated-guarantees", body(3, soon(24), soon(48)) | sent)
    assert answer.status_code in (404, 409, 422, 400), said(answer)
    found = said(answer)
    assert (found["code"], found["param"]) == (code, param), found
    with as_system():
        assert not DatedGuarantee.objects.exists()


def test_only_operators_set_and_end_them(site: Site) -> None:
    row = said(put(site, 3, soon(24), soon(48)))
    for caller in (site.admin, site.researcher, site.outsider):
        sent = caller.put("platform/dated-guarantees", body(2, soon(72), soon(96)))
        assert sent.status_code == 403
        ended = caller.post(f"platform/dated-guarantees/{row['id']}/end", {})
        assert ended.status_code == 403
        assert caller.get("platform/dated-guarantees").status_code == 403
    with as_role("portal_web"), tenant_tx(site.tenant.id), pytest.raises(DatabaseError):
        DatedGuarantee.objects.update(guaranteed_units=9 * GPU)


def test_those_of_one_organisation_do_not_overlap_also_in_the_database(site: Site) -> None:
    put(site, 3, soon(24), soon(48))
    overlaps = put(site, 2, soon(47), soon(72))
    assert (overlaps.status_code, said(overlaps)["code"]) == (422, "guarantee_overlaps")
    assert put(site, 2, soon(48), soon(72)).status_code == 200
    # The neighbour's dates are its own.
    assert put(site, 3, soon(30), soon(40), "northlab").status_code == 200
    row = DatedGuarantee(
        tenant=site.tenant,
        gpu_class_id="h100",
        guaranteed_units=0,
        starts=soon(47),
        ends=soon(49),
        created=timezone.now(),
        created_by=site.people["operator"],
    )
    with as_owner(), pytest.raises(IntegrityError, match="once_at_a_time"), transaction.atomic():
        row.save()


def test_all_guarantees_of_an_instant_fit_the_site(site: Site) -> None:
    """Eight GPUs, four guaranteed to each of two organisations."""
    refused = put(site, 6, soon(24), soon(48))
    assert said(refused)["code"] == "guarantees_above_site"
    assert "8 H100" in said(refused)["detail"]
    assert put(site, 2, soon(30), soon(48), "northlab").status_code == 200
    # From hour 24 to 30 the neighbour still has its usual four.
    assert said(put(site, 6, soon(24), soon(48)))["code"] == "guarantees_above_site"
    assert put(site, 6, soon(30), soon(48)).status_code == 200
    assert put(site, 3, soon(48), soon(50), "northlab").status_code == 200
    lower = said(site.outsider.get("dated-guarantees"))["items"][-1]
    ended = site.operator.post(f"platform/dated-guarantees/{lower['id']}/end", {})
    assert said(ended)["code"] == "guarantees_above_site"


def test_what_projects_are_guaranteed_fits_every_date_to_come(site: Site) -> None:
    put(site, 3, soon(24), soon(48))
    sent = {"project": "hidden", "gpu_class": "h100", "guaranteed_units": 2 * GPU}
    refused = site.admin.put("quotas", sent)
    assert said(refused)["code"] == "guarantees_exceeded"
    assert site.admin.put("quotas", sent | {"guaranteed_units": GPU}).status_code == 200


def test_a_limit_at_some_times_is_what_it_says_also_while_the_guarantee_is_another(site: Site) -> None:
    now = NOW
    made(site, 2, NOW, NOW + 48 * HOUR, now)
    with as_owner():
        QuotaWindow.objects.create(
            tenant=site.tenant,
            gpu_class_id="h100",
            limit_units=5 * GPU,
            first_day=(NOW + DAY).date(),
            last_day=(NOW + 3 * DAY).date(),
            created=now,
            created_by=site.people["operator"],
        )
    with as_system():
        sections = rules_read(now)
    steps = sorted((each.starts, each.ends, each.units // GPU) for each in sections["overrides"])
    # The usual limit is 8. With 2 guaranteed it is 6, so the step to 5 is one; later it is three.
    day, end = (int((NOW + each).replace(hour=0).timestamp()) for each in (DAY, 4 * DAY))
    assert steps == [
        (day, int((NOW + 48 * HOUR).timestamp()), -1),
        (int((NOW + 48 * HOUR).timestamp()), end, -3),
    ]


def test_quotes_know_what_others_keep_then_and_not_whose_it_is(site: Site) -> None:
    with as_role("portal_ops"):
        share = Share(4 * GPU, 4 * GPU, GPU)
        operator = site.people["operator"]
        tenant = site.other_project.tenant
        tenant_quota_set(operator=operator, tenant=tenant, gpu_class="h100", share=share, now=NOW)
    starts, ends = soon(24), soon(48)
    put(site, 2, starts, ends, "northlab")
    with as_role("portal_web"), tenant_tx(site.tenant.id):
        found = published_snapshot(timezone.now(), Policy(1))
    # Three are not lent usually, and one then; one is lent at all times.
    assert found.guarantees == (
        Dated("others", "h100", int(starts.timestamp()), int(ends.timestamp()), (1 + 1) * GPU),
    )
    with as_role("portal_web"), tenant_tx(tenant.id):
        mine = published_snapshot(timezone.now(), Policy(1))
    assert [row.owner for row in mine.guarantees] == [str(tenant.id)]


def test_what_is_guaranteed_now_is_shown_with_the_use_of_now(site: Site) -> None:
    made(site, 3, None, soon(48), timezone.now())
    with as_system():
        assert guarantees_now(timezone.now()) == {(site.tenant.id, "h100"): 3 * GPU}
        assert guarantees_now(soon(48)) == {}
    shown = flat(reader(site, "admin").get("/t/helix/labs").content.decode())
    assert "3 guaranteed" in shown
    page = flat(reader(site, "admin").get("/t/helix/quotas").content.decode())
    assert "3 guaranteed until" in page


def test_operators_set_and_end_one_on_their_page(site: Site) -> None:
    with as_owner():
        User.objects.filter(pk=site.people["operator"].pk).update(time_zone="Asia/Tokyo")
    client = reader(site, "operator")
    day = soon(24).astimezone(ZoneInfo("Asia/Tokyo"))
    form = {
        "act": "add",
        "tenant": "helix",
        "gpu_class": "h100",
        "gpus": "3",
        "starts": f"{day:%Y-%m-%dT%H:%M}",
        "ends": f"{day + DAY:%Y-%m-%dT%H:%M}",
    }
    refused = client.post("/ops/dated-guarantees", form | {"gpus": "7"})
    assert refused.status_code == 422
    assert "at most 4 are left" in flat(refused.content.decode())
    assert f"{soon(24):%Y-%m-%d %H:%M} (UTC)" in flat(refused.content.decode())
    assert client.post("/ops/dated-guarantees", form).status_code == 302
    page = flat(client.get("/ops/dated-guarantees").content.decode())
    assert "Helix: 3 H100 80 GB guaranteed between the two dates." in page
    with as_system():
        row = DatedGuarantee.objects.get()
    assert (row.guaranteed_units, row.starts) == (3 * GPU, soon(24))
    read = flat(reader(site, "viewer").get("/t/helix/dated-guarantees").content.decode())
    assert all(
        f'data-label="{label}">{gpus}</td>' in read for label, gpus in (("Guaranteed", 3), ("Usually", 4))
    )
    ended = client.post("/ops/dated-guarantees", {"act": "end", "guarantee": str(row.id)}, follow=True)
    assert "the usual guarantee" in flat(ended.content.decode())
    with as_system():
        assert DatedGuarantee.objects.get().ended is not None


def test_an_end_before_it_was_made_is_refused_by_the_database(site: Site) -> None:
    row = made(site, 3, MONDAY - 1400 * DAY, FRIDAY - 1400 * DAY, MONDAY - 1401 * DAY)
    with as_owner(), pytest.raises(IntegrityError), transaction.atomic():
        DatedGuarantee.objects.filter(id=row.id).update(ended=row.created - HOUR, ended_by=row.created_by)


def test_one_that_is_missing_is_a_404(site: Site) -> None:
    actor = PlatformActor(site.people["operator"].pk, "Olaf")
    with as_role("portal_ops"), pytest.raises(Refused, match="no such"):
        guarantee_end(actor=actor, guarantee_id=site.tenant.id, now=NOW)
