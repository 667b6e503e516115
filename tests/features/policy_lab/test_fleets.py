"""The past with more GPUs: what is added, what it changes, and who reads it."""

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from allocation.features.policy_lab.history import history_read
from allocation.features.policy_lab.models import PolicyTrial, PolicyTrialTenant
from allocation.features.policy_lab.plays.fleets import (
    FleetTerms,
    fleet_words,
    gpu_seconds_of,
    history_with_gpus,
)
from allocation.features.policy_lab.trials import trials_run
from allocation.models import Booking, Gpu
from allocation.rules.states import State
from solver import UNITS_PER_GPU
from tenants.models import Quota
from tests.api.builders import Site, a_site, said
from tests.builders_allocation import a_booking, an_allocation
from tests.roles import as_owner, as_system
from tests.web.flat import flat

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
HOUR = timedelta(hours=1)
NOW = timezone.now().replace(minute=0, second=0, microsecond=0)
DAY = 86_400


@pytest.fixture
def site(db: None) -> Site:
    """Four days on which more was asked for than there is: half of it waited for six hours."""
    site = a_site()
    with as_system():
        gpus = list(Gpu.objects.order_by("number"))
    for day in range(4):
        begin = NOW - timedelta(days=4 - day)
        for gpu in gpus:
            for starts in (begin, begin + 6 * HOUR):
                ran(site, gpu, begin, starts)
    return site


def ran(site: Site, gpu: Gpu, submitted: datetime, starts: datetime) -> None:
    """A booking of six hours that began later than it was asked for."""
    booking = a_booking(
        site.project, site.people["researcher"].pk, state=State.ENDED, starts=starts, now=starts
    )
    with as_owner():
        Booking.objects.filter(id=booking.id).update(
            submitted=submitted,
            starts=None,
            not_before=submitted,
            duration_seconds=6 * 3_600,
            planned_class=gpu.gpu_class_id,
            ended_at=starts + 6 * HOUR,
        )
    an_allocation(booking, gpu, starts=starts, ends=starts + 6 * HOUR, state="ended")


def played(site: Site, **fleet: object) -> PolicyTrial:
    body = {"candidate": 1, "days": 7, "seeds": 1, "fleet": {"gpu_class": "h100", **fleet}}
    made = said(site.operator.post("policy/trials", body))
    with as_system():
        assert trials_run(lambda: NOW + timedelta(minutes=1)) == 1
        return PolicyTrial.objects.get(id=made["id"])


def test_nodes_like_the_largest_are_added_with_their_hosts(site: Site) -> None:
    with as_system():
        history, _ = history_read(NOW - timedelta(days=7), NOW)
    before = history.site.gpus
    like = [gpu for gpu in before if gpu.node == before[0].node]
    found = history_with_gpus(history, FleetTerms(gpu_class="h100", gpus=len(like) + 1))
    more = found.site.gpus[len(before) :]
    assert len({gpu.id for gpu in found.site.gpus}) == len({gpu.number for gpu in found.site.gpus})
    assert [gpu.node for gpu in more] == ["more-0"] * len(like) + ["more-1"]
    assert {replace(gpu, id="", number=0, node="", index=0) for gpu in more} <= {
        replace(gpu, id="", number=0, node="", index=0, mode=None, stands=None, usable=True) for gpu in like
    }
    assert len(found.site.hosts) - len(history.site.hosts) in (0, 2)
    assert found.maintenance == history.maintenance
    assert history_with_gpus(history, FleetTerms(gpu_class="b200", gpus=8)) == history


@pytest.mark.parametrize(("from_hour", "to_hour", "there"), [(8, 20, 12), (20, 8, 12), (0, 1, 1), (5, 5, 24)])
def test_a_burst_is_there_in_its_hours_only(site: Site, from_hour: int, to_hour: int, there: int) -> None:
    with as_system():
        history, _ = history_read(NOW - timedelta(days=7), NOW)
    fleet = FleetTerms(gpu_class="h100", gpus=2, from_hour=from_hour, to_hour=to_hour)
    found = history_with_gpus(history, fleet)
    away = [each.row for each in found.maintenance if each.row.gpu.startswith("more-")]
    first = history.site.now // DAY * DAY + DAY
    for hour in range(24):
        at = first + hour * 3_600
        is_away = any(row.starts <= at < row.ends for row in away)
        is_there = (hour - from_hour) % 24 < there
        assert is_away != is_there, hour
    assert gpu_seconds_of(fleet, DAY) == 2 * there * 3_600


def test_words_name_the_hours_of_a_burst() -> None:
    assert fleet_words(FleetTerms(gpu_class="h100", gpus=8), "H100") == "8 more H100"
    burst = FleetTerms(gpu_class="h100", gpus=8, from_hour=8, to_hour=20)
    assert fleet_words(burst, "H100") == "8 more H100 from 8:00 to 20:00 UTC"


def test_with_as_many_gpus_more_nobody_waits_and_organisations_read_their_part(
    site: Site, client: Client
) -> None:
    with as_system():
        gpus = Gpu.objects.count()
        # Limits stay those of now, and would be what it waits for.
        Quota.objects.filter(tenant=site.tenant).update(guaranteed_units=2 * gpus * UNITS_PER_GPU)
    done = played(site, gpus=gpus)
    assert (done.state, done.note) == ("done", "")
    report = done.report
    assert report is not None
    (own,) = [row for row in report["tenants"] if row["name"] == "helix"]
    assert own["active"]["mean"] > 3_600 > own["candidate"]["mean"]
    assert own["effect"] == "shorter"
    totals = report["totals"]
    assert totals["candidate"]["utilisation_ppm"] < totals["active"]["utilisation_ppm"]
    with as_system():
        parts = {row.tenant.slug: row.rows for row in PolicyTrialTenant.objects.select_related("tenant")}
    assert parts.keys() == {"helix"}
    assert [row["name"] for row in parts["helix"]] == ["", site.project.slug]

    for who, names in ((site.admin, ["", site.project.slug]), (site.lead, [site.project.slug])):
        answer = said(who.get("capacity/own"))
        assert [row["project"] for row in answer["more"][0]["rows"]] == names
        assert sum(answer["waits"][0]["weeks"]) == pytest.approx(4 * gpus * 6)
        assert answer["more"][0]["rows"][0]["p95"] > answer["more"][0]["rows"][0]["p95_more"]
    assert said(site.outsider.get("capacity/own")).get("code") in ("not_allowed", None)
    assert said(site.researcher.get("capacity/own"))["code"] == "not_allowed"

    client.force_login(site.people["lead"])
    page = flat(client.get(f"/t/{site.tenant.slug}/insights?part=cards").content.decode())
    assert "GPUs that were missing" in page
    assert f"With {gpus} more" in page
    client.force_login(site.people["researcher"])
    assert (
        "GPUs that were missing"
        not in client.get(f"/t/{site.tenant.slug}/insights?part=cards").content.decode()
    )


def test_another_organisation_reads_nothing_of_it(site: Site) -> None:
    played(site, gpus=2)
    answer = site.outsider.get("capacity/own")
    if answer.status_code == 200:
        assert said(answer)["more"] == []
        assert said(answer)["waits"] == []


def test_a_fleet_trial_is_no_trial_of_a_version(site: Site) -> None:
    body = {"candidate": 1, "days": 7, "fleet": {"gpu_class": "h100", "gpus": 2}}
    said(site.operator.post("policy/trials", body))
    assert said(site.operator.get("policy/versions/1"))["state"] != "trial"


@pytest.mark.parametrize(
    "fleet",
    [
        {"gpu_class": "h100", "gpus": 0},
        {"gpu_class": "h100", "gpus": 513},
        {"gpu_class": "h100", "gpus": 1, "to_hour": 25},
        {"gpu_class": "h100", "gpus": 1, "from_hour": -1},
        {"gpu_class": "none", "gpus": 1},
        {"gpus": 1},
        {"gpu_class": "h100"},
        [],
    ],
)
def test_what_is_no_fleet_is_refused(site: Site, fleet: object) -> None:
    answer = site.operator.post("policy/trials", {"candidate": 1, "fleet": fleet})
    assert answer.status_code in (400, 422)
    with as_system():
        assert not PolicyTrial.objects.exists()


def test_operators_ask_follow_and_cancel_it_on_a_page(site: Site, client: Client) -> None:
    client.force_login(site.people["operator"])
    page = "/ops/capacity/trials"
    assert "No trials yet" in client.get(page).content.decode()
    form = {"act": "ask", "gpu_class": "h100", "gpus": "2", "days": "7", "from_hour": "8", "to_hour": "20"}
    assert client.post(page, {**form, "days": "29"}).status_code == 422
    assert client.post(page, {**form, "gpus": "many"}).status_code == 422
    assert client.post(page, form).status_code == 302
    shown = flat(client.get(page).content.decode())
    assert "from 8:00 to 20:00 UTC" in shown
    assert "It begins within seconds." in shown
    with as_system():
        trial = PolicyTrial.objects.get()
    assert client.post(page, {"act": "cancel", "trial": str(uuid4())}).status_code in (404, 422)
    client.post(page, {"act": "cancel", "trial": str(trial.id)})
    assert "Cancelled" in client.get(page).content.decode()
    client.post(page, form)
    with as_system():
        trials_run(lambda: NOW + timedelta(minutes=1))
        done = PolicyTrial.objects.get(state="done")
    shown = flat(client.get(page).content.decode())
    assert "with the present GPUs" in shown
    detail = flat(client.get(f"/ops/policy/trials/{done.id}").content.decode())
    assert "with the GPUs of now, and with 2 more" in detail
    client.force_login(site.people["admin"])
    assert client.get(page).status_code in (403, 404)
