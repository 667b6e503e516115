"""The checklist of a new tenant's admin: from the data, with the next step marked."""

import re
from html import unescape

import pytest
from django.test import Client
from django.utils import timezone

from tenants.models import Quota, Tenant
from tenants.platform.wall import tenant_tx
from tenants.services import invitation_create, project_create
from tests.api.builders import a_site, said, some_money
from tests.builders import a_gpu_class, a_quota, a_tenant, a_tenant_admin, a_tier, actor_now
from tests.roles import as_system

pytestmark = [pytest.mark.django_db, pytest.mark.turn]


def steps(client: Client, tenant: Tenant) -> list[tuple[str, str]]:
    """Each step's title, and `done`, `next` or nothing."""
    page = client.get(f"/t/{tenant.slug}/").content.decode()
    found = re.findall(r'<li class="(done|next|)"[^>]*>.*?<b>([^<]+)</b>', page, re.DOTALL)
    return [(unescape(title), state) for state, title in found]


def test_each_step_is_done_when_its_data_is_there_and_the_next_is_marked(client: Client) -> None:
    tenant, now = a_tenant("own"), timezone.now()
    admin = a_tenant_admin(tenant)
    actor = actor_now(admin.user_id, "own")
    client.force_login(admin.user)

    def states() -> list[str]:
        return [state for _, state in steps(client, tenant)]

    assert [title for title, _ in steps(client, tenant)] == [
        *("Create a project", "Set quotas", "Set a budget", "Invite people", "Book GPUs")
    ]
    assert states() == ["next", "", "", "", ""]
    with tenant_tx(tenant.id):
        project = project_create(actor=actor, slug="vision", name="Vision", now=now)
    # The operator sets the quota: the admin continues with the next step.
    assert states() == ["done", "", "next", "", ""]
    a_gpu_class()
    for slug in ("standard", "spot"):
        a_tier(slug, pausable=slug == "spot")
    a_quota(tenant, guaranteed=0, limit=0)
    assert states() == ["done", "", "next", "", ""], "a quota of nothing is none"
    with as_system():
        Quota.objects.update(guaranteed_units=56_000)
    assert states() == ["done", "done", "next", "", ""]
    some_money(project, "1000")
    assert states() == ["done", "done", "done", "next", ""]
    with tenant_tx(tenant.id):
        invitation_create(actor=actor, to="nobody", role="lead", project="vision", now=now)
    assert states() == ["done", "done", "done", "done", "next"]


def test_it_is_for_tenant_admins_and_goes_away_with_the_first_booking(
    client: Client,
) -> None:
    site = a_site()
    client.force_login(site.people["admin"])
    assert steps(client, site.tenant)[-1] == ("Book GPUs", "next")
    client.force_login(site.people["lead"])
    assert "Create a project" not in dict(steps(client, site.tenant))
    made = site.researcher.post("bookings", {"project": "folding", "request": "1 h100 for 10m"})
    assert said(made)["number"] == "BK-1"
    client.force_login(site.people["admin"])
    assert steps(client, site.tenant) == []


def test_members_have_steps_of_their_own_until_done_or_hidden(client: Client) -> None:
    site = a_site()
    client.force_login(site.people["researcher"])
    own = [title for title, _ in steps(client, site.tenant)]
    assert own[0] == "Protect your account"
    assert "Book GPUs" in own
    assert "Invite your team" not in own
    wanted = {"project": "folding", "tier": "standard", "request": "1 h100 for 1h"}
    said(site.researcher.post("bookings", wanted))
    assert ("Book GPUs", "done") in steps(client, site.tenant)
    assert client.post("/t/helix/first-steps").status_code == 302
    assert steps(client, site.tenant) == []
    client.force_login(site.people["lead"])
    client.cookies.pop("first-steps")
    assert ("Invite your team", "done") in steps(client, site.tenant)
