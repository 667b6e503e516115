"""Overviews by role: the same figures as elsewhere, what waits for an answer, and nobody else's."""

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from allocation.models import Decision, Gpu, PolicyVersion
from allocation.rules.states import State
from tenants.models import Invitation, Membership, Quota, Role, Webhook
from tests.api.builders import Site, said
from tests.builders import a_project
from tests.builders_allocation import HOUR, a_booking, a_budget, an_allocation
from tests.features.insights.test_insights import lived
from tests.roles import as_owner, as_system
from tests.web.flat import flat

pytestmark = pytest.mark.django_db


def page(site: Site, who: str, address: str) -> str:
    client = Client()
    client.force_login(site.people[who])
    answer = client.get(address)
    assert answer.status_code == 200, answer.content[:300]
    return flat(answer.content.decode())


def tile(shown: str, name: str) -> str:
    found = re.search(rf'<dt>{name}</dt><dd class="v[^"]*">(.*?)</dd>', shown)
    assert found is not None, name
    return re.sub(r"<[^>]+>", "", found[1]).strip()


def test_an_admin_sees_the_organisation_with_the_figures_of_insights(site: Site) -> None:
    lived(site, 11, timezone.now().replace(microsecond=0))
    base = f"/t/{site.tenant.slug}"
    shown, insights = page(site, "admin", f"{base}/overview"), page(site, "admin", f"{base}/insights")
    for name in ("GPU-hours", "Busy", "Energy", "Median wait"):
        # Runs of now have become longer between the two.
        assert tile(shown, name)[:-2] == tile(insights, name)[:-2]
    assert site.tenant.name in shown
    day = re.search(rf'<a href="{base}/bookings\?(from=[0-9-]+&amp;to=[0-9-]+)"', shown)
    assert day is not None, "a bar leads to the bookings of its days"
    assert "BK-" in page(site, "admin", f"{base}/bookings?{day[1].replace('&amp;', '&')}")
    lead = page(site, "lead", f"{base}/overview")
    assert f'<a href="{base}/bookings?project={site.project.slug}&amp;from=' in lead
    assert '<a href="/ops/bookings?from=' in page(site, "operator", "/ops/overview")
    home = page(site, "admin", f"{base}/")
    assert f'data-live-url="{base}/overview"' in home


def now_of(shown: str) -> str:
    """The line of now without spaces."""
    found = re.search(r'<p class="lede"> ?<b class="num">(.*?)</p>', shown)
    assert found is not None
    return re.sub(r"<[^>]+>| ", "", found[1])


def test_what_is_in_use_now_is_that_of_the_readers_projects(site: Site) -> None:
    """A half of a GPU in the lead's project, a whole one in another, and one of another organisation."""
    now, base = timezone.now(), f"/t/{site.tenant.slug}"
    with as_system():
        gpus = list(Gpu.objects.order_by("number"))
    for gpu, project, profile in zip(
        gpus, (site.project, site.hidden, site.other_project), ("3g.40gb", None, None), strict=False
    ):
        owner = site.people["outsider" if project == site.other_project else "researcher"].pk
        booking = a_booking(project, owner, state=State.ACTIVE, starts=now - HOUR, now=now - HOUR, held="0")
        an_allocation(booking, gpu, profile=profile, starts=now - HOUR, ends=now + HOUR, state="active")
    a_booking(site.hidden, site.people["researcher"].pk, state=State.QUEUED, held="0")
    with as_owner():
        Quota.objects.filter(tenant=site.tenant, project=None).update(guaranteed_units=0)
    assert now_of(page(site, "admin", f"{base}/overview")) == "1.5GPUsinusenow·2running·1waiting"
    assert now_of(page(site, "lead", f"{base}/overview")) == "0.5GPUsinusenow·1running·0waiting"


def test_a_lead_sees_the_first_project_and_a_researcher_has_no_part_on_the_start_page(site: Site) -> None:
    lived(site, 11, timezone.now().replace(microsecond=0))
    base = f"/t/{site.tenant.slug}"
    shown = page(site, "lead", f"{base}/overview")
    assert site.project.name in shown
    assert site.hidden.name not in shown
    assert "Since yesterday" not in shown, "the log is for admins"
    assert "data-live-now" in page(site, "lead", f"{base}/")
    assert "data-live-now" not in page(site, "researcher", f"{base}/")


def test_a_lead_of_two_projects_sees_both_together_and_nothing_of_a_third(site: Site) -> None:
    now, base = timezone.now().replace(microsecond=0), f"/t/{site.tenant.slug}"
    with as_owner():
        third = a_project(site.tenant, "third")
        Membership.objects.create(tenant=site.tenant, project=third, user=site.people["lead"], role=Role.LEAD)
        budgets = [a_budget(each, "1000") for each in (third, site.hidden)]
    with as_system():
        gpus = list(Gpu.objects.order_by("number"))
    for gpu, project in zip(gpus, (site.project, third, site.hidden), strict=False):
        owner = site.people["researcher"].pk
        booking = a_booking(project, owner, state=State.ACTIVE, starts=now - HOUR, now=now - HOUR, held="0")
        an_allocation(booking, gpu, starts=now - HOUR, ends=now + HOUR, state="active")
    shown = page(site, "lead", f"{base}/overview")
    assert now_of(shown).startswith("2GPUsinusenow·2running")
    assert "All my projects" in shown
    assert re.findall(r'<h2 id="(money-\d)">Budget for', shown) == ["money-1", "money-2"]
    assert budgets[0].project is not None
    assert f'<span class="sub">{budgets[0].project.name}</span>' in shown
    insights = page(site, "lead", f"{base}/insights")
    assert '<option value="projects:mine" selected>' in insights
    one = page(site, "lead", f"{base}/insights?project=third")
    hours = [float(tile(each, "GPU-hours").split()[0]) for each in (insights, one)]
    assert hours == [pytest.approx(2, abs=0.1), pytest.approx(1, abs=0.1)]
    for address in ("insights?part=cards", "insights/compare", "insights.csv"):
        client = Client()
        client.force_login(site.people["lead"])
        assert client.get(f"{base}/{address}").status_code == 200
    # Who has one project reads that; who has none is refused.
    assert "projects:mine" not in page(site, "researcher", f"{base}/insights")
    answer = said(site.lead.get("kpis", project="projects:mine"))
    assert sum(float(each["gpu_hours"]) for each in answer["items"]) == pytest.approx(2, abs=0.1)
    assert said(site.outsider.get("kpis", project="projects:mine"))["items"] == []


def test_what_waits_for_an_answer_is_counted_for_who_can_give_it(site: Site) -> None:
    now, base = timezone.now(), f"/t/{site.tenant.slug}"
    assert "No request needs an answer" in page(site, "admin", f"{base}/overview")
    with as_owner():
        Invitation.objects.create(
            tenant=site.tenant,
            project=site.project,
            role=Role.RESEARCHER,
            invitee="new@example.org",
            made_by=site.people["admin"],
            created=now,
            expires=now + timedelta(days=3),
        )
        Webhook.objects.create(
            tenant=site.tenant,
            created_by=site.people["admin"],
            name="broken",
            url="https://example.org",
            events=["booking.started"],
            created=now,
            last_delivered=now,
            disabled_at=now,
            disabled_reason="It failed for 24 h.",
        )
    shown = page(site, "admin", f"{base}/overview")
    assert "1 invitation not answered yet" in shown
    assert "1 webhook switched off after failures" in shown
    assert "invitation" not in page(site, "outsider", f"/t/{site.other_project.tenant.slug}/overview")


def test_an_operator_sees_the_queue_and_late_decisions_of_all(site: Site) -> None:
    now = timezone.now()
    with as_system():
        for state in (State.QUEUED, State.AWAITING_APPROVAL, State.PAUSED):
            a_booking(site.project, site.people["researcher"].pk, state=state, starts=now - 2 * HOUR)
        policy = PolicyVersion.objects.get(state="live")
        for number, milliseconds in enumerate((40, 7_250)):
            Decision.objects.create(
                at=now - HOUR * number,
                leader_term=1,
                policy=policy,
                solve_ms=milliseconds,
                snapshot=b"",
                plan=b"",
                snapshot_sha256="1" * 64,
                plan_sha256="2" * 64,
                software="test",
            )
    shown = page(site, "operator", "/ops/overview")
    # As the page of organisations and the lists of bookings count them.
    assert tile(shown, "Waiting").startswith("2")
    assert re.search(r"of 1 organisation, the first for 2 h[^<]* · 1 paused", shown)
    assert 'data-figure="waiting">2<' in page(site, "operator", "/ops/tenants")
    assert tile(shown, "Slow decisions") == "1of 2"
    assert "the longest 7.25 s" in shown
    client = Client()
    client.force_login(site.people["admin"])
    assert client.get("/ops/overview").status_code == 404


def test_spend_of_organisations_has_their_currency_and_operators_see_the_sum(site: Site) -> None:
    lived(site, 11, timezone.now().replace(microsecond=0))
    base = f"/t/{site.tenant.slug}"
    insights = page(site, "admin", f"{base}/insights")
    spend = tile(insights, "Spend")
    assert spend.startswith("€")
    assert spend != "€0.00"
    assert 'id="spend">Spend by class</h2>' in insights
    assert tile(page(site, "operator", "/ops/overview"), "Spend") == spend
    by_tenant = page(site, "operator", "/ops/insights?by=tenant")
    assert f'data-label="Spend">{spend}</td>' in by_tenant
    assert 'id="spend">' not in by_tenant, "organisations have currencies of their own"
